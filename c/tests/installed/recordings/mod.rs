//! The example of a codec that is injected into a database of recordings: the README's commands, and their
//! results.

mod database;
mod fixture;
mod readme;
mod refused;
mod sanitized;
mod wav;
