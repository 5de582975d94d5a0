//! Opening a file that should be a shared library, and its first bytes.

use std::fmt;
use std::fs::File;
use std::io;
use std::path::Path;

use farjump_core::image::Machine;
use farjump_os::open_without_waiting;

use crate::error::FileKind;

/// The bytes that [`check_head`] needs: an ELF header up to the machine.
pub(crate) const HEAD_LEN: u64 = 20;

/// The reason why a file is no shared library of this machine.
#[derive(Clone, Copy, Debug)]
pub(crate) enum NoLibrary {
    /// It is of this kind.
    Kind(FileKind),
    /// It was built for this machine.
    Foreign(Machine),
}

impl fmt::Display for NoLibrary {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NoLibrary::Kind(kind) => write!(out, "it is {kind}"),
            NoLibrary::Foreign(machine) => {
                write!(out, "it was built for {machine}: build it for this machine")
            }
        }
    }
}

/// Opens a file to be read; `Ok(None)` if it is not regular. Never waits for the writer of a pipe.
pub fn open(path: &Path) -> io::Result<Option<File>> {
    let file = open_without_waiting(path)?;
    Ok(file.metadata()?.is_file().then_some(file))
}

/// Checks the start of a file, or all of a shorter one: for other files, the messages of parsers and of the dynamic
/// linker would not help a user.
pub(crate) fn check_head(bytes: &[u8]) -> Result<(), NoLibrary> {
    let head = &bytes[..bytes.len().min(HEAD_LEN as usize)];
    match *head {
        [0x7f, b'E', b'L', b'F', class, order, .., type_low, type_high, machine_low, machine_high]
            if head.len() as u64 == HEAD_LEN =>
        {
            if (class, order) != (2, 1) {
                return Err(NoLibrary::Kind(FileKind::OtherElf));
            }
            // ET_DYN (elf.h). A position-independent program has the same type, and the dynamic linker
            // refuses it.
            if u16::from_le_bytes([type_low, type_high]) != 3 {
                return Err(NoLibrary::Kind(FileKind::NoSharedLibrary));
            }
            match Machine(u16::from_le_bytes([machine_low, machine_high])) {
                machine if Some(machine) != Machine::native() => Err(NoLibrary::Foreign(machine)),
                _ => Ok(()),
            }
        }
        [] => Err(NoLibrary::Kind(FileKind::Empty)),
        [b'!', b'<', b'a', b'r', b'c', b'h', b'>', ..] => Err(NoLibrary::Kind(FileKind::Archive)),
        _ => Err(NoLibrary::Kind(FileKind::NoElf)),
    }
}
