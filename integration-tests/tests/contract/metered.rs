//! `Metered` counts operations, and hides nothing.

use farjump_core::transport::{ArrivalRules, Transport};
use farjump_integration_tests::fakes::{FakeOneSided, FakeTwoSided, Rule};
use farjump_integration_tests::middleware::{Count, Metered, Step};

use super::{direction, pattern, receive, send, two_sided};

fn count(done: u64, bytes: u64) -> Count {
    Count { done, bytes, ..Count::default() }
}

#[test]
fn operations_bytes_refusals_and_failures_are_counted_apart() {
    let fake = FakeOneSided::new(Rule::Fenced, 1).with_queue(1);
    let handle = fake.handle();
    let mut metered = Metered::new(Box::new(fake));
    let meter = metered.meter();
    assert_eq!(meter.to_string(), "nothing counted");
    let mut link = direction(&mut metered, &mut FakeOneSided::new(Rule::Fenced, 2));
    let bytes = pattern(4000, 0);
    // Puts until one is refused: the queue has capacity for a single put.
    let mut taken = 0;
    while link.remote.put(0, &bytes, 0).is_ok() {
        taken += 1;
    }
    while handle.pump(1) > 0 {}
    link.remote.fence().unwrap();
    link.remote.put_word(0, 1, 0).unwrap();
    for offset in [9000, usize::MAX] {
        link.remote.put(offset, &bytes, 0).unwrap_err();
    }
    link.remote.progress().unwrap();
    drop(link);
    assert_eq!(meter.count(Step::Put), Count { done: taken, bytes: taken * 4000, full: 1, failed: 2 });
    assert_eq!(meter.count(Step::PutWord), count(1, 8));
    for step in [Step::Open, Step::Connect, Step::Fence, Step::Progress, Step::Close] {
        assert_eq!(meter.count(step), count(1, 0), "{step}");
    }
    assert_eq!(meter.count(Step::Ring), count(0, 0));
    let bytes = taken * 4000;
    let text = format!(
        "open 1, connect 1, put {taken} ({bytes} bytes, 1 refused for want of space, 2 failed), put word 1 (8 bytes), \
         fence 1, progress 1, close 1"
    );
    assert_eq!(meter.to_string(), text);
}

#[test]
fn the_mapping_stays_and_stores_are_not_counted() {
    let mut metered = Metered::new(Box::new(FakeOneSided::new(Rule::Stores, 1)));
    assert!(metered.capabilities().arrival.contains(ArrivalRules::STORES));
    let meter = metered.meter();
    let link = direction(&mut metered, &mut FakeOneSided::new(Rule::Stores, 2));
    let mapped = link.remote.mapped().expect("the mapping is hidden");
    // SAFETY: `RemoteMemory` guarantees the mapping, and the peer of this test only reads it atomically,
    // afterwards.
    unsafe { mapped.cast::<u64>().write(5) };
    assert_eq!(link.word(0), 5);
    assert_eq!(meter.to_string(), "open 1, connect 1");
}

#[test]
fn messages_are_counted_at_both_ends() {
    let mut left = Metered::new(Box::new(FakeTwoSided::new(1)));
    let mut right = Metered::new(Box::new(FakeTwoSided::new(2)));
    let (sent, received) = (left.meter(), right.meter());
    let (mut sender, mut receiver) = two_sided(&mut left, &mut right);
    for frame in 0..10 {
        send(&mut *sender, &pattern(64, frame), frame);
    }
    while receive(&mut *receiver).unwrap().is_some() {}
    assert_eq!((sent.count(Step::Commit).done, sent.count(Step::Commit).bytes), (10, 640));
    assert_eq!(received.count(Step::Deliver), count(10, 640));
    assert_eq!(received.count(Step::Release), count(10, 0));
    assert_eq!(received.count(Step::Commit), count(0, 0));
}
