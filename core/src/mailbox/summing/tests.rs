//! The cost of polling long frames, counted in words read.

use core::cell::{Cell, RefCell};
use std::vec::Vec;

use crate::frame::{Flags, Header, Kind, LINE, TRAILER_LEN, Trailer};
use crate::mailbox::{Inbound, Seen};
use crate::memory::Memory;
use crate::signal::LinkKey;
use crate::sync::Ordering;
use crate::transport::ArrivalRules;

use super::{AT_ONCE, SAVED, SAVED_BY_NAP};

const KEY: LinkKey = LinkKey::from_bytes(*b"a key of a peer!");

/// A ring that counts reads. Unwritten words read as zero.
struct Counted {
    len: usize,
    words: RefCell<Vec<u64>>,
    loads: Cell<usize>,
}

impl Memory for &Counted {
    fn len(&self) -> usize {
        self.len
    }
    fn load(&self, at: usize, _: Ordering) -> u64 {
        self.loads.set(self.loads.get() + 1);
        self.words.borrow().get(at / 8).copied().unwrap_or(0)
    }
    fn store(&self, _: usize, _: u64, _: Ordering) {
        panic!("a receiver does not write its ring");
    }
    fn write(&self, _: usize, _: &[u8]) {
        panic!("a receiver does not write its ring");
    }
    fn prefetch_write(&self, _: usize) {}
}

impl Counted {
    /// A ring that starts with the beginning of a frame of `len` bytes, without checksum.
    fn beginning(len: usize) -> Counted {
        let words = RefCell::new(std::vec![0; 3]);
        let ring = Counted { len: len.next_power_of_two(), words, loads: Cell::new(0) };
        ring.start(len);
        ring
    }

    /// Signal and header of a frame of `len` bytes.
    fn start(&self, len: usize) {
        let header = Header {
            frame_len: len as u32,
            payload_len: (len - LINE - TRAILER_LEN) as u32,
            kind: Kind::Call,
            flags: Flags::from_bits_retain(3) | Flags::TRAILER,
            index: 0,
            token: 0,
        };
        let [lengths, rest] = header.to_words();
        self.words.borrow_mut()[..3].copy_from_slice(&[KEY.header(0), lengths, rest]);
    }

    /// The rest of the frame.
    fn finish(&self, len: usize) {
        let mut words = self.words.borrow_mut();
        words.resize(len / 8, 7);
        let end = len / 8 - 1;
        words[end] = KEY.checksum(0, words[1..end].iter().copied());
    }

    fn inbound(&self) -> Inbound<&Counted> {
        Inbound::new(self, KEY, ArrivalRules::CHECKED, Trailer::Always, usize::MAX)
    }

    /// Polls once, and returns the number of words read.
    fn look(&self, inbound: &mut Inbound<&Counted>) -> (Seen, usize) {
        let before = self.loads.get();
        let seen = inbound.poll(None).unwrap();
        (seen, self.loads.get() - before)
    }
}

/// Words that a poll reads besides those of the checksum: signal, header, trailer.
const BESIDE: usize = 16;

#[test]
fn the_first_look_takes_a_short_whole_frame() {
    for len in [2 * LINE, 4096, AT_ONCE] {
        let ring = Counted::beginning(len);
        ring.finish(len);
        let mut inbound = ring.inbound();
        assert!(matches!(ring.look(&mut inbound).0, Seen::Frame(0, ..)), "{len}");
        // The frame stays there until it is released, and is not summed up again.
        for _ in 0..1000 {
            let (seen, words) = ring.look(&mut inbound);
            assert!(matches!(seen, Seen::Frame(0, ..)) && words <= BESIDE, "{len}: {words}");
        }
        assert_eq!(inbound.summed(), (len - 16) as u64);
    }
}

#[test]
fn a_long_whole_frame_takes_one_look_per_part() {
    const LEN: usize = 100 * AT_ONCE;
    let ring = Counted::beginning(LEN);
    ring.finish(LEN);
    let mut inbound = ring.inbound();
    for look in 1..100 {
        let (seen, words) = ring.look(&mut inbound);
        assert_eq!(seen, Seen::Partial, "{look}");
        assert!(words <= AT_ONCE / 8 + BESIDE, "look {look} read {words} words");
        assert!(inbound.is_summing(), "it would sleep instead of going on");
    }
    assert!(matches!(ring.look(&mut inbound).0, Seen::Frame(0, ..)));
    assert!(!inbound.is_summing());
    assert_eq!(inbound.summed(), (LEN - 16) as u64);
}

#[test]
fn looks_at_a_long_frame_with_wrong_checksum_read_bounded_words() {
    const LEN: usize = 80 << 20;
    const LOOKS: usize = 200_000;
    let ring = Counted::beginning(LEN);
    let mut inbound = ring.inbound();
    for look in 0..LOOKS {
        let (seen, words) = ring.look(&mut inbound);
        assert_eq!(seen, Seen::Partial);
        assert!(words <= AT_ONCE / 8 + BESIDE, "look {look} read {words} words");
    }
    let most = 3 * LEN + LOOKS * SAVED;
    assert!(ring.loads.get() - LOOKS * BESIDE <= most / 8, "{} words in all", ring.loads.get());
    assert!(inbound.summed() as usize <= most && inbound.summed() as usize > LEN);
}

#[test]
fn looks_at_a_frame_with_changing_header_read_bounded_words() {
    const LEN: usize = 1 << 20;
    const LOOKS: usize = 100_000;
    let ring = Counted::beginning(LEN);
    let mut inbound = ring.inbound();
    for look in 0..LOOKS {
        ring.start(LEN - look % 2 * LINE);
        let (seen, words) = ring.look(&mut inbound);
        assert_eq!(seen, Seen::Partial);
        assert!(words <= AT_ONCE / 8 + BESIDE, "look {look} read {words} words");
    }
    assert!((inbound.summed() as usize) < 3 * LEN + LOOKS * SAVED, "{}", inbound.summed());
}

#[test]
fn a_torn_frame_is_taken_once_its_rest_has_come() {
    for len in [4096, AT_ONCE, 10 * AT_ONCE] {
        for torn in [1, 2, 10, 1000] {
            let ring = Counted::beginning(len);
            let mut inbound = ring.inbound();
            for _ in 0..torn {
                assert_eq!(ring.look(&mut inbound).0, Seen::Partial);
            }
            ring.finish(len);
            // The polls that save up for a sum, and the sum itself. One sum may have begun too early.
            let most = 2 * (len / SAVED + len.div_ceil(AT_ONCE) + 1);
            let taken = (1..=most).find(|_| matches!(ring.look(&mut inbound).0, Seen::Frame(0, ..)));
            assert!(taken.is_some(), "{len} bytes, torn for {torn} looks: not there after {most}");
        }
    }
}

#[test]
fn a_napping_receiver_sums_a_torn_frame_again_after_few_naps() {
    const LEN: usize = 1 << 20;
    let ring = Counted::beginning(LEN);
    let mut inbound = ring.inbound();
    let naps = |inbound: &mut Inbound<&Counted>, most: usize| {
        (0..most).any(|_| {
            inbound.naps();
            let mut seen = ring.look(inbound).0;
            while inbound.is_summing() {
                seen = ring.look(inbound).0;
            }
            matches!(seen, Seen::Frame(..))
        })
    };
    assert!(!naps(&mut inbound, 100));
    // However long the nap, at most one sum follows another without a nap between.
    assert!((inbound.summed() as usize) < 3 * LEN + 100 * (SAVED_BY_NAP + LEN / AT_ONCE * SAVED + SAVED));
    ring.finish(LEN);
    assert!(naps(&mut inbound, 2 * LEN / SAVED_BY_NAP + 2));
}
