//! The contract between farjump and the transports that move its bytes.
//!
//! A backend implements [`Transport`]. It makes one [`UnconnectedEndpoint`] for each link, and
//! from it an [`Endpoint`] of one of two families:
//!
//! * **one-sided**: the backend writes into a region of the peer's memory without the peer taking part
//!   ([`RemoteMemory`]), and owns a region that the peer writes into ([`LocalMemory`]). Core builds the
//!   mailbox protocol on that: rings, signals, credit, sleep. The backend never sees a frame.
//! * **two-sided**: the backend sends and delivers whole messages ([`Messages`]). Core puts exactly one frame
//!   into each.
//!
//! Both become a [`crate::channel::Channel`]: reserve, write, commit; poll, release; progress, arm, close.
//! Nothing above core can distinguish the families. `docs/guide/writing-a-transport.md` builds a backend of each
//! family step by step. The conformance suite in `integration-tests` tests any `Transport`.
//!
//! # Connecting two endpoints
//! Each peer calls [`Transport::open`], sends [`UnconnectedEndpoint::address`] to the other over the control
//! connection (a Unix or TCP socket that farjump owns), and makes an endpoint from the other's address with
//! [`UnconnectedEndpoint::connect`]. Only the backend reads the bytes of an address. File descriptors travel
//! with the address if the control connection can carry them. If a backend's frames travel on a stream,
//! farjump connects one for it ([`Stream`]). An address comes from another process and is *untrusted*: check
//! its length and every number in it.
//!
//! # Ownership of buffers
//! | memory | owner | written by | until |
//! |---|---|---|---|
//! | local region | [`LocalMemory`], which maps and unmaps it | the peer, at any time | the endpoint's drop |
//! | bytes of [`RemoteMemory::put`] | core (the shadow ring) | nothing | the peer returns their credit |
//! | buffer of [`Messages::reserve`] | the backend, lent | core | [`Messages::commit`] or `reserve` |
//! | message of [`Messages::poll`] | the backend, lent | core, the function | [`Messages::release`] |
//! | memory given to [`Lender::lend`] | the caller | as the caller says | the [`Loan`]'s drop |
//! | bytes of [`Reads::poll`] | the backend, given away | the peer's bytes, before they are returned | the drop of [`ReadBytes`] |
//!
//! A backend need not copy the bytes of a put before the peer has returned their credit, and must keep no
//! pointer to them after that.
//!
//! # Errors
//! Every operation can fail. A [`TransportError`] names peer, operation and cause. An error about a frame
//! that was already accepted carries that frame's position, and surfaces at the next call on the link. After
//! any error but a refused `open`, core closes the endpoint, so that no link works only in part.
//!
//! # Threads
//! One thread at a time uses an endpoint, which may move between threads (`Send`, not `Sync`). Different
//! endpoints may be used by different threads at the same time: a backend whose library does not allow that
//! must lock.

mod arrival;
mod capabilities;
mod error;
mod lending;
mod messages;
mod one_sided;
mod passed_over;
mod stream;

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

pub use crate::descriptor::{BorrowedFd, OwnedFd};
pub use arrival::ArrivalRules;
pub use capabilities::{Capabilities, InboxKind};
pub use error::{Cause, Operation, TransportError};
pub use lending::{Lender, Loan, MAX_LOAN_KEY, ReadBytes, Reads};
pub use messages::{Message, MessageHeader, Messages, send_in_steps};
pub use one_sided::{LocalMemory, RemoteMemory};
pub use passed_over::PassedOver;
pub use stream::{Secret, Stream, StreamRole};

/// Unit of one-sided regions, in bytes: their starts and their lengths are multiples of it. It is the same on
/// all machines, because the two endpoints of a channel may have pages of different lengths. It is at most a
/// page of any system that farjump runs on (x86-64 has pages of 4 KiB; aarch64 of 4, 16 or 64). Code that
/// depends on the system's page queries the system.
pub const REGION_UNIT: usize = 4096;

/// The requirements for a new endpoint.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct OpenRequest {
    /// One-sided: bytes of the local region, a multiple of [`REGION_UNIT`]. Two-sided: bytes of undelivered messages
    /// that the receiver should be able to hold; a hint. A frame may be longer (`max_frame`): it must be
    /// accepted at least when nothing else is under way.
    pub region_len: usize,
    /// Largest frame that this endpoint accepts, in bytes, header included.
    pub max_frame: usize,
    /// One-sided: bytes at the start of the region that must have memory when it is opened. The rest may get
    /// memory as it is used, if the backend can do that. This bounds the cost of opening a region whose
    /// length a peer chose. All of it unless set.
    pub at_once: usize,
    /// True if the endpoint belongs to a link that already has connected endpoints. Facts about the peer that
    /// were learnt for those need not be learnt again. Both peers set the same value.
    pub is_second: bool,
}

impl OpenRequest {
    /// A request for a region of `region_len` bytes and frames of up to `max_frame` bytes.
    pub const fn new(region_len: usize, max_frame: usize) -> Self {
        OpenRequest { region_len, max_frame, at_once: usize::MAX, is_second: false }
    }

    /// Limits the memory that the region needs when it is opened to `bytes`.
    #[must_use]
    pub const fn at_once(mut self, bytes: usize) -> Self {
        self.at_once = bytes;
        self
    }

    /// Marks the request as one for a second endpoint of a link.
    #[must_use]
    pub const fn second(mut self) -> Self {
        self.is_second = true;
        self
    }
}

/// The data by which a peer reaches an endpoint, as its own process has it.
#[derive(Clone, Debug, Default)]
pub struct LocalAddress<'a> {
    /// Bytes that only the backend reads; at most 64 KiB.
    pub bytes: Vec<u8>,
    /// Descriptors for the peer, at most 8: it gets copies.
    pub descriptors: Vec<BorrowedFd<'a>>,
}

impl LocalAddress<'_> {
    /// Makes the address that the peer gets, with copies of the descriptors.
    ///
    /// # Errors
    /// When the system has no more descriptors.
    #[cfg(all(feature = "std", unix))]
    pub fn try_to_owned(&self) -> std::io::Result<Address> {
        let copies = self.descriptors.iter().map(|descriptor| descriptor.try_clone_to_owned());
        let descriptors = copies.collect::<Result<_, _>>()?;
        Ok(Address { bytes: self.bytes.clone(), descriptors, stream: None })
    }
}

/// The data by which a peer reaches an endpoint, as the peer has it.
#[derive(Debug, Default)]
pub struct Address {
    /// Bytes that only the backend reads; at most 64 KiB.
    pub bytes: Vec<u8>,
    /// The descriptors received, at most 8. Those that the backend does not keep are closed with this value.
    /// Empty if the control connection crosses machines; a backend that needs them then fails in
    /// [`UnconnectedEndpoint::connect`] and says so.
    pub descriptors: Vec<OwnedFd>,
    /// The stream to the peer, for a backend with [`Capabilities::stream`]: not part of the peer's address.
    /// Without it such a backend fails in [`UnconnectedEndpoint::connect`] and says so. Other backends get
    /// none.
    pub stream: Option<Stream>,
}

/// A transport: one way for frames to travel.
pub trait Transport: Send {
    /// The name that users type: lower case, digits and hyphens, at most 32 bytes. The same on every machine:
    /// peers match transports by it.
    fn name(&self) -> &str;

    /// The backend's abilities on this machine. Constant for the life of the value.
    fn capabilities(&self) -> Capabilities;

    /// Makes an unconnected endpoint.
    ///
    /// # Errors
    /// When memory, a region or a descriptor is not available, or `request` exceeds the backend's abilities.
    /// Nothing is left behind.
    fn open(&mut self, request: &OpenRequest) -> Result<Box<dyn UnconnectedEndpoint>, TransportError>;
}

/// An unconnected endpoint: the peer's address is not known yet. Dropping it undoes the opening.
pub trait UnconnectedEndpoint: Send {
    /// The endpoint address for the peer. The same at each call.
    fn address(&self) -> LocalAddress<'_>;

    /// The arrival rules that hold between this endpoint and the one with the address `peer`, if more is
    /// known than [`Capabilities::arrival`] says. For example, a peer on another machine cannot be mapped
    /// here, whatever both support. Called at most once, before [`UnconnectedEndpoint::connect`], by the peer
    /// that learns the other's address before it sends its own. That peer then offers no other rules. By
    /// default returns all rules. May take as long as `connect`.
    ///
    /// # Errors
    /// Those of [`UnconnectedEndpoint::connect`].
    fn arrival_with(&mut self, peer: &[u8]) -> Result<ArrivalRules, TransportError> {
        let _ = peer;
        Ok(ArrivalRules::all())
    }

    /// Connects to the peer. Bounded in time: a backend that waits for the network, or for the peer's own
    /// `connect`, takes at most `deadline_ms`. Both peers connect at the same time, so one thread must not
    /// connect one endpoint after the other. An endpoint with [`OpenRequest::is_second`] does not wait for
    /// its peer, which may be busy with frames of the first endpoint.
    ///
    /// # Errors
    /// When `peer` (untrusted) is invalid, is of another kind or version, or cannot be reached.
    fn connect(self: Box<Self>, peer: Address, deadline_ms: u32) -> Result<Endpoint, TransportError>;
}

/// A connected endpoint, of either family.
pub enum Endpoint {
    /// Writes into the peer's region, and owns one that the peer writes into.
    OneSided {
        /// The region that the peer writes into.
        local: Box<dyn LocalMemory>,
        /// The peer's region.
        remote: Box<dyn RemoteMemory>,
    },
    /// Sends and receives whole messages.
    TwoSided(Box<dyn Messages>),
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Endpoint::OneSided { .. } => "OneSided",
            Endpoint::TwoSided(_) => "TwoSided",
        })
    }
}

/// The path of an endpoint's frames, in words for people.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct PathInfo {
    /// A few words: `tcp over eth0`. Empty if the backend's name says it all.
    pub over: String,
    /// Sentences with reasons and consequences, the most important first.
    pub notes: Vec<String>,
}

impl PathInfo {
    /// Makes a path over `over`, with these notes.
    pub fn new(over: impl Into<String>, notes: Vec<String>) -> PathInfo {
        PathInfo { over: over.into(), notes }
    }
}
