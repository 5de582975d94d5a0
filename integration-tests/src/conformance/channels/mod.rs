//! Checks of two endpoints in one process, and of the frames between them.

mod addresses;
mod back_pressure;
mod connect;
#[cfg(test)]
mod faults;
mod laps;
mod lending;
mod limits;
mod peer_gone;
mod sleeping;
mod stream;
mod torn;
mod torn_last_word;

use super::failure::Counted;
use super::subject::Subject;

pub use torn::{Stream, stream};
pub use torn_last_word::{LastWords, last_words};

/// One check.
pub(super) type Check = (&'static str, fn(&Subject) -> Counted);

/// All checks: the columns.
pub(super) const CHECKS: [Check; 10] = [
    ("claims", limits::claims),
    ("limits", limits::limits),
    ("addresses", addresses::addresses),
    ("sizes", laps::sizes),
    ("laps", laps::laps),
    ("threads", laps::threads),
    ("full", back_pressure::full),
    ("sleeping", sleeping::sleeping),
    ("lending", lending::lending),
    ("peer gone", peer_gone::peer_gone),
];
