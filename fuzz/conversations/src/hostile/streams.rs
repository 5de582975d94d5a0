//! The streams of the hostile source: opened in any order with the control connection, in pieces, more than once,
//! with any token.

use std::io::Write;
use std::net::TcpStream;
use std::os::fd::{AsFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixStream};

use farjump_control::{Control, Message, OPENING_LEN, PeerAddress, Share, StreamAccept, StreamOffer};
use farjump_core::transport::{Secret, Stream, StreamRole};
use farjump_fixtures::by_hand::{hello_of, opening};
use fastrand::Rng;

use super::{Hostile, await_message};
use crate::step::HandshakeKind;

/// Remembered tokens.
const MOST_TOKENS: usize = 8;

/// The plan for the stream of a link.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Plan {
    /// The stream comes before Ready.
    First,
    /// The stream comes after Ready.
    Last,
    /// The stream comes in two pieces, before and after Ready.
    InPieces(usize),
    /// A stream that is cut at this byte comes before the right one.
    AfterCut(usize),
    /// A stream with an older token comes before the right one.
    AfterOld,
    /// A stream with the token of a concurrent handshake comes before the right one.
    AfterOther,
    /// A second stream with the same token comes behind the first.
    Twice,
    /// A second stream with the same token comes once the link is made.
    Again,
    /// The only stream has a wrong bit.
    Wrong(usize),
    /// No stream comes.
    None,
}

impl Plan {
    fn new(kind: HandshakeKind, count: usize) -> Plan {
        let HandshakeKind::Stream(seed) = kind else {
            return if count.is_multiple_of(2) { Plan::First } else { Plan::Last };
        };
        let mut rng = Rng::with_seed(seed);
        match rng.u8(..12) {
            0 => Plan::Last,
            1 | 2 => Plan::InPieces(rng.usize(..=OPENING_LEN)),
            3 | 4 => Plan::AfterCut(rng.usize(..OPENING_LEN)),
            5 | 6 => Plan::AfterOld,
            7 => Plan::AfterOther,
            8 => Plan::Twice,
            9 => Plan::Again,
            10 => Plan::Wrong(rng.usize(..8 * OPENING_LEN)),
            _ => Plan::None,
        }
    }
}

/// The streams of one handshake.
pub(crate) struct Streams {
    plan: Plan,
    /// The target's offer: its token and its share.
    offer: Option<([u8; Stream::TOKEN], [u8; Share::LEN])>,
    is_sealed: bool,
    /// The link's stream, and the number of sent bytes of its opening.
    own: Option<(Socket, usize)>,
    /// Other streams, which stay open during the handshake.
    kept: Vec<Socket>,
    _other: Option<Control>,
}

impl Streams {
    /// Makes the streams of `hostile`, to which the target offered one, and opens those before Ready.
    pub(crate) fn new(
        hostile: &mut Hostile<'_>,
        offer: Option<StreamOffer>,
        share: [u8; Share::LEN],
        kind: HandshakeKind,
        turn: &mut dyn FnMut(),
    ) -> Streams {
        let is_sealed = hostile.tcps[0].key.is_some();
        let plan = Plan::new(kind, hostile.tokens.len());
        let offer = offer.map(|offer| (offer.token, share));
        let mut streams = Streams { plan, offer, is_sealed, own: None, kept: Vec::new(), _other: None };
        let Some((token, _)) = offer else { return streams };
        let address = hostile.address.clone();
        let other = match plan {
            Plan::AfterOld => hostile.tokens.first().map(opening),
            Plan::AfterCut(_) => Some(opening(&token)),
            Plan::AfterOther => hostile.other(turn).map(|(control, token)| {
                streams._other = Some(control);
                opening(&token)
            }),
            _ => None,
        };
        if let Some(bytes) = other {
            let len = if let Plan::AfterCut(len) = plan { len } else { OPENING_LEN };
            streams.kept.extend(Socket::open(&address).filter(|stream| stream.write(&bytes[..len])));
            if matches!(plan, Plan::AfterCut(_)) {
                streams.kept.clear();
            }
            turn();
        }
        let now = match plan {
            Plan::InPieces(len) => len,
            Plan::Last | Plan::None | Plan::Wrong(_) => 0,
            _ => OPENING_LEN,
        };
        if now != 0 {
            let opened = Socket::open(&address).filter(|stream| stream.write(&opening(&token)[..now]));
            streams.own = opened.map(|stream| (stream, now));
        }
        if plan == Plan::Twice {
            turn();
            streams.kept.extend(Socket::open(&address).filter(|stream| stream.write(&opening(&token))));
        }
        hostile.tokens.push(token);
        if hostile.tokens.len() > MOST_TOKENS {
            hostile.tokens.remove(0);
        }
        streams
    }

    /// The part of Ready about the stream.
    pub(crate) fn reply(&self) -> Option<StreamAccept> {
        let share = Share::from_bytes(&[OWN_SHARE; Share::LEN]);
        self.offer.is_some().then_some(StreamAccept { share, clear: false })
    }

    /// Opens the streams after Ready. Returns the link's stream, with a copy of it, if there is one.
    pub(crate) fn take(
        &mut self,
        address: &PeerAddress,
        turn: &mut dyn FnMut(),
    ) -> (Option<Stream>, Option<OwnedFd>) {
        let Some((token, share)) = self.offer else { return (None, None) };
        let mut bytes = opening(&token);
        let (opened, sent) = match (self.plan, self.own.take()) {
            (Plan::None, _) => return (None, None),
            (Plan::Wrong(bit), _) => {
                bytes[bit / 8] ^= 1 << (bit % 8);
                self.kept.extend(Socket::open(address).filter(|stream| stream.write(&bytes)));
                return (None, None);
            }
            (_, Some((stream, sent))) => (Some(stream), sent),
            (_, None) => {
                turn();
                (Socket::open(address), 0)
            }
        };
        let stream = opened.filter(|stream| stream.write(&bytes[sent..]));
        let Some(descriptor) = stream.map(Socket::into_descriptor) else { return (None, None) };
        let copy = descriptor.try_clone().ok();
        let secret = self.is_sealed.then(|| {
            let mut secret = [OWN_SHARE; Secret::LEN];
            secret[..Share::LEN].copy_from_slice(&share);
            Secret::from_bytes(secret)
        });
        (Some(Stream { descriptor, role: StreamRole::Source, token, secret }), copy)
    }

    /// Opens the streams after the link is made.
    pub(crate) fn again(&mut self, address: &PeerAddress) {
        if let (Plan::Again, Some((token, _))) = (self.plan, self.offer) {
            self.kept.extend(Socket::open(address).filter(|stream| stream.write(&opening(&token))));
        }
    }
}

/// The bytes of the hostile source's share of a secret.
const OWN_SHARE: u8 = 0x77;

/// A connection that should become a stream.
enum Socket {
    Unix(UnixStream),
    Tcp(TcpStream),
}

impl Socket {
    /// Connects to the target's address. The target may be full.
    fn open(address: &PeerAddress) -> Option<Socket> {
        match address {
            PeerAddress::Unix(path) => UnixStream::connect(path).ok().map(Socket::Unix),
            PeerAddress::Abstract(name) => {
                let address = SocketAddr::from_abstract_name(name).ok()?;
                UnixStream::connect_addr(&address).ok().map(Socket::Unix)
            }
            PeerAddress::Tcp { host, port } => {
                TcpStream::connect((host.as_str(), *port)).ok().map(Socket::Tcp)
            }
            _ => None,
        }
    }

    /// Writes the bytes. Returns whether all were sent; they are unless the target has closed.
    fn write(&self, bytes: &[u8]) -> bool {
        match self {
            Socket::Unix(stream) => (&*stream).write_all(bytes).is_ok(),
            Socket::Tcp(stream) => (&*stream).write_all(bytes).is_ok(),
        }
    }

    fn into_descriptor(self) -> OwnedFd {
        match self {
            Socket::Unix(stream) => stream.into(),
            Socket::Tcp(stream) => stream.into(),
        }
    }
}

impl Hostile<'_> {
    /// Makes another handshake, up to its Welcome. Returns its control connection and its token.
    fn other(&self, turn: &mut dyn FnMut()) -> Option<(Control, [u8; Stream::TOKEN])> {
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(5);
        let mut control = Control::connect_with(&self.address, &self.tcps[0], deadline).ok()?;
        control.send(&hello_of("another", vec!["tcp".into()]), &[]).ok()?;
        match await_message(&mut control, turn)?.0 {
            Message::Welcome { stream: Some(offer), .. } => Some((control, offer.token)),
            _ => None,
        }
    }

    /// Writes bytes that are no record into the stream, or ends it.
    pub fn stray(&mut self, seed: u64) {
        let Some(stream) = self.link.as_ref().and_then(|link| link.stream.as_ref()) else { return };
        let mut rng = Rng::with_seed(seed);
        match rng.u8(..4) {
            0 => drop(rustix::net::shutdown(stream, rustix::net::Shutdown::Write)),
            1 => {
                // A record that only returns credit: valid among clear records.
                let mut head = [0; 16];
                head[8..12].copy_from_slice(&rng.u32(..128).to_le_bytes());
                head[12..].copy_from_slice(&rng.u32(..).to_le_bytes());
                write(stream, &head);
            }
            _ => {
                let bytes: Vec<u8> = (0..rng.usize(1..100)).map(|_| rng.u8(..)).collect();
                write(stream, &bytes);
            }
        }
    }
}

/// Writes as many bytes as fit.
fn write(stream: &OwnedFd, bytes: &[u8]) {
    let flags = rustix::net::SendFlags::NOSIGNAL | rustix::net::SendFlags::DONTWAIT;
    let _ = rustix::net::send(stream.as_fd(), bytes, flags);
}
