//! What a peer could do between two loads of ours, which takes a memory that answers as it likes.

use core::cell::Cell;

use super::*;
use crate::signal::LinkKey;

const KEY: LinkKey = LinkKey::from_bytes(*b"a key of a peer!");
const RING: usize = 4096;

/// A ring whose writer is always faster than we: whatever signal is due next is there, on a skip to the end.
#[derive(Default)]
struct EndlessSkips {
    loads: Cell<u32>,
    /// Position for which the next signal is asked.
    position: Cell<u64>,
}

impl Memory for &EndlessSkips {
    fn len(&self) -> usize {
        RING
    }

    fn load(&self, at: usize, _: Ordering) -> u64 {
        self.loads.set(self.loads.get() + 1);
        assert!(self.loads.get() < 10_000, "a poll without an end");
        let skip = Header {
            frame_len: RING as u32,
            payload_len: 0,
            kind: Kind::Skip,
            flags: Flags::empty(),
            index: 0,
            token: 0,
        };
        match at {
            0 => {
                let position = self.position.get();
                self.position.set(position.wrapping_add(RING as u64));
                KEY.header(position)
            }
            8 => skip.to_words()[0],
            16 => skip.to_words()[1],
            _ => panic!("a skip has no word at {at}"),
        }
    }

    fn store(&self, _: usize, _: u64, _: Ordering) {
        panic!("a receiver does not write its ring");
    }

    fn write(&self, _: usize, _: &[u8]) {
        panic!("a receiver does not write its ring");
    }

    fn prefetch_write(&self, _: usize) {}
}

fn inbound(ring: &EndlessSkips) -> Inbound<&EndlessSkips> {
    Inbound::new(ring, KEY, ArrivalRules::STORES, Trailer::Never, usize::MAX)
}

#[test]
fn skips_without_end_hold_the_receiver_for_no_more_than_two_of_them() {
    let ring = EndlessSkips::default();
    let mut inbound = inbound(&ring);
    for poll in 1..100 {
        assert_eq!(inbound.poll(None), Ok(Seen::Nothing));
        assert_eq!(inbound.position(), 2 * poll * RING as u64);
        assert!(u64::from(ring.loads.get()) <= 6 * poll, "three words a skip, two skips a poll");
    }
}

#[test]
fn a_position_that_skips_drive_past_the_largest_number_breaks_nothing() {
    let ring = EndlessSkips::default();
    let mut inbound = inbound(&ring);
    let start = 0_u64.wrapping_sub(3 * RING as u64);
    inbound.position = start;
    inbound.reported = start;
    inbound.signal = KEY.header(start);
    ring.position.set(start);
    for _ in 0..3 {
        assert_eq!(inbound.poll(None), Ok(Seen::Nothing));
    }
    assert_eq!(inbound.due(false), Some(3 * RING as u64));
    inbound.told(3 * RING as u64);
    assert_eq!(inbound.due(true), None);
}
