//! Batches: frames with several calls of one function.

use farjump_control::RefusalCause;
use farjump_core::channel::Taken;
use farjump_core::frame::{MESSAGES_HEAD_LEN, Messages};

use super::head::{BegunBatch, HeldFrame};
use super::{Ended, Session, Shared, Stop};
use crate::Refusal;
use crate::executor::Callable;

/// Alignment of messages in their frame, in bytes.
const ALIGN: usize = 8;

impl Session {
    /// Runs the function for the calls of the held batch and releases it. If a wait comes in between, it runs the
    /// messages up to there, and keeps the frame. Returns the number that ran, at least 1.
    #[cold]
    pub(super) fn call_batch(&mut self, held: HeldFrame, shared: &mut Shared) -> Result<usize, Stop> {
        let index = held.header().index;
        match self.codes.table.callable(index) {
            Some(code) => self.run_batch(held.frame, held.begun_batch.as_ref(), code, shared),
            None => {
                let ready = shared.executor.ready(&self.codes.table, index);
                self.not_ready(held, ready, shared).map(|()| 1)
            }
        }
    }

    /// As [`Session::call_batch`], for bound code and a frame of which `before` messages have run.
    #[inline(never)]
    pub(super) fn run_batch(
        &mut self,
        frame: Taken,
        before: Option<&BegunBatch>,
        code: Callable,
        shared: &mut Shared,
    ) -> Result<usize, Stop> {
        let header = frame.header();
        let messages = match self.messages(&frame, before, code, shared) {
            Ok(messages) => messages,
            Err(refusal) => {
                return self.refuse_frame(HeldFrame::own(frame), refusal, shared).map(|()| 1);
            }
        };
        let start = match frame.payload_is_aligned(ALIGN) {
            true => frame.payload().as_ptr(),
            false => shared.scratch.align(&header, self.channel.contents(&frame), ALIGN),
        };
        let len = messages.len as usize;
        let stride = Messages::stride(len);
        let first = before.map_or(0, |begun| begun.done);
        let mut at = MESSAGES_HEAD_LEN + first as usize * stride;
        for done in first..messages.count {
            // SAFETY: `Messages::of` has checked that `count` messages lie in the payload, which the channel lends
            // until `release` below, or in the scratch buffer. They are aligned to 8 bytes as the start is, and the
            // code requires no more (`messages`). The code is of this session's table, which holds it: nothing is
            // unbound in between.
            let ended =
                unsafe { shared.executor.run(&code, start.add(at).cast(), len, self.replies.max_len) };
            at += stride;
            let outcome = match ended {
                Ended::Returned => Ok(()),
                ended => self.ended_otherwise(header, code, ended, shared),
            };
            // SAFETY: the table still holds the code: nothing was unbound since the call.
            unsafe { shared.executor.count(code.usage) };
            if outcome.is_err() || self.head.is_blocked() {
                // Messages that have run do not run again, even if the link fails.
                match done + 1 < messages.count {
                    true => self.keep_batch(frame, messages, done + 1),
                    false => self.channel.release(frame)?,
                }
                return outcome.map(|()| (done + 1 - first) as usize);
            }
        }
        self.channel.release(frame)?;
        Ok((messages.count - first) as usize)
    }

    /// Keeps a frame of which `done` messages have run.
    #[cold]
    fn keep_batch(&mut self, frame: Taken, messages: Messages, done: u32) {
        let begun_batch = Some(BegunBatch { messages, done });
        self.head.keep(HeldFrame { begun_batch, ..HeldFrame::own(frame) });
    }

    /// Returns the head of the frame's messages, which is read once; or the reason why they do not run.
    #[inline]
    fn messages(
        &self,
        frame: &Taken,
        before: Option<&BegunBatch>,
        code: Callable,
        shared: &Shared,
    ) -> Result<Messages, Refusal> {
        let bad = |text: String| Refusal { cause: RefusalCause::BadFrame, text };
        let messages = match before {
            Some(begun) => begun.messages,
            None => Messages::of(&frame.header(), || self.channel.contents(frame).payload_word())
                .map_err(|error| bad(error.to_string()))?,
        };
        if code.align > ALIGN {
            return Err(bad(format!(
                "messages came together for a function that wants its payload aligned to {} bytes, and they are to {ALIGN}",
                code.align
            )));
        }
        shared.executor.policy.payload(messages.len as usize)?;
        Ok(messages)
    }
}
