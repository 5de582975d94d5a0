//! The sending half of a ring.

use crate::frame::{self, Header, Kind, Layout, Plan, TRAILER_LEN};
use crate::memory::Memory;
use crate::signal::LinkKey;
use crate::sync::{Handover, Ordering, release};

use super::CONSUMED_AT;
use crate::wire::layout::frame::{LENGTHS, REST};

/// Lengths of consecutive frames of one line, in lines. No two distances are equal, and no frame ends in the
/// line next to the start of the following one (`docs/design/mailbox.md`).
const APART: [usize; 4] = [2, 6, 4, 10];
/// The gaps behind consecutive frames of one line, in bytes: one in each sixteen bits. They are [`APART`] without
/// the line itself.
const GAPS: u64 = {
    let [first, second, third, last] = APART;
    ((first - 1) | (second - 1) << 16 | (third - 1) << 32 | (last - 1) << 48) as u64 * frame::LINE as u64
};
/// Distance of the prefetch ahead of a frame in a stream, in lines: the position of the eighth frame from
/// there.
const PREFETCH_LINES: usize = 2 * (APART[0] + APART[1] + APART[2] + APART[3]);
/// Distance from the ring's start, in bytes, after which frames that come alone return to it. This much stays
/// in the nearest caches of both peers.
const HOT: usize = 8 << 10;

/// Most lines prefetched at once: about as many as processors can have in flight.
const AT_ONCE: usize = 16;

/// Frames of up to this many lines are placed apart. Longer ones are read by hardware prefetching.
const SHORT_LINES: usize = 4;

/// Greatest length of a frame that is placed apart and does not take the rest of the ring, in bytes.
const LONGEST_APART: usize = (SHORT_LINES + APART[3] - 1) * frame::LINE;

/// The sending half of a ring: tracks sent and consumed positions, and writes frames into `ring`. The ring is
/// the peer's own (mapped) or a shadow ring from which a backend moves the bytes.
// The fields that each send touches come first.
#[repr(C)]
pub(crate) struct Outbound<M, R = M> {
    ring: M,
    position: u64,
    /// Position before which a frame of up to [`LONGEST_APART`] bytes may start without further checks. Such
    /// a frame is within the credit, the ring's end and the peer's limit, and the ring is not filling up. A
    /// frame that starts here or later takes the checks, and most of them move this position on.
    clear_until: u64,
    /// Last known position up to which the peer has consumed.
    consumed: u64,
    /// Signal for `position`, computed in advance.
    signal: u64,
    key: LinkKey,
    /// [`GAPS`], rotated so that the gap behind the last frame that was placed apart comes first.
    gaps: u64,
    /// Largest frame that the peer accepts, in bytes.
    limit: usize,
    /// `clear_until` as it was before [`Outbound::close`].
    clear_when_open: u64,
    /// Lines of the next frame that are prefetched: as many as the last frame took.
    ahead: usize,
    /// The region that the peer writes, with the credit line.
    returns: R,
}

/// A frame whose bytes are in the ring, and the data needed to publish it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Finished {
    /// Offset of the frame in the ring.
    pub(crate) at: usize,
    /// Written bytes of the frame.
    pub(crate) len: usize,
    /// The signal that is still missing.
    pub(crate) signal: u64,
    /// Position of the frame.
    pub(crate) position: u64,
}

/// Reasons why a frame cannot be written now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum NoSpace {
    /// The peer must consume first.
    Full,
    /// A `Skip` must be sent first; there is credit for it.
    SkipFirst,
    /// The frame is longer than the ring.
    TooLarge(usize),
}

impl<M: Memory, R: Memory> Outbound<M, R> {
    /// Makes the sending half of `ring`, whose length is a power of two. Both halves start at position 0.
    /// `limit` is the longest frame that the peer accepts.
    pub(crate) fn new(ring: M, returns: R, key: LinkKey, limit: usize) -> Self {
        debug_assert!(ring.len().is_power_of_two());
        Outbound {
            ring,
            returns,
            key,
            position: 0,
            clear_until: 0,
            clear_when_open: 0,
            consumed: 0,
            signal: key.header(0),
            limit,
            gaps: GAPS,
            ahead: 1,
        }
    }

    #[inline(always)]
    fn offset(&self) -> usize {
        self.ring.offset_of(self.position)
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

    /// Reads the credit line. The peer may lie: a position that is not between the last known one and this
    /// sender's changes nothing.
    fn refresh(&mut self) {
        // Pairs with the release store in `OneSided::write_credit_line` (or with the transport's ordering):
        // the peer read these bytes before it returned their credit, and they are written again only after
        // it.
        let returned = self.returns.load_first(CONSUMED_AT, Ordering::Acquire);
        if returned > self.consumed && returned <= self.position {
            self.consumed = returned;
        }
    }

    /// Returns whether `len` bytes from the position on are free.
    #[inline(always)]
    fn free(&mut self, len: usize) -> bool {
        if self.is_free(len) {
            return true;
        }
        self.refresh();
        self.is_free(len)
    }

    /// [`Outbound::free`] without reading the credit line.
    #[inline(always)]
    fn is_free(&self, len: usize) -> bool {
        self.position + len as u64 - self.consumed <= self.ring.len() as u64
    }

    /// Finds space for a frame of one line, which fits before the ring's end at every position.
    #[inline(always)]
    pub(crate) fn line(&mut self) -> Option<usize> {
        if self.position < self.clear_until || self.free(frame::LINE) { Some(self.offset()) } else { None }
    }

    /// Finds space for a frame of `len` bytes at the position.
    #[inline]
    pub(crate) fn space(&mut self, len: usize) -> Option<usize> {
        let at = self.offset();
        (len <= self.ring.len() - at && self.free(len)).then_some(at)
    }

    /// Prefetches for a frame of one line.
    #[inline(always)]
    pub(crate) fn prefetch(&self) {
        self.ring.prefetch_write(self.offset());
    }

    /// Finds space for a frame of one line, if no check is due.
    #[inline(always)]
    pub(crate) fn clear_line(&self) -> Option<usize> {
        (self.position < self.clear_until).then(|| self.offset())
    }

    /// Makes every frame take the checks until [`Outbound::open`]. Nothing is sent in between.
    pub(crate) fn close(&mut self) {
        self.clear_when_open = core::mem::take(&mut self.clear_until);
    }

    /// Undoes [`Outbound::close`].
    pub(crate) fn open(&mut self) {
        self.clear_until = core::mem::take(&mut self.clear_when_open);
    }

    /// Prefetches for a frame as long as the last one that was laid out.
    pub(crate) fn prefetch_laid_out(&self) {
        self.prefetch_lines(self.offset(), self.ahead);
    }

    /// Prefetches, behind the frame of `len` bytes at the position, for a second frame of that length, up to
    /// a few lines.
    #[inline]
    pub(crate) fn prefetch_behind(&self, len: usize) {
        self.prefetch_lines(self.offset() + len, (len / frame::LINE).min(AT_ONCE));
    }

    /// Prefetches `lines` lines from `at` on. Offsets behind the ring's end wrap to its start.
    #[inline(always)]
    fn prefetch_lines(&self, at: usize, lines: usize) {
        for line in 0..lines {
            self.ring.prefetch_write(self.ring.offset_of((at + line * frame::LINE) as u64));
        }
    }

    /// Finds space for a frame that `layout` lays out for a given base (address modulo 4096). The space is at
    /// the current position and stays reserved until [`Outbound::finish`]. A second call discards the first.
    #[inline]
    pub(crate) fn reserve(&mut self, layout: impl Fn(usize) -> Layout) -> Result<(usize, Layout), NoSpace> {
        let at = self.offset();
        let plan = layout(at & 4095);
        let to_end = self.ring.len() - at;
        if plan.frame_len <= to_end {
            return if self.free(plan.frame_len) { Ok((at, plan)) } else { Err(NoSpace::Full) };
        }
        let from_start = layout(0).frame_len;
        if from_start > self.ring.len() {
            return Err(NoSpace::TooLarge(from_start));
        }
        Err(if self.free(to_end) { NoSpace::SkipFirst } else { NoSpace::Full })
    }

    /// Writes the `Skip` that [`NoSpace::SkipFirst`] requires, except its signal.
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

    /// Writes header and trailer of the frame at the position, except its signal, and advances.
    #[inline(always)]
    pub(crate) fn finish(&mut self, header: Header) -> Finished {
        let at = self.offset();
        let len = header.frame_len as usize;
        let [lengths, rest] = header.to_words();
        self.ring.store(at + LENGTHS, lengths, Ordering::Relaxed);
        self.ring.store(at + REST, rest, Ordering::Relaxed);
        let finished = Finished { at, len: header.extent(), signal: self.signal, position: self.position };
        self.advance(len);
        finished
    }

    /// Advances behind a frame of `len` bytes.
    #[inline(always)]
    fn advance(&mut self, len: usize) {
        self.position += len as u64;
        self.signal = self.key.header(self.position);
    }

    /// Writes header and signal of a frame of one line at `at`, and advances. `at` is an offset of the shadow
    /// ring from [`Outbound::line`], at which the payload of `payload_len` bytes was written. The frame ends
    /// with a trailer if it `trails`.
    #[inline(always)]
    pub(crate) fn stage_line(
        &mut self,
        at: usize,
        plan: &Plan<'_>,
        payload_len: usize,
        trails: bool,
    ) -> Finished {
        let (signal, position) = (self.signal, self.position);
        let mut header = plan.line_header(frame::LINE, payload_len);
        if trails {
            header.flags |= frame::Flags::TRAILER;
            self.ring.store(at + frame::LINE - TRAILER_LEN, self.key.trailer(position), Ordering::Relaxed);
        }
        self.ring.signal_line(at, signal, header.to_words());
        self.advance(frame::LINE);
        Finished { at, len: frame::LINE, signal, position }
    }

    /// Publishes a frame of one line at `at`, an offset from [`Outbound::line`] at which its payload of
    /// `payload_len` bytes was written. The frame is made longer than necessary, up to the start of the next
    /// one.
    #[inline(always)]
    pub(crate) fn send_line(&mut self, at: usize, plan: &Plan<'_>, payload_len: usize) {
        let len = self.apart(at, frame::LINE, plan.alone);
        self.send_line_of(at, len, plan, payload_len);
    }

    /// [`Outbound::send_line`] for a line of [`Outbound::clear_line`], since which nothing was sent.
    #[inline(always)]
    pub(crate) fn send_clear_line(&mut self, at: usize, plan: &Plan<'_>, payload_len: usize) {
        let gap = self.gap();
        let len = if plan.alone && at >= HOT {
            self.apart_checked(at, frame::LINE, gap, true)
        } else {
            frame::LINE + gap
        };
        self.send_line_of(at, len, plan, payload_len);
    }

    /// Publishes a frame of one line at `at`, which is to be `len` bytes long.
    #[inline(always)]
    fn send_line_of(&mut self, at: usize, len: usize, plan: &Plan<'_>, payload_len: usize) {
        // Pairs with the acquire load in `Inbound::poll_fast`, as `publish` does. Work that the store does
        // not need comes after it.
        self.ring.signal_line(at, self.signal, plan.line_header(len, payload_len).to_words());
        self.advance(len);
        if plan.alone {
            // The peer must take this frame first, so there is time to refresh the credit for the next one.
            if self.position - self.consumed > HOT as u64 {
                self.refresh();
            }
        } else {
            let ahead = self.position + (PREFETCH_LINES * frame::LINE) as u64;
            self.ring.prefetch_write(self.ring.offset_of(ahead));
        }
    }

    /// [`Outbound::send_line`] for a frame whose payload starts with its second line.
    #[inline(always)]
    pub(crate) fn send_lines(&mut self, at: usize, plan: &Plan<'_>, payload_len: usize) {
        let least = frame::LINE + payload_len.next_multiple_of(frame::LINE);
        let len = self.stretched(least, plan.alone);
        // Pairs with the acquire loads in `Inbound::poll_fast` and `Inbound::poll`, as `publish` does.
        self.ring.signal_line(at, self.signal, plan.lines_header(len, payload_len).to_words());
        self.advance(len);
    }

    /// The length to give a frame that was laid out in a mapped ring, where it need not end with its
    /// contents. A frame of one line, for which [`Outbound::line`] exists, keeps its length.
    #[inline(always)]
    pub(crate) fn stretched(&mut self, frame_len: usize, alone: bool) -> usize {
        self.ahead = (frame_len / frame::LINE).min(SHORT_LINES);
        let lies_apart = alone || frame_len <= SHORT_LINES * frame::LINE;
        if frame_len > frame::LINE && lies_apart {
            self.apart(self.offset(), frame_len, alone)
        } else {
            frame_len
        }
    }

    /// The length to give a frame of at least `least` bytes at `at`: up to the start of the next one.
    #[inline(always)]
    fn apart(&mut self, at: usize, least: usize, alone: bool) -> usize {
        // The sender of a lone frame has the reply to its last one, so the peer consumes all that arrives,
        // also the rest of the ring.
        let back = alone && at >= HOT;
        let gap = self.gap();
        if self.position < self.clear_until && !back && least <= SHORT_LINES * frame::LINE {
            return least + gap;
        }
        self.apart_checked(at, least, gap, back)
    }

    /// The gap behind the next frame that is placed apart, in bytes. Counts that frame as placed.
    #[inline(always)]
    fn gap(&mut self) -> usize {
        self.gaps = self.gaps.rotate_right(16);
        usize::from(self.gaps as u16)
    }

    /// [`Outbound::apart`] for a frame with `gap` bytes behind it, or the rest of the ring if it is to go
    /// `back` to the start.
    #[cold]
    #[inline(never)]
    fn apart_checked(&mut self, at: usize, least: usize, gap: usize, back: bool) -> usize {
        // A ring that fills up holds as many frames as fit.
        let plenty = self.ring.len() as u64 / 8;
        if self.position - self.consumed > plenty {
            self.refresh();
            if self.position - self.consumed > plenty {
                return least;
            }
        }
        let to_end = self.ring.len() - at;
        if LONGEST_APART <= self.limit {
            let end = (self.consumed + plenty).min(self.position + to_end as u64);
            self.clear_until = end.saturating_sub(LONGEST_APART as u64);
        }
        let len = if back { to_end } else { to_end.min(least + gap) };
        if len > self.limit || !self.is_free(len) {
            return least;
        }
        if back {
            // Frames of equal length start at the same lines again. A line that the peer has read, and that now
            // takes payload, would have to be fetched from it.
            self.gaps = GAPS;
        }
        len
    }

    /// Writes the trailer of a finished frame: this position's word, or under `checked` the frame's keyed
    /// checksum.
    pub(crate) fn trail(&self, frame: &Finished, checked: bool) {
        let end = frame.at + frame.len - TRAILER_LEN;
        let word = if checked {
            let words = (frame.at + LENGTHS..end).step_by(8).map(|at| self.ring.load(at, Ordering::Relaxed));
            self.key.checksum(frame.position, words)
        } else {
            self.key.trailer(frame.position)
        };
        self.ring.store(end, word, Ordering::Relaxed);
    }

    /// Stores the signal: the frame has arrived. For a mapped ring, which needs nothing else.
    #[inline(always)]
    pub(crate) fn publish(&self, frame: &Finished) {
        // Pairs with the acquire loads in `Inbound::poll_fast` and `Inbound::poll`: the whole frame is stored
        // before its signal.
        self.ring.store(frame.at, frame.signal, release(Handover::Frame));
    }

    /// Stores the signal in the shadow ring, from which it is moved together with the frame.
    pub(crate) fn stage_signal(&self, frame: &Finished) {
        self.ring.store(frame.at, frame.signal, Ordering::Relaxed);
    }

    /// The memory that frames are written into.
    #[inline(always)]
    pub(crate) fn ring(&self) -> &M {
        &self.ring
    }
}
