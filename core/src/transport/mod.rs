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
//! Nothing above core can distinguish the families. `docs/writing-a-transport.md` builds a backend of each
//! family step by step. The conformance suite in `integration-tests` tests any `Transport`.
//!
//! # Connecting two endpoints
//! Each peer calls [`Transport::open`], sends [`UnconnectedEndpoint::address`] to the other over the control
//! connection (a Unix or TCP socket that farjump owns), and makes an endpoint from the other's address with
//! [`UnconnectedEndpoint::connect`]. Only the backend reads the bytes of an address. File descriptors travel
//! with it if the control connection can carry them. If a backend's frames travel on a stream, farjump
//! connects one for it ([`Stream`]). An address comes from another process and is *untrusted*: check its
//! length and every number in it.
//!
//! # Ownership of buffers
//! | memory | owner | written by | until |
//! |---|---|---|---|
//! | local region | [`LocalMemory`], which maps and unmaps it | the peer, at any time | the endpoint's drop |
//! | bytes of [`RemoteMemory::put`] | core (the shadow ring) | nothing | the peer returns their credit |
//! | buffer of [`Messages::reserve`] | the backend, lent | core | [`Messages::commit`] or `reserve` |
//! | message of [`Messages::poll`] | the backend, lent | core, the function | [`Messages::release`] |
//!
//! A backend need not copy the bytes of a put before the peer has returned their credit, and must keep no
//! pointer to them after that.
//!
//! # Errors
//! Every operation can fail. A [`TransportError`] names peer, operation and cause. An error about a frame
//! that was already accepted carries that frame's position, and surfaces at the next call on the link. After
//! any error but a refused `open`, core closes the endpoint: no link works by halves.
//!
//! # Threads
//! One thread at a time uses an endpoint, which may move between threads (`Send`, not `Sync`). Different
//! endpoints may be used by different threads at the same time: a backend whose library does not allow that
//! locks.

mod arrival;
mod capabilities;
mod error;
mod passed_over;
mod stream;

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use core::ptr::NonNull;

pub use crate::descriptor::{BorrowedFd, OwnedFd};
pub use arrival::ArrivalRules;
pub use capabilities::{Capabilities, InboxKind, WakeSource};
pub use error::{Cause, Operation, TransportError};
pub use passed_over::PassedOver;
pub use stream::{Secret, Side, Stream};

/// The requirements for a new endpoint.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct OpenRequest {
    /// One-sided: bytes of the local region, a multiple of 4096. Two-sided: bytes of undelivered messages
    /// that the receiver should be able to hold; a hint. A frame may be longer (`max_frame`): it must be
    /// accepted at least when nothing else is under way.
    pub region_len: usize,
    /// Largest frame that this endpoint accepts, in bytes, header included.
    pub max_frame: usize,
    /// One-sided: bytes at the start of the region that must have memory when it is opened. The rest may get
    /// memory as it is used, if the backend can do that. This bounds the cost of opening a region whose
    /// length a peer chose. All of it unless set.
    pub at_once: usize,
    /// The endpoint belongs to a link that already has connected endpoints. What both sides learnt about
    /// each other for those need not be learnt again. Both sides set it alike.
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
    /// known than [`Capabilities::arrival`] says: a peer on another machine cannot be mapped here, whatever
    /// both support. Called at most once, before [`UnconnectedEndpoint::connect`], by the peer that learns
    /// the other's address before it sends its own. That peer then offers no other rules. All rules by
    /// default. May take as long as `connect`.
    ///
    /// # Errors
    /// Those of [`UnconnectedEndpoint::connect`].
    fn arrival_with(&mut self, peer: &[u8]) -> Result<ArrivalRules, TransportError> {
        let _ = peer;
        Ok(ArrivalRules::all())
    }

    /// Connects to the peer. Bounded in time: a backend that waits for the network, or for the peer's own
    /// `connect`, takes at most `deadline_ms`. Both sides connect at the same time, so one thread must not
    /// connect one endpoint after the other. Endpoints with [`OpenRequest::is_second`] wait for no peer,
    /// which may be busy with frames of the first.
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

/// The peer's region, as seen by the process that writes it.
///
/// # Safety
/// Core writes through the pointer that [`RemoteMemory::mapped`] returns without asking again. Until the
/// value is dropped, an implementation guarantees that this pointer is valid for reads and writes of
/// [`RemoteMemory::len`] bytes and aligned to 4096 bytes. It points to memory that other processes may write
/// but that does not vanish (a mapped file must be sealed against shrinking). [`RemoteMemory::staging`]
/// returns memory as its documentation states.
pub unsafe trait RemoteMemory: Send {
    /// Length of the peer's region in bytes.
    fn len(&self) -> usize;

    /// Whether the region has no bytes; never true of a connected one.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Address of the region in this process, if it is mapped. Then core writes it with plain stores under
    /// [`ArrivalRules::STORES`], and uses only [`RemoteMemory::wake_peer`] and
    /// [`RemoteMemory::store_load_ordered`] of this trait. Under the other rules it does not ask for the
    /// mapping, and puts carry the bytes.
    fn mapped(&self) -> Option<NonNull<u8>> {
        None
    }

    /// Starts moving `bytes` to `offset` in the peer's region. The put may take effect at any time up to the
    /// completion of a later [`RemoteMemory::fence`], and in any order with other puts, even to the same
    /// bytes.
    ///
    /// Zero bytes are allowed and do nothing. `offset + bytes.len()` is at most [`RemoteMemory::len`]. Core
    /// checks this before the call, and a backend checks it again, because a put past the end corrupts a
    /// process (UCX over shared memory: the sender). `frame` is the position of the frame that the bytes
    /// belong to, for later errors.
    ///
    /// `bytes` stay unchanged until the peer has returned credit for them or this value is dropped, so they
    /// need not be copied. Bytes whose credit the peer has not returned when this value is dropped may never
    /// arrive.
    ///
    /// # Errors
    /// [`Cause::Full`] when the backend's queue is full and [`RemoteMemory::progress`] must be called first:
    /// nothing was written, and core calls again. Any other error is final for the link.
    fn put(&mut self, offset: usize, bytes: &[u8], frame: u64) -> Result<(), TransportError>;

    /// Writes one aligned word in one piece. Used for signals and credit. Otherwise like
    /// [`RemoteMemory::put`]; `word` is copied.
    ///
    /// # Errors
    /// Those of [`RemoteMemory::put`].
    fn put_word(&mut self, offset: usize, word: u64, frame: u64) -> Result<(), TransportError>;

    /// Orders every earlier put before every later one in the peer's memory. Does not wait.
    ///
    /// # Errors
    /// Final for the link.
    fn fence(&mut self) -> Result<(), TransportError>;

    /// Moves `bytes` like [`RemoteMemory::put`], and adds one to the peer's [`LocalMemory::completions`] once
    /// all of them are visible there. The completions follow the order of the calls: a count of `n` proves
    /// the first `n` of them. Only called under [`ArrivalRules::WRITE_IMM`].
    ///
    /// # Errors
    /// Those of [`RemoteMemory::put`]; [`Cause::Unsupported`] in a backend that does not list the rule.
    fn put_with_completion(&mut self, offset: usize, bytes: &[u8], frame: u64) -> Result<(), TransportError> {
        let _ = (offset, bytes, frame);
        Err(TransportError::new("this transport", Operation::Put, Cause::Unsupported("write with immediate")))
    }

    /// Lets the backend make progress: completions, retransmissions. Never waits. Called often while anything
    /// is outstanding.
    ///
    /// # Errors
    /// Failures of earlier puts, with the position of the frame.
    fn progress(&mut self) -> Result<(), TransportError> {
        Ok(())
    }

    /// Wakes the peer's receiver if it sleeps on [`LocalMemory::descriptor`]. Called after a frame only if
    /// the peer said that it sleeps, and once for each sleep. A wake-up does not overtake the puts before it,
    /// unless the peer's [`LocalMemory::before_sleep`] returns `false`: a sleeper that discards a wake-up
    /// whose frame has not arrived would sleep through that frame. Does nothing without a wake source.
    ///
    /// # Errors
    /// Final for the link.
    fn wake_peer(&mut self) -> Result<(), TransportError> {
        Ok(())
    }

    /// Whether the peer's sleeper orders this endpoint's earlier stores before its later loads by its own
    /// means (`membarrier`). This endpoint then needs no fence between "store a frame" and "is the peer
    /// asleep?".
    fn store_load_ordered(&self) -> bool {
        false
    }

    /// The path of the writes. For people; may take long.
    fn path_info(&self) -> PathInfo {
        PathInfo::default()
    }

    /// Staging of `len` bytes, a multiple of 4096, for a backend that wants frames in memory of its own, such
    /// as memory registered with a device. Core lays out frames there and puts them from there. Aligned to
    /// 4096 bytes, zero, valid for core's reads and writes until this value is dropped. Core asks once, when
    /// the link is made and the peer's memory is not written by plain stores. Puts from other memory must be
    /// carried out too. `None`: core uses ordinary memory.
    ///
    /// # Errors
    /// When the backend wants staging and there is not enough memory. Final for the link.
    fn staging(&mut self, len: usize) -> Result<Option<NonNull<u8>>, TransportError> {
        let _ = len;
        Ok(None)
    }
}

/// This endpoint's region, which the peer writes into.
///
/// # Safety
/// Core reads and the injected function writes through [`LocalMemory::base`] without asking again. An
/// implementation guarantees that the pointer is valid for reads and writes of [`LocalMemory::len`] bytes and
/// aligned to 4096 bytes until the value is dropped. The bytes were zero when the endpoint was opened, and
/// only the peer writes to them besides core. [`LocalMemory::executable`] maps the same bytes, with the same
/// length and alignment, until the value is dropped.
pub unsafe trait LocalMemory: Send {
    /// Start of the region.
    fn base(&self) -> NonNull<u8>;

    /// Length in bytes, a multiple of 4096, at least the requested one.
    fn len(&self) -> usize;

    /// Whether the region has no bytes; never true of an opened one.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Start of the executable alias: a second mapping of the same bytes that can be executed and not
    /// written. Made at the first call, the same from then on, with the length and alignment of the first
    /// mapping. Only called by a target that allows code to run in place.
    ///
    /// # Errors
    /// [`Cause::Unsupported`] without [`Capabilities::in_place`]. The system's error if it forbids the
    /// mapping. The link stays usable in both cases.
    fn executable(&mut self) -> Result<NonNull<u8>, TransportError> {
        Err(TransportError::new(
            "this transport",
            Operation::Open,
            Cause::Unsupported("an executable mailbox"),
        ))
    }

    /// Number of writes with completion that have arrived since the link was made. Only called under
    /// [`ArrivalRules::WRITE_IMM`].
    ///
    /// # Errors
    /// Final for the link.
    fn completions(&mut self) -> Result<u64, TransportError> {
        Ok(0)
    }

    /// The descriptor that becomes readable when the peer sends a wake-up; `None` without a wake source. The
    /// same for the life of the value.
    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    /// Called on the way to sleep, after core stored "asleep" in the peer's region and before it polls once
    /// more. Makes the two appear in that order to the peer (by a full fence, or by `membarrier` if the peer
    /// relies on [`RemoteMemory::store_load_ordered`]), and discards wake-ups that were not read. Returns
    /// `false` if it cannot guarantee the order: core then naps.
    ///
    /// # Errors
    /// Final for the link.
    fn before_sleep(&mut self) -> Result<bool, TransportError> {
        Ok(false)
    }

    /// Called after waking: empties the descriptor.
    ///
    /// # Errors
    /// Final for the link.
    fn after_sleep(&mut self) -> Result<(), TransportError> {
        Ok(())
    }
}

/// Whole messages, in order, each delivered once. The backend must not lose one without an error.
///
/// # Safety
/// Core and the injected function read and write through the pointers that this trait returns, without asking
/// again. An implementation guarantees that
/// * the buffer that [`Messages::reserve`] returns for `len` bytes is aligned to 64 bytes, and valid for
///   reads and writes of `len` bytes until the [`Messages::commit`] that succeeds, the next `reserve`, or the
///   end of the value;
/// * the message that [`Messages::poll`] returns is aligned to 64 bytes, valid for reads and writes of its
///   length until [`Messages::release`] or the end of the value, and written by nothing else until then;
/// * neither overlaps the other, or any memory that a reference reaches.
pub unsafe trait Messages: Send {
    /// Reserves a buffer for one message of `len` bytes. Nothing is sent before [`Messages::commit`]; a
    /// second `reserve` without it discards the first. The buffer is aligned to 64 bytes
    /// and may hold anything.
    ///
    /// # Errors
    /// [`Cause::Full`] when no buffer is free now and [`Messages::progress`] may free one.
    /// [`Cause::TooLarge`] over [`Capabilities::max_frame`]. Any other error is final for the link.
    fn reserve(&mut self, len: usize) -> Result<NonNull<u8>, TransportError>;

    /// Sends the first `len` bytes of the reserved buffer. `len` is at most the reserved length and a
    /// multiple of 64. The message is on its way when this returns without an error. `frame` is its running
    /// number, for later errors.
    ///
    /// # Errors
    /// [`Cause::Full`] when the backend cannot take it now: the buffer stays reserved and core calls again.
    fn commit(&mut self, len: usize, frame: u64) -> Result<(), TransportError>;

    /// Whether [`Messages::commit_beside`] is implemented: sending bytes without copying them.
    fn sends_beside(&self) -> bool {
        false
    }

    /// Sends the first `len` bytes of the reserved buffer, then the bytes of `beside`, padded with zeros to a
    /// multiple of 64. The whole is at most the reserved length. `beside` is not used after the return: bytes
    /// that are not on their way by then were copied. Only called if [`Messages::sends_beside`].
    ///
    /// # Errors
    /// Those of [`Messages::commit`].
    fn commit_beside(&mut self, len: usize, beside: &[u8], frame: u64) -> Result<(), TransportError> {
        let _ = (len, beside);
        let cause = Cause::Unsupported("sending bytes from where they lie");
        Err(TransportError::new("core", Operation::Send, cause).with_frame(frame))
    }

    /// The oldest message that was delivered and not released: its start, aligned to
    /// 64 bytes, and its length. The same one until [`Messages::release`]. Until then the
    /// bytes are valid for reads and writes, and the peer cannot change them. Makes a little progress if the
    /// library needs that.
    ///
    /// # Errors
    /// Final for the link.
    fn poll(&mut self) -> Result<Option<(NonNull<u8>, usize)>, TransportError>;

    /// Returns the message from [`Messages::poll`] to the backend. Does nothing without one.
    fn release(&mut self);

    /// Lets the backend make progress. Never waits.
    ///
    /// # Errors
    /// Failures of earlier messages, with their running number.
    fn progress(&mut self) -> Result<(), TransportError> {
        Ok(())
    }

    /// The descriptor that becomes readable when there is something to do; `None` without a wake source. The
    /// same for the life of the value.
    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    /// Prepares to sleep on [`Messages::descriptor`]. `false` if a message is there already, or if the
    /// descriptor might not report one: do not sleep without a bound then.
    ///
    /// # Errors
    /// Final for the link.
    fn arm(&mut self) -> Result<bool, TransportError> {
        Ok(false)
    }

    /// Called after waking.
    ///
    /// # Errors
    /// Final for the link.
    fn disarm(&mut self) -> Result<(), TransportError> {
        Ok(())
    }

    /// Whether committed messages wait for [`Messages::descriptor`] to become writable. A sleeper then waits
    /// for readable or writable, and calls [`Messages::progress`].
    fn wants_write(&self) -> bool {
        false
    }

    /// Whether [`Messages::descriptor`] becomes readable at the next message without a call of
    /// [`Messages::arm`]. `false` while an arrived message has not been polled, because no descriptor reports
    /// it. A receiver with many links need not poll those for which this is `true`.
    fn tells_unasked(&self) -> bool {
        false
    }

    /// Whether the messages have an end of their own: [`Messages::poll`] returns [`Cause::PeerGone`] behind
    /// the peer's last message, even if the peer ended long before. A caller that learns of the peer's end by
    /// other means may then poll until that error, for a bounded time. Without this property, a message that
    /// has not arrived when the peer has ended never arrives.
    fn has_end(&self) -> bool {
        false
    }

    /// The path of the messages. For people; may take long.
    fn path_info(&self) -> PathInfo {
        PathInfo::default()
    }
}
