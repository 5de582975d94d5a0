//! Checks of two endpoints in one process, and of the frames between them.

mod addresses;
mod ends;
#[cfg(test)]
mod faults;
mod full;
mod gone;
mod laps;
mod last_word;
mod limits;
mod sleeping;
mod stream;
mod torn;

use super::failure::Counted;
use super::subject::Subject;

pub use last_word::{LastWords, last_words};
pub use torn::{Stream, stream};

/// One check.
pub(super) type Check = (&'static str, fn(&Subject) -> Counted);

/// All checks: the columns.
pub(super) const CHECKS: [Check; 9] = [
    ("claims", limits::claims),
    ("limits", limits::limits),
    ("addresses", addresses::addresses),
    ("sizes", laps::sizes),
    ("laps", laps::laps),
    ("threads", laps::threads),
    ("full", full::full),
    ("sleeping", sleeping::sleeping),
    ("peer gone", gone::peer_gone),
];
