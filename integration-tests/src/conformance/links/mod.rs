//! Checks of sources and targets: functions injected over the transport.

mod calls;
mod code;
#[cfg(test)]
mod faults;
mod large;
mod mix;
mod refusals;
mod room;
mod samples;
mod volume;

use super::failure::Counted;
use super::host::Stage;

/// One check.
pub(super) type Check = (&'static str, fn(&Stage) -> Counted);

/// All checks: the columns.
pub(super) const CHECKS: [Check; 12] = [
    ("samples", samples::samples),
    ("calls", calls::calls),
    ("replies", calls::replies),
    ("sources", calls::sources),
    ("flush", volume::flush),
    ("unread", room::unread),
    ("lost code", code::lost_code),
    ("restart", code::restart),
    ("refusals", refusals::refusals),
    ("mix", mix::mix),
    ("volume", volume::volume),
    ("large", large::large),
];
