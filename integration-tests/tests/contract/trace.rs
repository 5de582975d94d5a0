//! `Trace` reports each operation, in order, and carries the bytes.

use std::sync::{Arc, Mutex};

use farjump_core::transport::{ArrivalRules, Cause, Transport};
use farjump_fixtures::altered::Altered;
use farjump_integration_tests::fakes::{FakeOneSided, FakeTwoSided, Rule};
use farjump_integration_tests::middleware::{Metered, Trace};

use super::{Direction, direction, pattern, receive, request, send, two_sided};

fn traced(inner: impl Transport + 'static) -> (Trace, Arc<Mutex<Vec<String>>>) {
    let lines = Arc::new(Mutex::new(Vec::new()));
    let sink = lines.clone();
    let trace = Trace::new(Box::new(inner), move |event| sink.lock().unwrap().push(event.to_string()));
    (trace, lines)
}

#[test]
fn each_one_sided_operation_and_failure_has_a_trace_line() {
    let fake = FakeOneSided::new(Rule::WriteImm, 1).with_queue(1);
    let handle = fake.handle();
    let (mut trace, lines) = traced(fake);
    let mut link = direction(&mut trace, &mut FakeOneSided::new(Rule::WriteImm, 2));
    link.remote.put_with_completion(4096, &pattern(64, 0), 0).unwrap();
    while handle.pump(1) > 0 {}
    link.remote.put_word(8, 0xabc, 64).unwrap();
    while handle.pump(1) > 0 {}
    link.remote.put(72, &pattern(4000, 1), 64).unwrap();
    link.remote.fence().unwrap();
    link.remote.progress().unwrap();
    link.remote.wake_peer().unwrap();
    link.remote.put(8192, &[1], 65).unwrap_err();
    drop(link);
    let expected = [
        "fake-one-sided#0 open a region of 8192 bytes for frames of up to 4096",
        "fake-one-sided#0 connect to an address of 16 bytes and 0 descriptors",
        "fake-one-sided#0 put with completion 64 bytes at 4096, frame at 0",
        "fake-one-sided#0 put word 0x0000000000000abc at 8, frame at 64",
        "fake-one-sided#0 put 4000 bytes at 72, frame at 64",
        "fake-one-sided#0 fence",
        "fake-one-sided#0 ring",
        "fake-one-sided#0 put 1 bytes at 8192, frame at 65: failed: 1 bytes at offset 8192 lie outside the peer's region \
         of 8192 bytes",
        "fake-one-sided#0 close",
    ];
    assert_eq!(*lines.lock().unwrap(), expected);
}

#[test]
fn a_trace_shows_an_unchanged_completion_count_once() {
    let (mut trace, lines) = traced(FakeOneSided::new(Rule::WriteImm, 2));
    let mut sender = FakeOneSided::new(Rule::WriteImm, 1);
    let mut link = direction(&mut sender, &mut trace);
    link.remote.put_with_completion(4096, &pattern(64, 0), 0).unwrap();
    while sender.handle().pump(1) > 0 {}
    for _ in 0..3 {
        assert_eq!(link.local.completions().unwrap(), 1);
    }
    assert!(!link.local.before_sleep().unwrap());
    link.local.after_sleep().unwrap();
    assert_eq!(
        lines.lock().unwrap()[2..],
        ["fake-one-sided#0 completions 1", "fake-one-sided#0 arm, no promise", "fake-one-sided#0 disarm"]
    );
}

#[test]
fn each_two_sided_operation_has_a_trace_line() {
    let (mut trace, lines) = traced(FakeTwoSided::new(1));
    let mut peer = FakeTwoSided::new(3);
    let (mut left, mut right) = two_sided(&mut trace, &mut peer);
    // The trace also reports a refused commit, which is repeated. This test keeps only the commits that were taken.
    send(&mut *left, &pattern(128, 0), 7);
    lines.lock().unwrap().retain(|line| !line.contains("no space"));
    send(&mut *right, &pattern(64, 0), 0);
    assert_eq!(receive(&mut *left).unwrap(), Some(pattern(64, 0)));
    left.release();
    drop(right);
    receive(&mut *left).unwrap_err();
    drop(left);
    let expected = [
        "fake-two-sided#0 reserve 128 bytes",
        "fake-two-sided#0 commit 128 bytes, frame 7",
        "fake-two-sided#0 deliver 64 bytes",
        "fake-two-sided#0 release",
        "fake-two-sided#0 deliver 0 bytes: failed: the peer is gone",
        "fake-two-sided#0 close",
    ];
    assert_eq!(lines.lock().unwrap()[2..], expected);
}

#[test]
fn mapped_memory_is_hidden_and_its_bytes_go_by_puts() {
    let fake = FakeOneSided::new(Rule::Stores, 1);
    let handle = fake.handle();
    assert!(fake.capabilities().arrival.contains(ArrivalRules::STORES));
    let (mut trace, _) = traced(fake);
    assert_eq!(trace.name(), "fake-one-sided");
    assert_eq!(trace.capabilities().arrival, ArrivalRules::FENCED | ArrivalRules::CHECKED);
    let mut plain = FakeOneSided::new(Rule::Stores, 2);
    let mut link = direction(&mut trace, &mut plain);
    let Direction { _receivers_remote: untraced, .. } = &link;
    assert!(untraced.mapped().is_some() && link.remote.mapped().is_none());
    let bytes = pattern(64, 1);
    link.remote.put(4096, &bytes, 0).unwrap();
    while handle.pump(1) > 0 {}
    assert_eq!(link.see(4096, 64), bytes);
}

#[test]
fn a_transport_left_without_an_arrival_rule_is_refused_when_opened() {
    let only_stores = || Altered::new(FakeOneSided::new(Rule::Stores, 1)).with_rules(ArrivalRules::STORES);
    let (mut trace, lines) = traced(only_stores());
    let error = trace.open(&request()).err().expect("it has no rule left");
    assert!(matches!(error.cause(), Cause::Unsupported(_)), "{error}");
    assert!(lines.lock().unwrap().is_empty());
    assert!(
        Metered::new(Box::new(only_stores())).open(&request()).is_ok(),
        "what hides nothing leaves the rule"
    );
}

#[test]
fn a_trace_numbers_endpoints_and_shows_failed_connects() {
    let (mut trace, lines) = traced(FakeTwoSided::new(1));
    drop(trace.open(&request()).unwrap());
    trace.open(&request()).unwrap().connect(Default::default(), 10).unwrap_err();
    let expected = [
        "fake-two-sided#0 open a region of 8192 bytes for frames of up to 4096",
        "fake-two-sided#0 close",
        "fake-two-sided#1 open a region of 8192 bytes for frames of up to 4096",
        "fake-two-sided#1 connect to an address of 0 bytes and 0 descriptors: failed: the peer's address is not usable: \
         it is not of this kind and version",
        "fake-two-sided#1 close",
    ];
    assert_eq!(*lines.lock().unwrap(), expected);
}
