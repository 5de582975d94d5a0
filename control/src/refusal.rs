//! Causes for rejecting a process or refusing a frame.

use farjump_core::worded;
use serde::{Deserialize, Serialize};

worded! {
    /// The cause of a rejected handshake.
    #[derive(Hash, Serialize, Deserialize)]
    #[non_exhaustive]
    RejectCause {
        /// It admits processes of its own user only.
        OtherUser = "another user",
        /// No transport in common.
        NoCommonTransport = "no transport in common",
        /// No arrival rule in common.
        NoCommonRule = "no arrival rule in common",
        /// The transport could not make or connect its endpoint.
        TransportFailed = "the transport failed",
        /// A malformed or unexpected message, or an impossible offer.
        Protocol = "protocol broken",
        /// The handshake timed out.
        TooLate = "too late",
        /// The target has as many links as it takes.
        Full = "too many links",
        /// The target is stopping.
        Stopping = "stopping",
        /// The target's policy.
        Policy = "policy",
        /// The request cannot be carried out.
        Failed = "failed",
        /// The process has no right to its request.
        Rights = "missing right",
    }
}

worded! {
    /// The cause of a refused frame.
    #[derive(Hash, Serialize, Deserialize)]
    #[non_exhaustive]
    RefusalCause {
        /// Lengths, offsets, kind or flags that no frame can have.
        BadFrame = "damaged frame",
        /// The header's signal came and the rest of the frame did not, within the time limit.
        Stalled = "unfinished frame",
        /// The image is damaged, or could never run.
        BadImage = "unusable image",
        /// The code's hash is not the id that it came with.
        IdMismatch = "code does not match its id",
        /// The image is for another instruction set.
        WrongMachine = "code for another machine",
        /// The code imports a symbol that the target does not offer.
        UnresolvedImport = "unresolved import",
        /// The target has no memory left, for code or for a large mailbox.
        OutOfMemory = "out of memory",
        /// The frame was made for an earlier run of the target.
        StaleEpoch = "frame for an earlier run of the target",
        /// A code index that is not bound.
        UnknownIndex = "unknown code index",
        /// The frame, or its payload, exceeds the target's limit.
        TooLarge = "too large",
        /// The target requested the code and did not get it.
        CodeMissing = "code missing",
        /// The reply exceeds the source's limit.
        ReplyTooLarge = "reply too large",
        /// The target's policy.
        Policy = "policy",
        /// The ifunc's name is invalid: empty, too long, or with `/` or `..`.
        BadName = "impossible name",
        /// The code called `farjump_panic`, and the call was one-way, so no reply could say so.
        Panicked = "panicked",
        /// The code ran and forwarded itself to a destination, and no outcome of that came.
        ForwardFailed = "not forwarded",
        /// The source has no right to the frame's request.
        Rights = "missing right",
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_refusal_cause_has_a_unique_index_text_and_wire_number() {
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
