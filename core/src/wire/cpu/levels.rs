//! The features that each CPU level guarantees.

use crate::image::{Level, Machine};

/// A level's number, and the features that it has and all lower levels do not.
type Step = (u8, &'static [&'static str]);

/// System V psABI for x86-64, table 3.1, without those that no compiler option names (CMOV, CX8, FPU, SCE).
/// Its OSXSAVE means that the system saves the registers of AVX: the compilers say `xsave` and `avx`.
const X86_64: [Step; 4] = [
    (0, &["fxsr", "mmx", "sse", "sse2"]),
    (2, &["cx16", "popcnt", "sahf", "sse3", "sse4.1", "sse4.2", "ssse3"]),
    (3, &["avx", "avx2", "bmi", "bmi2", "f16c", "fma", "lzcnt", "movbe", "xsave"]),
    (4, &["avx512bw", "avx512cd", "avx512dq", "avx512f", "avx512vl"]),
];
/// Armv8-A with what its AArch64 procedure call standard needs.
const AARCH64: [Step; 1] = [(0, &["fp", "simd"])];
/// RV64GC, as in its triple.
const RISCV: [Step; 1] = [(0, &["a", "c", "d", "f", "i", "m", "zicsr", "zifencei"])];

/// Returns the features of `level` and of all lower levels of `machine`. A machine without a name has none.
pub(super) fn features(machine: Machine, level: Level) -> impl Iterator<Item = &'static str> {
    let steps: &[Step] = match machine {
        Machine::X86_64 => &X86_64,
        Machine::AARCH64 => &AARCH64,
        Machine::RISCV => &RISCV,
        Machine(_) => &[],
    };
    let reached = steps.iter().take_while(move |(number, _)| *number <= level.number());
    reached.flat_map(|(_, features)| features.iter().copied())
}
