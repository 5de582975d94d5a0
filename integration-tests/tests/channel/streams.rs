//! Every frame arrives byte for byte, in order and exactly once, in any order of its bytes.

use std::collections::VecDeque;

use farjump_core::channel::{Polled, SendError};
use farjump_core::frame::{Kind, Plan, PlanCode};
use farjump_core::image::CodeId;
use proptest::prelude::*;

use super::peers::{Pair, RULES, largest, pattern, plan};

#[derive(Clone, Debug)]
enum Step {
    /// Reserve `len + slack` bytes and send `len`.
    Send {
        left: bool,
        len: usize,
        slack: usize,
        align_log2: u8,
        code: bool,
    },
    /// Let some pieces of a peer's puts arrive.
    Deliver {
        left: bool,
        pieces: usize,
        newest_first: bool,
    },
    /// Take the present frame, after a second check if it is held.
    Poll {
        left: bool,
    },
    Release {
        left: bool,
    },
    Progress {
        left: bool,
        idle: bool,
    },
    /// Writes that the backend takes before it is full.
    Capacity {
        left: bool,
        writes: usize,
    },
}

fn len(largest: usize) -> impl Strategy<Value = usize> {
    prop_oneof![
        4 => prop::sample::select(vec![0, 1, 8, 32, 33, 40, 41, 63, 64, 65]),
        4 => 0..600_usize,
        2 => 0..=largest,
        1 => Just(largest),
    ]
}

fn step(largest: usize) -> impl Strategy<Value = Step> {
    let send =
        (any::<bool>(), len(largest), 0..200_usize, prop::sample::select(vec![0_u8, 0, 0, 3, 4, 7, 12]));
    prop_oneof![
        6 => (send, prop::bool::weighted(0.2)).prop_map(move |((left, len, slack, align_log2), code)| {
            let slack = slack.min(largest - len);
            Step::Send { left, len, slack, align_log2, code }
        }),
        6 => (any::<bool>(), 1..12_usize, any::<bool>())
            .prop_map(|(left, pieces, newest_first)| Step::Deliver { left, pieces, newest_first }),
        4 => any::<bool>().prop_map(|left| Step::Poll { left }),
        4 => any::<bool>().prop_map(|left| Step::Release { left }),
        2 => (any::<bool>(), any::<bool>()).prop_map(|(left, idle)| Step::Progress { left, idle }),
        1 => (any::<bool>(), prop_oneof![Just(1), Just(3), Just(usize::MAX)])
            .prop_map(|(left, writes)| Step::Capacity { left, writes }),
    ]
}

/// A frame on its way: token, payload, name and image.
type Sent = (u32, Vec<u8>, Vec<u8>, Vec<u8>);

struct Run {
    pair: Pair,
    /// Frames that each peer has sent and the other has not released: right's, left's.
    expected: [VecDeque<Sent>; 2],
    held: [bool; 2],
    sent: u32,
    full: u32,
}

impl Run {
    fn send(&mut self, left: bool, len: usize, slack: usize, align_log2: u8, code: bool) {
        let token = self.sent;
        let payload = pattern(token, len);
        let image = if code { pattern(!token, 1 + token as usize % 200) } else { Vec::new() };
        let name = if code { "ifunc" } else { "" };
        let named = PlanCode { image: &image, id: CodeId([token as u8; 16]), epoch: 9, name, family: None };
        let kind = if code { Kind::CallCode } else { Kind::Call };
        let plan = Plan { align_log2, code: code.then_some(named), ..plan(kind, token) };
        let channel = &mut self.pair.peer_mut(left).channel;
        let space = match channel.reserve(&plan, len + slack) {
            Ok(space) => space,
            Err(SendError::Full) => return self.full += 1,
            // With code or alignment before it, the payload may be too long.
            Err(SendError::TooLarge { len: needed, max }) => {
                assert!(needed > max && (code || align_log2 > 6 || slack > 0), "{plan:?} {len} {slack}");
                return;
            }
            Err(error) => panic!("{error}"),
        };
        assert_eq!(space.space(), len + slack);
        let place = space.payload().as_ptr();
        assert!(place.addr().is_multiple_of(1 << if align_log2 == 0 { 3 } else { align_log2 }));
        // SAFETY: the channel lends `space` and `slack` bytes here until `commit`; the bytes behind the
        // payload mean nothing.
        unsafe {
            place.write_bytes(0xdd, space.space() + space.slack());
            std::ptr::copy_nonoverlapping(payload.as_ptr(), place, len);
        }
        space.commit(&plan, len).unwrap();
        self.expected[usize::from(left)].push_back((token, payload, name.as_bytes().to_vec(), image));
        self.sent += 1;
    }

    fn poll(&mut self, left: bool) -> bool {
        let peer = self.pair.peer_mut(left);
        let Polled::Frame(frame) = peer.channel.poll().unwrap() else {
            assert!(!self.held[usize::from(left)], "a frame that was seen is gone");
            return false;
        };
        let (mut payload, mut image) = (Vec::new(), Vec::new());
        frame.contents().copy_payload(&mut payload);
        frame.contents().copy_image(&mut image);
        let mut name = [0xee; 255];
        let len = frame.contents().copy_name_to(&mut name);
        let name = &name[..len];
        let expected = self.expected[usize::from(!left)].front().expect("a frame that nobody sent");
        assert_eq!(expected.0, frame.header().token, "order");
        assert!(
            *expected == (frame.header().token, payload, name.to_vec(), image),
            "frame {} differs",
            expected.0
        );
        assert!(frame.payload_is_aligned(1 << frame.header().align_log2()));
        assert_eq!(frame.contents().code().is_some(), frame.header().kind == Kind::CallCode);
        self.held[usize::from(left)] = true;
        true
    }

    fn release(&mut self, left: bool) {
        if std::mem::take(&mut self.held[usize::from(left)]) {
            let polled = self.pair.peer_mut(left).channel.poll().unwrap();
            let Polled::Frame(frame) = polled else { panic!("a frame that was seen is gone") };
            frame.release().unwrap();
            self.expected[usize::from(!left)].pop_front();
        }
    }

    fn step(&mut self, step: &Step, random: &mut impl FnMut(usize) -> usize) {
        match *step {
            Step::Send { left, len, slack, align_log2, code } => {
                self.send(left, len, slack, align_log2, code)
            }
            Step::Deliver { left, pieces, newest_first } => {
                let mut wire = self.pair.peer_mut(left).wire.lock().unwrap();
                for _ in 0..pieces {
                    wire.deliver(&mut |ways| if newest_first { ways - 1 } else { random(ways) });
                }
            }
            Step::Poll { left } => {
                self.poll(left);
            }
            Step::Release { left } => {
                // A held frame must still be the sent one.
                self.poll(left);
                self.release(left);
            }
            Step::Progress { left, idle } => {
                self.pair.peer_mut(left).channel.progress(idle).unwrap();
            }
            Step::Capacity { left, writes } => {
                self.pair.peer_mut(left).wire.lock().unwrap().set_capacity(writes)
            }
        }
    }

    /// Takes all sent frames and returns all credit.
    fn drain(&mut self, random: &mut impl FnMut(usize) -> usize) {
        let mut turns = 0;
        while self.expected.iter().any(|sent| !sent.is_empty())
            || [true, false].iter().any(|&left| self.pair.peer_mut(left).channel.in_flight() != Some(0))
        {
            turns += 1;
            assert!(
                turns < 10_000,
                "frames or credits are lost: {:?}",
                self.expected.each_ref().map(VecDeque::len)
            );
            for left in [true, false] {
                self.pair.peer_mut(left).channel.progress(true).unwrap();
                self.pair.peer_mut(left).wire.lock().unwrap().deliver(random);
                while self.pair.peer_mut(left).wire.lock().unwrap().deliver(random) {}
                while self.poll(left) {
                    self.release(left);
                }
            }
        }
    }
}

fn run(rule: usize, ring: usize, steps: &[Step], seed: u64) {
    let (rule, line_whole) = RULES[rule];
    let mut state = seed | 1;
    let mut random = move |ways: usize| {
        state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        (state >> 33) as usize % ways
    };
    let pair = Pair::new(rule, line_whole, ring);
    let mut run = Run { pair, expected: Default::default(), held: [false; 2], sent: 0, full: 0 };
    for step in steps {
        run.step(step, &mut random);
    }
    run.drain(&mut random);
    // After any such filling, the largest frame can be sent again.
    for left in [true, false] {
        let before = run.sent;
        for _ in 0..4 {
            if run.sent == before {
                run.send(left, largest(rule, ring), 0, 0, false);
                run.drain(&mut random);
            }
        }
        assert_eq!(run.sent, before + 1, "a ring that is empty takes a frame of its own length");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, max_shrink_iters: 4_000, ..ProptestConfig::default() })]

    #[test]
    fn frames_through_the_smallest_ring_arrive_whole_in_order_and_once(
        rule in 0..RULES.len(), steps in prop::collection::vec(step(4096 - 72), 1..160), seed: u64,
    ) {
        run(rule, 4096, &steps, seed);
    }

    #[test]
    fn frames_through_a_larger_ring_arrive_whole_in_order_and_once(
        rule in 0..RULES.len(), steps in prop::collection::vec(step(16_384 - 72), 1..160), seed: u64,
    ) {
        run(rule, 16_384, &steps, seed);
    }
}

#[test]
fn a_full_ring_says_so_and_goes_on_when_credit_has_come() {
    for (rule, line_whole) in RULES {
        let mut pair = Pair::new(rule, line_whole, 4096);
        let (mut sent, mut taken) = (0, 0);
        let per_lap = 4096 / 64;
        for lap in 0..5 {
            while let Ok(()) = pair.left.send_packed(sent, &pattern(sent, 32)) {
                sent += 1;
                pair.settle();
                assert!(sent - taken <= per_lap, "{rule:?}: frames over frames that nobody has taken");
            }
            assert_eq!(sent - taken, per_lap, "{rule:?}, lap {lap}: Full before the ring was");
            assert!(matches!(pair.left.send_packed(sent, &[]), Err(SendError::Full)));
            assert_eq!(pair.left.channel.in_flight(), Some(4096));
            // One frame less than a quarter returns no credit by itself, a quarter does.
            for turn in 0..per_lap / 4 {
                assert!(matches!(pair.left.send_packed(sent, &[]), Err(SendError::Full)), "turn {turn}");
                assert_eq!(pair.right.take(), Some((taken, pattern(taken, 32))));
                taken += 1;
                pair.settle();
            }
            assert_eq!(pair.left.channel.in_flight(), Some(4096 - 1024));
        }
        while let Some((token, _)) = pair.right.take() {
            assert_eq!(token, taken);
            taken += 1;
        }
        assert_eq!(taken, sent);
    }
}

#[test]
fn a_frame_of_ring_length_always_fits_and_a_longer_never() {
    for (rule, line_whole) in RULES {
        let mut pair = Pair::new(rule, line_whole, 4096);
        let largest = largest(rule, 4096);
        for token in 0..80 {
            assert!(matches!(
                pair.left.send(token, &vec![0; largest + 1]),
                Err(SendError::TooLarge { len: 4160, max: 4096 })
            ));
            // Advances by a line, then by everything: skips of every length.
            for payload in [pattern(token, 1), pattern(token, largest)] {
                let mut turns = 0;
                while pair.left.send(token, &payload).is_err() {
                    pair.settle();
                    assert_eq!(pair.right.take(), None);
                    pair.right.channel.progress(true).unwrap();
                    pair.settle();
                    turns += 1;
                    assert!(turns < 4, "{rule:?}: no space in an empty ring");
                }
                pair.settle();
                assert_eq!(pair.right.take(), Some((token, payload)), "{rule:?}");
                pair.right.channel.progress(true).unwrap();
                pair.settle();
            }
        }
    }
}
