//! Errors of waiting for a target.

use std::sync::Arc;
use std::time::Duration;

use farjump_control::HandshakeError;
use farjump_core::transport::TransportError;
use farjump_core::{debug_in_words, worded};

/// A wait that ended without the awaited event.
#[derive(Clone, thiserror::Error)]
#[non_exhaustive]
pub enum WaitError {
    /// The wait timed out.
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
    #[error("the target {peer} is gone: {cause}")]
    PeerGone {
        /// The target, as it was addressed.
        peer: String,
        /// The observation that showed it.
        cause: GoneCause,
    },
    /// A forked child uses its parent's link.
    #[error(
        "this link to {peer} is that of the process with pid {parent}, which forked this one: connect a link after the fork"
    )]
    Forked {
        /// The target, as it was addressed.
        peer: String,
        /// The process that connected it.
        parent: u32,
    },
    /// An outcome that was taken before, by this future or by one of the same number.
    #[error("the outcome of this call from {peer} was taken before: await each call once")]
    Taken {
        /// The target, as it was addressed.
        peer: String,
    },
    /// A link that this program closed.
    #[error("this link to {peer} was closed: connect another one")]
    Closed {
        /// The target, as it was addressed.
        peer: String,
    },
    /// An awaited call on a link that no task drives.
    #[error(
        "no task drives the link to {peer}: run Link::drive beside this one, or build farjump with the feature tokio"
    )]
    NotDriven {
        /// The target, as it was addressed.
        peer: String,
    },
}

debug_in_words!(WaitError {
    TimedOut { awaited, peer, timeout },
    PeerGone { peer, cause },
    Forked { peer, parent },
    Taken { peer },
    Closed { peer },
    NotDriven { peer },
});

/// The observation that showed that a target is gone.
#[derive(Clone, thiserror::Error)]
#[non_exhaustive]
pub enum GoneCause {
    /// The target closed the link, and said why.
    #[error("it closed the link: {text}")]
    Closed {
        /// The target's text, stripped of control characters.
        text: String,
    },
    /// The control connection ended or failed.
    #[error("{}", of_connection(_0))]
    Control(Arc<HandshakeError>),
    /// The transport failed, or the target broke its protocol.
    #[error(transparent)]
    Transport(TransportError),
    /// The link was connected anew before the outcome came.
    #[error("the link was made anew before the outcome came")]
    Reconnected,
}

debug_in_words!(GoneCause {
    Closed { text },
    Control(inner),
    Transport(inner),
    Reconnected,
});

/// The text for the end of a control connection, after words that say that the target is gone.
fn of_connection(error: &HandshakeError) -> String {
    match error {
        HandshakeError::PeerGone { peer } => format!("{peer} has ended, or closed the link"),
        HandshakeError::Silent { peer, seconds } => {
            format!("the machine of {peer} did not answer for {seconds} s")
        }
        other => other.to_string(),
    }
}

worded! {
    /// An event that a source waits for.
    #[non_exhaustive]
    Awaited {
        /// Credit for another frame.
        Credit = "credit",
        /// The outcome of a call.
        Outcome = "a reply",
        /// The target's confirmation that all earlier calls have run.
        Flush = "the end of a flush",
        /// The refusals of one-way calls, which a flush reports.
        Refusals = "the refusals of a flush",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn that_a_target_is_gone_is_said_once() {
        let text = |error: HandshakeError| {
            let cause = GoneCause::Control(Arc::new(error));
            WaitError::PeerGone { peer: "unix:a".to_owned(), cause }.to_string()
        };
        let peer = || "farjump (pid 7)".to_owned();
        for (error, text_of_it) in [
            (
                HandshakeError::PeerGone { peer: peer() },
                "the target unix:a is gone: farjump (pid 7) has ended, or closed the link",
            ),
            (
                HandshakeError::Silent { peer: peer(), seconds: 9 },
                "the target unix:a is gone: the machine of farjump (pid 7) did not answer for 9 s",
            ),
        ] {
            assert_eq!(text(error), text_of_it);
        }
    }
}
