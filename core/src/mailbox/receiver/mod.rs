//! The receiving half of a ring.

use alloc::boxed::Box;
use core::ptr::NonNull;

use super::summing::Summing;
use crate::frame::{
    CodeHeader, Flags, FrameError, HEADER_LEN, Header, INLINE_PAYLOAD, Kind, LINE, Parts, PlainWords,
    TRAILER_LEN, Trailer,
};
use crate::memory::{Memory, Ring};
use crate::signal::LinkKey;
use crate::sync::{ACQUIRE_ORDERS_DEVICES, Ordering, order_device};
use crate::transport::ArrivalRules;
use crate::wait::AwaitedWord;
use crate::wire::layout::frame::{CODE, LENGTHS, REST};

/// Bytes consumed before credit is returned, but at most a quarter of the ring.
const RETURN_EVERY: u64 = 64 << 10;

/// The receiving half of a ring: polls for the frame at its position, and returns credit.
// The fields that each poll and release touch come first.
#[repr(C)]
pub(crate) struct Inbound<M> {
    ring: M,
    position: u64,
    /// Signal expected at `position`, computed in advance.
    signal: u64,
    key: LinkKey,
    /// Largest frame that the fast poll takes, in bytes.
    fast_limit: usize,
    /// Lines of the largest frame that `poll_plain` takes; 0 if neither a signal nor a completion proves one.
    plain_lines: u32,
    /// True if the signal is ordered behind the whole frame.
    signal_proves: bool,
    /// True if loads of a frame have to be ordered behind the load of its signal also with respect to a
    /// device, which wrote both.
    orders_device: bool,
    trailer: Trailer,
    /// Lines of the largest frame without a trailer.
    provable_lines: u32,
    /// Frames and skips consumed, for the rule that counts completions.
    taken: u64,
    /// Position at which credit is returned next.
    return_at: u64,
    /// Position last returned to the sender.
    reported: u64,
    /// Largest frame accepted, in bytes.
    limit: usize,
    /// The checksum state, under the rule that has one.
    summing: Option<Box<Summing>>,
}

/// The result of a poll.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Seen {
    /// Nothing.
    Nothing,
    /// A signal whose frame has not arrived whole.
    Partial,
    /// A whole frame at this offset of the ring.
    Frame(usize, Header, Parts),
}

/// The result of a fast poll.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum FastPoll {
    /// Nothing.
    Nothing,
    /// A whole frame at this offset of the ring, without code, and the offset of its payload.
    Plain(usize, Header, u32),
    /// Something else: call [`Inbound::poll`].
    Look,
}

/// The result of a poll for frames of one kind.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum PlainPoll {
    /// Nothing.
    Nothing,
    /// A whole frame without code, and the address of its payload.
    Frame(PlainWords, NonNull<u8>),
    /// Something else: call [`Inbound::poll`].
    Look,
}

impl<M: Memory> Inbound<M> {
    /// Makes the receiving half of `ring`, whose length is a power of two. Both halves start at position 0.
    pub(crate) fn new(ring: M, key: LinkKey, rule: ArrivalRules, trailer: Trailer, limit: usize) -> Self {
        debug_assert!(ring.len().is_power_of_two());
        let signal = key.header(0);
        let signal_proves = matches!(rule, ArrivalRules::STORES | ArrivalRules::FENCED);
        let provable_lines = match trailer {
            Trailer::Never => PlainWords::MOST_LINES,
            Trailer::LongFrames => 1,
            Trailer::Always => 0,
        };
        let mut inbound = Inbound {
            ring,
            key,
            trailer,
            signal_proves,
            orders_device: !ACQUIRE_ORDERS_DEVICES && rule != ArrivalRules::STORES,
            provable_lines,
            limit,
            fast_limit: limit,
            plain_lines: 0,
            position: 0,
            signal,
            return_at: 0,
            reported: 0,
            taken: 0,
            summing: (rule == ArrivalRules::CHECKED).then(|| Box::new(Summing::new())),
        };
        inbound.limit_glances(limit);
        inbound.set_reported(0);
        inbound
    }

    #[inline(always)]
    fn offset(&self) -> usize {
        self.ring.offset_of(self.position)
    }

    /// Leaves frames of more than `len` bytes to [`Inbound::poll`].
    pub(crate) fn limit_glances(&mut self, len: usize) {
        self.fast_limit = self.limit.min(len);
        let lines = u32::try_from(self.fast_limit / LINE).unwrap_or(u32::MAX);
        self.plain_lines = lines.min(self.provable_lines);
    }

    /// The memory that frames are read from.
    #[inline]
    pub(crate) fn ring(&self) -> &M {
        &self.ring
    }

    /// Returns whether [`Inbound::predicted`] may find a frame: the signal alone must prove that it is whole.
    pub(crate) fn can_predict(&self) -> bool {
        self.signal_proves
    }

    /// Returns whether `poll_plain` may find frames.
    #[inline(always)]
    pub(crate) fn finds_plain(&self) -> bool {
        self.plain_lines != 0
    }

    /// Returns whether there is a signal at the head.
    #[inline(always)]
    pub(crate) fn is_signalled(&self) -> bool {
        self.ring.load(self.offset(), Ordering::Relaxed) == self.signal
    }

    /// Returns whether the write of the frame at the head is among `completions` completed writes, under the
    /// rule that counts them.
    #[inline(always)]
    pub(crate) fn is_counted(&self, completions: u64) -> bool {
        completions > self.taken
    }

    /// Position of the next frame.
    pub(crate) fn position(&self) -> u64 {
        self.position
    }

    /// The words of a header, read after `words` once its signal is ordered with the device that wrote them.
    #[inline(always)]
    fn ordered(&self, at: usize, words: [u64; 2]) -> [u64; 2] {
        if ACQUIRE_ORDERS_DEVICES || !self.orders_device {
            return words;
        }
        order_device();
        self.header_words(at)
    }

    /// Orders later loads behind an earlier one, of a signal or a trailer, with the device that wrote it.
    #[inline(always)]
    fn order(&self) {
        if !ACQUIRE_ORDERS_DEVICES && self.orders_device {
            order_device();
        }
    }

    /// The fast poll: finds nothing, or a plain frame if the signal alone proves that a frame is whole.
    /// Leaves everything else to [`Inbound::poll`].
    #[inline(always)]
    pub(crate) fn poll_fast(&self) -> FastPoll {
        let at = self.offset();
        // Pairs with the release store in `Outbound::publish`, or with its replacement under the arrival
        // rule.
        let Some(words) = self.ring.signalled(at, self.signal) else { return FastPoll::Nothing };
        if !self.signal_proves {
            return FastPoll::Look;
        }
        let words = self.ordered(at, words);
        match Header::plain(words, at & 4095, self.ring.len() - at, self.fast_limit) {
            Some((header, payload)) => FastPoll::Plain(at, header, payload),
            None => FastPoll::Look,
        }
    }

    /// Offset in the ring and header of the next frame, if it is there, its signal alone proves that it is
    /// whole, and it matches the prediction of `seen`.
    #[inline(always)]
    pub(crate) fn predicted(&self, seen: &CodeHeader) -> Option<(usize, Header)> {
        let at = self.offset();
        // Pairs with the release store in `Outbound::publish`, as in `poll_fast`.
        let words = self.ring.signalled(at, self.signal).filter(|_| self.signal_proves)?;
        let words = self.ordered(at, words);
        let code = || CODE.map(|word| self.ring.load(at + word, Ordering::Relaxed));
        let header = seen.predicted(words, self.ring.len() - at, self.limit, code)?;
        Some((at, header))
    }

    /// Polls for the next frame. `completions` is the number of completed writes, under the rule that counts
    /// them.
    ///
    /// # Errors
    /// When the bytes cannot be a frame. If bytes may be torn, only time distinguishes such bytes from a
    /// frame that is still arriving: the result is [`Seen::Partial`].
    #[cold]
    pub(crate) fn poll(&mut self, completions: Option<u64>) -> Result<Seen, FrameError> {
        // At most one skip, then a frame: a peer that sends endless skips gets no more time than any other.
        for _ in 0..2 {
            let at = self.offset();
            // Pairs with the release store in `Outbound::publish`, or with its replacement under the arrival
            // rule.
            if self.ring.load(at, Ordering::Acquire) != self.signal {
                return Ok(Seen::Nothing);
            }
            self.order();
            if completions.is_some_and(|completed| !self.is_counted(completed)) {
                return Ok(Seen::Partial);
            }
            let seen = match self.read(at) {
                Ok(Some(seen)) => seen,
                Ok(None) => return Ok(Seen::Partial),
                Err(_) if self.trailer == Trailer::Always => return Ok(Seen::Partial),
                Err(error) => return Err(error),
            };
            if seen.0.kind != Kind::Skip {
                return Ok(Seen::Frame(at, seen.0, seen.1));
            }
            self.release(seen.0.frame_len);
        }
        Ok(Seen::Nothing)
    }

    /// Reads and checks the frame whose signal has been seen; `None` if its trailer has not arrived.
    fn read(&mut self, at: usize) -> Result<Option<(Header, Parts)>, FrameError> {
        let header = Header::from_words(self.header_words(at))?;
        if header.flags.contains(Flags::TRAILER) != self.expects_trailer(&header) {
            return Err(FrameError::Flags(header.flags.bits()));
        }
        let parts = self.check(at, &header)?;
        if self.trailer != Trailer::Never
            && header.flags.contains(Flags::TRAILER)
            && !self.arrived(at, &header)
        {
            return Ok(None);
        }
        if header.kind.names_code() && self.trailer == Trailer::Always {
            // The code header may have been read before the trailer arrived: read it again.
            return Ok(Some((header, self.check(at, &header)?)));
        }
        Ok(Some((header, parts)))
    }

    fn check(&self, at: usize, header: &Header) -> Result<Parts, FrameError> {
        let code = || CODE.map(|word| self.ring.load(at + word, Ordering::Relaxed));
        header.check(at & 4095, self.ring.len() - at, self.limit, code)
    }

    #[inline(always)]
    fn header_words(&self, at: usize) -> [u64; 2] {
        [LENGTHS, REST].map(|word| self.ring.load(at + word, Ordering::Relaxed))
    }

    #[inline]
    fn expects_trailer(&self, header: &Header) -> bool {
        match self.trailer {
            Trailer::Never => false,
            Trailer::LongFrames => header.extent() > LINE,
            Trailer::Always => true,
        }
    }

    /// Returns whether the trailer belongs to this position, and the header still reads as before the trailer
    /// was seen.
    #[cold]
    fn arrived(&mut self, at: usize, header: &Header) -> bool {
        let is_there = match &mut self.summing {
            Some(summing) => summing.is_whole(&self.ring, self.key, self.position, at, header),
            None => {
                let end = at + header.extent() - TRAILER_LEN;
                self.ring.load(end, Ordering::Acquire) == self.key.trailer(self.position)
            }
        };
        self.order();
        is_there && self.header_words(at) == header.to_words()
    }

    /// Returns whether the next poll continues the checksum of a long frame. If so, the caller must not
    /// sleep.
    pub(crate) fn is_summing(&self) -> bool {
        self.summing.as_ref().is_some_and(|summing| summing.is_in_progress(self.position))
    }

    /// Notes that the next poll comes just before or after a nap.
    pub(crate) fn naps(&mut self) {
        if let Some(summing) = &mut self.summing {
            summing.save_by_nap();
        }
    }

    /// Bytes checksummed since the link was made.
    pub(crate) fn summed(&self) -> u64 {
        self.summing.as_ref().map_or(0, |summing| summing.total())
    }

    /// Consumes the frame of `frame_len` bytes at the position.
    #[inline(always)]
    pub(crate) fn release(&mut self, frame_len: u32) {
        self.release_plain(frame_len);
        self.taken += 1;
    }

    /// [`Inbound::release`] for a frame of [`Inbound::poll_plain`]: where a signal proves a frame, completions are
    /// not counted.
    #[inline(always)]
    pub(crate) fn release_plain(&mut self, frame_len: u32) {
        // Only a peer that sends nothing but skips through a huge ring can make this wrap, and it harms only
        // its own link.
        self.position = self.position.wrapping_add(u64::from(frame_len));
        self.signal = self.key.header(self.position);
    }

    /// Returns whether credit is due, now that frames were released.
    #[inline(always)]
    pub(crate) fn is_return_due(&self) -> bool {
        self.position >= self.return_at
    }

    /// The position to return to the sender now, if any: every [`RETURN_EVERY`] bytes or quarter of the ring,
    /// whichever is less, and any credit not yet returned when `idle`.
    #[inline]
    pub(crate) fn due(&self, idle: bool) -> Option<u64> {
        (self.is_return_due() || (idle && self.position != self.reported)).then_some(self.position)
    }

    /// Records that credit was returned up to `position`.
    #[inline]
    pub(crate) fn set_reported(&mut self, position: u64) {
        self.reported = position;
        self.return_at = position.saturating_add(RETURN_EVERY.min(self.ring.len() as u64 / 4));
    }
}

impl Inbound<Ring> {
    /// A faster [`Inbound::poll_fast`], for frames of one kind in the usual layouts. Under the rule that
    /// counts completed writes, the caller has checked that the frame at the head is counted.
    #[inline(always)]
    pub(crate) fn poll_plain(&self, kind: Kind) -> PlainPoll {
        // A copy: the load of the signal orders loads behind it, so the compiler would load the ring again.
        let ring = self.ring;
        let at = ring.offset_of(self.position);
        // Pairs with the release store in `Outbound::publish`, as in `poll_fast`.
        let Some(words) = ring.signalled(at, self.signal) else { return PlainPoll::Nothing };
        let words = self.ordered(at, words);
        match PlainWords::of(words, kind, at, ring.len(), self.plain_lines) {
            Some((words, offset)) => {
                // SAFETY: the payload was checked to lie in the frame, and the frame in the ring.
                PlainPoll::Frame(words, unsafe { ring.line_pointer(at).add(offset) })
            }
            None => PlainPoll::Look,
        }
    }

    /// [`Inbound::poll_plain`] for frames of one line with a trailer, which arrives last.
    #[inline(always)]
    pub(crate) fn poll_trailed(&self, kind: Kind) -> PlainPoll {
        let ring = self.ring;
        let at = ring.offset_of(self.position);
        if ring.load(at, Ordering::Acquire) != self.signal {
            return PlainPoll::Nothing;
        }
        // Acquire: the header is read as it was put before the trailer, as in `arrived`.
        let is_whole =
            ring.load(at + LINE - TRAILER_LEN, Ordering::Acquire) == self.key.trailer(self.position);
        self.order();
        let [lengths, rest] = self.header_words(at);
        let trailer = u64::from(Flags::TRAILER.bits()) << 8;
        if !is_whole || rest & trailer == 0 || self.fast_limit < LINE {
            return PlainPoll::Look;
        }
        match PlainWords::of([lengths, rest & !trailer], kind, at, ring.len(), 1) {
            Some((words, HEADER_LEN)) if words.payload_len() <= INLINE_PAYLOAD - TRAILER_LEN => {
                // SAFETY: the payload was checked to lie in the frame, and the frame in the ring.
                PlainPoll::Frame(words, unsafe { ring.line_pointer(at).add(HEADER_LEN) })
            }
            _ => PlainPoll::Look,
        }
    }

    /// The wait for the signal of the next frame.
    pub(crate) fn awaited(&self) -> AwaitedWord<'_> {
        self.ring.awaited(self.offset(), self.signal)
    }

    /// Start of the frame at the head.
    pub(crate) fn head(&self) -> NonNull<u8> {
        self.ring.line_pointer(self.offset())
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
