//! The contents of an ifunc library, found in the bytes of its file without mapping or running anything.

use object::read::elf::{ElfFile64, ProgramHeader, Sym};
use object::{LittleEndian, elf};

use crate::library::bundle;
use crate::library::signature::{self, Signature};

/// Suffixes of NAME in the symbols of routines, in listing order.
const ROUTINES: [&str; 5] =
    ["_main", "_payload_get_max_size", "_payload_bound", "_payload_init", "_payload_init_shrink"];
/// Suffix of NAME in the symbol by which the author's objects state that their payload routines are farjump's.
pub const COPY_ARGS: &str = "_copy_args";
/// Suffix of NAME in the symbol by which a library states that its payloads are the arguments unchanged: its payload
/// routines are those of `FARJUMP_COPY_ARGS`, or of `#[ifunc]` without `payload`.
pub const IS_ARGS: &str = "_payload_is_args";

/// A shared library that is read but not loaded.
pub struct Carrier<'a>(ElfFile64<'a, LittleEndian>);

impl<'a> Carrier<'a> {
    /// Parses the bytes of a shared library.
    ///
    /// # Errors
    /// The reason why the bytes are no shared library for a 64-bit little-endian machine.
    pub fn parse(bytes: &'a [u8]) -> Result<Carrier<'a>, String> {
        ElfFile64::parse(bytes).map(Carrier).map_err(|error| error.to_string())
    }

    /// The parsed file.
    pub fn elf(&self) -> &ElfFile64<'a, LittleEndian> {
        &self.0
    }

    /// The bytes from the bundle's symbol to the end of its loaded segment; `None` without one.
    ///
    /// # Errors
    /// A segment that lies outside the file.
    pub fn bundle(&self) -> Result<Option<&'a [u8]>, String> {
        self.bytes_at(bundle::SYMBOL)
    }

    /// The signature of the ifunc of this name; `None` if the library states none that can be read.
    ///
    /// # Errors
    /// A segment that lies outside the file.
    pub fn signature(&self, name: &str) -> Result<Option<Signature>, String> {
        let stated = self.bytes_at(&format!("{name}{}", signature::SUFFIX))?;
        Ok(stated.and_then(Signature::parse))
    }

    /// The bytes from this exported symbol to the end of its loaded segment; `None` without one.
    fn bytes_at(&self, name: &str) -> Result<Option<&'a [u8]>, String> {
        let Some(symbol) = self.symbol(name) else { return Ok(None) };
        let address = symbol.st_value(LittleEndian);
        for segment in self.0.elf_program_headers() {
            let (start, len) = (segment.p_vaddr(LittleEndian), segment.p_filesz(LittleEndian));
            if segment.p_type(LittleEndian) != elf::PT_LOAD
                || !(start..start.saturating_add(len)).contains(&address)
            {
                continue;
            }
            let outside = |()| "a segment lies outside the file".to_owned();
            let contents = segment.data(LittleEndian, self.0.data()).map_err(outside)?;
            return Ok(Some(contents.get((address - start) as usize..).unwrap_or_default()));
        }
        Ok(None)
    }

    /// The bytes of the bundle with the length that the symbol states, as far as they exist.
    ///
    /// # Errors
    /// Those of [`Carrier::bundle`].
    pub fn stated_bundle(&self) -> Result<Option<&'a [u8]>, String> {
        let stated = self.symbol(bundle::SYMBOL).map_or(0, |symbol| symbol.st_size(LittleEndian));
        Ok(self.bundle()?.map(|rest| rest.get(..stated as usize).unwrap_or(rest)))
    }

    /// The exported routines of this name, in the order in which they are listed.
    pub fn routines(&self, name: &str) -> Vec<String> {
        let routines = ROUTINES.map(|routine| format!("{name}{routine}"));
        routines.into_iter().filter(|routine| self.exports(routine)).collect()
    }

    /// Returns whether the library states that payloads of the ifunc of this name are the arguments unchanged.
    pub fn payload_is_args(&self, name: &str) -> bool {
        self.exports(&format!("{name}{IS_ARGS}"))
    }

    fn exports(&self, name: &str) -> bool {
        self.symbol(name).is_some()
    }

    /// The exported symbol of this name.
    fn symbol(&self, name: &str) -> Option<&'a elf::Sym64<LittleEndian>> {
        let symbols = self.0.elf_dynamic_symbol_table();
        symbols.iter().find(|symbol| {
            !symbol.is_undefined(LittleEndian)
                && symbols.symbol_name(LittleEndian, symbol) == Ok(name.as_bytes())
        })
    }
}
