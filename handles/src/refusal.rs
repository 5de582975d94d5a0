//! Why a store does not do what it was asked for.

use crate::error::Error;

/// Why a request about an object fails.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Refusal {
    /// There is none.
    Gone,
    /// The key is another one.
    WrongKey,
    /// It is reserved. The word at this offset changes when that changes.
    Unset(u64),
    /// It was not reserved.
    NotReserved,
}

/// Memory that is wanted and not there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct NoMemory {
    pub(crate) asked: u64,
    pub(crate) used: u64,
    pub(crate) capacity: u64,
    pub(crate) largest: u64,
}

impl From<NoMemory> for Error {
    fn from(NoMemory { asked, used, capacity, largest }: NoMemory) -> Error {
        Error::Full { asked, used, capacity, largest }
    }
}

/// Why a claim fails.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ClaimFailed {
    Refused(Refusal),
    /// There is no memory to read it back from its file.
    NoMemory(NoMemory),
}

impl From<Refusal> for ClaimFailed {
    fn from(refusal: Refusal) -> Self {
        ClaimFailed::Refused(refusal)
    }
}

impl From<NoMemory> for ClaimFailed {
    fn from(none: NoMemory) -> Self {
        ClaimFailed::NoMemory(none)
    }
}
