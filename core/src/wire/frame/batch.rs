//! The payload of a frame that brings a batch, several messages for one function ([`Kind::CallBatch`]).
//!
//! | offset in the payload | bytes | what |
//! |---|---|---|
//! | 0 | 4 | length of each message in bytes |
//! | 4 | 4 | number of messages, 1 to [`MAX_BATCH`] |
//! | 8 | | the messages, each at a multiple of 8 and at least 8 bytes behind the one before |

use super::{Flags, FrameError, Header, Kind};

/// Length of the part before the messages, in bytes.
pub const MESSAGES_HEAD_LEN: usize = 8;
/// Most messages in one frame: this bounds one turn of a receiver that takes frames in turn.
pub const MAX_BATCH: u32 = 128;

/// The messages of a payload, all of one length.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Messages {
    /// Length of each in bytes.
    pub len: u32,
    /// Number of messages.
    pub count: u32,
}

impl Messages {
    /// Distance in bytes between the starts of two messages of `len` bytes.
    #[inline(always)]
    pub const fn stride(len: usize) -> usize {
        if len <= 8 { 8 } else { len.next_multiple_of(8) }
    }

    /// The word at the start of the payload.
    #[inline(always)]
    pub const fn to_word(self) -> u64 {
        self.len as u64 | (self.count as u64) << 32
    }

    /// Reads the word at the start of a payload. `header` is the frame's: checked by [`Header::check`], of
    /// [`Kind::CallBatch`].
    ///
    /// # Errors
    /// [`FrameError::Messages`] for no messages, for too many, and for messages that do not fit the payload.
    /// [`FrameError::Flags`] if a reply is wanted: a batch has none.
    #[inline]
    pub fn of(header: &Header, word: impl FnOnce() -> u64) -> Result<Messages, FrameError> {
        debug_assert!(header.kind == Kind::CallBatch);
        if header.flags.contains(Flags::WANTS_REPLY) {
            return Err(FrameError::Flags(header.flags.bits()));
        }
        let left = (header.payload_len as usize).checked_sub(MESSAGES_HEAD_LEN);
        let word = if left.is_some() { word() } else { 0 };
        let messages = Messages { len: word as u32, count: (word >> 32) as u32 };
        let Messages { len, count } = messages;
        let wrong = FrameError::Messages { len, count, payload: header.payload_len };
        let Some(left) = left else { return Err(wrong) };
        // Neither factor is over 2^33, so the product fits 64 bits.
        let needed = u64::from(count) * (u64::from(len).max(1).next_multiple_of(8));
        if count == 0 || count > MAX_BATCH || needed > left as u64 {
            return Err(wrong);
        }
        Ok(messages)
    }
}
