//! An endpoint with framing, arrival rule and credit, over either family of transports.
//!
//! Everything above core works with a [`Channel`]. To send: [`Channel::reserve`] space for a frame, write its
//! payload, [`Channel::commit`]. To receive: [`Channel::poll`], use the frame, [`Channel::release`]. Only
//! [`Channel::rule`] shows the arrival rule of the transport below.
//!
//! Over mapped memory (`Stores`) the hot path has no virtual call: a small frame is one line written and one
//! line read.

use alloc::vec::Vec;
use core::ptr::NonNull;

use crate::frame::{
    CODE_HEADER_LEN, CodePart, Flags, FrameError, HEADER_LEN, INLINE_PAYLOAD, Kind, LINE, Layout, MAX_FRAME,
    MAX_NAME, Plan, Template, Trailer,
};
use crate::mailbox::{self, Seen};
use crate::memory::{Memory, Region};
use crate::shared;
use crate::signal::LinkKey;
use crate::sync::Ordering;
use crate::transport::{ArrivalRules, BorrowedFd, Cause, Endpoint, Operation, Route, TransportError};

mod in_place;
mod line;
mod lines;
#[cfg(all(test, loom))]
mod model;
mod one_sided;
mod received_frame;
mod switched;
mod template;
mod two_sided;

pub use in_place::InPlace;
pub use line::Line;
pub use lines::Lines;
use one_sided::OneSided;
pub use received_frame::Received;
pub use template::Stamp;
use two_sided::TwoSided;

/// The parameters of a channel as agreed in the handshake, from the view of this endpoint.
#[derive(Clone, Copy, Debug)]
pub struct Terms {
    /// The arrival rule: exactly one.
    pub rule: ArrivalRules,
    /// Lines written by either peer arrive whole.
    pub line_whole: bool,
    /// Key of the frames that this endpoint sends, drawn by the peer.
    pub send_key: LinkKey,
    /// Key of the frames that this endpoint receives, drawn by this endpoint.
    pub receive_key: LinkKey,
    /// Largest frame that the peer accepts, in bytes.
    pub send_limit: usize,
    /// Largest frame that this endpoint accepts, in bytes.
    pub receive_limit: usize,
    /// One-sided: length in bytes of the peer's region as the peer stated it. Its ring is the largest power
    /// of two that fits behind the control page ([`mailbox::ring_len`]), so both peers must use the same
    /// length.
    pub send_region: usize,
    /// One-sided: length in bytes of this endpoint's region as it stated it.
    pub receive_region: usize,
}

/// Shortest payload in bytes that [`Channel::send_beside`] sends. Below this, a copy costs less than separate
/// pieces.
pub const BESIDE: usize = 64 << 10;

/// Space reserved for a frame.
#[derive(Clone, Copy, Debug)]
pub struct Reserved {
    /// Address of the payload: aligned as the plan asks, valid for writes of `room` bytes until
    /// [`Channel::commit`] or the next `reserve`. The bytes start with arbitrary contents.
    pub payload: NonNull<u8>,
    /// Payload bytes that fit.
    pub room: usize,
    /// Bytes from the end of the payload to the end of the frame. They may be written, and mean nothing.
    pub slack: usize,
    layout: Layout,
    /// Position of the frame.
    position: u64,
}

// SAFETY: the value is an address and lengths. Writing through the address takes `unsafe` code of the
// caller's, in the thread that has the channel.
unsafe impl Send for Reserved {}

/// Why a frame could not be sent.
#[derive(Debug, thiserror::Error)]
pub enum SendError {
    /// The peer has no credit for the frame now. Nothing was sent: try again later.
    #[error("the peer has no room now")]
    Full,
    /// The frame is longer than the mailbox or than the peer accepts. Trying again does not help. (If an
    /// image asks for an alignment over 64 bytes, the length of its frame depends slightly on the frame's
    /// position.)
    #[error("a frame of {len} bytes is over this link's limit of {max}")]
    TooLarge {
        /// Bytes needed.
        len: usize,
        /// The limit.
        max: usize,
    },
    /// The link failed.
    #[error(transparent)]
    Failed(#[from] TransportError),
}

impl SendError {
    fn from_transport(error: TransportError) -> SendError {
        match *error.cause() {
            Cause::Full => SendError::Full,
            Cause::TooLarge { len, max } => SendError::TooLarge { len, max },
            _ => SendError::Failed(error),
        }
    }
}

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

/// The way to sleep after [`Channel::arm`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Armed {
    /// An event is pending: do not sleep.
    Ready,
    /// Sleep until [`Channel::descriptor`] is readable, or until other work is due.
    Sleep,
    /// No doorbell will come: nap for a millisecond at most, then poll.
    Nap,
}

/// An endpoint with framing, arrival rule and credit.
pub struct Channel {
    path: Path,
    terms: Terms,
    trailer: Trailer,
    /// The frame that `poll` returned and that is not released. It is not read again while it is held,
    /// because on a one-sided path the peer can change its bytes in the mailbox.
    held: Option<Received>,
    /// The code part of the held frame, read with it.
    code: Option<CodePart>,
}

// Both variants are large and exist once for each link. Boxing one would put a pointer into the hot path.
#[allow(clippy::large_enum_variant)]
enum Path {
    OneSided(OneSided),
    TwoSided(TwoSided),
}

impl core::fmt::Debug for Channel {
    fn fmt(&self, out: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        out.debug_struct("Channel").field("rule", &self.terms.rule).finish_non_exhaustive()
    }
}

impl Channel {
    /// Makes a channel from an endpoint and the agreed parameters.
    ///
    /// # Errors
    /// When the regions are too small for a ring, or the rule does not fit the endpoint.
    pub fn new(endpoint: Endpoint, mut terms: Terms) -> Result<Channel, TransportError> {
        // Lengths in frames have 32 bits.
        terms.send_limit = terms.send_limit.min(MAX_FRAME);
        terms.receive_limit = terms.receive_limit.min(MAX_FRAME);
        let trailer = Trailer::for_rule(terms.rule, terms.line_whole);
        let path = match endpoint {
            Endpoint::OneSided { local, remote } => {
                Path::OneSided(OneSided::new(local, remote, &terms, trailer)?)
            }
            Endpoint::TwoSided(messages) => {
                if terms.rule != ArrivalRules::DELIVERED {
                    return Err(failed(
                        Operation::Connect,
                        Cause::Unsupported("an arrival rule other than delivered"),
                    ));
                }
                Path::TwoSided(TwoSided::new(messages, &terms))
            }
        };
        Ok(Channel { path, terms, trailer, held: None, code: None })
    }

    /// The arrival rule in use.
    pub fn rule(&self) -> ArrivalRules {
        self.terms.rule
    }

    /// The path of this endpoint's frames, as the backend describes it. For people; may take long.
    pub fn route(&self) -> Route {
        match &self.path {
            Path::OneSided(path) => path.route(),
            Path::TwoSided(path) => path.messages.route(),
        }
    }

    /// Largest frame that can be sent, in bytes, header and code included.
    pub fn max_frame(&self) -> usize {
        match &self.path {
            Path::OneSided(path) => path.out.ring().len().min(self.terms.send_limit),
            Path::TwoSided(_) => self.terms.send_limit,
        }
    }

    /// Whether the peer's limit on frames is below the length of its ring. A large mailbox would not help
    /// then.
    pub fn is_limited(&self) -> bool {
        match &self.path {
            Path::OneSided(path) => self.terms.send_limit < path.out.ring().len(),
            Path::TwoSided(_) => true,
        }
    }

    /// Reserves space for the frame `plan` with up to `payload` bytes of payload, and writes its code and
    /// name. The space stays reserved until `commit`. A second `reserve` discards the first.
    ///
    /// # Errors
    /// [`SendError::Full`] when the peer must consume first.
    #[inline]
    pub fn reserve(&mut self, plan: &Plan<'_>, payload: usize) -> Result<Reserved, SendError> {
        let trailer = self.trailer;
        // Keeps the sums below from overflowing.
        if payload > self.terms.send_limit {
            return Err(SendError::TooLarge { len: payload, max: self.max_frame() });
        }
        let (start, layout, position) = match &mut self.path {
            Path::OneSided(path) => {
                let (at, layout) = path.reserve(|base| plan.layout(base, payload, trailer), trailer)?;
                if layout.frame_len > self.terms.send_limit {
                    return Err(SendError::TooLarge { len: layout.frame_len, max: self.max_frame() });
                }
                (path.out.ring().pointer(at, layout.frame_len), layout, path.out.position())
            }
            Path::TwoSided(path) => {
                let (start, layout) = path.reserve(plan, payload, self.terms.send_limit)?;
                // SAFETY: a frame has at least one line. Without code, only padding lies between that line
                // and the payload.
                unsafe {
                    clear_line(start);
                    if plan.code.is_none() && layout.payload > LINE {
                        start.add(LINE).write_bytes(0, layout.payload - LINE);
                    }
                }
                (start, layout, path.position())
            }
        };
        if let (Some(code), Some(part)) = (&plan.code, plan.code_part(&layout)) {
            // SAFETY: `start` is valid for `frame_len` bytes, and the layout keeps these parts inside them.
            let room = unsafe { Region::new(start, layout.frame_len) };
            for (index, word) in part.to_words(layout.payload as u32).into_iter().enumerate() {
                room.store(HEADER_LEN + index * 8, word, Ordering::Relaxed);
            }
            room.write(CODE_HEADER_LEN, code.name.as_bytes());
            room.write(part.image_offset as usize, code.image);
            if let Path::TwoSided(_) = self.path {
                // Cleared for the reason that `clear_line` gives.
                let name_end = CODE_HEADER_LEN + code.name.len();
                let image = match part.image_len {
                    0 => name_end..name_end,
                    len => part.image_offset as usize..(part.image_offset + len) as usize,
                };
                for gap in [name_end..image.start, image.end..layout.payload] {
                    // SAFETY: the gap is inside the frame, and no part of the frame covers it.
                    unsafe { start.add(gap.start).write_bytes(0, gap.len()) };
                }
            }
        }
        // SAFETY: the layout keeps the payload inside the frame.
        let at = unsafe { start.add(layout.payload) };
        let slack = layout.frame_len - layout.payload - payload;
        Ok(Reserved { payload: at, room: payload, slack, layout, position })
    }

    /// [`Channel::reserve`] for a frame on a two-sided path that names no code and wants no alignment.
    /// Faster; `None` when the fast path does not apply.
    #[inline]
    pub fn reserve_delivered(&mut self, payload: usize) -> Option<Reserved> {
        let Path::TwoSided(path) = &mut self.path else { return None };
        if payload > self.terms.send_limit {
            return None;
        }
        let layout = Plan::of(Kind::Call).layout(0, payload, Trailer::Never);
        if layout.frame_len > self.terms.send_limit {
            return None;
        }
        let start = path.lend(layout.frame_len)?;
        // SAFETY: the frame has a line, and the layout keeps the payload inside the frame.
        let at = unsafe {
            clear_line(start);
            start.add(layout.payload)
        };
        let slack = layout.frame_len - layout.payload - payload;
        Some(Reserved { payload: at, room: payload, slack, layout, position: path.position() })
    }

    /// Sends the frame reserved last, with the first `used` bytes of its payload space.
    ///
    /// # Errors
    /// [`SendError::Full`] when the backend cannot take it now. The space stays reserved: commit again.
    #[inline]
    pub fn commit(&mut self, plan: &Plan<'_>, reserved: &Reserved, used: usize) -> Result<(), SendError> {
        debug_assert!(used <= reserved.room);
        let header = plan.header(&reserved.layout, used.min(reserved.room));
        match &mut self.path {
            Path::OneSided(path) if path.out.position() != reserved.position => Err(stale()),
            Path::OneSided(path) => path.commit(header),
            Path::TwoSided(path) if path.position() != reserved.position => Err(stale()),
            Path::TwoSided(path) => path.commit(header, reserved.layout.payload + used.min(reserved.room)),
        }
    }

    /// Sends a frame with the payload `bytes` without copying it. `None`, with nothing sent, when the
    /// transport cannot do that now or a copy costs less: use another way then.
    #[inline]
    pub fn send_beside(&mut self, plan: &Plan<'_>, bytes: &[u8]) -> Option<Result<(), SendError>> {
        let Path::TwoSided(path) = &self.path else { return None };
        if bytes.len() < BESIDE
            || plan.code.is_some()
            || plan.align_log2 != 0
            || !path.messages.sends_beside()
        {
            return None;
        }
        let room = self.reserve_delivered(bytes.len())?;
        let header = plan.header(&room.layout, bytes.len());
        let Path::TwoSided(path) = &mut self.path else { return None };
        Some(path.commit_beside(header, bytes))
    }

    /// Reserves space for a frame of one line. `None` unless the ring is mapped and has the space now.
    #[inline(always)]
    pub fn line(&mut self) -> Option<Line<'_>> {
        let Path::OneSided(path) = &mut self.path else { return None };
        let (at, start) = path.line()?;
        Some(Line { path, at, start })
    }

    /// Prefetches the next line of a mapped ring for writing, for a frame of one line that is about to be
    /// sent.
    #[inline(always)]
    pub fn prefetch(&self) {
        if let Path::OneSided(path) = &self.path {
            path.out.prefetch();
        }
    }

    /// [`Channel::prefetch`] for a frame as long as the last one that was reserved, up to a few lines.
    #[inline(always)]
    pub fn prefetch_reserved(&self) {
        if let Path::OneSided(path) = &self.path {
            path.out.prefetch_laid_out();
        }
    }

    /// Prefetches the lines behind this frame in a mapped ring for writing, for a next frame of the same
    /// length.
    #[inline]
    pub fn prefetch_behind(&self, reserved: &Reserved) {
        if let Path::OneSided(path) = &self.path
            && path.is_mapped()
        {
            path.out.prefetch_behind(reserved.layout.frame_len);
        }
    }

    /// Sends a frame with the payload `bytes`: reserve, copy and commit in one step.
    ///
    /// # Errors
    /// Those of [`Channel::reserve`] and [`Channel::commit`]. Nothing was sent then.
    #[inline]
    pub fn send_bytes(&mut self, plan: &Plan<'_>, bytes: &[u8]) -> Result<(), SendError> {
        if bytes.len() <= INLINE_PAYLOAD
            && plan.code.is_none()
            && plan.align_log2 == 0
            && let Some(line) = self.line()
        {
            // SAFETY: the line lends 40 bytes, aligned to 8, which do not overlap the caller's bytes.
            unsafe { copy_few(bytes, line.payload()) };
            return Ok(line.send(plan, bytes.len())?);
        }
        let quick = if plan.code.is_none() && plan.align_log2 == 0 {
            self.reserve_delivered(bytes.len())
        } else {
            None
        };
        let room = match quick {
            Some(room) => room,
            None => self.reserve(plan, bytes.len())?,
        };
        // SAFETY: `reserve` lends at least `bytes.len()` bytes at `payload`, which do not overlap the
        // caller's bytes.
        unsafe { shared::copy_in(bytes.as_ptr(), room.payload.as_ptr(), bytes.len()) };
        self.commit(plan, &room, bytes.len())
    }

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

    /// Bytes checksummed since the link was made: 0 except under [`ArrivalRules::CHECKED`]. One poll
    /// checksums 16 KiB at most, so a frame that never becomes whole cannot block the caller.
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

    /// Lets the transport make progress, and returns credit to the peer when `idle` (polling has found
    /// nothing for a while). Returns whether the peer has sent a notice since the last call.
    ///
    /// # Errors
    /// Failures of frames sent earlier.
    #[inline]
    pub fn progress(&mut self, idle: bool) -> Result<bool, TransportError> {
        match &mut self.path {
            Path::OneSided(path) => path.progress(idle),
            Path::TwoSided(path) => {
                path.messages.progress()?;
                // Two-sided transports have no credit line: the control connection is read when idle.
                Ok(idle)
            }
        }
    }

    /// Whether frames move only while [`Channel::progress`] is called. `false` where memory is mapped.
    #[inline]
    pub fn needs_progress(&self) -> bool {
        self.terms.rule != ArrivalRules::STORES
    }

    /// Sends the peer a notice: something for it is on the control connection.
    ///
    /// # Errors
    /// When the transport fails.
    pub fn call_attention(&mut self) -> Result<(), TransportError> {
        match &mut self.path {
            Path::OneSided(path) => path.call_attention(),
            Path::TwoSided(_) => Ok(()),
        }
    }

    /// Prepares to sleep until a frame comes. Unless the result is `Ready`, the caller sleeps and then calls
    /// [`Channel::disarm`].
    ///
    /// # Errors
    /// When the transport fails.
    pub fn arm(&mut self) -> Result<Armed, TransportError> {
        match &mut self.path {
            Path::OneSided(path) => path.arm(self.held.is_some()),
            Path::TwoSided(path) => path.arm(),
        }
    }

    /// Ends the sleep. Does nothing on a channel that is not armed.
    ///
    /// # Errors
    /// When the transport fails.
    pub fn disarm(&mut self) -> Result<(), TransportError> {
        match &mut self.path {
            Path::OneSided(path) => path.disarm(),
            Path::TwoSided(path) => path.messages.disarm(),
        }
    }

    /// The descriptor to sleep on after [`Channel::arm`]; the same for the life of the channel.
    pub fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        match &self.path {
            Path::OneSided(path) => path.local.descriptor(),
            Path::TwoSided(path) => path.messages.descriptor(),
        }
    }

    /// Whether a sleeper on [`Channel::descriptor`] must also wake when it becomes writable, to call
    /// [`Channel::progress`].
    pub fn wants_write(&self) -> bool {
        match &self.path {
            Path::OneSided(_) => false,
            Path::TwoSided(path) => path.messages.wants_write(),
        }
    }

    /// Whether [`Channel::descriptor`] becomes readable at the next frame even if the channel is not armed.
    /// `false` while an arrived frame has not been polled.
    pub fn tells_unasked(&self) -> bool {
        match &self.path {
            Path::OneSided(_) => false,
            Path::TwoSided(path) => path.messages.tells_unasked(),
        }
    }

    /// Whether frames of a peer that has ended may still come, until `poll` returns [`Cause::PeerGone`].
    pub fn has_end(&self) -> bool {
        match &self.path {
            Path::OneSided(_) => false,
            Path::TwoSided(path) => path.messages.has_end(),
        }
    }

    /// Bytes of the frames released so far, with the unused bytes between them.
    pub fn received(&self) -> u64 {
        match &self.path {
            Path::OneSided(path) => path.inbound.position(),
            Path::TwoSided(path) => path.received,
        }
    }

    /// Bytes of sent frames that the peer is not known to have consumed; `None` if the transport does not
    /// say.
    pub fn in_flight(&mut self) -> Option<u64> {
        match &mut self.path {
            Path::OneSided(path) => Some(path.out.in_flight()),
            Path::TwoSided(_) => None,
        }
    }
}

/// Clears the bytes behind the header in the first line of a two-sided transport's buffer. They held another
/// message, maybe of another link: bytes that no part of the frame covers must not travel.
///
/// # Safety
/// `start` must be valid for writes of a line, which nothing else uses.
#[inline(always)]
unsafe fn clear_line(start: NonNull<u8>) {
    // SAFETY: the caller keeps `start` valid for writes of a line (see Safety).
    unsafe { start.add(HEADER_LEN).write_bytes(0, LINE - HEADER_LEN) };
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

/// Copies up to 40 bytes by relaxed atomic stores. For so few bytes, calling memcpy takes longer than the
/// copy.
///
/// # Safety
/// `to` must be aligned to 8 bytes and valid for writes of `from.len()` bytes. `from` must not overlap them.
/// Nothing else in this process may use them meanwhile.
#[inline(always)]
unsafe fn copy_few(from: &[u8], to: NonNull<u8>) {
    // Not the atomics of `crate::sync`: loom has none at an address.
    use core::sync::atomic::{AtomicU8, AtomicU64};

    let chunks = from.chunks_exact(8);
    let rest = chunks.remainder();
    let mut to = to.as_ptr();
    // SAFETY: the writes add up to the length of `from`, and whole words come first.
    unsafe {
        for chunk in chunks {
            let word = u64::from_ne_bytes([
                chunk[0], chunk[1], chunk[2], chunk[3], chunk[4], chunk[5], chunk[6], chunk[7],
            ]);
            AtomicU64::from_ptr(to.cast()).store(word, Ordering::Relaxed);
            to = to.add(8);
        }
        for byte in rest {
            AtomicU8::from_ptr(to).store(*byte, Ordering::Relaxed);
            to = to.add(1);
        }
    }
}

#[cold]
fn failed(operation: Operation, cause: Cause) -> TransportError {
    TransportError::new("core", operation, cause)
}

#[cold]
fn stale() -> SendError {
    failed(Operation::Send, Cause::Unsupported("committing what was not reserved last")).into()
}

#[cold]
fn protocol(error: FrameError) -> TransportError {
    failed(Operation::Receive, Cause::Protocol(error))
}

fn ring_of(region_len: usize) -> Result<usize, TransportError> {
    mailbox::ring_len(region_len).filter(|ring| *ring <= MAX_FRAME).ok_or_else(|| {
        failed(
            Operation::Connect,
            Cause::Address(alloc::format!("a region of {region_len} bytes holds no ring")),
        )
    })
}
