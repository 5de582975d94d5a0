//! Handing finished frames to the backend, where the peer's memory is not mapped.

use super::{OneSided, Pending, Step};
use crate::channel::{SendError, failed};
use crate::mailbox::{CONTROL_LEN, Finished, Outbound};
use crate::memory::{Region, Ring};
use crate::transport::{ArrivalRules, Cause, Operation, TransportError};
use crate::wire::layout::frame::LENGTHS;

impl OneSided {
    /// Hands the pending frame to the backend, from the step at which it stopped.
    pub(super) fn move_pending(&mut self) -> Result<(), SendError> {
        let Some(mut pending) = self.pending else { return Ok(()) };
        let Finished { at, len, position, .. } = pending.frame;
        let ring_at = CONTROL_LEN + at;
        let inside = ring_at.checked_add(len).is_some_and(|end| end <= self.remote.len());
        if !inside {
            let region = self.remote.len();
            let cause = Cause::OutOfRegion { offset: ring_at, len, region };
            return Err(failed(Operation::Put, cause).with_frame(position).into());
        }
        match self.hand_over(&mut pending) {
            Ok(()) => {
                self.pending = None;
                Ok(())
            }
            Err(error) if error.is_full() => {
                self.pending = Some(pending);
                Err(SendError::Full)
            }
            Err(error) => Err(error.with_frame(position).into()),
        }
    }

    /// The bytes of a finished frame, of a path that is not mapped.
    #[inline(always)]
    fn staged<'o>(out: &'o Outbound<Ring, Region>, frame: &Finished) -> &'o [u8] {
        // SAFETY: a frame is handed over only if the peer is not mapped (`send`, `send_put`), so this is the shadow
        // ring, which the peer never reaches. The frame is finished: this endpoint writes these bytes again only
        // after the peer returned credit for them.
        unsafe { out.ring().slice(frame.at, frame.len) }
    }

    /// [`OneSided::hand_over`] under the rule that counts completed writes.
    #[inline(always)]
    pub(super) fn put_counted(&mut self, frame: &Finished) -> Result<(), TransportError> {
        let bytes = Self::staged(&self.out, frame);
        self.remote.put_with_completion(CONTROL_LEN + frame.at, bytes, frame.position)
    }

    /// Hands a finished frame to the backend, from the step at which it stopped.
    pub(super) fn hand_over(&mut self, Pending { frame, step }: &mut Pending) -> Result<(), TransportError> {
        if self.counts {
            return self.put_counted(frame);
        }
        let ring_at = CONTROL_LEN + frame.at;
        let bytes = Self::staged(&self.out, frame);
        loop {
            match (self.rule, *step) {
                (ArrivalRules::FENCED, Step::Body) => {
                    self.remote.put(ring_at + LENGTHS, &bytes[LENGTHS..], frame.position)?;
                }
                (ArrivalRules::FENCED, Step::Fence) => self.remote.fence()?,
                (ArrivalRules::FENCED, Step::Signal) => {
                    return self.remote.put_word(ring_at, frame.signal, frame.position);
                }
                // A frame that reads whole may still have writes under way, of bytes that had the same value
                // before. A lap later they would overwrite newer puts. One fence a lap prevents that.
                (ArrivalRules::CHECKED, Step::Body) if frame.at == 0 => self.remote.fence()?,
                _ => return self.remote.put(ring_at, bytes, frame.position),
            }
            *step = if *step == Step::Body { Step::Fence } else { Step::Signal };
        }
    }
}
