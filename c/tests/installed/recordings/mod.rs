//! The example of a codec that is injected into a database of recordings: the page's commands, and their
//! results.

mod database;
mod fixture;
mod page;
mod refused;
mod sanitized;
mod wav;
