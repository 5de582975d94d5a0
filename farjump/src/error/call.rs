//! Outcomes of a call other than a reply.

use farjump_control::RefusalCause;

/// A call that gave no reply: the target refused it, or its function panicked.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CallError {
    /// The target refused a frame; nothing ran.
    #[error("{text}")]
    Refused {
        /// Name of the ifunc.
        ifunc: String,
        /// The kind of reason.
        cause: RefusalCause,
        /// The reason, in the target's words.
        text: String,
    },
    /// The injected code called `farjump_panic`.
    #[error("`{ifunc}` panicked at the target: {message}")]
    Panicked {
        /// Name of the ifunc, or its code id.
        ifunc: String,
        /// Its message.
        message: String,
    },
}
