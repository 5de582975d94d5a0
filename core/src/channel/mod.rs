//! One end of a link: frames out, frames in, over either family of transports.
//!
//! A [`Channel`] is what everything above core works with. Sending: [`Channel::reserve`] room for a frame, write its
//! payload there, [`Channel::commit`]. Receiving: [`Channel::poll`], use the frame, [`Channel::release`]. Which transport moves the
//! bytes, and by which arrival rule, shows only in [`Channel::rule`].
//!
//! For memory that is mapped here (`Stores`) nothing on the hot path is a virtual call: a small frame is one line written
//! and one line read.

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

/// What both sides agreed on when they met, as seen by this side.
#[derive(Clone, Copy, Debug)]
pub struct Terms {
    /// The arrival rule, a single one.
    pub rule: ArrivalRules,
    /// Both sides place lines whole.
    pub line_whole: bool,
    /// Key of the frames that this side sends, drawn by the peer.
    pub send_key: LinkKey,
    /// Key of the frames that this side receives, drawn by it.
    pub receive_key: LinkKey,
    /// Largest frame that the peer takes, in bytes.
    pub send_limit: usize,
    /// Largest frame that this side takes, in bytes.
    pub receive_limit: usize,
    /// One-sided: length in bytes of the peer's region as the peer stated it. The ring in it is the largest power of two
    /// behind the control page ([`mailbox::ring_len`]), so both sides must take the same length.
    pub send_region: usize,
    /// One-sided: length in bytes of this side's region as it stated it.
    pub receive_region: usize,
}

/// Length in bytes from which on [`Channel::send_beside`] sends payloads: a copy of fewer costs less than the pieces do.
pub const BESIDE: usize = 64 << 10;

/// Room for a frame, reserved.
#[derive(Clone, Copy, Debug)]
pub struct Reserved {
    /// Where the payload goes: aligned as the plan asks, valid for writes of `room` bytes until [`Channel::commit`] or the
    /// next `reserve`. It may hold anything.
    pub payload: NonNull<u8>,
    /// Bytes of payload that fit.
    pub room: usize,
    /// Bytes behind the payload up to the end of the frame that may be written too, and mean nothing.
    pub slack: usize,
    layout: Layout,
    /// Position of the frame it is for.
    position: u64,
}

// SAFETY: it is an address and lengths; whoever writes there does so by unsafe code of their own, from the thread that has the
// channel.
unsafe impl Send for Reserved {}

/// Why a frame could not be sent.
#[derive(Debug, thiserror::Error)]
pub enum SendError {
    /// The peer has no room now. Nothing is lost: ask again later.
    #[error("the peer has no room now")]
    Full,
    /// The frame is longer than the mailbox, or than the peer takes, and asking again does not help. (Where an image asks
    /// for an alignment over 64 bytes, a frame's length depends a little on the place where it comes to lie.)
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

/// What a look at the inbox found.
#[derive(Debug)]
pub enum Polled {
    /// Nothing.
    Nothing,
    /// The start of a frame whose rest is not there yet. If that lasts, the peer has stalled.
    Partial,
    /// A whole frame, checked.
    Frame(Received),
}

/// What a quick look at the inbox found.
#[derive(Debug)]
pub enum Glance<'c> {
    /// Nothing.
    Nothing,
    /// A whole frame without code, held as [`Channel::poll`] holds it.
    Frame(&'c Received),
    /// Something else: ask [`Channel::poll_slowly`].
    Other,
}

/// What to sleep on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Armed {
    /// Something is there already: do not sleep.
    Ready,
    /// Sleep until [`Channel::descriptor`] is readable; or, if there is something else to do, until then.
    Sleep,
    /// Nothing will tell: nap for a millisecond at most, then look.
    Nap,
}

/// One end of a link.
pub struct Channel {
    path: Path,
    terms: Terms,
    trailer: Trailer,
    /// A frame handed out by `poll` and not released. Until it is released it is not read again: on a one-sided path the peer can
    /// change what the mailbox says of it.
    held: Option<Received>,
    /// The code that the held frame names, read with it.
    code: Option<CodePart>,
}

// Both are large, and there is one of them for each link: boxing the larger would put a pointer into the hot path.
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
    /// Makes a channel of an endpoint and what was agreed.
    ///
    /// # Errors
    /// When the regions are too small for a ring, or the rule does not fit the endpoint.
    pub fn new(endpoint: Endpoint, mut terms: Terms) -> Result<Channel, TransportError> {
        // Lengths in frames are 32 bit.
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

    /// What this end's frames travel over, as the backend says. For people; may take long.
    pub fn route(&self) -> Route {
        match &self.path {
            Path::OneSided(path) => path.route(),
            Path::TwoSided(path) => path.messages.route(),
        }
    }

    /// Largest frame that can be sent, in bytes, all included.
    pub fn max_frame(&self) -> usize {
        match &self.path {
            Path::OneSided(path) => path.out.ring().len().min(self.terms.send_limit),
            Path::TwoSided(_) => self.terms.send_limit,
        }
    }

    /// Whether the peer takes shorter frames than its mailbox has room for: a bigger mailbox would not help.
    pub fn is_limited(&self) -> bool {
        match &self.path {
            Path::OneSided(path) => self.terms.send_limit < path.out.ring().len(),
            Path::TwoSided(_) => true,
        }
    }

    /// Reserves room for the frame `plan` with up to `payload` bytes of payload, and writes everything into it that is
    /// known already (code and name). The room stays until `commit`; a second `reserve` forgets the first.
    ///
    /// # Errors
    /// [`SendError::Full`] when the peer must consume first.
    #[inline]
    pub fn reserve(&mut self, plan: &Plan<'_>, payload: usize) -> Result<Reserved, SendError> {
        let trailer = self.trailer;
        // So no sum below can overflow.
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
                // SAFETY: a frame has a line. Without code nothing is between that and its payload.
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
            // SAFETY: `start` is `frame_len` bytes of room of which the layout keeps these parts inside.
            let room = unsafe { Region::new(start, layout.frame_len) };
            for (index, word) in part.to_words(layout.payload as u32).into_iter().enumerate() {
                room.store(HEADER_LEN + index * 8, word, Ordering::Relaxed);
            }
            room.write(CODE_HEADER_LEN, code.name.as_bytes());
            room.write(part.image_offset as usize, code.image);
            if let Path::TwoSided(_) = self.path {
                // As `clear_line`.
                let name_end = CODE_HEADER_LEN + code.name.len();
                let image = match part.image_len {
                    0 => name_end..name_end,
                    len => part.image_offset as usize..(part.image_offset + len) as usize,
                };
                for gap in [name_end..image.start, image.end..layout.payload] {
                    // SAFETY: inside the frame, and covered by none of its parts.
                    unsafe { start.add(gap.start).write_bytes(0, gap.len()) };
                }
            }
        }
        // SAFETY: the layout keeps the payload inside the frame.
        let at = unsafe { start.add(layout.payload) };
        let slack = layout.frame_len - layout.payload - payload;
        Ok(Reserved { payload: at, room: payload, slack, layout, position })
    }

    /// [`Channel::reserve`] on a two-sided path for a frame that names no code and wants no alignment of its own: quicker, and `None`
    /// where another way has to be gone.
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

    /// Sends the frame reserved last, with the first `used` bytes of its payload room.
    ///
    /// # Errors
    /// [`SendError::Full`] when the backend cannot take it now: the room stays as it is, commit again.
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

    /// Sends a frame whose payload is `bytes` from where they lie, where the transport can and has room right now, and a copy would
    /// cost more. `None` where another way has to be gone: nothing was sent then.
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

    /// Room for a frame of one line, where the ring is mapped and has some right now.
    #[inline(always)]
    pub fn line(&mut self) -> Option<Line<'_>> {
        let Path::OneSided(path) = &mut self.path else { return None };
        let (at, start) = path.line()?;
        Some(Line { path, at, start })
    }

    /// Says that a frame of one line is about to be sent: where the ring is mapped, its line comes over meanwhile.
    #[inline(always)]
    pub fn prefetch(&self) {
        if let Path::OneSided(path) = &self.path {
            path.out.prefetch();
        }
    }

    /// As [`Channel::prefetch`], for a frame as long as the last one that was reserved, up to a few lines.
    #[inline(always)]
    pub fn prefetch_reserved(&self) {
        if let Path::OneSided(path) = &self.path {
            path.out.prefetch_laid_out();
        }
    }

    /// Says that a frame as long as this one will be written behind it: where the ring is mapped, its lines come over meanwhile.
    #[inline]
    pub fn prefetch_behind(&self, reserved: &Reserved) {
        if let Path::OneSided(path) = &self.path
            && path.is_mapped()
        {
            path.out.prefetch_behind(reserved.layout.frame_len);
        }
    }

    /// Sends a frame whose payload is `bytes`: reserve, copy and commit in one step.
    ///
    /// # Errors
    /// As [`Channel::reserve`] and [`Channel::commit`]. Nothing was sent then.
    #[inline]
    pub fn send_bytes(&mut self, plan: &Plan<'_>, bytes: &[u8]) -> Result<(), SendError> {
        if bytes.len() <= INLINE_PAYLOAD
            && plan.code.is_none()
            && plan.align_log2 == 0
            && let Some(line) = self.line()
        {
            // SAFETY: the line lends 40 bytes, aligned to 8, which overlap nothing of the caller's.
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
        // SAFETY: `reserve` lends at least `bytes.len()` bytes at `payload`, which overlap nothing of the caller's.
        unsafe { shared::copy_in(bytes.as_ptr(), room.payload.as_ptr(), bytes.len()) };
        self.commit(plan, &room, bytes.len())
    }

    /// Looks for the next frame. The same one until it is released, as it was read when it was first found, whatever the peer
    /// writes over it meanwhile.
    ///
    /// # Errors
    /// When the transport failed or the peer broke the protocol: the link is at its end.
    #[inline]
    pub fn poll(&mut self) -> Result<Polled, TransportError> {
        match self.glance() {
            Glance::Nothing => Ok(Polled::Nothing),
            Glance::Frame(frame) => Ok(Polled::Frame(*frame)),
            Glance::Other => self.poll_slowly(),
        }
    }

    /// [`Channel::poll`] for loops in which each nanosecond counts: finds nothing or a frame without code, on a one-sided path
    /// whose signal proves all of a frame, and leaves the rest to `poll`. If a reply is wanted, the line that it will be written
    /// to comes over meanwhile. The frame is lent, not handed out, because what is
    /// passed by value passes through memory.
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
                // Its length was checked; the line is all that the compiler knows to be checked already.
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

    /// Leaves frames of more than `len` bytes, all included, to [`Channel::poll_slowly`]: a receiver that has more to check of
    /// large payloads than [`Channel::glance`] does need not do so for small ones. A frame's payload is shorter than the frame by
    /// 24 bytes at least.
    pub fn limit_glances(&mut self, len: usize) {
        match &mut self.path {
            Path::OneSided(path) => path.inbound.limit_glances(len),
            Path::TwoSided(path) => path.quick_limit = self.terms.receive_limit.min(len),
        }
    }

    /// [`Channel::poll`] after a [`Glance::Other`]: the long way, for frames with code or a trailer, for all that is wrong, and for
    /// two-sided paths.
    ///
    /// # Errors
    /// As [`Channel::poll`].
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

    /// What later frames may be compared with that name the same code as the one that `poll` returned last: see
    /// [`Channel::repeats`]. `None` where there are none to be had.
    pub fn template(&self) -> Option<Template> {
        let (frame, code) = (self.held.as_ref()?, self.code?);
        Template::of(&frame.header(), u32::try_from(frame.payload).ok()?, code)
    }

    /// [`Channel::poll`] for frames that say the same as an earlier one, token and wishes aside: these are not taken apart and
    /// checked anew. `None` for all others, where nothing is due, and while a frame is held. Name and image may differ.
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

    /// What the frame that `poll` returned last says of the code that it names; `None` if it names none.
    pub fn code(&self) -> Option<CodePart> {
        self.code.filter(|_| self.held.is_some())
    }

    /// Whether a look now goes on with the checksum of a frame that is not known to be whole: then [`Polled::Partial`] does not mean
    /// that the peer stalls.
    pub fn is_summing(&self) -> bool {
        matches!(&self.path, Path::OneSided(path) if path.inbound.is_summing())
    }

    /// Bytes of frames that a checksum was computed of since the link was made: none but under
    /// [`ArrivalRules::CHECKED`]. A look computes it of 16 KiB at most, so that a frame that never becomes whole keeps nobody from
    /// other work.
    pub fn summed(&self) -> u64 {
        match &self.path {
            Path::OneSided(path) => path.inbound.summed(),
            Path::TwoSided(_) => 0,
        }
    }

    /// Gives the frame's room back. What [`Received::payload`] pointed to may be overwritten from now on.
    ///
    /// # Errors
    /// When telling the peer fails.
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

    /// Appends the payload of the frame that `poll` returned last to `into`. Without one, or after its release, nothing.
    pub fn copy_payload(&self, into: &mut impl Extend<u8>) {
        let Some((from, len)) = self.payload_part() else { return };
        let mut piece = [0; 256];
        for at in (0..len).step_by(piece.len()) {
            let piece = &mut piece[..(len - at).min(256)];
            // SAFETY: as `part` says, and the piece is as long.
            unsafe { shared::copy_out(from.add(at).as_ptr(), piece.as_mut_ptr(), piece.len()) };
            into.extend(piece.iter().copied());
        }
    }

    /// A copy of the image that travels in the frame that `poll` returned last, in memory that the peer cannot write;
    /// empty if none does.
    pub fn copy_image(&self, into: &mut Vec<u8>) {
        into.clear();
        let Some((image, len)) = self.image_part() else { return };
        into.reserve(len);
        // SAFETY: as `part` says. The vector has room for so many bytes, which are written before its length says that they are
        // there.
        unsafe {
            shared::copy_out(image.as_ptr(), into.as_mut_ptr(), len);
            into.set_len(len);
        }
    }

    /// Whether the image that travels in the frame that `poll` returned last is `image`, byte for byte. `false` if none does.
    pub fn image_is(&self, image: &[u8]) -> bool {
        // What the peer makes of these bytes after they were compared matters to nobody who goes on with `image`.
        self.image_part().is_some_and(|(there, len)| {
            // SAFETY: as `part` says, and `image` is as long.
            !image.is_empty() && len == image.len() && unsafe { shared::equals(there.as_ptr(), image) }
        })
    }

    /// Copies the name of the code that the frame names to the start of `into`, and returns how long it is; 0 if it names none.
    pub fn copy_name_to(&self, into: &mut [u8; MAX_NAME]) -> usize {
        // `Header::check` refuses longer ones.
        let part = |code: CodePart| (CODE_HEADER_LEN, usize::from(code.name_len).min(MAX_NAME));
        copy_part(self.part(|_| self.code.map(part)), into)
    }

    /// Length in bytes of the payload of the frame that `poll` returned last; 0 without one.
    #[inline(always)]
    pub fn payload_len(&self) -> usize {
        self.held.map_or(0, |frame| frame.header().payload_len as usize)
    }

    /// Copies the payload of the frame that `poll` returned last to the start of `into`, as much of it as fits, and returns
    /// how much that was. Quicker than [`Channel::copy_payload`] for a few bytes.
    #[inline]
    pub fn copy_payload_to(&self, into: &mut [u8]) -> usize {
        copy_part(self.payload_part(), into)
    }

    /// The first 8 bytes of the payload of the frame that `poll` returned last, read once, as a little-endian word; 0 where there
    /// are not so many.
    #[inline]
    pub fn payload_word(&self) -> u64 {
        let mut word = [0; 8];
        if let Some((from, 8..)) = self.payload_part() {
            // SAFETY: as `part` says of so many bytes.
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

    /// Where the bytes lie of which `place` gives offset and length in the frame that is held, and how many they are. The frame's parts
    /// were checked to lie inside it, and its bytes are lent until it is released, so they are valid for reads. On a mapped ring a
    /// peer that breaks the protocol may write meanwhile, so no slice is made of them: [`shared`] copies and compares. In this
    /// process nobody writes there meanwhile: core does not, and injected code runs before or after.
    #[inline]
    fn part(&self, place: impl FnOnce(&Received) -> Option<(usize, usize)>) -> Option<(NonNull<u8>, usize)> {
        let frame = self.held.as_ref()?;
        let (at, len) = place(frame)?;
        // SAFETY: inside the frame.
        Some((unsafe { frame.start.add(at) }, len))
    }

    /// Lets the transport work, and tells the peer what has been consumed when `idle` (nothing was found for a while).
    /// Returns whether the peer has put something on the control connection since the last call.
    ///
    /// # Errors
    /// What went wrong with frames sent earlier.
    #[inline]
    pub fn progress(&mut self, idle: bool) -> Result<bool, TransportError> {
        match &mut self.path {
            Path::OneSided(path) => path.progress(idle),
            Path::TwoSided(path) => {
                path.messages.progress()?;
                // Two-sided transports have no return line: the control connection is looked at when idle.
                Ok(idle)
            }
        }
    }

    /// Whether [`Channel::progress`] has to be called for frames to move at all. Not where memory is mapped.
    #[inline]
    pub fn needs_progress(&self) -> bool {
        self.terms.rule != ArrivalRules::STORES
    }

    /// Tells the peer to look at the control connection, where this side has put something for it.
    ///
    /// # Errors
    /// When the transport fails.
    pub fn call_attention(&mut self) -> Result<(), TransportError> {
        match &mut self.path {
            Path::OneSided(path) => path.call_attention(),
            Path::TwoSided(_) => Ok(()),
        }
    }

    /// Prepares to sleep until a frame comes. After anything but `Ready` the caller sleeps and then calls
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

    /// Awake again. Does nothing on a channel that is not armed.
    ///
    /// # Errors
    /// When the transport fails.
    pub fn disarm(&mut self) -> Result<(), TransportError> {
        match &mut self.path {
            Path::OneSided(path) => path.disarm(),
            Path::TwoSided(path) => path.messages.disarm(),
        }
    }

    /// What [`Channel::arm`] may tell to sleep on; the same for the life of the channel.
    pub fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        match &self.path {
            Path::OneSided(path) => path.local.descriptor(),
            Path::TwoSided(path) => path.messages.descriptor(),
        }
    }

    /// Whether who sleeps on [`Channel::descriptor`] is to be woken too when it becomes writable, for [`Channel::progress`].
    pub fn wants_write(&self) -> bool {
        match &self.path {
            Path::OneSided(_) => false,
            Path::TwoSided(path) => path.messages.wants_write(),
        }
    }

    /// Whether [`Channel::descriptor`] becomes readable when the next frame comes, although the channel was not armed. `false` too while
    /// a frame is here that was not polled.
    pub fn tells_unasked(&self) -> bool {
        match &self.path {
            Path::OneSided(_) => false,
            Path::TwoSided(path) => path.messages.tells_unasked(),
        }
    }

    /// Whether frames of a peer that has ended may still come, until polling gives [`Cause::PeerGone`].
    pub fn has_end(&self) -> bool {
        match &self.path {
            Path::OneSided(_) => false,
            Path::TwoSided(path) => path.messages.has_end(),
        }
    }

    /// Bytes that the frames released so far took, with what was left unused between them.
    pub fn received(&self) -> u64 {
        match &self.path {
            Path::OneSided(path) => path.inbound.position(),
            Path::TwoSided(path) => path.received,
        }
    }

    /// Bytes of frames sent that the peer is not known to have consumed; `None` where the transport does not tell.
    pub fn in_flight(&mut self) -> Option<u64> {
        match &mut self.path {
            Path::OneSided(path) => Some(path.out.in_flight()),
            Path::TwoSided(_) => None,
        }
    }
}

/// Clears what follows the header in the first line of room that a two-sided transport lends. Its bytes were another message's, maybe
/// of another link: what no part of the frame covers must not travel.
///
/// # Safety
/// `start` must be valid for writes of a line, which nobody else uses.
#[inline(always)]
unsafe fn clear_line(start: NonNull<u8>) {
    // SAFETY: the caller's promise.
    unsafe { start.add(HEADER_LEN).write_bytes(0, LINE - HEADER_LEN) };
}

/// Copies as much as fits of the part of a frame to the start of `into`, and returns how much that was.
#[inline]
fn copy_part(part: Option<(NonNull<u8>, usize)>, into: &mut [u8]) -> usize {
    let Some((from, len)) = part else { return 0 };
    let len = len.min(into.len());
    // SAFETY: as `Channel::part` says of what it returns, and `into` is the caller's and long enough.
    unsafe { shared::copy_out(from.as_ptr(), into.as_mut_ptr(), len) };
    len
}

/// Copies up to 40 bytes, by relaxed atomic stores; for so few a call of memcpy takes longer than the copy.
///
/// # Safety
/// `to` must be aligned to 8 bytes and valid for writes of as many bytes, which `from` does not overlap. Nobody else of this process
/// uses them meanwhile.
#[inline(always)]
unsafe fn copy_few(from: &[u8], to: NonNull<u8>) {
    // Not those of `crate::sync`: loom has no atomics at an address.
    use core::sync::atomic::{AtomicU8, AtomicU64};

    let chunks = from.chunks_exact(8);
    let rest = chunks.remainder();
    let mut to = to.as_ptr();
    // SAFETY: what is written adds up to the length of `from`, and whole words come first.
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
