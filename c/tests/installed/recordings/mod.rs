//! The example of a codec that is injected into a database of recordings: the README's commands, and their
//! results.

mod kept;
mod place;
mod refused;
mod sanitized;
mod typed;
mod wav;
