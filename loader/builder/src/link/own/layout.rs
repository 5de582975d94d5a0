//! The layout of the linked file: the sections of [`crate::link`]'s script, their parts, GOT slots and stubs.

use std::collections::HashMap;

use farjump_core::image::{Machine, SPAN_DISTANCE};
use farjump_loader::library::bundle::NOT_PLACED;
use object::elf;
use object::read::elf::SectionHeader;

use super::machines::{Table, Value};
use super::program::{Found, Part, Program};
use super::refused;
use super::shrink::Cuts;
use crate::error::BuildError;
use crate::objects::LITTLE;

/// The longest section that the linker accepts, in bytes: all sections are shorter than the distance of the spans.
const LONGEST: u64 = 1 << 27;

const TEXT: usize = 0;
pub(super) const STUBS: usize = 1;
const RODATA: usize = 2;
pub(super) const GOT: usize = 4;
const DATA: usize = 5;
pub(super) const BSS: usize = 6;
const STATED: usize = 7;
/// The sections in their order, and the names of those that they are made of: the name itself, or that with a dot and
/// more.
const OUTPUTS: [(&str, &[&str]); 8] = [
    (".text", &[".text", ".ltext"]),
    (".plt", &[]),
    (".rodata", &[".rodata", ".lrodata"]),
    (".relro", &[".data.rel.ro"]),
    (".got", &[]),
    (".data", &[".data", ".ldata"]),
    (".bss", &[".bss", ".lbss"]),
    (".farjump", &[".farjump"]),
];

/// A section of the linked file.
#[derive(Debug)]
pub(super) struct Output {
    pub(super) name: String,
    pub(super) flags: elf::SectionFlags,
    pub(super) align: u64,
    pub(super) address: u64,
    pub(super) len: u64,
    /// Its contents, filled in last; empty for zeroes.
    pub(super) bytes: Vec<u8>,
}

/// A part at its place.
#[derive(Debug)]
pub(super) struct Placed {
    pub(super) part: Part,
    /// The number of its section.
    pub(super) output: usize,
    /// Offset there.
    pub(super) at: u64,
    pub(super) cuts: Cuts,
}

pub(super) struct Layout<'a> {
    pub(super) outputs: Vec<Output>,
    pub(super) placed: Vec<Placed>,
    places: HashMap<Part, usize>,
    /// Offsets of common variables in their section.
    commons: Vec<u64>,
    /// The symbol of each GOT slot.
    pub(super) slots: Vec<Found<'a>>,
    slot_of: HashMap<Found<'a>, usize>,
    /// The imports that stubs jump to.
    pub(super) stubs: Vec<Found<'a>>,
    stub_len: u64,
    /// An upper bound for the padding between parts.
    pub(super) padding: u64,
}

/// A way in which code of x86-64 reaches a symbol of the image without its GOT slot. Compilers leave space for it
/// (AMD64 supplement, B.2).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Direct {
    /// `mov slot(%rip), %r` becomes `lea symbol(%rip), %r`.
    Lea,
    /// `call *slot(%rip)` becomes `addr32 call symbol`.
    Call,
    /// `jmp *slot(%rip)` becomes `jmp symbol; nop`.
    Jump,
}

impl Direct {
    /// The replacement for the instruction with a relocation at `offset`.
    pub(super) fn of(
        number: elf::RelocationType,
        addend: i64,
        bytes: &[u8],
        offset: u64,
        to: Found<'_>,
    ) -> Option<Direct> {
        let has_prefix = match number {
            elf::R_X86_64_REX_GOTPCRELX => true,
            elf::R_X86_64_GOTPCRELX => false,
            _ => return None,
        };
        if addend != -4 || !matches!(to, Found::In(..) | Found::Common(_)) {
            return None;
        }
        let at = usize::try_from(offset).ok()?;
        match *bytes.get(at.checked_sub(2)?..at)? {
            [0x8b, _] => Some(Direct::Lea),
            [0xff, 0x15] if !has_prefix => Some(Direct::Call),
            [0xff, 0x25] if !has_prefix => Some(Direct::Jump),
            _ => None,
        }
    }
}

impl<'a> Layout<'a> {
    /// Places `parts`, and the debugging information of all objects.
    ///
    /// # Errors
    /// Sections that images cannot have; code that is not position-independent; and the program's.
    pub(super) fn of(
        program: &Program<'a>,
        parts: &[Part],
        table: &'static Table,
    ) -> Result<Layout<'a>, BuildError> {
        let mut layout = Layout {
            outputs: Vec::new(),
            placed: Vec::new(),
            places: HashMap::new(),
            commons: Vec::new(),
            slots: Vec::new(),
            slot_of: HashMap::new(),
            stubs: Vec::new(),
            stub_len: table.stub_len,
            padding: 0,
        };
        layout.find_slots(program, parts, table)?;
        layout.place(program, parts, &HashMap::new())?;
        if table.machine == Machine::RISCV {
            let mut cuts = HashMap::new();
            for &part in parts {
                cuts.insert(part, Cuts::of(program, part, |found| layout.address(found), layout.padding)?);
            }
            layout.place(program, parts, &cuts)?;
        }
        layout.place_debugging(program)?;
        Ok(layout)
    }

    /// Gives a GOT slot and a stub to each symbol that needs them.
    fn find_slots(&mut self, program: &Program<'a>, parts: &[Part], table: &Table) -> Result<(), BuildError> {
        for &part in parts {
            let bytes = program.bytes(part)?;
            for entry in program.relocations(part)? {
                let Ok((value, _)) = table.meaning(entry.number) else { continue };
                if value != Value::Slot && value != Value::Call {
                    continue;
                }
                let to = program.find(part.object, entry.symbol)?;
                let is_import = matches!(to, Found::Import(_));
                let is_direct = Direct::of(entry.number, entry.addend, bytes, entry.offset, to).is_some();
                if (value == Value::Slot && !is_direct) || (value == Value::Call && is_import) {
                    let next = self.slots.len();
                    if *self.slot_of.entry(to).or_insert(next) == next {
                        self.slots.push(to);
                    }
                }
                if value == Value::Call && is_import && !self.stubs.contains(&to) {
                    self.stubs.push(to);
                }
            }
        }
        Ok(())
    }

    /// Places all parts anew.
    fn place(
        &mut self,
        program: &Program<'a>,
        parts: &[Part],
        cuts: &HashMap<Part, Cuts>,
    ) -> Result<(), BuildError> {
        let (executable, writable) = (elf::SHF_EXECINSTR, elf::SHF_WRITE);
        self.outputs = OUTPUTS.map(|(name, _)| Output::new(name)).into();
        self.placed.clear();
        for &part in parts {
            let header = program.header(part);
            let flags = header.sh_flags(LITTLE);
            let zeroes = header.sh_type(LITTLE) == elf::SHT_NOBITS;
            let output = output_of(&program.name(part), flags, zeroes);
            let known = output.filter(|output| *output == STATED || flags.contains(elf::SHF_ALLOC));
            let Some(output) = known else {
                return Err(BuildError::Section {
                    site: Some(program.site(part)),
                    section: program.name(part),
                });
            };
            let cuts = cuts.get(&part).cloned().unwrap_or_default();
            let section = &mut self.outputs[output];
            section.flags = elf::SectionFlags(section.flags.0 | flags.0 & (executable.0 | writable.0));
            let len = cuts.moved(header.sh_size(LITTLE));
            let at = section.take(len, header.sh_addralign(LITTLE).max(cuts.align))?;
            self.padding = self.padding.saturating_add(section.align);
            self.placed.push(Placed { part, output, at, cuts });
        }
        let bss = &mut self.outputs[BSS];
        self.commons.clear();
        for common in &program.commons {
            bss.flags = elf::SectionFlags(bss.flags.0 | writable.0);
            self.commons.push(bss.take(common.len, common.align)?);
        }
        let stubs = &mut self.outputs[STUBS];
        stubs.flags = elf::SectionFlags(stubs.flags.0 | executable.0);
        stubs.take(self.stub_len * self.stubs.len() as u64, 16)?;
        self.outputs[GOT].take(8 * self.slots.len() as u64, 8)?;

        let mut next = 0_u64;
        for (index, output) in self.outputs.iter_mut().enumerate() {
            next = match index {
                DATA => SPAN_DISTANCE,
                STATED => NOT_PLACED,
                _ => next,
            };
            output.address = next.next_multiple_of(output.align.max(1));
            next = if output.len == 0 { next } else { output.address + output.len };
        }
        self.places = self.placed.iter().enumerate().map(|(index, placed)| (placed.part, index)).collect();
        Ok(())
    }

    /// Appends the debugging information of all objects, which has no address.
    fn place_debugging(&mut self, program: &Program<'a>) -> Result<(), BuildError> {
        for object in 0..program.objects.len() {
            let sections = program.objects[object].1.elf_section_table();
            for (index, header) in sections.enumerate() {
                let part = Part { object, section: index.0 };
                let flags = header.sh_flags(LITTLE);
                let name = program.name(part);
                if !name.starts_with(".debug_")
                    || flags.contains(elf::SHF_ALLOC)
                    || flags.contains(elf::SHF_COMPRESSED)
                    || header.sh_type(LITTLE) == elf::SHT_NOBITS
                {
                    continue;
                }
                let known = self.outputs.iter().position(|output| output.name == name);
                let output = known.unwrap_or_else(|| {
                    self.outputs.push(Output { flags: elf::SectionFlags(0), ..Output::new(&name) });
                    self.outputs.len() - 1
                });
                let at = self.outputs[output].take(header.sh_size(LITTLE), header.sh_addralign(LITTLE))?;
                self.places.insert(part, self.placed.len());
                self.placed.push(Placed { part, output, at, cuts: Cuts::default() });
            }
        }
        Ok(())
    }

    /// The address of a symbol's byte; `None` for imports, and for symbols that are not in the file.
    pub(super) fn address(&self, found: Found<'_>) -> Option<u64> {
        match found {
            Found::In(part, offset) => {
                let placed = &self.placed[*self.places.get(&part)?];
                Some(self.outputs[placed.output].address + placed.at + placed.cuts.moved(offset))
            }
            Found::Common(number) => Some(self.outputs[BSS].address + self.commons.get(number)?),
            Found::Got => Some(self.outputs[GOT].address),
            Found::Number(number) => Some(number),
            Found::Import(_) => None,
        }
    }

    /// The section in which a symbol's byte lies.
    pub(super) fn output_of(&self, found: Found<'_>) -> Option<usize> {
        match found {
            Found::In(part, _) => Some(self.placed[*self.places.get(&part)?].output),
            Found::Common(_) => Some(BSS),
            _ => None,
        }
    }

    /// The address of a symbol's GOT slot.
    pub(super) fn slot(&self, found: Found<'a>) -> Option<u64> {
        self.slot_of.get(&found).map(|&index| self.outputs[GOT].address + 8 * index as u64)
    }

    /// The address of the stub that jumps to an import.
    pub(super) fn stub(&self, found: Found<'a>) -> Option<u64> {
        let index = self.stubs.iter().position(|stub| *stub == found)?;
        Some(self.outputs[STUBS].address + self.stub_len * index as u64)
    }
}

impl Output {
    fn new(name: &str) -> Output {
        let flags = elf::SHF_ALLOC;
        Output { name: name.to_owned(), flags, align: 1, address: 0, len: 0, bytes: Vec::new() }
    }

    /// Reserves `len` bytes at the section's end, and returns their offset.
    fn take(&mut self, len: u64, align: u64) -> Result<u64, BuildError> {
        let align = align.max(1);
        let too_long = || refused(format!("{} is longer than {LONGEST} bytes", self.name));
        let at = align
            .is_power_of_two()
            .then(|| self.len.checked_next_multiple_of(align))
            .flatten()
            .ok_or_else(too_long)?;
        let end = at.checked_add(len).filter(|end| *end <= LONGEST && align <= LONGEST);
        self.len = end.ok_or_else(too_long)?;
        self.align = self.align.max(align);
        Ok(at)
    }
}

/// The section for a part: by its name, or else by its rights.
fn output_of(name: &str, flags: elf::SectionFlags, zeroes: bool) -> Option<usize> {
    let is_of =
        |start: &&str| name.strip_prefix(*start).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'));
    // In their order: .data.rel.ro before .data.
    let named = OUTPUTS.iter().position(|(_, names)| names.iter().any(is_of));
    if named.is_none() && !flags.contains(elf::SHF_ALLOC) {
        return None;
    }
    let output =
        named.unwrap_or(match (flags.contains(elf::SHF_EXECINSTR), flags.contains(elf::SHF_WRITE)) {
            (true, _) => TEXT,
            (_, true) => BSS,
            _ => RODATA,
        });
    Some(if output == BSS && !zeroes { DATA } else { output })
}
