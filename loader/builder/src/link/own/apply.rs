//! Contents with the values of their relocations, and the words whose values are known when the image is placed.

use object::elf;

use super::encode::{self, Misfit};
use super::layout::{BSS, Direct, GOT, Layout, Placed, STUBS};
use super::machines::{Field, Refusal, Table, Value};
use super::program::{Entry, Found, Part, Program};
use super::{VERSION, refused};
use crate::error::BuildError;
use crate::rules::Rules;

/// A word whose value depends on the address of the placed image.
#[derive(Clone, Copy, Debug)]
pub(super) struct Patch<'a> {
    pub(super) address: u64,
    pub(super) word: Word<'a>,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Word<'a> {
    /// The address of an import, and the addend.
    Import(&'a [u8], i64),
    /// An address of the image.
    Inside(u64),
}

/// A word of debugging information with an address of the image.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shown {
    /// The section of the word, and its offset there.
    pub(super) output: usize,
    pub(super) offset: u64,
    /// The section of the address, and the offset there.
    pub(super) to: usize,
    pub(super) addend: u64,
}

/// The results of filling in all values.
#[derive(Debug, Default)]
pub(super) struct Applied<'a> {
    pub(super) patches: Vec<Patch<'a>>,
    pub(super) shown: Vec<Shown>,
}

/// The parts of a link.
#[derive(Clone, Copy)]
struct Link<'a, 'l> {
    program: &'l Program<'a>,
    layout: &'l Layout<'a>,
    table: &'static Table,
    rules: &'l Rules,
}

/// Fills the sections of `layout`.
///
/// # Errors
/// Relocations that images cannot have, or whose value does not fit.
pub(super) fn apply<'a>(
    program: &Program<'a>,
    layout: &mut Layout<'a>,
    table: &'static Table,
    rules: &Rules,
) -> Result<Applied<'a>, BuildError> {
    let mut applied = Applied::default();
    let mut contents: Vec<Vec<u8>> = layout
        .outputs
        .iter()
        .enumerate()
        .map(|(index, output)| vec![0; if index == BSS { 0 } else { output.len as usize }])
        .collect();
    let link = Link { program, layout, table, rules };
    for placed in &layout.placed {
        let bytes = placed.cuts.shortened(program.bytes(placed.part)?);
        let section = &mut contents[placed.output];
        let at = placed.at as usize;
        // The section is already zeroes.
        if let Some(room) = section.get_mut(at..at + bytes.len()) {
            room.copy_from_slice(&bytes);
        }
        let is_debugging = layout.outputs[placed.output].flags.0 & elf::SHF_ALLOC.0 == 0;
        let relocations = program.relocations(placed.part)?;
        for entry in &relocations {
            let place = at + placed.cuts.moved(entry.offset) as usize;
            if is_debugging {
                let shown = link.show(placed.part, entry, section, place)?;
                applied.shown.extend(shown.map(|(to, addend)| Shown {
                    output: placed.output,
                    offset: place as u64,
                    to,
                    addend,
                }));
            } else {
                let address = layout.outputs[placed.output].address + place as u64;
                let word = link.put(placed, (entry, &relocations), section, place, address)?;
                applied.patches.extend(word.map(|word| Patch { address, word }));
            }
        }
    }
    for (index, slot) in layout.slots.iter().enumerate() {
        let address = layout.outputs[GOT].address + 8 * index as u64;
        let word = match (*slot, layout.address(*slot)) {
            (Found::Number(number), _) => {
                contents[GOT][8 * index..8 * index + 8].copy_from_slice(&number.to_le_bytes());
                continue;
            }
            (Found::Import(name), _) => Word::Import(name, 0),
            (_, address) => Word::Inside(address.ok_or_else(|| refused("a slot of nothing".to_owned()))?),
        };
        applied.patches.push(Patch { address, word });
    }
    for stub in &layout.stubs {
        let far = || refused("a stub does not reach its GOT slot".to_owned());
        let (address, slot) = layout.stub(*stub).zip(layout.slot(*stub)).ok_or_else(far)?;
        let code = table.stub(address, slot).ok_or_else(far)?;
        let at = (address - layout.outputs[STUBS].address) as usize;
        contents[STUBS][at..at + code.len()].copy_from_slice(&code);
    }
    for (output, bytes) in layout.outputs.iter_mut().zip(contents) {
        output.bytes = bytes;
    }
    Ok(applied)
}

impl<'a> Link<'a, '_> {
    /// Writes the value of `entry`, one of the `relocations` of a part, at offset `at` of `section`, which is at `address`.
    /// Returns the word that takes its value when the image is placed.
    fn put(
        &self,
        placed: &Placed,
        (entry, relocations): (&Entry, &[Entry]),
        section: &mut [u8],
        at: usize,
        address: u64,
    ) -> Result<Option<Word<'a>>, BuildError> {
        let part = placed.part;
        let &Link { program, layout, table, .. } = self;
        let (value, mut field) = table.meaning(entry.number).map_err(|why| self.refusal(part, entry, why))?;
        if value == Value::Mark {
            return Ok(None);
        }
        if value == Value::Half {
            let (target, place) = self.half(part, entry, relocations)?;
            return self.write(part, entry, (field, section, at), place, target).map(|()| None);
        }
        let to = program.find(part.object, entry.symbol)?;
        let fixed = || self.refusal(part, entry, Refusal::Fixed);
        let symbol = || layout.address(to).ok_or_else(fixed);
        let target = match value {
            Value::Absolute => {
                let word = match to {
                    Found::Import(name) => Word::Import(name, entry.addend),
                    Found::Number(number) => {
                        let number = number.wrapping_add_signed(entry.addend);
                        return self.write(part, entry, (field, section, at), address, number).map(|()| None);
                    }
                    _ => Word::Inside(symbol()?.wrapping_add_signed(entry.addend)),
                };
                return Ok(Some(word));
            }
            Value::Slot => {
                match Direct::of(entry.number, entry.addend, program.bytes(part)?, entry.offset, to) {
                    None => layout.slot(to).ok_or_else(fixed)?,
                    Some(direct) => {
                        return self.direct(part, entry, (section, at), address, direct, symbol()?);
                    }
                }
            }
            Value::Call => match layout.stub(to) {
                Some(stub) => stub,
                None => symbol()?,
            },
            _ => symbol()?,
        };
        // The distance to a number changes with the address of the placed image.
        if matches!(to, Found::Number(_)) && matches!(field, Field::Distance(_)) {
            return Err(fixed());
        }
        if field == Field::Pair && placed.cuts.is_jump(entry.offset) {
            field = Field::Jump;
        }
        let target = target.wrapping_add_signed(entry.addend);
        self.write(part, entry, (field, section, at), address, target)?;
        Ok(None)
    }

    /// Writes an instruction that needs no slot.
    fn direct(
        &self,
        part: Part,
        entry: &Entry,
        (section, at): (&mut [u8], usize),
        address: u64,
        direct: Direct,
        target: u64,
    ) -> Result<Option<Word<'a>>, BuildError> {
        // `Direct::of` checked the lengths: two bytes before, and four of the distance.
        let (opcode, moved): (&[u8], i64) = match direct {
            Direct::Lea => (&[0x8d], 0),
            Direct::Call => (&[0x67, 0xe8], 0),
            Direct::Jump => (&[0xe9], -1),
        };
        section[at - 2..at - 2 + opcode.len()].copy_from_slice(opcode);
        let (at, address) = (at.wrapping_add_signed(moved as isize), address.wrapping_add_signed(moved));
        let target = target.wrapping_add_signed(entry.addend);
        self.write(part, entry, (Field::Distance(4), section, at), address, target)?;
        if direct == Direct::Jump
            && let Some(nop) = section.get_mut(at + 4)
        {
            *nop = 0x90;
        }
        Ok(None)
    }

    /// Target and place of the upper half that belongs to `entry`, a lower half: the relocation at its symbol.
    fn half(&self, part: Part, entry: &Entry, relocations: &[Entry]) -> Result<(u64, u64), BuildError> {
        let &Link { program, layout, table, .. } = self;
        let alone = || {
            let site = program.site(part);
            let problem = format!("no upper half belongs to a lower one in {}", site.section);
            BuildError::Malformed { object: site.object, problem }
        };
        let Found::In(home, offset) = program.find(part.object, entry.symbol)? else { return Err(alone()) };
        let others = if home == part { Vec::new() } else { program.relocations(home)? };
        let there = if home == part { relocations } else { &others };
        let first = there.partition_point(|upper| upper.offset < offset);
        let upper = there[first..]
            .iter()
            .take_while(|upper| upper.offset == offset)
            .find(|upper| table.meaning(upper.number).is_ok_and(|(_, field)| field == Field::High));
        let upper = upper.ok_or_else(alone)?;
        let to = program.find(home.object, upper.symbol)?;
        let (value, _) = table.meaning(upper.number).map_err(|why| self.refusal(home, upper, why))?;
        let target = if value == Value::Slot { layout.slot(to) } else { layout.address(to) };
        let target = target.ok_or_else(|| self.refusal(home, upper, Refusal::Fixed))?;
        let place = layout.address(Found::In(home, offset)).ok_or_else(alone)?;
        Ok((target.wrapping_add_signed(upper.addend), place))
    }

    /// Writes a value of debugging information. If the value is an address, returns its section and offset.
    fn show(
        &self,
        part: Part,
        entry: &Entry,
        section: &mut [u8],
        at: usize,
    ) -> Result<Option<(usize, u64)>, BuildError> {
        let &Link { program, layout, table, .. } = self;
        // An unknown relocation is no reason to refuse code: its word stays unchanged.
        let Some(field) = table.meaning_in_debug_info(entry.number) else { return Ok(None) };
        let Ok(to) = program.find(part.object, entry.symbol) else { return Ok(None) };
        let gone = layout.address(to).is_none();
        // Debuggers recognize code that was not linked by address 0.
        let target = layout.address(to).map_or(0, |address| address.wrapping_add_signed(entry.addend));
        self.write(part, entry, (field, section, at), 0, target)?;
        let home = layout.output_of(to).filter(|_| field == Field::Word(8) && !gone);
        let home = home.filter(|&home| layout.outputs[home].flags.contains(elf::SHF_ALLOC));
        Ok(home.map(|home| (home, target.wrapping_sub(layout.outputs[home].address))))
    }

    fn write(
        &self,
        part: Part,
        entry: &Entry,
        (field, section, at): (Field, &mut [u8], usize),
        place: u64,
        target: u64,
    ) -> Result<(), BuildError> {
        let got = self.layout.outputs[GOT].address;
        let room = section.get_mut(at..).unwrap_or_default();
        encode::put(field, room, place, target, got).map_err(|misfit| {
            let site = self.program.site(part);
            match misfit {
                Misfit::End => BuildError::Malformed {
                    object: site.object,
                    problem: format!("a relocation reaches beyond the end of {}", site.section),
                },
                Misfit::Value(value) => {
                    let symbol = self.program.symbol_of(part, entry);
                    let kind = self.rules.relocation_name(entry.number);
                    refused(format!(
                        "{}({}+{:#x}): {kind} cannot hold {value:#x}, which {symbol} needs",
                        site.object, site.section, entry.offset
                    ))
                }
            }
        })
    }

    fn refusal(&self, part: Part, entry: &Entry, why: Refusal) -> BuildError {
        let site = self.program.site(part);
        let (symbol, kind) = (self.program.symbol_of(part, entry), self.rules.relocation_name(entry.number));
        match why {
            Refusal::Unknown => BuildError::Relocation { site: Some(site), symbol, relocation: kind },
            Refusal::Fixed => BuildError::NotPositionIndependent {
                linker: VERSION.to_owned(),
                messages: format!("{}({}): {kind} against {symbol}", site.object, site.section),
            },
        }
    }
}
