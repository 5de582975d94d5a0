//! Writes of a peer between two loads of the receiver: a memory with arbitrary contents.

use core::cell::Cell;

use super::*;
use crate::frame::Plan;
use crate::mailbox::Outbound;
use crate::memory::Region;
use crate::signal::LinkKey;

const KEY: LinkKey = LinkKey::from_bytes(*b"a key of a peer!");
const RING: usize = 4096;

/// A ring whose writer is always faster than the receiver: the next signal is always there, on a skip to the
/// end.
#[derive(Default)]
struct EndlessSkips {
    loads: Cell<u32>,
    /// Position whose signal is read next.
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
fn a_poll_passes_at_most_two_of_endless_skips() {
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
    inbound.set_reported(3 * RING as u64);
    assert_eq!(inbound.due(true), None);
}

/// A ring in which the rest of a frame arrives between the first read of its header and the read of its
/// trailer.
struct LandsMeanwhile {
    before: [u64; 2],
    after: [u64; 2],
    landed: Cell<bool>,
}

impl Memory for &LandsMeanwhile {
    fn len(&self) -> usize {
        RING
    }

    fn load(&self, at: usize, _: Ordering) -> u64 {
        let header = if self.landed.get() { self.after } else { self.before };
        match at {
            0 => KEY.header(0),
            8 | 16 => header[at / 8 - 1],
            56 => {
                self.landed.set(true);
                KEY.trailer(0)
            }
            _ => panic!("nothing is to be read at {at}"),
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

#[test]
fn a_header_read_before_its_trailer_landed_is_read_again() {
    let header = |token| {
        let flags = Flags::from_bits(0x23).unwrap();
        Header { frame_len: 64, payload_len: 8, kind: Kind::Call, flags, index: 0, token }
    };
    let ring = LandsMeanwhile {
        before: header(1).to_words(),
        after: header(2).to_words(),
        landed: Cell::new(false),
    };
    let mut inbound = Inbound::new(&ring, KEY, ArrivalRules::IN_ORDER, Trailer::Always, usize::MAX);
    assert_eq!(inbound.poll(None), Ok(Seen::Partial), "a header of an earlier lap under this one's trailer");
    let Ok(Seen::Frame(0, seen, _)) = inbound.poll(None) else { panic!("the frame is there") };
    assert_eq!(seen, header(2));
}

/// A frame of one line that a device wrote before its signal. Until the load of the signal is ordered with
/// the device, the words of its header may be read too early: only the second read of both words returns
/// them.
struct ReadEarly {
    header: [u64; 2],
    loads: Cell<u32>,
}

impl Memory for &ReadEarly {
    fn len(&self) -> usize {
        RING
    }

    fn load(&self, at: usize, _: Ordering) -> u64 {
        match at {
            0 => KEY.header(0),
            8 | 16 => {
                self.loads.set(self.loads.get() + 1);
                if self.loads.get() > 2 { self.header[at / 8 - 1] } else { 0 }
            }
            _ => panic!("nothing is to be read at {at}"),
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

#[test]
fn a_header_is_read_again_where_acquire_leaves_device_writes_unordered() {
    let header = Header {
        frame_len: 64,
        payload_len: 8,
        kind: Kind::Call,
        flags: Flags::from_bits(3).unwrap(),
        index: 0,
        token: 5,
    };
    for rule in [ArrivalRules::STORES, ArrivalRules::FENCED] {
        let ring = ReadEarly { header: header.to_words(), loads: Cell::new(0) };
        let inbound = Inbound::new(&ring, KEY, rule, Trailer::Never, usize::MAX);
        let found = inbound.poll_fast();
        // Acquire order is enough for what a processor stored, and on x86-64 for all.
        let reads_again = !ACQUIRE_ORDERS_DEVICES && rule == ArrivalRules::FENCED;
        assert_eq!(ring.loads.get(), if reads_again { 4 } else { 2 }, "{rule:?}");
        assert_eq!(matches!(found, FastPoll::Plain(0, seen, 24) if seen == header), reads_again, "{rule:?}");
    }
}

#[repr(C, align(4096))]
struct Page([u64; RING / 8]);

/// A call of one line with a trailer and `payload_len` bytes of payload, sent into `page` by this project's sender.
fn send_trailed(page: &mut Page, payload_len: usize) -> Ring {
    // SAFETY: the page is aligned, and used by nothing else while the ring is.
    let ring = Ring::of(unsafe { Region::new(NonNull::from(page).cast(), RING) });
    let mut sender = Outbound::new(ring, ring, KEY, usize::MAX);
    let at = sender.line().unwrap();
    sender.stage_line(at, &Plan { token: 7, ..Plan::of(Kind::Call) }, payload_len, true);
    ring
}

fn trailed(ring: Ring) -> Inbound<Ring> {
    Inbound::new(ring, KEY, ArrivalRules::IN_ORDER, Trailer::Always, usize::MAX)
}

#[test]
fn poll_trailed_finds_a_line_as_the_general_poll_does() {
    for payload_len in 0..=INLINE_PAYLOAD - TRAILER_LEN {
        let mut page = Page([0; RING / 8]);
        let mut inbound = trailed(send_trailed(&mut page, payload_len));
        let PlainPoll::Frame(words, payload) = inbound.poll_trailed(Kind::Call) else {
            panic!("{payload_len} bytes are not found")
        };
        let Ok(Seen::Frame(0, header, parts)) = inbound.poll(None) else { panic!("it is no frame") };
        assert_eq!((words.token(), words.payload_len()), (7, payload_len));
        assert_eq!((header.token, header.payload_len as usize), (7, payload_len));
        assert_eq!(words.frame_len(), header.frame_len);
        assert_eq!(payload, inbound.head().map_addr(|head| head.saturating_add(parts.payload as usize)));
    }
}

#[test]
fn poll_trailed_leaves_any_other_line_to_the_general_poll() {
    const LENGTHS_WORD: usize = LENGTHS / 8;
    const REST_WORD: usize = REST / 8;
    let trailer = u64::from(Flags::TRAILER.bits()) << 8;
    type Spoil = fn(&mut [u64; RING / 8], u64);
    let spoil: [(&str, Spoil); 7] = [
        ("no trailer", |words, _| words[7] = 0),
        ("no flag", |words, trailer| words[REST_WORD] &= !trailer),
        ("another kind", |words, _| words[REST_WORD] ^= 1),
        ("two lines", |words, _| words[LENGTHS_WORD] += LINE as u64),
        ("no length", |words, _| words[LENGTHS_WORD] &= !0xffff_ffff),
        ("a payload over the trailer", |words, _| words[LENGTHS_WORD] += 25 << 32),
        ("an alignment of a line", |words, _| words[REST_WORD] ^= (3 ^ 6) << 8),
    ];
    for (what, spoil) in spoil {
        let mut page = Page([0; RING / 8]);
        send_trailed(&mut page, 8);
        spoil(&mut page.0, trailer);
        // SAFETY: as in `send_trailed`.
        let ring = Ring::of(unsafe { Region::new(NonNull::from(&mut page).cast(), RING) });
        assert_eq!(trailed(ring).poll_trailed(Kind::Call), PlainPoll::Look, "{what}");
    }
    let mut page = Page([0; RING / 8]);
    send_trailed(&mut page, 8);
    page.0[0] = 1;
    // SAFETY: as in `send_trailed`.
    let ring = Ring::of(unsafe { Region::new(NonNull::from(&mut page).cast(), RING) });
    assert_eq!(trailed(ring).poll_trailed(Kind::Call), PlainPoll::Nothing);
}
