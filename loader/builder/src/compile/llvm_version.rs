//! The version of the LLVM that wrote a bitcode file, which stands in its first block (LLVM Bitcode File Format,
//! `IDENTIFICATION_BLOCK`; LLVM Bitstream Format).

use farjump_core::bitcode::{LLVM_MAGIC as MAGIC, LLVM_WRAPPER as WRAPPER};

const IDENTIFICATION_BLOCK: u64 = 13;
const IDENTIFICATION_STRING: u64 = 1;
/// Longest string that is read, in characters: a version has few.
const LONGEST: u64 = 128;
const END_BLOCK: u64 = 0;
const ENTER_SUBBLOCK: u64 = 1;
const DEFINE_ABBREV: u64 = 2;
const UNABBREV_RECORD: u64 = 3;

/// The bitcode in a file, without its wrapper; `None` if it is no bitcode.
pub(crate) fn unwrapped(file: &[u8]) -> Option<&[u8]> {
    if file.starts_with(&MAGIC) {
        return Some(file);
    }
    let word = |at: usize| Some(u32::from_le_bytes(file.get(at..at + 4)?.try_into().ok()?) as usize);
    let (start, len) = (word(8)?, word(12)?);
    let inner = file.get(start..start.checked_add(len)?)?;
    (file.starts_with(&WRAPPER) && inner.starts_with(&MAGIC)).then_some(inner)
}

/// The major version of the LLVM that wrote `bitcode`, which begins with [`LLVM_MAGIC`](MAGIC); `None` if it states
/// none.
pub(crate) fn major(bitcode: &[u8]) -> Option<u16> {
    let text = identification(bitcode)?;
    let digits = text.strip_prefix("LLVM")?;
    digits.split(|letter: char| !letter.is_ascii_digit()).next()?.parse().ok()
}

/// A part of an abbreviation.
#[derive(Clone, Copy)]
enum Operand {
    Literal(u64),
    Fixed(u32),
    Vbr(u32),
    Array,
    Char6,
}

fn identification(bitcode: &[u8]) -> Option<String> {
    let mut bits = Bits { bytes: bitcode, at: 32 };
    if bits.fixed(2)? != ENTER_SUBBLOCK || bits.vbr(8)? != IDENTIFICATION_BLOCK {
        return None;
    }
    let width = u32::try_from(bits.vbr(4)?).ok().filter(|width| (2..=32).contains(width))?;
    bits.align();
    bits.fixed(32)?;
    let mut abbreviations: Vec<Vec<Operand>> = Vec::new();
    // Every round takes bits, and the bits end.
    loop {
        let record = match bits.fixed(width)? {
            END_BLOCK | ENTER_SUBBLOCK => return None,
            DEFINE_ABBREV => {
                abbreviations.push(bits.abbreviation()?);
                continue;
            }
            UNABBREV_RECORD => {
                let (code, count) = (bits.vbr(6)?, bits.vbr(6)?);
                let values = (0..count.min(LONGEST)).map(|_| bits.vbr(6)).collect::<Option<Vec<_>>>()?;
                [vec![code], values].concat()
            }
            number => bits.record(abbreviations.get(usize::try_from(number).ok()? - 4)?)?,
        };
        if let Some((&IDENTIFICATION_STRING, letters)) = record.split_first() {
            return letters.iter().map(|&letter| u8::try_from(letter).ok().map(char::from)).collect();
        }
    }
}

/// Bits, the lowest of each byte first.
struct Bits<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Bits<'_> {
    fn fixed(&mut self, width: u32) -> Option<u64> {
        let mut value = 0;
        for bit in 0..width {
            let byte = self.bytes.get(self.at / 8)?;
            value |= u64::from(byte >> (self.at % 8) & 1) << bit;
            self.at += 1;
        }
        Some(value)
    }

    /// A number in groups of `width` bits, the highest bit of each says that another group follows.
    fn vbr(&mut self, width: u32) -> Option<u64> {
        let (mut value, mut shift) = (0_u64, 0);
        loop {
            let group = self.fixed(width)?;
            let more = 1 << (width - 1);
            value |= (group & (more - 1)).checked_shl(shift)?;
            if group & more == 0 {
                return Some(value);
            }
            shift += width - 1;
        }
    }

    /// Skips to the next multiple of 32 bits.
    fn align(&mut self) {
        self.at = self.at.next_multiple_of(32);
    }

    fn abbreviation(&mut self) -> Option<Vec<Operand>> {
        let count = self.vbr(5)?;
        let mut operands = Vec::new();
        for _ in 0..count {
            let width = |value: u64| u32::try_from(value).ok().filter(|width| (1..=64).contains(width));
            operands.push(match self.fixed(1)? {
                1 => Operand::Literal(self.vbr(8)?),
                _ => match self.fixed(3)? {
                    1 => Operand::Fixed(width(self.vbr(5)?)?),
                    2 => Operand::Vbr(width(self.vbr(5)?).filter(|width| *width > 1)?),
                    3 => Operand::Array,
                    4 => Operand::Char6,
                    _ => return None,
                },
            });
        }
        Some(operands)
    }

    fn record(&mut self, operands: &[Operand]) -> Option<Vec<u64>> {
        let mut values = Vec::new();
        let mut rest = operands.iter();
        while let Some(operand) = rest.next() {
            match operand {
                Operand::Array => {
                    let element = *rest.next()?;
                    for _ in 0..self.vbr(6)?.min(LONGEST) {
                        values.push(self.value(element)?);
                    }
                }
                other => values.push(self.value(*other)?),
            }
        }
        Some(values)
    }

    fn value(&mut self, operand: Operand) -> Option<u64> {
        match operand {
            Operand::Literal(value) => Some(value),
            Operand::Fixed(width) => self.fixed(width),
            Operand::Vbr(width) => self.vbr(width),
            Operand::Char6 => {
                const LETTERS: &[u8; 64] =
                    b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._";
                Some(LETTERS[self.fixed(6)? as usize].into())
            }
            Operand::Array => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::process::Command;

    use farjump_tools::Tool;
    use proptest::prelude::*;

    use super::*;

    /// The first block of a file that clang 19.1.7 wrote.
    const CLANG_19: &[u8] = &[
        0x42, 0x43, 0xc0, 0xde, 0x35, 0x14, 0x00, 0x00, 0x05, 0x00, 0x00, 0x00, 0x62, 0x0c, 0x30, 0x24, 0x4a,
        0x59, 0xbe, 0xf7, 0xef, 0xfd, 0x7e, 0xb4, 0x15, 0x08, 0xe6, 0x85, 0x3c, 0x00, 0x00, 0x00,
    ];

    #[test]
    fn bitcode_of_installed_compilers_states_their_llvm_version() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("t.c"), "int t;\n").unwrap();
        fs::write(folder.path().join("t.rs"), "#![no_std]\n").unwrap();
        let version = |program: &str| {
            let said =
                Command::new(program).arg(if program == "rustc" { "-vV" } else { "--version" }).output();
            let text = String::from_utf8(said.ok()?.stdout).unwrap();
            let behind =
                text.split(if program == "rustc" { "LLVM version: " } else { "clang version " }).nth(1)?;
            behind.split('.').next().unwrap().parse::<u16>().ok()
        };
        let commands: [(&str, &[&str]); 2] = [
            ("clang", &["-c", "-emit-llvm", "t.c", "-o", "t.bc"]),
            ("rustc", &["--crate-type=lib", "--emit=llvm-bc", "t.rs", "-o", "t.bc"]),
        ];
        for (program, arguments) in commands {
            if let Err(why) = Tool::tried(program) {
                println!("skipped with {program}: {why}");
                continue;
            }
            let expected = version(program);
            let ended = Command::new(program).args(arguments).current_dir(folder.path()).status().unwrap();
            assert!(ended.success());
            let bytes = fs::read(folder.path().join("t.bc")).unwrap();
            assert_eq!(unwrapped(&bytes).and_then(major), expected, "{program}");
            let (start, len) = (20_u32.to_le_bytes(), (bytes.len() as u32).to_le_bytes());
            let wrapped = [&WRAPPER[..], &[0; 4], &start, &len, &[0; 4], &bytes].concat();
            assert_eq!(unwrapped(&wrapped), Some(&bytes[..]));
        }
    }

    proptest! {
        #[test]
        fn no_bytes_make_the_reader_panic(
            bytes in prop::collection::vec(any::<u8>(), 0..80),
            patches in prop::collection::vec((0_usize..CLANG_19.len(), any::<u8>()), 0..6),
        ) {
            let mut patched = CLANG_19.to_vec();
            for (at, value) in patches {
                patched[at] = value;
            }
            let _ = (major(&patched), major(&bytes), unwrapped(&bytes));
            let _ = major(&[&MAGIC[..], &bytes].concat());
        }
    }
}
