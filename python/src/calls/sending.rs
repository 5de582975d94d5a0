//! Calls that wait for credit without blocking a thread.

use std::mem::ManuallyDrop;

use farjump::{Error, Group, InjectError, Link};
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::{PyTraverseError, PyVisit};

use crate::arguments::Arguments;
use crate::library::Library;

/// A call that was not sent for want of credit.
pub(crate) struct Unsent {
    library: Py<Library>,
    args: Kept,
}

/// Bytes of arguments that stay as they are.
enum Kept {
    Object(PyBackedBytes),
    Copy(Box<[u8]>),
}

impl Unsent {
    /// Keeps the bytes of `args`: those of an object that can change are copied.
    pub(crate) fn new(library: Py<Library>, args: &Arguments<'_>) -> Unsent {
        let args = match args {
            Arguments::Bytes(object) => Kept::Object(object.clone().into()),
            Arguments::Buffer(_) => Kept::Copy(args.bytes().into()),
        };
        Unsent { library, args }
    }

    /// Visits the library. The bytes refer to no other object, so they need no visit.
    pub(crate) fn visit(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.library)
    }

    /// Sends the call as [`try_to_send`] does.
    pub(crate) fn try_to_send(&self, link: &Link) -> Option<Result<u32, Error>> {
        let (library, bytes) = self.parts();
        try_to_send(link, library, bytes)
    }

    /// Returns the library, and the bytes of the arguments.
    pub(crate) fn parts(&self) -> (&farjump::Library, &[u8]) {
        let bytes: &[u8] = match &self.args {
            Kept::Object(object) => object,
            Kept::Copy(bytes) => bytes,
        };
        (&self.library.get().library, bytes)
    }
}

/// Returns the link's group. [`Link`](crate::link::Link) finishes it; dropping this value does not.
pub(crate) fn grouped(link: &Link) -> ManuallyDrop<Group<'_>> {
    ManuallyDrop::new(link.group())
}

/// Sends a call as [`try_to_send`] does, as one of a group.
pub(crate) fn try_to_group(
    link: &Link,
    library: &farjump::Library,
    bytes: &[u8],
) -> Option<Result<u32, Error>> {
    sent_or_full(grouped(link).try_inject(library, bytes))
}

/// Sends a call, and returns its number. `None` without credit, or while too many calls are pending.
pub(crate) fn try_to_send(
    link: &Link,
    library: &farjump::Library,
    bytes: &[u8],
) -> Option<Result<u32, Error>> {
    sent_or_full(link.try_inject(library, bytes))
}

fn sent_or_full(sent: Result<farjump::Pending<'_>, Error>) -> Option<Result<u32, Error>> {
    match sent {
        Err(Error::Inject(InjectError::Full | InjectError::TooManyCalls { .. })) => None,
        sent => Some(sent.map(farjump::Pending::into_raw)),
    }
}
