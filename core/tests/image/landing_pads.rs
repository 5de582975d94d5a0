//! Images with landing pads.

use farjump_core::image::{ImageError, ImageParts, ImageView, Machine};

/// `bti c`, and `ret`.
const PAD: u32 = 0xd503_245f;
const RET: u32 = 0xd65f_03c0;

fn code(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

fn with_pads(machine: Machine, span1: &[u8]) -> ImageParts<'_> {
    ImageParts { landing_pads: true, ..ImageParts::text(machine, span1) }
}

#[test]
fn one_bit_of_the_header_says_that_an_image_has_landing_pads() {
    let span1 = code(&[PAD, RET]);
    let without = ImageParts::text(Machine::AARCH64, &span1).encode().unwrap();
    let with = with_pads(Machine::AARCH64, &span1).encode().unwrap();
    let differ: Vec<_> = (0..with.len()).filter(|&at| with[at] != without[at]).collect();
    assert_eq!((differ.as_slice(), without[6], with[6]), (&[6][..], 0x01, 0x09));
    let has = |bytes| ImageView::new_checked(bytes).map(|view| view.has_landing_pads());
    assert_eq!((has(&without), has(&with)), (Ok(false), Ok(true)));
    let features = ImageParts { features: vec!["lse"], ..with_pads(Machine::AARCH64, &span1) };
    let features = features.encode().unwrap();
    assert_eq!((features[6], has(&features)), (0xf9, Ok(true)));
}

#[test]
fn its_entry_is_an_instruction_that_calls_may_reach() {
    // `bti c`, `bti jc`, `paciasp` and `pacibsp`; and `bti`, `bti j`, `nop`, `autiasp`.
    let for_calls = [PAD, 0xd503_24df, 0xd503_233f, 0xd503_237f];
    let others = [0xd503_241f, 0xd503_249f, 0xd503_201f, 0xd503_23bf, RET, 0];
    for (first, may) in for_calls.map(|pad| (pad, true)).into_iter().chain(others.map(|other| (other, false)))
    {
        let span1 = code(&[RET, first]);
        let parts = |entry| ImageParts { entry, ..with_pads(Machine::AARCH64, &span1) };
        let expected = if may { Ok(()) } else { Err(ImageError::NoLandingPad { entry: 4 }) };
        assert_eq!(parts(4).encode().map(|_| ()), expected, "{first:#x}");
        assert_eq!(parts(0).encode(), Err(ImageError::NoLandingPad { entry: 0 }));
    }
    // The last instruction, cut short.
    let span1 = &code(&[RET, PAD])[..6];
    let cut = ImageParts { entry: 4, ..with_pads(Machine::AARCH64, span1) };
    assert_eq!(cut.encode(), Err(ImageError::NoLandingPad { entry: 4 }));
}

#[test]
fn machines_without_landing_pads_have_no_images_with_them() {
    for machine in [Machine::X86_64, Machine::RISCV, Machine(1)] {
        let mut image = ImageParts::text(machine, &code(&[PAD, RET])).encode().unwrap();
        image[6] |= 8;
        let error = ImageView::new_checked(&image).map(|_| ());
        assert_eq!(error, Err(ImageError::LandingPads { machine }));
    }
}
