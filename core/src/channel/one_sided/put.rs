//! The fast path for frames without code where a backend moves the bytes. Frames of one line are sent along it. Frames
//! are received along it if a signal, a completion or a trailer in their line proves them.

use super::super::line::copy_few;
use super::super::{Channel, Path, PlainSent, Reserved};
use super::{OneSided, Pending, Step};
use crate::frame::{HEADER_LEN, INLINE_PAYLOAD, Kind, LINE, Plan, TRAILER_LEN};
use crate::mailbox::PlainPoll;
use crate::transport::{ArrivalRules, TransportError};

impl Channel {
    /// Sends a frame with the payload `bytes` on a one-sided path whose peer's memory is not mapped. The plan names
    /// no code and wants no alignment. [`PlainSent::NotSent`] when the fast path does not apply: use
    /// [`Channel::reserve`] then. If the backend does not take the frame now, [`Channel::progress`] tries again and
    /// reports the error.
    #[inline(always)]
    pub fn send_put(&mut self, plan: &Plan<'_>, bytes: &[u8]) -> PlainSent {
        match &mut self.path {
            Path::OneSided(path) if !self.keeps => path.send_put(plan, bytes),
            _ => PlainSent::NotSent,
        }
    }

    /// Reserves space for a frame of this kind with up to `payload` bytes of payload, on a one-sided path
    /// whose peer's memory is not mapped. The frame names no code and wants no alignment. `None` when the
    /// fast path does not apply: use [`Channel::reserve`] then.
    #[inline]
    pub fn put_space(&mut self, kind: Kind, payload: usize) -> Option<Reserved<'_>> {
        let applies = matches!(&self.path, Path::OneSided(path) if !path.is_mapped) && !self.keeps;
        if applies { self.reserve(&Plan::of(kind), payload).ok() } else { None }
    }
}

impl OneSided {
    /// Returns whether [`OneSided::poll_put`] finds frames.
    #[inline(always)]
    pub(in crate::channel) fn finds_puts(&self) -> bool {
        !self.is_mapped && (self.trails || self.inbound.finds_plain())
    }

    /// [`Channel::send_put`], while no frame is kept.
    #[inline(always)]
    fn send_put(&mut self, plan: &Plan<'_>, bytes: &[u8]) -> PlainSent {
        let space = if self.trails { INLINE_PAYLOAD - TRAILER_LEN } else { INLINE_PAYLOAD };
        if bytes.len() > space || !self.puts_lines || self.pending.is_some() {
            return PlainSent::NotSent;
        }
        let Some(at) = self.out.line() else { return PlainSent::NotSent };
        let line = self.out.ring().line_pointer(at);
        // SAFETY: the line is in the shadow ring, which only this endpoint reaches, and free. Behind the header,
        // which ends at a word, it has 40 bytes.
        unsafe { copy_few(bytes, line.add(HEADER_LEN)) };
        let mut frame = self.out.stage_line(at, plan, bytes.len(), self.trails);
        if self.rule != ArrivalRules::IN_ORDER {
            frame.len = (HEADER_LEN + bytes.len()).next_multiple_of(size_of::<u64>());
        }
        debug_assert!(frame.len <= LINE);
        let mut pending = Pending { frame, step: Step::Body };
        let handed_over = if self.counts { self.put_counted(&frame) } else { self.hand_over(&mut pending) };
        if handed_over.is_err() {
            // `progress` or the next `reserve` tries again, and reports an error.
            self.pending = Some(pending);
        }
        if self.waker.state_changed(&self.returns, self.fence) { PlainSent::Look } else { PlainSent::Sent }
    }

    /// Polls for the next frame of this kind, which names no code.
    #[inline(always)]
    pub(in crate::channel) fn poll_put(&mut self, kind: Kind) -> PlainPoll {
        if self.counts {
            if !self.inbound.is_signalled() {
                return PlainPoll::Nothing;
            }
            // The frame is read only after its completion was seen.
            if !self.inbound.is_counted(self.completed) && !self.count() {
                return PlainPoll::Look;
            }
        }
        if self.trails { self.inbound.poll_trailed(kind) } else { self.inbound.poll_plain(kind) }
    }

    /// Queries the backend for completions. Returns whether the frame at the head is whole. Keeps an error
    /// for the general poll.
    #[inline(always)]
    fn count(&mut self) -> bool {
        match self.local.completions() {
            Ok(completed) => self.completed = completed,
            Err(error) => self.failed = Some(error),
        }
        self.inbound.is_counted(self.completed)
    }

    /// The number of completed writes, under the rule that counts them.
    pub(super) fn completions(&mut self) -> Result<Option<u64>, TransportError> {
        if !self.counts {
            return Ok(None);
        }
        match self.failed.take() {
            Some(error) => return Err(error),
            None => self.completed = self.local.completions()?,
        }
        Ok(Some(self.completed))
    }
}
