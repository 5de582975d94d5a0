//! The mailbox under loom: the code that really runs, in every order in which two threads' loads and stores
//! can take effect. `RUSTFLAGS="--cfg loom" cargo test -p farjump-core --release loom`
//!
//! Words are loom's atomics. The real code writes payload by plain stores, so each line also has a cell that
//! loom watches. A read of payload that is not ordered behind its write, or a write that is not ordered
//! behind the last read, fails the model as a data race.

use alloc::vec::Vec;

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::sync::atomic::AtomicU64;
use loom::thread;

use super::{
    CONSUMED_AT, FastPoll, Inbound, Look, NoSpace, Outbound, STATE_AT, Seen, Sleep, Sleeper, State, Waker,
    fall_asleep,
};
use crate::frame::{HEADER_LEN, Header, Kind, LINE, Plan, Trailer};
use crate::memory::Memory;
use crate::signal::LinkKey;
use crate::sync::{Ordering, fence};
use crate::transport::ArrivalRules;

/// Memory that loom watches.
#[derive(Clone)]
struct Watched(Arc<Words>);

struct Words {
    words: Vec<AtomicU64>,
    lines: Vec<UnsafeCell<()>>,
}

// SAFETY: the cells hold nothing; loom checks each access to them.
unsafe impl Sync for Words {}

impl Watched {
    fn new(len: usize) -> Watched {
        let words = (0..len / 8).map(|_| AtomicU64::new(0)).collect();
        let lines = (0..len / LINE).map(|_| UnsafeCell::new(())).collect();
        Watched(Arc::new(Words { words, lines }))
    }

    /// Reads payload, as an injected function does.
    fn read(&self, at: usize, len: usize) -> Vec<u64> {
        for line in at / LINE..(at + len).div_ceil(LINE) {
            self.0.lines[line].with(|_| ());
        }
        (at / 8..(at + len) / 8).map(|word| self.0.words[word].load(Ordering::Relaxed)).collect()
    }
}

impl Memory for Watched {
    fn len(&self) -> usize {
        self.0.words.len() * 8
    }

    fn load(&self, at: usize, order: Ordering) -> u64 {
        self.0.words[at / 8].load(order)
    }

    fn store(&self, at: usize, word: u64, order: Ordering) {
        self.0.words[at / 8].store(word, order);
    }

    fn write(&self, at: usize, from: &[u8]) {
        for line in at / LINE..(at + from.len()).div_ceil(LINE) {
            self.0.lines[line].with_mut(|_| ());
        }
        for (word, bytes) in from.chunks_exact(8).enumerate() {
            let bytes = bytes.try_into().expect("chunks of eight");
            self.0.words[at / 8 + word].store(u64::from_le_bytes(bytes), Ordering::Relaxed);
        }
    }

    fn prefetch_write(&self, _: usize) {}
}

const KEY: LinkKey = LinkKey::from_bytes(*b"tried every way.");

/// The sender of a mapped ring, driven as in `channel::one_sided`.
struct Producer {
    out: Outbound<Watched>,
    ring: Watched,
    returns: Watched,
    waker: Waker,
}

/// The receiver.
struct Consumer {
    inbound: Inbound<Watched>,
    ring: Watched,
    /// The memory that holds the producer's credit line.
    peer: Watched,
}

/// Both peers of a ring of `lines` lines.
fn ring(lines: usize) -> (Producer, Consumer) {
    let (ring, returns) = (Watched::new(lines * LINE), Watched::new(LINE));
    let out = Outbound::new(ring.clone(), returns.clone(), KEY, usize::MAX);
    let inbound = Inbound::new(ring.clone(), KEY, ArrivalRules::STORES, Trailer::Never, usize::MAX);
    let consumer = Consumer { inbound, ring: ring.clone(), peer: returns.clone() };
    (Producer { out, ring, returns, waker: Waker::default() }, consumer)
}

/// The payload of frame `number`: `words` words, all different.
fn payload(number: u32, words: usize) -> Vec<u64> {
    (0..words as u64).map(|word| u64::from(number + 1) << 32 | word).collect()
}

impl Producer {
    /// Sends frame `number` with `words` words of payload. Yields the processor while there is no credit.
    fn send(&mut self, number: u32, words: usize) {
        let plan = Plan { token: number, align_log2: 3, ..Plan::of(Kind::Call) };
        let (at, layout) = loop {
            match self.out.reserve(|base| plan.layout(base, words * 8, Trailer::Never)) {
                Ok(reserved) => break reserved,
                Err(NoSpace::SkipFirst) => {
                    let skip = self.out.skip(false);
                    self.out.publish(&skip);
                }
                Err(NoSpace::Full) => thread::yield_now(),
                Err(NoSpace::TooLarge(len)) => panic!("a frame of {len} bytes is too long for the model"),
            }
        };
        let bytes: Vec<u8> = payload(number, words).into_iter().flat_map(u64::to_le_bytes).collect();
        self.ring.write(at + layout.payload, &bytes);
        let frame = self.out.finish(plan.header(&layout, words * 8));
        self.out.publish(&frame);
    }
}

impl Consumer {
    /// Same steps as `Channel::poll`: the fast poll, then the general one if needed.
    fn poll(&mut self) -> Option<(usize, Header)> {
        match self.inbound.poll_fast() {
            FastPoll::Nothing => None,
            FastPoll::Plain(at, header, payload) => {
                assert_eq!(payload as usize, HEADER_LEN);
                Some((at, header))
            }
            FastPoll::Look => self.poll_long(),
        }
    }

    fn poll_long(&mut self) -> Option<(usize, Header)> {
        match self.inbound.poll(None).expect("the model sends frames only") {
            Seen::Frame(at, header, parts) => {
                assert_eq!(parts.payload as usize, HEADER_LEN);
                Some((at, header))
            }
            Seen::Nothing => None,
            Seen::Partial => panic!("stores are never partial"),
        }
    }

    /// Takes frame `number` when it comes, and returns its credit.
    fn take(&mut self, number: u32, words: usize) {
        let (at, header) = loop {
            match self.poll() {
                Some(frame) => break frame,
                None => {
                    // The credit of a passed skip is returned when idle.
                    self.report(true);
                    thread::yield_now();
                }
            }
        };
        assert_eq!(header.token, number, "order");
        assert_eq!(header.payload_len as usize, words * 8);
        assert_eq!(self.ring.read(at + HEADER_LEN, words * 8), payload(number, words), "a torn frame");
        self.inbound.release(header.frame_len);
        self.report(true);
    }

    fn report(&mut self, idle: bool) {
        if let Some(position) = self.inbound.due(idle) {
            self.peer.store(CONSUMED_AT, position, Ordering::Release);
            self.inbound.set_reported(position);
        }
    }
}

/// Sends frames with these payloads, in words, through a ring of `lines` lines.
fn stream(lines: usize, words: &'static [usize], preemptions: Option<usize>) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = preemptions;
    model.check(move || {
        let (mut producer, mut consumer) = ring(lines);
        let sender = thread::spawn(move || {
            for (number, words) in words.iter().enumerate() {
                producer.send(number as u32, *words);
            }
            assert!(producer.out.in_flight() <= producer.ring.len() as u64);
        });
        for (number, words) in words.iter().enumerate() {
            consumer.take(number as u32, *words);
        }
        sender.join().unwrap();
    });
}

/// Every order: two laps through a ring that holds one frame.
#[test]
fn loom_each_frame_arrives_whole_in_order_and_stays_until_taken() {
    stream(1, &[1, 2, 1], None);
}

#[test]
fn loom_two_frames_in_flight_arrive_whole_over_several_ring_laps() {
    stream(2, &[1, 1, 2, 1, 1], Some(3));
}

#[test]
fn loom_a_skip_before_the_end_and_frames_of_two_lines() {
    // One line, two lines, then two that need a skip, then one.
    stream(4, &[1, 6, 7, 1], Some(3));
}

/// Validates the model: loom catches a producer that does not wait for credit.
#[test]
#[should_panic(expected = "Causality violation")]
fn loom_finds_the_frame_that_is_written_over_one_being_read() {
    loom::model(|| {
        let (mut producer, mut consumer) = ring(1);
        // The peer claims to have consumed a frame that it has not polled.
        consumer.peer.store(CONSUMED_AT, 0, Ordering::Relaxed);
        let sender = thread::spawn(move || {
            producer.send(0, 1);
            producer.returns.store(CONSUMED_AT, LINE as u64, Ordering::Relaxed);
            producer.send(1, 1);
        });
        if let Some((at, header)) = consumer.poll() {
            let _ = consumer.ring.read(at + HEADER_LEN, header.payload_len as usize);
        }
        sender.join().unwrap();
    });
}

/// The fences at *order*, each true if that process has one.
#[derive(Clone, Copy)]
struct Fences {
    sender: bool,
    sleeper: bool,
}

struct Dozer {
    consumer: Consumer,
    state: State,
    fenced: bool,
}

impl Sleeper for Dozer {
    type Error = core::convert::Infallible;

    fn say_asleep(&mut self) -> Result<bool, Self::Error> {
        self.state = self.state.toggled();
        // Same store as `OneSided::write_credit_line` makes over mapped memory.
        self.consumer.peer.store(STATE_AT, self.state.0, Ordering::Release);
        Ok(true)
    }

    fn order(&mut self) -> Result<bool, Self::Error> {
        if self.fenced {
            fence(Ordering::SeqCst);
        }
        Ok(true)
    }

    fn look(&mut self) -> Result<Look, Self::Error> {
        Ok(if self.consumer.poll_long().is_some() { Look::Something } else { Look::Nothing })
    }
}

/// One peer sends two frames, the other goes to sleep, twice if it finds one. If a frame is there when the
/// sender is done, a sleeper that sleeps soundly has been woken.
fn doze(fences: Fences) {
    loom::model(move || {
        let (mut producer, consumer) = ring(4);
        let rings = Arc::new(AtomicU64::new(0));
        let bell = rings.clone();
        let sender = thread::spawn(move || {
            for number in 0..2 {
                producer.send(number, 0);
                let out = &mut producer.out;
                if producer.waker.must_wake(&producer.returns, fences.sender, || out.in_flight()) {
                    bell.fetch_add(1, Ordering::Relaxed);
                }
            }
        });
        let mut dozer = Dozer { consumer, state: State::default(), fenced: fences.sleeper };
        let mut asleep = false;
        for _ in 0..2 {
            let Ok(sleep) = fall_asleep(&mut dozer);
            if sleep == Sleep::Soundly {
                asleep = true;
                break;
            }
            // Awake: takes the pending frame.
            dozer.state = dozer.state.toggled();
            dozer.consumer.peer.store(STATE_AT, dozer.state.0, Ordering::Release);
            if let Some((_, header)) = dozer.consumer.poll() {
                dozer.consumer.inbound.release(header.frame_len);
                dozer.consumer.report(true);
            }
        }
        sender.join().unwrap();
        if asleep {
            let left = dozer.consumer.poll().is_some();
            assert!(!left || rings.load(Ordering::Relaxed) > 0, "a frame is there, and nobody was woken");
        }
    });
}

#[test]
fn loom_whoever_sleeps_while_a_frame_is_there_is_rung() {
    doze(Fences { sender: true, sleeper: true });
}

/// The fences are necessary: without either, loom finds the lost wake-up.
#[test]
#[should_panic(expected = "nobody was woken")]
fn loom_finds_the_wake_up_lost_without_the_senders_fence() {
    doze(Fences { sender: false, sleeper: true });
}

#[test]
#[should_panic(expected = "nobody was woken")]
fn loom_finds_the_wake_up_lost_without_the_sleepers_fence() {
    doze(Fences { sender: true, sleeper: false });
}
