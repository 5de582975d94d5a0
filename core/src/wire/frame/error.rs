//! Errors in frames.

/// The reasons why bytes are no frame. Each names the field and the value found.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FrameError {
    /// Fewer bytes than a header, or than the frame's length.
    #[error("frame is truncated: it needs {needed} bytes and {found} are there")]
    Truncated {
        /// Bytes needed.
        needed: usize,
        /// Bytes present.
        found: usize,
    },
    /// Bytes behind the frame in a message that should hold exactly one.
    #[error("message is overlong: the frame ends at {frame} and {found} bytes came")]
    Overlong {
        /// Length of the frame.
        frame: usize,
        /// Bytes present.
        found: usize,
    },
    /// A length of 0, not a multiple of 64, or too short for the frame's parts.
    #[error("frame length {len} is not possible (at least {least}, in multiples of 64)")]
    Length {
        /// Length in the frame.
        len: u32,
        /// Length that its parts need.
        least: u64,
    },
    /// Longer than the receiver accepts.
    #[error("frame of {len} bytes is over the limit of {limit}")]
    TooLong {
        /// Length in the frame.
        len: u32,
        /// The receiver's limit.
        limit: usize,
    },
    /// A frame that would reach past the end of the ring.
    #[error("frame of {len} bytes reaches past the end of the mailbox, {left} bytes on")]
    PastEnd {
        /// Length in the frame.
        len: u32,
        /// Bytes up to the end.
        left: usize,
    },
    /// A number that is no [`Kind`](super::Kind).
    #[error("frame kind {0} is unknown")]
    Kind(u8),
    /// Reserved bits that are set, an alignment outside 8 to 4096 bytes, or a trailer that should not be
    /// there, or a missing one.
    #[error("frame flags {0:#04x} are not possible")]
    Flags(u8),
    /// The payload overlaps the header, the name or the image, is not aligned, or reaches past the end.
    #[error("payload at {offset} of {len} bytes does not fit its frame of {frame}")]
    Payload {
        /// Offset in the frame.
        offset: u64,
        /// Length of the payload.
        len: u32,
        /// Length of the frame.
        frame: u32,
    },
    /// The image overlaps the header or name, or reaches past the end.
    #[error("image at {offset} of {len} bytes does not fit its frame of {frame}")]
    Image {
        /// Offset in the frame.
        offset: u32,
        /// Length of the image.
        len: u32,
        /// Length of the frame.
        frame: u32,
    },
    /// A name that is too long or does not fit.
    #[error("name of {0} bytes does not fit its frame, or is over 255")]
    Name(u16),
    /// No messages, too many, or messages past the end of the payload.
    #[error(
        "{count} messages of {len} bytes are not what a payload of {payload} bytes can hold (1 to 128, each at a multiple of 8)"
    )]
    Messages {
        /// Length of each message.
        len: u32,
        /// Number of messages.
        count: u32,
        /// Length of the payload.
        payload: u32,
    },
    /// A family id of another length.
    #[error("frame has a family id of {0} bytes: it must be 16, or 0 for none")]
    Family(u16),
    /// Reserved bytes that are not zero.
    #[error("reserved bytes of the frame are not zero")]
    Reserved,
    /// The signal of another position: a message of a two-sided transport was repeated, lost or overtaken.
    #[error("frame carries the signal of another position: one was lost, repeated or overtaken")]
    Signal,
}
