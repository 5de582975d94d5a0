//! The differences between machines in linking images: one table for each.

use farjump_core::image::Machine;
use object::{Architecture, elf};

use super::BuildError;

/// The meaning of a dynamic relocation of a linked image.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Relocation {
    /// A GOT slot that holds a symbol's address; the addend is ignored.
    Slot,
    /// A word that holds a symbol's address plus the addend.
    Address,
    /// A word that holds an address inside the image.
    Relative,
    /// No effect.
    Nothing,
    /// Thread-local storage.
    ThreadLocal,
    /// An address that a resolver function returns at load time.
    Indirect,
    /// A copy of the data of a shared library's symbol.
    Copy,
}

/// The rules for images of one machine.
#[derive(Debug)]
pub(super) struct Rules {
    pub(super) machine: Machine,
    pub(super) architecture: Architecture,
    /// The linkers' name of the machine, for `-m`.
    pub(super) emulation: &'static str,
    /// Compiler flags specific to this machine.
    pub(super) cflags: &'static [&'static str],
    /// The least alignment of linked code: log2 of bytes.
    pub(super) min_align_log2: u8,
    /// Length of the start of `.got.plt` that belongs to the dynamic linker, in bytes.
    pub(super) got_plt_header: u64,
    relocation_name: fn(elf::RelocationType) -> Option<&'static str>,
    /// Relocations that linkers leave in a shared object, and those with a refusal of their own.
    relocations: &'static [(elf::RelocationType, Relocation)],
}

/// x86-64: System V ABI, AMD64 supplement, 4.4.
static X86_64: Rules = Rules {
    machine: Machine::X86_64,
    architecture: Architecture::X86_64,
    emulation: "elf_x86_64",
    // Leaf functions need no frame pointer: nothing can panic inside them.
    cflags: &["-fcf-protection=none", "-momit-leaf-frame-pointer"],
    min_align_log2: 0,
    got_plt_header: 24,
    relocation_name: |number| elf::NAMES_R_X86_64.name(number),
    relocations: &[
        (elf::R_X86_64_NONE, Relocation::Nothing),
        (elf::R_X86_64_GLOB_DAT, Relocation::Slot),
        (elf::R_X86_64_JUMP_SLOT, Relocation::Slot),
        (elf::R_X86_64_64, Relocation::Address),
        (elf::R_X86_64_RELATIVE, Relocation::Relative),
        (elf::R_X86_64_DTPMOD64, Relocation::ThreadLocal),
        (elf::R_X86_64_DTPOFF64, Relocation::ThreadLocal),
        (elf::R_X86_64_TPOFF64, Relocation::ThreadLocal),
        (elf::R_X86_64_TLSDESC, Relocation::ThreadLocal),
        (elf::R_X86_64_IRELATIVE, Relocation::Indirect),
        (elf::R_X86_64_COPY, Relocation::Copy),
    ],
};

/// aarch64: ELF for the Arm 64-bit Architecture, 5.7.
static AARCH64: Rules = Rules {
    machine: Machine::AARCH64,
    architecture: Architecture::Aarch64,
    emulation: "aarch64linux",
    // Without outline atomics: they are functions of the compiler's support routines, called by way of a PLT.
    cflags: &["-mbranch-protection=none", "-momit-leaf-frame-pointer", "-mno-outline-atomics"],
    min_align_log2: 2,
    got_plt_header: 24,
    relocation_name: |number| elf::NAMES_R_AARCH64.name(number),
    relocations: &[
        (elf::R_AARCH64_NONE, Relocation::Nothing),
        (elf::R_AARCH64_GLOB_DAT, Relocation::Slot),
        (elf::R_AARCH64_JUMP_SLOT, Relocation::Slot),
        (elf::R_AARCH64_ABS64, Relocation::Address),
        (elf::R_AARCH64_RELATIVE, Relocation::Relative),
        (elf::R_AARCH64_TLS_DTPMOD, Relocation::ThreadLocal),
        (elf::R_AARCH64_TLS_DTPREL, Relocation::ThreadLocal),
        (elf::R_AARCH64_TLS_TPREL, Relocation::ThreadLocal),
        (elf::R_AARCH64_TLSDESC, Relocation::ThreadLocal),
        (elf::R_AARCH64_IRELATIVE, Relocation::Indirect),
        (elf::R_AARCH64_COPY, Relocation::Copy),
    ],
};

impl Rules {
    /// The rules for the machine that this program runs on: sources build the libraries that they use.
    pub(super) fn native() -> Result<&'static Rules, BuildError> {
        match Machine::native() {
            Some(Machine::X86_64) => Ok(&X86_64),
            Some(Machine::AARCH64) => Ok(&AARCH64),
            _ => Err(BuildError::Unsupported { machine: std::env::consts::ARCH }),
        }
    }

    /// The meaning of relocations with this number; `None` for those that images do not support.
    pub(super) fn relocation(&self, number: elf::RelocationType) -> Option<Relocation> {
        self.relocations.iter().find(|(known, _)| *known == number).map(|&(_, meaning)| meaning)
    }

    /// Name and number of a relocation, for messages.
    pub(super) fn relocation_name(&self, number: elf::RelocationType) -> String {
        match (self.relocation_name)(number) {
            Some(name) => format!("{name} ({})", number.0),
            None => format!("number {}", number.0),
        }
    }

    /// Whether an ELF file's machine number is this machine's.
    pub(super) fn is_machine(&self, number: elf::Machine) -> bool {
        self.machine == Machine(number.0)
    }
}
