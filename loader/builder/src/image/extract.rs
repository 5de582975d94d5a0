//! From a linked ELF file to a canonical image: the two spans, the imports and the relative sites.
//!
//! Only the linker's dynamic relocations are patched. This module refuses everything else by the symbol's name;
//! [`crate::objects::locate_symbol`] adds its object and section.

use farjump_core::image::{ImageParts, Import, Level, Place, Relative, SPAN_DISTANCE, code_align_log2};
use farjump_loader::library::bundle::{NOT_PLACED, Sizes};
use farjump_loader::library::file_contents::COPY_ARGS;
use farjump_loader::library::signature::Signature;
use object::elf;
use object::read::SymbolIndex;
use object::read::elf::{SectionHeader, Sym};

use crate::error::{BuildError, Pointee};
use crate::objects::{Elf, LITTLE, section_name};
use crate::rules::{Relocation, Rules};

/// The allowed sections at [`NOT_PLACED`] and above. Initialisers and thread-local storage lie there too, but are
/// refused.
const KNOWN_META: [&str; 8] =
    [".farjump", ".note.gnu.property", ".dynsym", ".dynstr", ".gnu.hash", ".hash", ".rela.dyn", ".dynamic"];
/// Sections of span 1 that linkers mark writable because a dynamic linker would patch them.
const PATCHED: [&str; 3] = [".relro", ".got", ".got.plt"];

/// An image, and facts about it.
#[derive(Debug)]
pub(crate) struct Extracted {
    pub(crate) image: Vec<u8>,
    pub(crate) sizes: Sizes,
    /// Names of the imports, each once.
    pub(crate) imports: Vec<String>,
    /// Sonames of the libraries that define some of the imports, each once.
    pub(crate) wanted: Vec<String>,
    /// True if the payload is the arguments unchanged: the payload routines are farjump's.
    pub(crate) payload_is_args: bool,
    /// log2 of the alignment that the payload needs, or 0 for the default.
    pub(crate) payload_align_log2: u8,
    /// The signature that the author's objects state.
    pub(crate) signature: Option<Signature>,
}

/// An image's requirements for a CPU.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Needs<'a> {
    /// The least level.
    pub(crate) level: Level,
    /// The features, instead of a level; empty for an image that has a level.
    pub(crate) features: &'a [String],
}

/// Makes the image of `name` from the linker's output. `find_wanted` returns the libraries that define the
/// imports.
///
/// # Errors
/// Contents that an image cannot have, without their site; and the errors of `find_wanted`.
pub(crate) fn extract(
    bytes: &[u8],
    name: &str,
    needs: Needs<'_>,
    rules: &Rules,
    find_wanted: impl FnOnce(&[String]) -> Result<Vec<String>, BuildError>,
) -> Result<Extracted, BuildError> {
    let elf = Elf::parse(bytes).map_err(|error| BuildError::Malformed {
        object: "the linked image".into(),
        problem: error.to_string(),
    })?;
    let linked = LinkedElf { elf, name, rules };
    let mut sections = linked.sections()?;
    let patches = linked.patches()?;
    linked.trim_got(&mut sections, &patches);
    if !sections.iter().any(|section| section.code) {
        return Err(BuildError::Empty { name: name.to_owned() });
    }
    let entry = linked.entry(&sections)?;

    let (mut span1, _) = linked.contents(&sections, 0);
    let (mut data, span2_len) = linked.contents(&sections, SPAN_DISTANCE);
    let (mut imports, mut relatives) = (Vec::new(), Vec::new());
    for patch in &patches {
        let site = linked.site(patch)?;
        match site {
            Place::Span1(offset) => blank(&mut span1, offset),
            Place::Span2(offset) => blank(&mut data, offset),
        }
        match &patch.word {
            Word::Import { name, addend, weak } => {
                imports.push(Import { site, name, addend: *addend, weak: *weak });
            }
            Word::Inside(address) => {
                let to = linked.place(*address, span1.len() as u64, span2_len, patch.address)?;
                relatives.push(Relative { site, to });
            }
        }
    }
    let mut names: Vec<String> = imports.iter().map(|import| import.name.to_owned()).collect();
    names.sort();
    names.dedup();
    let mut wanted = find_wanted(&names)?;
    wanted.sort();
    wanted.dedup();
    let align = sections.iter().map(|section| section.align.max(1)).max().unwrap_or(1);
    let payload_align_log2 = linked.payload_align_log2()?;
    let parts = ImageParts {
        machine: rules.machine,
        level: needs.level,
        features: needs.features.iter().map(String::as_str).collect(),
        landing_pads: linked.has_landing_pads()?,
        align_log2: (align.next_power_of_two().trailing_zeros() as u8)
            .max(rules.min_align_log2)
            .max(code_align_log2(rules.machine, &span1)),
        payload_align_log2,
        span1: &span1,
        entry,
        data: &data,
        bss_len: (span2_len - data.len() as u64) as u32,
        imports,
        relatives,
        wanted: wanted.iter().map(String::as_str).collect(),
    };
    Ok(Extracted {
        image: parts.encode()?,
        sizes: sizes(&sections, &data, span2_len),
        imports: names,
        wanted,
        payload_is_args: linked.symbol(&format!("{name}{COPY_ARGS}")).is_some(),
        payload_align_log2,
        signature: linked.signature()?,
    })
}

pub(crate) struct LinkedElf<'a> {
    pub(crate) elf: Elf<'a>,
    pub(crate) name: &'a str,
    pub(crate) rules: &'a Rules,
}

/// A section that travels.
struct Section<'a> {
    name: String,
    address: u64,
    len: u64,
    align: u64,
    code: bool,
    /// `None` for zeroes, which take no space in the file.
    bytes: Option<&'a [u8]>,
}

impl Section<'_> {
    fn end(&self) -> u64 {
        self.address + self.len
    }
}

/// A word of the image whose value depends on the address of the placed image.
struct Patch {
    address: u64,
    word: Word,
}

enum Word {
    Import { name: String, addend: i64, weak: bool },
    Inside(u64),
}

impl<'a> LinkedElf<'a> {
    /// The sections that travel. Checks those that do not.
    fn sections(&self) -> Result<Vec<Section<'a>>, BuildError> {
        let mut travel = Vec::new();
        for (index, header) in self.elf.elf_section_table().enumerate() {
            let (flags, len) = (header.sh_flags(LITTLE), header.sh_size(LITTLE));
            if !flags.contains(elf::SHF_ALLOC) || len == 0 {
                continue;
            }
            let (name, address) = (section_name(&self.elf, index), header.sh_addr(LITTLE));
            let code = flags.contains(elf::SHF_EXECINSTR);
            let writable = flags.contains(elf::SHF_WRITE) && !PATCHED.contains(&&*name);
            if flags.contains(elf::SHF_TLS) {
                return Err(BuildError::ThreadLocal { site: None, symbol: self.thread_local() });
            }
            match name.as_str() {
                ".init_array" | ".fini_array" => {
                    return Err(BuildError::Constructor { site: None, symbol: name, cause: None });
                }
                known if address >= NOT_PLACED && KNOWN_META.contains(&known) => continue,
                _ => {}
            }
            if address >= NOT_PLACED
                || (address < SPAN_DISTANCE && writable)
                || (address >= SPAN_DISTANCE && code)
            {
                return Err(BuildError::Section { site: None, section: name });
            }
            let zeroes = header.sh_type(LITTLE) == elf::SHT_NOBITS;
            let bytes =
                if zeroes { None } else { Some(header.data(LITTLE, self.elf.data()).map_err(malformed)?) };
            travel.push(Section { name, address, len, align: header.sh_addralign(LITTLE), code, bytes });
        }
        Ok(travel)
    }

    /// The patches that the dynamic relocations require.
    fn patches(&self) -> Result<Vec<Patch>, BuildError> {
        let mut patches = Vec::new();
        for (index, header) in self.elf.elf_section_table().enumerate() {
            if !header.sh_flags(LITTLE).contains(elf::SHF_ALLOC) || header.sh_size(LITTLE) == 0 {
                continue;
            }
            let kind = header.sh_type(LITTLE);
            if kind == elf::SHT_REL || kind == elf::SHT_RELR {
                return Err(BuildError::Section { site: None, section: section_name(&self.elf, index) });
            }
            let Some((relocations, _)) = header.rela(LITTLE, self.elf.data()).map_err(malformed)? else {
                continue;
            };
            for relocation in relocations {
                patches.extend(self.patch(relocation)?);
            }
        }
        Ok(patches)
    }

    fn patch(&self, relocation: &elf::Rela64<object::LittleEndian>) -> Result<Option<Patch>, BuildError> {
        let address = relocation.r_offset.get(LITTLE);
        let addend = relocation.r_addend.get(LITTLE);
        let number = relocation.r_type(LITTLE, false);
        let index = SymbolIndex(relocation.r_sym(LITTLE, false) as usize);
        let symbols = self.elf.elf_dynamic_symbol_table();
        let symbol = if index.0 == 0 { None } else { Some(symbols.symbol(index).map_err(malformed)?) };
        let symbol_name = || match symbol {
            Some(symbol) => {
                String::from_utf8_lossy(symbols.symbol_name(LITTLE, symbol).unwrap_or(b"?")).into_owned()
            }
            None => self.symbol_at(address),
        };
        let kind = self.rules.relocation(number);
        let word = match (kind, symbol) {
            (Some(Relocation::Nothing), _) => return Ok(None),
            (Some(Relocation::Relative), _) => Word::Inside(addend as u64),
            (Some(kind @ (Relocation::Slot | Relocation::Address)), Some(symbol)) => {
                let addend = if kind == Relocation::Slot { 0 } else { addend };
                if symbol.is_undefined(LITTLE) {
                    Word::Import { name: symbol_name(), addend, weak: symbol.is_weak() }
                } else {
                    Word::Inside(symbol.st_value(LITTLE).wrapping_add_signed(addend))
                }
            }
            (Some(Relocation::ThreadLocal), _) => {
                let symbol = if symbol.is_some() { symbol_name() } else { self.thread_local() };
                return Err(BuildError::ThreadLocal { site: None, symbol });
            }
            (Some(Relocation::Indirect), _) => {
                return Err(BuildError::Indirect { site: None, symbol: self.symbol_at(addend as u64) });
            }
            (Some(Relocation::Copy), _) => {
                return Err(BuildError::Copy { site: None, symbol: symbol_name() });
            }
            (Some(Relocation::Slot | Relocation::Address) | None, _) => {
                let relocation = self.rules.relocation_name(number);
                return Err(BuildError::Relocation { site: None, symbol: symbol_name(), relocation });
            }
        };
        if let Word::Import { name, .. } = &word
            && unwinds(name)
        {
            return Err(BuildError::Unwinding { site: None, symbol: name.clone() });
        }
        Ok(Some(Patch { address, word }))
    }

    /// Removes `.got.plt` if nothing in it is patched: then it holds only values for the dynamic linker.
    fn trim_got(&self, sections: &mut Vec<Section<'a>>, patches: &[Patch]) {
        sections.retain(|section| {
            section.name != ".got.plt"
                || patches.iter().any(|patch| (section.address..section.end()).contains(&patch.address))
        });
    }

    /// Offset of `NAME_main` in span 1.
    fn entry(&self, sections: &[Section<'_>]) -> Result<u32, BuildError> {
        let missing = || BuildError::Empty { name: self.name.to_owned() };
        let main = self.symbol(&format!("{}_main", self.name)).ok_or_else(missing)?;
        let address = main.st_value(LITTLE);
        if main.st_type() == elf::STT_GNU_IFUNC {
            return Err(BuildError::Indirect { site: None, symbol: format!("{}_main", self.name) });
        }
        let in_code =
            |section: &Section<'_>| section.code && (section.address..section.end()).contains(&address);
        if !sections.iter().any(in_code) {
            return Err(BuildError::MainIsNoCode { site: None, name: self.name.to_owned() });
        }
        Ok(address as u32)
    }

    /// The bytes of the span at `start`, without the trailing zeroes of a bss, and the length of the span
    /// including them.
    fn contents(&self, sections: &[Section<'_>], start: u64) -> (Vec<u8>, u64) {
        let mine = |section: &&Section<'_>| (section.address >= SPAN_DISTANCE) == (start >= SPAN_DISTANCE);
        let mut bytes = Vec::new();
        let mut end = start;
        for section in sections.iter().filter(mine) {
            end = end.max(section.end());
            let Some(contents) = section.bytes else { continue };
            let offset = (section.address - start) as usize;
            if bytes.len() < offset + contents.len() {
                bytes.resize(offset + contents.len(), 0);
            }
            bytes[offset..offset + contents.len()].copy_from_slice(contents);
            // Link-time addresses for a dynamic linker.
            let header = match section.name.as_str() {
                ".got.plt" => self.rules.got_plt_header as usize,
                ".got" if self.starts_with_dynamic(contents) => 8,
                _ => 0,
            };
            bytes[offset..offset + contents.len().min(header)].fill(0);
        }
        if start < SPAN_DISTANCE {
            bytes.resize((end - start) as usize, 0);
        }
        (bytes, end - start)
    }

    /// Returns whether a section starts with the address of the dynamic section, as GOTs of some machines do.
    fn starts_with_dynamic(&self, contents: &[u8]) -> bool {
        let sections = self.elf.elf_section_table();
        let dynamic = sections.iter().find(|section| section.sh_type(LITTLE) == elf::SHT_DYNAMIC);
        let address = dynamic.map(|section| section.sh_addr(LITTLE).to_le_bytes());
        address.is_some_and(|address| contents.starts_with(&address))
    }

    fn site(&self, patch: &Patch) -> Result<Place, BuildError> {
        let address = patch.address;
        if let Word::Import { name, .. } = &patch.word {
            let symbol = name.clone();
            // At any alignment: the place of an instruction must not decide whether such code works.
            if self.is_code(address) {
                return Err(BuildError::AddressInCode { site: None, symbol });
            }
            if !address.is_multiple_of(8) {
                return Err(BuildError::Unaligned { site: None, symbol });
            }
        }
        if address >= NOT_PLACED {
            let pointee = Pointee::Metadata { address };
            return Err(BuildError::Outside { site: None, symbol: self.symbol_at(address), pointee });
        }
        Ok(place(address))
    }

    /// The location of an address inside the image, or one past the end of a span, as C allows for pointers.
    fn place(&self, address: u64, span1_len: u64, span2_len: u64, from: u64) -> Result<Place, BuildError> {
        let inside = address <= span1_len
            || (SPAN_DISTANCE..=SPAN_DISTANCE + span2_len).contains(&address) && span2_len != 0;
        if inside {
            return Ok(place(address));
        }
        let pointee = Pointee::Symbol(self.symbol_at(address));
        Err(BuildError::Outside { site: None, symbol: self.symbol_at(from), pointee })
    }

    fn is_code(&self, address: u64) -> bool {
        self.elf.elf_section_table().iter().any(|header| {
            let start = header.sh_addr(LITTLE);
            header.sh_flags(LITTLE).contains(elf::SHF_ALLOC | elf::SHF_EXECINSTR)
                && (start..start + header.sh_size(LITTLE)).contains(&address)
        })
    }
}

fn place(address: u64) -> Place {
    if address < SPAN_DISTANCE {
        Place::Span1(address as u32)
    } else {
        Place::Span2((address - SPAN_DISTANCE) as u32)
    }
}

/// Fills a site with zeroes: linkers leave different values there.
fn blank(span: &mut [u8], offset: u32) {
    if let Some(site) = span.get_mut(offset as usize..offset as usize + 8) {
        site.fill(0);
    }
}

/// Returns whether C++ and Rust use an import to unwind, or to destroy statics at exit.
fn unwinds(import: &str) -> bool {
    let abi = import.strip_prefix("__cxa_").unwrap_or("");
    import.starts_with("_Unwind_")
        || import.contains("_personality")
        || ["throw", "rethrow", "begin_catch", "end_catch", "atexit", "thread_atexit"].contains(&abi)
        || abi.contains("exception")
}

fn sizes(sections: &[Section<'_>], data: &[u8], span2_len: u64) -> Sizes {
    let sum = |wanted: &dyn Fn(&Section<'_>) -> bool| {
        sections
            .iter()
            .filter(|section| section.address < SPAN_DISTANCE && wanted(section))
            .map(|it| it.len)
            .sum::<u64>()
    };
    let got = |section: &Section<'_>| section.name.starts_with(".got");
    Sizes {
        text: sum(&|section| section.code) as u32,
        rodata: sum(&|section| !section.code && !got(section)) as u32,
        got: sum(&got) as u32,
        data: data.len() as u32,
        bss: (span2_len - data.len() as u64) as u32,
    }
}

pub(crate) fn malformed(error: object::Error) -> BuildError {
    BuildError::Malformed { object: "the linked image".into(), problem: error.to_string() }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::process::Command;

    use farjump_tools::all_work;

    use super::*;

    /// A shared object has no such relocation, so the test links a program.
    #[test]
    fn copy_relocations_are_refused_by_name() {
        if !all_work(&["ld.bfd"]) {
            return;
        }
        let folder = tempfile::tempdir().unwrap();
        let run = |tool: &str, arguments: &[&str]| {
            let output = Command::new(tool).args(arguments).current_dir(folder.path()).output().unwrap();
            assert!(output.status.success(), "{tool}: {}", String::from_utf8_lossy(&output.stderr));
        };
        let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
        write("library.c", "int shared_value = 5;");
        write("t.c", "extern int shared_value; void t_main(void *p, long n, int *a) { *a = shared_value; }");
        write("image.ld", include_str!("../link/image.ld"));
        run("cc", &["-shared", "-fPIC", "library.c", "-o", "library.so"]);
        run("cc", &["-c", "-fno-pic", "-fno-asynchronous-unwind-tables", "t.c"]);
        run("ld.bfd", &["-no-pie", "-T", "image.ld", "-e", "t_main", "t.o", "library.so", "-o", "t.elf"]);
        let linked = fs::read(folder.path().join("t.elf")).unwrap();
        let rules = Rules::native().unwrap();
        let needs = Needs { level: Level::BASELINE, features: &[] };
        let error = extract(&linked, "t", needs, rules, |_| Ok(vec![])).unwrap_err();
        assert!(matches!(&error, BuildError::Copy { symbol, .. } if symbol == "shared_value"), "{error}");
        assert!(error.to_string().contains("COPY relocation"), "{error}");
    }
}
