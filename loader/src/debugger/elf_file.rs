//! The ELF file that shows an image to debuggers.

use farjump_core::image::Machine;
use object::read::elf::{ElfFile64, SectionHeader, Sym};
use object::read::{SectionIndex, SymbolIndex};
use object::{LittleEndian, elf, pod};

use crate::library::bundle::NOT_PLACED;

const LITTLE: LittleEndian = LittleEndian;

type Header = elf::FileHeader64<LittleEndian>;
type Section = elf::SectionHeader64<LittleEndian>;
type Symbol = elf::Sym64<LittleEndian>;

/// A copy of `file`, linked at address 0, for an image at `start`: adds `start` to each address of code and statics.
/// `None` for bytes that are no such file.
///
/// Debugging information without its relocations is left out, because its addresses cannot be distinguished from other
/// words. Sections that are not placed have no address.
pub(super) fn relocated(file: &[u8], start: u64) -> Option<Vec<u8>> {
    let parsed = ElfFile64::<LittleEndian>::parse(file).ok()?;
    let sections = parsed.elf_section_table();
    let named = |section: &Section, name: &[u8]| {
        sections.section_name(LITTLE, section).is_ok_and(|found| found.starts_with(name))
    };
    let is_placed = |section: &Section| {
        section.sh_flags(LITTLE).contains(elf::SHF_ALLOC) && section.sh_addr(LITTLE) < NOT_PLACED
    };
    let in_placed = |symbol: &Symbol| {
        let index = SectionIndex(usize::from(symbol.st_shndx(LITTLE).0));
        sections.section(index).is_ok_and(is_placed)
    };
    let mut out = file.to_vec();

    let mut header = *parsed.elf_header();
    header.e_type.set(LITTLE, elf::ET_EXEC);
    header.e_entry.set(LITTLE, header.e_entry.get(LITTLE).wrapping_add(start));
    // Segments would state the addresses once more.
    header.e_phoff.set(LITTLE, 0);
    header.e_phnum.set(LITTLE, 0);
    put(&mut out, 0, pod::bytes_of(&header))?;

    let word = match parsed.elf_header().e_machine.get(LITTLE) {
        elf::EM_X86_64 => elf::R_X86_64_64,
        elf::EM_AARCH64 => elf::R_AARCH64_ABS64,
        elf::EM_RISCV => elf::R_RISCV_64,
        _ => return None,
    };
    // lld 22 writes empty relocations for riscv64.
    let relocatable = sections.iter().filter(|section| named(section, b".rela.debug_")).any(|section| {
        let found = section.rela(LITTLE, file).ok().flatten();
        found.is_some_and(|(found, _)| found.iter().any(|each| each.r_type(LITTLE, false) == word))
    });
    let mut changed: Vec<Section> = sections.iter().copied().collect();
    for section in &mut changed {
        if is_placed(section) {
            section.sh_addr.set(LITTLE, section.sh_addr.get(LITTLE).wrapping_add(start));
        } else {
            section.sh_flags.set(LITTLE, elf::SectionFlags(section.sh_flags(LITTLE).0 & !elf::SHF_ALLOC.0));
        }
        if !relocatable && named(section, b".debug_") {
            section.sh_type.set(LITTLE, elf::SHT_NULL);
        }
    }
    put(&mut out, parsed.elf_header().e_shoff.get(LITTLE), pod::bytes_of_slice(&changed))?;

    for section in sections.iter() {
        if [elf::SHT_SYMTAB, elf::SHT_DYNSYM].contains(&section.sh_type(LITTLE)) {
            let mut symbols: Vec<Symbol> = section.data_as_array::<Symbol, _>(LITTLE, file).ok()?.to_vec();
            for symbol in &mut symbols {
                if in_placed(symbol) {
                    symbol.st_value.set(LITTLE, symbol.st_value.get(LITTLE).wrapping_add(start));
                }
            }
            put(&mut out, section.sh_offset(LITTLE), pod::bytes_of_slice(&symbols))?;
        }
        let Some((relocations, table)) = section.rela(LITTLE, file).ok()? else { continue };
        let Ok(debugging) = sections.section(section.info_link(LITTLE)) else { continue };
        if debugging.sh_flags(LITTLE).contains(elf::SHF_ALLOC) {
            continue;
        }
        let symbols = sections.symbol_table_by_index(LITTLE, file, table).ok()?;
        let (at, len) = (debugging.sh_offset(LITTLE), debugging.sh_size(LITTLE));
        for relocation in relocations {
            let symbol = symbols.symbol(SymbolIndex(relocation.r_sym(LITTLE, false) as usize));
            let address = relocation.r_type(LITTLE, false) == word;
            if address && symbol.is_ok_and(in_placed) {
                let offset = relocation.r_offset.get(LITTLE);
                offset.checked_add(8).filter(|&end| end <= len)?;
                add(&mut out, at.checked_add(offset)?, start)?;
            }
        }
    }
    Some(out)
}

/// A file for `len` bytes of code at `start` with unknown symbols. It has `NAME_main` at `entry`, and `ifunc:NAME` for
/// code before it.
pub(super) fn two_symbols(name: &str, start: u64, len: u64, entry: u64) -> Vec<u8> {
    const HEADER: usize = size_of::<Header>();
    const SECTION: usize = size_of::<Section>();
    const SYMBOL: usize = size_of::<Symbol>();
    const SECTION_NAMES: &[u8] = b"\0.text\0.symtab\0.strtab\0";

    let mut strings = vec![0];
    let mut symbols: Vec<Symbol> = vec![*zeroed()];
    let before = entry.saturating_sub(start);
    let main = (format!("{name}_main"), entry, len.saturating_sub(before));
    let helpers = (before > 0).then(|| (format!("ifunc:{name}"), start, before));
    for (symbol, address, size) in helpers.into_iter().chain([main]) {
        let mut entry = *zeroed::<Symbol>();
        entry.st_name.set(LITTLE, strings.len() as u32);
        entry.st_info = elf::SymbolInfo::new(elf::STB_GLOBAL, elf::STT_FUNC);
        entry.st_shndx.set(LITTLE, elf::SymbolSection(1));
        entry.st_value.set(LITTLE, address);
        entry.st_size.set(LITTLE, size);
        symbols.push(entry);
        strings.extend_from_slice(symbol.as_bytes());
        strings.push(0);
    }
    strings.extend_from_slice(SECTION_NAMES);
    let section_names = strings.len() - SECTION_NAMES.len();
    let symbols_at = HEADER + 4 * SECTION;
    let strings_at = symbols_at + symbols.len() * SYMBOL;

    let mut header = *zeroed::<Header>();
    header.e_ident.magic = elf::ELFMAG;
    header.e_ident.class = elf::ELFCLASS64;
    header.e_ident.data = elf::ELFDATA2LSB;
    header.e_ident.version = elf::EV_CURRENT;
    header.e_type.set(LITTLE, elf::ET_EXEC);
    header.e_machine.set(LITTLE, elf::Machine(Machine::native().map_or(0, |machine| machine.0)));
    header.e_version.set(LITTLE, u32::from(elf::EV_CURRENT.0));
    header.e_shoff.set(LITTLE, HEADER as u64);
    header.e_ehsize.set(LITTLE, HEADER as u16);
    header.e_shentsize.set(LITTLE, SECTION as u16);
    header.e_shnum.set(LITTLE, 4);
    header.e_shstrndx.set(LITTLE, elf::SymbolSection(3));

    // The code is in memory, not in the file: its section has no bytes.
    let mut sections = [*zeroed::<Section>(); 4];
    let name_at = |offset: usize| (section_names + offset) as u32;
    sections[1].sh_name.set(LITTLE, name_at(1));
    sections[1].sh_type.set(LITTLE, elf::SHT_NOBITS);
    sections[1].sh_flags.set(LITTLE, elf::SectionFlags(elf::SHF_ALLOC.0 | elf::SHF_EXECINSTR.0));
    sections[1].sh_addr.set(LITTLE, start);
    sections[1].sh_size.set(LITTLE, len);
    sections[1].sh_addralign.set(LITTLE, 1);
    sections[2].sh_name.set(LITTLE, name_at(7));
    sections[2].sh_type.set(LITTLE, elf::SHT_SYMTAB);
    sections[2].sh_offset.set(LITTLE, symbols_at as u64);
    sections[2].sh_size.set(LITTLE, (symbols.len() * SYMBOL) as u64);
    sections[2].sh_link.set(LITTLE, 3);
    sections[2].sh_info.set(LITTLE, 1);
    sections[2].sh_addralign.set(LITTLE, 8);
    sections[2].sh_entsize.set(LITTLE, SYMBOL as u64);
    sections[3].sh_name.set(LITTLE, name_at(15));
    sections[3].sh_type.set(LITTLE, elf::SHT_STRTAB);
    sections[3].sh_offset.set(LITTLE, strings_at as u64);
    sections[3].sh_size.set(LITTLE, strings.len() as u64);
    sections[3].sh_addralign.set(LITTLE, 1);

    [pod::bytes_of(&header), pod::bytes_of_slice(&sections), pod::bytes_of_slice(&symbols), &strings].concat()
}

/// A structure of zeroes.
fn zeroed<T: pod::Pod>() -> &'static T {
    const ZEROES: &[u64; 8] = &[0; 8];
    let (zeroed, _) = pod::from_bytes(pod::bytes_of(ZEROES)).expect("the structures have at most 64 bytes");
    zeroed
}

/// Replaces the bytes at `offset`; `None` if they are not inside `out`.
fn put(out: &mut [u8], offset: u64, bytes: &[u8]) -> Option<()> {
    let start = usize::try_from(offset).ok()?;
    out.get_mut(start..start.checked_add(bytes.len())?)?.copy_from_slice(bytes);
    Some(())
}

/// Adds to the word at `offset`; `None` if it is not inside `out`.
fn add(out: &mut [u8], offset: u64, summand: u64) -> Option<()> {
    let start = usize::try_from(offset).ok()?;
    let word = out.get_mut(start..)?.first_chunk_mut()?;
    *word = u64::from_le_bytes(*word).wrapping_add(summand).to_le_bytes();
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const START: u64 = 0x7f00_0000_1000;

    #[test]
    fn code_before_the_main_function_has_a_name_of_its_own() {
        let file = two_symbols("sum", START, 100, START + 40);
        let parsed = ElfFile64::<LittleEndian>::parse(&*file).unwrap();
        let symbols = parsed.elf_symbol_table();
        let named = symbols.iter().skip(1).map(|symbol| {
            let name = symbols.symbol_name(LITTLE, symbol).unwrap();
            (name, symbol.st_value(LITTLE), symbol.st_size(LITTLE))
        });
        assert_eq!(
            named.collect::<Vec<_>>(),
            [(&b"ifunc:sum"[..], START, 40), (b"sum_main", START + 40, 60)]
        );
        let alone = two_symbols("sum", START, 100, START);
        let parsed = ElfFile64::<LittleEndian>::parse(&*alone).unwrap();
        assert_eq!(parsed.elf_symbol_table().len(), 2);
    }

    /// Writes a file with debugging information that has one relocation, of this type.
    fn with_relocation(number: elf::RelocationType) -> Vec<u8> {
        use object::write::{Object, Relocation, StandardSegment, Symbol, SymbolSection};
        use object::{Architecture, BinaryFormat, Endianness, RelocationFlags, SectionKind, SymbolFlags};

        let mut object = Object::new(BinaryFormat::Elf, Architecture::X86_64, Endianness::Little);
        let text = object.add_section(vec![], b".text".to_vec(), SectionKind::Text);
        object.append_section_data(text, &[0xc3; 16], 16);
        let debugging = object.segment_name(StandardSegment::Debug).to_vec();
        let debugging = object.add_section(debugging, b".debug_info".to_vec(), SectionKind::Debug);
        object.append_section_data(debugging, &[0; 16], 8);
        let symbol = object.add_symbol(Symbol {
            name: b"main".to_vec(),
            value: 0,
            size: 16,
            kind: object::SymbolKind::Text,
            scope: object::SymbolScope::Compilation,
            weak: false,
            section: SymbolSection::Section(text),
            flags: SymbolFlags::None,
        });
        let flags = RelocationFlags::Elf { r_type: number };
        object.add_relocation(debugging, Relocation { offset: 8, symbol, addend: 0, flags }).unwrap();
        object.write().unwrap()
    }

    #[test]
    fn debug_info_with_relocations_of_type_none_is_left_out() {
        for (number, kept) in [(elf::R_X86_64_64, true), (elf::R_X86_64_NONE, false)] {
            let file = relocated(&with_relocation(number), START).unwrap();
            let parsed = ElfFile64::<LittleEndian>::parse(&*file).unwrap();
            let sections = parsed.elf_section_table();
            let (_, section) = sections.section_by_name(LITTLE, b".debug_info").unwrap();
            assert_eq!(section.sh_type(LITTLE) != elf::SHT_NULL, kept, "{}", number.0);
            let word = section.sh_offset(LITTLE) as usize + 8;
            assert_eq!(file[word..word + 8] == START.to_le_bytes(), kept, "{}", number.0);
        }
    }

    proptest! {
        #[test]
        fn damaged_files_are_relocated_or_not_and_nothing_else(
            changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..20),
            len in any::<prop::sample::Index>(),
        ) {
            let mut file = two_symbols("sum", 0, 100, 40);
            for (at, byte) in changes {
                let at = at.index(file.len());
                file[at] = byte;
            }
            let _ = relocated(&file, START);
            file.truncate(len.index(file.len()));
            let _ = relocated(&file, u64::MAX);
        }
    }
}
