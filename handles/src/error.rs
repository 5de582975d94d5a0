//! Errors of stores and handles.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use farjump_os::limits;

use crate::streams::StreamFault;
use crate::wire::handle::HandleFault;

/// An error of a store, a handle or a stream.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Bytes that are no handle.
    #[error("the bytes are no handle: {0}")]
    Handle(#[from] HandleFault),
    /// The object is certainly gone.
    #[error("object {number} is gone: {why}")]
    Gone {
        /// The object's number.
        number: u64,
        /// The reason.
        why: GoneWhy,
    },
    /// The owner has the object, and the handle has another key.
    #[error("the handle of object {number} has not the object's key: take the handle as its maker gave it")]
    WrongKey {
        /// The object's number.
        number: u64,
    },
    /// The object was reserved, and has no contents yet.
    #[error(
        "object {number} is reserved, and nobody has given it contents yet: wait for them (Client::wait)"
    )]
    Unset {
        /// The object's number.
        number: u64,
    },
    /// The object was not reserved, so it keeps its contents for ever.
    #[error("object {number} has its contents already: only a reserved one can be set")]
    NotReserved {
        /// The object's number.
        number: u64,
    },
    /// The store has no memory for an object.
    #[error(
        "the store has no memory for {requested} bytes: {used} of its {capacity} bytes are used, and the largest free part has {largest}; \
         {}{}evict objects, or give the store more (StoreOptions::capacity)",
        in_quarantine(*quarantined, keepers), of_file(*file_failed)
    )]
    Full {
        /// Bytes requested.
        requested: u64,
        /// Bytes in use.
        used: u64,
        /// Bytes in all.
        capacity: u64,
        /// Most bytes that an object could have now.
        largest: u64,
        /// Used bytes in quarantine: of ended links, whose processes may still read or write them.
        quarantined: u64,
        /// The first of these processes, as text.
        keepers: String,
        /// True if the store failed to write objects to its file.
        file_failed: bool,
    },
    /// The owner's target allows this client no more memory.
    #[error(
        "the owner's target allows this client no {requested} bytes more for the records of objects and claims: evict objects that it \
         has put, drop views, or have the target allow more (TargetBuilder::max_source_memory)"
    )]
    SourceFull {
        /// Bytes requested.
        requested: u64,
    },
    /// The name of a type is too long.
    #[error("the name of a type has {len} bytes, and 255 are allowed")]
    TypeName {
        /// The name's length in bytes.
        len: usize,
    },
    /// The bytes of an object are not those of a value of the requested type.
    #[error("object {number} is of type `{found}`, and was asked for as `{requested}`: {why}")]
    Type {
        /// The object's number.
        number: u64,
        /// The type's name in the handle.
        found: String,
        /// The requested type.
        requested: String,
        /// The mismatch.
        why: String,
    },
    /// A value could not be encoded.
    #[error("a value of type `{of}` cannot be encoded: {why}")]
    Encode {
        /// The type's name.
        of: String,
        /// The reason.
        why: String,
    },
    /// An operation on the memory of a store failed.
    #[error("{doing} the store's memory of {len} bytes failed: {source}{advice}")]
    Memory {
        /// The failed operation.
        doing: &'static str,
        /// Length in bytes.
        len: u64,
        /// The system's error.
        source: io::Error,
        /// A remedy, if one is known.
        advice: String,
    },
    /// A file could not be read or written.
    #[error("{}: {source}{}", path.display(), limits::behind(source))]
    File {
        /// The file's path.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The owner did not reply in time.
    #[error("the owner at {address} did not answer within {timeout:?}")]
    TimedOut {
        /// The owner's address.
        address: String,
        /// The limit.
        timeout: Duration,
    },
    /// The caller's check ended the wait.
    #[error("the wait was interrupted")]
    Interrupted,
    /// The owner sent a reply that no store sends.
    #[error("the owner at {address} broke the protocol: {what}")]
    Protocol {
        /// The owner's address.
        address: String,
        /// The violation.
        what: String,
    },
    /// This process is a child of the one that connected.
    #[error("this process was forked from the one that connected to {address}: connect in the child, too")]
    Forked {
        /// The owner's address.
        address: String,
    },
    /// A stream of handles could not be used, or ended before its publishers finished.
    #[error("topic `{topic}`: {fault}")]
    Stream {
        /// The topic's name.
        topic: String,
        /// The fault.
        fault: StreamFault,
    },
    /// None of the owner's addresses could be reached.
    #[error("the owner is reached at none of its addresses: {0}")]
    Unreachable(String),
    /// The link to the owner failed, or a call did.
    #[error(transparent)]
    Link(#[from] farjump::Error),
}

/// The part of [`Error::Full`] that says how bytes in quarantine come free.
fn in_quarantine(bytes: u64, keepers: &str) -> String {
    match bytes {
        0 => String::new(),
        bytes => format!(
            "{bytes} bytes are kept for ended links of {keepers}: end these processes, and those that they forked; "
        ),
    }
}

/// The part of [`Error::Full`] that says that the file is of no use.
fn of_file(failed: bool) -> &'static str {
    match failed {
        true => "its file could not be written, as the owner's log says: make space on its disk; ",
        false => "",
    }
}

/// The reason why an object is gone.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GoneWhy {
    /// It was evicted, its lease ended, or its last counted reference was released.
    #[error("it was evicted, its lease ended, or it never was")]
    Evicted,
    /// The owner made a new store after it made the handle.
    #[error("the owner at {address} has restarted since, or is another one")]
    Restarted {
        /// The owner's address.
        address: String,
    },
    /// The owner cannot read the object's contents from its file.
    #[error(
        "its owner cannot read it from its file (StoreOptions::spill), as the owner's log says: evict it, and put it again"
    )]
    Lost,
}
