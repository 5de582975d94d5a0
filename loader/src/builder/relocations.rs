//! What differs from machine to machine when images are linked: one table for each.

use farjump_core::image::Machine;
use object::{Architecture, elf};

use super::BuildError;

/// What a dynamic relocation of a linked image means for the image.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Relocation {
    /// A GOT slot that holds a symbol's address; the addend does not count.
    Slot,
    /// A word that holds a symbol's address plus the addend.
    Address,
    /// A word that holds an address inside the image.
    Relative,
    /// Says nothing.
    Nothing,
    /// Thread-local storage.
    ThreadLocal,
    /// The address is what a resolver function answers at load time.
    Indirect,
    /// The data of a shared library's symbol is to be copied here.
    Copy,
}

/// How images are made for one machine.
#[derive(Debug)]
pub(super) struct Rules {
    pub(super) machine: Machine,
    pub(super) architecture: Architecture,
    /// The machine as linkers call it when they are asked for it with `-m`.
    pub(super) emulation: &'static str,
    /// Compiler flags that only this machine's compilers know.
    pub(super) cflags: &'static [&'static str],
    /// The least alignment at which linked code may be placed: log2 of bytes.
    pub(super) min_align_log2: u8,
    /// Length of the start of `.got.plt` that belongs to the dynamic linker, in bytes.
    pub(super) got_plt_header: u64,
    relocation_name: fn(elf::RelocationType) -> Option<&'static str>,
    /// Relocations that linkers leave in a shared object, and those that are refused by a name of their own.
    relocations: &'static [(elf::RelocationType, Relocation)],
}

/// x86-64: System V ABI, AMD64 supplement, 4.4.
static X86_64: Rules = Rules {
    machine: Machine::X86_64,
    architecture: Architecture::X86_64,
    emulation: "elf_x86_64",
    // Functions that call nothing need no frame pointer: nothing can panic inside them.
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

impl Rules {
    /// The rules for the machine that this program runs on: libraries are built where they are used as sources.
    pub(super) fn native() -> Result<&'static Rules, BuildError> {
        match Machine::native() {
            Some(Machine::X86_64) => Ok(&X86_64),
            _ => Err(BuildError::Unsupported { machine: std::env::consts::ARCH }),
        }
    }

    /// What relocations of this number mean, or `None` for those that images cannot have.
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
