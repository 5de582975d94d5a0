//! Sending: reserve space for a frame, write its payload there, commit.

use core::ptr::NonNull;

use super::{Channel, ClearLine, Line, MessageSpace, Path, line};
use crate::frame::{CODE_HEADER_LEN, HEADER_LEN, INLINE_PAYLOAD, Layout, Plan, PlanCode};
use crate::image::FamilyId;
use crate::memory::{Memory, Region};
use crate::shared;
use crate::sync::Ordering;
use crate::transport::{Cause, TransportError};

/// Shortest payload in bytes that [`Channel::send_beside`] sends. Below this, a copy costs less than separate
/// pieces.
pub const BESIDE: usize = 64 << 10;

/// Space reserved for a frame, borrowed from the channel until the frame is committed, kept or dropped. The
/// peer sees nothing before the commit.
///
/// A frame is committed once:
/// ```compile_fail,E0382
/// # use farjump_core::{channel::Reserved, frame::Plan};
/// fn twice(reserved: Reserved<'_>, plan: &Plan<'_>) {
///     reserved.commit(plan, 0);
///     reserved.commit(plan, 0);
/// }
/// ```
/// And nothing else is sent in between:
/// ```compile_fail,E0499
/// # use farjump_core::{channel::Channel, frame::Plan};
/// fn in_between(channel: &mut Channel, plan: &Plan<'_>) {
///     let reserved = channel.reserve(plan, 8).unwrap();
///     channel.send_bytes(plan, &[]).unwrap();
///     reserved.commit(plan, 8);
/// }
/// ```
#[must_use = "a frame is sent by `commit`"]
pub struct Reserved<'c> {
    channel: &'c mut Channel,
    space: Space,
}

/// The space of a frame that was reserved last in its channel.
#[derive(Clone, Copy)]
pub(super) struct Space {
    /// Address of the payload.
    pub(super) payload: NonNull<u8>,
    /// Payload bytes that fit.
    pub(super) len: usize,
    pub(super) layout: Layout,
}

// SAFETY: the value is an address and lengths. Writing through the address takes `unsafe` code of the
// caller's, in the thread that has the channel.
unsafe impl Send for Space {}

impl core::fmt::Debug for Reserved<'_> {
    fn fmt(&self, out: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        out.debug_struct("Reserved").field("len", &self.space.len).finish_non_exhaustive()
    }
}

impl<'c> Reserved<'c> {
    #[inline(always)]
    pub(super) fn new(channel: &'c mut Channel, space: Space) -> Self {
        Reserved { channel, space }
    }

    /// Address of the payload: aligned as the plan requires, valid for writes of [`Reserved::space`] bytes
    /// while this value lives. After [`Reserved::keep`] valid until [`Channel::kept`] or the next
    /// [`Channel::reserve`]. The bytes start with arbitrary contents.
    #[inline(always)]
    pub fn payload(&self) -> NonNull<u8> {
        self.space.payload
    }

    /// Writes a payload of no more than [`Reserved::space`] bytes, to its start. Returns the number of bytes
    /// that fit.
    #[inline(always)]
    pub fn write(&self, payload: &[u8]) -> usize {
        let len = payload.len().min(self.space.len);
        // SAFETY: the channel lends the space, which is new memory to the caller's bytes, while this value lives.
        unsafe { shared::copy_in(payload.as_ptr(), self.payload().as_ptr(), len) };
        len
    }

    /// Payload bytes that fit.
    #[inline(always)]
    pub fn space(&self) -> usize {
        self.space.len
    }

    /// Bytes from the end of the payload to the end of the frame. They may be written, and mean nothing.
    #[inline(always)]
    pub fn slack(&self) -> usize {
        let Space { len, layout, .. } = &self.space;
        layout.frame_len - layout.payload - len
    }

    /// Sends the frame with the first `used` bytes of its payload space. `plan` is the one that the space was
    /// reserved for, but for its token, index and flags.
    ///
    /// # Errors
    /// [`SendError::Full`] when the backend cannot take it now. The frame is kept then: [`Channel::kept`]
    /// returns it.
    #[inline]
    pub fn commit(self, plan: &Plan<'_>, used: usize) -> Result<(), SendError> {
        let Reserved { channel, space } = self;
        debug_assert!(used <= space.len);
        let used = used.min(space.len);
        match &mut channel.path {
            Path::OneSided(path) => {
                path.commit(plan.header(&space.layout, used), space.layout.payload + used)
            }
            Path::TwoSided(path) => {
                // SAFETY: `payload` lies in the buffer that the backend lent for this frame. `path` is the
                // buffer's own, since this value borrows the channel, and nothing was sent or reserved since:
                // a channel with a kept frame drops it first.
                let sent = unsafe {
                    let start = space.payload.sub(space.layout.payload);
                    path.commit(start, plan.header_delivered(&space.layout, used))
                };
                if let Err(SendError::Full) = sent {
                    channel.set_kept(space);
                }
                sent
            }
        }
    }

    /// Ends the borrow and keeps the space with its contents until [`Channel::kept`]. Frames can be received
    /// meanwhile, but not sent: the fast paths find no space, and [`Channel::reserve`] drops the kept frame.
    pub fn keep(self) {
        let Reserved { channel, space } = self;
        channel.set_kept(space);
        if let Path::OneSided(path) = &mut channel.path {
            path.close_lines();
        }
    }

    /// Prefetches the lines behind this frame in a mapped ring for writing, for a next frame of the same
    /// length.
    #[inline]
    pub fn prefetch_behind(&self) {
        if let Path::OneSided(path) = &self.channel.path
            && path.is_mapped()
        {
            path.out.prefetch_behind(self.space.layout.frame_len);
        }
    }
}

/// The reason why a frame could not be sent.
#[derive(Debug, thiserror::Error)]
pub enum SendError {
    /// The peer has no credit for the frame now. Nothing was sent: try again later.
    #[error("there is no credit now")]
    Full,
    /// The frame is longer than the mailbox or than the peer accepts. Trying again does not help. (If an
    /// image requires an alignment over 64 bytes, the length of its frame depends slightly on the frame's
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
    #[cold]
    pub(super) fn from_transport(error: TransportError) -> SendError {
        match *error.cause() {
            Cause::Full => SendError::Full,
            Cause::TooLarge { len, max } => SendError::TooLarge { len, max },
            _ => SendError::Failed(error),
        }
    }
}

impl Channel {
    /// Reserves space for the frame `plan` with up to `payload` bytes of payload, and writes its code and
    /// name. Drops a kept frame.
    ///
    /// # Errors
    /// [`SendError::Full`] when the peer must consume first.
    #[inline]
    pub fn reserve(&mut self, plan: &Plan<'_>, payload: usize) -> Result<Reserved<'_>, SendError> {
        if self.keeps {
            self.drop_kept();
        }
        let trailer = self.trailer;
        // Keeps the sums below from overflowing.
        if payload > self.send_limit {
            return Err(SendError::TooLarge { len: payload, max: self.max_frame() });
        }
        let (start, layout) = match &mut self.path {
            Path::OneSided(path) => {
                let (at, layout) = path.reserve(|base| plan.layout(base, payload, trailer), trailer)?;
                if layout.frame_len > self.send_limit {
                    return Err(SendError::TooLarge { len: layout.frame_len, max: self.max_frame() });
                }
                (path.out.ring().pointer(at, layout.frame_len), layout)
            }
            Path::TwoSided(path) => {
                let (start, layout) = path.reserve(plan, payload, self.send_limit)?;
                (start, layout)
            }
        };
        if let (Some(code), Some(part)) = (&plan.code, plan.code_part(&layout)) {
            // SAFETY: `start` is valid for `frame_len` bytes, and the layout keeps these parts inside them.
            let frame = unsafe { Region::new(start, layout.frame_len) };
            for (index, word) in part.to_words(layout.payload as u32).into_iter().enumerate() {
                frame.store(HEADER_LEN + index * 8, word, Ordering::Relaxed);
            }
            frame.write(CODE_HEADER_LEN, code.name.as_bytes());
            if let Some(family) = code.family {
                write_family(&frame, code, family);
            }
            frame.write(part.image_offset as usize, code.image);
            if let Path::TwoSided(_) = self.path {
                let name_end = code.names_end();
                let image = match part.image_len {
                    0 => name_end..name_end,
                    len => part.image_offset as usize..(part.image_offset + len) as usize,
                };
                for gap in [0..HEADER_LEN, name_end..image.start, image.end..layout.payload] {
                    // Bytes of another message, maybe of another link, must not travel.
                    // SAFETY: the gap is inside the frame, and no part of the frame covers it.
                    unsafe { start.add(gap.start).write_bytes(0, gap.len()) };
                }
            }
        }
        // SAFETY: the layout keeps the payload inside the frame.
        let at = unsafe { start.add(layout.payload) };
        Ok(Reserved::new(self, Space { payload: at, len: payload, layout }))
    }

    /// The frame that [`Reserved::keep`] kept last, or that [`Reserved::commit`] could not send. `None` if
    /// another frame was reserved since.
    #[inline]
    pub fn kept(&mut self) -> Option<Reserved<'_>> {
        let space = self.kept.filter(|_| self.keeps)?;
        self.drop_kept();
        Some(Reserved::new(self, space))
    }

    fn set_kept(&mut self, space: Space) {
        (self.kept, self.keeps) = (Some(space), true);
    }

    #[cold]
    fn drop_kept(&mut self) {
        (self.kept, self.keeps) = (None, false);
        if let Path::OneSided(path) = &mut self.path {
            path.open_lines();
        }
    }

    /// Sends a frame with the payload `bytes` without copying it. `None`, with nothing sent, when the
    /// transport cannot do that now or a copy costs less: send a copy then.
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
        let MessageSpace { path, start, .. } = self.message(bytes.len())?;
        let header = plan.header_delivered(&plan.layout_delivered(bytes.len()), bytes.len());
        // SAFETY: the buffer was lent just now, for a frame of this length.
        Some(unsafe { path.commit_beside(start, header, bytes) })
    }

    /// Reserves space for a frame of one line. `None` unless the ring is mapped and has the space now.
    #[inline(always)]
    pub fn line(&mut self) -> Option<Line<'_>> {
        let Path::OneSided(path) = &mut self.path else { return None };
        let (at, start) = path.line()?;
        Some(Line { path, at, start })
    }

    /// [`Channel::line`] without its checks, which most frames do not need. `None` if a check is due.
    #[inline(always)]
    pub fn clear_line(&mut self) -> Option<ClearLine<'_>> {
        let path = self.mapped_path()?;
        let (at, start) = path.clear_line()?;
        Some(ClearLine(Line { path, at, start }))
    }

    /// Wakes the peer if it fell asleep before the last frame of a [`ClearLine`] arrived.
    ///
    /// # Errors
    /// When it cannot be woken. The frame is in its mailbox all the same.
    #[cold]
    pub fn look_at_changed_peer(&mut self) -> Result<(), TransportError> {
        match &mut self.path {
            Path::OneSided(path) => path.look_at_changed_peer(),
            Path::TwoSided(_) => Ok(()),
        }
    }

    /// Stops frames sent from now on from waking the peer, on paths where a doorbell wakes it. Call
    /// [`Channel::end_group`] behind the group, and then [`Channel::wake_for_group`].
    pub fn begin_group(&mut self) {
        if let Path::OneSided(path) = &mut self.path {
            path.begin_group();
        }
    }

    /// Lets later frames wake the peer again.
    pub fn end_group(&mut self) {
        if let Path::OneSided(path) = &mut self.path {
            path.end_group();
        }
    }

    /// Returns whether the peer may sleep and have missed frames of a group. If so, call
    /// [`Channel::wake_for_group`] before waiting for anything.
    #[inline(always)]
    pub fn owes_wake(&self) -> bool {
        matches!(&self.path, Path::OneSided(path) if path.owes_wake())
    }

    /// Wakes the peer, once, if it fell asleep before frames of a group arrived. Ends a group that has not ended.
    ///
    /// # Errors
    /// When it cannot be woken. The frames are in its mailbox all the same.
    #[cold]
    pub fn wake_for_group(&mut self) -> Result<(), TransportError> {
        match &mut self.path {
            Path::OneSided(path) => path.wake_for_group(),
            Path::TwoSided(_) => Ok(()),
        }
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

    /// Sends a frame with the payload `bytes`: reserve, copy and commit in one step.
    ///
    /// # Errors
    /// Those of [`Channel::reserve`] and [`Reserved::commit`]. Nothing was sent then.
    #[inline]
    pub fn send_bytes(&mut self, plan: &Plan<'_>, bytes: &[u8]) -> Result<(), SendError> {
        if bytes.len() <= INLINE_PAYLOAD
            && plan.code.is_none()
            && plan.align_log2 == 0
            && let Some(line) = self.line()
        {
            // SAFETY: the line lends 40 bytes, aligned to 8, which do not overlap the caller's bytes.
            unsafe { line::copy_few(bytes, line.payload()) };
            return Ok(line.send(plan, bytes.len())?);
        }
        if plan.code.is_none() && plan.align_log2 == 0 && self.send_message(plan, bytes) {
            return Ok(());
        }
        let space = self.reserve(plan, bytes.len())?;
        // SAFETY: `reserve` lends at least `bytes.len()` bytes at `payload`, which do not overlap the
        // caller's bytes.
        unsafe { shared::copy_in(bytes.as_ptr(), space.payload().as_ptr(), bytes.len()) };
        space.commit(plan, bytes.len())
    }
}

/// Writes the family id behind the name. Most code has none.
#[cold]
#[inline(never)]
fn write_family(frame: &Region, code: &PlanCode<'_>, family: &FamilyId) {
    frame.write(CODE_HEADER_LEN + code.name.len(), &family.0);
}
