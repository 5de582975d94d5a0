//! A two-sided backend: Unix datagram sockets. `docs/guide/writing-a-transport.md` builds it.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;

use farjump_core::frame::{FrameError, LINE};
use farjump_core::transport::{
    Address, ArrivalRules, Capabilities, Cause, Endpoint, InboxKind, LocalAddress, Message, Messages,
    OpenRequest, Operation, Transport, TransportError, UnconnectedEndpoint,
};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socketpair, sockopt,
};

/// Largest frame in bytes: the default send buffer of a socket fits several of them.
const LARGEST: usize = 64 * 1024;

pub(crate) struct Datagrams;

impl Transport for Datagrams {
    fn name(&self) -> &str {
        "datagrams"
    }

    fn capabilities(&self) -> Capabilities {
        let mut can = Capabilities::new(InboxKind::TwoSided, ArrivalRules::DELIVERED, LARGEST);
        can.descriptors = true;
        can
    }

    fn open(&mut self, _: &OpenRequest) -> Result<Box<dyn UnconnectedEndpoint>, TransportError> {
        let flags = SocketFlags::CLOEXEC;
        let (inbox, entrance) = socketpair(AddressFamily::UNIX, SocketType::DGRAM, flags, None)
            .map_err(|error| failed(Operation::Open, Cause::System(error.to_string())))?;
        Ok(Box::new(UnconnectedDatagrams { inbox, entrance }))
    }
}

struct UnconnectedDatagrams {
    /// The socket that this endpoint receives from.
    inbox: OwnedFd,
    /// The socket that the peer sends into.
    entrance: OwnedFd,
}

impl UnconnectedEndpoint for UnconnectedDatagrams {
    fn address(&self) -> LocalAddress<'_> {
        LocalAddress { bytes: Vec::new(), descriptors: vec![self.entrance.as_fd()] }
    }

    fn connect(self: Box<Self>, peer: Address, _deadline_ms: u32) -> Result<Endpoint, TransportError> {
        let mut descriptors = peer.descriptors;
        let entrance = descriptors.pop().filter(|entrance| {
            let datagrams = sockopt::socket_type(entrance) == Ok(SocketType::DGRAM);
            let local = sockopt::socket_domain(entrance) == Ok(AddressFamily::UNIX);
            datagrams && local && descriptors.is_empty() && peer.bytes.is_empty()
        });
        let odd = || failed(Operation::Connect, Cause::Address("it is not one of datagrams".into()));
        Ok(Endpoint::TwoSided(Box::new(Post {
            inbox: self.inbox,
            entrance: entrance.ok_or_else(odd)?,
            space: Buffer::new(),
            message: Buffer::new(),
            held: None,
        })))
    }
}

struct Post {
    inbox: OwnedFd,
    entrance: OwnedFd,
    /// The buffer that `reserve` lends.
    space: Buffer,
    /// The buffer that `poll` lends.
    message: Buffer,
    /// Length of the message in it.
    held: Option<usize>,
}

// SAFETY: both buffers are vectors of lines that live as long as the value and fit the longest message, so a
// lent buffer stays; `poll` leaves the message alone until it is released. No other process has them.
unsafe impl Messages for Post {
    fn reserve(&mut self, len: usize) -> Result<NonNull<u8>, TransportError> {
        if len > LARGEST {
            return Err(failed(Operation::Send, Cause::TooLarge { len, max: LARGEST }));
        }
        Ok(self.space.start())
    }

    fn commit(&mut self, len: usize, frame: u64) -> Result<(), TransportError> {
        let cause =
            match send(&self.entrance, &self.space.bytes()[..len], SendFlags::DONTWAIT | SendFlags::NOSIGNAL)
            {
                Ok(_) => return Ok(()),
                Err(Errno::AGAIN | Errno::NOBUFS | Errno::INTR) => Cause::Full,
                Err(Errno::CONNREFUSED | Errno::CONNRESET | Errno::NOTCONN | Errno::PIPE) => Cause::PeerGone,
                Err(error) => Cause::System(error.to_string()),
            };
        Err(failed(Operation::Send, cause).with_frame(frame))
    }

    fn poll(&mut self) -> Result<Option<Message>, TransportError> {
        if self.held.is_none() {
            // With TRUNC the length is that of the whole message, even if it is too long for the buffer.
            let received = recv(&self.inbox, self.message.bytes(), RecvFlags::DONTWAIT | RecvFlags::TRUNC);
            self.held = match received {
                Ok((_, len)) if len > LARGEST => {
                    let error = FrameError::Overlong { frame: LARGEST, found: len };
                    return Err(failed(Operation::Receive, Cause::Protocol(error)));
                }
                Ok((_, len)) => Some(len),
                Err(Errno::AGAIN | Errno::INTR) => None,
                Err(error) => return Err(failed(Operation::Receive, Cause::System(error.to_string()))),
            };
        }
        Ok(self.held.map(|len| Message::new(self.message.start(), len)))
    }

    fn release(&mut self) {
        self.held = None;
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.inbox.as_fd())
    }

    fn arm(&mut self) -> Result<bool, TransportError> {
        Ok(self.poll()?.is_none())
    }
}

/// Memory for one message, on a line.
struct Buffer(Vec<Line>);

#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Line([u8; LINE]);

impl Buffer {
    fn new() -> Buffer {
        Buffer(vec![Line([0; LINE]); LARGEST / LINE])
    }

    fn start(&mut self) -> NonNull<u8> {
        NonNull::from(self.0.as_mut_slice()).cast()
    }

    fn bytes(&mut self) -> &mut [u8] {
        // SAFETY: lines are bytes without padding, and all of them are borrowed with `self`.
        unsafe { std::slice::from_raw_parts_mut(self.0.as_mut_ptr().cast(), LARGEST) }
    }
}

fn failed(operation: Operation, cause: Cause) -> TransportError {
    TransportError::new("datagrams", operation, cause)
}
