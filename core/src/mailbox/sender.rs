//! The sending half of a ring.

use crate::frame::{self, Header, Kind, Layout, Plan, TRAILER_LEN};
use crate::memory::Memory;
use crate::signal::LinkKey;
use crate::sync::{Handover, Ordering, release};

use super::CONSUMED_AT;

/// Lengths of frames of one line, in lines, one after another: no two distances are the same, and none ends in the line next to
/// where the following frame starts (`docs/decisions/frames-apart.md`).
const APART: [usize; 4] = [2, 6, 4, 10];
/// How far ahead of a frame in a stream lines are fetched for writing, in lines: where the eighth frame from there will be.
const PREFETCH_LINES: usize = 2 * (APART[0] + APART[1] + APART[2] + APART[3]);
/// How far from the ring's start frames that come alone go before they turn back to it, in bytes: so much stays in the nearest
/// caches of both sides.
const HOT: usize = 8 << 10;

/// Most lines that are asked for at once: processors have room for about so many on their way.
const AT_ONCE: usize = 16;

/// Frames of up to so many lines lie apart; longer ones are read by fetching ahead.
const SHORT_LINES: usize = 4;

/// The sending half: knows what has been sent, what the peer has consumed, and writes frames into `ring`, which is either
/// the peer's ring itself (mapped) or a twin of it from which a backend moves the bytes.
pub(crate) struct Outbound<M> {
    ring: M,
    /// The region that the peer writes; its return line tells how far it has consumed.
    returns: M,
    key: LinkKey,
    position: u64,
    /// Last known position up to which the peer has consumed.
    consumed: u64,
    /// Signal due at `position`, computed ahead of need.
    signal: u64,
    /// Largest frame that the peer takes, in bytes.
    limit: usize,
    /// Counts frames that lie apart.
    turn: usize,
    /// How many lines of the next frame are asked for ahead of need: as many as the last one took.
    ahead: usize,
}

/// What a frame needs once its bytes are in the ring.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Finished {
    /// Offset of the frame in the ring.
    pub(crate) at: usize,
    /// How many bytes of it are written.
    pub(crate) len: usize,
    /// The signal that is still missing.
    pub(crate) signal: u64,
    /// Its position.
    pub(crate) position: u64,
}

/// The peer has not consumed enough yet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum NoRoom {
    /// There will be room once the peer has consumed more.
    Full,
    /// A `Skip` has to be sent first; there is room for it.
    SkipFirst,
    /// The frame is longer than the ring.
    TooLarge(usize),
}

impl<M: Memory> Outbound<M> {
    /// `ring`'s length is a power of two; both sides start at position 0. `limit` is the longest frame that the peer takes.
    pub(crate) fn new(ring: M, returns: M, key: LinkKey, limit: usize) -> Self {
        debug_assert!(ring.len().is_power_of_two());
        Outbound {
            ring,
            returns,
            key,
            position: 0,
            consumed: 0,
            signal: key.header(0),
            limit,
            turn: 0,
            ahead: 1,
        }
    }

    #[inline(always)]
    fn offset(&self) -> usize {
        self.position as usize & (self.ring.len() - 1)
    }

    /// Bytes sent that the peer is not known to have consumed.
    pub(crate) fn in_flight(&mut self) -> u64 {
        self.position - self.consumed()
    }

    /// Position up to which the peer has consumed.
    pub(crate) fn consumed(&mut self) -> u64 {
        self.refresh();
        self.consumed
    }

    /// Position of the frame that is made next.
    #[inline]
    pub(crate) fn position(&self) -> u64 {
        self.position
    }

    /// Reads the return line. The peer may lie: a position that is not between the known one and ours changes nothing.
    fn refresh(&mut self) {
        // Pairs with the release store in `Inbound::report` (or with the transport's ordering): what the peer read before
        // it gave the room back, it read before we write there again.
        let told = self.returns.load(CONSUMED_AT, Ordering::Acquire);
        if told > self.consumed && told <= self.position {
            self.consumed = told;
        }
    }

    /// Whether `len` bytes from the position on are free.
    #[inline(always)]
    fn free(&mut self, len: usize) -> bool {
        if self.is_free(len) {
            return true;
        }
        self.refresh();
        self.is_free(len)
    }

    /// As [`Outbound::free`], by what is known already.
    #[inline(always)]
    fn is_free(&self, len: usize) -> bool {
        self.position + len as u64 - self.consumed <= self.ring.len() as u64
    }

    /// Finds room for a frame of one line, which fits before the ring's end wherever the position is.
    #[inline(always)]
    pub(crate) fn line(&mut self) -> Option<usize> {
        if self.free(frame::LINE) { Some(self.offset()) } else { None }
    }

    /// Finds room for a frame of `len` bytes right where the position is.
    #[inline]
    pub(crate) fn room(&mut self, len: usize) -> Option<usize> {
        let at = self.offset();
        (len <= self.ring.len() - at && self.free(len)).then_some(at)
    }

    /// Says that a frame of one line is about to be written.
    #[inline(always)]
    pub(crate) fn prefetch(&self) {
        self.ring.prefetch_write(self.offset());
    }

    /// Says that a frame like the last one that was laid out is about to be written.
    pub(crate) fn prefetch_laid_out(&self) {
        self.prefetch_lines(self.offset(), self.ahead);
    }

    /// Says that behind the frame of `len` bytes at the position as many lines are about to be written, up to a few.
    #[inline]
    pub(crate) fn prefetch_behind(&self, len: usize) {
        self.prefetch_lines(self.offset() + len, (len / frame::LINE).min(AT_ONCE));
    }

    /// `at` may lie behind the ring's end, and means its start then.
    #[inline(always)]
    fn prefetch_lines(&self, at: usize, lines: usize) {
        for line in 0..lines {
            self.ring.prefetch_write((at + line * frame::LINE) & (self.ring.len() - 1));
        }
    }

    /// Finds room for a frame that `layout` lays out for a given base (address modulo 4096). The room is at the current
    /// position, and stays reserved until [`Outbound::finish`]; asking again forgets the first.
    #[inline]
    pub(crate) fn reserve(&mut self, layout: impl Fn(usize) -> Layout) -> Result<(usize, Layout), NoRoom> {
        let at = self.offset();
        let plan = layout(at & 4095);
        let to_end = self.ring.len() - at;
        if plan.frame_len <= to_end {
            return if self.free(plan.frame_len) { Ok((at, plan)) } else { Err(NoRoom::Full) };
        }
        let from_start = layout(0).frame_len;
        if from_start > self.ring.len() {
            return Err(NoRoom::TooLarge(from_start));
        }
        Err(if self.free(to_end) { NoRoom::SkipFirst } else { NoRoom::Full })
    }

    /// Writes the `Skip` that [`NoRoom::SkipFirst`] asks for: all but its signal.
    pub(crate) fn skip(&mut self, trailer: bool) -> Finished {
        let len = self.ring.len() - self.offset();
        let flags = if trailer { frame::Flags::TRAILER } else { frame::Flags::empty() };
        self.finish(Header {
            frame_len: len as u32,
            payload_len: 0,
            kind: Kind::Skip,
            flags,
            index: 0,
            token: 0,
        })
    }

    /// Writes header and trailer of the frame at the position, all but its signal, and moves on.
    #[inline(always)]
    pub(crate) fn finish(&mut self, header: Header) -> Finished {
        let at = self.offset();
        let len = header.frame_len as usize;
        let [lengths, rest] = header.to_words();
        self.ring.store(at + 8, lengths, Ordering::Relaxed);
        self.ring.store(at + 16, rest, Ordering::Relaxed);
        let finished = Finished { at, len: header.extent(), signal: self.signal, position: self.position };
        self.advance(len);
        finished
    }

    /// Moves on behind a frame of `len` bytes.
    #[inline(always)]
    fn advance(&mut self, len: usize) {
        self.position += len as u64;
        self.signal = self.key.header(self.position);
    }

    /// Publishes a frame of one line at `at`, where [`Outbound::line`] found it and its payload of `payload_len` bytes was
    /// written. It is made longer than it need be, up to where the next one is to start.
    #[inline(always)]
    pub(crate) fn send_line(&mut self, at: usize, plan: &Plan<'_>, payload_len: usize) {
        let len = self.apart(at, frame::LINE, plan.alone);
        // Pairs with the acquire load in `Inbound::glance`, as `publish` does. What is not needed for it comes after.
        self.ring.signal_line(at, self.signal, plan.line_header(len, payload_len).to_words());
        self.advance(len);
        if plan.alone {
            // The peer has to take this frame first, so there is time to look whether there is room for the next one.
            if self.position - self.consumed > HOT as u64 {
                self.refresh();
            }
        } else {
            let ahead = self.position as usize + PREFETCH_LINES * frame::LINE;
            self.ring.prefetch_write(ahead & (self.ring.len() - 1));
        }
    }

    /// As [`Outbound::send_line`], for a frame whose payload starts with its second line.
    #[inline(always)]
    pub(crate) fn send_lines(&mut self, at: usize, plan: &Plan<'_>, payload_len: usize) {
        let least = frame::LINE + payload_len.next_multiple_of(frame::LINE);
        let len = self.stretched(least, plan.alone);
        // Pairs with the acquire loads in `Inbound::glance` and `Inbound::poll`, as `publish` does.
        self.ring.signal_line(at, self.signal, plan.lines_header(len, payload_len).to_words());
        self.advance(len);
    }

    /// How long a frame is made that was laid out, in a mapped ring, where it need not end with its contents. One of a line, which
    /// [`Outbound::line`] is for, stays as it is.
    #[inline]
    pub(crate) fn stretched(&mut self, frame_len: usize, alone: bool) -> usize {
        self.ahead = (frame_len / frame::LINE).min(SHORT_LINES);
        let lies_apart = alone || frame_len <= SHORT_LINES * frame::LINE;
        if frame_len > frame::LINE && lies_apart {
            self.apart(self.offset(), frame_len, alone)
        } else {
            frame_len
        }
    }

    /// How long a frame at `at` that takes `least` bytes is made: up to where the next one is to start.
    #[inline(always)]
    fn apart(&mut self, at: usize, least: usize, alone: bool) -> usize {
        self.turn += 1;
        // A ring that gets full is for as many frames as it holds.
        let roomy = self.ring.len() as u64 / 8;
        if self.position - self.consumed > roomy {
            self.refresh();
            if self.position - self.consumed > roomy {
                return least;
            }
        }
        let to_end = self.ring.len() - at;
        // Who sends one alone has an answer to the last, so the peer takes what comes, the rest of the ring too.
        let back = alone && at >= HOT;
        let gap = (APART[self.turn % APART.len()] - 1) * frame::LINE;
        let len = if back { to_end } else { to_end.min(least + gap) };
        if len <= self.limit && self.is_free(len) { len } else { least }
    }

    /// Writes the trailer of a finished frame: this position's word, or under `checked` the frame's keyed checksum.
    pub(crate) fn trail(&self, frame: &Finished, checked: bool) {
        let end = frame.at + frame.len - TRAILER_LEN;
        let word = if checked {
            let words = (frame.at + 8..end).step_by(8).map(|at| self.ring.load(at, Ordering::Relaxed));
            self.key.checksum(frame.position, words)
        } else {
            self.key.trailer(frame.position)
        };
        self.ring.store(end, word, Ordering::Relaxed);
    }

    /// Stores the signal: the frame is there. For a mapped ring, where this is all it takes.
    #[inline(always)]
    pub(crate) fn publish(&self, frame: &Finished) {
        // Pairs with the acquire loads in `Inbound::glance` and `Inbound::poll`: all of the frame is stored before its signal.
        self.ring.store(frame.at, frame.signal, release(Handover::Frame));
    }

    /// Stores the signal in the twin, from which it is moved together with the frame.
    pub(crate) fn stage_signal(&self, frame: &Finished) {
        self.ring.store(frame.at, frame.signal, Ordering::Relaxed);
    }

    /// The memory that frames are written into.
    #[inline(always)]
    pub(crate) fn ring(&self) -> &M {
        &self.ring
    }
}
