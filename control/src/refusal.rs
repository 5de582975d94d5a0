//! Causes for rejecting a process or refusing a frame.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The cause of a rejected handshake.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[non_exhaustive]
pub enum RejectCause {
    /// It admits processes of its own user only.
    OtherUser,
    /// No transport in common.
    NoCommonTransport,
    /// No arrival rule in common.
    NoCommonRule,
    /// The transport could not make or connect its endpoint.
    TransportFailed,
    /// A malformed or unexpected message, or an impossible offer.
    Protocol,
    /// The handshake timed out.
    TooLate,
    /// The target has as many links as it takes.
    Full,
    /// The target is stopping.
    Stopping,
    /// The target's policy.
    Policy,
    /// The request cannot be carried out.
    Failed,
    /// The process has no right to its request.
    Rights,
}

impl fmt::Display for RejectCause {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            RejectCause::OtherUser => "another user",
            RejectCause::NoCommonTransport => "no transport in common",
            RejectCause::NoCommonRule => "no arrival rule in common",
            RejectCause::TransportFailed => "the transport failed",
            RejectCause::Protocol => "protocol broken",
            RejectCause::TooLate => "too late",
            RejectCause::Full => "too many links",
            RejectCause::Stopping => "stopping",
            RejectCause::Policy => "policy",
            RejectCause::Failed => "failed",
            RejectCause::Rights => "missing right",
        })
    }
}

/// The cause of a refused frame.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[non_exhaustive]
pub enum RefusalCause {
    /// Lengths, offsets, kind or flags that no frame can have.
    BadFrame,
    /// The header's signal came and the rest of the frame did not, within the time limit.
    Stalled,
    /// The image is damaged, or could never run.
    BadImage,
    /// The code's hash is not the id that it came with.
    IdMismatch,
    /// The image is for another instruction set.
    WrongMachine,
    /// The code imports a symbol that the target does not offer.
    UnresolvedImport,
    /// The target has no memory left, for code or for a large mailbox.
    OutOfMemory,
    /// The frame was made for an earlier run of the target.
    StaleEpoch,
    /// A code index that is not bound.
    UnknownIndex,
    /// The frame, or its payload, exceeds the target's limit.
    TooLarge,
    /// The target requested the code and did not get it.
    CodeMissing,
    /// The reply exceeds the source's limit.
    ReplyTooLarge,
    /// The target's policy.
    Policy,
    /// The ifunc's name is invalid: empty, too long, or with `/` or `..`.
    BadName,
    /// The code called `farjump_panic`, and the call was one-way, so no reply could say so.
    Panicked,
    /// The code ran and forwarded itself to a destination, and no outcome of that came.
    ForwardFailed,
    /// The source has no right to the frame's request.
    Rights,
}

impl RefusalCause {
    /// All causes, in the order of [`RefusalCause::index`].
    pub const ALL: [RefusalCause; 17] = [
        RefusalCause::BadFrame,
        RefusalCause::Stalled,
        RefusalCause::BadImage,
        RefusalCause::IdMismatch,
        RefusalCause::WrongMachine,
        RefusalCause::UnresolvedImport,
        RefusalCause::OutOfMemory,
        RefusalCause::StaleEpoch,
        RefusalCause::UnknownIndex,
        RefusalCause::TooLarge,
        RefusalCause::CodeMissing,
        RefusalCause::ReplyTooLarge,
        RefusalCause::Policy,
        RefusalCause::BadName,
        RefusalCause::Panicked,
        RefusalCause::ForwardFailed,
        RefusalCause::Rights,
    ];

    /// Returns the number of causes: the length of an array of counters.
    pub const fn count() -> usize {
        Self::ALL.len()
    }

    /// Returns its index in an array of counters.
    pub const fn index(self) -> usize {
        self as usize
    }
}

impl fmt::Display for RefusalCause {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            RefusalCause::BadFrame => "damaged frame",
            RefusalCause::Stalled => "unfinished frame",
            RefusalCause::BadImage => "unusable image",
            RefusalCause::IdMismatch => "code does not match its id",
            RefusalCause::WrongMachine => "code for another machine",
            RefusalCause::UnresolvedImport => "unresolved import",
            RefusalCause::OutOfMemory => "out of memory",
            RefusalCause::StaleEpoch => "frame for an earlier run of the target",
            RefusalCause::UnknownIndex => "unknown code index",
            RefusalCause::TooLarge => "too large",
            RefusalCause::CodeMissing => "code missing",
            RefusalCause::ReplyTooLarge => "reply too large",
            RefusalCause::Policy => "policy",
            RefusalCause::BadName => "impossible name",
            RefusalCause::Panicked => "panicked",
            RefusalCause::ForwardFailed => "not forwarded",
            RefusalCause::Rights => "missing right",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_refusal_cause_has_its_own_place_words_and_number_on_the_wire() {
        for (place, cause) in RefusalCause::ALL.into_iter().enumerate() {
            assert_eq!(cause.index(), place);
            assert_eq!(postcard::to_stdvec(&cause).unwrap(), [place as u8]);
            let words = cause.to_string();
            assert_eq!(RefusalCause::ALL.iter().filter(|other| other.to_string() == words).count(), 1);
        }
        // One past the last decodes to no cause: ALL holds every one of them.
        assert!(postcard::from_bytes::<RefusalCause>(&[RefusalCause::count() as u8]).is_err());
    }
}
