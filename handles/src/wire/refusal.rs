//! The reasons why a store refuses a request.

use farjump::objects::RequestState;

use crate::error::Error;
use crate::wire::requests::{MAX_TEXT, Reader, Status, Writer};

/// The reason why a request about an object fails.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Refusal {
    /// There is no such object.
    Gone,
    /// The handle's key is not the object's.
    WrongKey,
    /// The object is reserved. The word at this offset changes when it gets contents or is evicted.
    Unset(u64),
    /// The object was not reserved.
    NotReserved,
    /// The object cannot be read from the file.
    Lost,
}

/// The resource that a request for memory lacks.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum Lack {
    /// Memory of the store.
    #[default]
    Memory,
    /// The budget of its source.
    OfSource,
    /// Time: the store makes space, and continues in a later turn. Request again.
    OfTurn,
    /// Time: the store reads or writes its file. Request again when a job of its thread has ended.
    OfFile,
}

/// A request for memory that failed.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct NoMemory {
    pub(crate) requested: u64,
    pub(crate) used: u64,
    pub(crate) capacity: u64,
    pub(crate) largest: u64,
    /// Bytes in quarantine.
    pub(crate) quarantined: u64,
    /// The processes that keep these bytes, as text.
    pub(crate) keepers: Box<str>,
    /// True if the store failed to write the file.
    pub(crate) file_failed: bool,
    pub(crate) lack: Lack,
}

impl From<NoMemory> for Error {
    fn from(none: NoMemory) -> Error {
        let NoMemory { requested, used, capacity, largest, quarantined, keepers, file_failed, lack } = none;
        match lack {
            Lack::OfSource => Error::SourceFull { requested },
            Lack::Memory | Lack::OfTurn | Lack::OfFile => {
                let keepers = keepers.into();
                Error::Full { requested, used, capacity, largest, quarantined, keepers, file_failed }
            }
        }
    }
}

impl NoMemory {
    /// Returns the failure of a request that lacks nothing but time.
    pub(crate) fn of_time(lack: Lack) -> NoMemory {
        NoMemory { lack, ..NoMemory::default() }
    }

    /// Returns when to make the request again, if the store makes space or reads its file.
    pub(crate) fn retry(&self) -> Option<RequestState> {
        match self.lack {
            Lack::OfTurn => Some(RequestState::Continue),
            Lack::OfFile => Some(RequestState::Wait),
            Lack::Memory | Lack::OfSource => None,
        }
    }

    /// Writes the failure as a reply.
    pub(crate) fn write<'w>(&self, reply: &'w mut Writer) -> &'w mut Writer {
        if self.lack == Lack::OfSource {
            return reply.u8(Status::SourceFull as u8).u64(self.requested);
        }
        reply.u8(Status::Full as u8).u64(self.requested).u64(self.used).u64(self.capacity).u64(self.largest);
        let end =
            (0..=self.keepers.len().min(MAX_TEXT)).rev().find(|end| self.keepers.is_char_boundary(*end));
        reply.u64(self.quarantined).text(&self.keepers[..end.unwrap_or(0)]).u8(self.file_failed.into())
    }

    /// Reads the fields of a reply behind [`Status::Full`].
    pub(crate) fn read(fields: &mut Reader<'_>) -> Option<NoMemory> {
        let (requested, used, capacity, largest) =
            (fields.u64()?, fields.u64()?, fields.u64()?, fields.u64()?);
        let (quarantined, keepers) = (fields.u64()?, fields.text()?);
        // The owner may be any process, and the error is for a terminal.
        let keepers = keepers.chars().filter(|letter| !letter.is_control()).collect::<String>().into();
        let file_failed = fields.u8()? != 0;
        Some(NoMemory {
            requested,
            used,
            capacity,
            largest,
            quarantined,
            keepers,
            file_failed,
            lack: Lack::Memory,
        })
    }
}

/// The reason why a claim fails.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum ClaimFailed {
    Refused(Refusal),
    /// There is no memory to read the object back from its file.
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
