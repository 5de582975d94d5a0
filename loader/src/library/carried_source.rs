//! The source that a library carries, as bytes: the crate `farjump-builder` writes and reads them.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use farjump_core::image::CodeId;
use object::LittleEndian;
use object::read::elf::{ElfFile64, SectionHeader};

use crate::code_id;

/// Name of the section.
pub const SECTION: &str = ".farjump.source";

/// The source that an open library carries, as its file contained it. A clone is another handle on the same bytes.
#[derive(Clone)]
pub struct CarriedSource {
    /// The library.
    path: PathBuf,
    bytes: Arc<[u8]>,
}

impl CarriedSource {
    /// The source in the library at `path` with the contents `elf`; `None` if there is none that can be read.
    pub(crate) fn of(elf: &ElfFile64<'_, LittleEndian>, path: &Path) -> Option<CarriedSource> {
        let bytes = section(elf).ok().flatten()?;
        Some(CarriedSource { path: path.to_owned(), bytes: bytes.into() })
    }

    /// The library that carries it.
    pub fn library(&self) -> &Path {
        &self.path
    }

    /// The section's contents.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The hash of its bytes: equal sources have equal ones.
    pub fn id(&self) -> CodeId {
        code_id(&self.bytes)
    }
}

impl fmt::Debug for CarriedSource {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let len = self.bytes.len();
        out.debug_struct("CarriedSource").field("path", &self.path).field("len", &len).finish()
    }
}

/// The contents of the section in the ELF file `elf`; `None` if it has none.
///
/// # Errors
/// A section that lies outside the file.
pub fn section<'a>(elf: &ElfFile64<'a, LittleEndian>) -> Result<Option<&'a [u8]>, String> {
    let sections = elf.elf_section_table();
    let found = sections.section_by_name(LittleEndian, SECTION.as_bytes());
    found
        .map(|(_, found)| found.data(LittleEndian, elf.data()).map_err(|error| error.to_string()))
        .transpose()
}
