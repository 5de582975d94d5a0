//! Checks of an image against the rules of its machine's instructions.

use super::{ImageError, ImageView, Machine, landing_pads};

/// log2 of the size of a page for `adrp`, whatever the system's pages are.
const PAGE_LOG2: u8 = 12;

impl Machine {
    /// log2 of the alignment of instructions, in bytes. Code at other addresses does not run.
    pub const fn instruction_align_log2(self) -> u8 {
        match self {
            Machine::AARCH64 => 2,
            // With compressed instructions, which every target of this triple has.
            Machine::RISCV => 1,
            _ => 0,
        }
    }
}

/// log2 of the alignment in bytes that code needs because of its instructions.
///
/// On aarch64 `adrp` computes the address of a *page* relative to the page it lies in, and the offset inside
/// the page is fixed when the code is linked. So code with an `adrp` runs only at the offset in its page for
/// which it was linked, which is 0 for images. `span1` also holds constants: a constant that looks like an
/// `adrp` counts as one, since a target cannot distinguish them, and costs only alignment.
pub fn code_align_log2(machine: Machine, span1: &[u8]) -> u8 {
    if machine == Machine::AARCH64 && first_adrp(span1).is_some() {
        PAGE_LOG2
    } else {
        machine.instruction_align_log2()
    }
}

/// Checks that the image runs wherever its alignment allows, as far as its instructions show.
#[inline(never)]
pub(super) fn check(view: &ImageView<'_>) -> Result<(), ImageError> {
    let machine = view.machine();
    let needed = machine.instruction_align_log2();
    if view.align_log2() < needed || !view.entry().is_multiple_of(1 << needed) {
        return Err(ImageError::Misaligned { machine, entry: view.entry(), align_log2: view.align_log2() });
    }
    if view.has_landing_pads() {
        landing_pads::check_entry(view)?;
    }
    if machine == Machine::AARCH64
        && view.align_log2() < PAGE_LOG2
        && let Some(offset) = first_adrp(view.span1())
    {
        return Err(ImageError::PageOffset { offset, align_log2: view.align_log2() });
    }
    Ok(())
}

/// Offset of the first word that is an `adrp` (Arm Architecture Reference Manual for A-profile, C6.2.13).
fn first_adrp(code: &[u8]) -> Option<usize> {
    let words = code.as_chunks::<4>().0.iter();
    words
        .map(|word| u32::from_le_bytes(*word))
        .position(|word| word & 0x9f00_0000 == 0x9000_0000)
        .map(|at| at * 4)
}
