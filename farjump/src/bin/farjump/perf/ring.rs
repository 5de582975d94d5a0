//! A ring of messages in memory that the other side writes: the floor under anything one-sided. How the bytes get there is the
//! [`Writer`]'s: plain stores, or puts of UCX.
//!
//! Each side has a region: a page whose first word says how many messages the other side has taken, then slots. A slot is as
//! many lines as the message and its signal need, the signal in its last 8 bytes. Signals are running numbers that never begin
//! again, so that nothing left in a slot passes for one.

use std::sync::atomic::{AtomicU64, Ordering};

use super::side::Peer;
use super::watch::Watch;
use crate::failure::Failure;

const LINE: usize = 64;
/// Bytes of the page before the slots.
const HEAD: usize = 4096;
/// How many lines ahead of what is written lines are fetched for writing: as many as farjump's mailbox.
const AHEAD: usize = 12 * LINE;

/// Bytes of a region with a ring of `ring` bytes, in which a payload of `longest` bytes fits twice.
pub(super) fn region_len(ring: usize, longest: usize) -> usize {
    HEAD + ring.max(2 * slot_len(longest)).next_multiple_of(HEAD)
}

fn slot_len(payload: usize) -> usize {
    (payload + 8).next_multiple_of(LINE)
}

/// Writes to a word of each page, without changing it: what is measured later meets no page that this process has not got yet.
pub(super) fn touch<'a>(words: impl Iterator<Item = &'a AtomicU64>) {
    for word in words {
        word.fetch_or(0, Ordering::Relaxed);
    }
}

/// How bytes get into the other side's region.
pub(super) trait Writer {
    /// Writes `len` bytes of payload at `at`, then `signal` at `signal_at`, which is seen last.
    fn write(
        &mut self,
        at: usize,
        len: usize,
        signal_at: usize,
        signal: u64,
        watch: &Watch,
    ) -> Result<(), Failure>;

    /// Writes one word, to be seen sometime. Returns whether it could: if not, a later one will do.
    fn tell(&mut self, at: usize, word: u64) -> Result<bool, Failure>;

    /// What is at `at` will be written soon.
    fn fetch(&mut self, at: usize);

    /// Does what has to be done now and then.
    fn work(&mut self) -> Result<(), Failure>;

    /// Waits until all that was written is there.
    fn settle(&mut self, watch: &Watch) -> Result<(), Failure>;
}

/// One side's end of a ring each way.
pub(super) struct Ring<W> {
    writer: W,
    region: *mut u8,
    region_len: usize,
    sent: Way,
    taken: Way,
    /// Messages that may be under way.
    room: u64,
    /// How many messages were taken when the other side was told last.
    told: u64,
}

/// Messages that go one way.
#[derive(Clone, Copy, Default)]
struct Way {
    /// Running number of the last message.
    last: u64,
    /// The same, when the present measurement began.
    first: u64,
    payload: usize,
    slot: usize,
    slots: u64,
    /// The slot of the next message.
    next: u64,
}

impl Way {
    fn prepare(&mut self, payload: usize, one: bool, region_len: usize) {
        let slot = slot_len(payload);
        // A message that waits for its answer needs one slot, and where it is the same each time that is quickest: farjump's
        // calls that come alone stay near the ring's start, too (docs/decisions/frames-apart.md).
        let slots = if one { 1 } else { ((region_len - HEAD) / slot) as u64 };
        *self = Way { last: self.last, first: self.last, payload, slot, slots, next: 0 };
    }

    #[inline]
    fn at(&self) -> usize {
        HEAD + self.next as usize * self.slot
    }

    #[inline]
    fn signal_at(&self) -> usize {
        self.at() + self.slot - 8
    }

    #[inline]
    fn advance(&mut self) {
        self.last += 1;
        self.next = if self.next + 1 == self.slots { 0 } else { self.next + 1 };
    }
}

impl<W: Writer> Ring<W> {
    /// Over this side's region and a writer into the other's, which is as long.
    ///
    /// # Safety
    /// `region` is `region_len` bytes, writable, at a page's start, for as long as the value lives, and is at least as long as
    /// [`region_len`] of whatever is sent. Only the other side writes there, and nobody has references to it.
    pub(super) unsafe fn new(writer: W, region: *mut u8, region_len: usize) -> Ring<W> {
        let idle = Way::default();
        let ring = Ring { writer, region, region_len, sent: idle, taken: idle, room: 0, told: 0 };
        touch((0..region_len).step_by(HEAD).map(|at| ring.word(at)));
        ring
    }

    #[inline]
    fn word(&self, at: usize) -> &AtomicU64 {
        // SAFETY: `at` is a multiple of 8 in the region, by how ways are laid out; both sides use these words atomically only.
        unsafe { AtomicU64::from_ptr(self.region.add(at).cast()) }
    }

    /// Messages of this measurement that the other side has not said to have taken. All of those before were.
    #[inline]
    fn under_way(&self) -> u64 {
        // Pairs with the other side's telling: what it has taken it does not read again.
        self.sent.last - self.word(0).load(Ordering::Acquire).max(self.sent.first)
    }

    #[cold]
    fn wait_for_room(&mut self, watch: &Watch) -> Result<(), Failure> {
        watch.until(|| {
            self.writer.work()?;
            Ok(self.under_way() < self.room)
        })
    }
}

impl<W: Writer> Peer for Ring<W> {
    fn prepare(&mut self, sent: usize, taken: usize, streams: bool) {
        self.sent.prepare(sent, !streams, self.region_len);
        self.taken.prepare(taken, !streams, self.region_len);
        // Answers say that there is room; where there are none the other side tells.
        self.room = if streams { self.sent.slots } else { u64::MAX };
        self.told = self.taken.last;
    }

    #[inline]
    fn send(&mut self, watch: &Watch) -> Result<(), Failure> {
        if self.room != u64::MAX {
            if self.under_way() >= self.room {
                self.wait_for_room(watch)?;
            }
            let ahead = self.sent.at() + AHEAD;
            if ahead < self.region_len {
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
        // Pairs with the writer's signal: the payload is there.
        if self.word(self.taken.signal_at()).load(Ordering::Acquire) == self.taken.last + 1 {
            self.taken.advance();
            if self.room != u64::MAX
                && self.taken.last - self.told >= self.taken.slots.div_ceil(4)
                && self.writer.tell(0, self.taken.last)?
            {
                self.told = self.taken.last;
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
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use super::super::stores::Stores;
    use super::*;

    const REGION: usize = 3 * HEAD;

    /// Two ends in this process, whose memory goes when the words behind do.
    fn ends(memory: &mut [Vec<u64>; 2]) -> [Ring<Stores>; 2] {
        let [mine, theirs] = memory.each_mut().map(|words| words.as_mut_ptr().cast::<u8>());
        // SAFETY: both are so long and outlive the ends, and are used through these alone.
        unsafe {
            [
                Ring::new(Stores::new(theirs, REGION, 2000), mine, REGION),
                Ring::new(Stores::new(mine, REGION, 2000), theirs, REGION),
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
        let (mut memory, (watch, _other)) = (memory(), watch());
        let [mut a, mut b] = ends(&mut memory);
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

    #[test]
    fn a_full_ring_waits_for_what_was_taken() {
        let (mut memory, (watch, other)) = (memory(), watch());
        let [mut a, mut b] = ends(&mut memory);
        Peer::prepare(&mut a, 56, 0, true);
        Peer::prepare(&mut b, 0, 56, true);
        let slots = ((REGION - HEAD) / LINE) as u64;
        (0..slots).for_each(|_| Peer::send(&mut a, &watch).unwrap());
        // Nobody will ever take one.
        drop(other);
        assert!(Peer::send(&mut a, &watch).is_err());
        (0..slots).for_each(|_| assert!(b.look().is_ok()));
        assert_eq!(b.came(), slots);
        Peer::send(&mut a, &watch).unwrap();
        assert_eq!(b.look().unwrap(), slots + 1);
    }
}
