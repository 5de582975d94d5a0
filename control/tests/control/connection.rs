//! The control connection by itself: framing, descriptors, bounds, ends.

use std::io::Write;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;

use farjump_control::{
    Control, EndpointInfo, HEAD_LEN, HandshakeError, MAGIC, MAX_CODE, MAX_DESCRIPTORS, MAX_HANDSHAKE_MESSAGE,
    Message, PREFIX_LEN, RefusalCause, RejectCause,
};
use farjump_fixtures::by_hand::{beginning, endpoint_info};
use farjump_fixtures::control::{Place, controls, handshake_pair, next};
use farjump_fixtures::watchdog::Watchdog;
use rustix::io::{FdFlags, fcntl_getfd};

fn endpoint_at(address: Vec<u8>) -> EndpointInfo {
    EndpointInfo { address, key: [1; 16], max_frame: 64, ..endpoint_info() }
}

fn inode(descriptor: impl AsFd) -> u64 {
    rustix::fs::fstat(descriptor).unwrap().st_ino
}

#[test]
fn messages_come_whole_and_in_order() {
    let (mut one, mut other) = controls();
    for token in 0..100 {
        let message =
            Message::Refused { token, cause: RefusalCause::Policy, text: "x".repeat(token as usize) };
        one.send(&message, &[]).unwrap();
    }
    for expected in 0..100 {
        let Message::Refused { token, text, .. } = next(&mut other).unwrap() else {
            panic!("another message")
        };
        assert_eq!((token, text.len()), (expected, expected as usize));
    }
    assert!(other.recv().unwrap().is_none());
}

#[test]
fn a_message_sent_bytewise_arrives_only_with_its_last_byte() {
    let (mut raw, ours) = UnixStream::pair().unwrap();
    let mut control = Control::from_stream(ours).unwrap();
    for byte in beginning(&Message::Closing { text: "bye".into() }, 0) {
        assert!(control.recv().unwrap().is_none());
        raw.write_all(&[byte]).unwrap();
    }
    assert_eq!(control.recv().unwrap().unwrap().0, Message::Closing { text: "bye".into() });
}

#[test]
fn each_message_gets_its_own_descriptors_however_the_bytes_are_cut() {
    let _watchdog = Watchdog::new();
    let (mut one, mut other) = controls();
    let files: Vec<_> = (0..MAX_DESCRIPTORS).map(|_| tempfile::tempfile().unwrap()).collect();
    let (mut sent, mut received) = (0, 0);
    // Far more than a socket holds at once, so that messages wait, are cut, and share reads.
    while received < 300 {
        while sent < 300 {
            let borrowed: Vec<_> = files[..sent % 9].iter().map(AsFd::as_fd).collect();
            let message = Message::Ready {
                endpoint: endpoint_at(vec![sent as u8; sent * 7919 % 60_000]),
                stream: None,
            };
            match one.send(&message, &borrowed) {
                Ok(()) => sent += 1,
                Err(HandshakeError::Congested { .. }) => break,
                Err(error) => panic!("{error}"),
            }
        }
        while let Some((message, descriptors)) = other.recv().unwrap() {
            assert_eq!(
                message,
                Message::Ready {
                    endpoint: endpoint_at(vec![received as u8; received * 7919 % 60_000]),
                    stream: None
                }
            );
            assert_eq!(descriptors.len(), received % 9);
            for (descriptor, file) in descriptors.iter().zip(&files) {
                assert_eq!(inode(descriptor), inode(file));
                assert!(fcntl_getfd(descriptor).unwrap().contains(FdFlags::CLOEXEC));
            }
            received += 1;
        }
        one.flush().unwrap();
    }
}

#[test]
fn descriptors_go_with_an_end_only_and_eight_at_most() {
    let (mut one, mut other) = controls();
    let file: OwnedFd = tempfile::tempfile().unwrap().into();
    let nine = [file.as_fd(); MAX_DESCRIPTORS + 1];
    assert!(one.send(&Message::Go, &nine[..1]).is_err());
    assert!(one.send(&Message::Ready { endpoint: endpoint_at(Vec::new()), stream: None }, &nine).is_err());
    one.send(&Message::Go, &[]).unwrap();
    assert_eq!(next(&mut other).unwrap(), Message::Go, "something of the failed messages was sent");
}

#[test]
fn a_handshake_message_is_at_most_64_kib_long() {
    let (mut one, mut other) = controls();
    // Number of the kind, cause, three bytes of the text's length.
    let longest = "x".repeat(MAX_HANDSHAKE_MESSAGE - 5);
    one.send(&Message::Reject { cause: RejectCause::Policy, text: longest.clone() }, &[]).unwrap();
    assert!(matches!(next(&mut other).unwrap(), Message::Reject { text, .. } if text == longest));
    let error = one
        .send(&Message::Reject { cause: RejectCause::Policy, text: format!("{longest}x") }, &[])
        .unwrap_err();
    assert!(
        matches!(error, HandshakeError::MessageTooLong { len, limit: MAX_HANDSHAKE_MESSAGE, .. } if len == MAX_HANDSHAKE_MESSAGE + 1)
    );
}

#[test]
fn after_the_handshake_an_image_of_at_most_64_mib_arrives() {
    let place = Place::new();
    let (mut source, mut target) = handshake_pair(&place);
    let image: Vec<u8> = (0..MAX_CODE).map(|at| ((at * 31) >> 7) as u8).collect();
    let message = Message::Code { id: [5; 16], image };
    source.control.send(&message, &[]).unwrap();
    assert!(source.control.wants_write(), "64 MiB fit into a socket: this test shows nothing");
    let received = loop {
        if let Some((message, _)) = target.control.recv().unwrap() {
            break message;
        }
        source.control.flush().unwrap();
    };
    assert!(received == message);
    assert!(!source.control.wants_write());
    let over = Message::Code { id: [5; 16], image: vec![0; MAX_CODE + 4096] };
    assert!(matches!(source.control.send(&over, &[]), Err(HandshakeError::MessageTooLong { .. })));
}

#[test]
fn the_queue_to_an_unreading_peer_is_bounded_and_lossless() {
    let place = Place::new();
    let (mut source, mut target) = handshake_pair(&place);
    let mut taken = 0;
    let error = loop {
        let text = "x".repeat(10_000);
        match target
            .control
            .send(&Message::Refused { token: taken, cause: RefusalCause::BadFrame, text }, &[])
        {
            Ok(()) => taken += 1,
            Err(error) => break error,
        }
    };
    let HandshakeError::Congested { queued, limit, .. } = error else { panic!("{error}") };
    assert!(queued > limit && limit <= 1 << 20, "{queued} of {limit}");
    let mut received = 0;
    while received < taken {
        while let Some((message, _)) = source.control.recv().unwrap() {
            assert!(matches!(message, Message::Refused { token, .. } if token == received));
            received += 1;
        }
        target.control.flush().unwrap();
    }
    target.control.send(&Message::Closing { text: String::new() }, &[]).unwrap();
    assert!(matches!(next(&mut source.control).unwrap(), Message::Closing { .. }));
}

#[test]
fn sending_to_a_gone_peer_fails_yet_its_last_message_arrives() {
    let (mut one, mut other) = controls();
    one.send(&Message::Closing { text: "enough".into() }, &[]).unwrap();
    drop(one);
    assert!(matches!(other.send(&Message::Bye, &[]), Err(HandshakeError::PeerGone { .. })));
    assert_eq!(next(&mut other).unwrap(), Message::Closing { text: "enough".into() });
    assert!(matches!(other.recv(), Err(HandshakeError::PeerGone { .. })));
    assert!(matches!(other.recv(), Err(HandshakeError::PeerGone { .. })));
}

#[test]
fn a_message_cut_short_by_the_end_says_how_much_came() {
    let (mut raw, ours) = UnixStream::pair().unwrap();
    let mut control = Control::from_stream(ours).unwrap();
    raw.write_all(&MAGIC[..5]).unwrap();
    drop(raw);
    let error = control.recv().unwrap_err();
    assert!(matches!(error, HandshakeError::CutShort { found: 5, needed: PREFIX_LEN, .. }), "{error}");
    assert_eq!(HEAD_LEN, 8);
}
