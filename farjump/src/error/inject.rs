//! Errors of injecting. Nothing was sent.

use farjump_core::{counted, debug_in_words, worded};
use std::fmt;

/// A call that was not sent.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InjectError {
    /// The mailbox has no credit now, and the caller did not want to wait.
    #[error("the target has no credit for another frame now: poll for replies, then try again")]
    Full,
    /// A frame that can never be sent on this link.
    #[error(
        "`{ifunc}` needs a frame of {len} bytes, this link takes at most {max}: send less at a time, or have the target take more \
         (TargetBuilder::mailbox_size, TargetBuilder::max_payload; TargetBuilder::max_frame, TargetBuilder::max_source_memory if it has these limits)"
    )]
    TooLarge {
        /// Name of the ifunc.
        ifunc: String,
        /// Bytes needed.
        len: usize,
        /// The limit.
        max: usize,
    },
    /// A payload or code longer than the limit that the target announced in the handshake.
    #[error(
        "the {part} of `{ifunc}` has {len} bytes, and the target takes {max} at most: {}",
        match part {
            Part::Image => "build it smaller, or have the target take more (TargetBuilder::max_image, TargetBuilder::max_source_memory)",
            Part::Payload => "send less at a time, or have the target take more (TargetBuilder::max_payload)",
        }
    )]
    OverLimit {
        /// Name of the ifunc.
        ifunc: String,
        /// The part of the frame.
        part: Part,
        /// Its bytes.
        len: usize,
        /// The target's limit.
        max: u64,
    },
    /// `NAME_payload_init` wrote past the space that `NAME_payload_get_max_size` had requested. Memory of this process
    /// may be damaged.
    #[error(
        "`{ifunc}_payload_init` wrote past the {} that `{ifunc}_payload_get_max_size` asked for: nothing was sent; mend the library, this process may be damaged",
        counted(*max, "byte")
    )]
    PayloadOverrun {
        /// Name of the ifunc.
        ifunc: String,
        /// Bytes requested.
        max: usize,
    },
    /// Code that cannot run in place.
    #[error("`{ifunc}` cannot run in place: {fault}; choose another mode (cached, always, local)")]
    NotInPlace {
        /// Name of the ifunc.
        ifunc: String,
        /// The reason.
        fault: InPlaceFault,
    },
    /// A shared link whose handler or payload routine uses it.
    #[error(
        "this link is in use by a handler or payload routine on this thread: use it after that has returned"
    )]
    Busy,
    /// Too many pending calls on one link.
    #[error("{max} calls of this link are pending: take some outcomes first")]
    TooManyCalls {
        /// The limit.
        max: usize,
    },
    /// More different functions in use than a link can bind.
    #[error(
        "this link has bound 65,536 different functions: close libraries that are not used, or make a new link"
    )]
    TooManyFunctions,
}

debug_in_words!(InjectError {
    Full,
    TooLarge { ifunc, len, max },
    OverLimit { ifunc, part, len, max },
    PayloadOverrun { ifunc, max },
    NotInPlace { ifunc, fault },
    Busy,
    TooManyCalls { max },
    TooManyFunctions,
});

worded! {
    /// A part of a frame that a target limits.
    Part {
        /// The image of the ifunc.
        Image = "image",
        /// The payload.
        Payload = "payload",
    }
}

/// A reason against mode in place that the source finds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum InPlaceFault {
    /// The transport of the link has no mailbox.
    NoMailbox,
    /// The code has writable statics.
    Statics {
        /// Their bytes.
        len: usize,
    },
    /// The source sends bitcode, which the target compiles first.
    Bitcode,
}

impl fmt::Display for InPlaceFault {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            InPlaceFault::NoMailbox => {
                out.write_str("the link's transport delivers messages, and has no mailbox to run code in")
            }
            InPlaceFault::Bitcode => {
                out.write_str("the target takes it as bitcode, which it compiles and keeps")
            }
            InPlaceFault::Statics { len } => {
                let bytes = counted(*len, "byte");
                write!(out, "it has {bytes} of writable statics, which no memory keeps from call to call")
            }
        }
    }
}
