//! Changing symbols of an ELF file in place, for which linkers have no option.

use object::LittleEndian;
use object::read::elf::SectionHeader;
use object::{elf, pod};

use crate::objects::{Elf, LITTLE};

/// A symbol table of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Table {
    /// The table for static linking.
    Static,
    /// The table for the dynamic linker.
    Dynamic,
}

/// Passes each symbol with its name to `change`, which returns whether it changed the symbol. Returns whether
/// any was changed.
///
/// # Errors
/// `bytes` are no ELF file with such a table.
pub(crate) fn edit(
    bytes: &mut [u8],
    table: Table,
    mut change: impl FnMut(&[u8], &mut elf::Sym64<LittleEndian>) -> bool,
) -> object::read::Result<bool> {
    let elf = Elf::parse(&*bytes)?;
    let symbols = match table {
        Table::Static => elf.elf_symbol_table(),
        Table::Dynamic => elf.elf_dynamic_symbol_table(),
    };
    if symbols.is_empty() {
        return Ok(false);
    }
    let names: Vec<Vec<u8>> =
        symbols.iter().map(|symbol| symbols.symbol_name(LITTLE, symbol).unwrap_or(b"").to_vec()).collect();
    let start = elf.elf_section_table().section(symbols.section())?.sh_offset(LITTLE) as usize;
    let entries = bytes.get_mut(start..).and_then(|rest| pod::slice_from_bytes_mut(rest, names.len()).ok());
    let Some((entries, _)) = entries else { return Ok(false) };
    let mut changed = false;
    for (name, symbol) in names.iter().zip(entries) {
        changed |= change(name, symbol);
    }
    Ok(changed)
}
