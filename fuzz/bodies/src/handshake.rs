//! The body for handshakes.
//!
//! Its input: the number of bytes that arrive at a time (a byte; 0: all), then the bytes of a connecting
//! process. Descriptors do not travel in bytes: inputs can only claim them.

use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;

use farjump_control::{
    AdminResponse, Arrival, ArrivalOptions, Control, Dropped, EndpointInfo, HandshakeError, MAGIC, Message,
    OPENING_LEN, Progress, Share, StreamAccept, StreamOffer, VERSION,
};
use farjump_core::cpu::Cpu;
use farjump_core::image::{Level, Machine};
use farjump_core::transport::{OpenRequest, Transport};
use farjump_fixtures::allocation::most_at_once;
use farjump_transports::shm::Shm;
use farjump_transports::tcp::Tcp;

use crate::assert_words;

/// Most bytes held at once while taking one message, whichever bytes arrive: the longest body of a handshake, in a
/// buffer that grows by doubling, and its decoded form.
const MOST_MEMORY: usize = 256 * 1024;
/// Most steps taken by a source.
const MOST_STEPS: usize = 64;
/// Most bytes written before the other process reads: fewer than fit in a socket.
const MOST_AT_ONCE: usize = 16 * 1024;

/// Takes the messages one by one. Then makes a target perform the handshake with the process that sends them. Then
/// takes the bytes as steps of a source with a stream.
pub fn handshake(data: &[u8]) {
    let [pace, sent @ ..] = data else { return };
    let pace = if *pace == 0 { MOST_AT_ONCE } else { usize::from(*pace) };
    take(sent, pace);
    arrive(sent, pace);
    join(sent);
}

/// A socket, and the control connection at its other end.
fn connection() -> (UnixStream, Control) {
    let (peer, own) = UnixStream::pair().expect("a pair of sockets");
    (peer, Control::from_stream(own).expect("a connection to this process"))
}

fn take(sent: &[u8], pace: usize) {
    let (mut peer, mut control) = connection();
    for bytes in sent.chunks(pace) {
        peer.write_all(bytes).expect("the socket has space");
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
        Err(error @ (HandshakeError::PeerGone { .. } | HandshakeError::CutShort { .. })) => {
            assert_words(&error)
        }
        other => panic!("the connection ended with {other:?}"),
    }
}

/// Checks that an accepted message can be sent, and reads the same again.
fn send_on(message: &Message) {
    let (peer, mut control) = connection();
    let mut sender = Control::from_stream(peer).expect("a connection to this process");
    sender.send(message, &[]).expect("what was taken can be sent");
    let (taken, descriptors) = control.recv().expect("what was sent is a message").expect("it is whole");
    assert_eq!(taken, *message);
    assert!(descriptors.is_empty());
}

/// Plays a source whose link has a stream. Each byte of `script` is a step of it, so that control connection and
/// streams come in any order, in pieces, wrongly, and more than once. A link is made exactly if `Ready` and a stream
/// with the token have come, both after `Welcome` and neither wrongly.
fn join(script: &[u8]) {
    let (source, target) = connection();
    let mut source = Control::from_stream(source).expect("a connection to this process");
    let mut transports: [Box<dyn Transport>; 1] = [Box::new(Tcp::new())];
    let options = || ArrivalOptions::new("fuzzed", 1, OpenRequest::new(8192, 4096));
    let mut arrival = Arrival::new(target, options());
    let mut streams: Vec<(UnixStream, Arrival)> = Vec::new();
    let mut welcome: Option<(EndpointInfo, StreamOffer)> = None;
    let (mut ready, mut joined) = (false, false);
    for step in script.iter().take(MOST_STEPS) {
        match step % 8 {
            0 => {
                let transports = vec!["tcp".to_owned()];
                drop(source.send(
                    &Message::Hello {
                        cpu: Cpu::of_level(Machine::X86_64, Level::BASELINE).encode(),
                        pid: 1,
                        program: "f".into(),
                        transports,
                    },
                    &[],
                ));
            }
            1 => {
                let Some((endpoint, _)) = &welcome else { continue };
                let reply = StreamAccept { share: Share::from_bytes(&[*step; 32]), clear: step & 8 != 0 };
                drop(source.send(&Message::Ready { endpoint: endpoint.clone(), stream: Some(reply) }, &[]));
                ready = true;
            }
            // A stream: with the right or almost right token, whole or in two pieces, and with more bytes behind it.
            2..=4 => {
                let (mut stream, control) = connection();
                let mut opening = [0; OPENING_LEN + 1];
                opening[..MAGIC.len()].copy_from_slice(&MAGIC);
                opening[MAGIC.len()..MAGIC.len() + 2].copy_from_slice(&VERSION.to_le_bytes());
                opening[MAGIC.len() + 2] = 2;
                if let Some((_, offer)) = &welcome {
                    opening[32..OPENING_LEN].copy_from_slice(&offer.token);
                }
                if step % 8 == 3 {
                    opening[usize::from(step / 8) * 2] ^= 1;
                }
                let sent = if step % 8 == 4 { usize::from(step / 8) } else { OPENING_LEN + 1 };
                stream.write_all(&opening[..sent]).expect("the socket has space");
                streams.push((stream, Arrival::new(control, options())));
            }
            5 => drop(streams.pop()),
            6 => drop(source.send(&Message::Go, &[])),
            _ => {}
        }
        let mut advanced = arrival.advance(&mut transports);
        streams.retain_mut(|(_, opening)| match opening.advance(&mut transports) {
            Ok(Progress::Pending) => true,
            Ok(Progress::Stream(opened)) => {
                let awaited = arrival.awaits(&opened);
                assert!(!awaited || (welcome.is_some() && !joined), "a token that nobody offered, or again");
                assert_eq!(arrival.take_stream(*opened).is_ok(), awaited);
                if awaited {
                    joined = true;
                    advanced = arrival.advance(&mut transports);
                }
                false
            }
            Ok(other) => panic!("{other:?} of a stream"),
            Err(error) => {
                assert_words(&error);
                false
            }
        });
        match advanced {
            Ok(Progress::Pending) => {}
            Ok(Progress::Handshake(_)) => return assert!(ready && joined, "a link without its stream"),
            Ok(other) => panic!("{other:?} of a source"),
            Err(error) => return assert_words(&error),
        }
        while let Ok(Some((message, _))) = source.recv() {
            if let Message::Welcome { endpoint, stream: Some(offer), .. } = message {
                welcome = Some((endpoint, offer));
            }
        }
    }
    assert!(!(ready && joined), "no link of all that it takes");
}

/// Checks that no bytes make a link, which requires descriptors. The sender gets the reason, and the target keeps
/// nothing of it.
fn arrive(sent: &[u8], pace: usize) {
    let (mut peer, control) = connection();
    let mut transports: [Box<dyn Transport>; 1] = [Box::new(Shm::new())];
    let options = ArrivalOptions::new("fuzzed", 1, OpenRequest::new(8192, 4096));
    let mut arrival = Arrival::new(control, options);
    for bytes in sent.chunks(pace) {
        peer.write_all(bytes).expect("the socket has space");
        match arrival.advance(&mut transports) {
            Ok(Progress::Pending) => {}
            Ok(Progress::Admin(mut connection)) => {
                connection
                    .respond(&AdminResponse::Dropped(Dropped::default()))
                    .expect("the socket has space");
                assert!(connection.advance().expect("the socket has space"), "a short answer is not sent");
                break;
            }
            // No handshake waits for this stream.
            Ok(Progress::Stream(_)) => break,
            Ok(Progress::Handshake(handshake)) => panic!("{handshake:?} without a descriptor"),
            Err(error) => {
                assert_words(&error);
                assert!(matches!(arrival.advance(&mut transports), Err(HandshakeError::PeerGone { .. })));
                break;
            }
        }
    }
    drop(arrival);
    let mut reply = Vec::new();
    match peer.read_to_end(&mut reply) {
        Ok(_) => {}
        // The target had not read all bytes when it closed.
        Err(error) if error.kind() == ErrorKind::ConnectionReset => {}
        Err(error) => panic!("reading what the target said: {error}"),
    }
    assert!(reply.is_empty() || reply.starts_with(&MAGIC), "the target does not introduce itself");
}
