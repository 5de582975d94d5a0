//! The linked file: the sections, the symbols in them, and the words to patch as dynamic relocations.

use std::collections::HashMap;

use farjump_core::image::Machine;
use farjump_loader::library::bundle::NOT_PLACED;
use object::build::elf::{Builder, DynamicRelocation, Relocation, SectionData, SectionId, SymbolId};
use object::read::SymbolIndex;
use object::read::elf::{SectionHeader, Sym};
use object::{Endianness, elf};

use super::apply::{Applied, Word};
use super::layout::{BSS, Layout};
use super::machines::Table;
use super::program::{Found, Program, malformed};
use super::refused;
use crate::error::BuildError;
use crate::objects::LITTLE;

/// Distance of the addresses of sections that are not placed.
const APART: u64 = 1 << 24;

/// Writes the file of `layout`, whose entry is `root`. With `relocations`, the file keeps those of its debugging
/// information.
///
/// # Errors
/// Damaged objects, or a file that cannot be written.
pub(super) fn write(
    program: &Program<'_>,
    layout: &Layout<'_>,
    applied: &Applied<'_>,
    (table, root): (&Table, &str),
    relocations: bool,
) -> Result<Vec<u8>, BuildError> {
    let mut file = Builder::new(Endianness::Little, true);
    file.header.e_type = elf::ET_DYN;
    file.header.e_machine = elf::Machine(table.machine.0);
    file.header.e_flags = table.flags;

    let ids = sections(layout, &mut file);
    let shown = symbols(program, layout, &mut file, &ids, root);
    let meta = |index: u64| (elf::SHF_ALLOC, NOT_PLACED + index * APART);
    if let Some(note) = properties(program, table)? {
        add(&mut file, b".note.gnu.property", elf::SHT_NOTE, meta(1), SectionData::Note(note.into()));
    }
    let patches = SectionData::DynamicRelocation(patches(program, applied, table, &mut file));
    let dynstr = add(&mut file, b".dynstr", elf::SHT_STRTAB, meta(2), SectionData::DynamicString);
    let dynsym = add(&mut file, b".dynsym", elf::SHT_DYNSYM, meta(3), SectionData::DynamicSymbol);
    let rela = add(&mut file, b".rela.dyn", elf::SHT_RELA, meta(4), patches);
    let plain = (elf::SectionFlags(0), 0);
    let strtab = add(&mut file, b".strtab", elf::SHT_STRTAB, plain, SectionData::String);
    let symtab = add(&mut file, b".symtab", elf::SHT_SYMTAB, plain, SectionData::Symbol);
    add(&mut file, b".shstrtab", elf::SHT_STRTAB, plain, SectionData::SectionString);
    file.sections.get_mut(dynsym).sh_link_section = Some(dynstr);
    file.sections.get_mut(rela).sh_link_section = Some(dynsym);
    file.sections.get_mut(symtab).sh_link_section = Some(strtab);
    for (index, id) in ids.iter().enumerate().filter(|_| relocations) {
        let of = applied.shown.iter().filter(|word| word.output == index);
        let found: Vec<_> = of
            .filter_map(|word| {
                let symbol = Some(*shown.get(&word.to)?);
                let (r_offset, r_type, r_addend) = (word.offset, table.word, word.addend as i64);
                Some(Relocation { r_offset, symbol, r_type, r_addend })
            })
            .collect();
        if found.is_empty() {
            continue;
        }
        let name = format!(".rela{}", layout.outputs[index].name);
        let data = SectionData::Relocation(found);
        let list = add(&mut file, name.as_bytes(), elf::SHT_RELA, (elf::SHF_INFO_LINK, 0), data);
        let section = file.sections.get_mut(list);
        (section.sh_link_section, section.sh_info_section) = (Some(symtab), *id);
    }
    let placed: Vec<_> =
        file.sections.iter().filter(|section| section.is_alloc()).map(|it| it.id()).collect();
    // Nothing loads the file; only a file with segments may have a dynamic section.
    let segment = file.segments.add();
    (segment.p_type, segment.p_flags, segment.sections) = (elf::PT_LOAD, elf::PF_R, placed);
    file.header.e_phoff = file.file_header_size();
    file.set_section_sizes();
    let mut offset = file.file_header_size() + file.program_headers_size();
    for section in (&mut file.sections).into_iter().filter(|section| section.is_alloc()) {
        section.sh_offset = offset.next_multiple_of(section.sh_addralign.max(1));
        offset = section.sh_offset + if section.sh_type == elf::SHT_NOBITS { 0 } else { section.sh_size };
    }
    let mut out = Vec::new();
    file.write(&mut out).map_err(|error| refused(format!("the linked file cannot be written: {error}")))?;
    Ok(out)
}

/// Adds a section with these flags and this address.
fn add<'a>(
    file: &mut Builder<'a>,
    name: &[u8],
    kind: elf::SectionType,
    (flags, address): (elf::SectionFlags, u64),
    data: SectionData<'a>,
) -> SectionId {
    let section = file.sections.add();
    section.name = name.to_vec().into();
    (section.sh_type, section.sh_flags, section.sh_addr) = (kind, flags, address);
    (section.sh_addralign, section.data) = (8, data);
    if kind == elf::SHT_RELA {
        // Without the entry size, gdb reads no list of relocations.
        section.sh_entsize = size_of::<elf::Rela64<object::LittleEndian>>() as u64;
    }
    section.id()
}

/// Adds the sections of the layout that have contents. Returns their ids, by their numbers.
fn sections(layout: &Layout<'_>, file: &mut Builder<'_>) -> Vec<Option<SectionId>> {
    let mut ids = Vec::new();
    for (index, output) in layout.outputs.iter().enumerate() {
        if output.len == 0 {
            ids.push(None);
            continue;
        }
        let (kind, data) = match index {
            BSS => (elf::SHT_NOBITS, SectionData::UninitializedData(output.len)),
            _ => (elf::SHT_PROGBITS, SectionData::Data(output.bytes.clone().into())),
        };
        let id = add(file, output.name.as_bytes(), kind, (output.flags, output.address), data);
        file.sections.get_mut(id).sh_addralign = output.align;
        ids.push(Some(id));
    }
    ids
}

/// Adds the symbols of placed parts, and one for each section of the image. Returns the latter.
fn symbols(
    program: &Program<'_>,
    layout: &Layout<'_>,
    file: &mut Builder<'_>,
    ids: &[Option<SectionId>],
    root: &str,
) -> HashMap<usize, SymbolId> {
    let mut shown = HashMap::new();
    for (index, output) in layout.outputs.iter().enumerate() {
        if output.len != 0 && output.flags.contains(elf::SHF_ALLOC) {
            let symbol = file.symbols.add();
            symbol.set_st_info(elf::STB_LOCAL, elf::STT_SECTION);
            (symbol.section, symbol.st_value) = (ids[index], output.address);
            shown.insert(index, symbol.id());
        }
    }
    let mut define = |name: &[u8], kind, found, size: u64, end: Option<u64>| {
        let (Some(address), Some(home)) = (layout.address(found), layout.output_of(found)) else { return };
        if !layout.outputs[home].flags.contains(elf::SHF_ALLOC) {
            return;
        }
        let bind = if name == root.as_bytes() { elf::STB_GLOBAL } else { elf::STB_LOCAL };
        let symbol = file.symbols.add();
        symbol.set_st_info(bind, kind);
        symbol.name = name.to_vec().into();
        (symbol.section, symbol.st_value) = (ids[home], address);
        symbol.st_size = end.map_or(size, |end| end.saturating_sub(address));
    };
    for (object, (_, elf)) in program.objects.iter().enumerate() {
        let table = elf.elf_symbol_table();
        for (number, symbol) in table.enumerate().skip(1) {
            let name = table.symbol_name(LITTLE, symbol).unwrap_or_default();
            let kind = symbol.st_type();
            // Labels of assemblers.
            let is_label = name.is_empty() || name.starts_with(b".L");
            if is_label || [elf::STT_SECTION, elf::STT_FILE].contains(&kind) || symbol.is_undefined(LITTLE) {
                continue;
            }
            let number: SymbolIndex = number;
            if let Ok(found @ Found::In(part, offset)) = program.defined(object, number) {
                let size = symbol.st_size(LITTLE);
                let end = offset.checked_add(size).and_then(|end| layout.address(Found::In(part, end)));
                define(name, kind, found, size, end);
            }
        }
    }
    for (number, common) in program.commons.iter().enumerate() {
        define(common.name, elf::STT_OBJECT, Found::Common(number), common.len, None);
    }
    shown
}

/// The dynamic relocations of the words to patch, and the symbols of the imports.
fn patches(
    program: &Program<'_>,
    applied: &Applied<'_>,
    table: &Table,
    file: &mut Builder<'_>,
) -> Vec<DynamicRelocation> {
    let mut imports = HashMap::new();
    let mut found = Vec::new();
    for patch in &applied.patches {
        let r_offset = patch.address;
        found.push(match patch.word {
            Word::Import(name, r_addend) => {
                let symbol = *imports.entry(name).or_insert_with(|| {
                    let symbol = file.dynamic_symbols.add();
                    symbol.name = name.to_vec().into();
                    let bind = if program.is_weak(name) { elf::STB_WEAK } else { elf::STB_GLOBAL };
                    symbol.set_st_info(bind, elf::STT_NOTYPE);
                    symbol.id()
                });
                DynamicRelocation { r_offset, symbol: Some(symbol), r_type: table.word, r_addend }
            }
            Word::Inside(address) => {
                let (r_type, r_addend) = (table.relative, address as i64);
                DynamicRelocation { r_offset, symbol: None, r_type, r_addend }
            }
        });
    }
    found
}

/// For aarch64, the note with the properties that all objects have; `None` if there are none.
fn properties(program: &Program<'_>, table: &Table) -> Result<Option<Vec<u8>>, BuildError> {
    if table.machine != Machine::AARCH64 {
        return Ok(None);
    }
    let mut all = u32::MAX;
    for (label, elf) in &program.objects {
        let mut stated = 0;
        for header in elf.elf_section_table().iter() {
            let error = |error| malformed(label, &error);
            let Some(mut notes) = header.notes(LITTLE, elf.data()).map_err(error)? else { continue };
            while let Some(note) = notes.next().map_err(error)? {
                let Some(mut properties) = note.gnu_properties(LITTLE) else { continue };
                while let Some(property) = properties.next().map_err(error)? {
                    if property.pr_type() == elf::GNU_PROPERTY_AARCH64_FEATURE_1_AND {
                        stated |= property.data_u32(LITTLE).map_err(error)?;
                    }
                }
            }
        }
        all &= stated;
    }
    if all == 0 || program.objects.is_empty() {
        return Ok(None);
    }
    // Lengths of name and contents, kind, name; then kind, length and value of the property, and padding.
    let words = [4, 16, elf::NT_GNU_PROPERTY_TYPE_0.0, u32::from_le_bytes(*b"GNU\0")];
    let property = [elf::GNU_PROPERTY_AARCH64_FEATURE_1_AND.0, 4, all, 0];
    Ok(Some(words.into_iter().chain(property).flat_map(u32::to_le_bytes).collect()))
}
