//! The floor of transport `tcp`: the same number of bytes over a TCP stream, by the same system calls as
//! farjump's, and nothing else.
//!
//! A message is a frame of farjump's length in records of up to 16 KiB, each behind a head and, where the
//! stream is encrypted, before a tag. A message of one record is one `send` from one buffer. Longer messages
//! are gathered into writes of 512 KiB, and received in place. Both endpoints poll all the time.

mod sealing;
mod shape;

use std::io::{IoSlice, IoSliceMut};
use std::net::{SocketAddr, TcpListener, TcpStream};

use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvFlags, SendAncillaryBuffer, SendFlags, recv, recvmsg, send, sendmsg,
};
use smallvec::SmallVec;

use super::{Connected, Unconnected};
use crate::perf::experiments::role::Peer;
use crate::perf::process::child_protocol::Offer;
use crate::perf::process::liveness::Watch;
use crate::program::failure::Failure;
use sealing::Sealing;
use shape::{BODY, HEAD, Shape};

/// Records in a write.
const GATHERED: usize = 32;
/// Most pieces of a write or a read: the bodies of so many records, and the bytes around them.
const PIECES: usize = 2 * GATHERED + 1;
/// Bytes of one read, for messages of one record.
const INBOX: usize = 32 << 10;

/// Opens the source's endpoint, or the target's on a port of `host`, for payloads of up to `longest` bytes.
///
/// # Errors
/// No port is available.
pub(super) fn open(sealed: bool, host: Option<&str>, longest: usize) -> Result<Unconnected, Failure> {
    let listener = host.map(|host| TcpListener::bind((host, 0))).transpose();
    let listener = listener.map_err(|error| failed("has no port", &error))?;
    let address = listener.as_ref().map(TcpListener::local_addr).transpose();
    let address = address.map_err(|error| failed("has no address", &error))?;
    Ok(Unconnected::new(Offer { address, ..Offer::default() }, move |theirs, _| {
        let stream = Stream::connect(listener, theirs.address, sealed, longest)?;
        Ok(Connected::Both(Box::new(stream)))
    }))
}

impl Stream {
    /// Connects to the peer at `address`, or accepts its connection. Payloads have up to `longest` bytes.
    ///
    /// # Errors
    /// The two do not reach each other. The source's endpoint comes first.
    fn connect(
        listener: Option<TcpListener>,
        address: Option<SocketAddr>,
        sealed: bool,
        longest: usize,
    ) -> Result<Stream, Failure> {
        let is_source = listener.is_none();
        let socket = match (listener, address) {
            (Some(listener), _) => listener.accept().map(|(socket, _)| socket),
            (None, Some(address)) => TcpStream::connect(address),
            (None, None) => return Err(Failure::new("the target's stream has no address")),
        };
        let socket = socket.and_then(|socket| socket.set_nodelay(true).map(|()| socket));
        let socket = socket.map_err(|error| failed("is not connected", &error))?;
        let sealing = if sealed { Some(Sealing::new(is_source)?) } else { None };
        let shape = Shape::of(longest, sealed);
        Ok(Stream {
            socket,
            sealing,
            sent: shape,
            taken: shape,
            payload: vec![7; shape.frame],
            buffer: vec![7; shape.wire().min(GATHERED * BODY + shape.gap())],
            ends_sent: vec![7; GATHERED * shape.gap()],
            inbox: vec![0; INBOX],
            held: 0,
            message: vec![0; shape.frame],
            ends: vec![0; shape.records() * shape.gap()],
            got: 0,
            opened: 0,
            count: 0,
        })
    }
}

/// A connected endpoint.
pub(crate) struct Stream {
    socket: TcpStream,
    sealing: Option<Sealing>,
    sent: Shape,
    taken: Shape,
    /// The user's bytes, which are not modified.
    payload: Vec<u8>,
    /// Buffer in which messages of one record and the bodies of a write are encrypted.
    buffer: Vec<u8>,
    /// Heads and tags of a write.
    ends_sent: Vec<u8>,
    /// Received bytes of messages of one record, and the number of those in an incomplete message.
    inbox: Vec<u8>,
    held: usize,
    /// Buffer of a longer message, and its heads and tags.
    message: Vec<u8>,
    ends: Vec<u8>,
    /// Bytes of it received, and records of it decrypted.
    got: usize,
    opened: usize,
    /// Messages received since the start of the present measurement.
    count: u64,
}

impl Stream {
    fn send_short(&mut self, watch: &Watch) -> Result<(), Failure> {
        let Shape { frame, .. } = self.sent;
        let wire = self.sent.wire();
        if let Some(sealing) = &mut self.sealing {
            self.buffer[HEAD..HEAD + frame].copy_from_slice(&self.payload[..frame]);
            let (head, rest) = self.buffer.split_at_mut(HEAD);
            let (body, tag) = rest.split_at_mut(frame);
            sealing.seal(head, body, &mut tag[..shape::TAG])?;
        }
        let mut at = 0;
        watch.until(|| {
            match send(&self.socket, &self.buffer[at..wire], SendFlags::NOSIGNAL | SendFlags::DONTWAIT) {
                Ok(some) => at += some,
                Err(Errno::AGAIN | Errno::INTR) => {}
                Err(error) => return Err(failed("sends nothing", &error.into())),
            }
            Ok(at == wire)
        })
    }

    fn send_long(&mut self, watch: &Watch) -> Result<(), Failure> {
        let records = self.sent.records();
        for first in (0..records).step_by(GATHERED) {
            self.write(first..records.min(first + GATHERED), watch)?;
        }
        Ok(())
    }

    fn write(&mut self, records: std::ops::Range<usize>, watch: &Watch) -> Result<(), Failure> {
        let gap = self.sent.gap();
        let from = records.start * BODY;
        let to = self.sent.frame.min(records.end * BODY);
        let bodies = match &mut self.sealing {
            None => &self.payload[from..to],
            Some(sealing) => {
                // The user's bytes must not change: a copy is encrypted, record by record, while it is in the
                // cache.
                let buffer = &mut self.buffer[..to - from];
                let bodies = buffer.chunks_mut(BODY).zip(self.payload[from..to].chunks(BODY));
                for ((body, payload), ends) in bodies.zip(self.ends_sent.chunks_exact_mut(gap)) {
                    body.copy_from_slice(payload);
                    let (head, tag) = ends.split_at_mut(HEAD);
                    sealing.seal(head, body, tag)?;
                }
                &buffer[..]
            }
        };
        let mut pieces: SmallVec<[IoSlice<'_>; PIECES]> = SmallVec::new();
        let (head, ends) = self.ends_sent[..records.len() * gap].split_at(HEAD);
        pieces.push(IoSlice::new(head));
        // A tag, and the head of the next record.
        let between = ends.chunks(gap);
        for (body, end) in bodies.chunks(BODY).zip(between.chain([&[][..]])) {
            pieces.push(IoSlice::new(body));
            pieces.push(IoSlice::new(end));
        }
        let mut left = &mut pieces[..];
        watch.until(|| {
            let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
            match sendmsg(&self.socket, left, &mut SendAncillaryBuffer::default(), flags) {
                Ok(some) => IoSlice::advance_slices(&mut left, some),
                Err(Errno::AGAIN | Errno::INTR) => {}
                Err(error) => return Err(failed("sends nothing", &error.into())),
            }
            Ok(left.iter().all(|piece| piece.is_empty()))
        })
    }

    fn look_for_short(&mut self) -> Result<(), Failure> {
        let (frame, wire) = (self.taken.frame, self.taken.wire());
        let some = match recv(&self.socket, &mut self.inbox[self.held..], RecvFlags::DONTWAIT) {
            Ok((0, _)) => return Err(Failure::new("the other end of the stream was closed")),
            Ok((some, _)) => some,
            Err(Errno::AGAIN | Errno::INTR) => return Ok(()),
            Err(error) => return Err(failed("receives nothing", &error.into())),
        };
        let all = self.held + some;
        let whole = all / wire * wire;
        if let Some(sealing) = &mut self.sealing {
            for record in self.inbox[..whole].chunks_exact_mut(wire) {
                let (head, rest) = record.split_at_mut(HEAD);
                let (body, tag) = rest.split_at_mut(frame);
                sealing.open(head, body, tag)?;
            }
        }
        self.count += (whole / wire) as u64;
        self.inbox.copy_within(whole..all, 0);
        self.held = all - whole;
        Ok(())
    }

    fn look_for_long(&mut self) -> Result<(), Failure> {
        let shape = self.taken;
        let (body, ends) = shape.split(self.got);
        let (mut bodies, mut ends) = (&mut self.message[body..shape.frame], &mut self.ends[ends..]);
        let mut pieces: SmallVec<[IoSliceMut<'_>; PIECES]> = SmallVec::new();
        let mut at = self.got;
        while at != shape.wire() && pieces.len() < PIECES {
            let (len, is_body) = shape.piece(at);
            let rest = if is_body { &mut bodies } else { &mut ends };
            pieces.push(IoSliceMut::new(rest.split_off_mut(..len).unwrap_or_default()));
            at += len;
        }
        let flags = RecvFlags::DONTWAIT;
        let received = recvmsg(&self.socket, &mut pieces, &mut RecvAncillaryBuffer::default(), flags);
        drop(pieces);
        match received {
            Ok(received) if received.bytes == 0 => {
                return Err(Failure::new("the other end of the stream was closed"));
            }
            Ok(received) => self.got += received.bytes,
            Err(Errno::AGAIN | Errno::INTR) => return Ok(()),
            Err(error) => return Err(failed("receives nothing", &error.into())),
        }
        if let Some(sealing) = &mut self.sealing {
            while self.opened != shape.records() && self.got >= shape.end(self.opened) {
                let ends = &mut self.ends[self.opened * shape.gap()..][..shape.gap()];
                let (head, tag) = ends.split_at_mut(HEAD);
                let body = self.opened * BODY..shape.frame.min((self.opened + 1) * BODY);
                sealing.open(head, &mut self.message[body], tag)?;
                self.opened += 1;
            }
        }
        if self.got == shape.wire() {
            (self.got, self.opened) = (0, 0);
            self.count += 1;
        }
        Ok(())
    }
}

impl Peer for Stream {
    fn prepare(&mut self, sent: usize, taken: usize, _streams: bool) {
        let sealed = self.sealing.is_some();
        (self.sent, self.taken) = (Shape::of(sent, sealed), Shape::of(taken, sealed));
        self.count = 0;
    }

    #[inline]
    fn send(&mut self, watch: &Watch) -> Result<(), Failure> {
        match self.sent.records() {
            1 => self.send_short(watch),
            _ => self.send_long(watch),
        }
    }

    #[inline]
    fn look(&mut self) -> Result<u64, Failure> {
        match self.taken.records() {
            1 => self.look_for_short()?,
            _ => self.look_for_long()?,
        }
        Ok(self.count)
    }

    fn came(&self) -> u64 {
        self.count
    }

    fn settle(&mut self, _watch: &Watch) -> Result<(), Failure> {
        Ok(())
    }
}

#[cold]
fn failed(what: &str, error: &std::io::Error) -> Failure {
    Failure::new(format!("the stream over TCP {what}: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair(sealed: bool, longest: usize) -> (Stream, Stream) {
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("loopback has a port");
        let address = listener.local_addr().expect("it listens");
        let source = Stream::connect(None, Some(address), sealed, longest).expect("it listens");
        let target = Stream::connect(Some(listener), None, sealed, longest);
        (source, target.expect("it was connected to"))
    }

    #[test]
    fn messages_of_every_length_are_counted_sealed_and_clear_in_both_directions() {
        let watch = Watch::alone();
        for sealed in [false, true] {
            let (mut source, mut target) = pair(sealed, 100_000);
            for payload in [0, 8, 40, 41, 16_000, 16_320, 16_321, 70_000, 100_000] {
                source.prepare(payload, 0, false);
                target.prepare(0, payload, false);
                for round in 1..4 {
                    source.send(&watch).expect("it is connected");
                    watch.until(|| Ok(target.look()? == round)).expect("it came");
                    target.send(&watch).expect("it is connected");
                    watch.until(|| Ok(source.look()? == round)).expect("it was answered");
                }
                assert_eq!((source.got, source.held, target.got, target.held), (0, 0, 0, 0), "{payload}");
            }
        }
    }

    #[test]
    fn a_sealed_record_with_an_unexpected_number_is_not_opened() {
        let watch = Watch::alone();
        for payload in [8, 50_000] {
            let (mut source, mut target) = pair(true, payload);
            source.prepare(payload, 0, true);
            target.prepare(0, payload, true);
            // The receiver's next number is not that of the coming record.
            target.sealing.as_mut().expect("it is sealed").skip();
            source.send(&watch).expect("it is connected");
            assert!(watch.until(|| Ok(target.look()? == 1)).is_err(), "{payload}");
        }
    }
}
