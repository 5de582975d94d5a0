//! The objects of a link: their choice, the meaning of their symbols, and the sections that the root reaches.

use std::collections::{HashMap, HashSet};

use object::elf;
use object::read::elf::{Rela, SectionHeader, Sym};
use object::read::{SectionIndex, SymbolIndex};

use super::machines::Table;
use super::refused;
use crate::error::{BuildError, Site};
use crate::objects::{self, Elf, LITTLE, Member, section_name};

/// The name by which code finds the start of its GOT.
const GOT: &[u8] = b"_GLOBAL_OFFSET_TABLE_";
/// Sections that state facts about a function, without references to them.
const STATED: [&str; 3] = [".farjump.payload_align", ".farjump.copy_args", ".farjump.signature"];

/// A section of an object.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(super) struct Part {
    /// Its object's number.
    pub(super) object: usize,
    /// Its number there.
    pub(super) section: usize,
}

/// The meaning of a symbol.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum Found<'a> {
    /// The byte at an offset of a part.
    In(Part, u64),
    /// A variable that no object has initialised or placed, by its number.
    Common(usize),
    /// A symbol of the target.
    Import(&'a [u8]),
    /// The start of the GOT.
    Got,
    /// A number.
    Number(u64),
}

/// A variable that objects have in common (`SHN_COMMON`): each names its size, and the linker places it once.
#[derive(Clone, Copy, Debug)]
pub(super) struct Common<'a> {
    pub(super) name: &'a [u8],
    pub(super) len: u64,
    pub(super) align: u64,
}

/// The taken objects.
pub(super) struct Program<'a> {
    pub(super) objects: Vec<(&'a str, Elf<'a>)>,
    definitions: HashMap<&'a [u8], (usize, SymbolIndex)>,
    pub(super) commons: Vec<Common<'a>>,
    /// Names that at least one object requires.
    strong: HashSet<&'a [u8]>,
}

/// A relocation of a part.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    /// In its section, in bytes.
    pub(super) offset: u64,
    pub(super) number: elf::RelocationType,
    pub(super) symbol: SymbolIndex,
    pub(super) addend: i64,
}

impl<'a> Program<'a> {
    /// Takes the explicit objects among `members`, and the archive members that these and `root` need.
    ///
    /// # Errors
    /// Two objects that define the same symbol.
    pub(super) fn take(members: Vec<(&'a Member, Elf<'a>)>, root: &str) -> Result<Program<'a>, BuildError> {
        let taken: HashSet<usize> = objects::linked(&members, root).into_iter().collect();
        let taken = members.into_iter().enumerate().filter(|(index, _)| taken.contains(index));
        let objects: Vec<_> = taken.map(|(_, (member, elf))| (member.label(), elf)).collect();
        let mut program =
            Program { objects, definitions: HashMap::new(), commons: Vec::new(), strong: HashSet::new() };
        // The rank of each definition: smaller wins, and two of the first rank are one too many.
        let mut ranks: HashMap<&[u8], u8> = HashMap::new();
        let mut commons: HashMap<&[u8], Common<'_>> = HashMap::new();
        for (index, (label, elf)) in program.objects.iter().enumerate() {
            let symbols = elf.elf_symbol_table();
            for (number, symbol) in symbols.enumerate().filter(|(_, symbol)| !symbol.is_local()) {
                let name = symbols.symbol_name(LITTLE, symbol).map_err(|error| malformed(label, &error))?;
                if symbol.is_undefined(LITTLE) {
                    if !symbol.is_weak() {
                        program.strong.insert(name);
                    }
                    continue;
                }
                let is_common = symbol.st_shndx(LITTLE) == elf::SHN_COMMON;
                if is_common {
                    let (len, align) = (symbol.st_size(LITTLE), symbol.st_value(LITTLE).max(1));
                    let common = commons.entry(name).or_insert(Common { name, len, align });
                    (common.len, common.align) = (common.len.max(len), common.align.max(align));
                }
                // C++ makes variables of inline functions unique: each object has them, as weak ones.
                let many = symbol.is_weak() || symbol.st_bind() == elf::STB_GNU_UNIQUE;
                let rank = if is_common { 1 } else { 2 * u8::from(many) };
                match ranks.get(name) {
                    Some(0) if rank == 0 => {
                        let first = program.objects[program.definitions[name].0].0;
                        let name = String::from_utf8_lossy(name);
                        return Err(refused(format!("{first} and {label} both define {name}")));
                    }
                    Some(&known) if known <= rank => {}
                    _ => {
                        ranks.insert(name, rank);
                        program.definitions.insert(name, (index, number));
                    }
                }
            }
        }
        program.commons = commons.into_values().filter(|common| ranks.get(common.name) == Some(&1)).collect();
        program.commons.sort_unstable_by_key(|common| common.name);
        Ok(program)
    }

    /// Returns whether an import may be absent at the target: no object needs it.
    pub(super) fn is_weak(&self, import: &[u8]) -> bool {
        !self.strong.contains(import)
    }

    /// The meaning of a symbol of an object.
    ///
    /// # Errors
    /// Thread-local variables and indirect functions, which images cannot have; damaged objects.
    pub(super) fn find(&self, object: usize, symbol: SymbolIndex) -> Result<Found<'a>, BuildError> {
        if symbol.0 == 0 {
            return Ok(Found::Number(0));
        }
        let (label, elf) = &self.objects[object];
        let symbols = elf.elf_symbol_table();
        let entry = symbols.symbol(symbol).map_err(|error| malformed(label, &error))?;
        let name = symbols.symbol_name(LITTLE, entry).map_err(|error| malformed(label, &error))?;
        if entry.st_type() == elf::STT_TLS {
            return Err(BuildError::ThreadLocal { site: None, symbol: lossy(name) });
        }
        if entry.is_local() {
            return self.defined(object, symbol);
        }
        match self.definitions.get(name) {
            Some(&(home, definition)) => self.defined(home, definition),
            None if name == GOT => Ok(Found::Got),
            None => Ok(Found::Import(name)),
        }
    }

    /// The meaning of a symbol that its own object defines.
    ///
    /// # Errors
    /// As [`find`](Program::find).
    pub(super) fn defined(&self, object: usize, symbol: SymbolIndex) -> Result<Found<'a>, BuildError> {
        let (label, elf) = &self.objects[object];
        let symbols = elf.elf_symbol_table();
        let entry = symbols.symbol(symbol).map_err(|error| malformed(label, &error))?;
        let name = symbols.symbol_name(LITTLE, entry).map_err(|error| malformed(label, &error))?;
        match entry.st_type() {
            elf::STT_TLS => return Err(BuildError::ThreadLocal { site: None, symbol: lossy(name) }),
            elf::STT_GNU_IFUNC => return Err(BuildError::Indirect { site: None, symbol: lossy(name) }),
            _ => {}
        }
        let value = entry.st_value(LITTLE);
        match entry.st_shndx(LITTLE) {
            elf::SHN_ABS => return Ok(Found::Number(value)),
            elf::SHN_COMMON => {
                let number = self.commons.binary_search_by_key(&name, |common| common.name);
                return number.map(Found::Common).map_err(|_| lacks_section(label, name));
            }
            _ => {}
        }
        let home = symbols.symbol_section(LITTLE, entry, symbol).map_err(|error| malformed(label, &error))?;
        let section = home.ok_or_else(|| lacks_section(label, name))?.0;
        elf.elf_section_table().section(SectionIndex(section)).map_err(|error| malformed(label, &error))?;
        Ok(Found::In(Part { object, section }, value))
    }

    /// The sections that `root` reaches, and those that state facts, in the order of the objects.
    ///
    /// # Errors
    /// There is no `root`; and as [`find`](Program::find).
    pub(super) fn reached(&self, root: &str, table: &Table) -> Result<Vec<Part>, BuildError> {
        let missing = || refused(format!("no object defines {root}"));
        let &(object, symbol) = self.definitions.get(root.as_bytes()).ok_or_else(missing)?;
        let Found::In(first, _) = self.defined(object, symbol)? else { return Err(missing()) };
        let mut reached = HashSet::from([first]);
        let mut next = vec![first];
        for (object, (_, elf)) in self.objects.iter().enumerate() {
            for (section, _) in elf.elf_section_table().enumerate() {
                let part = Part { object, section: section.0 };
                if STATED.contains(&&*self.name(part)) && reached.insert(part) {
                    next.push(part);
                }
            }
        }
        while let Some(part) = next.pop() {
            for entry in self.relocations(part)? {
                if table.is_mark(entry.number) {
                    continue;
                }
                if let Found::In(to, _) = self.find(part.object, entry.symbol)?
                    && reached.insert(to)
                {
                    next.push(to);
                }
            }
        }
        let mut reached: Vec<_> = reached.into_iter().collect();
        reached.sort_unstable();
        Ok(reached)
    }

    pub(super) fn header(&self, part: Part) -> &'a elf::SectionHeader64<object::LittleEndian> {
        // A part is made of an index that its table has.
        let table = self.objects[part.object].1.elf_section_table();
        table.section(SectionIndex(part.section)).expect("a part is a section of its object")
    }

    /// Name of a section.
    pub(super) fn name(&self, part: Part) -> String {
        section_name(&self.objects[part.object].1, SectionIndex(part.section))
    }

    /// Object and section, for messages.
    pub(super) fn site(&self, part: Part) -> Site {
        Site { object: self.objects[part.object].0.to_owned(), section: self.name(part) }
    }

    /// Contents of a section; empty if it has none in the file.
    ///
    /// # Errors
    /// The object is damaged.
    pub(super) fn bytes(&self, part: Part) -> Result<&'a [u8], BuildError> {
        let (label, elf) = &self.objects[part.object];
        self.header(part).data(LITTLE, elf.data()).map_err(|error| malformed(label, &error))
    }

    /// The relocations of a section, by rising offsets.
    ///
    /// # Errors
    /// The object is damaged, for example by a relocation outside the section.
    pub(super) fn relocations(&self, part: Part) -> Result<Vec<Entry>, BuildError> {
        let (label, elf) = &self.objects[part.object];
        let error = |error| malformed(label, &error);
        let (sections, mut found) = (elf.elf_section_table(), Vec::new());
        let mut list = elf.elf_relocation_sections().get(SectionIndex(part.section));
        while let Some(index) = list {
            let header = sections.section(index).map_err(error)?;
            if header.sh_type(LITTLE) != elf::SHT_RELA {
                let section = section_name(elf, index);
                return Err(BuildError::Section { site: Some(self.site(part)), section });
            }
            if let Some((entries, _)) = header.rela(LITTLE, elf.data()).map_err(error)? {
                found.extend(entries.iter().map(|entry| Entry {
                    offset: entry.r_offset(LITTLE),
                    number: entry.r_type(LITTLE, false),
                    symbol: SymbolIndex(entry.r_sym(LITTLE, false) as usize),
                    addend: entry.r_addend(LITTLE),
                }));
            }
            list = elf.elf_relocation_sections().get(index);
        }
        // A stable sort: the order of several relocations at one offset is part of their meaning.
        found.sort_by_key(|entry| entry.offset);
        let len = self.header(part).sh_size(LITTLE);
        match found.last() {
            Some(last) if last.offset > len => Err(BuildError::Malformed {
                object: (*label).to_owned(),
                problem: format!("a relocation lies outside of {}", self.name(part)),
            }),
            _ => Ok(found),
        }
    }

    /// Name of the symbol of a relocation, for messages.
    pub(super) fn symbol_of(&self, part: Part, entry: &Entry) -> String {
        let elf = &self.objects[part.object].1;
        let symbol = elf.elf_symbol_table().symbol(entry.symbol);
        symbol.map_or_else(|_| "?".to_owned(), |symbol| objects::symbol_name(elf, symbol))
    }
}

fn lossy(name: &[u8]) -> String {
    String::from_utf8_lossy(name).into_owned()
}

fn lacks_section(object: &str, symbol: &[u8]) -> BuildError {
    let problem = format!("the symbol {} is in no section", lossy(symbol));
    BuildError::Malformed { object: object.to_owned(), problem }
}

pub(super) fn malformed(object: &str, error: &object::Error) -> BuildError {
    BuildError::Malformed { object: object.to_owned(), problem: error.to_string() }
}
