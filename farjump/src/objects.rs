//! The seam between a target and a store of objects: `farjump-handles` implements it.
//!
//! Sources send requests to the store as calls of a function that the target has by the name [`NAME`]
//! ([`Mode::Local`](crate::Mode::Local)): they need no code, no compiler and no right but to call. Injected functions use
//! it by the services `farjump_object` and `farjump_new_object` of `farjump_ifunc.h`.

use std::fmt;
use std::marker::PhantomData;
use std::os::fd::BorrowedFd;
use std::ptr::NonNull;

use farjump_core::shared;
pub use farjump_core::transport::{Lender, Loan, ReadBytes};

pub use farjump_control::{ObjectListing, ObjectState, StoredObject};

/// The name under which sources call a target's store.
pub const NAME: &str = "farjump_objects";

/// A target's store of objects. Its target calls it on the target's thread, between frames or from the function that
/// runs.
pub trait Objects: Send + fmt::Debug {
    /// The target listens at `address` now. Called once, before all else.
    fn listening(&mut self, address: &str);

    /// A link to a source was made, with this number. Through `lender`, if its transport has one, memory is lent to the
    /// source, which reads it by [`Link::start_read`](crate::Link::start_read) without this process taking part. It may
    /// be dropped at any time; loans are to be, before their memory goes.
    fn source_began(&mut self, source: u64, lender: Option<Box<dyn Lender>>) {
        let _ = (source, lender);
    }

    /// Answers a request of a source: appends the reply, of at most `limit` bytes, to `reply`. `source` is another number
    /// for each link of this target.
    ///
    /// # Errors
    /// A sentence for the source, which gets it in place of the reply.
    fn request(
        &mut self,
        source: u64,
        request: Request<'_>,
        reply: &mut Vec<u8>,
        limit: usize,
    ) -> Result<(), String>;

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

    /// The link with this number has ended.
    fn source_ended(&mut self, source: u64);

    /// The memory that holds the objects, for a process of this machine that may map it: to write if it `may_write`.
    /// `None` if there is none to hand out.
    fn region(&self, may_write: bool) -> Option<Region<'_>>;

    /// Lists at most `most` objects, those of the latest use first.
    fn list(&self, most: usize) -> ObjectListing;
}

/// A store's memory.
#[derive(Clone, Copy, Debug)]
pub struct Region<'a> {
    /// A memfd that cannot shrink.
    pub descriptor: BorrowedFd<'a>,
    /// Its length in bytes.
    pub len: u64,
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
