//! The example of a codec that is brought to a database of recordings: what the README types, and what comes of it.

mod kept;
mod place;
mod refused;
mod sanitized;
mod typed;
mod wav;
