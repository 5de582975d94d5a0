//! The seam between a target and a store of objects: `farjump-handles` implements it.
//!
//! Sources send requests to the store as calls of a function that the target has by the name [`NAME`]
//! ([`Mode::Local`](crate::Mode::Local)). These need no code, no compiler, and only the right to call. Injected
//! functions use the store by the services `farjump_object` and `farjump_new_object` of `farjump_ifunc.h`.

use std::fmt;
use std::marker::PhantomData;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use farjump_core::shared;
pub use farjump_core::transport::{Lender, Loan, ReadBytes};

use crate::error::system;
pub use crate::policy::SourceMemory;
use crate::{Error, SystemOperation};
pub use farjump_control::{
    LingeringPeer, MemoryKeeper, ObjectListing, ObjectState, PeerIdentity, StoredObject,
};
use rustix::event::{EventfdFlags, eventfd};

/// The name under which sources call a target's store.
pub const NAME: &str = "farjump_objects";

/// A target's store of objects. Its target calls it on the target's thread, between frames or from the function that
/// runs.
///
/// It may use the same functions as exported functions ([`at_call_end`](crate::at_call_end),
/// [`caller`](crate::caller)). While it handles a request, it gets no other: a function that uses the store then gets
/// [`ObjectError::NoStore`].
///
/// # Safety
/// The function that runs reads and writes through the pointers that this trait returns, without another request. An
/// implementation guarantees that
/// * [`Lent::data`] of [`Objects::resolve`] is aligned to 64 bytes, and valid for reads of [`Lent::len`] bytes until
///   [`Objects::call_ended`]; nothing writes them until then;
/// * that of [`Objects::create`] is aligned to 64 bytes, and valid for reads and writes of as many bytes as were
///   requested until [`Objects::call_ended`]; nothing else reads or writes them until then;
/// * the descriptor of [`Objects::region`] is a memfd that cannot shrink, and the peer that maps it may read all of it,
///   and write where it `may_write`, as long as it has the mapping.
pub unsafe trait Objects: Send + fmt::Debug {
    /// Called once, before all else: the target listens at `address` now.
    fn listening(&mut self, address: &str);

    /// Returns the bell that the store rings when postponed requests can continue ([`RequestState::Wait`]). Called once,
    /// after [`Objects::listening`]. `None` for a store that never postpones requests.
    ///
    /// # Errors
    /// As [`Bell::new`].
    fn bell(&mut self) -> Result<Option<Arc<Bell>>, Error> {
        Ok(None)
    }

    /// Called when a link to a source was made, with this number. Through `lender`, if the transport has one, the store
    /// lends memory to the source. The source reads it by [`Link::start_read`](crate::Link::start_read) without this
    /// process taking part. The store may drop `lender` at any time, and must drop loans before their memory goes. The
    /// memory that the store keeps for the source counts in `memory`
    /// ([`TargetBuilder::max_source_memory`](crate::TargetBuilder::max_source_memory)).
    fn source_began(&mut self, source: u64, lender: Option<Box<dyn Lender>>, memory: SourceMemory) {
        let _ = (source, lender, memory);
    }

    /// Handles a request of a source: appends the reply, of at most `limit` bytes, to `reply`. Each link of this target
    /// has another `source`.
    ///
    /// A request takes a bounded time. If it needs more, the store returns [`RequestState::Continue`]: the target makes the same
    /// request again in a later poll, and takes nothing further of this source before. If it must wait for other work,
    /// such as the reading of a file, the store returns [`RequestState::Wait`]. The target does not repeat the request of a
    /// source that is gone.
    ///
    /// # Errors
    /// A sentence for the source, which gets it in place of the reply.
    fn request(
        &mut self,
        source: u64,
        request: Request<'_>,
        reply: &mut Vec<u8>,
        limit: usize,
    ) -> Result<RequestState, String>;

    /// Returns the bytes of the object of an encoded handle, for the function that runs. They stay as they are until
    /// [`Objects::call_ended`].
    ///
    /// # Errors
    /// The reason why there is none.
    fn resolve(&mut self, handle: Request<'_>) -> Result<Lent, ObjectError>;

    /// Makes an object of `len` bytes, which the function that runs writes.
    ///
    /// # Errors
    /// The reason why there is none.
    fn create(&mut self, len: usize) -> Result<Lent, ObjectError>;

    /// Called when the function that used the store has ended. If it `returned`, the store keeps the objects that it
    /// made, and appends their encoded handles to `reply` in their order.
    fn call_ended(&mut self, returned: bool, reply: &mut Vec<u8>);

    /// Called when the link with this number has ended in this process. Over a Unix socket, `peer` shows when the
    /// process at its other end has let go of it too. Until then that process, or one that it forked, may read and
    /// write the memory of [`Objects::region`]. Work that takes longer than a request is left to [`Objects::continue_work`].
    fn source_ended(&mut self, source: u64, peer: Option<LingeringPeer>);

    /// Returns the number of peers of [`Objects::source_ended`] whose end the store waits for. The target counts them
    /// as sources, so that their descriptors are bounded.
    fn lingering(&mut self) -> usize {
        0
    }

    /// Does a part of the work that requests and ended sources have left, as long as a request at most. Returns whether
    /// there is more: the next poll of the target continues it. Called after [`Objects::source_ended`], now and then in
    /// polls, and before the target sleeps.
    fn continue_work(&mut self) -> bool {
        false
    }

    /// Returns the memory that holds the objects, for a process of this machine that may map it: to write if it
    /// `may_write`. `None` if there is none to share.
    fn region(&self, may_write: bool) -> Option<Region<'_>>;

    /// Lists objects, most recently used first, in pages of at most `most` objects; the store chooses their lengths.
    /// `from` is [`FIRST_PAGE`], or [`ObjectPage::next`] of the page before.
    fn list(&mut self, from: u64, most: usize) -> ObjectPage;
}

/// Names the first page of a listing.
pub const FIRST_PAGE: u64 = u64::MAX;

/// A part of a listing of objects.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ObjectPage {
    /// The objects of this page. All others of the store count as left out.
    pub listing: ObjectListing,
    /// Names the next page; `None` if this is the last one.
    pub next: Option<u64>,
}

impl ObjectPage {
    /// Adds this page to those before it. Returns the name of the next one.
    pub fn add_to(self, listed: &mut ObjectListing) -> Option<u64> {
        let ObjectPage { listing: mut page, next } = self;
        let all = page.left_out + page.objects.len() as u64;
        listed.objects.append(&mut page.objects);
        let objects = std::mem::take(&mut listed.objects);
        *listed = ObjectListing { left_out: all.saturating_sub(objects.len() as u64), objects, ..page };
        next
    }
}

/// The outcome of a request that is no error.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RequestState {
    /// The reply is complete.
    Done,
    /// The store is at work, and continues when the target repeats the request in the next poll.
    Continue,
    /// The store waits for work that it does elsewhere. The target repeats the request when [`Objects::bell`] has rung,
    /// and may sleep until then.
    Wait,
}

/// State of a request to which the store has not responded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Postponed {
    /// The target repeats it in the next poll.
    NextPoll,
    /// The target repeats it when the bell has rung more than this number of times.
    Waits(u64),
}

/// Wakes a target when postponed requests to its store can continue. Any thread may ring it.
#[derive(Debug)]
pub struct Bell {
    /// An eventfd, on which the target sleeps.
    wake: OwnedFd,
    /// Number of rings.
    count: AtomicU64,
}

impl Bell {
    /// Returns a bell that has not rung.
    ///
    /// # Errors
    /// When the system has no descriptor for it.
    pub fn new() -> Result<Bell, Error> {
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let wake = eventfd(0, flags).map_err(system(SystemOperation::MakeDescriptor))?;
        Ok(Bell { wake, count: AtomicU64::new(0) })
    }

    /// Makes the target repeat postponed requests. Complete the work that they wait for before.
    pub fn ring(&self) {
        // Comes before the write, by which the target can wake. Pairs with the load in `count`.
        self.count.fetch_add(1, Ordering::Release);
        // It fails only if the counter is full, and then the target wakes anyway.
        let _ = rustix::io::write(&self.wake, &1_u64.to_ne_bytes());
    }

    /// Returns the number of rings.
    pub(crate) fn count(&self) -> u64 {
        self.count.load(Ordering::Acquire)
    }

    /// Makes the descriptor unreadable until the next ring.
    pub(crate) fn silence(&self) {
        // Fails if the descriptor is not readable.
        let _ = rustix::io::read(&self.wake, &mut [0_u8; 8][..]);
    }

    pub(crate) fn as_fd(&self) -> BorrowedFd<'_> {
        self.wake.as_fd()
    }
}

/// A store's memory.
#[derive(Clone, Copy, Debug)]
pub struct Region<'a> {
    /// A memfd that cannot shrink.
    pub descriptor: BorrowedFd<'a>,
    /// Its length in bytes.
    pub len: u64,
    /// A number that distinguishes this store from every other one at the same address, also of an earlier run.
    pub epoch: u64,
}

/// Memory of an object.
#[derive(Clone, Copy, Debug)]
pub struct Lent {
    /// Its first byte, at a multiple of 64.
    pub data: NonNull<u8>,
    /// Its length in bytes.
    pub len: usize,
}

/// The reason why a function gets no object. The numbers are those of `farjump_ifunc.h`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(i32)]
pub enum ObjectError {
    /// The target has no store, or no function runs.
    NoStore = -1,
    /// The bytes are no handle, or one of another version.
    NoHandle = -2,
    /// The object is another target's.
    Elsewhere = -3,
    /// The object is gone: evicted, or of an earlier run of the target.
    Gone = -4,
    /// The handle's key is another one.
    WrongKey = -5,
    /// The store has no memory for it.
    Full = -6,
    /// The handle was reserved, and has no contents yet.
    Unset = -7,
    /// The object lies in the store's file, or the store must write others there before there is memory for a new one.
    /// The store does that now: try again in a later call.
    Spilled = -8,
}

/// The bytes of a request. Its source may write them at the same time: no slice is made of them.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    start: *const u8,
    len: usize,
    lent: PhantomData<&'a [u8]>,
}

impl<'a> Request<'a> {
    /// # Safety
    /// `start` must be valid for reads of `len` bytes for `'a`, and no thread of this process writes there meanwhile.
    pub(crate) unsafe fn new(start: *const u8, len: usize) -> Request<'a> {
        Request { start, len, lent: PhantomData }
    }

    /// Its length in bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns whether it is empty.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Copies bytes from `offset` on: as many as there are, and as fit. Returns their number.
    pub fn copy_to(&self, offset: usize, into: &mut [u8]) -> usize {
        let len = self.len.saturating_sub(offset).min(into.len());
        // SAFETY: `new`'s caller guarantees that all bytes of the request are valid for reads; `into` is this process's own
        // for `len` bytes.
        unsafe { shared::copy_out(self.start.add(offset.min(self.len)), into.as_mut_ptr(), len) };
        len
    }

    /// Copies all bytes from `offset` on to `into`. Returns their number.
    ///
    /// # Safety
    /// `into` must be valid for writes of so many bytes, and no reference to them be left.
    pub unsafe fn copy_to_memory(&self, offset: usize, into: NonNull<u8>) -> usize {
        let offset = offset.min(self.len);
        // SAFETY: as in `copy_to`; the caller guarantees `into`.
        unsafe { shared::copy_out(self.start.add(offset), into.as_ptr(), self.len - offset) };
        self.len - offset
    }
}

impl<'a> From<&'a [u8]> for Request<'a> {
    fn from(bytes: &'a [u8]) -> Self {
        Request { start: bytes.as_ptr(), len: bytes.len(), lent: PhantomData }
    }
}
