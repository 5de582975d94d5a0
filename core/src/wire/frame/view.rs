//! Frames in plain memory.

use super::layout::frame::{CODE, LENGTHS, REST, SIGNAL};
use super::{CODE_HEADER_LEN, DELIVERED_HEADER_LEN, Flags, FrameError, HEADER_LEN, Header, LINE, Parts};
use crate::image::FamilyId;

/// A frame in plain memory whose lengths and offsets have all been checked.
#[derive(Clone, Copy, Debug)]
pub struct FrameView<'a> {
    bytes: &'a [u8],
    signal: u64,
    header: Header,
    parts: Parts,
}

impl<'a> FrameView<'a> {
    /// Checks `bytes`, which must be exactly one frame, at an address that is `base` modulo 4096. The signal
    /// is not compared: the caller knows the position. Such a frame has no trailer, because it arrives whole.
    ///
    /// # Errors
    /// The first error found.
    pub fn new_checked(bytes: &'a [u8], base: usize, limit: usize) -> Result<Self, FrameError> {
        if bytes.len() < LINE {
            return Err(FrameError::Truncated { needed: LINE, found: bytes.len() });
        }
        let word = |at| word(bytes, at);
        let header = Header::from_words([word(LENGTHS), word(REST)])?;
        if header.flags.contains(Flags::TRAILER) {
            return Err(FrameError::Flags(header.flags.bits()));
        }
        let frame_len = header.frame_len as usize;
        if frame_len > bytes.len() {
            return Err(FrameError::Truncated { needed: frame_len, found: bytes.len() });
        }
        if frame_len < bytes.len() && frame_len != 0 {
            return Err(FrameError::Overlong { frame: frame_len, found: bytes.len() });
        }
        let parts = header.check(base, bytes.len(), limit, || CODE.map(word))?;
        Ok(FrameView { bytes, signal: word(SIGNAL), header, parts })
    }

    /// Checks that `bytes`, a message at an address that is a multiple of 4096, are exactly one delivered
    /// frame. The stamp is not compared: the caller knows the number.
    ///
    /// # Errors
    /// The first error found.
    pub fn of_delivered(bytes: &'a [u8], limit: usize) -> Result<Self, FrameError> {
        if bytes.len() < DELIVERED_HEADER_LEN {
            return Err(FrameError::Truncated { needed: DELIVERED_HEADER_LEN, found: bytes.len() });
        }
        let (body, header) = bytes.split_at(bytes.len() - DELIVERED_HEADER_LEN);
        FrameView::of_parts(body, [word(header, 0), word(header, 8)], limit)
    }

    /// [`FrameView::of_delivered`] of a message without its header, whose words are `words`.
    pub(crate) fn of_parts(bytes: &'a [u8], words: [u64; 2], limit: usize) -> Result<Self, FrameError> {
        let code = || (CODE.map(|at| word(bytes, at)), bytes[..HEADER_LEN].iter().all(|byte| *byte == 0));
        let (header, parts) = Header::delivered(words, bytes.len() + DELIVERED_HEADER_LEN, limit, code)?;
        Ok(FrameView { bytes, signal: words[0] & 0xffff_ffff, header, parts })
    }

    /// The header's fields.
    pub fn header(&self) -> Header {
        self.header
    }

    /// The frame's signal, for comparison with the expected one. For a delivered frame, its stamp.
    pub fn signal(&self) -> u64 {
        self.signal
    }

    /// Offsets of its parts.
    pub fn parts(&self) -> Parts {
        self.parts
    }

    /// The payload.
    pub fn payload(&self) -> &'a [u8] {
        let start = self.parts.payload as usize;
        &self.bytes[start..start + self.header.payload_len as usize]
    }

    /// The image in the frame, if there is one.
    pub fn image(&self) -> Option<&'a [u8]> {
        let code = self.parts.code.filter(|code| code.image_len != 0)?;
        Some(&self.bytes[code.image_offset as usize..][..code.image_len as usize])
    }

    /// The name of the frame's code, as sent.
    pub fn name(&self) -> Option<&'a [u8]> {
        let code = self.parts.code?;
        Some(&self.bytes[CODE_HEADER_LEN..][..usize::from(code.name_len)])
    }

    /// The family of the frame's code, if it names one.
    pub fn family(&self) -> Option<FamilyId> {
        let end = self.parts.code.filter(|code| code.family_len != 0)?.names_end();
        self.bytes[..end].last_chunk().copied().map(FamilyId)
    }
}

/// The little-endian word at `at`, inside `bytes`.
fn word(bytes: &[u8], at: usize) -> u64 {
    let mut word = [0; 8];
    word.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(word)
}
