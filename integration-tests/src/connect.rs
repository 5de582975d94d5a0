//! Two connected endpoints in one process, without a control connection.

use std::io;
use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use farjump_core::transport::{
    Address, Cause, Endpoint, OpenRequest, Operation, Secret, Stream, StreamRole, Transport, TransportError,
    UnconnectedEndpoint,
};

/// Time limit for the two endpoints to connect, in milliseconds.
const DEADLINE_MS: u32 = 10_000;

/// The streams for backends that request one.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Streams {
    /// TCP over loopback, with a secret.
    #[default]
    Sealed,
    /// Unix sockets, without a secret.
    Clear,
}

impl Streams {
    /// Makes a stream, and returns its two ends: the source's, then the target's.
    ///
    /// # Errors
    /// When the system has no sockets.
    pub fn pair(self) -> io::Result<[Stream; 2]> {
        static MADE: AtomicU64 = AtomicU64::new(0);
        let number = MADE.fetch_add(1, Relaxed).to_le_bytes();
        let ends: [OwnedFd; 2] = match self {
            Streams::Clear => {
                let (one, other) = UnixStream::pair()?;
                one.set_nonblocking(true)?;
                other.set_nonblocking(true)?;
                [one.into(), other.into()]
            }
            Streams::Sealed => {
                let listener = TcpListener::bind("127.0.0.1:0")?;
                let one = TcpStream::connect(listener.local_addr()?)?;
                let (other, _) = listener.accept()?;
                one.set_nonblocking(true)?;
                other.set_nonblocking(true)?;
                [one.into(), other.into()]
            }
        };
        let mut sides = [StreamRole::Source, StreamRole::Target].into_iter();
        Ok(ends.map(|descriptor| {
            let mut token = [0; Stream::TOKEN];
            token[..8].copy_from_slice(&number);
            let mut secret = [1; Secret::LEN];
            secret[..8].copy_from_slice(&number);
            let secret = (self == Streams::Sealed).then(|| Secret::from_bytes(secret));
            Stream { descriptor, role: sides.next().unwrap_or(StreamRole::Target), token, secret }
        }))
    }
}

/// Opens an endpoint of `left` and one of `right`, and connects them to each other. `left` is the source, if that
/// matters.
///
/// # Errors
/// Those of opening and connecting; open endpoints are closed again.
pub fn connect(
    left: &mut dyn Transport,
    right: &mut dyn Transport,
    request: &OpenRequest,
) -> Result<(Endpoint, Endpoint), TransportError> {
    connect_over(Streams::default(), left, right, request)
}

/// [`connect`] with such a stream for backends that request one.
///
/// # Errors
/// Those of [`connect`].
pub fn connect_over(
    streams: Streams,
    left: &mut dyn Transport,
    right: &mut dyn Transport,
    request: &OpenRequest,
) -> Result<(Endpoint, Endpoint), TransportError> {
    let streamed = left.capabilities().stream && right.capabilities().stream;
    let (left, right) = (left.open(request)?, right.open(request)?);
    let (mut to_left, mut to_right) = (handed_over(&*left)?, handed_over(&*right)?);
    if streamed {
        let [source, target] = streams.pair().map_err(|error| failed(&format!("a stream: {error}")))?;
        // An endpoint gets its own end of the stream with the peer's address.
        (to_right.stream, to_left.stream) = (Some(source), Some(target));
    }
    // Both must be open while either connects: an address is valid as long as its unconnected endpoint. They connect
    // at the same time, as two processes do: one may have to wait for the other.
    std::thread::scope(|scope| {
        let other = scope.spawn(move || right.connect(to_left, DEADLINE_MS));
        let one = left.connect(to_right, DEADLINE_MS);
        let other = other.join().unwrap_or_else(|_| Err(failed("the other end's thread panicked")));
        Ok((one?, other?))
    })
}

/// The address of `opening` as a control connection passes it on: with descriptors of its own.
///
/// # Errors
/// When the system has no more descriptors.
pub fn handed_over(opening: &dyn UnconnectedEndpoint) -> Result<Address, TransportError> {
    opening.address().try_to_owned().map_err(|error| failed(&format!("copying a descriptor: {error}")))
}

fn failed(what: &str) -> TransportError {
    TransportError::new("pair", Operation::Connect, Cause::System(what.to_owned()))
}
