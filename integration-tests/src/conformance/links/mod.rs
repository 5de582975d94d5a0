//! Checks of sources and targets: functions injected over the transport.

mod calls;
mod code;
#[cfg(test)]
mod faults;
mod large;
mod mixed_traffic;
mod one_way_streams;
mod refusals;
mod samples;
mod unread_replies;

use super::failure::Counted;
use super::host::Fixture;

/// One check.
pub(super) type Check = (&'static str, fn(&Fixture) -> Counted);

/// The checks whose claims differ from mode to mode: how code travels, where it is stored, which calls are refused.
pub(super) const OF_MODES: [&str; 6] = ["samples", "lost code", "restart", "refusals", "mix", "large"];

/// All checks: the columns.
pub(super) const CHECKS: [Check; 12] = [
    ("samples", samples::samples),
    ("calls", calls::calls),
    ("replies", calls::replies),
    ("sources", calls::sources),
    ("flush", one_way_streams::flush),
    ("unread", unread_replies::unread),
    ("lost code", code::lost_code),
    ("restart", code::restart),
    ("refusals", refusals::refusals),
    ("mix", mixed_traffic::mix),
    ("volume", one_way_streams::volume),
    ("large", large::large),
];
