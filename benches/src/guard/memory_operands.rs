//! An instruction's accesses to memory, and their addresses for given registers.

use iced_x86::{Decoder, DecoderOptions, InstructionInfoFactory, Mnemonic, OpAccess, Register, UsedMemory};
use nix::libc::user_regs_struct;

/// Bytes in the longest instruction.
pub(crate) const LONGEST: usize = 15;

#[derive(Debug)]
pub(crate) struct Instruction {
    /// Whether it is the instruction of marks.
    pub(crate) is_mark: bool,
    /// Its loads and stores, without addresses that it only computes.
    accesses: Vec<UsedMemory>,
}

impl Instruction {
    /// Decodes the instruction at `address` from the start of `code`; `None` if there is none.
    pub(crate) fn read(
        code: &[u8],
        address: u64,
        factory: &mut InstructionInfoFactory,
    ) -> Option<Instruction> {
        let instruction = Decoder::with_ip(64, code, address, DecoderOptions::NONE).decode();
        if instruction.is_invalid() {
            return None;
        }
        let touches = |memory: &&UsedMemory| memory.access() != OpAccess::NoMemAccess;
        Some(Instruction {
            is_mark: instruction.mnemonic() == Mnemonic::Int3,
            accesses: factory.info(&instruction).used_memory().iter().filter(touches).copied().collect(),
        })
    }

    /// Returns address and length of its loads and stores with these registers. `None` for an address that
    /// depends on registers beyond those that the system reports.
    pub(crate) fn places(&self, registers: &user_regs_struct) -> impl Iterator<Item = Option<(u64, u64)>> {
        self.accesses.iter().map(|memory| {
            let address = memory.virtual_address(0, |register, _, _| value(register, registers))?;
            Some((address, memory.memory_size().size() as u64))
        })
    }
}

/// Returns the value of a register; for a segment, its base address.
fn value(register: Register, registers: &user_regs_struct) -> Option<u64> {
    let whole = match register.full_register() {
        Register::RAX => registers.rax,
        Register::RBX => registers.rbx,
        Register::RCX => registers.rcx,
        Register::RDX => registers.rdx,
        Register::RSI => registers.rsi,
        Register::RDI => registers.rdi,
        Register::RBP => registers.rbp,
        Register::RSP => registers.rsp,
        Register::R8 => registers.r8,
        Register::R9 => registers.r9,
        Register::R10 => registers.r10,
        Register::R11 => registers.r11,
        Register::R12 => registers.r12,
        Register::R13 => registers.r13,
        Register::R14 => registers.r14,
        Register::R15 => registers.r15,
        Register::FS => registers.fs_base,
        Register::GS => registers.gs_base,
        Register::CS | Register::DS | Register::ES | Register::SS => 0,
        _ => return None,
    };
    Some(match register.size() {
        4 => whole & u64::from(u32::MAX),
        _ => whole,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns address and length of the loads and stores of these bytes, decoded at 0x1000.
    fn places(code: &[u8]) -> Vec<Option<(u64, u64)>> {
        // SAFETY: `user_regs_struct` consists of integers, for which zero is valid.
        let mut registers: user_regs_struct = unsafe { std::mem::zeroed() };
        registers.rax = 0x1_0000_0040;
        registers.rcx = 3;
        registers.rsp = 0x8000;
        registers.rsi = 0x200;
        registers.rdi = 0x300;
        registers.fs_base = 0x7000;
        let mut factory = InstructionInfoFactory::new();
        let instruction = Instruction::read(code, 0x1000, &mut factory).expect("an instruction");
        instruction.places(&registers).collect()
    }

    #[test]
    fn places_are_worked_out_from_registers() {
        for (what, code, expected) in [
            ("mov [rax+rcx*8+16], rdx", &[0x48, 0x89, 0x54, 0xc8, 0x10][..], vec![(0x1_0000_0068, 8)]),
            ("mov dl, [eax]", &[0x67, 0x8a, 0x10], vec![(0x40, 1)]),
            ("mov rax, fs:[8]", &[0x64, 0x48, 0x8b, 0x04, 0x25, 8, 0, 0, 0], vec![(0x7008, 8)]),
            ("mov eax, [rip+0x10]", &[0x8b, 0x05, 0x10, 0, 0, 0], vec![(0x1016, 4)]),
            ("push rbx", &[0x53], vec![(0x7ff8, 8)]),
            ("ret", &[0xc3], vec![(0x8000, 8)]),
            ("movsb", &[0xa4], vec![(0x200, 1), (0x300, 1)]),
            ("vmovdqu64 [rax], zmm0", &[0x62, 0xf1, 0xfe, 0x48, 0x7f, 0x00], vec![(0x1_0000_0040, 64)]),
            ("lea rax, [rax+8]", &[0x48, 0x8d, 0x40, 0x08], vec![]),
            ("prefetchw [rax]", &[0x0f, 0x0d, 0x08], vec![]),
            ("nop [rax]", &[0x0f, 0x1f, 0x00], vec![]),
        ] {
            let mut found = places(code);
            found.sort();
            assert_eq!(found, expected.into_iter().map(Some).collect::<Vec<_>>(), "{what}");
        }
    }

    #[test]
    fn a_place_that_takes_a_vector_register_is_not_guessed() {
        // vpgatherdd zmm1{k1}, [rax+zmm2*4]
        assert!(places(&[0x62, 0xf2, 0x7d, 0x49, 0x90, 0x0c, 0x90]).contains(&None));
    }
}
