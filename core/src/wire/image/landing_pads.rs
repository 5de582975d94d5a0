//! Landing pads: instructions at the addresses to which code branches indirectly (Arm Architecture Reference Manual for
//! A-profile, "Branch Target Identification").

use super::{ABI_LINUX, ImageError, ImageView, LANDING_PADS, Machine};

/// The landing pads for calls, which may come by `blr` or by `br` with x16 or x17: `bti c`, `bti jc`, `paciasp` and
/// `pacibsp`.
const FOR_CALLS: [u32; 4] = [0xd503_245f, 0xd503_24df, 0xd503_233f, 0xd503_237f];

/// Checks an ABI that is not [`ABI_LINUX`] without landing pads.
#[cold]
pub(super) fn check_abi(abi: u8, machine: Machine) -> Result<(), ImageError> {
    if abi & !LANDING_PADS != ABI_LINUX {
        return Err(ImageError::Abi(abi));
    }
    match machine {
        Machine::AARCH64 => Ok(()),
        _ => Err(ImageError::LandingPads { machine }),
    }
}

/// Checks that calls reach `NAME_main`. The entry is a multiple of the length of an instruction.
pub(super) fn check_entry(view: &ImageView<'_>) -> Result<(), ImageError> {
    let first = view.span1()[view.entry() as usize..].first_chunk().map(|word| u32::from_le_bytes(*word));
    match first {
        Some(first) if FOR_CALLS.contains(&first) => Ok(()),
        _ => Err(ImageError::NoLandingPad { entry: view.entry() }),
    }
}
