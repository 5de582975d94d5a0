//! A ring of messages in memory that the peer writes: the floor for anything one-sided. A [`Writer`] moves
//! the bytes: plain stores, or puts of UCX.
//!
//! Each endpoint has a region: a page whose first word counts the messages that the peer has taken, then
//! slots. A message has as many lines as its payload and signal need, the signal in its last 8 bytes. A slot
//! is as long, or as long as requested. Signals are running numbers that never restart, so that no stale word
//! in a slot passes for one.

use std::sync::atomic::{AtomicU64, Ordering};

use serde::{Deserialize, Serialize};

use crate::perf::experiments::role::Peer;
use crate::perf::process::liveness::Watch;
use crate::program::failure::Failure;
use crate::program::units::parse_bytes;

const LINE: usize = 64;
/// Bytes of the page before the slots.
const HEAD: usize = 4096;
/// Distance from the written line to those prefetched for writing: that of farjump's mailbox.
const AHEAD: usize = 12 * LINE;

/// The parameters of a ring that both endpoints share.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Layout {
    /// Bytes of a region.
    pub(crate) region: usize,
    /// The longest payload, in bytes.
    pub(crate) longest: usize,
    /// Bytes from the start of one slot to that of the next; `None`: the length of a message.
    pub(crate) slot: Option<usize>,
}

impl Layout {
    /// Returns the layout without a ring, for payloads of up to `longest` bytes.
    pub(crate) fn without_rings(longest: usize) -> Layout {
        Layout { region: 0, longest, slot: None }
    }

    /// Returns the layout of a ring of `ring` bytes, extended without a slot length to hold `longest` bytes of payload
    /// twice.
    ///
    /// # Errors
    /// The longest message exceeds a slot, or two slots exceed the ring.
    pub(crate) fn new(ring: usize, longest: usize, slot: Option<usize>) -> Result<Layout, Failure> {
        let message = message_len(longest);
        match slot {
            Some(slot) if longest + 8 > slot => Err(Failure::new(format!(
                "a payload of {longest} B and its signal of 8 B do not fit a slot of {slot} B: choose smaller --sizes, or a longer --slot"
            ))),
            Some(slot) if 2 * slot > ring => Err(Failure::new(format!(
                "a ring of {ring} B cannot hold two slots of {slot} B: choose a longer --ring, or a smaller --slot"
            ))),
            slot => {
                let region = HEAD + ring.max(2 * message).next_multiple_of(HEAD);
                Ok(Layout { region, longest, slot })
            }
        }
    }
}

/// Reads the length of slots: whole lines.
///
/// # Errors
/// A sentence for the user.
pub(crate) fn parse_slot(text: &str) -> Result<usize, String> {
    match parse_bytes(text)? {
        bytes if bytes != 0 && bytes.is_multiple_of(LINE) => Ok(bytes),
        _ => Err(format!("`{text}`: a slot has whole lines: 64, 128 and so on, for example 1K")),
    }
}

fn message_len(payload: usize) -> usize {
    (payload + 8).next_multiple_of(LINE)
}

/// Writes to a word of each page without changing it, so that no page fault happens while measuring.
pub(crate) fn touch<'a>(words: impl Iterator<Item = &'a AtomicU64>) {
    for word in words {
        word.fetch_or(0, Ordering::Relaxed);
    }
}

/// Writes into the peer's region.
pub(crate) trait Writer {
    /// Writes `len` bytes of payload at `at`, then `signal` at `signal_at`, which becomes visible last.
    fn write(
        &mut self,
        at: usize,
        len: usize,
        signal_at: usize,
        signal: u64,
        watch: &Watch,
    ) -> Result<(), Failure>;

    /// Writes one word, which becomes visible eventually. Returns false if it did not write, so that a later word has
    /// to do.
    fn return_credit(&mut self, at: usize, word: u64) -> Result<bool, Failure>;

    /// Prefetches the line at `at` for writing.
    fn fetch(&mut self, at: usize);

    /// Does periodic work.
    fn work(&mut self) -> Result<(), Failure>;

    /// Waits until all writes have arrived.
    fn settle(&mut self, watch: &Watch) -> Result<(), Failure>;
}

/// An endpoint with a ring in each direction.
pub(crate) struct Ring<W> {
    writer: W,
    region: *mut u8,
    layout: Layout,
    sent: Direction,
    taken: Direction,
    /// Messages that may be in flight.
    credit: u64,
    /// Messages taken when credit was last returned.
    returned: u64,
    /// The owner of the memory, dropped last.
    owner: Option<Box<dyn Owner>>,
}

/// The owner of a ring's memory.
pub(crate) trait Owner {
    /// Returns UCX's transports, if it reports them.
    fn lanes(&self) -> Option<String>;
}

/// Messages in one direction.
#[derive(Clone, Copy, Default)]
struct Direction {
    /// Running number of the last message.
    last: u64,
    /// The same at the start of the present measurement.
    first: u64,
    payload: usize,
    /// Bytes of a message, its signal included.
    message: usize,
    /// Bytes from one slot to the next.
    slot: usize,
    slots: u64,
    /// The slot of the next message.
    next: u64,
    /// Bytes from a message to the line that is prefetched when it is sent.
    ahead: usize,
}

impl Direction {
    fn prepare(&mut self, payload: usize, one: bool, layout: &Layout) {
        let message = message_len(payload);
        let slot = layout.slot.unwrap_or(message);
        // With gaps between messages, the first line of the message that lies as many lines of messages
        // ahead.
        let ahead = if slot == message { AHEAD } else { slot * (AHEAD / message).max(1) };
        // A message that waits for its reply needs one slot, and the same slot each time is fastest: single
        // calls of farjump stay near the ring's start, too (docs/design/mailbox.md).
        let slots = if one { 1 } else { ((layout.region - HEAD) / slot) as u64 };
        *self =
            Direction { last: self.last, first: self.last, payload, message, slot, slots, next: 0, ahead };
    }

    #[inline]
    fn at(&self) -> usize {
        HEAD + self.next as usize * self.slot
    }

    #[inline]
    fn signal_at(&self) -> usize {
        self.at() + self.message - 8
    }

    #[inline]
    fn advance(&mut self) {
        self.last += 1;
        self.next = if self.next + 1 == self.slots { 0 } else { self.next + 1 };
    }
}

impl<W: Writer> Ring<W> {
    /// Makes a ring over this endpoint's region and a writer into the peer's, which has the same layout.
    ///
    /// # Safety
    /// - `region` has as many bytes as the layout says, is writable, and starts at a page.
    /// - It stays valid as long as the value lives.
    /// - No payload is longer than the layout says.
    /// - Only the peer writes there, and there are no references to it.
    pub(crate) unsafe fn new(writer: W, region: *mut u8, layout: Layout) -> Ring<W> {
        let (sent, taken) = (Direction::default(), Direction::default());
        let ring = Ring { writer, region, layout, sent, taken, credit: 0, returned: 0, owner: None };
        touch((0..layout.region).step_by(HEAD).map(|at| ring.word(at)));
        ring
    }

    /// Keeps the owner of the memory as long as the ring.
    #[cfg(feature = "ucx")]
    pub(crate) fn with_owner(self, owner: impl Owner + 'static) -> Ring<W> {
        Ring { owner: Some(Box::new(owner)), ..self }
    }

    #[inline]
    fn word(&self, at: usize) -> &AtomicU64 {
        // SAFETY: the layout of ways makes `at` a multiple of 8 inside the region; both endpoints access
        // these words only atomically.
        unsafe { AtomicU64::from_ptr(self.region.add(at).cast()) }
    }

    /// Returns the number of messages of this measurement without returned credit. All earlier messages have been
    /// taken.
    #[inline]
    fn in_flight(&self) -> u64 {
        // Pairs with the peer's return of credit: it does not read taken messages again.
        self.sent.last - self.word(0).load(Ordering::Acquire).max(self.sent.first)
    }

    #[cold]
    fn wait_for_credit(&mut self, watch: &Watch) -> Result<(), Failure> {
        watch.until(|| {
            self.writer.work()?;
            Ok(self.in_flight() < self.credit)
        })
    }
}

impl<W: Writer> Peer for Ring<W> {
    fn prepare(&mut self, sent: usize, taken: usize, streams: bool) {
        self.sent.prepare(sent, !streams, &self.layout);
        self.taken.prepare(taken, !streams, &self.layout);
        // Replies imply credit; without replies the peer returns it.
        self.credit = if streams { self.sent.slots } else { u64::MAX };
        self.returned = self.taken.last;
    }

    #[inline]
    fn send(&mut self, watch: &Watch) -> Result<(), Failure> {
        if self.credit != u64::MAX {
            if self.in_flight() >= self.credit {
                self.wait_for_credit(watch)?;
            }
            let ahead = self.sent.at() + self.sent.ahead;
            if ahead < self.layout.region {
                self.writer.fetch(ahead);
            }
        }
        let (at, signal_at) = (self.sent.at(), self.sent.signal_at());
        self.writer.write(at, self.sent.payload, signal_at, self.sent.last + 1, watch)?;
        self.sent.advance();
        Ok(())
    }

    #[inline]
    fn look(&mut self) -> Result<u64, Failure> {
        self.writer.work()?;
        // Pairs with the writer's signal: the payload has arrived.
        if self.word(self.taken.signal_at()).load(Ordering::Acquire) == self.taken.last + 1 {
            self.taken.advance();
            if self.credit != u64::MAX
                && self.taken.last - self.returned >= self.taken.slots.div_ceil(4)
                && self.writer.return_credit(0, self.taken.last)?
            {
                self.returned = self.taken.last;
            }
        }
        Ok(self.came())
    }

    #[inline]
    fn came(&self) -> u64 {
        self.taken.last - self.taken.first
    }

    fn settle(&mut self, watch: &Watch) -> Result<(), Failure> {
        self.writer.settle(watch)
    }

    fn lanes(&self) -> Option<String> {
        self.owner.as_ref()?.lanes()
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use super::super::stores::Stores;
    use super::*;

    const REGION: usize = 3 * HEAD;

    fn layout(slot: Option<usize>) -> Layout {
        Layout { region: REGION, longest: 2000, slot }
    }

    /// Returns two endpoints in this process. `memory` must outlive them.
    fn endpoints(memory: &mut [Vec<u64>; 2], layout: Layout) -> [Ring<Stores>; 2] {
        let [mine, theirs] = memory.each_mut().map(|words| words.as_mut_ptr().cast::<u8>());
        // SAFETY: both regions have the layout's length and outlive the endpoints, which alone access them.
        unsafe {
            [
                Ring::new(Stores::new(theirs, &layout), mine, layout),
                Ring::new(Stores::new(mine, &layout), theirs, layout),
            ]
        }
    }

    fn memory() -> [Vec<u64>; 2] {
        [(); 2].map(|()| vec![0; REGION / 8])
    }

    fn watch() -> (Watch, UnixStream) {
        let (one, other) = UnixStream::pair().unwrap();
        (Watch::of(&one).unwrap(), other)
    }

    #[test]
    fn every_message_comes_once_whatever_lengths_were_measured_before() {
        for slot in [None, Some(2048)] {
            let (mut memory, (watch, _other)) = (memory(), watch());
            let [mut a, mut b] = endpoints(&mut memory, layout(slot));
            for (size, streams) in
                [(8, false), (0, true), (56, true), (57, false), (2000, true), (1, true), (700, false)]
            {
                Peer::prepare(&mut a, size, 0, streams);
                Peer::prepare(&mut b, 0, size, streams);
                assert_eq!((a.look().unwrap(), b.look().unwrap()), (0, 0), "{size}");
                for turn in 1..=1000 {
                    Peer::send(&mut a, &watch).unwrap();
                    assert_eq!((b.look().unwrap(), b.look().unwrap()), (turn, turn), "{size}");
                    if !streams {
                        Peer::send(&mut b, &watch).unwrap();
                        assert_eq!(a.look().unwrap(), turn, "{size}");
                    }
                }
            }
        }
    }

    /// Fills a ring with messages of a line, and returns their offsets.
    fn filled(slot: Option<usize>) -> Vec<usize> {
        let (mut memory, (watch, other)) = (memory(), watch());
        let [mut a, mut b] = endpoints(&mut memory, layout(slot));
        Peer::prepare(&mut a, 56, 0, true);
        Peer::prepare(&mut b, 0, 56, true);
        // No peer ever takes one.
        drop(other);
        let mut sent = 0;
        while Peer::send(&mut a, &watch).is_ok() {
            sent += 1;
        }
        (0..sent).for_each(|_| assert!(b.look().is_ok()));
        assert_eq!(b.came(), sent);
        Peer::send(&mut a, &watch).unwrap();
        assert_eq!(b.look().unwrap(), sent + 1);
        drop((a, b));
        let written = |at: &usize| memory[1][at / 8..][..7] == [0x0707_0707_0707_0707; 7];
        let places: Vec<_> = (HEAD..REGION).step_by(LINE).filter(written).collect();
        assert_eq!(places.len() as u64, sent);
        places
    }

    #[test]
    fn a_full_ring_waits_for_what_was_taken() {
        assert_eq!(filled(None), (HEAD..REGION).step_by(LINE).collect::<Vec<_>>());
    }

    #[test]
    fn messages_lie_a_requested_slot_length_apart_in_the_ring() {
        assert_eq!(filled(Some(1024)), (HEAD..REGION).step_by(1024).collect::<Vec<_>>());
    }

    #[test]
    fn payloads_over_a_slot_and_rings_under_two_slots_are_refused() {
        let refused = |ring, longest, slot| Layout::new(ring, longest, Some(slot)).unwrap_err().to_string();
        assert!(refused(8192, 57, 64).contains("a payload of 57 B"));
        assert!(refused(4096, 8, 4096).contains("two slots of 4096 B"));
        let layout = Layout::new(8192, 56, Some(64)).unwrap();
        assert_eq!((layout.region, layout.slot), (HEAD + 8192, Some(64)));
        assert_eq!(Layout::new(4096, 8192, None).unwrap().region, HEAD + 5 * 4096);
    }

    #[test]
    fn a_slot_has_whole_lines() {
        assert_eq!([parse_slot("64"), parse_slot("1K")], [Ok(64), Ok(1024)]);
        for wrong in ["0", "63", "65", "1000", "-64", "x"] {
            assert!(parse_slot(wrong).is_err(), "{wrong}");
        }
    }
}
