//! The contract between farjump and whatever moves its bytes.
//!
//! A backend implements [`Transport`], which makes one [`Opening`] for each link and from it an [`Endpoint`], in one of
//! two families:
//!
//! * **one-sided**: the backend can write into a region of the peer's memory without the peer taking part ([`RemoteMemory`])
//!   and owns a region of its own that the peer writes into ([`LocalMemory`]). Core builds the mailbox protocol on that:
//!   rings, signals, credits, sleeping. The backend never sees a frame.
//! * **two-sided**: the backend sends and delivers whole messages ([`Messages`]). Core puts exactly one frame into each.
//!
//! Both become a [`crate::channel::Channel`]: reserve, write, commit; poll, release; progress, arm, close. Nothing above
//! core can tell which family it runs on. `docs/writing-a-transport.md` builds a backend of each family step by step, and
//! the conformance suite in `integration-tests` runs over any `Transport` that it is handed.
//!
//! # How two ends meet
//! Each side calls [`Transport::open`], sends [`Opening::address`] to the other over the control connection (a Unix or
//! TCP socket that farjump owns), and turns the other's address into an endpoint with [`Opening::connect`]. Addresses are
//! opaque bytes to everybody but the backend, plus file descriptors where the control connection can carry them. A backend whose
//! frames travel on a stream has farjump connect one ([`Stream`]). An
//! address comes from another process and is *untrusted*: check its length and every number in it.
//!
//! # Who owns a buffer, and when
//! | memory | belongs to | may be written by | until |
//! |---|---|---|---|
//! | local region (one-sided) | [`LocalMemory`], which maps and unmaps it | the peer, at any time | the endpoint is dropped |
//! | bytes given to [`RemoteMemory::put`] | core (the staging ring) | nobody | the peer has returned credit for them: keep no pointer beyond, but no copy is needed before |
//! | buffer from [`Messages::reserve`] | the backend, lent to core | core | [`Messages::commit`] or the next `reserve` |
//! | message from [`Messages::poll`] | the backend, lent to core | core and the injected function | [`Messages::release`] |
//!
//! # Errors
//! Every operation can fail. A [`TransportError`] names peer, operation and cause. One that concerns a frame already
//! accepted carries that frame's position, and surfaces at the next call on the link. After any error but a refused
//! `open`, core closes the endpoint; there is no half-working link.
//!
//! # Threads
//! An endpoint is used by one thread at a time and may move between threads (`Send`, not `Sync`). A backend whose library
//! demands one thread for all endpoints says so in [`Capabilities::threading`].

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use core::ptr::NonNull;

pub use crate::descriptor::{BorrowedFd, OwnedFd};
pub use crate::passed_over::PassedOver;
pub use crate::stream::{Secret, Side, Stream};

bitflags::bitflags! {
    /// How a receiver may know that all of a frame is there: the rules that a backend can honour.
    ///
    /// Never assumed: the sides intersect their sets when they meet and take the first of [`ArrivalRules::PREFERENCE`]
    /// that both have. A backend lists a rule only if it holds on *this* device, lane and machine; polling the last byte
    /// of one write, for one, is safe on some adapters and torn on others.
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
    pub struct ArrivalRules: u8 {
        /// Plain stores into memory mapped in both processes; the signal is stored last with release order.
        /// Needs [`RemoteMemory::mapped`]. A backend that has it lists `FENCED` and `CHECKED` too, and carries puts, fences
        /// and words out over its mapping: that is how frames travel where middleware hides the mapping, on either side.
        const STORES = 1 << 0;
        /// One write, whose bytes become visible in ascending order: the signal that ends it proves all before it.
        /// The receiver asks its device (`ibv_query_qp_data_in_order`), not the sender.
        const IN_ORDER = 1 << 1;
        /// The frame without its signal, [`RemoteMemory::fence`], then the signal in a write of its own.
        const FENCED = 1 << 2;
        /// One write with immediate data; the receiver learns of it by a completion ([`LocalMemory::completions`]).
        const WRITE_IMM = 1 << 3;
        /// One write in any order; the trailer is a keyed checksum of the frame, and a torn frame is one that has not
        /// arrived yet. Costs a pass over the frame on both sides. Any memory can honour it.
        const CHECKED = 1 << 4;
        /// The transport delivers whole messages (two-sided).
        const DELIVERED = 1 << 5;
    }
}

impl ArrivalRules {
    /// The order in which rules are preferred where both sides have several. What moves a frame in one write comes before what
    /// takes two, and what proves all of a frame before what computes over it.
    pub const PREFERENCE: [ArrivalRules; 6] =
        [Self::STORES, Self::DELIVERED, Self::IN_ORDER, Self::WRITE_IMM, Self::FENCED, Self::CHECKED];

    /// The rule that two sides use; `None` if they have none in common.
    pub fn agree(self, other: ArrivalRules) -> Option<ArrivalRules> {
        let both = self & other;
        Self::PREFERENCE.into_iter().find(|rule| both.contains(*rule))
    }

    /// The name shown to people, of a single rule: `stores`, `fenced`, …; several are joined by commas.
    pub fn describe(self) -> String {
        let mut text = String::new();
        for (rule, name) in [
            (Self::STORES, "stores"),
            (Self::IN_ORDER, "in-order"),
            (Self::FENCED, "fenced"),
            (Self::WRITE_IMM, "write-imm"),
            (Self::CHECKED, "checked"),
            (Self::DELIVERED, "delivered"),
        ] {
            if self.contains(rule) {
                if !text.is_empty() {
                    text.push(',');
                }
                text.push_str(name);
            }
        }
        text
    }
}

bitflags::bitflags! {
    /// Faults that a backend notices by itself. What is not listed here is noticed by the control connection or a deadline.
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
    pub struct FaultsNoticed: u8 {
        /// The peer's process ended. Shared memory never notices; the control connection always does.
        const PEER_DEATH = 1 << 0;
        /// The link between the machines failed.
        const LINK_DOWN = 1 << 1;
        /// A write was refused by the peer's side (key, range, permission).
        const REMOTE_ACCESS = 1 << 2;
    }
}

/// Which family a backend belongs to.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum InboxKind {
    /// Frames are written into a mailbox: [`Endpoint::OneSided`].
    OneSided,
    /// Frames are delivered whole: [`Endpoint::TwoSided`].
    TwoSided,
}

/// From which threads a backend's endpoints may be used.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum Threading {
    /// Each endpoint by one thread at a time, different endpoints by different threads at once.
    PerEndpoint,
    /// All endpoints that one [`Transport`] made, by one thread at a time.
    PerTransport,
}

/// How a receiver that sleeps can be woken.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum WakeSource {
    /// A file descriptor becomes readable ([`LocalMemory::descriptor`], [`Messages::descriptor`]).
    Descriptor,
    /// Nothing: a sleeper naps for at most a millisecond at a time.
    Naps,
}

/// What a backend can do on this machine, before any peer is known.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Capabilities {
    /// Which family it belongs to.
    pub inbox: InboxKind,
    /// The arrival rules that it can honour here, as sender and as receiver.
    pub arrival: ArrivalRules,
    /// Largest frame in bytes, header, trailer and padding **included**. A mailbox further limits frames to its own
    /// length; this is what the path itself can move in one operation.
    pub max_frame: usize,
    /// Frames up to this many bytes, **all included**, cost the path no more than an empty one: a line for stores, the
    /// device's inline limit for verbs, the short limit for UCX. A hint for batching; 0 if unknown.
    pub max_inline: usize,
    /// Alignment in bytes at which delivered frames start: that of a mailbox's base, or of a delivered message. A power
    /// of two from 64 to 4096. **Not** the payload's alignment, which the frame's layout provides on top; where an image
    /// asks for more than this, the payload of a delivered message is copied to an aligned place first.
    pub alignment: usize,
    /// An aligned 64-byte line is placed in one piece: whoever sees one word of it sees all. Matters under
    /// [`ArrivalRules::IN_ORDER`] alone, where frames of one line then need no trailer.
    pub line_whole: bool,
    /// Faults noticed without the control connection.
    pub faults: FaultsNoticed,
    /// How a sleeping receiver is woken.
    pub wake: WakeSource,
    /// Threads.
    pub threading: Threading,
    /// The local region can have a second, executable mapping ([`LocalMemory::executable`]), so that code can run where
    /// it was written. Says what the backend can, **not** that this process may: where the system forbids it, asking for
    /// the mapping says so.
    pub in_place: bool,
    /// Its addresses have file descriptors ([`LocalAddress::descriptors`]), which travel between processes of one machine only, on
    /// a Unix socket.
    pub descriptors: bool,
    /// Its frames travel on a stream that farjump connects beside the control connection, to where the target listens already,
    /// and hands to [`Opening::connect`] ([`Address::stream`]).
    pub stream: bool,
}

impl Capabilities {
    /// The least that a backend of this family can be: frames of up to `max_frame` bytes, lines not placed whole, no
    /// faults noticed, no wake source. Set what is better field by field.
    pub const fn new(inbox: InboxKind, arrival: ArrivalRules, max_frame: usize) -> Self {
        Capabilities {
            inbox,
            arrival,
            max_frame,
            max_inline: 0,
            alignment: 64,
            line_whole: false,
            faults: FaultsNoticed::empty(),
            wake: WakeSource::Naps,
            threading: Threading::PerEndpoint,
            in_place: false,
            descriptors: false,
            stream: false,
        }
    }
}

/// What an endpoint is asked to provide when it is opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct OpenRequest {
    /// One-sided: bytes of the local region, a multiple of 4096. Two-sided: bytes of messages that the receiving side
    /// should be able to hold undelivered; a hint. A frame may be longer (`max_frame`): it is to be taken at least when
    /// nothing else is under way.
    pub region_len: usize,
    /// Largest frame that this side is willing to receive, in bytes, all included.
    pub max_frame: usize,
    /// One-sided: as many bytes at the start of the region shall have memory when it is opened. Memory of the rest may come as it is
    /// used, where the backend can do that: so that what opening costs is bounded where a peer says how long the region is.
    /// All of it unless set.
    pub at_once: usize,
}

impl OpenRequest {
    /// A request for a region of `region_len` bytes and frames of up to `max_frame` bytes.
    pub const fn new(region_len: usize, max_frame: usize) -> Self {
        OpenRequest { region_len, max_frame, at_once: usize::MAX }
    }

    /// The same, of whose region no more than `bytes` need have memory at once.
    #[must_use]
    pub const fn at_once(mut self, bytes: usize) -> Self {
        self.at_once = bytes;
        self
    }
}

/// What one end tells the other so that it can be reached, as its own side has it.
#[derive(Clone, Debug, Default)]
pub struct LocalAddress<'a> {
    /// Opaque to all but the backend; at most 64 KiB.
    pub bytes: Vec<u8>,
    /// Descriptors to hand over, at most 8: the peer is given copies.
    pub descriptors: Vec<BorrowedFd<'a>>,
}

impl LocalAddress<'_> {
    /// The address as the peer gets it: with descriptors of its own, which are copies of these.
    ///
    /// # Errors
    /// When the system gives no more descriptors.
    #[cfg(all(feature = "std", unix))]
    pub fn try_to_owned(&self) -> std::io::Result<Address> {
        let copies = self.descriptors.iter().map(|descriptor| descriptor.try_clone_to_owned());
        let descriptors = copies.collect::<Result<_, _>>()?;
        Ok(Address { bytes: self.bytes.clone(), descriptors, stream: None })
    }
}

/// What one end tells the other so that it can be reached, as the other side has it.
#[derive(Debug, Default)]
pub struct Address {
    /// Opaque to all but the backend; at most 64 KiB.
    pub bytes: Vec<u8>,
    /// Descriptors that were handed over, at most 8. Those that the backend does not keep are closed with this value. Empty
    /// where the control connection crosses machines; a backend that needs them then fails in [`Opening::connect`], saying so.
    pub descriptors: Vec<OwnedFd>,
    /// The stream to the peer, for a backend with [`Capabilities::stream`]: not a part of what the peer told. Such a backend fails in
    /// [`Opening::connect`] without it, saying so; others get none.
    pub stream: Option<Stream>,
}

/// One way in which frames travel.
pub trait Transport: Send {
    /// The name that users type: lower case, digits and hyphens, at most 32 bytes. The same on every machine: the sides
    /// find each other by it.
    fn name(&self) -> &str;

    /// What it can do on this machine. Constant for the life of the value.
    fn capabilities(&self) -> Capabilities;

    /// Makes one end of a link.
    ///
    /// # Errors
    /// When there is not enough memory, a region or descriptor cannot be had, or `request` asks for more than the backend
    /// can. Nothing is left behind.
    fn open(&mut self, request: &OpenRequest) -> Result<Box<dyn Opening>, TransportError>;
}

/// One end of a link, before the peer's address is known. Dropping it undoes the opening.
pub trait Opening: Send {
    /// What to tell the peer. The same each time it is called.
    fn address(&self) -> LocalAddress<'_>;

    /// The arrival rules that hold between this end and the one whose address has these bytes, as far as they are known
    /// better than from [`Capabilities::arrival`]: a peer on another machine cannot be mapped here, whatever both can do.
    /// Called at most once and before [`Opening::connect`], by the side that learns of the other's end before it tells of its
    /// own, which tells no other rules then. All, unless the backend knows better. Takes as long as `connect` may.
    ///
    /// # Errors
    /// As of [`Opening::connect`].
    fn arrival_with(&mut self, peer: &[u8]) -> Result<ArrivalRules, TransportError> {
        let _ = peer;
        Ok(ArrivalRules::all())
    }

    /// Reaches the peer. Bounded in time: a backend that must wait for the network takes at most `deadline_ms`.
    ///
    /// # Errors
    /// When `peer` makes no sense (it is untrusted), is of another kind or version, or cannot be reached.
    fn connect(self: Box<Self>, peer: Address, deadline_ms: u32) -> Result<Endpoint, TransportError>;
}

/// A connected end, of either family.
pub enum Endpoint {
    /// Write into the peer's region, and have one that it writes into.
    OneSided {
        /// The region that the peer writes into.
        local: Box<dyn LocalMemory>,
        /// The peer's region.
        remote: Box<dyn RemoteMemory>,
    },
    /// Send and receive whole messages.
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

/// What the frames of an end travel over, in words for people.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct Route {
    /// In a few words: `tcp over eth0`. Empty where the backend's name says it all.
    pub over: String,
    /// Sentences about why it is so and what follows from it, the most important first.
    pub notes: Vec<String>,
}

impl Route {
    /// A route over `over`, with these notes.
    pub fn new(over: impl Into<String>, notes: Vec<String>) -> Route {
        Route { over: over.into(), notes }
    }
}

/// The peer's region, as seen by the side that writes it.
///
/// # Safety
/// Core writes through what [`RemoteMemory::mapped`] returns without asking again. An implementation promises that the
/// pointer it returns stays valid for reads and writes of [`RemoteMemory::len`] bytes, is aligned to 4096 bytes, and
/// points to memory that other processes may write but that does not vanish (a mapped file must be sealed against
/// shrinking), until the value is dropped. What [`RemoteMemory::staging`] returns is memory of so many bytes as it says there.
pub unsafe trait RemoteMemory: Send {
    /// Length of the peer's region in bytes.
    fn len(&self) -> usize;

    /// Whether the region has no bytes; never true of one that connected.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Where the region is mapped in this process, if it is. Then core writes it with plain stores under
    /// [`ArrivalRules::STORES`], and of this trait only [`RemoteMemory::ring`] and [`RemoteMemory::store_load_ordered`] are
    /// used. Under the other rules it is not asked for, and puts carry the bytes.
    fn mapped(&self) -> Option<NonNull<u8>> {
        None
    }

    /// Starts moving `bytes` to `offset` in the peer's region. It may take effect at any time up to the completion of a
    /// later [`RemoteMemory::fence`], and in any order with other puts, even with those to the same bytes.
    ///
    /// Zero bytes are legal and do nothing. `offset + bytes.len()` is at most [`RemoteMemory::len`]: core checks before it
    /// calls, and a backend checks again, because a put past the end corrupts somebody (UCX over shared memory: the
    /// sender). `frame` is the position of the frame that the bytes belong to, for errors reported later.
    ///
    /// `bytes` stay unchanged until the peer has returned credit for them or this value is dropped, so they need not be
    /// copied. What the peer has not returned credit for when this value is dropped may never arrive.
    ///
    /// # Errors
    /// [`Cause::Full`] when the backend's queue is full and [`RemoteMemory::progress`] must be called first: nothing was
    /// written then, and core will call again. Anything else is final for the link.
    fn put(&mut self, offset: usize, bytes: &[u8], frame: u64) -> Result<(), TransportError>;

    /// Writes one aligned word, in one piece. Used for signals and credits. Otherwise as [`RemoteMemory::put`]; `word` is
    /// copied.
    ///
    /// # Errors
    /// As [`RemoteMemory::put`].
    fn put_word(&mut self, offset: usize, word: u64, frame: u64) -> Result<(), TransportError>;

    /// Orders every earlier put before every later one, in the peer's memory. Does not wait.
    ///
    /// # Errors
    /// Final for the link.
    fn fence(&mut self) -> Result<(), TransportError>;

    /// Moves `bytes` as [`RemoteMemory::put`] does and adds one to the peer's [`LocalMemory::completions`] once all of them
    /// are visible there: in the order of these calls, so that a count of `n` proves the first `n` of them. Only called
    /// under [`ArrivalRules::WRITE_IMM`].
    ///
    /// # Errors
    /// As [`RemoteMemory::put`]; [`Cause::Unsupported`] in a backend that does not list the rule.
    fn put_with_completion(&mut self, offset: usize, bytes: &[u8], frame: u64) -> Result<(), TransportError> {
        let _ = (offset, bytes, frame);
        Err(TransportError::new("this transport", Operation::Put, Cause::Unsupported("write with immediate")))
    }

    /// Lets the backend work: completions, retransmissions. Never waits. Called often while anything is outstanding.
    ///
    /// # Errors
    /// What went wrong with earlier puts, with the position of the frame.
    fn progress(&mut self) -> Result<(), TransportError> {
        Ok(())
    }

    /// Wakes the peer's receiver if it sleeps on [`LocalMemory::descriptor`]. Called after a frame only if the peer said
    /// that it sleeps, and once for each sleep: a ring does not overtake the puts before it, unless the peer's
    /// [`LocalMemory::before_sleep`] returns `false`. A sleeper that takes back a ring whose frame has not landed would
    /// sleep through that frame. Does nothing where there is no wake source.
    ///
    /// # Errors
    /// Final for the link.
    fn ring(&mut self) -> Result<(), TransportError> {
        Ok(())
    }

    /// Whether the peer's sleeper makes this side's earlier stores and later loads appear in order by its own means
    /// (`membarrier`), so that this side needs no fence between "store a frame" and "is the peer asleep?".
    fn store_load_ordered(&self) -> bool {
        false
    }

    /// What writes travel over. For people; may take long.
    fn route(&self) -> Route {
        Route::default()
    }

    /// Memory of `len` bytes, a multiple of 4096, in which core lays out the frames that it then puts from there, where the
    /// backend would rather have them in memory of its own: registered with a device, for one. Aligned to 4096 bytes, zero,
    /// valid for reads and writes of core's until this value is dropped. Asked for once, when the link is made and the peer's
    /// memory is not written by plain stores. Puts from elsewhere must be carried out too. `None`: core takes memory as any other.
    ///
    /// # Errors
    /// When the backend wants it and there is not enough of it. Final for the link.
    fn staging(&mut self, len: usize) -> Result<Option<NonNull<u8>>, TransportError> {
        let _ = len;
        Ok(None)
    }
}

/// The region of this side that the peer writes into.
///
/// # Safety
/// Core reads and the injected function writes through [`LocalMemory::base`] without asking again. An implementation
/// promises that the pointer stays valid for reads and writes of [`LocalMemory::len`] bytes, aligned to 4096 bytes, until
/// the value is dropped, that it was zero when the endpoint was opened, and that only the peer writes to it besides core.
/// What [`LocalMemory::executable`] returns maps the same bytes, as long and as aligned, until the value is dropped.
pub unsafe trait LocalMemory: Send {
    /// Start of the region.
    fn base(&self) -> NonNull<u8>;

    /// Length in bytes, a multiple of 4096, at least what was asked for.
    fn len(&self) -> usize;

    /// Whether the region has no bytes; never true of one that was opened.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Start of a second mapping of the same bytes, at which they can be executed and not written: made when this is first
    /// called, the same from then on, and as long and as aligned as the first. Only called by a target that allows code to
    /// run in place.
    ///
    /// # Errors
    /// [`Cause::Unsupported`] without [`Capabilities::in_place`]. Where the system does not allow it, what the system said.
    /// The link goes on either way.
    fn executable(&mut self) -> Result<NonNull<u8>, TransportError> {
        Err(TransportError::new(
            "this transport",
            Operation::Open,
            Cause::Unsupported("an executable mailbox"),
        ))
    }

    /// How many writes with completion have arrived since the link was made. Only called under
    /// [`ArrivalRules::WRITE_IMM`].
    ///
    /// # Errors
    /// Final for the link.
    fn completions(&mut self) -> Result<u64, TransportError> {
        Ok(0)
    }

    /// What becomes readable when the peer rings; `None` where there is nothing to sleep on. The same for the life of the value.
    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    /// Called on the way to sleep, after core stored "asleep" into the peer's region and before it looks for a frame once
    /// more: makes the two appear in that order to the peer (a full fence, or `membarrier` where the peer relies on
    /// [`RemoteMemory::store_load_ordered`]), and takes back rings not yet read. Where it cannot promise that, return
    /// `false`: core then naps.
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

/// Whole messages, in order, each delivered once. The backend may lose none without an error.
///
/// # Safety
/// Core and the injected function read and write through the pointers that this trait returns, without asking again. An
/// implementation promises that
/// * the room that [`Messages::reserve`] returns for `len` bytes is aligned to 64 bytes, and valid for reads and writes of
///   `len` bytes until the [`Messages::commit`] that succeeds, the next `reserve`, or the end of the value;
/// * the message that [`Messages::poll`] returns is aligned to 64 bytes, valid for reads and writes of its length until
///   [`Messages::release`] or the end of the value, and written by nobody else until then;
/// * neither overlaps the other, or any memory that a reference reaches.
pub unsafe trait Messages: Send {
    /// Room for one message of `len` bytes to be written into. Nothing is sent before [`Messages::commit`]; a second
    /// `reserve` without it forgets the first. The room starts at an address aligned to [`Capabilities::alignment`] and
    /// may hold anything.
    ///
    /// # Errors
    /// [`Cause::Full`] when no room is free now and [`Messages::progress`] may free some. [`Cause::TooLarge`] over
    /// [`Capabilities::max_frame`]. Anything else is final for the link.
    fn reserve(&mut self, len: usize) -> Result<NonNull<u8>, TransportError>;

    /// Sends the first `len` bytes of the room reserved, `len` being at most what was reserved and a multiple of 64.
    /// The message is on its way when this returns, or an error says that it is not. `frame` is its running number, for
    /// errors reported later.
    ///
    /// # Errors
    /// [`Cause::Full`] when the backend cannot take it now: the room stays reserved and core will call again.
    fn commit(&mut self, len: usize, frame: u64) -> Result<(), TransportError>;

    /// Whether [`Messages::commit_beside`] sends bytes from where they lie.
    fn sends_beside(&self) -> bool {
        false
    }

    /// Sends the first `len` bytes of the room reserved and behind them those of `beside`, padded with zeros to a multiple of 64;
    /// the whole is at most what was reserved. Nothing of `beside` is used after the return: what is not on its way by then was
    /// copied. Only called where [`Messages::sends_beside`].
    ///
    /// # Errors
    /// As [`Messages::commit`].
    fn commit_beside(&mut self, len: usize, beside: &[u8], frame: u64) -> Result<(), TransportError> {
        let _ = (len, beside);
        let cause = Cause::Unsupported("sending bytes from where they lie");
        Err(TransportError::new("core", Operation::Send, cause).with_frame(frame))
    }

    /// The oldest message delivered and not yet released: its start, aligned to [`Capabilities::alignment`], and length.
    /// The same one until [`Messages::release`]. The bytes are valid for reads and writes until then, and the peer can no
    /// longer change them. Does a little progress of its own where the library needs it.
    ///
    /// # Errors
    /// Final for the link.
    fn poll(&mut self) -> Result<Option<(NonNull<u8>, usize)>, TransportError>;

    /// Gives the message from [`Messages::poll`] back. Without one it does nothing.
    fn release(&mut self);

    /// Lets the backend work. Never waits.
    ///
    /// # Errors
    /// What went wrong with earlier messages, with their running number.
    fn progress(&mut self) -> Result<(), TransportError> {
        Ok(())
    }

    /// What becomes readable when something is to be done; `None` where there is nothing to sleep on. The same for the life of
    /// the value.
    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    /// Prepares to sleep on [`Messages::descriptor`]. `false`: something is there already, or it cannot be promised that
    /// the descriptor will tell; do not sleep without an end.
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

    /// Whether what was committed waits for [`Messages::descriptor`] to become writable. Who sleeps on it then sleeps until it is
    /// readable or writable, and calls [`Messages::progress`].
    fn wants_write(&self) -> bool {
        false
    }

    /// Whether [`Messages::descriptor`] becomes readable when the next message comes, although [`Messages::arm`] was not called. `false`
    /// too while a message is here that was not polled: no descriptor tells of it. A receiver with many links need not poll
    /// those for which this holds.
    fn tells_unasked(&self) -> bool {
        false
    }

    /// Whether the messages have an end of their own: [`Messages::poll`] gives [`Cause::PeerGone`] behind the last that the peer
    /// sent, also where the peer ended long before. Who learns of the peer's end by other means may then look for messages until
    /// that comes, for a bounded time; otherwise what is not there when the peer has ended never comes.
    fn has_end(&self) -> bool {
        false
    }

    /// What messages travel over. For people; may take long.
    fn route(&self) -> Route {
        Route::default()
    }
}

/// What was being done when a transport failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
#[non_exhaustive]
pub enum Operation {
    /// Making an end.
    Open,
    /// Reaching the peer.
    Connect,
    /// Writing into the peer's region.
    Put,
    /// Ordering writes.
    Fence,
    /// Sending a message.
    Send,
    /// Looking for frames.
    Receive,
    /// Letting the backend work.
    Progress,
    /// Going to sleep or waking somebody.
    Wake,
}

impl fmt::Display for Operation {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Operation::Open => "opening an end",
            Operation::Connect => "connecting",
            Operation::Put => "writing into the peer's memory",
            Operation::Fence => "ordering writes",
            Operation::Send => "sending",
            Operation::Receive => "receiving",
            Operation::Progress => "making progress",
            Operation::Wake => "sleeping or waking",
        })
    }
}

/// Why it failed.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Cause {
    /// There is no room now; there will be once the peer has worked. Not a failure of the link.
    #[error("there is no room now")]
    Full,
    /// More than can ever fit.
    #[error("{len} bytes are over the limit of {max}")]
    TooLarge {
        /// Bytes asked for.
        len: usize,
        /// The limit.
        max: usize,
    },
    /// A write outside the peer's region, refused before it was made.
    #[error("{len} bytes at offset {offset} lie outside the peer's region of {region} bytes")]
    OutOfRegion {
        /// Offset asked for.
        offset: usize,
        /// Bytes asked for.
        len: usize,
        /// Length of the region.
        region: usize,
    },
    /// The peer ended or cannot be reached.
    #[error("the peer is gone")]
    PeerGone,
    /// The peer wrote or sent something that is no frame.
    #[error("the peer broke the protocol: {0}")]
    Protocol(#[from] crate::frame::FrameError),
    /// The peer's address makes no sense; the text says what of it.
    #[error("the peer's address is not usable: {0}")]
    Address(String),
    /// The backend cannot do this.
    #[error("{0} is not supported")]
    Unsupported(&'static str),
    /// What the system or a library said, in words.
    #[error("{0}")]
    System(String),
    /// The peer ended or cannot be reached; the text says by what that was noticed.
    #[error("the peer cannot be reached: {0}")]
    Unreachable(String),
}

/// A failure of a transport: peer, operation and cause, and the frame if it concerns one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TransportError(Box<TransportErrorFields>);

#[derive(Clone, PartialEq, Eq, Debug)]
struct TransportErrorFields {
    transport: String,
    peer: Option<String>,
    operation: Operation,
    cause: Cause,
    frame: Option<u64>,
}

impl TransportError {
    /// A failure of `transport` (its name).
    #[cold]
    pub fn new(transport: impl Into<String>, operation: Operation, cause: Cause) -> Self {
        TransportError(Box::new(TransportErrorFields {
            transport: transport.into(),
            peer: None,
            operation,
            cause,
            frame: None,
        }))
    }

    /// The same, naming the peer as users know it.
    #[must_use]
    pub fn with_peer(mut self, peer: impl Into<String>) -> Self {
        self.0.peer.get_or_insert(peer.into());
        self
    }

    /// The same, naming the frame by its position.
    #[must_use]
    pub fn with_frame(mut self, position: u64) -> Self {
        self.0.frame.get_or_insert(position);
        self
    }

    /// Why.
    pub fn cause(&self) -> &Cause {
        &self.0.cause
    }

    /// What was being done.
    pub fn operation(&self) -> Operation {
        self.0.operation
    }

    /// Name of the transport.
    pub fn transport(&self) -> &str {
        &self.0.transport
    }

    /// Position of the frame that failed, if it concerns one.
    pub fn frame(&self) -> Option<u64> {
        self.0.frame
    }

    /// Whether this only says that there is no room now.
    pub fn is_full(&self) -> bool {
        self.0.cause == Cause::Full
    }
}

impl fmt::Display for TransportError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let fields = &*self.0;
        write!(out, "{}: {}", fields.transport, fields.operation)?;
        if let Some(peer) = &fields.peer {
            write!(out, " ({peer})")?;
        }
        if let Some(frame) = fields.frame {
            write!(out, ", frame at {frame}")?;
        }
        write!(out, ": {}", fields.cause)
    }
}

impl core::error::Error for TransportError {
    fn source(&self) -> Option<&(dyn core::error::Error + 'static)> {
        Some(&self.0.cause)
    }
}
