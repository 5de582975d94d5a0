//! The objects of a link: the symbols they define, and those that the injected function reaches through them.
//!
//! The linker decides the contents of an image. farjump's own linker takes its objects from here; for others this
//! module only explains errors. After a refusal of the linker or of its image, [`Objects::uses`] and
//! [`Objects::initialisers`] find the object, section and symbol.

mod checks;
pub(crate) mod edit_symbols;
pub(crate) mod locate_symbol;

use std::collections::{HashMap, HashSet, VecDeque};
use std::fs;
use std::path::{Path, PathBuf};

use object::LittleEndian;
use object::elf;
use object::read::archive::ArchiveFile;
use object::read::elf::{ElfFile64, FileHeader, SectionHeader, Sym};
use object::read::{SectionIndex, SymbolIndex};

use farjump_core::bitcode::is_llvm_module;
use farjump_core::image::Machine;

use crate::error::{BuildError, Site};
use crate::rules::{Rules, is_absolute};

pub(crate) type Elf<'a> = ElfFile64<'a, LittleEndian>;
pub(crate) const LITTLE: LittleEndian = LittleEndian;

/// A file to be linked.
#[derive(Clone, Debug)]
pub(crate) struct Linkable {
    pub(crate) path: PathBuf,
    /// Its name in messages.
    pub(crate) label: String,
    /// True for an archive, which contributes only needed members.
    pub(crate) archive: bool,
}

/// All objects of a link, including archive members.
#[derive(Debug)]
pub(crate) struct Objects {
    members: Vec<Member>,
    /// Labels of archive members that hold a compiler's intermediate code.
    intermediate: Vec<String>,
}

/// An object.
#[derive(Debug)]
pub(crate) struct Member {
    label: String,
    lazy: bool,
    bytes: Vec<u8>,
}

/// The inputs of the link that makes an image.
#[derive(Clone, Copy)]
pub(crate) struct Inputs<'a> {
    pub(crate) files: &'a [Linkable],
    /// The same, as read.
    pub(crate) objects: &'a Objects,
    /// NAME of the routines.
    pub(crate) name: &'a str,
    /// The compiler's support routines.
    pub(crate) runtime: Option<&'a Path>,
    pub(crate) rules: &'a Rules,
    /// A folder for intermediate files.
    pub(crate) folder: &'a Path,
}

/// A symbol that one of the objects defines for the others.
#[derive(Clone, Debug)]
pub(crate) struct Definition {
    pub(crate) name: String,
    pub(crate) object: String,
    /// Whether a shared library cannot export it.
    pub(crate) hidden: bool,
}

/// A symbol that reached code refers to, and the location of the reference.
#[derive(Clone, Debug)]
pub(crate) struct Use {
    pub(crate) site: Site,
    pub(crate) symbol: String,
    pub(crate) thread_local: bool,
    /// An ELF indirect function (`STT_GNU_IFUNC`).
    pub(crate) indirect: bool,
    /// The reference is an absolute address of 64 bits.
    pub(crate) absolute: bool,
}

impl Objects {
    /// Reads all of `files`.
    ///
    /// # Errors
    /// Files that cannot be read or are no objects, objects for another machine, objects with a compiler's
    /// intermediate code instead of machine code.
    pub(crate) fn read(files: &[Linkable], rules: &Rules) -> Result<Objects, BuildError> {
        let mut objects = Objects { members: Vec::new(), intermediate: Vec::new() };
        for file in files {
            let bytes = read(&file.path)?;
            if file.archive {
                objects.add_archive(file, &bytes, rules)?;
            } else {
                let member = Member { label: file.label.clone(), lazy: false, bytes };
                if is_intermediate(&member.bytes) {
                    return Err(BuildError::Intermediate { object: member.label });
                }
                member.check(rules)?;
                objects.members.push(member);
            }
        }
        Ok(objects)
    }

    /// Takes objects that are in memory, each with its name in messages.
    ///
    /// # Errors
    /// As [`Objects::read`].
    pub(crate) fn of(objects: Vec<(String, Vec<u8>)>, rules: &Rules) -> Result<Objects, BuildError> {
        let members = objects.into_iter().map(|(label, bytes)| Member { label, lazy: false, bytes });
        let members: Vec<_> =
            members.map(|member| member.check(rules).map(|()| member)).collect::<Result<_, _>>()?;
        Ok(Objects { members, intermediate: Vec::new() })
    }

    fn add_archive(&mut self, file: &Linkable, bytes: &[u8], rules: &Rules) -> Result<(), BuildError> {
        let malformed = |error: object::Error| BuildError::Malformed {
            object: file.label.clone(),
            problem: error.to_string(),
        };
        let archive = ArchiveFile::parse(bytes).map_err(malformed)?;
        for member in archive.members() {
            let member = member.map_err(malformed)?;
            let name = String::from_utf8_lossy(member.name()).into_owned();
            let bytes = if member.is_thin() {
                read(&file.path.parent().unwrap_or(Path::new("")).join(&name))?
            } else {
                member.data(bytes).map_err(malformed)?.to_vec()
            };
            let label = format!("{}({name})", file.label);
            if is_intermediate(&bytes) {
                self.intermediate.push(label);
            } else if bytes.starts_with(&elf::ELFMAG) {
                let member = Member { label, lazy: true, bytes };
                member.check(rules)?;
                self.members.push(member);
            }
        }
        Ok(())
    }

    /// An archive member that holds a compiler's intermediate code, whose definitions are not visible here.
    pub(crate) fn intermediate(&self) -> Option<&str> {
        self.intermediate.first().map(String::as_str)
    }

    /// Every global symbol that is defined, in the order of the objects.
    pub(crate) fn definitions(&self) -> Vec<Definition> {
        let mut found = Vec::new();
        for (member, elf) in self.parsed() {
            for symbol in elf.elf_symbol_table().iter() {
                if symbol.is_local() || symbol.is_undefined(LITTLE) {
                    continue;
                }
                let visibility = symbol.st_visibility();
                found.push(Definition {
                    name: symbol_name(&elf, symbol),
                    object: member.label.clone(),
                    hidden: visibility == elf::STV_HIDDEN || visibility == elf::STV_INTERNAL,
                });
            }
        }
        found
    }

    /// The symbols referred to by the code and data that `root` reaches, nearest first.
    pub(crate) fn uses(&self, root: &str) -> Vec<Use> {
        let parsed: Vec<_> = self.parsed().collect();
        let defined = definitions_by_name(&parsed);
        let mut uses = Vec::new();
        let mut seen = HashSet::new();
        let mut queue = VecDeque::new();
        let mut visit = |queue: &mut VecDeque<(usize, SectionIndex)>, at| {
            if seen.insert(at) {
                queue.push_back(at);
            }
        };
        if let Some(&(index, symbol)) = defined.get(root.as_bytes())
            && let Some(section) = section_of(&parsed[index].1, symbol)
        {
            visit(&mut queue, (index, section));
        }
        while let Some((index, section)) = queue.pop_front() {
            let (member, elf) = &parsed[index];
            let site = Site { object: member.label.clone(), section: section_name(elf, section) };
            for Reference { symbol: symbol_index, absolute, .. } in relocations(elf, section) {
                let Ok(symbol) = elf.elf_symbol_table().symbol(symbol_index) else { continue };
                let name = symbol_name(elf, symbol);
                let (home, definition) = if symbol.is_undefined(LITTLE) {
                    defined.get(name.as_bytes()).copied().unwrap_or((index, symbol_index))
                } else {
                    (index, symbol_index)
                };
                let kind = parsed[home].1.elf_symbol_table().symbol(definition).map(Sym::st_type);
                uses.push(Use {
                    site: site.clone(),
                    symbol: name,
                    thread_local: symbol.st_type() == elf::STT_TLS || kind == Ok(elf::STT_TLS),
                    indirect: kind == Ok(elf::STT_GNU_IFUNC),
                    absolute,
                });
                if let Some(section) = section_of(&parsed[home].1, definition) {
                    visit(&mut queue, (home, section));
                }
            }
        }
        uses
    }

    /// The location where a symbol is defined, even if only for its own object.
    pub(crate) fn home(&self, symbol: &str) -> Option<Site> {
        self.parsed().find_map(|(member, elf)| {
            let symbols = elf.elf_symbol_table();
            let (index, _) = symbols.enumerate().find(|(_, candidate)| {
                candidate.is_definition(LITTLE, symbols.strings())
                    && symbols.symbol_name(LITTLE, candidate) == Ok(symbol.as_bytes())
            })?;
            let section = section_of(&elf, index)?;
            Some(Site { object: member.label.clone(), section: section_name(&elf, section) })
        })
    }

    /// Names of the symbols that this object needs from others.
    pub(crate) fn undefined(&self, object: &str) -> Vec<String> {
        let parsed = self.parsed().filter(|(member, _)| member.label == object);
        let names = parsed.flat_map(|(_, elf)| {
            let symbols = elf.elf_symbol_table();
            let undefined = symbols.iter().filter(|symbol| symbol.is_undefined(LITTLE));
            undefined.map(|symbol| symbol_name(&elf, symbol)).collect::<Vec<_>>()
        });
        names.collect()
    }

    /// The first object that has a section of this name.
    pub(crate) fn section(&self, name: &str) -> Option<Site> {
        let has = |elf: &Elf<'_>| {
            elf.elf_section_table().enumerate().any(|(index, _)| section_name(elf, index) == name)
        };
        let (member, _) = self.parsed().find(|(_, elf)| has(elf))?;
        Some(Site { object: member.label.clone(), section: name.to_owned() })
    }

    /// The functions that linked objects register to run before and after everything else, and their
    /// locations.
    pub(crate) fn initialisers(&self, root: &str) -> Vec<(Site, String)> {
        let parsed: Vec<_> = self.parsed().collect();
        let mut found = Vec::new();
        for index in linked(&parsed, root) {
            let (member, elf) = &parsed[index];
            for (section, header) in elf.elf_section_table().enumerate() {
                let name = section_name(elf, section);
                if !is_initialiser(&name) || header.sh_size(LITTLE) == 0 {
                    continue;
                }
                for Reference { symbol, addend, .. } in relocations(elf, section) {
                    let site = Site { object: member.label.clone(), section: name.clone() };
                    found.push((site, function_at(elf, symbol, addend)));
                }
            }
        }
        found
    }

    /// Each object with its contents.
    pub(crate) fn parsed(&self) -> impl Iterator<Item = (&Member, Elf<'_>)> {
        // All were parsed when they were read.
        self.members.iter().filter_map(|member| Some((member, Elf::parse(&*member.bytes).ok()?)))
    }
}

impl Member {
    /// Its name in messages.
    pub(crate) fn label(&self) -> &str {
        &self.label
    }

    fn check(&self, rules: &Rules) -> Result<(), BuildError> {
        let malformed =
            |problem: &str| BuildError::Malformed { object: self.label.clone(), problem: problem.to_owned() };
        let Some(&[low, high]) = self.bytes.get(18..20) else {
            return Err(malformed("it is too short for an ELF object"));
        };
        let machine = elf::Machine(u16::from_le_bytes([low, high]));
        if self.bytes[4] != elf::ELFCLASS64.0 || !rules.is_machine(machine) {
            return Err(BuildError::Machine {
                object: self.label.clone(),
                found: describe_machine(&self.bytes, machine),
                expected: rules.machine,
            });
        }
        let elf = Elf::parse(&*self.bytes).map_err(|error| malformed(&error.to_string()))?;
        if elf.elf_header().e_type(LITTLE) != elf::ET_REL {
            return Err(malformed("it is a linked program or shared library, not an object"));
        }
        Ok(())
    }
}

fn describe_machine(bytes: &[u8], machine: elf::Machine) -> String {
    let class = if bytes[4] == elf::ELFCLASS64.0 { "64-bit" } else { "32-bit" };
    match machine.name() {
        Some(name) => format!("{class} {}", name.trim_start_matches("EM_")),
        None => format!("{class} machine {}", machine.0),
    }
}

/// The machine of an object; `None` if it is no ELF file.
pub(crate) fn machine_of(object: &[u8]) -> Option<Machine> {
    let number = object.starts_with(&elf::ELFMAG).then(|| object.get(18..20)).flatten()?;
    Some(Machine(u16::from_le_bytes([number[0], number[1]])))
}

/// The machine of an archive's first ELF member; `None` if it has none, or is damaged.
pub(crate) fn machine_of_archive(path: &Path, bytes: &[u8]) -> Option<Machine> {
    let archive = ArchiveFile::parse(bytes).ok()?;
    archive.members().filter_map(Result::ok).find_map(|member| {
        if member.is_thin() {
            let name = String::from_utf8_lossy(member.name()).into_owned();
            return machine_of(&read(&path.parent().unwrap_or(Path::new("")).join(&name)).ok()?);
        }
        machine_of(member.data(bytes).ok()?)
    })
}

pub(crate) fn read(path: &Path) -> Result<Vec<u8>, BuildError> {
    fs::read(path).map_err(|source| BuildError::Read { path: path.to_owned(), source })
}

/// LLVM bitcode, bare or wrapped, or a GCC object with intermediate code and no machine code.
fn is_intermediate(bytes: &[u8]) -> bool {
    if is_llvm_module(bytes) {
        return true;
    }
    let Ok(elf) = Elf::parse(bytes) else { return false };
    let sections = elf.elf_section_table();
    let machine_code = sections
        .iter()
        .any(|section| section.sh_flags(LITTLE).contains(elf::SHF_EXECINSTR) && section.sh_size(LITTLE) != 0);
    !machine_code && sections.enumerate().any(|(index, _)| section_name(&elf, index).starts_with(".gnu.lto_"))
}

/// Returns whether a section holds addresses that the startup code or the dynamic linker would call; the script has the
/// same list.
fn is_initialiser(section: &str) -> bool {
    [".preinit_array", ".init_array", ".fini_array", ".ctors", ".dtors"]
        .iter()
        .any(|kind| section.strip_prefix(kind).is_some_and(|rest| rest.is_empty() || rest.starts_with('.')))
}

pub(crate) fn symbol_name(elf: &Elf<'_>, symbol: &elf::Sym64<LittleEndian>) -> String {
    if symbol.st_type() == elf::STT_SECTION {
        return section_name(elf, SectionIndex(usize::from(symbol.st_shndx(LITTLE).0)));
    }
    let name = elf.elf_symbol_table().symbol_name(LITTLE, symbol).unwrap_or(b"?");
    String::from_utf8_lossy(name).into_owned()
}

pub(crate) fn section_name(elf: &Elf<'_>, index: SectionIndex) -> String {
    let sections = elf.elf_section_table();
    let name = sections.section(index).and_then(|section| sections.section_name(LITTLE, section));
    String::from_utf8_lossy(name.unwrap_or(b"?")).into_owned()
}

fn section_of(elf: &Elf<'_>, symbol: SymbolIndex) -> Option<SectionIndex> {
    let symbols = elf.elf_symbol_table();
    symbols.symbol_section(LITTLE, symbols.symbol(symbol).ok()?, symbol).ok()?
}

/// A relocation of a section.
struct Reference {
    symbol: SymbolIndex,
    addend: i64,
    /// It stands for an absolute address of 64 bits.
    absolute: bool,
}

/// The relocations of a section.
fn relocations(elf: &Elf<'_>, section: SectionIndex) -> Vec<Reference> {
    let Some(index) = elf.elf_relocation_sections().get(section) else { return Vec::new() };
    let rela = elf.elf_section_table().section(index).and_then(|header| header.rela(LITTLE, elf.data()));
    let Ok(Some((entries, _))) = rela else { return Vec::new() };
    let machine = Machine(elf.elf_header().e_machine(LITTLE).0);
    entries
        .iter()
        .map(|entry| Reference {
            symbol: SymbolIndex(entry.r_sym(LITTLE, false) as usize),
            addend: entry.r_addend.get(LITTLE),
            absolute: is_absolute(machine, entry.r_type(LITTLE, false)),
        })
        .collect()
}

/// The function that a relocation against its own symbol, or its section's, points at.
fn function_at(elf: &Elf<'_>, symbol: SymbolIndex, addend: i64) -> String {
    let symbols = elf.elf_symbol_table();
    let Ok(entry) = symbols.symbol(symbol) else { return "?".to_owned() };
    if entry.st_type() != elf::STT_SECTION {
        return symbol_name(elf, entry);
    }
    let function = symbols.iter().find(|candidate| {
        candidate.st_type() == elf::STT_FUNC
            && candidate.st_shndx(LITTLE) == entry.st_shndx(LITTLE)
            && i64::try_from(candidate.st_value(LITTLE)) == Ok(addend)
    });
    symbol_name(elf, function.unwrap_or(entry))
}

type Parsed<'a> = [(&'a Member, Elf<'a>)];
/// True if the definition is in an archive, and true if it is weak: smaller wins.
type Rank = (bool, bool);

/// The definition of each name: explicit objects before archive members, strong before weak, the first before
/// the others.
fn definitions_by_name<'a>(parsed: &Parsed<'a>) -> HashMap<&'a [u8], (usize, SymbolIndex)> {
    let mut best: HashMap<&[u8], (Rank, (usize, SymbolIndex))> = HashMap::new();
    for (index, (member, elf)) in parsed.iter().enumerate() {
        let symbols = elf.elf_symbol_table();
        for (number, symbol) in symbols.enumerate() {
            if symbol.is_local() || symbol.is_undefined(LITTLE) {
                continue;
            }
            let Ok(name) = symbols.symbol_name(LITTLE, symbol) else { continue };
            let rank = (member.lazy, symbol.is_weak());
            let entry = best.entry(name).or_insert((rank, (index, number)));
            if rank < entry.0 {
                *entry = (rank, (index, number));
            }
        }
    }
    best.into_iter().map(|(name, (_, definition))| (name, definition)).collect()
}

/// The objects that a linker takes: the explicit ones, and the archive members that define symbols needed by
/// these and `root`.
pub(crate) fn linked(parsed: &[(&Member, Elf<'_>)], root: &str) -> Vec<usize> {
    let defined = definitions_by_name(parsed);
    let mut taken: Vec<usize> = (0..parsed.len()).filter(|&index| !parsed[index].0.lazy).collect();
    if let Some(&(index, _)) = defined.get(root.as_bytes())
        && !taken.contains(&index)
    {
        taken.push(index);
    }
    let mut next = 0;
    while let Some(&index) = taken.get(next) {
        next += 1;
        let symbols = parsed[index].1.elf_symbol_table();
        for symbol in symbols.iter().filter(|symbol| symbol.is_undefined(LITTLE) && !symbol.is_weak()) {
            let name = symbols.symbol_name(LITTLE, symbol).unwrap_or(b"");
            if let Some(&(home, _)) = defined.get(name)
                && !taken.contains(&home)
            {
                taken.push(home);
            }
        }
    }
    taken
}
