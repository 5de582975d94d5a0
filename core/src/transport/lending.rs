//! Memory that one process lends and its peer reads, without the lender taking part: gets of UCX, reads of RDMA.
//!
//! Frames do not need it. It carries contents that lie in memory already, such as objects of a store, and are longer
//! than is worth a copy into frames.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::fmt;
use core::ops::Deref;
use core::ptr::NonNull;

use super::TransportError;
#[cfg(doc)]
use super::{Cause, LocalMemory, Messages, RemoteMemory};

/// Longest key of a loan, in bytes.
pub const MAX_LOAN_KEY: usize = 1024;

/// Lends memory of this process to the peer of one endpoint ([`LocalMemory::lender`], [`Messages::lender`]). It may
/// outlive the endpoint, and is used by one thread at a time.
pub trait Lender: Send {
    /// Lets the peer read `len` bytes at `start`, at least one, until the loan is dropped.
    ///
    /// # Safety
    /// The bytes stay mapped until the loan is dropped.
    ///
    /// # Errors
    /// When the backend cannot lend this memory: the link stays usable.
    unsafe fn lend(&mut self, start: NonNull<u8>, len: usize) -> Result<Loan, TransportError>;
}

/// Memory that is lent, until this is dropped.
pub struct Loan {
    key: Vec<u8>,
    _registration: Box<dyn Send>,
}

impl Loan {
    /// Makes a loan that the peer uses by `key`, of at most [`MAX_LOAN_KEY`] bytes, and that ends when `registration` is
    /// dropped.
    pub fn new(key: Vec<u8>, registration: Box<dyn Send>) -> Loan {
        Loan { key, _registration: registration }
    }

    /// The bytes by which the peer's backend reads the memory ([`Reads::start`]). A process that has these
    /// bytes can read the memory if it can reach this process's device.
    pub fn key(&self) -> &[u8] {
        &self.key
    }
}

impl fmt::Debug for Loan {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The key is a secret.
        out.debug_struct("Loan").finish_non_exhaustive()
    }
}

/// Reads memory that the peer of an endpoint lent ([`RemoteMemory::reads`], [`Messages::reads`]): one loan at a time.
///
/// The bytes come into memory of the backend, which keeps it until its device has finished with it. A read is
/// never undone: without a waiter it continues, and the next [`Reads::start`] drops its bytes.
pub trait Reads {
    /// Starts to read the first `len` bytes, at least one, of the memory that the peer lent by `key`. The key
    /// comes from the peer and is untrusted.
    ///
    /// # Errors
    /// [`Cause::Full`] while another read is under way. [`Cause::Address`] if `key` is no key of this
    /// backend, or for fewer bytes. [`Cause::Unsupported`] if that memory cannot be read natively. The link
    /// stays usable after these errors, and after a lack of memory. All others are final for the link.
    fn start(&mut self, key: &[u8], len: usize) -> Result<(), TransportError>;

    /// The bytes of the read under way, once all are there. Lets the backend make progress; does not wait.
    ///
    /// # Errors
    /// [`Cause::Unsupported`] as [`Reads::start`], if that shows only now. All others are final for the link:
    /// the loan, the peer or the path to it ended.
    fn poll(&mut self) -> Result<Option<ReadBytes>, TransportError>;
}

/// Bytes that were read from the peer's memory, in memory of the backend.
pub struct ReadBytes(Box<dyn AsRef<[u8]> + Send + Sync>);

impl ReadBytes {
    /// Wraps the memory that holds the bytes. Nothing writes it any more.
    pub fn new(memory: impl AsRef<[u8]> + Send + Sync + 'static) -> ReadBytes {
        ReadBytes(Box::new(memory))
    }
}

impl Deref for ReadBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        (*self.0).as_ref()
    }
}

impl fmt::Debug for ReadBytes {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("ReadBytes").field("len", &self.len()).finish_non_exhaustive()
    }
}
