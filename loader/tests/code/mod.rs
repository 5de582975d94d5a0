//! Images written by hand, in x86-64 machine code.

#![allow(dead_code, reason = "each test binary uses its part")]

use farjump_core::image::{ImageParts, Import, Machine, Place, Relative, SPAN_DISTANCE};

/// `incq (%rdx); ret`: adds one to the number at the target arguments.
pub(crate) const INCREMENT: [u8; 4] = [0x48, 0xff, 0x02, 0xc3];
/// `decq (%rdx); ret`.
pub(crate) const DECREMENT: [u8; 4] = [0x48, 0xff, 0x0a, 0xc3];
/// `again: incq 8(%rdx); cmpq $0, (%rdx); je again; ret`: counts until it is stopped.
pub(crate) const COUNT_UNTIL_STOPPED: [u8; 11] =
    [0x48, 0xff, 0x42, 0x08, 0x48, 0x83, 0x3a, 0x00, 0x74, 0xf6, 0xc3];

/// An image of text alone.
pub(crate) fn text(span1: &[u8]) -> ImageParts<'_> {
    ImageParts::text(Machine::X86_64, span1)
}

/// The bytes of `text(span1)`.
pub(crate) fn image(span1: &[u8]) -> Vec<u8> {
    text(span1).encode().unwrap()
}

fn load(code: &mut Vec<u8>, from: i64) {
    // movq from(%rip), %rax
    code.extend([0x48, 0x8b, 0x05]);
    code.extend(i32::try_from(from - (code.len() as i64 + 4)).unwrap().to_le_bytes());
}

/// Span 1 of code that copies the first words of the GOT behind it, then the first words of span 2, to the
/// target arguments; and the offset of that GOT.
pub(crate) fn reporter(got_words: usize, data_words: usize) -> (Vec<u8>, u32) {
    let got = (11 * (got_words + data_words) + 1).next_multiple_of(8);
    let mut code = Vec::new();
    for word in 0..got_words + data_words {
        let from = match word.checked_sub(got_words) {
            None => got as i64 + 8 * word as i64,
            Some(word) => SPAN_DISTANCE as i64 + 8 * word as i64,
        };
        load(&mut code, from);
        // movq %rax, 8*word(%rdx)
        code.extend([0x48, 0x89, 0x42, 8 * word as u8]);
    }
    code.push(0xc3);
    code.resize(got + 8 * got_words, 0);
    (code, got as u32)
}

/// Span 1 of code that adds one to the first word of span 2 and writes the sum to the target arguments.
pub(crate) fn static_counter() -> Vec<u8> {
    // incq static(%rip)
    let mut code = vec![0x48, 0xff, 0x05];
    code.extend((SPAN_DISTANCE as i32 - 7).to_le_bytes());
    load(&mut code, SPAN_DISTANCE as i64);
    // movq %rax, (%rdx); ret
    code.extend([0x48, 0x89, 0x02, 0xc3]);
    code
}

/// An image that imports `name`, and reports its address.
pub(crate) fn importing(name: &str) -> Vec<u8> {
    let (span1, got) = reporter(1, 0);
    let import = Import { site: Place::Span1(got), name, addend: 0, weak: false };
    ImageParts { imports: vec![import], ..text(&span1) }.encode().unwrap()
}

/// A relative site.
pub(crate) fn relative(site: Place, to: Place) -> Relative {
    Relative { site, to }
}
