//! Frames: one call, reply or other unit, as bytes in a mailbox. As messages of a two-sided transport frames
//! have a shorter form, in [`layout_delivered`](Plan::layout_delivered).
//!
//! A frame starts on a 64-byte line and is a multiple of 64 bytes long. It may be longer than its contents
//! need. All words are little-endian.
//!
//! | offset | bytes | what |
//! |---|---|---|
//! | 0 | 8 | signal ([`crate::signal`]), stored last |
//! | 8 | 4 | length of the frame in bytes, a multiple of 64 |
//! | 12 | 4 | length of the payload in bytes |
//! | 16 | 1 | kind ([`Kind`]) |
//! | 17 | 1 | flags ([`Flags`]): low nibble log2 of the payload's alignment |
//! | 18 | 2 | code index; in a reply its status |
//! | 20 | 4 | token of this call, or of the call that this replies to |
//!
//! For the kinds that name code ([`Kind::names_code`]) there follows:
//!
//! | offset | bytes | what |
//! |---|---|---|
//! | 24 | 4 | offset of the image in the frame, 0 without an image |
//! | 28 | 4 | length of the image |
//! | 32 | 16 | code id; zero for the target's own function |
//! | 48 | 8 | epoch of the target in which the code index is bound |
//! | 56 | 4 | offset of the payload in the frame |
//! | 60 | 2 | length of the name |
//! | 62 | 2 | length of the family id: 0 or 16 |
//! | 64 | | the name, UTF-8, for people; then the family id |
//!
//! Then follows the payload, aligned. The last 8 bytes of every frame with [`Flags::TRAILER`] are the
//! trailer. In a frame without code the payload starts at the first suitably aligned byte from 24 on. So a
//! payload of up to 40 bytes (32 with a trailer) shares the header's line.
//!
//! In a call with [`Flags::TRAVELLED`] the last 8 bytes of the payload are its [`Passage`].
//!
//! The link's arrival rule decides whether frames have a trailer ([`Trailer`]). If the signal cannot be seen
//! before the rest, a trailer would prove nothing and cost the reader a line
//! (`docs/design/frames.md`).

use super::align::MAX_ALIGN_LOG2;
use super::code_id::CodeId;
use super::layout;

mod batch;
mod delivered;
mod error;
mod passage;
mod plain_words;
mod plan;
mod prediction;
mod view;

pub use super::align::INLINE_ALIGN_LOG2;
pub use batch::{MAX_BATCH, MESSAGES_HEAD_LEN, Messages};
pub(crate) use delivered::to_words as delivered_words;
pub use delivered::{DELIVERED_HEADER_LEN, TRANSPORT_WORD_LEN};
pub use error::FrameError;
pub use passage::{IncompleteReply, PASSAGE_LEN, Passage};
pub(crate) use plain_words::PlainWords;
pub use plan::{Layout, Plan, PlanCode, Trailer};
pub(crate) use prediction::CodeHeader;
pub use view::FrameView;

/// Length of a line, in bytes: frames start on a line and consist of whole lines.
pub const LINE: usize = 64;
/// Length of the header that every frame has, in bytes.
pub const HEADER_LEN: usize = layout::frame::CODE[0];
/// Length of the header of a frame that names code, in bytes: one line.
pub const CODE_HEADER_LEN: usize = 64;
/// Length of the trailer, in bytes.
pub const TRAILER_LEN: usize = 8;
/// Largest payload that shares a line with its header, in bytes.
pub const INLINE_PAYLOAD: usize = LINE - HEADER_LEN;
/// Largest frame that the format can express, in bytes.
pub const MAX_FRAME: usize = 1 << 31;
/// Longest name of an ifunc, in bytes.
pub const MAX_NAME: usize = 255;
/// Length of a family id, in bytes.
pub const FAMILY_LEN: usize = 16;
/// Default alignment of payloads that do not share the header's line: log2 of 64 bytes.
pub const DEFAULT_ALIGN_LOG2: u8 = 6;

/// The kind of a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
#[repr(u8)]
pub enum Kind {
    /// Nothing: the rest of the ring, exactly up to its end, is unused. Only its first line is written.
    Skip = 1,
    /// Run the code bound to the code index.
    Call = 2,
    /// Bind the code index to the image in this frame, and run it.
    CallCode = 3,
    /// Bind the code index to a code id that the target may already have, and run it. A target without it
    /// requests the code over the control connection, and the frame waits.
    CallId = 4,
    /// The reply to the call with this token.
    Reply = 5,
    /// Nothing to run: replied to once everything before it has run.
    Flush = 6,
    /// Run the target's own function with the name in this frame.
    CallLocal = 7,
    /// Run the image in this frame in place, in the mailbox. Binds nothing.
    CallInPlace = 8,
    /// The next frame is in the link's large mailbox, as the next one there. The frames after it are here
    /// again.
    Large = 9,
    /// Run the code bound to the code index once for each message in the payload ([`Messages`]), in order.
    CallBatch = 10,
    /// Bind the code index to the image in this frame, and run nothing: replied to, without bytes, once the code is
    /// placed.
    Bind = 11,
}

impl Kind {
    /// The kind with this number.
    pub const fn from_number(number: u8) -> Option<Kind> {
        Some(match number {
            1 => Kind::Skip,
            2 => Kind::Call,
            3 => Kind::CallCode,
            4 => Kind::CallId,
            5 => Kind::Reply,
            6 => Kind::Flush,
            7 => Kind::CallLocal,
            8 => Kind::CallInPlace,
            9 => Kind::Large,
            10 => Kind::CallBatch,
            11 => Kind::Bind,
            _ => return None,
        })
    }

    /// Returns whether the frame has the code header, with code id, epoch and name.
    pub const fn names_code(self) -> bool {
        matches!(self, Kind::CallCode | Kind::CallId | Kind::CallLocal | Kind::CallInPlace | Kind::Bind)
    }

    /// Returns whether this is the number of a kind whose frames consist of header and payload, and lead to
    /// nothing else.
    pub(crate) const fn is_plain(number: u8) -> bool {
        const CALL: u8 = Kind::Call as u8;
        const REPLY: u8 = Kind::Reply as u8;
        const FLUSH: u8 = Kind::Flush as u8;
        const BATCH: u8 = Kind::CallBatch as u8;
        matches!(number, CALL | REPLY | FLUSH | BATCH)
    }

    /// Returns whether a target forwards such frames ([`Flags::TRAVELLED`]).
    pub const fn travels(self) -> bool {
        matches!(self, Kind::Call | Kind::CallCode | Kind::CallId)
    }

    /// Returns whether the frame carries an image.
    pub const fn carries_image(self) -> bool {
        matches!(self, Kind::CallCode | Kind::CallInPlace | Kind::Bind)
    }
}

bitflags::bitflags! {
    /// The flags byte. Its low nibble is log2 of the payload's alignment, not flags.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub struct Flags: u8 {
        /// log2 of the payload's alignment, 3 to 12.
        const ALIGN = 0x0f;
        /// The source waits for a reply with this frame's token.
        const WANTS_REPLY = 0x10;
        /// The last 8 bytes of the frame are a trailer.
        const TRAILER = 0x20;
        /// The sender expects a frame back before it sends another. In a call: no other call of the source
        /// waits for a reply. In a reply: it replies to such a call. Only affects the placement of the
        /// following frames.
        const ALONE = 0x40;
        /// A target forwards this call. The last [`PASSAGE_LEN`] bytes of its payload are its [`Passage`],
        /// and not the function's.
        const TRAVELLED = 0x80;
    }
}

/// The result of a call, in a reply's code-index field.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u16)]
pub enum ReplyStatus {
    /// `NAME_main` returned; the payload is its reply, possibly empty.
    Done = 0,
    /// The code called `farjump_panic`; the payload is its message.
    Panicked = 1,
    /// The call led to further calls, of which some were lost; the payload is an
    /// [`IncompleteReply`].
    Incomplete = 2,
}

impl ReplyStatus {
    /// The status with this number.
    pub const fn from_number(number: u16) -> Option<ReplyStatus> {
        match number {
            0 => Some(ReplyStatus::Done),
            1 => Some(ReplyStatus::Panicked),
            2 => Some(ReplyStatus::Incomplete),
            _ => None,
        }
    }
}

/// The fields that every frame has, as private values: read once, so that a peer that writes meanwhile cannot
/// change them after the check.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header {
    /// Length of the frame in bytes, trailer and padding included.
    pub frame_len: u32,
    /// Length of the payload in bytes.
    pub payload_len: u32,
    /// Kind of the frame.
    pub kind: Kind,
    /// Alignment and flags.
    pub flags: Flags,
    /// Code index, or a reply's status.
    pub index: u16,
    /// Token of this call, or of the call that this replies to.
    pub token: u32,
}

impl Header {
    /// The two words behind the signal.
    #[inline(always)]
    pub const fn to_words(self) -> [u64; 2] {
        [
            self.frame_len as u64 | (self.payload_len as u64) << 32,
            self.kind as u64
                | (self.flags.bits() as u64) << 8
                | (self.index as u64) << 16
                | (self.token as u64) << 32,
        ]
    }

    /// Reads the two words behind the signal.
    ///
    /// # Errors
    /// [`FrameError::Kind`], [`FrameError::Flags`]. [`Header::check`] checks the lengths.
    #[inline]
    pub fn from_words([lengths, rest]: [u64; 2]) -> Result<Header, FrameError> {
        let kind = Kind::from_number(rest as u8).ok_or(FrameError::Kind(rest as u8))?;
        let raw = (rest >> 8) as u8;
        let flags = Flags::from_bits_retain(raw);
        if flags.contains(Flags::TRAVELLED) && !kind.travels() {
            return Err(FrameError::Flags(raw));
        }
        Ok(Header {
            frame_len: lengths as u32,
            payload_len: (lengths >> 32) as u32,
            kind,
            flags,
            index: (rest >> 16) as u16,
            token: (rest >> 32) as u32,
        })
    }

    /// Makes a header from two words that [`Header::from_words`] or [`Header::plain`] has accepted.
    #[inline(always)]
    pub(crate) fn of_checked([lengths, rest]: [u64; 2]) -> Header {
        Header {
            frame_len: lengths as u32,
            payload_len: (lengths >> 32) as u32,
            // All accepted numbers are listed here; a Skip is never handed out.
            kind: match rest as u8 {
                2 => Kind::Call,
                3 => Kind::CallCode,
                4 => Kind::CallId,
                5 => Kind::Reply,
                6 => Kind::Flush,
                7 => Kind::CallLocal,
                8 => Kind::CallInPlace,
                9 => Kind::Large,
                10 => Kind::CallBatch,
                11 => Kind::Bind,
                _ => Kind::Skip,
            },
            flags: Flags::from_bits_retain((rest >> 8) as u8),
            index: (rest >> 16) as u16,
            token: (rest >> 32) as u32,
        }
    }

    /// The fast path for most frames: reads and checks, as [`Header::check`] does, the two words behind the
    /// signal of a frame that names no code and has no trailer. `None` for every other frame and for all
    /// errors, which the general path names. `left` is the rest of the ring, at least a line.
    ///
    /// Its values stay in registers. The general path distinguishes some twenty errors and passes its values
    /// through memory.
    #[inline(always)]
    pub(crate) fn plain(
        [lengths, rest]: [u64; 2],
        base: usize,
        left: usize,
        limit: usize,
    ) -> Option<(Header, u32)> {
        let flags = (rest >> 8) as u8 & !Flags::WANTS_REPLY.union(Flags::ALONE).bits();
        let header = Header::of_checked([lengths, rest]);
        let len = header.frame_len as usize;
        let most = if left < limit { left } else { limit };
        if !matches!(rest as u8, 2 | 5 | 6 | 10) || len == 0 || !len.is_multiple_of(LINE) || len > most {
            return None;
        }
        // The most common layout: the payload directly behind the header, in its line.
        if flags == INLINE_ALIGN_LOG2 && header.payload_len <= INLINE_PAYLOAD as u32 {
            return Some((header, HEADER_LEN as u32));
        }
        if !(INLINE_ALIGN_LOG2..=MAX_ALIGN_LOG2).contains(&flags) {
            return None;
        }
        let payload = payload_offset(base, HEADER_LEN, flags);
        if payload as u64 + u64::from(header.payload_len) > len as u64 {
            return None;
        }
        Some((header, payload as u32))
    }

    /// log2 of the payload's alignment.
    #[inline]
    pub const fn align_log2(&self) -> u8 {
        self.flags.bits() & Flags::ALIGN.bits()
    }

    /// Checks that a call that has travelled has space for its passage.
    fn check_passage(&self, offset: u64) -> Result<(), FrameError> {
        match self.flags.contains(Flags::TRAVELLED) && (self.payload_len as usize) < PASSAGE_LEN {
            true => Err(FrameError::Payload { offset, len: self.payload_len, frame: self.frame_len }),
            false => Ok(()),
        }
    }

    /// Bytes of the payload that are the function's.
    #[inline]
    pub const fn argument_len(&self) -> usize {
        self.payload_len as usize - if self.flags.contains(Flags::TRAVELLED) { PASSAGE_LEN } else { 0 }
    }

    /// Bytes of the frame that are written: all, but only the first line of a skip.
    #[inline]
    pub const fn extent(&self) -> usize {
        if matches!(self.kind, Kind::Skip) { LINE } else { self.frame_len as usize }
    }

    /// Checks every length and offset. `code` returns the five words of the code header, read once; it is
    /// called only for frames that name code and are long enough. `base` is the frame's address modulo 4096:
    /// a payload is aligned in memory, not relative to its frame.
    ///
    /// # Errors
    /// The first error found. Whatever the words are, the returned parts lie inside `frame_len`, do not
    /// overlap and leave the trailer alone.
    #[inline]
    pub fn check(
        &self,
        base: usize,
        left: usize,
        limit: usize,
        code: impl FnOnce() -> [u64; 5],
    ) -> Result<Parts, FrameError> {
        let len = self.frame_len as usize;
        if !len.is_multiple_of(LINE) || len == 0 {
            return Err(FrameError::Length { len: self.frame_len, least: LINE as u64 });
        }
        if len > left {
            return Err(FrameError::PastEnd { len: self.frame_len, left });
        }
        if self.kind == Kind::Skip {
            if len != left {
                return Err(FrameError::Length { len: self.frame_len, least: left as u64 });
            }
            if self.payload_len != 0 {
                let offset = HEADER_LEN as u64;
                return Err(FrameError::Payload { offset, len: self.payload_len, frame: self.frame_len });
            }
            return Ok(Parts { payload: HEADER_LEN as u32, code: None });
        }
        if len > limit {
            return Err(FrameError::TooLong { len: self.frame_len, limit });
        }
        let align_log2 = self.align_log2();
        if !(INLINE_ALIGN_LOG2..=MAX_ALIGN_LOG2).contains(&align_log2) {
            return Err(FrameError::Flags(self.flags.bits()));
        }
        let end = len - if self.flags.contains(Flags::TRAILER) { TRAILER_LEN } else { 0 };
        if self.kind.names_code() {
            return self.check_code(base, end, code());
        }
        let payload = payload_offset(base, HEADER_LEN, align_log2);
        // Neither term is over 2^32, so the sum fits 64 bits on every machine this runs on.
        if payload as u64 + u64::from(self.payload_len) > end as u64 {
            return Err(FrameError::Payload {
                offset: payload as u64,
                len: self.payload_len,
                frame: self.frame_len,
            });
        }
        self.check_passage(payload as u64)?;
        Ok(Parts { payload: payload as u32, code: None })
    }

    #[cold]
    fn check_code(&self, base: usize, end: usize, words: [u64; 5]) -> Result<Parts, FrameError> {
        let part = CodePart::from_words(words);
        let payload = (words[4]) as u32;
        let name_end = part.names_end();
        if part.family_len & !(FAMILY_LEN as u16) != 0 {
            return Err(FrameError::Family(part.family_len));
        }
        if usize::from(part.name_len) > MAX_NAME || name_end > end {
            return Err(FrameError::Name(part.name_len));
        }
        let image_error =
            FrameError::Image { offset: part.image_offset, len: part.image_len, frame: self.frame_len };
        let behind = match self.kind {
            kind if kind.carries_image() => {
                let start = part.image_offset as usize;
                if start < name_end || part.image_len == 0 || start + part.image_len as usize > end {
                    return Err(image_error);
                }
                start + part.image_len as usize
            }
            _ if part.image_offset != 0 || part.image_len != 0 => return Err(image_error),
            _ => name_end,
        };
        let offset = payload as usize;
        let aligned = (base + offset).is_multiple_of(1 << self.align_log2());
        if offset < behind || !aligned || offset as u64 + u64::from(self.payload_len) > end as u64 {
            return Err(FrameError::Payload {
                offset: offset as u64,
                len: self.payload_len,
                frame: self.frame_len,
            });
        }
        self.check_passage(offset as u64)?;
        Ok(Parts { payload, code: Some(part) })
    }
}

/// Offsets of the parts of a checked frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Parts {
    /// Offset of the payload in bytes; its length is in the header.
    pub payload: u32,
    /// The code that the frame names.
    pub code: Option<CodePart>,
}

/// The fields of the code header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CodePart {
    /// Offset of the image in the frame, in bytes; 0 without an image.
    pub image_offset: u32,
    /// Length of the image, in bytes.
    pub image_len: u32,
    /// The claimed code id; not to be trusted before a copy of the image is hashed.
    pub id: CodeId,
    /// The target's epoch in which the source binds the index.
    pub epoch: u64,
    /// Length of the name at [`CODE_HEADER_LEN`], in bytes.
    pub name_len: u16,
    /// Length of the family id behind the name, in bytes: [`FAMILY_LEN`] or 0.
    pub family_len: u16,
}

impl CodePart {
    fn from_words(words: [u64; 5]) -> CodePart {
        let mut id = [0; 16];
        id[..8].copy_from_slice(&words[1].to_le_bytes());
        id[8..].copy_from_slice(&words[2].to_le_bytes());
        CodePart {
            image_offset: words[0] as u32,
            image_len: (words[0] >> 32) as u32,
            id: CodeId(id),
            epoch: words[3],
            name_len: (words[4] >> 32) as u16,
            family_len: (words[4] >> 48) as u16,
        }
    }

    /// Offset of the end of name and family id, in bytes.
    #[inline]
    pub fn names_end(&self) -> usize {
        CODE_HEADER_LEN + usize::from(self.name_len) + usize::from(self.family_len)
    }

    /// The five words of the code header. The last of them also holds the payload's offset.
    pub fn to_words(&self, payload: u32) -> [u64; 5] {
        let half = |at: usize| {
            let mut word = [0; 8];
            word.copy_from_slice(&self.id.0[at..at + 8]);
            u64::from_le_bytes(word)
        };
        [
            u64::from(self.image_offset) | u64::from(self.image_len) << 32,
            half(0),
            half(8),
            self.epoch,
            u64::from(payload) | u64::from(self.name_len) << 32 | u64::from(self.family_len) << 48,
        ]
    }
}

/// First offset from `from` on at which a payload is aligned in memory.
#[inline(always)]
const fn payload_offset(base: usize, from: usize, align_log2: u8) -> usize {
    // Like `next_multiple_of`, which the compiler would turn into a division: it does not know that this is a
    // power of two.
    let below = (1_usize << align_log2) - 1;
    ((base + from + below) & !below) - base
}

fn put_words(into: &mut [u8], words: &[u64]) {
    for (word, bytes) in words.iter().zip(into.chunks_exact_mut(8)) {
        bytes.copy_from_slice(&word.to_le_bytes());
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
