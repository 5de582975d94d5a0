//! Errors of waiting for a target.

use std::fmt;
use std::time::Duration;

/// A wait that ended without the awaited event.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WaitError {
    /// The time was up.
    #[error(
        "waiting for {awaited} from {peer} timed out after {timeout:?}: wait longer, or see what the target does"
    )]
    TimedOut {
        /// The event that did not come.
        awaited: Awaited,
        /// The target, as it was addressed.
        peer: String,
        /// The time allowed.
        timeout: Duration,
    },
    /// The target ended, or the connection to it did.
    #[error("the target {peer} is gone: {why}")]
    PeerGone {
        /// The target, as it was addressed.
        peer: String,
        /// The observation that showed it, for people.
        why: String,
    },
}

/// An event that a source waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Awaited {
    /// Credit for another frame.
    Credit,
    /// The outcome of a call.
    Outcome,
    /// The target's word that all calls before have run.
    Flush,
    /// The refusals of one-way calls, which a flush reports.
    Refusals,
}

impl fmt::Display for Awaited {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Awaited::Credit => "credit",
            Awaited::Outcome => "a reply",
            Awaited::Flush => "the end of a flush",
            Awaited::Refusals => "the refusals of a flush",
        })
    }
}
