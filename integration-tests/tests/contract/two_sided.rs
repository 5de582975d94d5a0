//! The guarantees of `FakeTwoSided`, and the misuse that it detects.

use farjump_core::transport::{Address, Cause, Transport};
use farjump_integration_tests::fakes::{FakeTwoSided, Violation};

use super::{commit, pattern, receive, request, send, try_send, two_sided};

#[test]
fn messages_arrive_whole_in_order_and_aligned_to_exactly_one_line() {
    for seed in 1..4 {
        let mut fake = FakeTwoSided::new(seed).with_queue(200);
        let (mut left, mut right) = two_sided(&mut fake, &mut FakeTwoSided::new(seed + 9));
        for frame in 0..100 {
            send(&mut *left, &pattern(64 * (1 + frame as usize % 7), frame), frame);
        }
        for frame in 0..100 {
            let mut found = None;
            for _ in 0..1000 {
                found = found.or(right.poll().unwrap());
            }
            let message = found.expect("a message was lost");
            assert_eq!(right.poll().unwrap(), found, "the same one until it is released");
            let len = message.len();
            assert_eq!(message.start().as_ptr().addr() % 128, 64);
            assert_eq!(len, 64 * (1 + frame as usize % 7));
            assert_eq!(receive(&mut *right).unwrap().unwrap(), pattern(len, frame));
        }
        assert_eq!(receive(&mut *right).unwrap(), None);
        fake.handle().assert_clean();
    }
}

#[test]
fn a_full_queue_refuses_and_a_refused_commit_keeps_its_space() {
    let mut fake = FakeTwoSided::new(4).with_queue(3);
    let (mut left, mut right) = two_sided(&mut fake, &mut FakeTwoSided::new(5));
    let mut refused = 0;
    for frame in 0..300 {
        while let Err(error) = left.reserve(64) {
            assert!(error.is_full(), "{error}");
            receive(&mut *right).unwrap().expect("full, and nothing to receive");
        }
        let space = left.reserve(64).unwrap();
        // SAFETY: 64 bytes are lent until the commit, and are aligned for this type.
        unsafe { space.cast::<[u64; 8]>().write([frame; 8]) };
        while let Err(error) = left.commit(64, frame) {
            assert!(error.is_full(), "{error}");
            refused += 1;
        }
    }
    let mut rest = Vec::new();
    while let Some(message) = receive(&mut *right).unwrap() {
        rest.push(u64::from_ne_bytes(message[56..].try_into().unwrap()));
    }
    assert_eq!(rest, [297, 298, 299]);
    assert!(refused > 0, "no commit was ever refused");
    fake.handle().assert_clean();
}

#[test]
fn a_message_over_the_limit_can_never_be_sent() {
    let mut fake = FakeTwoSided::new(1).with_max_frame(4096);
    let (mut left, _right) = two_sided(&mut fake, &mut FakeTwoSided::new(2));
    left.reserve(4096).unwrap();
    assert_eq!(*left.reserve(4097).unwrap_err().cause(), Cause::TooLarge { len: 4097, max: 4096 });
    send(&mut *left, &pattern(4096, 0), 0);
    fake.handle().assert_clean();
}

#[test]
fn lent_space_is_not_zeroed_and_released_messages_are_overwritten() {
    let mut fake = FakeTwoSided::new(1);
    let (mut left, mut right) = two_sided(&mut fake, &mut FakeTwoSided::new(2));
    let space = left.reserve(64).unwrap();
    // SAFETY: 64 bytes are lent until the commit, and the fake initialised them.
    assert_ne!(unsafe { space.cast::<u64>().read() }, 0);
    send(&mut *left, &pattern(64, 0), 0);
    let start = (0..1000).find_map(|_| right.poll().unwrap()).unwrap().start();
    right.release();
    // SAFETY: the fake keeps the memory of the last released message, for exactly such readers.
    assert_eq!(unsafe { start.cast::<[u8; 8]>().read() }, [0xdd; 8]);
}

#[test]
fn a_dead_peer_fails_sends_at_once_and_receives_once_drained() {
    for seed in 0..50 {
        let (mut ours, mut theirs) = (FakeTwoSided::new(seed), FakeTwoSided::new(seed));
        let (mut left, mut right) = two_sided(&mut ours, &mut theirs);
        for frame in 0..5 {
            send(&mut *right, &pattern(64, frame), frame);
        }
        drop(right);
        assert_eq!(*try_send(&mut *left, &pattern(64, 0), 8).unwrap_err().cause(), Cause::PeerGone);
        for frame in 0..5 {
            assert_eq!(receive(&mut *left).unwrap(), Some(pattern(64, frame)));
        }
        assert_eq!(*receive(&mut *left).unwrap_err().cause(), Cause::PeerGone);
        left.reserve(64).unwrap_err();
        assert_eq!(ours.handle().violations(), [Violation::UsedAfterError]);
    }
}

#[test]
fn messages_that_a_gone_peer_cannot_take_are_reported_by_number() {
    // Finds a seed with which the commit leaves the message on its way.
    let reported = (0..50).any(|seed| {
        let mut fake = FakeTwoSided::new(seed);
        let (mut left, right) = two_sided(&mut fake, &mut FakeTwoSided::new(seed));
        for frame in 40..44 {
            send(&mut *left, &pattern(64, frame), frame);
        }
        drop(right);
        left.progress().is_err_and(|error| {
            assert_eq!(*error.cause(), Cause::PeerGone);
            error.frame().is_some_and(|frame| (40..44).contains(&frame))
        })
    });
    assert!(reported);
}

#[test]
fn misuse_is_refused_and_recorded() {
    let expected = [
        (64, 0, Violation::CommitTooShort { frame: 3, len: 0 }),
        (64, 65, Violation::CommitTooLong { frame: 3, len: 65, reserved: 64 }),
        (128, 15, Violation::CommitTooShort { frame: 3, len: 15 }),
        (0, 64, Violation::CommitWithoutReserve { frame: 3 }),
    ];
    for (reserved, committed, violation) in expected {
        let mut fake = FakeTwoSided::new(1);
        let (mut left, _right) = two_sided(&mut fake, &mut FakeTwoSided::new(2));
        if reserved > 0 {
            left.reserve(reserved).unwrap();
        }
        commit(&mut *left, committed, 3).unwrap_err();
        assert_eq!(fake.handle().violations(), [violation]);
    }
}

#[test]
fn writing_after_the_commit_is_noticed_and_changes_nothing() {
    let noticed = (0..50).any(|seed| {
        let mut fake = FakeTwoSided::new(seed);
        let (mut left, mut right) = two_sided(&mut fake, &mut FakeTwoSided::new(seed));
        let space = left.reserve(64).unwrap().cast::<[u8; 64]>();
        // SAFETY: 64 bytes are lent until the commit.
        unsafe { space.write([1; 64]) };
        commit(&mut *left, 64, 6).unwrap();
        if fake.handle().pending() == 0 {
            return false;
        }
        // SAFETY: against the contract, but the fake still holds the memory while the message is on its way.
        unsafe { space.write([2; 64]) };
        assert_eq!(receive(&mut *right).unwrap().unwrap(), [1; 64]);
        fake.handle().violations() == [Violation::WrittenAfterCommit { frame: 6 }]
    });
    assert!(noticed);
}

#[test]
fn addresses_that_lead_nowhere_are_refused() {
    let mut fake = FakeTwoSided::new(1);
    let gone = fake.open(&request()).unwrap().address().try_to_owned().unwrap();
    let taken = fake.open(&request()).unwrap();
    let _peer = fake.open(&request()).unwrap().connect(taken.address().try_to_owned().unwrap(), 100).unwrap();
    let other = farjump_integration_tests::fakes::FakeOneSided::new(
        farjump_integration_tests::fakes::Rule::Fenced,
        1,
    )
    .open(&request())
    .unwrap();
    let cases = [
        (Address::default(), "kind and version"),
        (other.address().try_to_owned().unwrap(), "kind and version"),
        (gone, "no end"),
        (taken.address().try_to_owned().unwrap(), "another end"),
    ];
    for (address, complaint) in cases {
        let error = fake.open(&request()).unwrap().connect(address, 100).unwrap_err().to_string();
        assert!(error.contains(complaint), "{error}");
    }
}
