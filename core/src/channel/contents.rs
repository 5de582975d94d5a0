//! Copies and comparisons of a held frame's parts.

use alloc::vec::Vec;
use core::ptr::NonNull;

use super::{Channel, Taken};
use crate::frame::{CODE_HEADER_LEN, CodePart, FAMILY_LEN, MAX_NAME};
use crate::image::FamilyId;
use crate::shared;

/// The parts of a frame besides its header and the address of its payload. The peer may change the bytes of a
/// one-sided path's frames at any time, so they are only copied and compared.
#[derive(Clone, Copy, Debug)]
pub struct Contents<'c> {
    channel: &'c Channel,
    /// True if the channel holds the frame.
    is_own: bool,
}

impl Channel {
    /// The parts of a frame that was taken; all are empty for a frame of another channel.
    pub fn contents(&self, frame: &Taken) -> Contents<'_> {
        Contents { channel: self, is_own: self.holds(frame) }
    }

    /// The parts of the held frame.
    #[inline(always)]
    pub(super) fn held_contents(&self) -> Contents<'_> {
        Contents { channel: self, is_own: true }
    }
}

impl Contents<'_> {
    /// The code part; `None` if the frame names no code.
    #[inline]
    pub fn code(self) -> Option<CodePart> {
        (self.is_own && self.channel.names_code).then(|| self.channel.code.part())
    }

    /// Appends the payload to `into`.
    pub fn copy_payload(self, into: &mut impl Extend<u8>) {
        let Some((from, len)) = self.payload_part() else { return };
        let mut piece = [0; 256];
        for at in (0..len).step_by(piece.len()) {
            let piece = &mut piece[..(len - at).min(256)];
            // SAFETY: `part` returned `from` as valid for reads of `len` bytes; `piece` is no longer than the
            // bytes left.
            unsafe { shared::copy_out(from.add(at).as_ptr(), piece.as_mut_ptr(), piece.len()) };
            into.extend(piece.iter().copied());
        }
    }

    /// Copies the image to `into`, memory that the peer cannot write. `into` is empty if the frame has no
    /// image.
    pub fn copy_image(self, into: &mut Vec<u8>) {
        into.clear();
        let Some((image, len)) = self.image_part() else { return };
        into.reserve(len);
        // SAFETY: `part` returned `image` as valid for reads of `len` bytes. The vector has capacity for
        // them, and its length is set after they are written.
        unsafe {
            shared::copy_out(image.as_ptr(), into.as_mut_ptr(), len);
            into.set_len(len);
        }
    }

    /// Copies the image and behind it the name of the frame's code to `into`, memory that the peer cannot write.
    /// Returns the length of the image. `into` is empty if the frame names no code.
    pub fn copy_code(self, into: &mut Vec<u8>) -> usize {
        into.clear();
        let Some(code) = self.code() else { return 0 };
        let (image_len, name_len) = (code.image_len as usize, usize::from(code.name_len));
        let image = self.part(|| Some((code.image_offset as usize, image_len)));
        let name = self.part(|| Some((CODE_HEADER_LEN, name_len)));
        let (Some((image, _)), Some((name, _))) = (image, name) else { return 0 };
        into.reserve_exact(image_len + name_len);
        // SAFETY: `part` returned `image` and `name` as valid for reads of their lengths. The vector has capacity
        // for both, and its length is set after they are written.
        unsafe {
            shared::copy_out(image.as_ptr(), into.as_mut_ptr(), image_len);
            shared::copy_out(name.as_ptr(), into.as_mut_ptr().add(image_len), name_len);
            into.set_len(image_len + name_len);
        }
        image_len
    }

    /// The family of the frame's code, if it names one.
    pub fn family(self) -> Option<FamilyId> {
        let code = self.code().filter(|code| code.family_len != 0)?;
        let mut id = [0; FAMILY_LEN];
        copy_part(self.part(|| Some((code.names_end() - FAMILY_LEN, FAMILY_LEN))), &mut id);
        Some(FamilyId(id))
    }

    /// Returns whether the image equals `image`, byte for byte. `false` if the frame has none.
    pub fn image_is(self, image: &[u8]) -> bool {
        // The caller continues with `image`, so later writes of the peer to the compared bytes do not matter.
        self.image_part().is_some_and(|(there, len)| {
            // SAFETY: `part` returned `there` as valid for reads of `len` bytes, and `image` is as long.
            !image.is_empty() && len == image.len() && unsafe { shared::equals(there.as_ptr(), image) }
        })
    }

    /// Copies the name of the frame's code to the start of `into`, and returns its length; 0 if the frame
    /// names no code.
    pub fn copy_name_to(self, into: &mut [u8; MAX_NAME]) -> usize {
        // `Header::check` refuses longer names.
        let part = |code: CodePart| (CODE_HEADER_LEN, usize::from(code.name_len).min(MAX_NAME));
        copy_part(self.part(|| self.code().map(part)), into)
    }

    /// Length in bytes of the payload.
    #[inline(always)]
    pub fn payload_len(self) -> usize {
        if self.is_own { self.channel.held.header().payload_len as usize } else { 0 }
    }

    /// Copies as much of the payload as fits to the start of `into`, and returns the length copied. Faster
    /// than [`Contents::copy_payload`] for a few bytes.
    #[inline]
    pub fn copy_payload_to(self, into: &mut [u8]) -> usize {
        copy_part(self.payload_part(), into)
    }

    /// The first 8 bytes of the payload, read once, as a little-endian word; 0 for shorter payloads.
    #[inline]
    pub fn payload_word(self) -> u64 {
        let mut word = [0; 8];
        if let Some((from, 8..)) = self.payload_part() {
            // SAFETY: `part` returned `from` as valid for reads of at least 8 bytes.
            unsafe { shared::copy_out(from.as_ptr(), word.as_mut_ptr(), word.len()) };
        }
        u64::from_le_bytes(word)
    }

    #[inline]
    fn payload_part(self) -> Option<(NonNull<u8>, usize)> {
        let held = &self.channel.held;
        self.part(|| Some((held.payload as usize, held.header().payload_len as usize)))
    }

    #[inline]
    fn image_part(self) -> Option<(NonNull<u8>, usize)> {
        self.part(|| self.code().map(|code| (code.image_offset as usize, code.image_len as usize)))
    }

    /// Returns the address and length of the part of the frame at the offset and length that `place` returns.
    /// The result is valid for reads: the poll checked that the frame's parts lie inside it, and its bytes
    /// are lent until its release, before which this value ends. On a mapped ring a peer that breaks the
    /// protocol may write at the same time, so no slice is made: [`shared`] copies and compares. This process
    /// does not write there meanwhile: core never does, and injected code runs before or after.
    #[inline]
    fn part(self, place: impl FnOnce() -> Option<(usize, usize)>) -> Option<(NonNull<u8>, usize)> {
        let start = self.channel.held.start.filter(|_| self.is_own)?;
        let (at, len) = place()?;
        // SAFETY: inside the frame.
        Some((unsafe { start.add(at) }, len))
    }
}

/// Copies as much of the part of a frame as fits to the start of `into`, and returns the length copied.
#[inline]
fn copy_part(part: Option<(NonNull<u8>, usize)>, into: &mut [u8]) -> usize {
    let Some((from, len)) = part else { return 0 };
    let len = len.min(into.len());
    // SAFETY: `Contents::part` returns bytes that are valid for reads, and `into` is the caller's and long
    // enough.
    unsafe { shared::copy_out(from.as_ptr(), into.as_mut_ptr(), len) };
    len
}
