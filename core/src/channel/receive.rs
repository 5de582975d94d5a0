//! Receiving: poll, use the frame, release it.

use alloc::vec::Vec;
use core::ptr::NonNull;

use super::{Channel, Path, Received, two_sided};
use crate::frame::{CODE_HEADER_LEN, CodePart, Flags, LINE, MAX_NAME, Template};
use crate::mailbox::{self, Seen};
use crate::shared;
use crate::transport::TransportError;

/// The result of [`Channel::poll`].
#[derive(Debug)]
pub enum Polled {
    /// Nothing.
    Nothing,
    /// The start of a frame that has not arrived whole. If that lasts, the peer has stalled.
    Partial,
    /// A whole frame, checked.
    Frame(Received),
}

/// The result of [`Channel::glance`], the fast poll.
#[derive(Debug)]
pub enum Glance<'c> {
    /// Nothing.
    Nothing,
    /// A whole frame without code, held as [`Channel::poll`] holds it.
    Frame(&'c Received),
    /// Something else: call [`Channel::poll_slowly`].
    Other,
}

impl Channel {
    /// Polls for the next frame. Returns the same frame, as first read, until it is released, whatever the
    /// peer writes over it in the meantime.
    ///
    /// # Errors
    /// When the transport failed or the peer broke the protocol. The link cannot be used any more.
    #[inline]
    pub fn poll(&mut self) -> Result<Polled, TransportError> {
        match self.glance() {
            Glance::Nothing => Ok(Polled::Nothing),
            Glance::Frame(frame) => Ok(Polled::Frame(*frame)),
            Glance::Other => self.poll_slowly(),
        }
    }

    /// The fast poll, for loops in which each nanosecond counts. Finds nothing, or a frame without code on a
    /// one-sided path whose signal proves the whole frame. Leaves everything else to [`Channel::poll`]. If a
    /// reply is wanted, prefetches the line for it. The frame is lent, because a return by value would pass
    /// through memory.
    #[inline(always)]
    pub fn glance(&mut self) -> Glance<'_> {
        let Path::OneSided(path) = &self.path else { return self.glance_delivered() };
        if self.held.is_some() {
            return Glance::Other;
        }
        match path.inbound.glance() {
            mailbox::Glance::Nothing => Glance::Nothing,
            mailbox::Glance::Plain(at, header, payload) => {
                if header.flags.contains(Flags::WANTS_REPLY) {
                    path.out.prefetch();
                }
                // The length was checked; the compiler knows this only for one line.
                let start = path.inbound.ring().pointer(at, LINE);
                self.code = None;
                Glance::Frame(self.held.insert(Received::new(header, payload, start)))
            }
            mailbox::Glance::Look => Glance::Other,
        }
    }

    /// [`Channel::glance`] on a two-sided path.
    #[inline(never)]
    fn glance_delivered(&mut self) -> Glance<'_> {
        let Path::TwoSided(path) = &mut self.path else { return Glance::Other };
        if self.held.is_some() {
            return Glance::Other;
        }
        match path.glance() {
            two_sided::Glance::Nothing => Glance::Nothing,
            two_sided::Glance::Plain(header, payload, start) => {
                self.code = None;
                Glance::Frame(self.held.insert(Received::new(header, payload, start)))
            }
            two_sided::Glance::Look => Glance::Other,
        }
    }

    /// Leaves frames of more than `len` bytes, header included, to [`Channel::poll_slowly`]. A receiver with
    /// further checks for large payloads then skips them for small frames. A payload is at least 24 bytes
    /// shorter than its frame.
    pub fn limit_glances(&mut self, len: usize) {
        match &mut self.path {
            Path::OneSided(path) => path.inbound.limit_glances(len),
            Path::TwoSided(path) => path.quick_limit = self.terms.receive_limit.min(len),
        }
    }

    /// [`Channel::poll`] after a [`Glance::Other`]: the general path, for frames with code or a trailer, for
    /// errors, and for two-sided paths.
    ///
    /// # Errors
    /// Those of [`Channel::poll`].
    #[inline(never)]
    pub fn poll_slowly(&mut self) -> Result<Polled, TransportError> {
        if let Some(frame) = self.held {
            return Ok(Polled::Frame(frame));
        }
        let (frame, code) = match &mut self.path {
            Path::OneSided(path) => match path.poll()? {
                Seen::Nothing => return Ok(Polled::Nothing),
                Seen::Partial => return Ok(Polled::Partial),
                Seen::Frame(at, header, parts) => {
                    let start = path.inbound.ring().pointer(at, header.frame_len as usize);
                    (Received::new(header, parts.payload, start), parts.code)
                }
            },
            Path::TwoSided(path) => match path.poll()? {
                None => return Ok(Polled::Nothing),
                Some((header, parts, start)) => (Received::new(header, parts.payload, start), parts.code),
            },
        };
        (self.held, self.code) = (Some(frame), code);
        if frame.header().flags.contains(Flags::WANTS_REPLY) {
            self.prefetch();
        }
        Ok(Polled::Frame(frame))
    }

    /// The header prediction for later frames that name the same code as the frame that `poll` returned last,
    /// for [`Channel::repeats`]. `None` if that frame allows no prediction.
    pub fn template(&self) -> Option<Template> {
        let (frame, code) = (self.held.as_ref()?, self.code?);
        Template::of(&frame.header(), u32::try_from(frame.payload).ok()?, code)
    }

    /// [`Channel::poll`] for frames with the same header as an earlier one, token and flags aside: they are
    /// not parsed and checked again. `None` for all other frames, when there is none, and while a frame is
    /// held. Name and image may differ.
    #[inline(always)]
    pub fn repeats(&mut self, template: &Template) -> Option<Received> {
        let Path::OneSided(path) = &self.path else { return None };
        if self.held.is_some() {
            return None;
        }
        let (at, header) = path.inbound.repeats(template)?;
        if header.flags.contains(Flags::WANTS_REPLY) {
            path.out.prefetch();
        }
        let start = path.inbound.ring().pointer(at, header.frame_len as usize);
        let frame = Received::new(header, template.payload(), start);
        (self.held, self.code) = (Some(frame), Some(template.part()));
        Some(frame)
    }

    /// The code part of the frame that `poll` returned last; `None` if it names no code.
    pub fn code(&self) -> Option<CodePart> {
        self.code.filter(|_| self.held.is_some())
    }

    /// Whether the next poll continues the checksum of a frame that is not yet known to be whole. Then
    /// [`Polled::Partial`] does not mean that the peer stalls.
    pub fn is_summing(&self) -> bool {
        matches!(&self.path, Path::OneSided(path) if path.inbound.is_summing())
    }

    /// Bytes checksummed since the link was made: 0 except under
    /// [`CHECKED`](crate::transport::ArrivalRules::CHECKED). One poll checksums 16 KiB at most, so a frame
    /// that never becomes whole cannot block the caller.
    pub fn summed(&self) -> u64 {
        match &self.path {
            Path::OneSided(path) => path.inbound.summed(),
            Path::TwoSided(_) => 0,
        }
    }

    /// Releases the frame and its space. The bytes at [`Received::payload`] may be overwritten from now on.
    ///
    /// # Errors
    /// When returning credit to the peer fails.
    #[inline(always)]
    pub fn release(&mut self) -> Result<(), TransportError> {
        let Some(frame) = self.held.take() else { return Ok(()) };
        let frame_len = frame.header().frame_len;
        match &mut self.path {
            Path::OneSided(path) => path.release(frame_len),
            Path::TwoSided(path) => {
                path.release(frame_len);
                Ok(())
            }
        }
    }

    /// Appends the payload of the frame that `poll` returned last to `into`. Appends nothing if no frame is
    /// held.
    pub fn copy_payload(&self, into: &mut impl Extend<u8>) {
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

    /// Copies the image of the frame that `poll` returned last to `into`, memory that the peer cannot write.
    /// `into` is empty if the frame has no image.
    pub fn copy_image(&self, into: &mut Vec<u8>) {
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

    /// Whether the image of the frame that `poll` returned last equals `image`, byte for byte. `false` if it
    /// has none.
    pub fn image_is(&self, image: &[u8]) -> bool {
        // The caller continues with `image`, so later writes of the peer to the compared bytes do not matter.
        self.image_part().is_some_and(|(there, len)| {
            // SAFETY: `part` returned `there` as valid for reads of `len` bytes, and `image` is as long.
            !image.is_empty() && len == image.len() && unsafe { shared::equals(there.as_ptr(), image) }
        })
    }

    /// Copies the name of the frame's code to the start of `into`, and returns its length; 0 if the frame
    /// names no code.
    pub fn copy_name_to(&self, into: &mut [u8; MAX_NAME]) -> usize {
        // `Header::check` refuses longer names.
        let part = |code: CodePart| (CODE_HEADER_LEN, usize::from(code.name_len).min(MAX_NAME));
        copy_part(self.part(|_| self.code.map(part)), into)
    }

    /// Length in bytes of the payload of the frame that `poll` returned last; 0 without one.
    #[inline(always)]
    pub fn payload_len(&self) -> usize {
        self.held.map_or(0, |frame| frame.header().payload_len as usize)
    }

    /// Copies as much of the payload of the frame that `poll` returned last as fits to the start of `into`,
    /// and returns the length copied. Faster than [`Channel::copy_payload`] for a few bytes.
    #[inline]
    pub fn copy_payload_to(&self, into: &mut [u8]) -> usize {
        copy_part(self.payload_part(), into)
    }

    /// The first 8 bytes of the payload of the frame that `poll` returned last, read once, as a little-endian
    /// word; 0 for shorter payloads.
    #[inline]
    pub fn payload_word(&self) -> u64 {
        let mut word = [0; 8];
        if let Some((from, 8..)) = self.payload_part() {
            // SAFETY: `part` returned `from` as valid for reads of at least 8 bytes.
            unsafe { shared::copy_out(from.as_ptr(), word.as_mut_ptr(), word.len()) };
        }
        u64::from_le_bytes(word)
    }

    #[inline]
    fn payload_part(&self) -> Option<(NonNull<u8>, usize)> {
        self.part(|frame| Some((frame.payload as usize, frame.header().payload_len as usize)))
    }

    #[inline]
    fn image_part(&self) -> Option<(NonNull<u8>, usize)> {
        self.part(|_| self.code.map(|code| (code.image_offset as usize, code.image_len as usize)))
    }

    /// Address and length of the part of the held frame at the offset and length that `place` returns. The
    /// frame's parts were checked to lie inside it, and its bytes are lent until its release: the result is
    /// valid for reads. On a mapped ring a peer that breaks the protocol may write at the same time, so no
    /// slice is made: [`shared`] copies and compares. This process does not write there meanwhile: core never
    /// does, and injected code runs before or after.
    #[inline]
    fn part(&self, place: impl FnOnce(&Received) -> Option<(usize, usize)>) -> Option<(NonNull<u8>, usize)> {
        let frame = self.held.as_ref()?;
        let (at, len) = place(frame)?;
        // SAFETY: inside the frame.
        Some((unsafe { frame.start.add(at) }, len))
    }
}

/// Copies as much of the part of a frame as fits to the start of `into`, and returns the length copied.
#[inline]
fn copy_part(part: Option<(NonNull<u8>, usize)>, into: &mut [u8]) -> usize {
    let Some((from, len)) = part else { return 0 };
    let len = len.min(into.len());
    // SAFETY: `Channel::part` returns bytes that are valid for reads, and `into` is the caller's and long
    // enough.
    unsafe { shared::copy_out(from.as_ptr(), into.as_mut_ptr(), len) };
    len
}
