//! File descriptors in the transport contract: owned, or borrowed for the life of their owner.
//!
//! With the feature `std` they are the standard library's, so safe code cannot name a descriptor that it does
//! not have. Without it no operating system provides any: both types have no values, and code that passes
//! them on still compiles.

#[cfg(all(feature = "std", unix))]
pub use std::os::fd::{BorrowedFd, OwnedFd};

#[cfg(not(all(feature = "std", unix)))]
pub use bare::{BorrowedFd, OwnedFd};

#[cfg(not(all(feature = "std", unix)))]
mod bare {
    use core::convert::Infallible;
    use core::marker::PhantomData;

    /// A file descriptor that is closed when the value is dropped. It has no values without the feature
    /// `std`.
    #[derive(Debug)]
    pub struct OwnedFd(Infallible);

    /// A file descriptor that is open for `'a`. It has no values without the feature `std`.
    #[derive(Clone, Copy, Debug)]
    pub struct BorrowedFd<'a>(Infallible, PhantomData<&'a OwnedFd>);
}
