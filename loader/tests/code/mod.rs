//! Images written by hand, in the code of the machine that runs the tests.

#![allow(dead_code, unused_imports, reason = "each test binary uses its part")]

#[cfg_attr(target_arch = "x86_64", path = "x86_64.rs")]
#[cfg_attr(target_arch = "aarch64", path = "aarch64.rs")]
#[cfg_attr(target_arch = "riscv64", path = "riscv64.rs")]
mod machine;

use farjump_core::image::{ImageParts, Import, Machine, Place, Relative};

/// Code that counts in the second word of the target arguments until the first is not 0.
pub(crate) use machine::COUNT_UNTIL_STOPPED;
/// Code that subtracts one from the number at the target arguments.
pub(crate) use machine::DECREMENT;
/// Code that adds one to the number at the target arguments.
pub(crate) use machine::INCREMENT;
/// Code that does nothing.
pub(crate) use machine::RETURN;
/// Code that writes to its own first bytes.
pub(crate) use machine::WRITE_ITSELF;
/// Span 1 of code that copies the first words of the GOT behind it, then the first words of span 2, to the
/// target arguments; and the offset of that GOT.
pub(crate) use machine::reporter;
/// Span 1 of code that adds one to the first word of span 2 and writes the sum to the target arguments.
pub(crate) use machine::static_counter;
/// Span 1 of code that copies the word at an offset of span 2 to the target arguments.
pub(crate) use machine::static_reader;
/// The byte in space without code, and the signal of a process that runs it.
pub(crate) use machine::{TRAP, TRAP_SIGNAL};

/// The machine that runs the tests.
pub(crate) fn native() -> Machine {
    Machine::native().unwrap()
}

/// A machine other than the one that runs the tests.
pub(crate) fn foreign() -> Machine {
    [Machine::AARCH64, Machine::X86_64].into_iter().find(|machine| *machine != native()).unwrap()
}

/// An image with only text.
pub(crate) fn text(span1: &[u8]) -> ImageParts<'_> {
    ImageParts::text(native(), span1)
}

/// The bytes of `text(span1)`.
pub(crate) fn image(span1: &[u8]) -> Vec<u8> {
    text(span1).encode().unwrap()
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

/// Instructions of one word each as bytes.
const fn bytes<const WORDS: usize, const LEN: usize>(words: [u32; WORDS]) -> [u8; LEN] {
    let mut bytes = [0; LEN];
    let mut at = 0;
    while at < LEN {
        bytes[at] = words[at / 4].to_le_bytes()[at % 4];
        at += 1;
    }
    bytes
}
