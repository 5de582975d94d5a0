//! The relocations of objects, machine by machine: the source of each value, and the field for its bits.

use farjump_core::image::Machine;
use object::elf::{self, RelocationType};

/// The source of a relocation's value, besides the addend.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Value {
    /// The address of the symbol, which the image must have.
    Symbol,
    /// The address of the symbol, or of a stub that jumps to it.
    Call,
    /// The address of a GOT slot with the address of the symbol.
    Slot,
    /// The address of the symbol, known when the image is placed.
    Absolute,
    /// The value of the relocation at the symbol, which is the upper half of an address.
    Half,
    /// None: a mark for linkers.
    Mark,
}

/// The field that takes a value, and the origin of the value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Field {
    /// A word of so many bytes.
    Word(usize),
    /// A word with the distance from its place.
    Distance(usize),
    /// A word with the distance from the GOT's start.
    FromGot,
    /// aarch64: `adr`.
    Adr,
    /// aarch64: `adrp`.
    Page,
    /// aarch64: the address in its page, in units of this power of two.
    InPage(u32),
    /// aarch64: a distance in words, in so many bits from this one on.
    Words {
        bits: u32,
        from: u32,
    },
    /// riscv64: the upper half of a distance.
    High,
    /// riscv64: the lower half of a distance, of an instruction that loads or adds.
    LowLoad,
    /// riscv64: the lower half of a distance, of an instruction that stores.
    LowStore,
    /// riscv64: both halves, in two instructions.
    Pair,
    /// riscv64: the distance of a branch, of a jump, and of their short forms.
    Branch,
    Jump,
    ShortBranch,
    ShortJump,
    /// riscv64: the value is added to, subtracted from or put into a word of so many bytes.
    Add(usize),
    Subtract(usize),
    Put(usize),
    /// riscv64: the lower six bits of a byte.
    SubtractSix,
    PutSix,
    /// riscv64: the value is put into or subtracted from a number in LEB128, whose length stays.
    PutLeb,
    SubtractLeb,
    /// None.
    Nothing,
}

/// The rules for the objects of one machine.
#[derive(Debug)]
pub(super) struct Table {
    pub(super) machine: Machine,
    /// Relocations of a shared object for a word with the address of a symbol, and for an address inside the object.
    pub(super) word: RelocationType,
    pub(super) relative: RelocationType,
    meanings: &'static [(RelocationType, Value, Field)],
    /// Relocations of code that is not position-independent.
    fixed: &'static [RelocationType],
    /// Length of a stub, in bytes.
    pub(super) stub_len: u64,
    /// The file's flags.
    pub(super) flags: elf::FileFlags,
}

/// Source: System V ABI, AMD64 supplement, 4.4.1.
static X86_64: Table = Table {
    machine: Machine::X86_64,
    word: elf::R_X86_64_64,
    relative: elf::R_X86_64_RELATIVE,
    meanings: &[
        (elf::R_X86_64_NONE, Value::Mark, Field::Nothing),
        (elf::R_X86_64_64, Value::Absolute, Field::Word(8)),
        (elf::R_X86_64_PC64, Value::Symbol, Field::Distance(8)),
        (elf::R_X86_64_PC32, Value::Symbol, Field::Distance(4)),
        (elf::R_X86_64_PC16, Value::Symbol, Field::Distance(2)),
        (elf::R_X86_64_PC8, Value::Symbol, Field::Distance(1)),
        (elf::R_X86_64_PLT32, Value::Call, Field::Distance(4)),
        (elf::R_X86_64_GOTPCREL, Value::Slot, Field::Distance(4)),
        (elf::R_X86_64_GOTPCRELX, Value::Slot, Field::Distance(4)),
        (elf::R_X86_64_REX_GOTPCRELX, Value::Slot, Field::Distance(4)),
        (elf::R_X86_64_GOTPC32, Value::Symbol, Field::Distance(4)),
        // The large model.
        (elf::R_X86_64_GOTPCREL64, Value::Slot, Field::Distance(8)),
        (elf::R_X86_64_GOTPC64, Value::Symbol, Field::Distance(8)),
        (elf::R_X86_64_GOTOFF64, Value::Symbol, Field::FromGot),
        (elf::R_X86_64_GOT64, Value::Slot, Field::FromGot),
        (elf::R_X86_64_PLTOFF64, Value::Call, Field::FromGot),
    ],
    fixed: &[elf::R_X86_64_32, elf::R_X86_64_32S, elf::R_X86_64_16, elf::R_X86_64_8],
    stub_len: 8,
    flags: elf::FileFlags(0),
};

/// Source: ELF for the Arm 64-bit Architecture (AAELF64), 5.7.
static AARCH64: Table = Table {
    machine: Machine::AARCH64,
    word: elf::R_AARCH64_ABS64,
    relative: elf::R_AARCH64_RELATIVE,
    meanings: &[
        (elf::R_AARCH64_NONE, Value::Mark, Field::Nothing),
        (elf::R_AARCH64_ABS64, Value::Absolute, Field::Word(8)),
        (elf::R_AARCH64_PREL64, Value::Symbol, Field::Distance(8)),
        (elf::R_AARCH64_PREL32, Value::Symbol, Field::Distance(4)),
        (elf::R_AARCH64_PREL16, Value::Symbol, Field::Distance(2)),
        (elf::R_AARCH64_PLT32, Value::Call, Field::Distance(4)),
        (elf::R_AARCH64_ADR_PREL_LO21, Value::Symbol, Field::Adr),
        (elf::R_AARCH64_LD_PREL_LO19, Value::Symbol, Field::Words { bits: 19, from: 5 }),
        (elf::R_AARCH64_CONDBR19, Value::Call, Field::Words { bits: 19, from: 5 }),
        (elf::R_AARCH64_TSTBR14, Value::Call, Field::Words { bits: 14, from: 5 }),
        (elf::R_AARCH64_JUMP26, Value::Call, Field::Words { bits: 26, from: 0 }),
        (elf::R_AARCH64_CALL26, Value::Call, Field::Words { bits: 26, from: 0 }),
        (elf::R_AARCH64_GOT_LD_PREL19, Value::Slot, Field::Words { bits: 19, from: 5 }),
        (elf::R_AARCH64_ADR_PREL_PG_HI21, Value::Symbol, Field::Page),
        (elf::R_AARCH64_ADD_ABS_LO12_NC, Value::Symbol, Field::InPage(0)),
        (elf::R_AARCH64_LDST8_ABS_LO12_NC, Value::Symbol, Field::InPage(0)),
        (elf::R_AARCH64_LDST16_ABS_LO12_NC, Value::Symbol, Field::InPage(1)),
        (elf::R_AARCH64_LDST32_ABS_LO12_NC, Value::Symbol, Field::InPage(2)),
        (elf::R_AARCH64_LDST64_ABS_LO12_NC, Value::Symbol, Field::InPage(3)),
        (elf::R_AARCH64_LDST128_ABS_LO12_NC, Value::Symbol, Field::InPage(4)),
        (elf::R_AARCH64_ADR_GOT_PAGE, Value::Slot, Field::Page),
        (elf::R_AARCH64_LD64_GOT_LO12_NC, Value::Slot, Field::InPage(3)),
    ],
    fixed: &[
        elf::R_AARCH64_ABS32,
        elf::R_AARCH64_ABS16,
        elf::R_AARCH64_MOVW_UABS_G0,
        elf::R_AARCH64_MOVW_UABS_G0_NC,
        elf::R_AARCH64_MOVW_UABS_G1,
        elf::R_AARCH64_MOVW_UABS_G1_NC,
        elf::R_AARCH64_MOVW_UABS_G2,
        elf::R_AARCH64_MOVW_UABS_G2_NC,
        elf::R_AARCH64_MOVW_UABS_G3,
    ],
    stub_len: 8,
    flags: elf::FileFlags(0),
};

/// Source: RISC-V ELF psABI, "Relocations".
static RISCV: Table = Table {
    machine: Machine::RISCV,
    word: elf::R_RISCV_64,
    relative: elf::R_RISCV_RELATIVE,
    meanings: &[
        (elf::R_RISCV_NONE, Value::Mark, Field::Nothing),
        (elf::R_RISCV_RELAX, Value::Mark, Field::Nothing),
        (elf::R_RISCV_ALIGN, Value::Mark, Field::Nothing),
        (elf::R_RISCV_64, Value::Absolute, Field::Word(8)),
        (elf::R_RISCV_32_PCREL, Value::Symbol, Field::Distance(4)),
        (elf::R_RISCV_PLT32, Value::Call, Field::Distance(4)),
        (elf::R_RISCV_GOT32_PCREL, Value::Slot, Field::Distance(4)),
        (elf::R_RISCV_BRANCH, Value::Symbol, Field::Branch),
        (elf::R_RISCV_JAL, Value::Call, Field::Jump),
        (elf::R_RISCV_RVC_BRANCH, Value::Symbol, Field::ShortBranch),
        (elf::R_RISCV_RVC_JUMP, Value::Symbol, Field::ShortJump),
        (elf::R_RISCV_CALL, Value::Call, Field::Pair),
        (elf::R_RISCV_CALL_PLT, Value::Call, Field::Pair),
        (elf::R_RISCV_GOT_HI20, Value::Slot, Field::High),
        (elf::R_RISCV_PCREL_HI20, Value::Symbol, Field::High),
        (elf::R_RISCV_PCREL_LO12_I, Value::Half, Field::LowLoad),
        (elf::R_RISCV_PCREL_LO12_S, Value::Half, Field::LowStore),
        (elf::R_RISCV_ADD8, Value::Symbol, Field::Add(1)),
        (elf::R_RISCV_ADD16, Value::Symbol, Field::Add(2)),
        (elf::R_RISCV_ADD32, Value::Symbol, Field::Add(4)),
        (elf::R_RISCV_ADD64, Value::Symbol, Field::Add(8)),
        (elf::R_RISCV_SUB8, Value::Symbol, Field::Subtract(1)),
        (elf::R_RISCV_SUB16, Value::Symbol, Field::Subtract(2)),
        (elf::R_RISCV_SUB32, Value::Symbol, Field::Subtract(4)),
        (elf::R_RISCV_SUB64, Value::Symbol, Field::Subtract(8)),
        (elf::R_RISCV_SET8, Value::Symbol, Field::Put(1)),
        (elf::R_RISCV_SET16, Value::Symbol, Field::Put(2)),
        (elf::R_RISCV_SET32, Value::Symbol, Field::Put(4)),
        (elf::R_RISCV_SUB6, Value::Symbol, Field::SubtractSix),
        (elf::R_RISCV_SET6, Value::Symbol, Field::PutSix),
        (elf::R_RISCV_SET_ULEB128, Value::Symbol, Field::PutLeb),
        (elf::R_RISCV_SUB_ULEB128, Value::Symbol, Field::SubtractLeb),
    ],
    fixed: &[
        elf::R_RISCV_32,
        elf::R_RISCV_HI20,
        elf::R_RISCV_LO12_I,
        elf::R_RISCV_LO12_S,
        elf::R_RISCV_RVC_LUI,
    ],
    stub_len: 16,
    flags: elf::FileFlags(elf::EF_RISCV_RVC.0 | elf::EF_RISCV_FLOAT_ABI_DOUBLE.0),
};

/// The reason why a relocation has no meaning here.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Refusal {
    /// Its code is not position-independent.
    Fixed,
    /// It is unknown.
    Unknown,
}

impl Table {
    /// The rules for a machine; `None` if there are none.
    pub(super) fn of(machine: Machine) -> Option<&'static Table> {
        [&X86_64, &AARCH64, &RISCV].into_iter().find(|table| table.machine == machine)
    }

    /// The meaning of a relocation.
    ///
    /// # Errors
    /// It has none in an image.
    pub(super) fn meaning(&self, number: RelocationType) -> Result<(Value, Field), Refusal> {
        match self.meanings.iter().find(|(known, ..)| *known == number) {
            Some(&(_, value, field)) => Ok((value, field)),
            None if self.fixed.contains(&number) => Err(Refusal::Fixed),
            None => Err(Refusal::Unknown),
        }
    }

    /// Returns whether a relocation only marks something for linkers.
    pub(super) fn is_mark(&self, number: RelocationType) -> bool {
        self.meaning(number) == Ok((Value::Mark, Field::Nothing))
    }

    /// The relocation's meaning in debugging information, where addresses of other sections are words of any length.
    pub(super) fn meaning_in_debug_info(&self, number: RelocationType) -> Option<Field> {
        match number {
            elf::R_X86_64_32 if self.machine == Machine::X86_64 => Some(Field::Word(4)),
            elf::R_AARCH64_ABS32 if self.machine == Machine::AARCH64 => Some(Field::Word(4)),
            elf::R_RISCV_32 if self.machine == Machine::RISCV => Some(Field::Word(4)),
            _ => self.meaning(number).ok().map(|(_, field)| field),
        }
    }

    /// The code at `address` that jumps to the address in `slot`; `None` if that is too far away.
    pub(super) fn stub(&self, address: u64, slot: u64) -> Option<Vec<u8>> {
        let distance = slot.wrapping_sub(address) as i64;
        let mut code = Vec::new();
        match self.machine {
            Machine::X86_64 => {
                // jmp *slot(%rip); xchg %ax, %ax
                code.extend([0xff, 0x25]);
                code.extend(i32::try_from(distance - 6).ok()?.to_le_bytes());
                code.extend([0x66, 0x90]);
            }
            Machine::AARCH64 => {
                // ldr x16, slot; br x16. Their reach is that of the tiny model, at any alignment.
                let words = distance >> 2;
                (-(1 << 18)..1 << 18).contains(&words).then_some(())?;
                code.extend((0x5800_0010 | ((words as u32) & 0x7_ffff) << 5).to_le_bytes());
                code.extend(0xd61f_0200_u32.to_le_bytes());
            }
            _ => {
                // auipc t3, high; ld t3, low(t3); jr t3; nop
                let high = (distance + 0x800) >> 12;
                (-(1 << 19)..1 << 19).contains(&high).then_some(())?;
                code.extend((0x0000_0e17 | (high as u32) << 12).to_le_bytes());
                code.extend((0x000e_3e03 | (distance as u32 & 0xfff) << 20).to_le_bytes());
                code.extend(0x000e_0067_u32.to_le_bytes());
                code.extend(0x0000_0013_u32.to_le_bytes());
            }
        }
        Some(code)
    }
}
