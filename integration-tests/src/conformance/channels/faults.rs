//! Transports that break the contract: torn frames never surface, and the suite notices transports that lie.

use crate::middleware::{Fault, FaultHandle, FaultInjector, Faults, Hold, PerMille};
use farjump_core::channel::{Channel, Polled};
use farjump_core::transport::{ArrivalRules, Transport};
use farjump_transports::shm::Shm;

use super::connect::ChannelPair;
use super::laps::{self, SIZES};
use super::stream::{Receiver, Sender, Style};
use crate::conformance::failure::Failure;
use crate::conformance::subject::{Pair, Subject};
use crate::fakes::{FakeOneSided, FakeTwoSided, Rule};

/// Turns without movement after which a link counts as stalled: far more than any frame is held back for.
const STALLED: u32 = 300;

fn with(fault: Fault, odds: PerMille, hold: Hold) -> Faults {
    let mut faults = Faults { hold, spare: 5, ..Faults::NONE };
    match fault {
        Fault::Delay => faults.delay = odds,
        Fault::Truncate => faults.truncate = odds,
        Fault::HoldLastWord => faults.hold_last_word = odds,
        Fault::FlipBit => faults.flip_bit = odds,
        Fault::Overtake => faults.overtake = odds,
        Fault::Kill => faults.kill = odds,
    }
    faults
}

/// Channels of which the left one's frames are spoilt.
fn spoilt(
    inner: impl Fn() -> Box<dyn Transport> + Send + Sync + 'static,
    rule: ArrivalRules,
    seed: u64,
    faults: Faults,
) -> (ChannelPair, FaultHandle) {
    let (reported, handle) = std::sync::mpsc::channel();
    let subject = Subject::new("spoilt", rule, move || {
        let injector = FaultInjector::new(inner(), seed, faults).offering(rule);
        reported.send(injector.handle()).unwrap();
        Pair::new(Box::new(injector), inner())
    });
    let ends = ChannelPair::connect(&subject, 16 << 10, 8 << 10).unwrap();
    (ends, handle.recv().unwrap())
}

fn shm() -> Box<dyn Transport> {
    Box::new(Shm::new())
}

fn style(seed: u64) -> Style<'static> {
    Style { seed, sizes: &SIZES[..32], varied: true }
}

/// Sends from left to right until nothing moves any more or `frames` have arrived. Compares all of them.
fn run_until_stalled(ends: &mut ChannelPair, style: Style<'_>, frames: u64) -> Result<u64, Failure> {
    let (mut sender, mut receiver) = (Sender::new(style), Receiver::new(style));
    let mut still = 0;
    while receiver.taken() < frames && still < STALLED {
        let sent = sender.sent() < frames && sender.send(&mut ends.left)?;
        let took = receiver.take(&mut ends.right)?;
        ends.progress()?;
        still = if sent || took { 0 } else { still + 1 };
    }
    Ok(receiver.taken())
}

/// Makes links with one kind of fault, until enough frames have arrived and enough were spoilt. Fails at the first
/// wrong frame.
fn nothing_torn_surfaces(
    rule: ArrivalRules,
    inner: fn(u64) -> Box<dyn Transport>,
    fault: Fault,
) -> Result<(), Failure> {
    let (mut taken, mut injected) = (0, 0);
    for seed in 0.. {
        let faults = with(fault, PerMille(15), Hold::Turns(7));
        let (mut ends, handle) = spoilt(move || inner(seed), rule, seed, faults);
        taken += run_until_stalled(&mut ends, style(seed), 1000)
            .map_err(|failure| failure.at(format!("{fault:?} surfaced in link {seed}")))?;
        injected += handle.count(fault);
        if taken >= 4_000 && injected >= 50 {
            return Ok(());
        }
        assert!(seed < 5_000, "{fault:?}: only {taken} frames and {injected} faults");
    }
    unreachable!("seeds do not end")
}

#[test]
fn under_checked_nothing_torn_ever_surfaces_over_shm() {
    for fault in [Fault::Truncate, Fault::HoldLastWord, Fault::FlipBit, Fault::Overtake] {
        nothing_torn_surfaces(ArrivalRules::CHECKED, |_| shm(), fault).unwrap();
    }
}

#[test]
fn without_a_checksum_as_many_faults_surface() {
    for fault in [Fault::FlipBit, Fault::Overtake] {
        assert!(nothing_torn_surfaces(ArrivalRules::FENCED, |_| shm(), fault).is_err(), "{fault:?}");
    }
}

#[test]
fn under_checked_nothing_torn_ever_surfaces_over_reordered_writes() {
    for fault in [Fault::Truncate, Fault::HoldLastWord, Fault::FlipBit, Fault::Overtake] {
        let inner = |seed| Box::new(FakeOneSided::new(Rule::Checked, seed)) as Box<dyn Transport>;
        nothing_torn_surfaces(ArrivalRules::CHECKED, inner, fault).unwrap();
    }
}

#[test]
fn a_frame_with_a_late_trailer_is_partial_until_it_arrives() {
    for rule in [Rule::InOrder, Rule::Checked] {
        let faults = with(Fault::HoldLastWord, PerMille::ALWAYS, Hold::Turns(40));
        let inner = move || Box::new(FakeOneSided::new(rule, 5)) as Box<dyn Transport>;
        let (mut ends, handle) = spoilt(inner, rule.offered(), 5, faults);
        let (mut sender, mut receiver) = (Sender::new(style(5)), Receiver::new(style(5)));
        while receiver.taken() < 20 {
            if sender.sent() == receiver.taken() {
                assert!(sender.send(&mut ends.left).unwrap());
            }
            receiver.take(&mut ends.right).unwrap();
            ends.progress().unwrap();
        }
        assert!(handle.count(Fault::HoldLastWord) >= 15);
        assert!(receiver.partial() >= 15, "{rule:?}: {} looks saw a part", receiver.partial());
    }
}

#[test]
fn a_trailer_that_never_comes_is_seen_as_a_part_for_ever() {
    let faults = with(Fault::HoldLastWord, PerMille::ALWAYS, Hold::Forever);
    let inner = || Box::new(FakeOneSided::new(Rule::InOrder, 6)) as Box<dyn Transport>;
    let (mut ends, _) = spoilt(inner, ArrivalRules::IN_ORDER, 6, faults);
    // The injector spares the first five frames.
    assert_eq!(run_until_stalled(&mut ends, style(6), 100).unwrap(), 5);
    for _ in 0..1000 {
        assert!(matches!(ends.right.poll(), Ok(Polled::Partial)));
        ends.progress().unwrap();
    }
}

#[test]
fn a_broken_link_fails_every_operation_and_keeps_earlier_frames_right() {
    for seed in 0..50 {
        let faults = with(Fault::Kill, PerMille(100), Hold::Forever);
        let (mut ends, handle) = spoilt(shm, ArrivalRules::FENCED, seed, faults);
        let failure = run_until_stalled(&mut ends, style(seed), u64::MAX).unwrap_err().to_string();
        assert!(failure.contains("the peer is gone") && failure.contains("shm"), "{failure}");
        assert_eq!(handle.count(Fault::Kill), 1);
        let after: [fn(&mut Channel) -> bool; 3] = [
            |left| left.progress(true).is_err(),
            |left| left.arm().is_err(),
            |left| Sender::new(style(0)).send(left).is_err(),
        ];
        for operation in after {
            assert!(operation(&mut ends.left));
        }
    }
}

/// A subject whose source spoils frames and claims not to.
fn liar(rule: ArrivalRules, faults: Faults, inner: fn() -> Box<dyn Transport>) -> Subject {
    Subject::new("liar", rule, move || {
        Pair::new(Box::new(FaultInjector::new(inner(), 9, faults).offering(rule)), inner())
    })
}

#[test]
fn the_suite_notices_a_signal_that_comes_before_its_body() {
    let faults = with(Fault::Overtake, PerMille(20), Hold::Turns(3));
    let failure = laps::laps(&liar(ArrivalRules::FENCED, faults, shm)).unwrap_err().to_string();
    assert!(failure.starts_with("frame "), "{failure}");
}

#[test]
fn the_suite_notices_one_word_of_payload_that_comes_after_the_signal() {
    let faults = with(Fault::HoldLastWord, PerMille(50), Hold::Turns(30));
    let (mut ends, _) = spoilt(shm, ArrivalRules::FENCED, 8, faults);
    // Payloads that fill their last line.
    let style = Style { seed: 8, sizes: &[64, 128, 640], varied: false };
    let failure = run_until_stalled(&mut ends, style, 5_000).unwrap_err().to_string();
    assert!(failure.starts_with("frame ") && failure.contains(": byte "), "{failure}");
}

#[test]
fn the_suite_notices_a_bit_that_is_wrong_in_a_message() {
    let faults = with(Fault::FlipBit, PerMille(20), Hold::Turns(3));
    let subject = liar(ArrivalRules::DELIVERED, faults, || Box::new(FakeTwoSided::new(3)));
    let failure = laps::laps(&subject).unwrap_err().to_string();
    assert!(failure.starts_with("frame "), "{failure}");
}

#[test]
fn the_suite_notices_messages_that_overtake_each_other() {
    let faults = with(Fault::Overtake, PerMille(20), Hold::Turns(3));
    let subject = liar(ArrivalRules::DELIVERED, faults, || Box::new(FakeTwoSided::new(3)));
    let failure = laps::laps(&subject).unwrap_err().to_string();
    assert!(failure.contains("another position"), "{failure}");
}
