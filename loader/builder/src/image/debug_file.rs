//! The linked file of an image, as debuggers need it.

use farjump_loader::library::bundle::NOT_PLACED;
use object::build::elf::Builder;
use object::elf;

/// A copy of a linked file without the parts for linkers, static and dynamic, which are most of a small one. `None`
/// if they cannot be taken out: then the whole file will do.
pub(crate) fn shortened(linked: &[u8]) -> Option<Vec<u8>> {
    let mut file = Builder::read(linked).ok()?;
    for segment in &mut file.segments {
        segment.delete = true;
    }
    for symbol in &mut file.dynamic_symbols {
        symbol.delete = true;
    }
    let is_placed =
        |flags: elf::SectionFlags, address| flags.contains(elf::SHF_ALLOC) && address < NOT_PLACED;
    let placed: Vec<_> = file
        .sections
        .iter()
        .filter(|section| is_placed(section.sh_flags, section.sh_addr))
        .map(|section| section.id())
        .collect();
    let mut end = file.file_header_size();
    for section in &mut file.sections {
        // Debuggers place debugging information by its relocations, and take code and statics as they are.
        let is_of_placed = section.sh_type == elf::SHT_RELA
            && section.sh_info_section.is_some_and(|patched| placed.contains(&patched));
        section.delete =
            is_of_placed || (section.is_alloc() && !is_placed(section.sh_flags, section.sh_addr));
        if section.is_alloc() && !section.delete {
            section.sh_offset = end.next_multiple_of(section.sh_addralign.max(1));
            end = section.sh_offset + if section.sh_type == elf::SHT_NOBITS { 0 } else { section.sh_size };
        }
    }
    let mut out = Vec::new();
    file.write(&mut out).ok()?;
    (out.len() < linked.len()).then_some(out)
}
