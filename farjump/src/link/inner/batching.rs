//! Batches: frames with several small calls of one function.

use std::ptr::NonNull;
use std::time::Duration;

use farjump_core::channel::SendError;
use farjump_core::frame::{INLINE_ALIGN_LOG2, Kind, LINE, MAX_BATCH, MESSAGES_HEAD_LEN, Messages, Plan};
use farjump_core::shared;
use farjump_loader::Library;
use smallvec::SmallVec;

use super::super::pending_calls::one_way_token;
use super::super::send::{CANARY_LEN, run_payload_init};
use super::super::sent_codes::Known;
use super::{Inner, Wants};
use crate::{Error, InjectError, Mode};

/// Limits of calls that share a frame on a link.
#[derive(Clone, Copy, Debug)]
struct Limits {
    /// Space for messages in a frame, in bytes.
    space: usize,
    /// Longest message that shares a frame, in bytes: a frame holds too few longer ones for a gain.
    longest: u16,
}

/// Limits of a frame in a mailbox: with the header sixteen lines, so that the first messages wait for few others.
const IN_MAILBOX: Limits = Limits { space: 16 * LINE - 24, longest: 256 };
/// Limits of a frame that is delivered: two messages of 4 KiB, as much as UCX passes through shared memory in one
/// piece. Delivering a frame costs several times as much as copying a kibibyte.
const DELIVERED: Limits = Limits {
    space: MESSAGES_HEAD_LEN + 2 * LONGEST_DELIVERED as usize + CANARY_LEN,
    longest: LONGEST_DELIVERED,
};
/// [`Limits::longest`] of a frame that is delivered.
const LONGEST_DELIVERED: u16 = 4096;

/// A frame that is being filled. The channel keeps its space meanwhile.
#[derive(Debug)]
pub(super) struct Several {
    space: KeptSpace,
    index: u16,
    /// Bytes of each message, as the first one has, and the distance between two.
    len: usize,
    stride: usize,
    /// Messages written, and the bytes of space that they take.
    count: u32,
    used: usize,
    /// Latest end of the last message, for the canary to fit behind it; 0 once the frame takes no more.
    end: usize,
    /// Longest message that is taken, in bytes.
    longest: u16,
}

/// The space of a frame that the channel keeps: bytes for its payload.
#[derive(Clone, Copy, Debug)]
struct KeptSpace {
    payload: NonNull<u8>,
    len: usize,
}

// SAFETY: an address and a length. `Inner` writes there, which has the channel.
unsafe impl Send for KeptSpace {}

fn plan(index: u16) -> Plan<'static> {
    let token = one_way_token(index);
    Plan { index, token, align_log2: INLINE_ALIGN_LOG2, ..Plan::of(Kind::CallBatch) }
}

impl Inner {
    /// Injects without requesting a reply. The call joins the frame that is being filled if that takes it; otherwise
    /// this sends that frame first. The frame is sent when it is full, before any other frame, and by
    /// [`Inner::send_several`].
    #[inline]
    pub(in super::super) fn inject_several(
        &mut self,
        library: &Library,
        args: &[u8],
    ) -> Result<(), Box<Error>> {
        let max = library.payload_max_size(args);
        if let Some(several) = &mut self.connection.batch
            && self.codes.is_recent(library, several.index)
            && max <= usize::from(several.longest)
            && several.used + max <= several.end
        {
            // SAFETY: the channel keeps the space while `several` is there, and `end` keeps `used` inside it.
            let at = unsafe { several.space.payload.add(several.used) };
            // SAFETY: `end` leaves `max` bytes and a canary's from there on.
            let len = unsafe { run_payload_init(library, at.as_ptr(), max, args)? };
            if len == several.len {
                several.count += 1;
                several.used += several.stride;
                self.stats.payload_bytes += len as u64;
                return Ok(());
            }
            let index = several.index;
            // SAFETY: `len` is at most `max`, and so many bytes were just written at `at`, which the channel keeps
            // until the frame is sent.
            return unsafe { self.inject_other(index, at, len) };
        }
        self.inject_first(library, args, max)
    }

    /// Sends a message of `len` bytes that was made at `at` for the frame that is being filled, but is of another
    /// length than the messages there.
    ///
    /// # Safety
    /// `at` is valid for reads of `len` bytes until that frame is sent.
    #[inline(never)]
    unsafe fn inject_other(&mut self, index: u16, at: NonNull<u8>, len: usize) -> Result<(), Box<Error>> {
        let mut message = SmallVec::<[u8; IN_MAILBOX.longest as usize]>::from_elem(0, len);
        // SAFETY: the caller guarantees the bytes. No thread of this process writes them meanwhile; a peer that
        // breaks the protocol gets its own bytes.
        unsafe { shared::copy_out(at.as_ptr(), message.as_mut_ptr(), len) };
        self.send_several(self.settings.send_timeout)?;
        let limits = self.shared_frames();
        let Some(space) = self.space_for_several(index, message.len(), limits)? else {
            // Does not happen: the frame before had the space.
            return Err(Error::Inject(InjectError::Full).into());
        };
        // SAFETY: `space_for_several` guarantees so many bytes behind the head; they overlap nothing of the
        // message.
        unsafe {
            let at = space.payload.add(MESSAGES_HEAD_LEN);
            shared::copy_in(message.as_ptr(), at.as_ptr(), message.len());
        }
        self.begin_several(space, index, message.len(), limits);
        Ok(())
    }

    /// As [`Inner::inject_several`], for a message of up to `max` bytes when no frame for it is being filled.
    #[inline(never)]
    fn inject_first(&mut self, library: &Library, args: &[u8], max: usize) -> Result<(), Box<Error>> {
        self.send_several(self.settings.send_timeout)?;
        let limits = self.shared_frames();
        if let Some(index) = self.takes_several(library, max, limits)
            && let Some(space) = self.space_for_several(index, max, limits)?
        {
            // SAFETY: `space_for_several` guarantees `max` bytes and a canary's behind the head, which the
            // channel keeps.
            let len = unsafe {
                let at = space.payload.add(MESSAGES_HEAD_LEN);
                run_payload_init(library, at.as_ptr(), max, args)?
            };
            self.begin_several(space, index, len, limits);
            return Ok(());
        }
        self.inject_sized(library, args, max, Wants::new(false, true)).map(drop)
    }

    /// Begins a batch whose first message, of `len` bytes, is written.
    fn begin_several(&mut self, space: KeptSpace, index: u16, len: usize, limits: Limits) {
        // All other sends then take the general path, which sends this frame first.
        self.codes.cool();
        let stride = Messages::stride(len);
        let used = MESSAGES_HEAD_LEN + stride;
        // The end of the last message that a frame may have. A further one of this length ends behind it, so the
        // messages need not be counted against the limit.
        let last = MESSAGES_HEAD_LEN + (MAX_BATCH as usize - 1) * stride;
        let end = (last + len).min(space.len - CANARY_LEN);
        let longest = limits.longest;
        self.connection.batch = Some(Several { space, index, len, stride, count: 1, used, end, longest });
        self.stats.frames += 1;
        self.stats.payload_bytes += len as u64;
    }

    /// The index of `library`'s code, if messages of up to `max` bytes for it may share a frame.
    fn takes_several(&mut self, library: &Library, max: usize, limits: Limits) -> Option<u16> {
        let suits = self.connection.control.gone.is_none()
            && self.connection.control.leaving.is_none()
            && self.settings.mode == Mode::Cached;
        if !suits || max > limits.longest.into() || max > self.connection.target.limits.payload {
            return None;
        }
        let index = match self.codes.recent_index(library) {
            Some(index) => index,
            None => self.switched_to(library)?,
        };
        let code = self.codes.get(index.into());
        (code.known == Known::Bound && code.align_log2 <= INLINE_ALIGN_LOG2).then_some(index)
    }

    /// Returns the limits of calls that share a frame on this link.
    #[inline]
    fn shared_frames(&self) -> Limits {
        let channel = &self.connection.channel;
        // A link with short frames keeps to short batches: it has credit for several.
        match channel.has_costly_sends() && channel.max_frame() >= 2 * DELIVERED.space {
            true => DELIVERED,
            false => IN_MAILBOX,
        }
    }

    /// Space for a frame of messages of which the first has up to `max` bytes; `None` where this link can
    /// never have enough for one.
    fn space_for_several(
        &mut self,
        index: u16,
        max: usize,
        limits: Limits,
    ) -> Result<Option<KeptSpace>, Box<Error>> {
        let most = limits.space.max(MESSAGES_HEAD_LEN + max + CANARY_LEN);
        let mut wait = None;
        loop {
            match self.connection.channel.reserve(&plan(index), most) {
                Ok(reserved) => {
                    reserved.prefetch_behind();
                    let space = KeptSpace { payload: reserved.payload(), len: reserved.space() };
                    reserved.keep();
                    return Ok(Some(space));
                }
                Err(SendError::TooLarge { .. }) => return Ok(None),
                Err(SendError::Failed(error)) => return Err(self.broken(&error).into()),
                Err(SendError::Full) => self.wait_for_credit(&mut wait, self.settings.send_timeout)?,
            }
        }
    }

    /// Sends the frame that is being filled, if there is one, and waits for credit as long as `patience`
    /// lasts.
    ///
    /// # Errors
    /// A frame that was not sent for want of credit is kept, and goes with the next attempt.
    #[inline]
    pub(in super::super) fn send_several(&mut self, patience: Duration) -> Result<(), Box<Error>> {
        if self.connection.batch.is_some() { self.send_filled(patience) } else { Ok(()) }
    }

    /// As [`Inner::send_several`], with the patience of [`Link`](super::super::Link).
    pub(in super::super) fn finish_several(&mut self) -> Result<(), Error> {
        self.send_several(self.settings.send_timeout).map_err(|error| *error)
    }

    #[inline(never)]
    fn send_filled(&mut self, patience: Duration) -> Result<(), Box<Error>> {
        let Some(several) = &mut self.connection.batch else { return Ok(()) };
        let messages = Messages { len: several.len as u32, count: several.count };
        // SAFETY: the channel keeps the space while `several` is there. It is aligned to 8 bytes, and begins
        // with the head.
        unsafe { several.space.payload.cast::<u64>().write(messages.to_word().to_le()) };
        let (plan, used) = (plan(several.index), several.used);
        let mut wait = None;
        loop {
            let Some(kept) = self.connection.channel.kept() else {
                // Something else was reserved, which no other method does while `several` is there.
                self.connection.batch = None;
                return Err(Error::Inject(InjectError::Full).into());
            };
            match kept.commit(&plan, used) {
                Ok(()) => {
                    self.connection.batch = None;
                    return Ok(());
                }
                Err(SendError::Full) => self.wait_for_credit(&mut wait, patience)?,
                Err(SendError::Failed(error)) => {
                    self.connection.batch = None;
                    return Err(self.broken(&error).into());
                }
                Err(SendError::TooLarge { len, max }) => {
                    self.connection.batch = None;
                    let name = self.codes.name(plan.index.into()).unwrap_or_default().into();
                    return Err(Error::Inject(InjectError::TooLarge { ifunc: name, len, max }).into());
                }
            }
        }
    }

    /// Closes the frame that is being filled to further messages.
    pub(super) fn close_several(&mut self) {
        if let Some(several) = &mut self.connection.batch {
            several.end = 0;
        }
    }
}
