//! The differences between machines in compiling and linking images: one table for each.

use farjump_core::image::Machine;
use object::write::Object;
use object::{Architecture, BinaryFormat, Endianness, FileFlags, elf};

use crate::error::BuildError;

/// The meaning of a dynamic relocation of a linked image.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Relocation {
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

/// A code model: the flags that state the distance between parts of an image.
#[derive(Debug)]
pub(crate) struct CodeModel {
    /// Flags for C and C++.
    pub(crate) cflags: &'static [&'static str],
    /// Flags for rustc.
    pub(crate) rustflags: &'static [&'static str],
}

/// The rules for images of one machine.
#[derive(Debug)]
pub(crate) struct Rules {
    pub(crate) machine: Machine,
    architecture: Architecture,
    /// The flags with which objects can be linked with those of a library (`e_flags`).
    object_flags: elf::FileFlags,
    /// The triple by which clang, zig and the names of GNU tools know the machine.
    pub(crate) gnu_triple: &'static str,
    /// The linkers' name of the machine, for `-m`.
    pub(crate) emulation: &'static str,
    /// Compiler flags specific to this machine.
    pub(crate) cflags: &'static [&'static str],
    /// Flags that state the baseline of the triple, for compilers with other defaults.
    pub(crate) baseline: &'static [&'static str],
    /// The code models to try, the one that makes the best code first.
    pub(crate) models: &'static [CodeModel],
    /// The least alignment of linked code: log2 of bytes.
    pub(crate) min_align_log2: u8,
    /// Length of the start of `.got.plt` that belongs to the dynamic linker, in bytes.
    pub(crate) got_plt_header: u64,
    /// Debian's packages with a compiler for this machine, and with the C library's headers for it.
    pub(crate) packages: [&'static str; 2],
    relocation_name: fn(elf::RelocationType) -> Option<&'static str>,
    /// Relocations that linkers leave in a shared object, and those with a specific refusal.
    relocations: &'static [(elf::RelocationType, Relocation)],
    /// The relocation of an object for a word that holds an absolute address.
    absolute: elf::RelocationType,
}

/// x86-64: System V ABI, AMD64 supplement, 4.4.
static X86_64: Rules = Rules {
    machine: Machine::X86_64,
    architecture: Architecture::X86_64,
    object_flags: elf::FileFlags(0),
    gnu_triple: "x86_64-linux-gnu",
    emulation: "elf_x86_64",
    // Leaf functions need no frame pointer: nothing can panic inside them.
    cflags: &["-fcf-protection=none", "-momit-leaf-frame-pointer"],
    baseline: &[],
    models: &[CodeModel { cflags: &[], rustflags: &[] }],
    min_align_log2: 0,
    got_plt_header: 24,
    packages: ["gcc-x86-64-linux-gnu", "libc6-dev-amd64-cross"],
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
    absolute: elf::R_X86_64_64,
};

/// aarch64: ELF for the Arm 64-bit Architecture (AAELF64), 5.7.
static AARCH64: Rules = Rules {
    machine: Machine::AARCH64,
    architecture: Architecture::Aarch64,
    object_flags: elf::FileFlags(0),
    gnu_triple: "aarch64-linux-gnu",
    emulation: "aarch64linux",
    // Out-of-line atomics call functions of the compiler's library, which a constructor sets up.
    cflags: &["-mno-outline-atomics", "-mbranch-protection=none", "-momit-leaf-frame-pointer"],
    baseline: &[],
    // The tiny model reaches everything within a mebibyte, at any alignment, but no statics, which are a gigabyte away.
    // The small model reaches statics, by pages.
    models: &[
        CodeModel { cflags: &["-mcmodel=tiny"], rustflags: &["-C", "code-model=tiny"] },
        CodeModel { cflags: &["-mcmodel=small"], rustflags: &["-C", "code-model=small"] },
    ],
    // Linkers' stubs and pairs of words that one instruction loads require this alignment.
    min_align_log2: 4,
    got_plt_header: 24,
    packages: ["gcc-aarch64-linux-gnu", "libc6-dev-arm64-cross"],
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
    absolute: elf::R_AARCH64_ABS64,
};

/// riscv64: RISC-V ELF psABI, "Relocations".
static RISCV: Rules = Rules {
    machine: Machine::RISCV,
    architecture: Architecture::Riscv64,
    object_flags: elf::EF_RISCV_FLOAT_ABI_DOUBLE,
    gnu_triple: "riscv64-linux-gnu",
    emulation: "elf64lriscv",
    cflags: &[],
    baseline: &["-march=rv64gc", "-mabi=lp64d"],
    models: &[CodeModel { cflags: &["-mcmodel=medany"], rustflags: &["-C", "code-model=medium"] }],
    min_align_log2: 1,
    got_plt_header: 16,
    packages: ["gcc-riscv64-linux-gnu", "libc6-dev-riscv64-cross"],
    relocation_name: |number| elf::NAMES_R_RISCV.name(number),
    relocations: &[
        (elf::R_RISCV_NONE, Relocation::Nothing),
        (elf::R_RISCV_64, Relocation::Address),
        (elf::R_RISCV_JUMP_SLOT, Relocation::Slot),
        (elf::R_RISCV_RELATIVE, Relocation::Relative),
        (elf::R_RISCV_TLS_DTPMOD64, Relocation::ThreadLocal),
        (elf::R_RISCV_TLS_DTPREL64, Relocation::ThreadLocal),
        (elf::R_RISCV_TLS_TPREL64, Relocation::ThreadLocal),
        (elf::R_RISCV_TLSDESC, Relocation::ThreadLocal),
        (elf::R_RISCV_IRELATIVE, Relocation::Indirect),
        (elf::R_RISCV_COPY, Relocation::Copy),
    ],
    absolute: elf::R_RISCV_64,
};

impl Rules {
    /// The rules for the machine that this program runs on: sources build the libraries that they use.
    pub(crate) fn native() -> Result<&'static Rules, BuildError> {
        let unsupported = BuildError::Unsupported { machine: std::env::consts::ARCH };
        Machine::native().and_then(Rules::of).ok_or(unsupported)
    }

    /// The rules for `machine`; `None` if images for it cannot be built.
    pub(crate) fn of(machine: Machine) -> Option<&'static Rules> {
        [&X86_64, &AARCH64, &RISCV].into_iter().find(|rules| rules.machine == machine)
    }

    /// An empty object file for this machine.
    pub(crate) fn object(&self) -> Object<'static> {
        let mut object = Object::new(BinaryFormat::Elf, self.architecture, Endianness::Little);
        object.flags =
            FileFlags::Elf { os_abi: elf::ELFOSABI_NONE, abi_version: 0, e_flags: self.object_flags };
        object
    }

    /// Returns whether this program runs on the machine of these rules.
    pub(crate) fn is_native(&self) -> bool {
        Machine::native() == Some(self.machine)
    }

    /// The meaning of relocations with this number; `None` for those that images do not support.
    pub(crate) fn relocation(&self, number: elf::RelocationType) -> Option<Relocation> {
        self.relocations.iter().find(|(known, _)| *known == number).map(|&(_, meaning)| meaning)
    }

    /// Name and number of a relocation, for messages.
    pub(crate) fn relocation_name(&self, number: elf::RelocationType) -> String {
        match (self.relocation_name)(number) {
            Some(name) => format!("{name} ({})", number.0),
            None => format!("number {}", number.0),
        }
    }

    /// Returns whether an ELF file's machine number is this machine's.
    pub(crate) fn is_machine(&self, number: elf::Machine) -> bool {
        self.machine == Machine(number.0)
    }
}

/// Returns whether the objects of some machine have this relocation for a word that holds an absolute address.
pub(crate) fn is_absolute(machine: Machine, relocation: elf::RelocationType) -> bool {
    Rules::of(machine).is_some_and(|rules| rules.absolute == relocation)
}
