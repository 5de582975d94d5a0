//! `FaultInjector`: each fault has its stated effect and probability, and is the same for the same seed.

use std::sync::{Arc, Mutex};

use farjump_core::transport::{ArrivalRules, Cause, Transport};
use farjump_integration_tests::fakes::{FakeHandle, FakeOneSided, FakeTwoSided, Rule};
use farjump_integration_tests::middleware::{
    Fault, FaultHandle, FaultInjector, Faults, Hold, PerMille, Trace,
};

use super::{
    Direction, REGION, direction, patiently, pattern, put, receive, request, send, try_send, two_sided,
};

const SIGNAL: u64 = 0x1122_3344_5566_7788;
const TURNS: u32 = 5;

/// A one-sided link whose sender is faulty.
struct Faulty {
    link: Direction,
    faults: FaultHandle,
    fake: FakeHandle,
}

fn faulty(rule: Rule, seed: u64, faults: Faults) -> Faulty {
    let fake = FakeOneSided::new(rule, seed).with_queue(128);
    let handle = fake.handle();
    let mut injector = FaultInjector::new(Box::new(fake), seed, faults);
    let link = direction(&mut injector, &mut FakeOneSided::new(rule, seed));
    Faulty { link, faults: injector.handle(), fake: handle }
}

impl Faulty {
    /// Delivers everything that the injector has let through.
    fn settle(&self) {
        while self.fake.pump(1) > 0 {}
    }

    fn turn(&mut self) {
        self.link.remote.progress().unwrap();
        self.settle();
    }

    /// A frame of 256 bytes as core puts it by the rule `fenced`.
    fn put_frame(&mut self, at: usize, body: &[u8]) {
        put(&mut *self.link.remote, at + 8, body, at as u64);
        self.link.remote.fence().unwrap();
        patiently(&mut *self.link.remote, |remote| remote.put_word(at, SIGNAL, at as u64));
        self.settle();
    }
}

fn always(fault: Fault) -> Faults {
    let mut faults = Faults { hold: Hold::Turns(TURNS), ..Faults::NONE };
    let odds = match fault {
        Fault::Delay => &mut faults.delay,
        Fault::Truncate => &mut faults.truncate,
        Fault::HoldLastWord => &mut faults.hold_last_word,
        Fault::FlipBit => &mut faults.flip_bit,
        Fault::Overtake => &mut faults.overtake,
        Fault::Kill => &mut faults.kill,
    };
    *odds = PerMille::ALWAYS;
    faults
}

#[test]
fn without_faults_everything_passes_as_it_is() {
    let body = pattern(248, 1);
    let mut faulty = faulty(Rule::Fenced, 1, Faults::NONE);
    for at in (0..REGION).step_by(256) {
        faulty.put_frame(at, &body);
        assert_eq!((faulty.link.see(at + 8, 248), faulty.link.word(at)), (body.clone(), SIGNAL));
    }
    assert_eq!(faulty.faults.total(), 0);
    faulty.fake.assert_clean();
}

#[test]
fn a_naive_reader_sees_an_overtaking_signal_before_the_body() {
    let body = pattern(248, 1);
    let mut faulty = faulty(Rule::Fenced, 1, always(Fault::Overtake));
    faulty.put_frame(0, &body);
    assert_eq!(faulty.link.word(0), SIGNAL, "the signal is there,");
    assert_eq!(faulty.link.see(248, 8), body[240..], "so is the trailer,");
    assert_eq!(faulty.link.see(8, 240), [0; 240], "and nothing in between");
    for _ in 0..TURNS {
        assert_eq!(faulty.link.see(8, 240), [0; 240]);
        faulty.turn();
    }
    assert_eq!(faulty.link.see(8, 248), body);
    assert_eq!((faulty.faults.count(Fault::Overtake), faulty.faults.total()), (1, 1));
    faulty.fake.assert_clean();
}

#[test]
fn a_completion_overtakes_the_body() {
    let mut faulty = faulty(Rule::WriteImm, 1, always(Fault::Overtake));
    faulty.link.remote.put_with_completion(0, &pattern(256, 1), 0).unwrap();
    faulty.settle();
    assert_eq!(faulty.link.local.completions().unwrap(), 1);
    assert_eq!(faulty.link.see(0, 248), [0; 248]);
}

#[test]
fn a_last_word_held_back_comes_late_or_never() {
    for (hold, comes) in [(Hold::Turns(TURNS), true), (Hold::Forever, false)] {
        let body = pattern(248, 1);
        let mut faulty = faulty(Rule::Fenced, 1, Faults { hold, ..always(Fault::HoldLastWord) });
        faulty.put_frame(0, &body);
        for _ in 0..TURNS {
            assert_eq!(faulty.link.word(0), SIGNAL);
            assert_eq!(faulty.link.see(8, 240), body[..240]);
            assert_eq!(faulty.link.word(248), 0, "the trailer is there too early");
            faulty.turn();
        }
        for _ in 0..1000 {
            faulty.turn();
        }
        assert_eq!(faulty.link.word(248) != 0, comes);
        assert_eq!(faulty.faults.count(Fault::HoldLastWord), 1);
        faulty.fake.assert_clean();
    }
}

#[test]
fn a_delay_keeps_to_the_fences_and_loses_nothing() {
    for seed in 0..40 {
        let faults = Faults { delay: PerMille(300), hold: Hold::Turns(TURNS), ..Faults::NONE };
        let mut faulty = faulty(Rule::Fenced, seed, faults);
        let frames: Vec<Vec<u8>> = (0..32).map(|frame| pattern(248, frame)).collect();
        let check = |faulty: &Faulty| {
            for (index, body) in frames.iter().enumerate() {
                let at = index * 256;
                let whole = faulty.link.see(at + 8, 248) == *body;
                assert!(whole || faulty.link.word(at) == 0, "seed {seed}: signal {index} before its body");
            }
        };
        for (index, body) in frames.iter().enumerate() {
            faulty.put_frame(index * 256, body);
            check(&faulty);
        }
        for _ in 0..64 * TURNS {
            faulty.turn();
            check(&faulty);
        }
        for index in 0..frames.len() {
            assert_eq!(faulty.link.word(index * 256), SIGNAL, "seed {seed}: frame {index} was lost");
        }
        assert!(faulty.faults.count(Fault::Delay) > 0);
        assert_eq!(faulty.faults.count(Fault::Delay), faulty.faults.total());
        faulty.fake.assert_clean();
    }
}

#[test]
fn a_put_truncated_ends_early() {
    let body = pattern(248, 1);
    let mut faulty = faulty(Rule::Fenced, 1, always(Fault::Truncate));
    faulty.put_frame(0, &body);
    let seen = faulty.link.see(8, 248);
    let kept = seen.iter().take_while(|byte| **byte != 0).count();
    assert!(kept < 248);
    assert_eq!(seen[..kept], body[..kept]);
    assert_eq!(seen[kept..], vec![0; 248 - kept]);
    assert_eq!((faulty.link.word(0), faulty.faults.count(Fault::Truncate)), (SIGNAL, 1));
}

#[test]
fn one_bit_flips_in_each_put_and_word() {
    let body = pattern(248, 1);
    let mut faulty = faulty(Rule::Fenced, 1, always(Fault::FlipBit));
    faulty.put_frame(0, &body);
    let seen = faulty.link.see(8, 248);
    let wrong: u32 = seen.iter().zip(&body).map(|(seen, sent)| (seen ^ sent).count_ones()).sum();
    assert_eq!((wrong, (faulty.link.word(0) ^ SIGNAL).count_ones()), (1, 1));
    assert_eq!(faulty.faults.count(Fault::FlipBit), 2);
    faulty.fake.assert_clean();
}

#[test]
fn a_killed_link_fails_every_later_operation() {
    let mut injector = FaultInjector::new(
        Box::new(FakeOneSided::new(Rule::WriteImm, 1)),
        1,
        Faults { spare: 3, ..always(Fault::Kill) },
    );
    let mut receiver = FakeOneSided::new(Rule::WriteImm, 2);
    let mut link = direction(&mut injector, &mut receiver);
    for frame in 0..3 {
        link.remote.put(64, &[1; 64], frame).unwrap();
    }
    let error = link.remote.put(64, &[1; 64], 77).unwrap_err();
    assert_eq!((error.cause(), error.frame()), (&Cause::PeerGone, Some(77)));
    for result in [
        link.remote.put(0, &[1], 0),
        link.remote.put_word(0, 1, 0),
        link.remote.put_with_completion(0, &[1], 0),
        link.remote.fence(),
        link.remote.progress(),
        link.remote.wake_peer(),
        link._senders_local.completions().map(|_| ()),
        link._senders_local.before_sleep().map(|_| ()),
        link._senders_local.after_sleep(),
    ] {
        assert_eq!(*result.unwrap_err().cause(), Cause::PeerGone);
    }
    assert_eq!(injector.handle().count(Fault::Kill), 1);
    // Another link of the same transport is not affected.
    direction(&mut injector, &mut receiver).remote.put(0, &[1], 0).unwrap();
}

#[test]
fn a_doorbell_waits_for_earlier_puts_but_not_for_lost_ones() {
    for (hold, waits) in [(Hold::Turns(TURNS), TURNS), (Hold::Forever, 0)] {
        let lines = Arc::new(Mutex::new(Vec::new()));
        let sink = lines.clone();
        let fake = FakeOneSided::new(Rule::Fenced, 1);
        let trace = Trace::new(Box::new(fake), move |event| sink.lock().unwrap().push(event.to_string()));
        let faults = Faults { limit: 1, hold, ..always(Fault::Delay) };
        let mut injector = FaultInjector::new(Box::new(trace), 1, faults);
        let mut link = direction(&mut injector, &mut FakeOneSided::new(Rule::Fenced, 2));
        link.remote.put(64, &[1; 64], 0).unwrap();
        link.remote.put(128, &[2; 64], 64).unwrap();
        link.remote.wake_peer().unwrap();
        let rings = || lines.lock().unwrap().iter().filter(|line| line.ends_with(" ring")).count();
        for turn in 0..TURNS {
            assert_eq!(rings(), usize::from(turn >= waits), "{hold:?}: after {turn} turns");
            link.remote.progress().unwrap();
        }
        assert_eq!(rings(), 1, "{hold:?}");
        let last = lines.lock().unwrap().last().cloned();
        assert_eq!(last.unwrap(), "fake-one-sided#0 ring", "{hold:?}: behind all that came");
    }
}

#[test]
fn a_handle_breaks_all_links_at_once() {
    let mut faulty = faulty(Rule::Fenced, 1, Faults::NONE);
    faulty.link.remote.put(0, &[1; 8], 0).unwrap();
    faulty.faults.kill();
    assert_eq!(*faulty.link.remote.put(0, &[1; 8], 0).unwrap_err().cause(), Cause::PeerGone);
    assert_eq!(faulty.faults.total(), 0);
}

#[test]
fn spare_and_limit_single_out_one_put() {
    let faults = Faults { spare: 4, limit: 1, hold: Hold::Forever, ..always(Fault::HoldLastWord) };
    let mut faulty = faulty(Rule::Checked, 1, faults);
    for index in 0..10 {
        put(&mut *faulty.link.remote, index * 64, &pattern(64, 1), 0);
    }
    faulty.settle();
    let torn: Vec<usize> = (0..10).filter(|index| faulty.link.word(index * 64 + 56) == 0).collect();
    assert_eq!((torn, faulty.faults.total()), (vec![4], 1));
}

#[test]
fn the_same_seed_injects_the_same_faults_and_each_link_its_own() {
    let faults = Faults {
        delay: PerMille(100),
        truncate: PerMille(100),
        hold_last_word: PerMille(100),
        flip_bit: PerMille(100),
        overtake: PerMille(100),
        ..Faults::NONE
    };
    let history = |injector: &mut FaultInjector, fake: &FakeHandle| {
        let mut link = direction(injector, &mut FakeOneSided::new(Rule::InOrder, 1));
        let mut steps = Vec::new();
        for index in 0..64 {
            put(&mut *link.remote, index * 64, &pattern(64, index as u64), 0);
            while fake.pump(1) > 0 {}
            steps.push(link.see(0, 4096));
        }
        steps
    };
    let injector = |seed| {
        let fake = FakeOneSided::new(Rule::InOrder, 1);
        let handle = fake.handle();
        (FaultInjector::new(Box::new(fake), seed, faults), handle)
    };
    let [(mut first, a), (mut again, b), (mut other, c)] = [injector(7), injector(7), injector(8)];
    let one = history(&mut first, &a);
    assert_eq!(one, history(&mut again, &b));
    assert_ne!(one, history(&mut other, &c));
    assert_ne!(one, history(&mut first, &a), "the second link of one injector failed like its first");
    for fault in Fault::ALL {
        assert_eq!(again.handle().count(fault) > 0, fault != Fault::Kill, "{fault:?}");
    }
}

#[test]
fn a_full_backend_underneath_neither_loses_nor_draws_again() {
    let fake = FakeOneSided::new(Rule::Fenced, 3).with_queue(1);
    let handle = fake.handle();
    let mut injector = FaultInjector::new(Box::new(fake), 3, Faults { limit: 64, ..always(Fault::FlipBit) });
    let mut link = direction(&mut injector, &mut FakeOneSided::new(Rule::Fenced, 4));
    let bytes = pattern(REGION, 1);
    let mut refused = 0;
    for (index, part) in bytes.chunks(64).enumerate() {
        while let Err(error) = link.remote.put(index * 64, part, index as u64 * 64) {
            assert!(error.is_full(), "{error}");
            refused += 1;
            link.remote.progress().unwrap();
        }
    }
    assert!(refused > 0, "the injector was never full");
    for _ in 0..10_000 {
        link.remote.progress().unwrap();
    }
    while handle.pump(1) > 0 {}
    let seen = link.see(0, REGION);
    let wrong = |range: std::ops::Range<usize>| -> u32 {
        seen[range.clone()].iter().zip(&bytes[range]).map(|(seen, sent)| (seen ^ sent).count_ones()).sum()
    };
    assert_eq!((wrong(0..64 * 64), wrong(64 * 64..REGION)), (64, 0), "a bit in each of the first 64 puts");
    handle.assert_clean();
}

#[test]
fn an_injector_offers_only_possible_and_selected_arrival_rules() {
    let injector = |faults| FaultInjector::new(Box::new(FakeOneSided::new(Rule::Stores, 1)), 1, faults);
    assert_eq!(injector(Faults::NONE).capabilities().arrival, ArrivalRules::FENCED | ArrivalRules::CHECKED);
    let checked = injector(Faults::NONE).offering(ArrivalRules::CHECKED | ArrivalRules::DELIVERED);
    assert_eq!(checked.capabilities().arrival, ArrivalRules::CHECKED);
    let error = injector(Faults::NONE).offering(ArrivalRules::DELIVERED).open(&request()).err().unwrap();
    assert!(matches!(error.cause(), Cause::Unsupported(_)), "{error}");
}

#[test]
fn messages_are_delayed_in_order_and_none_is_lost() {
    let faults = Faults { delay: PerMille(300), hold: Hold::Turns(TURNS), ..Faults::NONE };
    let mut injector = FaultInjector::new(Box::new(FakeTwoSided::new(1)), 1, faults);
    let (mut left, mut right) = two_sided(&mut injector, &mut FakeTwoSided::new(2));
    let sent: Vec<Vec<u8>> = (0..200).map(|frame| pattern(128, frame)).collect();
    let mut received = Vec::new();
    // The receiver takes messages while others are still held. If all were sent first, every delay would be over
    // before its message's turn.
    for turn in 0..20_000 {
        if let Some(message) = sent.get(turn) {
            send(&mut *left, message, turn as u64);
        }
        left.progress().unwrap();
        received.extend(right.poll().unwrap().map(|_| receive(&mut *right).unwrap().unwrap()));
    }
    assert_eq!(received, sent);
    assert!(injector.handle().count(Fault::Delay) > 0);
}

#[test]
fn messages_are_spoilt_as_each_fault_says() {
    let sent = pattern(256, 1);
    let spoilt = |fault| {
        let fake = FakeTwoSided::new(1);
        let handle = fake.handle();
        let mut injector = FaultInjector::new(Box::new(fake), 1, Faults { limit: 1, ..always(fault) });
        let (mut left, mut right) = two_sided(&mut injector, &mut FakeTwoSided::new(2));
        for frame in 0..2 {
            send(&mut *left, &pattern(256, frame + 1), frame);
        }
        for _ in 0..100 {
            left.progress().unwrap();
        }
        let messages: Vec<Vec<u8>> = std::iter::from_fn(|| receive(&mut *right).unwrap()).collect();
        assert_eq!((messages.len(), injector.handle().count(fault)), (2, 1), "{fault:?}");
        handle.assert_clean();
        messages
    };
    let truncated = &spoilt(Fault::Truncate)[0];
    assert!(truncated.len() < 256 && truncated.len() % 64 == 0 && !truncated.is_empty());
    assert_eq!(*truncated, sent[..truncated.len()]);
    assert_eq!(spoilt(Fault::HoldLastWord)[0], [&sent[..248], &[0; 8]].concat());
    let flipped = &spoilt(Fault::FlipBit)[0];
    assert_eq!(flipped.iter().zip(&sent).map(|(seen, sent)| (seen ^ sent).count_ones()).sum::<u32>(), 1);
    assert_eq!(spoilt(Fault::Overtake), [pattern(256, 2), sent.clone()]);
}

#[test]
fn a_killed_message_path_fails_at_both_ends_of_its_use() {
    let mut injector =
        FaultInjector::new(Box::new(FakeTwoSided::new(1)), 1, Faults { spare: 1, ..always(Fault::Kill) });
    let (mut left, _right) = two_sided(&mut injector, &mut FakeTwoSided::new(2));
    send(&mut *left, &pattern(64, 0), 0);
    let error = try_send(&mut *left, &pattern(64, 1), 1).unwrap_err();
    assert_eq!((error.cause(), error.frame()), (&Cause::PeerGone, Some(1)));
    for result in [
        left.reserve(64).map(|_| ()),
        left.poll().map(|_| ()),
        left.progress(),
        left.arm().map(|_| ()),
        left.disarm(),
    ] {
        assert_eq!(*result.unwrap_err().cause(), Cause::PeerGone);
    }
}
