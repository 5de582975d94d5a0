//! The seam between a target and a store of objects: `farjump-handles` implements it.
//!
//! Sources send requests to the store as calls of a function that the target has by the name [`NAME`]
//! ([`Mode::Local`](crate::Mode::Local)): they need no code, no compiler and no right but to call. Injected functions use
//! it by the services `farjump_object` and `farjump_new_object` of `farjump_ifunc.h`.

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
/// It may use what exported functions may ([`at_call_end`](crate::at_call_end), [`caller`](crate::caller)). While it
/// answers, it is not asked again: a function that uses the store then gets [`ObjectError::NoStore`].
///
/// # Safety
/// The function that runs reads and writes through the pointers that this trait returns, without asking again. An
/// implementation guarantees that
/// * [`Lent::data`] of [`Objects::resolve`] is aligned to 64 bytes, and valid for reads of [`Lent::len`] bytes until
///   [`Objects::call_ended`]; nothing writes them until then;
/// * that of [`Objects::create`] is aligned to 64 bytes, and valid for reads and writes of as many bytes as were asked
///   for until [`Objects::call_ended`]; nothing else reads or writes them until then;
/// * the descriptor of [`Objects::region`] is a memfd that cannot shrink, and the peer that maps it may read all of it,
///   and write where it `may_write`, as long as it has the mapping.
pub unsafe trait Objects: Send + fmt::Debug {
    /// The target listens at `address` now. Called once, before all else.
    fn listening(&mut self, address: &str);

    /// What the store rings when requests that wait may go on ([`Answer::Wait`]). Called once, after
    /// [`Objects::listening`]. `None` for a store that never has requests wait.
    ///
    /// # Errors
    /// As [`Bell::new`].
    fn bell(&mut self) -> Result<Option<Arc<Bell>>, Error> {
        Ok(None)
    }

    /// A link to a source was made, with this number. Through `lender`, if its transport has one, memory is lent to the
    /// source, which reads it by [`Link::start_read`](crate::Link::start_read) without this process taking part. It may
    /// be dropped at any time; loans are to be, before their memory goes. What the store keeps for the source counts in
    /// `memory` ([`TargetBuilder::max_source_memory`](crate::TargetBuilder::max_source_memory)).
    fn source_began(&mut self, source: u64, lender: Option<Box<dyn Lender>>, memory: SourceMemory) {
        let _ = (source, lender, memory);
    }

    /// Answers a request of a source: appends the reply, of at most `limit` bytes, to `reply`. `source` is another number
    /// for each link of this target.
    ///
    /// A request takes a bounded time. One that needs more is answered by [`Answer::GoOn`]: the target makes the
    /// same request again in a later poll, and takes nothing further of this source before. One that cannot go on before
    /// something else has ended, such as the reading of a file, is answered by [`Answer::Wait`]. Of a source that is
    /// gone it is not made again.
    ///
    /// # Errors
    /// A sentence for the source, which gets it in place of the reply.
    fn request(
        &mut self,
        source: u64,
        request: Request<'_>,
        reply: &mut Vec<u8>,
        limit: usize,
    ) -> Result<Answer, String>;

    /// The bytes of the object of an encoded handle, for the function that runs. They stay as they are until
    /// [`Objects::call_ended`].
    ///
    /// # Errors
    /// Why there is none.
    fn resolve(&mut self, handle: Request<'_>) -> Result<Lent, ObjectError>;

    /// Makes an object of `len` bytes, which the function that runs writes.
    ///
    /// # Errors
    /// Why there is none.
    fn create(&mut self, len: usize) -> Result<Lent, ObjectError>;

    /// The function that used the store has ended. If it `returned`, the objects that it made are kept, and their encoded
    /// handles are appended to `reply` in their order.
    fn call_ended(&mut self, returned: bool, reply: &mut Vec<u8>);

    /// The link with this number is over at this end. Over a Unix socket, `peer` shows when the process at its other end has let
    /// go of it too: until then that process, or one that it forked, may read and write the memory of [`Objects::region`].
    /// What takes longer than a request is left to [`Objects::go_on`].
    fn source_ended(&mut self, source: u64, peer: Option<LingeringPeer>);

    /// Number of peers of [`Objects::source_ended`] whose end the store waits for. The target counts them as sources, so that
    /// their descriptors are bounded.
    fn lingering(&mut self) -> usize {
        0
    }

    /// Does a part of the work that requests and ended sources have left, as long as a request at most. Returns whether
    /// there is more: the next poll of the target goes on then. Called after [`Objects::source_ended`], now and then in
    /// polls, and before the target sleeps.
    fn go_on(&mut self) -> bool {
        false
    }

    /// The memory that holds the objects, for a process of this machine that may map it: to write if it `may_write`.
    /// `None` if there is none to hand out.
    fn region(&self, may_write: bool) -> Option<Region<'_>>;

    /// Lists objects, those of the latest use first, in pages of at most `most` objects and as the store likes. `from` is
    /// [`FIRST_PAGE`], or [`ObjectPage::next`] of the page before.
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
pub enum Answer {
    /// The reply is whole.
    Done,
    /// The store is at work, and goes on when it is asked again, which the next poll does.
    GoOn,
    /// The store waits for work that it does elsewhere. It is asked again when it has rung [`Objects::bell`], and the target
    /// may sleep until then.
    Wait,
}

/// What is left of a request that the store has not answered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Unanswered {
    /// It is made again in the next poll.
    Goes,
    /// It is made again when the bell has rung more often than so many times.
    Waits(u64),
}

/// Tells a target that requests to its store which wait may go on. It may be rung by any thread.
#[derive(Debug)]
pub struct Bell {
    /// An eventfd, on which the target sleeps.
    wake: OwnedFd,
    /// Times that it was rung.
    rung: AtomicU64,
}

impl Bell {
    /// One that was not rung.
    ///
    /// # Errors
    /// When the system has no descriptor for it.
    pub fn new() -> Result<Bell, Error> {
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let wake = eventfd(0, flags).map_err(system(SystemOperation::MakeDescriptor))?;
        Ok(Bell { wake, rung: AtomicU64::new(0) })
    }

    /// Has the target make requests again that wait. What they wait for is done before.
    pub fn ring(&self) {
        // Before the target can wake by the write. `count` is the other side.
        self.rung.fetch_add(1, Ordering::Release);
        // It fails only if the counter is full, and then the target wakes anyway.
        let _ = rustix::io::write(&self.wake, &1_u64.to_ne_bytes());
    }

    /// Times that it was rung.
    pub(crate) fn count(&self) -> u64 {
        self.rung.load(Ordering::Acquire)
    }

    /// Has the descriptor become readable by the next ring only.
    pub(crate) fn silence(&self) {
        // It fails where it was silent.
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
    /// A number that tells this store from every other one at the same address, also of an earlier run.
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

/// Why a function gets no object. The numbers are those of `farjump_ifunc.h`.
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
    /// The object lies in the store's file, or others have to be written there before there is memory for a new one. The
    /// store does that now: ask again in a later call.
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

    /// Whether it is empty.
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
