//! The body for meetings.
//!
//! Its input: how many bytes come at a time (a byte; 0: all), then what a process that connects sends. Descriptors do not
//! travel in bytes: inputs can only claim them.

use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;

use farjump_core::transport::{OpenRequest, Transport};
use farjump_transports::Error;
use farjump_transports::meet::{Answer, Arrival, ArrivalOptions, Control, Dropped, MAGIC, Message, Progress};
use farjump_transports::shm::Shm;

use crate::allocation::most_at_once;
use crate::assert_words;

/// Most bytes that taking one message may hold at once, whatever came: the longest body of a meeting, in a buffer that grows
/// by doubling, and what it decodes to.
const MOST_MEMORY: usize = 256 * 1024;
/// Most bytes written before the other side reads: a socket holds more.
const MOST_AT_ONCE: usize = 16 * 1024;

/// Takes the messages one by one; then has a target meet the process that sends them.
pub fn meeting(data: &[u8]) {
    let [pace, sent @ ..] = data else { return };
    let pace = if *pace == 0 { MOST_AT_ONCE } else { usize::from(*pace) };
    take(sent, pace);
    arrive(sent, pace);
}

/// A connection, and what listens at its other end.
fn connection() -> (UnixStream, Control) {
    let (peer, own) = UnixStream::pair().expect("a pair of sockets");
    (peer, Control::from_stream(own).expect("a connection to this process"))
}

fn take(sent: &[u8], pace: usize) {
    let (mut peer, mut control) = connection();
    for bytes in sent.chunks(pace) {
        peer.write_all(bytes).expect("the socket has room");
        loop {
            let (taken, memory) = most_at_once(|| control.recv());
            assert!(memory <= MOST_MEMORY, "taking a message took {memory} bytes");
            match taken {
                Ok(Some((message, descriptors))) => {
                    assert!(descriptors.is_empty(), "descriptors came that were never sent");
                    send_on(&message);
                }
                Ok(None) => break,
                Err(error) => return assert_words(&error),
            }
        }
    }
    drop(peer);
    match control.recv() {
        Err(error @ (Error::PeerGone { .. } | Error::CutShort { .. })) => assert_words(&error),
        other => panic!("the connection ended with {other:?}"),
    }
}

/// A message that was taken can be sent, and is taken as the same.
fn send_on(message: &Message) {
    let (peer, mut control) = connection();
    let mut sender = Control::from_stream(peer).expect("a connection to this process");
    sender.send(message, &[]).expect("what was taken can be sent");
    let (taken, descriptors) = control.recv().expect("what was sent is a message").expect("it is whole");
    assert_eq!(taken, *message);
    assert!(descriptors.is_empty());
}

/// No bytes make a link: that takes descriptors. The sender is told why, and nothing of it is left.
fn arrive(sent: &[u8], pace: usize) {
    let (mut peer, control) = connection();
    let mut transports: [Box<dyn Transport>; 1] = [Box::new(Shm::new())];
    let options = ArrivalOptions::new("fuzzed", 1, OpenRequest::new(8192, 4096));
    let mut arrival = Arrival::new(control, options);
    for bytes in sent.chunks(pace) {
        peer.write_all(bytes).expect("the socket has room");
        match arrival.advance(&mut transports) {
            Ok(Progress::Pending) => {}
            Ok(Progress::Asked(mut asker)) => {
                asker.answer(&Answer::Dropped(Dropped::default())).expect("the socket has room");
                assert!(asker.advance().expect("the socket has room"), "a short answer is not sent");
                break;
            }
            // No meeting awaits it.
            Ok(Progress::Stream(_)) => break,
            Ok(Progress::Met(met)) => panic!("{met:?} without a descriptor"),
            Err(error) => {
                assert_words(&error);
                assert!(matches!(arrival.advance(&mut transports), Err(Error::PeerGone { .. })));
                break;
            }
        }
    }
    drop(arrival);
    let mut answer = Vec::new();
    match peer.read_to_end(&mut answer) {
        Ok(_) => {}
        // What the target had not read when it closed.
        Err(error) if error.kind() == ErrorKind::ConnectionReset => {}
        Err(error) => panic!("reading what the target said: {error}"),
    }
    assert!(answer.is_empty() || answer.starts_with(&MAGIC), "the target does not introduce itself");
}
