//! The symbols of a linked ELF file, and the facts that they state about its image. The facts do not travel.

use farjump_core::image::Machine;
use farjump_loader::library::signature::{self, Signature};
use object::elf;
use object::read::elf::{SectionHeader, Sym};

use crate::error::BuildError;
use crate::image::extract::{LinkedElf, malformed};
use crate::objects::{LITTLE, section_name, symbol_name};

impl<'a> LinkedElf<'a> {
    /// Value of `NAME_payload_align`, which FARJUMP_PAYLOAD_ALIGN defines.
    pub(crate) fn payload_align_log2(&self) -> Result<u8, BuildError> {
        let Some(stated) = self.stated("_payload_align")? else { return Ok(0) };
        let bytes = stated.first_chunk().map_or(0, |word| u32::from_le_bytes(*word));
        if !bytes.is_power_of_two() || !(8..=4096).contains(&bytes) {
            return Err(BuildError::PayloadAlign { name: self.name.to_owned(), bytes: u64::from(bytes) });
        }
        Ok(bytes.trailing_zeros() as u8)
    }

    /// The signature, which the attribute of `farjump-ifunc` defines, if there is one.
    pub(crate) fn signature(&self) -> Result<Option<Signature>, BuildError> {
        let Some(stated) = self.stated(signature::SUFFIX)? else { return Ok(None) };
        let refused = || BuildError::Signature { name: self.name.to_owned() };
        Signature::parse(stated).ok_or_else(refused).map(Some)
    }

    /// Returns whether all objects say that each address to which code branches indirectly is a landing pad. Linkers
    /// note it in their output if each of their inputs does (ELF for the Arm 64-bit Architecture, "Program Property").
    pub(crate) fn has_landing_pads(&self) -> Result<bool, BuildError> {
        if self.rules.machine != Machine::AARCH64 {
            return Ok(false);
        }
        for header in self.elf.elf_section_table().iter() {
            let Some(mut notes) = header.notes(LITTLE, self.elf.data()).map_err(malformed)? else { continue };
            while let Some(note) = notes.next().map_err(malformed)? {
                let Some(mut properties) = note.gnu_properties(LITTLE) else { continue };
                while let Some(property) = properties.next().map_err(malformed)? {
                    if property.pr_type() == elf::GNU_PROPERTY_AARCH64_FEATURE_1_AND {
                        let all = property.data_u32(LITTLE).map_err(malformed)?;
                        return Ok(all & elf::GNU_PROPERTY_AARCH64_FEATURE_1_BTI != 0);
                    }
                }
            }
        }
        Ok(false)
    }

    /// The contents from the symbol NAME`suffix` to the end of its section: a fact about the image that does
    /// not travel.
    fn stated(&self, suffix: &str) -> Result<Option<&'a [u8]>, BuildError> {
        let Some(symbol) = self.symbol(&format!("{}{suffix}", self.name)) else { return Ok(None) };
        let sections = self.elf.elf_section_table();
        let home = sections.section(object::read::SectionIndex(usize::from(symbol.st_shndx(LITTLE).0)));
        let home = home.map_err(malformed)?;
        let offset = symbol.st_value(LITTLE).wrapping_sub(home.sh_addr(LITTLE)) as usize;
        let contents = home.data(LITTLE, self.elf.data()).map_err(malformed)?;
        Ok(Some(contents.get(offset..).unwrap_or_default()))
    }

    pub(crate) fn symbol(&self, name: &str) -> Option<&'a elf::Sym64<object::LittleEndian>> {
        let symbols = self.elf.elf_symbol_table();
        symbols.iter().find(|symbol| {
            !symbol.is_undefined(LITTLE) && symbols.symbol_name(LITTLE, symbol).ok() == Some(name.as_bytes())
        })
    }

    /// The name of the variable or function at an address, or of the section.
    pub(crate) fn symbol_at(&self, address: u64) -> String {
        let covers = |symbol: &&elf::Sym64<_>| {
            let kind = symbol.st_type();
            let start = symbol.st_value(LITTLE);
            (kind == elf::STT_OBJECT || kind == elf::STT_FUNC || kind == elf::STT_GNU_IFUNC)
                && !symbol.is_undefined(LITTLE)
                && (start..start + symbol.st_size(LITTLE).max(1)).contains(&address)
        };
        if let Some(symbol) = self.elf.elf_symbol_table().iter().find(covers) {
            return symbol_name(&self.elf, symbol);
        }
        let home = self.elf.elf_section_table().enumerate().find(|(_, header)| {
            let start = header.sh_addr(LITTLE);
            header.sh_flags(LITTLE).contains(elf::SHF_ALLOC)
                && (start..start + header.sh_size(LITTLE)).contains(&address)
        });
        home.map_or_else(|| format!("address {address:#x}"), |(index, _)| section_name(&self.elf, index))
    }

    /// A thread-local variable of the image.
    pub(crate) fn thread_local(&self) -> String {
        let symbol = self.elf.elf_symbol_table().iter().find(|symbol| symbol.st_type() == elf::STT_TLS);
        symbol.map_or_else(|| "?".to_owned(), |symbol| symbol_name(&self.elf, symbol))
    }
}
