//! Removes code of riscv64 that a linker may remove: padding that an alignment does not need, and half of a call whose
//! other half reaches the function.
//!
//! Assemblers leave both to the linker (RISC-V ELF psABI, "Linker Relaxation"). Before an aligned instruction they
//! write as many `nop`s as the worst address needs. For each call they write the pair of instructions that reaches any
//! address. Nothing is made relative to `gp`, which belongs to the target's program.

use object::elf;
use object::read::elf::SectionHeader;

use super::program::{Found, Part, Program};
use crate::error::BuildError;
use crate::objects::LITTLE;

/// Reach of `jal`, both ways, in bytes.
const JAL: u64 = 1 << 20;
const NOP: u32 = 0x0000_0013;
const SHORT_NOP: u16 = 0x0001;

/// The cuts in a section.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Cuts {
    /// Offsets and lengths, by rising offsets.
    removed: Vec<(u64, u64)>,
    /// Padding that stays: offsets before the cuts, and lengths.
    pads: Vec<(u64, u64)>,
    /// Offsets of calls that become one instruction.
    jumps: Vec<u64>,
    /// The least alignment of the section.
    pub(super) align: u64,
}

impl Cuts {
    /// The cuts in a section. `address` returns addresses in the layout without cuts, which has at most `padding` bytes
    /// between parts.
    ///
    /// # Errors
    /// The object is damaged.
    pub(super) fn of(
        program: &Program<'_>,
        part: Part,
        address: impl Fn(Found<'_>) -> Option<u64>,
        padding: u64,
    ) -> Result<Cuts, BuildError> {
        let mut cuts = Cuts { align: 1, ..Cuts::default() };
        let relocations = program.relocations(part)?;
        let len = program.header(part).sh_size(LITTLE);
        let damaged = |offset: u64, problem: &str| {
            let site = program.site(part);
            let problem = format!("{problem} at {offset:#x} of {}", site.section);
            BuildError::Malformed { object: site.object, problem }
        };
        // The number of bytes cut so far, and the end of the part examined so far.
        let (mut gone, mut end) = (0, 0);
        for (index, entry) in relocations.iter().enumerate() {
            let offset = entry.offset;
            if entry.number == elf::R_RISCV_ALIGN {
                let most = u64::try_from(entry.addend).unwrap_or(0);
                let align = most.saturating_add(1).checked_next_power_of_two().unwrap_or(1);
                cuts.align = cuts.align.max(align);
                let wanted = offset.wrapping_sub(gone).wrapping_neg() & (align - 1);
                if wanted > most {
                    return Err(damaged(offset, "the padding is too short"));
                }
                if offset < end || most > len - offset {
                    return Err(damaged(offset, "padding lies over something else"));
                }
                end = offset + most;
                cuts.pads.push((offset, wanted));
                if most > wanted {
                    cuts.removed.push((offset + wanted, most - wanted));
                    gone += most - wanted;
                }
                continue;
            }
            let calls = [elf::R_RISCV_CALL, elf::R_RISCV_CALL_PLT].contains(&entry.number);
            let may = relocations[index + 1..]
                .iter()
                .take_while(|next| next.offset == offset)
                .any(|next| next.number == elf::R_RISCV_RELAX);
            if calls && may {
                let to = program.find(part.object, entry.symbol)?;
                let is_inside = matches!(to, Found::In(..));
                if let (true, Some(to), Some(from)) =
                    (is_inside, address(to), address(Found::In(part, offset)))
                {
                    let distance = to.wrapping_add_signed(entry.addend).wrapping_sub(from) as i64;
                    // Cuts move sections closer together, but padding between them may grow.
                    if distance.unsigned_abs() < JAL.saturating_sub(padding) {
                        if offset < end || len - offset < 8 {
                            return Err(damaged(offset, "a call lies over something else"));
                        }
                        end = offset + 8;
                        cuts.jumps.push(offset);
                        cuts.removed.push((offset + 4, 4));
                        gone += 4;
                    }
                }
            }
        }
        Ok(cuts)
    }

    /// The new offset of the byte that was at `offset`.
    pub(super) fn moved(&self, offset: u64) -> u64 {
        let before = self.removed.iter().take_while(|(at, _)| *at < offset);
        offset - before.map(|&(at, len)| len.min(offset - at)).sum::<u64>()
    }

    /// Returns whether the call at `offset` becomes one instruction.
    pub(super) fn is_jump(&self, offset: u64) -> bool {
        self.jumps.binary_search(&offset).is_ok()
    }

    /// The section without the cuts.
    pub(super) fn shortened(&self, bytes: &[u8]) -> Vec<u8> {
        let (mut out, mut from) = (Vec::with_capacity(bytes.len()), 0);
        for &(at, len) in &self.removed {
            let (at, end) = ((at as usize).min(bytes.len()), ((at + len) as usize).min(bytes.len()));
            out.extend_from_slice(bytes.get(from..at).unwrap_or_default());
            from = end;
        }
        out.extend_from_slice(&bytes[from..]);
        // Cuts may split an instruction.
        for &(at, len) in &self.pads {
            let at = self.moved(at) as usize;
            let Some(pad) = out.get_mut(at..at + len as usize) else { continue };
            for nop in pad.chunks_mut(4) {
                match nop.len() {
                    4 => nop.copy_from_slice(&NOP.to_le_bytes()),
                    2 => nop.copy_from_slice(&SHORT_NOP.to_le_bytes()),
                    _ => {}
                }
            }
        }
        for &at in &self.jumps {
            // The register of the second instruction, `jalr`, takes the return address.
            let link = bytes.get(at as usize + 4..).and_then(|rest| rest.first_chunk());
            let link = link.map_or(0, |second| u32::from_le_bytes(*second) & 0xf80);
            let at = self.moved(at) as usize;
            if let Some(first) = out.get_mut(at..at + 4) {
                first.copy_from_slice(&(0x6f | link).to_le_bytes());
            }
        }
        out
    }
}
