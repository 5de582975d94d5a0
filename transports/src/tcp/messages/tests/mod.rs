//! Two endpoints in one process, honest and dishonest.

use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use farjump_core::frame::LINE;
use farjump_core::transport::{Secret, Stream, StreamRole, UnconnectedEndpoint};

use super::*;
use crate::tcp::head::{BODY, HEAD, Head, TAG};
use crate::tcp::keys::{Cipher, Keys};
use crate::tcp::socket::CALLS;
use crate::tcp::unconnected::{EndpointAddress, UnconnectedTcp};

/// A test that takes longer hangs.
const PATIENCE: Duration = Duration::from_secs(60);

/// The protection of records.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Seal {
    Clear,
    Aes,
    ChaCha,
}

const SEALS: [Seal; 3] = [Seal::Clear, Seal::Aes, Seal::ChaCha];

/// The parameters of a pair of endpoints.
#[derive(Clone, Copy, Debug)]
struct Terms {
    seal: Seal,
    window: u32,
    max_frame: u32,
}

const TERMS: Terms = Terms { seal: Seal::Aes, window: 4 << 20, max_frame: 64 << 20 };

/// Two connected TCP sockets.
fn tcp() -> [OwnedFd; 2] {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let ours = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    [ours.into(), listener.accept().unwrap().0.into()]
}

fn unix() -> [OwnedFd; 2] {
    let (left, right) = UnixStream::pair().unwrap();
    [left.into(), right.into()]
}

/// The endpoint `role` of a link on `descriptor`.
fn endpoint(descriptor: OwnedFd, role: StreamRole, terms: Terms) -> TcpMessages {
    let Terms { seal, window, max_frame } = terms;
    let own_address = EndpointAddress { aes: seal == Seal::Aes, window, max_frame };
    let own = UnconnectedTcp::new(own_address);
    let mut peer = own.address().try_to_owned().unwrap();
    let secret = (seal != Seal::Clear).then(|| Secret::from_bytes([9; Secret::LEN]));
    peer.stream = Some(Stream { descriptor, role, token: [5; Stream::TOKEN], secret });
    own.join(peer).unwrap()
}

fn pair_on([left, right]: [OwnedFd; 2], terms: Terms) -> (TcpMessages, TcpMessages) {
    (endpoint(left, StreamRole::Source, terms), endpoint(right, StreamRole::Target, terms))
}

fn pair(terms: Terms) -> (TcpMessages, TcpMessages) {
    pair_on(tcp(), terms)
}

fn bytes_of(len: usize, fill: u8) -> impl Iterator<Item = u8> {
    (0..len).map(move |at| fill.wrapping_add((at / 7) as u8))
}

fn send(post: &mut TcpMessages, len: usize, fill: u8) -> Result<(), TransportError> {
    let space = post.reserve(len)?;
    assert!(space.addr().get().is_multiple_of(LINE));
    // SAFETY: `reserve` lends `len` bytes.
    let space = unsafe { std::slice::from_raw_parts_mut(space.as_ptr(), len) };
    space.iter_mut().zip(bytes_of(len, fill)).for_each(|(to, from)| *to = from);
    post.commit(len, 7)
}

/// Takes the next message and releases it.
fn take(post: &mut TcpMessages) -> Result<Option<Vec<u8>>, TransportError> {
    let Some(message) = post.poll()? else { return Ok(None) };
    let (start, len) = (message.start(), message.len());
    assert!(start.addr().get().is_multiple_of(LINE));
    // SAFETY: `poll` lends `len` bytes until `release`.
    let bytes = unsafe { std::slice::from_raw_parts(start.as_ptr(), len) }.to_vec();
    assert_eq!(post.poll().unwrap(), Some(message), "another before it is released");
    post.release();
    Ok(Some(bytes))
}

/// Makes both endpoints progress until `post` has a message or has ended.
fn next(post: &mut TcpMessages, other: &mut TcpMessages) -> Result<Vec<u8>, TransportError> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        other.progress()?;
        if let Some(bytes) = take(post)? {
            return Ok(bytes);
        }
        assert!(Instant::now() < deadline, "nothing comes");
    }
}

/// Waits for the end of `post`, without another endpoint.
fn end_of(post: &mut TcpMessages) -> TransportError {
    let deadline = Instant::now() + PATIENCE;
    loop {
        match take(post) {
            Err(error) => return error,
            Ok(_) => assert!(Instant::now() < deadline, "nothing ends"),
        }
    }
}

const LENGTHS: [usize; 17] = [
    64,
    24,
    16,
    49,
    4096,
    8259,
    48,
    BODY - 1,
    BODY,
    BODY + 1,
    64,
    2 * BODY,
    5 * BODY + 321,
    65,
    (1 << 20) + 64,
    17,
    6 << 20,
];

#[test]
fn messages_of_all_lengths_arrive_whole_in_order_in_both_directions() {
    for seal in SEALS {
        for sockets in [tcp(), unix()] {
            let (mut left, mut right) = pair_on(sockets, Terms { seal, ..TERMS });
            for turn in 0..3 {
                for (fill, len) in (turn..).zip(LENGTHS) {
                    send(&mut left, len, fill).unwrap();
                    let bytes = next(&mut right, &mut left).unwrap();
                    assert!(bytes.into_iter().eq(bytes_of(len, fill)), "{seal:?} {len}");
                    send(&mut right, len, !fill).unwrap();
                    let bytes = next(&mut left, &mut right).unwrap();
                    assert!(bytes.into_iter().eq(bytes_of(len, !fill)), "{seal:?} {len}");
                }
            }
        }
    }
}

/// Length of the bytes behind those that lie elsewhere.
const TAIL: usize = 16;

#[test]
fn bytes_committed_from_caller_memory_arrive_whole_and_may_change_after_return() {
    for seal in SEALS {
        for sockets in [tcp(), unix()] {
            let (mut left, mut right) = pair_on(sockets, Terms { seal, ..TERMS });
            for len in [
                1,
                63,
                64,
                BODY - TAIL,
                BODY - 1,
                BODY,
                BODY + 1,
                100_001,
                BODY * 32 - 8,
                BODY * 32,
                BODY * 4,
                1 << 20,
                (9 << 20) + 13,
            ] {
                let mut beside: Vec<u8> = bytes_of(len, 3).collect();
                let total = len + TAIL;
                let deadline = Instant::now() + PATIENCE;
                let space = loop {
                    match left.reserve(total) {
                        Ok(space) => break space,
                        Err(error) => assert!(error.is_full() && Instant::now() < deadline, "{error}"),
                    }
                    assert!(right.poll().unwrap().is_none());
                };
                // SAFETY: `reserve` lends as much.
                unsafe { space.write_bytes(0xee, total) };
                left.commit_beside(total, &beside, 0).unwrap();
                beside.fill(0xee);
                let bytes = next(&mut right, &mut left).unwrap();
                assert_eq!(bytes.len(), total);
                assert!(bytes[..len].iter().copied().eq(bytes_of(len, 3)), "{seal:?} {len}");
                assert!(bytes[len..].iter().all(|byte| *byte == 0xee), "{seal:?} {len}");
            }
        }
    }
}

#[test]
fn many_messages_in_flight_arrive_whole_and_in_order() {
    for seal in SEALS {
        let (mut left, mut right) = pair(Terms { seal, ..TERMS });
        let mut sent = 0u32;
        let mut came = 0;
        let len = |number: u32| LENGTHS[number as usize * 7 % 16];
        while came < 600 {
            while sent < 600 {
                match send(&mut left, len(sent), sent as u8) {
                    Ok(()) => sent += 1,
                    Err(error) if error.is_full() => break,
                    Err(error) => panic!("{error}"),
                }
            }
            let bytes = next(&mut right, &mut left).unwrap();
            assert!(bytes.into_iter().eq(bytes_of(len(came), came as u8)), "{seal:?} {came}");
            came += 1;
        }
    }
}

#[test]
fn a_peer_that_reads_nothing_gets_no_more_than_its_window() {
    for sockets in [tcp(), unix()] {
        let (mut left, mut right) = pair_on(sockets, Terms { window: 1 << 20, ..TERMS });
        let mut sent = 0;
        let full = loop {
            match send(&mut left, 4096, sent as u8) {
                Ok(()) => sent += 1,
                Err(error) => break error,
            }
            assert!(sent <= 256, "over the window");
        };
        assert!(full.is_full(), "{full}");
        for _ in 0..100 {
            left.progress().unwrap();
            assert!(left.reserve(64).unwrap_err().is_full());
        }
        for number in 0..sent {
            let bytes = next(&mut right, &mut left).unwrap();
            assert!(bytes.into_iter().eq(bytes_of(4096, number as u8)), "{number}");
        }
        let deadline = Instant::now() + PATIENCE;
        while send(&mut left, 4096, 1).is_err() {
            right.poll().unwrap();
            assert!(Instant::now() < deadline, "no credit is returned");
        }
    }
}

#[test]
fn a_message_longer_than_the_window_travels_alone() {
    let (mut left, mut right) = pair(Terms { window: 4096, ..TERMS });
    send(&mut left, 64, 1).unwrap();
    assert!(send(&mut left, 1 << 20, 2).unwrap_err().is_full());
    assert_eq!(next(&mut right, &mut left).unwrap().len(), 64);
    let deadline = Instant::now() + PATIENCE;
    while send(&mut left, 1 << 20, 2).is_err() {
        assert!(right.poll().unwrap().is_none() && Instant::now() < deadline);
    }
    assert!(send(&mut left, 64, 3).unwrap_err().is_full());
    assert_eq!(next(&mut right, &mut left).unwrap().len(), 1 << 20);
    let deadline = Instant::now() + PATIENCE;
    while send(&mut left, 64, 3).is_err() {
        assert!(right.poll().unwrap().is_none() && Instant::now() < deadline);
    }
    assert_eq!(next(&mut right, &mut left).unwrap().len(), 64);
    let text = left.reserve((64 << 20) + 64).unwrap_err().to_string();
    assert!(text.contains("over the limit of 67108864"), "{text}");
}

#[test]
fn a_commit_behind_unsent_credit_succeeds_once_the_socket_drains() {
    let (mut left, mut right) = pair_on(unix(), Terms { window: 1 << 30, ..TERMS });
    let space = left.reserve(64).unwrap();
    // SAFETY: `reserve` lends 64 bytes.
    unsafe { space.write_bytes(3, 64) };
    // While the buffer is reserved, credit fills the socket.
    let parts = left.parts();
    while parts.outbound.note(&parts.socket, false, &mut parts.windows.recv_credit).unwrap() {}
    let full = left.commit(64, 0).unwrap_err();
    assert!(full.is_full(), "{full}");
    assert!(right.poll().unwrap().is_none());
    let deadline = Instant::now() + PATIENCE;
    while left.commit(64, 0).is_err() {
        assert!(right.poll().unwrap().is_none() && Instant::now() < deadline);
    }
    assert_eq!(next(&mut right, &mut left).unwrap(), [3; 64]);
}

#[test]
fn credit_that_never_comes_is_not_waited_for() {
    let (mut left, right) = pair(Terms { window: 4096, ..TERMS });
    send(&mut left, 4096, 1).unwrap();
    assert!(send(&mut left, 64, 2).unwrap_err().is_full());
    drop(right);
    let deadline = Instant::now() + PATIENCE;
    let error = loop {
        match send(&mut left, 64, 2) {
            Err(error) if error.is_full() => assert!(Instant::now() < deadline, "it waits for ever"),
            other => break other.unwrap_err(),
        }
    };
    assert_eq!(*error.cause(), Cause::PeerGone);
}

#[test]
fn two_endpoints_that_only_send_never_deadlock_and_buffer_bounded_bytes() {
    const WINDOW: u32 = 32 << 20;
    for (seal, len) in [(Seal::Clear, 64), (Seal::Aes, 4096), (Seal::Clear, 3 << 20), (Seal::Aes, 3 << 20)] {
        let (mut left, mut right) = pair(Terms { seal, window: WINDOW, ..TERMS });
        // More than fits the sockets, and less than a window.
        let total = (if len == 64 { 12 << 20 } else { 24 << 20 }) / len;
        let deadline = Instant::now() + PATIENCE;
        let (mut sent, mut came) = ([0; 2], [0; 2]);
        let mut most = 0;
        while came != [total; 2] {
            for (at, post) in [&mut left, &mut right].into_iter().enumerate() {
                while sent[at] < total {
                    match send(post, len, sent[at] as u8) {
                        Ok(()) => sent[at] += 1,
                        Err(error) if error.is_full() => break,
                        Err(error) => panic!("{error}"),
                    }
                }
                post.progress().unwrap();
                // Not each time, because the check counts everything.
                if most == 0 || sent[at] == total && came[at] % 1024 == 0 {
                    most = most.max(post.parts.inbound.held());
                }
                // Only an endpoint that has sent everything receives.
                if sent[at] == total
                    && !post.wants_write()
                    && let Some(bytes) = take(post).unwrap()
                {
                    assert!(bytes.into_iter().eq(bytes_of(len, came[at] as u8)));
                    came[at] += 1;
                }
            }
            assert!(Instant::now() < deadline, "{seal:?} {len}: sent {sent:?}, came {came:?}");
        }
        assert!((1..3 * WINDOW as usize).contains(&most), "{most} bytes were held");
        assert!(left.arm().unwrap() && left.parts.inbound.held() == 0);
    }
}

#[test]
fn small_messages_take_one_system_call_per_endpoint_and_leave_no_buffers() {
    for seal in SEALS {
        let (mut left, mut right) = pair(Terms { seal, ..TERMS });
        let mut turn = || {
            send(&mut left, 64, 1).unwrap();
            while take(&mut right).unwrap().is_none() {}
            send(&mut right, 64, 2).unwrap();
            while take(&mut left).unwrap().is_none() {}
        };
        turn();
        let before = CALLS.get();
        (0..1000).for_each(|_| turn());
        assert_eq!(CALLS.get() - before, 4000, "{seal:?}");
        for post in [&mut left, &mut right] {
            assert!(post.arm().unwrap() && post.lent.is_none());
            assert_eq!(post.parts.inbound.held(), 0);
        }
        // One call receives many messages, and credit is returned at half a window.
        let before = CALLS.get();
        (0..100).for_each(|_| send(&mut left, 64, 1).unwrap());
        for _ in 0..100 {
            assert_eq!(next(&mut right, &mut left).unwrap().len(), 64);
        }
        assert_eq!(CALLS.get() - before, 100 + 1);
    }
}

#[test]
fn a_long_message_is_written_512_kib_at_a_time() {
    const TIMES: usize = 30;
    let (mut left, mut right) = pair(TERMS);
    let reader = std::thread::spawn(move || {
        for _ in 0..TIMES {
            while take(&mut right).unwrap().is_none() {}
        }
        right
    });
    let calls = (0..TIMES).map(|_| {
        let deadline = Instant::now() + PATIENCE;
        let before = loop {
            let before = CALLS.get();
            match send(&mut left, 1 << 20, 1) {
                Ok(()) => break before,
                Err(error) => assert!(error.is_full() && Instant::now() < deadline, "{error}"),
            }
        };
        while left.wants_write() {
            left.progress().unwrap();
            assert!(Instant::now() < deadline);
        }
        CALLS.get() - before
    });
    // A full socket contains more of them. The system enlarges its buffer as it is used.
    assert_eq!(calls.min(), Some(2));
    drop(reader.join().unwrap());
}

#[test]
fn keys_turn_while_messages_travel() {
    for seal in [Seal::Aes, Seal::ChaCha] {
        let (mut left, mut right) = pair(Terms { seal, ..TERMS });
        left.parts().outbound.set_records(8);
        right.parts().inbound.set_records(8);
        for number in 0..50 {
            let len = if number % 5 == 4 { 20 * BODY } else { 64 };
            send(&mut left, len, number).unwrap();
            let bytes = next(&mut right, &mut left).unwrap();
            assert!(bytes.into_iter().eq(bytes_of(len, number)));
        }
    }
}

#[test]
fn a_message_read_ahead_suspends_the_descriptors_promise_until_polled() {
    let (mut left, mut right) = pair(Terms { window: 64, ..TERMS });
    assert!(right.wakes_unarmed());
    send(&mut right, 64, 1).unwrap();
    assert!(right.reserve(64).unwrap_err().is_full());
    send(&mut left, 64, 2).unwrap();
    let deadline = Instant::now() + PATIENCE;
    while right.wakes_unarmed() {
        assert!(Instant::now() < deadline, "nothing came");
        // It waits for credit, and finds the message.
        right.progress().unwrap();
    }
    assert_eq!(take(&mut right).unwrap().unwrap(), bytes_of(64, 2).collect::<Vec<_>>());
    assert!(take(&mut right).unwrap().is_none() && right.wakes_unarmed());
}

#[test]
fn the_route_says_where_to_and_how_it_is_sealed() {
    let (left, _right) = pair(TERMS);
    let route = left.path_info();
    assert!(route.over.starts_with("tcp 127.0.0.1:"), "{route:?}");
    assert_eq!(route.notes, ["sealed by AES-256-GCM"]);
    let (left, _right) = pair_on(unix(), Terms { seal: Seal::ChaCha, ..TERMS });
    assert_eq!(
        left.path_info(),
        PathInfo::new("unix socket", vec!["sealed by ChaCha20-Poly1305".to_owned()])
    );
    let (left, _right) = pair(Terms { seal: Seal::Clear, ..TERMS });
    assert!(left.path_info().notes[0].starts_with("clear: "));
}

mod delays;
mod ends;
mod liars;
