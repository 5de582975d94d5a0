//! The receiving half of `verbs-send`: pieces from completions, and the messages made of them.

use std::collections::VecDeque;

use farjump_core::frame::FrameError;
use farjump_core::transport::{Cause, Message};
use farjump_rdma_sys::{IBV_WC_RECV, IBV_WC_SUCCESS, IBV_WC_WITH_IMM, ibv_wc};

use super::buffers::{Buffers, PIECE, WINDOW};
use crate::verbs::completions::{BATCH, Batch, failure};
use crate::verbs::memory::Pages;
use crate::verbs::queue::Queue;

/// Buffers returned at a time.
const GIVEN_BACK: usize = 8;

/// A piece of a message, in a buffer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Piece {
    buffer: u32,
    len: usize,
    /// Length of the whole message in bytes; with its first piece only.
    whole: Option<u32>,
}

/// A whole message.
enum Front {
    /// In this buffer.
    Short(Message, u32),
    /// Assembled from pieces.
    Long(Pages, usize),
}

/// A message of which some pieces have arrived.
struct Part {
    memory: Pages,
    len: usize,
    filled: usize,
}

/// The receiving half of an endpoint.
pub(super) struct Inbox {
    buffers: Buffers,
    max_frame: usize,
    /// Oldest first.
    pieces: VecDeque<Piece>,
    part: Option<Part>,
    front: Option<Front>,
    /// Memory of the last assembled message.
    spare: Option<Pages>,
    /// Buffers to return.
    used: Vec<u32>,
    /// Buffers returned since the start, and the number that the peer knows.
    given: u64,
    returned: u64,
}

// SAFETY: the pointers are to memory of the buffers, which this value owns.
unsafe impl Send for Inbox {}

impl Inbox {
    /// Makes the receiving half of an endpoint that accepts frames of up to `max_frame` bytes.
    pub(super) fn new(buffers: Buffers, max_frame: usize) -> Inbox {
        Inbox {
            buffers,
            max_frame,
            pieces: VecDeque::new(),
            part: None,
            front: None,
            spare: None,
            used: Vec::new(),
            given: 0,
            returned: 0,
        }
    }

    /// The message at the front, if it is whole.
    #[inline]
    pub(super) fn front(&self) -> Option<Message> {
        match &self.front {
            None => None,
            Some(Front::Long(memory, len)) => Some(Message::new(memory.start(), *len)),
            Some(Front::Short(message, _)) => Some(*message),
        }
    }

    /// Returns whether no message or piece is unread.
    pub(super) fn is_empty(&self) -> bool {
        self.front.is_none() && self.pieces.is_empty()
    }

    /// Releases the message at the front.
    #[inline]
    pub(super) fn release(&mut self) {
        match self.front.take() {
            None => {}
            Some(Front::Short(_, buffer)) => self.used.push(buffer),
            Some(Front::Long(memory, _)) => self.spare = Some(memory),
        }
    }

    /// Takes received pieces, and assembles the next message.
    #[inline(always)]
    pub(super) fn work(&mut self, queue: &Queue) -> Result<(), Cause> {
        let mut batch: Batch = [const { std::mem::MaybeUninit::uninit() }; BATCH];
        let mut wrong = None;
        for done in queue.received.take(&mut batch)? {
            if done.status != IBV_WC_SUCCESS || done.opcode != IBV_WC_RECV {
                return Err(failure(&queue.device, done, queue.beside()));
            }
            let piece = Piece::of(done);
            if self.front.is_none() && self.pieces.is_empty() && wrong.is_none() {
                wrong = self.take(piece).err();
            } else {
                self.pieces.push_back(piece);
            }
        }
        if let Some(wrong) = wrong {
            return Err(wrong);
        }
        if self.front.is_none() && !self.pieces.is_empty() {
            self.assemble()?;
        }
        if self.used.len() >= GIVEN_BACK {
            self.give(queue)?;
        }
        Ok(())
    }

    /// Takes pieces that came before, up to the end of a message.
    #[inline(never)]
    fn assemble(&mut self) -> Result<(), Cause> {
        while self.front.is_none()
            && let Some(piece) = self.pieces.pop_front()
        {
            self.take(piece)?;
        }
        Ok(())
    }

    #[inline(always)]
    fn take(&mut self, piece: Piece) -> Result<(), Cause> {
        let is_whole = piece.whole == Some(piece.len as u32) && piece.len != 0;
        if self.part.is_none() && is_whole && piece.len <= PIECE.min(self.max_frame) {
            self.front =
                Some(Front::Short(Message::new(self.buffers.start(piece.buffer), piece.len), piece.buffer));
            return Ok(());
        }
        self.take_part(piece)
    }

    /// [`Inbox::take`] for pieces of long messages and for errors.
    #[inline(never)]
    fn take_part(&mut self, piece: Piece) -> Result<(), Cause> {
        let step = step(self.part.as_ref().map(|part| part.len - part.filled), &piece, self.max_frame);
        match step {
            Err(cause) => {
                self.used.push(piece.buffer);
                return Err(cause);
            }
            Ok(Step::Whole) => {
                let start = self.buffers.start(piece.buffer);
                self.front = Some(Front::Short(Message::new(start, piece.len), piece.buffer));
                return Ok(());
            }
            Ok(Step::First(len)) => {
                let spare = self.spare.take().filter(|spare| spare.len() >= len);
                let memory = match spare {
                    Some(spare) => Ok(spare),
                    None => Pages::map(len),
                };
                let memory = memory.inspect_err(|_| self.used.push(piece.buffer))?;
                self.part = Some(Part { memory, len, filled: 0 });
            }
            Ok(Step::Next) => {}
        }
        let from = self.buffers.start(piece.buffer);
        self.used.push(piece.buffer);
        let Some(mut part) = self.part.take() else { return Ok(()) };
        // SAFETY: the piece lies in its buffer, which belongs only to this endpoint, and is no longer than the missing
        // part.
        unsafe { part.memory.start().add(part.filled).copy_from_nonoverlapping(from, piece.len) };
        part.filled += piece.len;
        if part.filled == part.len {
            self.front = Some(Front::Long(part.memory, part.len));
        } else {
            self.part = Some(part);
        }
        Ok(())
    }

    #[inline(never)]
    fn give(&mut self, queue: &Queue) -> Result<(), Cause> {
        self.buffers.post(queue, &self.used)?;
        self.given += self.used.len() as u64;
        self.used.clear();
        Ok(())
    }

    /// The number of returned buffers, if the peer should get it now: after a quarter of them, so that the peer need
    /// not wait.
    #[inline(always)]
    pub(super) fn due(&self) -> Option<u64> {
        (self.given - self.returned >= u64::from(WINDOW / 4)).then_some(self.given)
    }

    /// Records that the peer knows of `given` buffers.
    pub(super) fn returned(&mut self, given: u64) {
        self.returned = given;
    }

    /// Longest frame that it accepts, in bytes.
    pub(super) fn max_frame(&self) -> usize {
        self.max_frame
    }
}

impl Piece {
    fn of(done: &ibv_wc) -> Piece {
        let has = done.wc_flags & IBV_WC_WITH_IMM != 0;
        // SAFETY: the flag shows that there is immediate data.
        let whole = has.then(|| u32::from_be(unsafe { done.__bindgen_anon_1.imm_data }));
        Piece { buffer: done.wr_id as u32, len: done.byte_len as usize, whole }
    }
}

/// The role of a piece in the message being assembled.
#[derive(PartialEq, Eq, Debug)]
enum Step {
    /// A whole message.
    Whole,
    /// The first piece of a message of this length.
    First(usize),
    /// A later piece.
    Next,
}

/// Classifies `piece`, with `missing` bytes of a message outstanding. A peer may send anything.
fn step(missing: Option<usize>, piece: &Piece, max_frame: usize) -> Result<Step, Cause> {
    let odd = |what: String| Err(Cause::System(format!("the peer broke the protocol of verbs-send: {what}")));
    let (missing, step) = match (missing, piece.whole) {
        (Some(missing), None) => (missing, Step::Next),
        (None, Some(len)) => {
            let len = len as usize;
            if len > max_frame {
                return Err(Cause::Protocol(FrameError::Overlong { frame: max_frame, found: len }));
            }
            (len, if len <= PIECE { Step::Whole } else { Step::First(len) })
        }
        (Some(missing), Some(_)) => {
            return odd(format!("a message begins while {missing} bytes of another are missing"));
        }
        (None, None) => return odd("a piece comes of a message that has not begun".to_owned()),
    };
    if piece.len == 0 || piece.len != missing.min(PIECE) {
        return odd(format!("a piece has {} bytes where {} are missing", piece.len, missing));
    }
    Ok(step)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn piece(len: usize, whole: Option<u32>) -> Piece {
        Piece { buffer: 0, len, whole }
    }

    #[test]
    fn a_long_message_starts_with_a_full_piece_stating_its_length() {
        let max = 1 << 20;
        let whole = PIECE as u32;
        assert_eq!(step(None, &piece(24, Some(24)), max), Ok(Step::Whole));
        assert_eq!(step(None, &piece(PIECE, Some(whole)), max), Ok(Step::Whole));
        assert_eq!(step(None, &piece(PIECE, Some(whole + 1)), max), Ok(Step::First(PIECE + 1)));
        assert_eq!(step(Some(1), &piece(1, None), max), Ok(Step::Next));
        assert_eq!(step(Some(PIECE + 1), &piece(PIECE, None), max), Ok(Step::Next));
    }

    #[test]
    fn pieces_out_of_order_or_of_wrong_length_are_refused() {
        let max = 1 << 20;
        for (missing, piece) in [
            (None, piece(64, None)),
            (None, piece(64, Some(65))),
            (None, piece(65, Some(64))),
            (None, piece(0, Some(0))),
            (None, piece(64, Some(PIECE as u32 + 64))),
            (Some(64), piece(64, Some(64))),
            (Some(64), piece(128, None)),
            (Some(PIECE * 2), piece(64, None)),
            (Some(64), piece(0, None)),
        ] {
            assert!(matches!(step(missing, &piece, max), Err(Cause::System(_))), "{missing:?} {piece:?}");
        }
        let long = step(None, &piece(PIECE, Some(u32::MAX)), max);
        assert!(matches!(long, Err(Cause::Protocol(FrameError::Overlong { .. }))), "{long:?}");
    }
}
