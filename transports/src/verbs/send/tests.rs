//! Tests between two endpoints of one port: of the machine's device, or of a fake one if there is none.

use farjump_core::transport::REGION_UNIT;

use super::*;
use crate::verbs::fake::Fake;
use crate::verbs::until;

type BoxedMessages = Box<dyn Messages>;

/// The machine's device, or a fake one.
fn device() -> Send {
    if Send::usable().is_err() {
        Fake::for_this_thread();
    }
    Send::new()
}

/// Two endpoints that send to each other.
fn pair(max_frame: usize) -> [BoxedMessages; 2] {
    let mut send = device();
    let [one, other] = [(); 2].map(|()| send.open(&OpenRequest::new(1 << 20, max_frame)).unwrap());
    let [of_one, of_other] = [one.address().try_to_owned().unwrap(), other.address().try_to_owned().unwrap()];
    [one.connect(of_other, 1000).unwrap(), other.connect(of_one, 1000).unwrap()].map(|end| match end {
        Endpoint::TwoSided(end) => end,
        Endpoint::OneSided { .. } => panic!("it is two-sided"),
    })
}

/// Bytes that differ between any two messages.
fn pattern(len: usize, seed: u64) -> Vec<u8> {
    let words = (0..len.div_ceil(8) as u64).map(|at| (seed << 32 | at).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    words.flat_map(u64::to_le_bytes).take(len).collect()
}

/// Sends; `false` if there is no credit.
fn try_send(end: &mut BoxedMessages, bytes: &[u8], frame: u64) -> Result<bool, TransportError> {
    let space = match end.reserve(bytes.len()) {
        Ok(space) => space,
        Err(error) if error.is_full() => return Ok(false),
        Err(error) => return Err(error),
    };
    assert!(space.addr().get().is_multiple_of(REGION_UNIT));
    // SAFETY: `reserve` lent `bytes.len()` bytes.
    unsafe { space.as_ptr().copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
    match end.commit(bytes.len(), frame) {
        Ok(()) => Ok(true),
        Err(error) if error.is_full() => Ok(false),
        Err(error) => Err(error),
    }
}

/// Takes the message at the front and releases it.
fn receive(end: &mut BoxedMessages) -> Option<Vec<u8>> {
    let message = end.poll().unwrap()?;
    let (start, len) = (message.start(), message.len());
    assert!(start.addr().get().is_multiple_of(REGION_UNIT));
    // SAFETY: the message is lent until it is released.
    let bytes = unsafe { std::slice::from_raw_parts(start.as_ptr(), len) }.to_vec();
    assert_eq!(end.poll().unwrap(), Some(message), "the same until it is released");
    end.release();
    Some(bytes)
}

#[test]
fn messages_of_all_lengths_arrive_whole_and_in_turn() {
    let [mut one, mut other] = pair(MAX_FRAME);
    let lengths = [16, 24, 65, 512, 577, PIECE - 1, PIECE, PIECE + 1, PIECE * 3, 1 << 20, (9 << 20) + 5];
    for (number, len) in lengths.into_iter().enumerate() {
        let sent = pattern(len, number as u64);
        until("credit", || try_send(&mut one, &sent, number as u64).unwrap());
        let mut received = None;
        until("the message", || {
            one.progress().unwrap();
            received = receive(&mut other);
            received.is_some()
        });
        assert!(received.unwrap() == sent, "{len} bytes");
    }
}

#[test]
fn a_receiver_that_does_not_look_stops_the_sender_and_loses_nothing() {
    let [mut one, mut other] = pair(1 << 20);
    let (mut sent, mut received) = (0_u64, 0_u64);
    for round in 0..5 {
        let before = sent;
        // As many as fit, of lengths with one piece and with several.
        loop {
            let len = 16 + 61 * (sent as usize * 37 % 600);
            if !try_send(&mut one, &pattern(len, sent), sent).unwrap() {
                break;
            }
            sent += 1;
            assert!(sent - before <= u64::from(WINDOW) * 2, "more than the peer has buffers");
        }
        assert!(sent > before, "round {round}");
        until("all", || {
            one.progress().unwrap();
            if let Some(bytes) = receive(&mut other) {
                let len = 16 + 61 * (received as usize * 37 % 600);
                assert!(bytes == pattern(len, received), "message {received}");
                received += 1;
            }
            received == sent
        });
    }
}

#[test]
fn ends_of_one_port_get_only_what_is_theirs() {
    let mut pairs: Vec<_> = (0..8).map(|_| pair(1 << 20)).collect();
    for round in 0..20 {
        for (number, [one, _]) in pairs.iter_mut().enumerate() {
            let bytes = pattern(64 << ((number + round) % 10), (number * 1000 + round) as u64);
            until("credit", || try_send(one, &bytes, round as u64).unwrap());
        }
        for (number, [one, other]) in pairs.iter_mut().enumerate().rev() {
            let bytes = pattern(64 << ((number + round) % 10), (number * 1000 + round) as u64);
            let mut received = None;
            until("the message", || {
                one.progress().unwrap();
                received = receive(other);
                received.is_some()
            });
            assert!(received.unwrap() == bytes, "link {number}, round {round}");
        }
        if round % 5 == 4 {
            // In the middle, other endpoints open and close with unread messages.
            let [mut one, mut other] = pair(1 << 20);
            for number in 0..10 {
                assert!(try_send(&mut one, &pattern(640, number), number).unwrap());
            }
            until("one of them", || other.poll().unwrap().is_some());
        }
    }
}

#[test]
fn an_overlong_message_is_refused_and_a_gone_peer_is_an_error() {
    let [mut one, other] = pair(4096);
    let error = one.reserve(4160).unwrap_err();
    assert_eq!(error.cause(), &Cause::TooLarge { len: 4160, max: 4096 });
    drop(other);
    let mut failed = None;
    until("an error", || {
        failed = try_send(&mut one, &[0; 64], 7).and_then(|_| one.progress()).err();
        failed.is_some()
    });
    let failed = failed.unwrap();
    assert!(failed.to_string().contains("status 1") && failed.frame() == Some(7), "{failed}");
}

#[test]
fn committing_what_was_not_reserved_and_nothing_is_refused() {
    let [mut one, _other] = pair(1 << 20);
    assert!(one.commit(64, 0).is_err());
    one.reserve(64).unwrap();
    // A page may be longer than a piece.
    assert!(one.commit(8 * PIECE, 0).is_err() && one.commit(0, 0).is_err());
}
