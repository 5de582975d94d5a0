//! Why a store does not do what it was asked for.

use farjump::objects::Answer;

use crate::error::Error;
use crate::wire::{MAX_TEXT, Reader, Status, Writer};

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
    /// It cannot be read from the file.
    Lost,
}

/// What is lacking where memory is wanted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum Lack {
    /// Memory of the store.
    #[default]
    Memory,
    /// What its source may take.
    OfSource,
    /// Time: the store makes space, and goes on in a later turn. Ask again.
    OfTurn,
    /// Time: the file is read or written. Ask again when a job of its thread has ended.
    OfFile,
}

/// Memory that is wanted and not there.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct NoMemory {
    pub(crate) asked: u64,
    pub(crate) used: u64,
    pub(crate) capacity: u64,
    pub(crate) largest: u64,
    /// Bytes in quarantine.
    pub(crate) quarantined: u64,
    /// The processes that keep these, in words.
    pub(crate) keepers: Box<str>,
    /// Whether the file could not be written.
    pub(crate) file_failed: bool,
    pub(crate) lack: Lack,
}

impl From<NoMemory> for Error {
    fn from(none: NoMemory) -> Error {
        let NoMemory { asked, used, capacity, largest, quarantined, keepers, file_failed, lack } = none;
        match lack {
            Lack::OfSource => Error::SourceFull { asked },
            Lack::Memory | Lack::OfTurn | Lack::OfFile => {
                let keepers = keepers.into();
                Error::Full { asked, used, capacity, largest, quarantined, keepers, file_failed }
            }
        }
    }
}

impl NoMemory {
    /// What lacks nothing but time.
    pub(crate) fn of_time(lack: Lack) -> NoMemory {
        NoMemory { lack, ..NoMemory::default() }
    }

    /// When the store is to be asked again, if it makes space or reads its file.
    pub(crate) fn goes_on(&self) -> Option<Answer> {
        match self.lack {
            Lack::OfTurn => Some(Answer::GoOn),
            Lack::OfFile => Some(Answer::Wait),
            Lack::Memory | Lack::OfSource => None,
        }
    }

    /// Writes it as a reply.
    pub(crate) fn write<'w>(&self, reply: &'w mut Writer) -> &'w mut Writer {
        if self.lack == Lack::OfSource {
            return reply.u8(Status::SourceFull as u8).u64(self.asked);
        }
        reply.u8(Status::Full as u8).u64(self.asked).u64(self.used).u64(self.capacity).u64(self.largest);
        let end =
            (0..=self.keepers.len().min(MAX_TEXT)).rev().find(|end| self.keepers.is_char_boundary(*end));
        reply.u64(self.quarantined).text(&self.keepers[..end.unwrap_or(0)]).u8(self.file_failed.into())
    }

    /// Reads the fields of a reply behind [`Status::Full`].
    pub(crate) fn read(fields: &mut Reader<'_>) -> Option<NoMemory> {
        let (asked, used, capacity, largest) = (fields.u64()?, fields.u64()?, fields.u64()?, fields.u64()?);
        let (quarantined, keepers) = (fields.u64()?, fields.text()?);
        // The owner may be anyone, and the error is for a terminal.
        let keepers = keepers.chars().filter(|letter| !letter.is_control()).collect::<String>().into();
        let file_failed = fields.u8()? != 0;
        Some(NoMemory {
            asked,
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

/// Why a claim fails.
#[derive(Clone, PartialEq, Eq, Debug)]
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
