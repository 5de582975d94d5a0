//! Several small messages for one function in one frame: what is written of it, and when it goes.

use std::time::Duration;

use farjump_core::channel::{Reserved, SendError};
use farjump_core::frame::{INLINE_ALIGN_LOG2, Kind, LINE, MESSAGES_HEAD_LEN, MOST_MESSAGES, Messages, Plan};
use farjump_core::shared;
use farjump_loader::Library;

use super::super::send::{CANARY_LEN, run_payload_init};
use super::super::sent_codes::Known;
use super::{Inner, one_way_token};
use crate::{Error, Mode};

/// Room for messages in a frame, in bytes: with the header sixteen lines, so that the first ones wait for few others.
const ROOM: usize = 16 * LINE - 24;
/// Longest message that shares a frame, in bytes: of longer ones a frame holds too few for that to pay.
const LONGEST: usize = 256;

/// A frame that is being filled.
#[derive(Debug)]
pub(super) struct Several {
    room: Reserved,
    index: u16,
    /// Bytes of each message, as the first one has, and how far apart they are.
    len: usize,
    stride: usize,
    /// Messages written, and bytes of the room that they take.
    count: u32,
    used: usize,
    /// Where the last message has to end, for the canary to fit behind it; 0 once no more are taken.
    end: usize,
}

fn plan(index: u16) -> Plan<'static> {
    let token = one_way_token(index);
    Plan { index, token, align_log2: INLINE_ALIGN_LOG2, ..Plan::of(Kind::Calls) }
}

impl Inner {
    /// Injects without asking for a reply, in one frame with what was injected like this before, if the frame that is being filled
    /// takes it; else that goes first. The frame goes when it is full, before anything else that is sent, and by
    /// [`Inner::send_several`].
    #[inline]
    pub(in super::super) fn inject_several(
        &mut self,
        library: &Library,
        args: &[u8],
    ) -> Result<(), Box<Error>> {
        let max = library.payload_max_size(args);
        if let Some(several) = &mut self.several
            && self.codes.is_recent(library, several.index)
            && max <= LONGEST
            && several.used + max <= several.end
            && several.count < MOST_MESSAGES
        {
            // SAFETY: the room is lent until the frame is committed, and `used` is inside by `end`.
            let at = unsafe { several.room.payload.add(several.used) };
            // SAFETY: by `end` there are `max` bytes and a canary's from there on.
            let len = unsafe { run_payload_init(library, at.as_ptr(), max, args)? };
            if len == several.len {
                several.count += 1;
                several.used += several.stride;
                self.stats.payload_bytes += len as u64;
                return Ok(());
            }
            let mut made = [0; LONGEST];
            let own = &mut made[..len];
            // SAFETY: `len` is at most `max`, and so many bytes were just written there. No thread of this process writes them
            // meanwhile; the peer, if it breaks the protocol, gets what it wrote itself.
            unsafe { shared::copy_out(at.as_ptr(), own.as_mut_ptr(), own.len()) };
            let index = several.index;
            return self.inject_other(index, own);
        }
        self.inject_first(library, args, max)
    }

    /// A message that was made for the frame that is being filled, and has another length than those there.
    #[inline(never)]
    fn inject_other(&mut self, index: u16, message: &[u8]) -> Result<(), Box<Error>> {
        self.send_several(self.settings.send_timeout)?;
        let Some(room) = self.room_for_several(index, message.len())? else {
            // It was there for the frame before.
            return Err(Error::Full.into());
        };
        // SAFETY: `room_for_several` has made sure of so many bytes behind the head; they overlap nothing of the message.
        unsafe {
            let at = room.payload.add(MESSAGES_HEAD_LEN);
            shared::copy_in(message.as_ptr(), at.as_ptr(), message.len());
        }
        self.begin_several(room, index, message.len());
        Ok(())
    }

    /// As [`Inner::inject_several`], for a message of up to `max` bytes that no frame is being filled for.
    #[inline(never)]
    fn inject_first(&mut self, library: &Library, args: &[u8], max: usize) -> Result<(), Box<Error>> {
        self.send_several(self.settings.send_timeout)?;
        if let Some(index) = self.takes_several(library, max)
            && let Some(room) = self.room_for_several(index, max)?
        {
            // SAFETY: `room_for_several` has made sure of `max` bytes and a canary's behind the head, which the channel lends until
            // the frame is committed.
            let len = unsafe {
                let at = room.payload.add(MESSAGES_HEAD_LEN);
                run_payload_init(library, at.as_ptr(), max, args)?
            };
            self.begin_several(room, index, len);
            return Ok(());
        }
        self.inject(library, args, false, true).map(drop)
    }

    /// The first message, of `len` bytes, is in its place.
    fn begin_several(&mut self, room: Reserved, index: u16, len: usize) {
        // So that whatever else is sent goes the long way, which sends this first.
        self.codes.cool();
        let stride = Messages::stride(len);
        let (used, end) = (MESSAGES_HEAD_LEN + stride, room.room - CANARY_LEN);
        self.several = Some(Several { room, index, len, stride, count: 1, used, end });
        self.stats.frames += 1;
        self.stats.payload_bytes += len as u64;
    }

    /// The index of `library`'s code, if messages of up to `max` bytes for it may share a frame.
    fn takes_several(&mut self, library: &Library, max: usize) -> Option<u16> {
        let suits = self.gone.is_none() && self.going.is_none() && self.settings.mode == Mode::Cached;
        if !suits || max > LONGEST || max as u64 > self.limits.payload {
            return None;
        }
        let index = self.codes.index(library, self.machine).ok()?;
        let code = self.codes.get(index.into());
        (code.known == Known::Bound && code.align_log2 <= INLINE_ALIGN_LOG2).then_some(index)
    }

    /// Room for a frame of messages of which the first has up to `max` bytes; `None` where this link has too little for one ever.
    fn room_for_several(&mut self, index: u16, max: usize) -> Result<Option<Reserved>, Box<Error>> {
        let most = ROOM.max(MESSAGES_HEAD_LEN + max + CANARY_LEN);
        let mut wait = None;
        loop {
            match self.channel.reserve(&plan(index), most) {
                Ok(room) => {
                    self.channel.prefetch_behind(&room);
                    return Ok(Some(room));
                }
                Err(SendError::TooLarge { .. }) => return Ok(None),
                Err(SendError::Failed(error)) => return Err(self.broken(&error).into()),
                Err(SendError::Full) => self.wait_for_room(&mut wait, self.settings.send_timeout)?,
            }
        }
    }

    /// Sends the frame that is being filled, if there is one, and waits for room as long as `patience` lasts.
    ///
    /// # Errors
    /// If it did not go for want of room it is there still, and goes with the next try.
    #[inline]
    pub(in super::super) fn send_several(&mut self, patience: Duration) -> Result<(), Box<Error>> {
        if self.several.is_some() { self.send_filled(patience) } else { Ok(()) }
    }

    /// As [`Inner::send_several`], by [`Link`](super::super::Link)'s own patience.
    pub(in super::super) fn finish_several(&mut self) -> Result<(), Error> {
        self.send_several(self.settings.send_timeout).map_err(|error| *error)
    }

    #[inline(never)]
    fn send_filled(&mut self, patience: Duration) -> Result<(), Box<Error>> {
        let Some(several) = &mut self.several else { return Ok(()) };
        let messages = Messages { len: several.len as u32, count: several.count };
        // SAFETY: the room is lent until the frame is committed, is aligned to 8 bytes, and begins with the head.
        unsafe { several.room.payload.cast::<u64>().write(messages.to_word().to_le()) };
        let (plan, room, used) = (plan(several.index), several.room, several.used);
        let mut wait = None;
        loop {
            match self.channel.commit(&plan, &room, used) {
                Ok(()) => {
                    self.several = None;
                    return Ok(());
                }
                Err(SendError::Full) => self.wait_for_room(&mut wait, patience)?,
                Err(SendError::Failed(error)) => {
                    self.several = None;
                    return Err(self.broken(&error).into());
                }
                Err(SendError::TooLarge { len, max }) => {
                    self.several = None;
                    let name = self.codes.name(plan.index.into()).unwrap_or_default().into();
                    return Err(Error::TooLarge { ifunc: name, len, max }.into());
                }
            }
        }
    }

    /// No message joins the frame that is being filled any more.
    pub(super) fn close_several(&mut self) {
        if let Some(several) = &mut self.several {
            several.end = 0;
        }
    }
}
