//! Honest handshakes: the results in both processes, and the causes of rejections.

use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};
use std::{process, thread};

use farjump_control::{
    Arrival, HandshakeError, HandshakeEvent, Limits, Message, Progress, RejectCause, SourceOptions,
    connect_target,
};
use farjump_core::cpu::Cpu;
use farjump_core::image::{Level, Machine};
use farjump_core::transport::{
    ArrivalRules, Cause, Endpoint, OpenRequest, Operation, Transport, TransportError,
};
use farjump_fixtures::altered::Altered;
use farjump_fixtures::control::{
    EPOCH, Place, SOURCE_REGION, TARGET_REGION, accept, arrive, connect, drive, far, handshake_over,
    handshake_pair, next, shm, source_options, target_options,
};
use farjump_os::cpu::detected;
use farjump_transports::shm::Shm;

use crate::LONG_FUNCTION;

/// `shm` under another name.
fn named(name: &str) -> Box<dyn Transport> {
    Altered::new(Shm).named(name).boxed()
}

/// `shm` with other arrival rules.
fn with_rules(rules: ArrivalRules) -> Box<dyn Transport> {
    Altered::new(Shm).with_rules(rules).boxed()
}

/// `shm` that opens no endpoint.
fn failing() -> Box<dyn Transport> {
    Altered::new(Shm).failing("no memory for a region").boxed()
}

/// Runs a handshake of a source with `offered` and a target with `had`, and returns both results.
fn transports_of(
    mut offered: Vec<Box<dyn Transport>>,
    mut had: Vec<Box<dyn Transport>>,
) -> (Result<String, HandshakeError>, Result<String, HandshakeError>) {
    let place = Place::new();
    let listener = place.listener();
    let address = place.address();
    let source = thread::spawn(move || connect_target(&address, &mut offered, &source_options(), far()));
    let control = accept(&listener).unwrap();
    let target = drive(&mut Arrival::new(control, target_options()), &mut had);
    let source = source.join().unwrap();
    (source.map(|handshake| handshake.transport), target.map(|handshake| handshake.transport))
}

#[test]
fn source_and_target_agree_on_all_handshake_terms() {
    let place = Place::new();
    let (source, target) = handshake_pair(&place);
    for handshake in [&source, &target] {
        assert_eq!(handshake.transport, "shm");
        assert_eq!(handshake.rule, ArrivalRules::STORES);
        assert_eq!(handshake.epoch, EPOCH);
        assert_eq!(handshake.peer_cpu, *detected());
        assert_eq!(
            (handshake.peer.pid, handshake.peer.uid),
            (process::id(), Some(rustix::process::geteuid().as_raw()))
        );
        assert_eq!(&handshake.peer, handshake.control.peer());
    }
    assert_eq!((source.peer.name.as_str(), target.peer.name.as_str()), ("target program", "source program"));
    assert_eq!(source.send, target.receive);
    assert_eq!(target.send, source.receive);
    assert_ne!(source.send.key, source.receive.key);
    assert_eq!((source.send.region_len, source.send.max_frame), (TARGET_REGION, 32768));
    assert_eq!((target.send.region_len, target.send.max_frame), (SOURCE_REGION, 4096));
    assert!(source.send.line_whole && target.send.line_whole);
}

/// A claim is the target's own affair: nothing else of the handshake depends on it.
#[test]
fn a_handshake_succeeds_whatever_machine_or_level_the_target_claims() {
    let highest = Level::all(Machine::X86_64).last().unwrap();
    let claims = [
        Cpu::of_level(Machine::X86_64, Level::BASELINE),
        Cpu::of_level(Machine::X86_64, highest),
        // The highest level with none of its features.
        Cpu::new(Machine::X86_64, highest, "", [""; 0]).unwrap(),
        Cpu::new(Machine::AARCH64, Level::BASELINE, "neoverse-n1", ["fp", "lse", "simd"]).unwrap(),
        Cpu::of_level(Machine::RISCV, Level::BASELINE),
    ];
    for claim in claims {
        let place = Place::new();
        let listener = place.listener();
        let address = place.address();
        let source = thread::spawn(move || connect(&address));
        let mut options = target_options();
        options.cpu = Arc::new(claim.clone());
        let target = drive(&mut Arrival::new(accept(&listener).unwrap(), options), &mut shm()).unwrap();
        assert_eq!(source.join().unwrap().unwrap().peer_cpu, claim);
        assert_eq!(target.peer_cpu, *detected());
    }
}

#[test]
fn a_target_keeps_only_openable_transports_and_reports_why_none_opens() {
    let options = target_options();
    let names = |transports: &[Box<dyn Transport>]| -> Vec<String> {
        transports.iter().map(|transport| transport.name().to_owned()).collect()
    };
    let mut some = vec![failing(), named("second")];
    options.keep_openable(&mut some).unwrap();
    assert_eq!(names(&some), ["second"]);
    let error = options.keep_openable(&mut vec![failing(), failing()]).unwrap_err();
    assert!(error.to_string().contains("no memory for a region"), "{error}");
    options.keep_openable(&mut Vec::new()).unwrap();
}

#[test]
fn the_targets_limits_reach_the_source_and_bound_its_images() {
    let of = |limits| {
        let place = Place::new();
        let listener = place.listener();
        let address = place.address();
        let source = thread::spawn(move || connect(&address));
        let mut options = target_options();
        options.limits = limits;
        let target = drive(&mut Arrival::new(accept(&listener).unwrap(), options), &mut shm()).unwrap();
        (source.join().unwrap().unwrap(), target)
    };
    for limits in [Limits::default(), Limits { payload: 1000, image: 70_000, ..Limits::default() }] {
        let (mut source, mut target) = of(limits);
        assert_eq!((source.limits, target.limits), (limits, limits));
        // An image of that length may travel now, but no longer one.
        let image = |len| Message::Code { id: [1; 16], image: vec![7; len] };
        let fits = image(limits.image.min(100_000));
        source.control.send(&fits, &[]).unwrap();
        assert_eq!(next(&mut target.control).unwrap(), fits);
        if limits.image != Limits::NONE {
            source.control.send(&image(limits.image + 8192), &[]).unwrap();
            let error = next(&mut target.control).unwrap_err();
            assert!(matches!(error, HandshakeError::MessageTooLong { .. }), "{error}");
        }
    }
}

#[test]
fn each_handshake_draws_new_link_keys() {
    let place = Place::new();
    let listener = place.listener();
    let (one, _one) = handshake_over(&place, &listener);
    let (other, _other) = handshake_over(&place, &listener);
    assert_ne!(one.send.key, other.send.key);
    assert_ne!(one.receive.key, other.receive.key);
}

#[test]
fn a_byte_written_to_the_peers_region_appears_there() {
    let place = Place::new();
    let (source, target) = handshake_pair(&place);
    let crossing = [(&source.endpoint, &target.endpoint), (&target.endpoint, &source.endpoint)];
    for (sender, receiver) in crossing {
        let (Endpoint::OneSided { remote, .. }, Endpoint::OneSided { local, .. }) = (sender, receiver) else {
            panic!("shm is one-sided")
        };
        assert_eq!(remote.len(), local.len());
        let (to, from) = (remote.mapped().unwrap(), local.base());
        // SAFETY: both mappings have `len` bytes and live as long as the endpoints; only this thread uses
        // them.
        unsafe {
            assert!((0..local.len()).all(|at| from.add(at).read_volatile() == 0));
            to.add(local.len() - 1).write_volatile(0xa5);
            assert_eq!(from.add(local.len() - 1).read_volatile(), 0xa5);
        }
    }
}

#[test]
fn the_target_takes_its_first_match_in_the_sources_transport_order() {
    let source = || vec![named("far"), named("near"), named("third")];
    let (handshake, same) = transports_of(source(), vec![named("third"), named("near")]);
    assert_eq!((handshake.unwrap().as_str(), same.unwrap().as_str()), ("near", "near"));
}

#[test]
fn without_a_common_transport_both_errors_list_all_transports() {
    let (source, target) = transports_of(vec![named("a"), named("b")], vec![named("c")]);
    let (source, target) = (source.unwrap_err(), target.unwrap_err());
    assert!(
        matches!(source, HandshakeError::Refused { cause: RejectCause::NoCommonTransport, .. }),
        "{source}"
    );
    assert!(matches!(target, HandshakeError::NoCommonTransport { .. }), "{target}");
    for text in [source.to_string(), target.to_string()] {
        assert!(text.contains("the source offers a, b") && text.contains("the target has c"), "{text}");
    }
}

#[test]
fn the_rule_is_the_best_that_both_have() {
    let place = Place::new();
    let listener = place.listener();
    let address = place.address();
    let mut offered = vec![with_rules(ArrivalRules::FENCED | ArrivalRules::IN_ORDER)];
    let source = thread::spawn(move || connect_target(&address, &mut offered, &source_options(), far()));
    let target = arrive(&listener).unwrap();
    assert_eq!(target.rule, ArrivalRules::FENCED);
    assert_eq!(source.join().unwrap().unwrap().rule, ArrivalRules::FENCED);
}

#[test]
fn without_a_common_arrival_rule_both_errors_list_the_rules() {
    let (source, target) = transports_of(vec![with_rules(ArrivalRules::WRITE_IMM)], shm());
    let (source, target) = (source.unwrap_err(), target.unwrap_err());
    assert!(matches!(source, HandshakeError::NoCommonRule { .. }), "{source}");
    assert!(matches!(target, HandshakeError::Refused { cause: RejectCause::NoCommonRule, .. }), "{target}");
    for text in [source.to_string(), target.to_string()] {
        assert!(text.contains("write-imm") && text.contains("stores"), "{text}");
    }
}

#[test]
fn a_failed_endpoint_is_reported_to_the_peer_with_the_reason() {
    let (source, target) = transports_of(shm(), vec![failing()]);
    let (source, target) = (source.unwrap_err(), target.unwrap_err());
    assert!(matches!(target, HandshakeError::Transport(_)), "{target}");
    assert!(
        matches!(source, HandshakeError::Refused { cause: RejectCause::TransportFailed, .. }),
        "{source}"
    );
    assert!(source.to_string().contains("no memory for a region"), "{source}");

    let (source, target) = transports_of(vec![failing()], shm());
    let (source, target) = (source.unwrap_err(), target.unwrap_err());
    assert!(matches!(source, HandshakeError::Transport(_)), "{source}");
    assert!(
        matches!(target, HandshakeError::Refused { cause: RejectCause::TransportFailed, .. }),
        "{target}"
    );
    assert!(target.to_string().contains("no memory for a region"), "{target}");
}

/// The source must report more than the end of the target.
#[test]
fn a_source_with_a_failing_transport_reports_why_the_target_ended() {
    let failing =
        |reason: &str| TransportError::new("shm", Operation::Connect, Cause::System(reason.to_owned()));
    let (tell, told) = mpsc::channel::<()>();
    let told = Mutex::new(told);
    let waiting = Altered::new(Shm).connecting(move |_, _, _| {
        // Until the target has ended.
        told.lock().unwrap().recv().unwrap_err();
        Err(failing("the peer has ended"))
    });
    let place = Place::new();
    let (listener, address) = (place.listener(), place.address());
    let source =
        thread::spawn(move || connect_target(&address, &mut [waiting.boxed()], &source_options(), far()));
    let mut arrival = Arrival::new(accept(&listener).unwrap(), target_options());
    let without_memory = Altered::new(Shm).connecting(move |_, _, _| Err(failing("no memory for a mailbox")));
    let target = drive(&mut arrival, &mut [without_memory.boxed()]).unwrap_err();
    assert!(matches!(target, HandshakeError::Transport(_)), "{target}");
    drop(tell);
    let source = source.join().unwrap().unwrap_err();
    let expected = matches!(source, HandshakeError::Refused { cause: RejectCause::TransportFailed, .. });
    assert!(expected && source.to_string().contains("no memory for a mailbox"), "{source}");
}

/// The source cannot send the message that the target awaits, and must report more than the target's end.
#[test]
fn a_source_with_a_late_endpoint_reports_the_reason_for_rejection() {
    let (end, ended) = mpsc::channel::<()>();
    let ended = Mutex::new(ended);
    // Its address is sent when the target has ended.
    let late = Altered::new(Shm).stating(move |_| {
        ended.lock().unwrap().recv().unwrap_err();
    });
    let place = Place::new();
    let (listener, address) = (place.listener(), place.address());
    let source =
        thread::spawn(move || connect_target(&address, &mut [late.boxed()], &source_options(), far()));
    let mut arrival = Arrival::new(accept(&listener).unwrap(), target_options());
    while !arrival.is_source() {
        assert!(matches!(arrival.advance(&mut shm()), Ok(Progress::Pending)));
        thread::yield_now();
    }
    arrival.reject("it takes too long");
    drop(end);
    let error = source.join().unwrap().unwrap_err();
    assert!(matches!(error, HandshakeError::Refused { .. }), "{error}");
    assert!(error.to_string().contains("it takes too long"), "{error}");
}

#[test]
fn connecting_to_an_unresponsive_target_times_out_at_the_deadline() {
    let place = Place::new();
    let _listener = place.listener();
    let error = connect_target(&place.address(), &mut shm(), &source_options(), Instant::now()).unwrap_err();
    assert!(matches!(error, HandshakeError::TimedOut { awaited: HandshakeEvent::Welcome, .. }), "{error}");
    assert!(error.to_string().ends_with(LONG_FUNCTION), "{error}");
}

#[test]
fn a_stalled_source_delays_no_other_and_times_out_itself() {
    let place = Place::new();
    let listener = place.listener();
    let _stalled = std::os::unix::net::UnixStream::connect(place.path()).unwrap();
    let mut stalled = Arrival::new(accept(&listener).unwrap(), target_options());
    assert!(matches!(stalled.advance(&mut shm()).unwrap(), Progress::Pending));
    assert!(stalled.deadline() > Instant::now());
    handshake_over(&place, &listener);
    assert!(matches!(stalled.advance(&mut shm()).unwrap(), Progress::Pending));

    let _other = std::os::unix::net::UnixStream::connect(place.path()).unwrap();
    let mut options = target_options();
    options.patience = Duration::ZERO;
    let mut late = Arrival::new(accept(&listener).unwrap(), options);
    let error = late.advance(&mut shm()).expect_err("its time is up");
    assert!(matches!(error, HandshakeError::TimedOut { awaited: HandshakeEvent::Hello, .. }), "{error}");
    assert!(!error.to_string().contains("function"), "{error}");
    assert!(late.as_fd().is_none());
    assert!(matches!(late.advance(&mut shm()), Err(HandshakeError::PeerGone { .. })));
}

#[test]
fn either_peer_sees_the_other_gone_on_the_control_connection() {
    let place = Place::new();
    let (source, mut target) = handshake_pair(&place);
    drop(source);
    assert!(matches!(next(&mut target.control), Err(HandshakeError::PeerGone { .. })));
    let (mut source, target) = handshake_pair(&place);
    drop(target);
    assert!(matches!(next(&mut source.control), Err(HandshakeError::PeerGone { .. })));
}

#[test]
fn control_messages_pass_in_both_directions_after_the_handshake() {
    let place = Place::new();
    let (mut source, mut target) = handshake_pair(&place);
    target.control.send(&Message::NeedCode { index: 3, id: [9; 16] }, &[]).unwrap();
    assert_eq!(next(&mut source.control).unwrap(), Message::NeedCode { index: 3, id: [9; 16] });
    source.control.send(&Message::Code { id: [9; 16], image: vec![1, 2, 3] }, &[]).unwrap();
    assert_eq!(next(&mut target.control).unwrap(), Message::Code { id: [9; 16], image: vec![1, 2, 3] });
}

#[test]
fn a_frame_limit_over_what_the_backend_can_is_cut_to_it() {
    let place = Place::new();
    let listener = place.listener();
    let address = place.address();
    let options = SourceOptions::new("s", OpenRequest::new(SOURCE_REGION, usize::MAX));
    let source = thread::spawn(move || connect_target(&address, &mut shm(), &options, far()));
    let target = arrive(&listener).unwrap();
    assert_eq!(target.send.max_frame, Shm.capabilities().max_frame);
    assert_eq!(source.join().unwrap().unwrap().receive.max_frame, Shm.capabilities().max_frame);
}
