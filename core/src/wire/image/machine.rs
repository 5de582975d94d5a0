//! Machines, by their ELF numbers.

use core::fmt;

/// An instruction set, by its ELF `e_machine` number (System V gABI, chapter 4).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Machine(pub u16);

impl Machine {
    /// x86-64, `EM_X86_64`.
    pub const X86_64: Machine = Machine(62);
    /// 64-bit Arm, `EM_AARCH64`.
    pub const AARCH64: Machine = Machine(183);
    /// 64-bit RISC-V, `EM_RISCV`.
    pub const RISCV: Machine = Machine(243);

    /// The machine that this program was compiled for; `None` if farjump has no name for it, or if its words
    /// are not 64 bits long and little-endian.
    pub const fn native() -> Option<Machine> {
        if cfg!(not(all(target_endian = "little", target_pointer_width = "64"))) {
            None
        } else if cfg!(target_arch = "x86_64") {
            Some(Machine::X86_64)
        } else if cfg!(target_arch = "aarch64") {
            Some(Machine::AARCH64)
        } else if cfg!(target_arch = "riscv64") {
            Some(Machine::RISCV)
        } else {
            None
        }
    }

    /// Returns whether farjump has a name for it. Words of these machines are 64 bits long and little-endian.
    pub const fn is_known(self) -> bool {
        matches!(self, Machine::X86_64 | Machine::AARCH64 | Machine::RISCV)
    }

    /// The compilers' target triple of this machine, on Linux with glibc.
    pub const fn triple(self) -> &'static str {
        match self {
            Machine::X86_64 => "x86_64-unknown-linux-gnu",
            Machine::AARCH64 => "aarch64-unknown-linux-gnu",
            Machine::RISCV => "riscv64gc-unknown-linux-gnu",
            Machine(_) => "unknown",
        }
    }
}

impl fmt::Display for Machine {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.is_known() {
            true => out.write_str(self.triple()),
            false => write!(out, "machine {}", self.0),
        }
    }
}
