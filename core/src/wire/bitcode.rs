//! Bitcode: the code that `NAME_main` reaches as LLVM's intermediate code, which a target compiles for its CPU.
//!
//! The bytes, all little-endian (as in `docs/reference/protocol.md`):
//!
//! | offset | bytes | what |
//! |---|---|---|
//! | 0 | 4 | magic `FJL` and the format's version, 1 |
//! | 4 | 2 | ELF machine ([`Machine`]) |
//! | 6 | 1 | bits 0 to 2: ABI, 1 = Linux, System V, LP64; others 0 |
//! | 7 | 1 | low nibble: 0; high nibble: log2 of the payload's alignment, 0 = default |
//! | 8 | 2 | major version of the LLVM that wrote it |
//! | 10 | 1 | number of wanted libraries |
//! | 11 | 1 | number of modules, at least 1 |
//! | 12 | 4 | length of the names |
//! | 16 | 4 each | lengths of the modules |
//! | | | NAME of the routines, then names of wanted libraries, ascending; each ends with a zero byte |
//! | | | modules, each at the next multiple of 4 with zeroes in between, as LLVM writes them to files |
//!
//! A [`BitcodeView`] vouches for these lengths and names. Only LLVM can read the contents of a module, and it
//! may crash over a damaged one (`docs/security.md`).

use alloc::vec::Vec;
use core::ops::Range;

use super::frame::MAX_NAME;
use super::image::{MAX_ALIGN_LOG2, MAX_WANTED, Machine, is_soname};

/// Length of the fixed part, in bytes.
pub const HEADER_LEN: usize = 16;
/// Most modules.
pub const MAX_MODULES: usize = 255;

/// The first bytes of an LLVM module in a file.
pub const LLVM_MAGIC: [u8; 4] = *b"BC\xc0\xde";
/// The first bytes of a wrapped module, as compilers for Darwin write it. Four words follow: version, offset,
/// length, CPU.
pub const LLVM_WRAPPER: [u8; 4] = *b"\xde\xc0\x17\x0b";

const MAGIC: [u8; 4] = *b"FJL\x01";
const ABI_LINUX: u8 = 1;
/// Alignment of a module, in bytes: that of its words.
const ALIGN: usize = 4;

/// Returns whether the bytes start like an LLVM module, as LLVM's tools write it to files.
pub fn is_llvm_module(bytes: &[u8]) -> bool {
    bytes.starts_with(&LLVM_MAGIC) || bytes.starts_with(&LLVM_WRAPPER)
}

/// The parts of bitcode, to be encoded.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BitcodeParts<'a> {
    /// The machine that its modules are for.
    pub machine: Machine,
    /// log2 of the alignment that its payload needs, in bytes: 3 to 12, or 0 for the default rule.
    pub payload_align_log2: u8,
    /// Major version of the LLVM that wrote the modules.
    pub llvm: u16,
    /// NAME of the routines.
    pub name: &'a str,
    /// Sonames of the libraries that define some of the imports, ascending.
    pub wanted: Vec<&'a str>,
    /// The modules.
    pub modules: Vec<&'a [u8]>,
}

/// The reasons why bytes, or parts, are no bitcode.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BitcodeError {
    /// The first three bytes are not `FJL`.
    #[error("it is no bitcode: it does not start with FJL")]
    Magic,
    /// Made by another version of farjump.
    #[error("its bitcode has format version {0}, this farjump reads version 1: build the library again")]
    Version(u8),
    /// Fewer bytes than its lengths add up to.
    #[error("its bitcode is truncated: it needs {needed} bytes and has {found}")]
    Truncated {
        /// Bytes needed.
        needed: u64,
        /// Bytes present.
        found: u64,
    },
    /// Bytes behind the last module.
    #[error("its bitcode is too long: its modules end at {end}, and it has {found} bytes")]
    Overlong {
        /// End of the modules.
        end: u64,
        /// Bytes present.
        found: u64,
    },
    /// An ABI other than Linux's, or bits without a meaning.
    #[error("its bitcode has {0:#04x} for its ABI, this farjump knows 0x01 (Linux)")]
    Abi(u8),
    /// An alignment of the payload that images cannot have either.
    #[error("its bitcode asks for a payload aligned to 2^{0} bytes: it may be 2^3 to 2^{MAX_ALIGN_LOG2}")]
    PayloadAlign(u8),
    /// A list of names other than the header says, a name that is none, or wanted libraries out of order.
    #[error("its bitcode has a damaged list of names")]
    Names,
    /// No module, or too many.
    #[error("its bitcode has {0} modules: it must have 1 to {MAX_MODULES}")]
    Modules(usize),
    /// Padding bytes that are not zero.
    #[error("its bitcode has bytes other than zero in its padding")]
    Padding,
    /// More bytes than the format can express.
    #[error("its bitcode is too large: it holds at most 4 GiB")]
    TooLarge,
}

/// Bitcode whose lengths and names have been checked; its modules have not.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BitcodeView<'a> {
    bytes: &'a [u8],
    names: &'a str,
}

impl BitcodeParts<'_> {
    /// The bytes that travel.
    ///
    /// # Errors
    /// When the parts make no valid bitcode.
    pub fn encode(&self) -> Result<Vec<u8>, BitcodeError> {
        let modules =
            u8::try_from(self.modules.len()).map_err(|_| BitcodeError::Modules(self.modules.len()))?;
        let wanted = u8::try_from(self.wanted.len()).map_err(|_| BitcodeError::Names)?;
        let names = core::iter::once(&self.name).chain(&self.wanted);
        let names: Vec<u8> = names.flat_map(|name| name.bytes().chain([0])).collect();
        let mut out = Vec::from(MAGIC);
        out.extend(self.machine.0.to_le_bytes());
        out.extend([ABI_LINUX, self.payload_align_log2 << 4]);
        out.extend(self.llvm.to_le_bytes());
        out.extend([wanted, modules]);
        out.extend(len_word(names.len())?);
        for module in &self.modules {
            out.extend(len_word(module.len())?);
        }
        out.extend(names);
        for module in &self.modules {
            out.resize(out.len().next_multiple_of(ALIGN), 0);
            out.extend_from_slice(module);
        }
        len_word(out.len())?;
        BitcodeView::new_checked(&out)?;
        Ok(out)
    }
}

fn len_word(len: usize) -> Result<[u8; 4], BitcodeError> {
    u32::try_from(len).map(u32::to_le_bytes).map_err(|_| BitcodeError::TooLarge)
}

impl<'a> BitcodeView<'a> {
    /// Returns whether the bytes start like bitcode.
    pub fn is_bitcode(bytes: &[u8]) -> bool {
        bytes.starts_with(&MAGIC[..3])
    }

    /// Checks every length and name of `bytes`, which are exactly the bitcode.
    ///
    /// # Errors
    /// The first fault found.
    pub fn new_checked(bytes: &'a [u8]) -> Result<BitcodeView<'a>, BitcodeError> {
        if !BitcodeView::is_bitcode(bytes) {
            return Err(BitcodeError::Magic);
        }
        let found = bytes.len() as u64;
        let has = |needed: u64| {
            if needed <= found { Ok(()) } else { Err(BitcodeError::Truncated { needed, found }) }
        };
        has(HEADER_LEN as u64)?;
        if bytes[3] != MAGIC[3] {
            return Err(BitcodeError::Version(bytes[3]));
        }
        let (abi, align) = (bytes[6], bytes[7]);
        if abi != ABI_LINUX || align & 15 != 0 {
            return Err(BitcodeError::Abi(abi));
        }
        if align >> 4 != 0 && !(3..=MAX_ALIGN_LOG2).contains(&(align >> 4)) {
            return Err(BitcodeError::PayloadAlign(align >> 4));
        }
        let mut view = BitcodeView { bytes, names: "" };
        if view.count() == 0 {
            return Err(BitcodeError::Modules(0));
        }
        let names_at = view.names_at() as u64;
        let names_end = names_at + u64::from(word(bytes, 12));
        has(names_end)?;
        let names = core::str::from_utf8(&bytes[names_at as usize..names_end as usize]);
        view.names = names.map_err(|_| BitcodeError::Names)?;
        view.check_names()?;
        let mut end = names_end;
        for index in 0..view.count() {
            let start = end.next_multiple_of(ALIGN as u64);
            end = start + u64::from(view.module_len(index));
            has(end)?;
        }
        if end != found {
            return Err(BitcodeError::Overlong { end, found });
        }
        let mut at = names_end as usize;
        for module in view.ranges() {
            if bytes[at..module.start].iter().any(|&byte| byte != 0) {
                return Err(BitcodeError::Padding);
            }
            at = module.end;
        }
        Ok(view)
    }

    fn check_names(&self) -> Result<(), BitcodeError> {
        let bad = || Err(BitcodeError::Names);
        if !self.names.ends_with('\0') || self.names.matches('\0').count() != 1 + usize::from(self.bytes[10])
        {
            return bad();
        }
        let head = |byte: u8| byte.is_ascii_alphabetic() || byte == b'_';
        let name = self.name().as_bytes();
        let is_name = name.first().is_some_and(|first| head(*first)) && name.len() <= MAX_NAME;
        if !is_name || !name.iter().all(|byte| head(*byte) || byte.is_ascii_digit()) {
            return bad();
        }
        let ascends = self.wanted().zip(self.wanted().skip(1)).all(|(one, next)| one < next);
        if !ascends || self.wanted().count() > MAX_WANTED || !self.wanted().all(is_soname) {
            return bad();
        }
        Ok(())
    }

    fn names_at(&self) -> usize {
        HEADER_LEN + 4 * self.count()
    }

    fn count(&self) -> usize {
        self.bytes[11].into()
    }

    fn module_len(&self, index: usize) -> u32 {
        word(self.bytes, HEADER_LEN + 4 * index)
    }

    fn ranges(&self) -> impl Iterator<Item = Range<usize>> {
        let mut end = self.names_at() + self.names.len();
        (0..self.count()).map(move |index| {
            let start = end.next_multiple_of(ALIGN);
            end = start + self.module_len(index) as usize;
            start..end
        })
    }

    /// The machine that the modules are for, as the bitcode states.
    pub fn machine(&self) -> Machine {
        Machine(u16::from_le_bytes([self.bytes[4], self.bytes[5]]))
    }

    /// log2 of the alignment that its payload needs, in bytes: 3 to 12, or 0 for the default rule.
    pub fn payload_align_log2(&self) -> u8 {
        self.bytes[7] >> 4
    }

    /// Major version of the LLVM that wrote it, as its source says. An older LLVM cannot read it.
    pub fn llvm(&self) -> u16 {
        u16::from_le_bytes([self.bytes[8], self.bytes[9]])
    }

    /// NAME of its routines.
    pub fn name(&self) -> &'a str {
        self.names.split('\0').next().unwrap_or("")
    }

    /// Sonames of the libraries that define some of the imports, ascending.
    pub fn wanted(&self) -> impl Iterator<Item = &'a str> + use<'a> {
        self.names.split_terminator('\0').skip(1)
    }

    /// The modules.
    pub fn modules(&self) -> impl Iterator<Item = &'a [u8]> {
        let bytes = self.bytes;
        self.ranges().map(move |range| &bytes[range])
    }
}

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;
    use alloc::vec;
    use proptest::prelude::*;

    fn parts() -> BitcodeParts<'static> {
        BitcodeParts {
            machine: Machine::X86_64,
            payload_align_log2: 5,
            llvm: 19,
            name: "sum",
            wanted: vec!["libm.so.6", "libz.so.1"],
            modules: vec![b"BC\xc0\xde12345", b"BC\xc0\xde"],
        }
    }

    #[test]
    fn encoded_bitcode_is_read_with_all_its_parts() {
        let bytes = parts().encode().unwrap();
        let view = BitcodeView::new_checked(&bytes).unwrap();
        assert_eq!((view.machine(), view.payload_align_log2(), view.llvm()), (Machine::X86_64, 5, 19));
        assert_eq!(view.name(), "sum");
        assert_eq!(view.wanted().collect::<Vec<_>>(), parts().wanted);
        assert_eq!(view.modules().collect::<Vec<_>>(), parts().modules);
        assert!(BitcodeView::is_bitcode(&bytes) && !BitcodeView::is_bitcode(b"FJI\x02"));
    }

    #[test]
    fn every_truncation_and_one_byte_more_is_refused() {
        let bytes = parts().encode().unwrap();
        for len in 0..bytes.len() {
            assert!(BitcodeView::new_checked(&bytes[..len]).is_err(), "{len}");
        }
        let longer = [&bytes[..], &[0]].concat();
        assert!(matches!(BitcodeView::new_checked(&longer), Err(BitcodeError::Overlong { .. })));
    }

    #[test]
    fn each_bad_field_has_an_error_of_its_own() {
        let bad = |at: usize, value: u8| {
            let mut bytes = parts().encode().unwrap();
            bytes[at] = value;
            BitcodeView::new_checked(&bytes).unwrap_err()
        };
        assert_eq!(bad(0, b'X'), BitcodeError::Magic);
        assert_eq!(bad(3, 2), BitcodeError::Version(2));
        assert_eq!(bad(6, 2), BitcodeError::Abi(2));
        assert_eq!(bad(7, 0x20), BitcodeError::PayloadAlign(2));
        assert_eq!(bad(10, 1), BitcodeError::Names);
        assert_eq!(bad(11, 0), BitcodeError::Modules(0));
        assert_eq!(bad(24, b'9'), BitcodeError::Names);
        assert_eq!(bad(28, b'z'), BitcodeError::Names, "libraries out of order");
        assert_eq!(bad(30, 8), BitcodeError::Names, "no character for a terminal");
        let padding = bad(parts().encode().unwrap().len() - 5, 1);
        assert_eq!(padding, BitcodeError::Padding);
        for name in ["", "9a", "a b", &"x".repeat(256)] {
            assert_eq!(BitcodeParts { name, ..parts() }.encode(), Err(BitcodeError::Names), "{name}");
        }
        let many = BitcodeParts { modules: vec![b""; 256], ..parts() };
        assert_eq!(many.encode(), Err(BitcodeError::Modules(256)));
    }

    proptest! {
        #[test]
        fn any_bitcode_survives_encoding(
            name in "[a-z_][a-z0-9_]{0,40}",
            modules in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..70), 1..5),
            llvm: u16,
        ) {
            let slices = modules.iter().map(|module| &module[..]).collect();
            let bytes = BitcodeParts { name: &name, llvm, modules: slices, ..parts() }.encode().unwrap();
            let view = BitcodeView::new_checked(&bytes).unwrap();
            prop_assert!(view.modules().eq(modules.iter().map(|module| &module[..])));
            prop_assert_eq!((view.name().to_string(), view.llvm()), (name.clone(), llvm));
        }

        #[test]
        fn no_bytes_make_the_reader_panic(
            mut bytes in prop::collection::vec(any::<u8>(), 0..100),
            patches in prop::collection::vec((0_usize..64, any::<u8>()), 0..6),
            from_sample: bool,
        ) {
            if from_sample {
                bytes = parts().encode().unwrap();
                for (at, value) in patches {
                    bytes[at] = value;
                }
            }
            if let Ok(view) = BitcodeView::new_checked(&bytes) {
                prop_assert!(view.modules().map(<[u8]>::len).sum::<usize>() < bytes.len());
                prop_assert!(view.wanted().count() <= MAX_WANTED);
            }
        }
    }
}
