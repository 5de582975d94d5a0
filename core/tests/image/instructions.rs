//! Images against the rules of their machine's instructions.

use farjump_core::image::{ImageError, ImageParts, ImageView, Machine, code_align_log2};

/// `ret`, and `adrp x0, 0`, for aarch64.
const RET: [u8; 4] = 0xd65f_03c0_u32.to_le_bytes();
const ADRP: [u8; 4] = 0x9000_0000_u32.to_le_bytes();

#[test]
fn aarch64_code_with_adrp_needs_page_alignment() {
    // Both immediate fields and the register are free: op (bit 31) and bits 24 to 28 make it an `adrp`.
    for adrp in [0x9000_0000_u32, 0xf0ff_ffff, 0xb000_0001, 0xd000_1234] {
        let code = [RET, RET, adrp.to_le_bytes(), RET].concat();
        assert_eq!(code_align_log2(Machine::AARCH64, &code), 12);
        for align_log2 in 2..12 {
            let image = ImageParts { align_log2, ..ImageParts::text(Machine::AARCH64, &code) };
            let error = image.encode().unwrap_err();
            assert_eq!(error, ImageError::PageOffset { offset: 8, align_log2 });
            assert!(error.to_string().contains("the adrp at 0x8"), "{error}");
        }
        let image = ImageParts { align_log2: 12, ..ImageParts::text(Machine::AARCH64, &code) };
        assert!(image.encode().is_ok());
    }
    // `adr` (op clear), a word at no instruction's offset, and other machines.
    for code in [[RET, 0x1000_0000_u32.to_le_bytes()].concat(), [&[0, 0], &ADRP[..], &[0, 0]].concat()] {
        assert_eq!(code_align_log2(Machine::AARCH64, &code), 2);
        assert!(ImageParts::text(Machine::AARCH64, &code).encode().is_ok());
    }
    for machine in [Machine::X86_64, Machine::RISCV] {
        assert!(ImageParts::text(machine, &ADRP).encode().is_ok());
    }
}

#[test]
fn a_forged_header_cannot_hide_what_the_code_assumes() {
    let code = [RET, ADRP].concat();
    let mut image =
        ImageParts { align_log2: 12, ..ImageParts::text(Machine::AARCH64, &code) }.encode().unwrap();
    image[7] = 6;
    let expected = Err(ImageError::PageOffset { offset: 4, align_log2: 6 });
    assert_eq!(ImageView::new_checked(&image).map(|_| ()), expected);
}

#[test]
fn instructions_lie_on_the_boundaries_of_their_machine() {
    for (machine, align_log2) in [(Machine::X86_64, 0), (Machine::RISCV, 1), (Machine::AARCH64, 2)] {
        assert_eq!(machine.instruction_align_log2(), align_log2);
        let code = [RET; 2].concat();
        for entry in 0..8 {
            for align in 0..4 {
                let image = ImageParts { align_log2: align, entry, ..ImageParts::text(machine, &code) };
                let fits = align >= align_log2 && entry.is_multiple_of(1 << align_log2);
                let misaligned = ImageError::Misaligned { machine, entry, align_log2: align };
                let expected = if fits { Ok(()) } else { Err(misaligned) };
                assert_eq!(image.encode().map(|_| ()), expected, "{machine} {entry} {align}");
            }
        }
    }
}
