//! Outcomes of a call other than a reply.

use farjump_control::RefusalCause;
use farjump_core::debug_in_words;
use farjump_loader::Shape;

/// A call without a usable reply: the target refused it, its function panicked, or its reply is no value of the
/// expected type.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
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
    /// Some of the calls that it led to were lost (`farjump_forward`, `farjump_again`).
    #[error(transparent)]
    Incomplete(Box<IncompleteReply>),
    /// A typed call whose reply has another length than its type. The function ran.
    #[error(transparent)]
    ReplyLength(Box<ReplyLength>),
}

/// The outcome of a call that led to others, of which some were lost: their targets ended or refused them, or their
/// functions panicked.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "`{ifunc}` led to calls that were lost, {lost} in all and whatever they would have led to; the first: {text}"
)]
#[non_exhaustive]
pub struct IncompleteReply {
    /// Name of the ifunc.
    pub ifunc: String,
    /// Number of lost calls, without those that they would have led to.
    pub lost: u64,
    /// The reason of the first one, in its target's words.
    pub text: String,
    /// The replies of the other calls, in order of arrival.
    pub replies: Vec<u8>,
}

/// A reply of another length than the type of a typed call.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "the reply of `{ifunc}` has {len} bytes, and a `{type_name}` is {shape}: call it with the type of its reply"
)]
#[non_exhaustive]
pub struct ReplyLength {
    /// Name of the ifunc.
    pub ifunc: String,
    /// Bytes of the reply.
    pub len: usize,
    /// The program's type.
    pub type_name: &'static str,
    /// The bytes of such a value.
    pub shape: Shape,
}

debug_in_words!(CallError {
    Refused { ifunc, cause, text },
    Panicked { ifunc, message },
    Incomplete(inner),
    ReplyLength(inner),
});
