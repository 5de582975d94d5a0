//! Two ends in one process, honest and lying.

use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use farjump_core::frame::LINE;
use farjump_core::transport::{Address, Opening, Secret, Side, Stream};

use super::super::head::{BODY, HEAD, TAG};
use super::super::opening::{TcpOpening, Told};
use super::super::socket::CALLS;
use super::*;

/// A test that takes longer hangs.
const PATIENCE: Duration = Duration::from_secs(60);

/// How records are protected.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Seal {
    Clear,
    Aes,
    ChaCha,
}

const SEALS: [Seal; 3] = [Seal::Clear, Seal::Aes, Seal::ChaCha];

/// What the ends of a pair are to be like.
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

/// The end `side` of a link on `descriptor`.
fn end(descriptor: OwnedFd, side: Side, terms: Terms) -> Post {
    let Terms { seal, window, max_frame } = terms;
    let told = Told { aes: seal == Seal::Aes, window, max_frame };
    let own = TcpOpening::new(told);
    let mut peer = own.address().try_to_owned().unwrap();
    let secret = (seal != Seal::Clear).then(|| Secret::from_bytes([9; Secret::LEN]));
    peer.stream = Some(Stream { descriptor, side, token: [5; Stream::TOKEN], secret });
    own.join(peer).unwrap()
}

fn pair_on([left, right]: [OwnedFd; 2], terms: Terms) -> (Post, Post) {
    (end(left, Side::Source, terms), end(right, Side::Target, terms))
}

fn pair(terms: Terms) -> (Post, Post) {
    pair_on(tcp(), terms)
}

fn bytes_of(len: usize, fill: u8) -> impl Iterator<Item = u8> {
    (0..len).map(move |at| fill.wrapping_add((at / 7) as u8))
}

fn send(post: &mut Post, len: usize, fill: u8) -> Result<(), TransportError> {
    let room = post.reserve(len)?;
    assert!(room.addr().get().is_multiple_of(LINE));
    // SAFETY: `reserve` lends so many bytes.
    let room = unsafe { std::slice::from_raw_parts_mut(room.as_ptr(), len) };
    room.iter_mut().zip(bytes_of(len, fill)).for_each(|(to, from)| *to = from);
    post.commit(len, 7)
}

/// The message that is there, which is released.
fn take(post: &mut Post) -> Result<Option<Vec<u8>>, TransportError> {
    let Some((start, len)) = post.poll()? else { return Ok(None) };
    assert!(start.addr().get().is_multiple_of(LINE));
    // SAFETY: `poll` lends so many bytes until `release`.
    let bytes = unsafe { std::slice::from_raw_parts(start.as_ptr(), len) }.to_vec();
    assert_eq!(post.poll().unwrap(), Some((start, len)), "another before it is released");
    post.release();
    Ok(Some(bytes))
}

/// Lets both work until `post` has a message or is at its end.
fn next(post: &mut Post, other: &mut Post) -> Result<Vec<u8>, TransportError> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        other.progress()?;
        if let Some(bytes) = take(post)? {
            return Ok(bytes);
        }
        assert!(Instant::now() < deadline, "nothing comes");
    }
}

/// The same without another end.
fn end_of(post: &mut Post) -> TransportError {
    let deadline = Instant::now() + PATIENCE;
    loop {
        match take(post) {
            Err(error) => return error,
            Ok(_) => assert!(Instant::now() < deadline, "nothing ends"),
        }
    }
}

const LENGTHS: [usize; 15] = [
    64,
    128,
    4096,
    8256,
    64,
    BODY - 64,
    BODY,
    BODY + 64,
    64,
    2 * BODY,
    5 * BODY + 320,
    64,
    (1 << 20) + 64,
    64,
    6 << 20,
];

#[test]
fn messages_of_all_lengths_arrive_whole_and_in_order_both_ways() {
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

#[test]
fn many_messages_under_way_arrive_in_order_however_they_come() {
    for seal in SEALS {
        let (mut left, mut right) = pair(Terms { seal, ..TERMS });
        let mut sent = 0u32;
        let mut came = 0;
        let len = |number: u32| LENGTHS[number as usize * 7 % 13];
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
