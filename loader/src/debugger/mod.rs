//! Linked code as debuggers see it: GDB's JIT interface, which lldb reads too.
//!
//! A debugger learns of each image from an ELF file in this process's memory, in which all addresses are those of the
//! placed image. The file has the symbols that `farjump build` left in the library, if the target has the library.
//! Otherwise it has two symbols.

mod elf_file;
mod jit;

use std::fmt;
use std::path::Path;

use farjump_core::image::CodeId;
use object::LittleEndian;
use object::read::elf::{ElfFile64, SectionHeader};

use crate::error::Error;
use crate::library::bundle::SYMBOLS_SECTION;
use crate::library::read_whole;

/// The symbols of one image.
#[derive(Clone)]
pub struct Symbols {
    id: CodeId,
    elf: Box<[u8]>,
}

impl Symbols {
    /// Reads the symbols of all images of the ifunc library at `path`, in the order of its sections. Maps nothing, and
    /// runs nothing. A path without a slash is a file of the current directory.
    ///
    /// # Errors
    /// [`Error::NoSuchFile`], [`Error::Unreadable`], [`Error::NotALibrary`], [`Error::ForeignLibrary`],
    /// [`Error::Malformed`], [`Error::TooLong`]; [`Error::NoSymbols`] for a library that keeps none.
    pub fn read(path: impl AsRef<Path>) -> Result<Vec<Symbols>, Error> {
        let path = path.as_ref();
        let bytes = read_whole(path)?;
        let malformed =
            |error: object::Error| Error::Malformed { path: path.to_owned(), problem: error.to_string() };
        let library = ElfFile64::<LittleEndian>::parse(&*bytes).map_err(malformed)?;
        let sections = library.elf_section_table();
        let found = sections.iter().filter_map(|header| {
            let name = sections.section_name(LittleEndian, header).ok()?;
            let id = id(name.strip_prefix(SYMBOLS_SECTION.as_bytes())?)?;
            let elf = header.data(LittleEndian, library.data()).ok()?;
            ElfFile64::<LittleEndian>::parse(elf).ok()?;
            Some(Symbols { id, elf: elf.into() })
        });
        let found: Vec<_> = found.collect();
        if found.is_empty() {
            return Err(Error::NoSymbols { path: path.to_owned() });
        }
        Ok(found)
    }

    /// The code id of the image.
    pub fn id(&self) -> CodeId {
        self.id
    }
}

impl fmt::Debug for Symbols {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Symbols").field("id", &self.id).field("len", &self.elf.len()).finish()
    }
}

/// The code id in these 32 digits.
fn id(digits: &[u8]) -> Option<CodeId> {
    let digits = std::str::from_utf8(digits).ok().filter(|digits| digits.len() == 32)?;
    let number = digits.bytes().all(|digit| digit.is_ascii_hexdigit()).then_some(digits)?;
    u128::from_str_radix(number, 16).ok().map(|number| CodeId(number.to_be_bytes()))
}

/// Shows one image to debuggers until it is dropped. Its owner keeps the code alive at least as long.
pub(crate) struct Shown(#[expect(dead_code, reason = "dropping it ends the registration")] jit::Registration);

impl Shown {
    /// Shows the code at `start`, `len` bytes with `entry` as `NAME_main`.
    pub(crate) fn new(name: &str, start: u64, len: u64, entry: u64, symbols: Option<&Symbols>) -> Shown {
        let full = symbols.and_then(|symbols| elf_file::relocated(&symbols.elf, start));
        let elf = full.unwrap_or_else(|| elf_file::two_symbols(name, start, len, entry));
        Shown(jit::Registration::new(elf.into_boxed_slice()))
    }
}

/// Checks that debuggers find the list of this process: another JIT in the same program may own the names of the
/// interface.
///
/// # Errors
/// The reason, and what to do.
pub fn check() -> Result<(), &'static str> {
    if jit::is_ours() {
        return Ok(());
    }
    Err(
        "another part of this program defines __jit_debug_descriptor, so debuggers do not learn of injected code: \
         use add-symbol-file",
    )
}
