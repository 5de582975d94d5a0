//! File descriptors as the transport contract passes them: owned, or borrowed for as long as their owner lives.
//!
//! With the feature `std` they are the standard library's, so that no safe code can name a descriptor that it does not
//! have. Without it there is no operating system to give any: both types have no values, and code that passes them on
//! compiles all the same.

#[cfg(all(feature = "std", unix))]
pub use std::os::fd::{BorrowedFd, OwnedFd};

#[cfg(not(all(feature = "std", unix)))]
pub use bare::{BorrowedFd, OwnedFd};

#[cfg(not(all(feature = "std", unix)))]
mod bare {
    use core::convert::Infallible;
    use core::marker::PhantomData;

    /// A file descriptor that is closed when the value is dropped. It has no values without the feature `std`.
    #[derive(Debug)]
    pub struct OwnedFd(Infallible);

    /// A file descriptor that is open for `'a`. It has no values without the feature `std`.
    #[derive(Clone, Copy, Debug)]
    pub struct BorrowedFd<'a>(Infallible, PhantomData<&'a OwnedFd>);
}
