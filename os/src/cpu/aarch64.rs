//! Detection on aarch64, by the words that the kernel gives each process (AT_HWCAP, AT_HWCAP2).
//!
//! Bits are those of Linux (`Documentation/arch/arm64/elf_hwcaps.rst`), names of features those of gcc's and
//! clang's `-march` and names of processors those of their `-mcpu`. Numbers of implementers and parts are those
//! of MIDR_EL1, as Linux (`arch/arm64/include/asm/cputype.h`) and LLVM (`llvm/lib/TargetParser/Host.cpp`)
//! list them.

#[cfg(target_arch = "aarch64")]
use super::Found;

/// A feature's name, and the bits of AT_HWCAP and of AT_HWCAP2, all of which the feature needs.
type Feature = (&'static str, u64, u64);

const fn bits(of: &[u32]) -> u64 {
    let mut all = 0;
    let mut index = 0;
    while index < of.len() {
        all |= 1 << of[index];
        index += 1;
    }
    all
}

#[rustfmt::skip]
const FEATURES: [Feature; 41] = [
    ("fp", bits(&[0]), 0),
    ("simd", bits(&[1]), 0),
    ("aes", bits(&[3, 4]), 0),
    ("sha2", bits(&[5, 6]), 0),
    ("crc", bits(&[7]), 0),
    ("lse", bits(&[8]), 0),
    ("fp16", bits(&[9, 10]), 0),
    ("rdma", bits(&[12]), 0),
    ("jscvt", bits(&[13]), 0),
    ("fcma", bits(&[14]), 0),
    ("rcpc", bits(&[15]), 0),
    ("sha3", bits(&[17, 21]), 0),
    ("sm4", bits(&[18, 19]), 0),
    ("dotprod", bits(&[20]), 0),
    ("sve", bits(&[22]), 0),
    ("fp16fml", bits(&[23]), 0),
    ("flagm", bits(&[27]), 0),
    ("ssbs", bits(&[28]), 0),
    ("sb", bits(&[29]), 0),
    ("pauth", bits(&[30, 31]), 0),
    ("sve2", bits(&[22]), bits(&[1])),
    ("sve2-aes", bits(&[22]), bits(&[1, 2, 3])),
    ("sve2-bitperm", bits(&[22]), bits(&[1, 4])),
    ("sve2-sha3", bits(&[22]), bits(&[1, 5])),
    ("sve2-sm4", bits(&[22]), bits(&[1, 6])),
    ("sve2p1", bits(&[22]), bits(&[1, 36])),
    ("f32mm", bits(&[22]), bits(&[10])),
    ("f64mm", bits(&[22]), bits(&[11])),
    ("i8mm", 0, bits(&[13])),
    ("bf16", 0, bits(&[14])),
    ("rng", 0, bits(&[16])),
    ("bti", 0, bits(&[17])),
    ("memtag", 0, bits(&[18])),
    ("sme", 0, bits(&[23])),
    ("sme-i16i64", 0, bits(&[23, 24])),
    ("sme-f64f64", 0, bits(&[23, 25])),
    ("sme2", 0, bits(&[23, 37])),
    ("wfxt", 0, bits(&[31])),
    ("cssc", 0, bits(&[34])),
    ("mops", 0, bits(&[43])),
    ("lse128", bits(&[8]), bits(&[47])),
];

/// HWCAP_CPUID: the kernel emulates reads of the identification registers.
#[cfg(target_arch = "aarch64")]
const HWCAP_CPUID: u64 = 1 << 11;

/// Implementer, part, name.
#[rustfmt::skip]
const NAMES: [(u64, u64, &str); 51] = [
    (0x41, 0xd02, "cortex-a34"),
    (0x41, 0xd03, "cortex-a53"),
    (0x41, 0xd04, "cortex-a35"),
    (0x41, 0xd05, "cortex-a55"),
    (0x41, 0xd06, "cortex-a65"),
    (0x41, 0xd07, "cortex-a57"),
    (0x41, 0xd08, "cortex-a72"),
    (0x41, 0xd09, "cortex-a73"),
    (0x41, 0xd0a, "cortex-a75"),
    (0x41, 0xd0b, "cortex-a76"),
    (0x41, 0xd0c, "neoverse-n1"),
    (0x41, 0xd0d, "cortex-a77"),
    (0x41, 0xd0e, "cortex-a76ae"),
    (0x41, 0xd40, "neoverse-v1"),
    (0x41, 0xd41, "cortex-a78"),
    (0x41, 0xd42, "cortex-a78ae"),
    (0x41, 0xd43, "cortex-a65ae"),
    (0x41, 0xd44, "cortex-x1"),
    (0x41, 0xd46, "cortex-a510"),
    (0x41, 0xd47, "cortex-a710"),
    (0x41, 0xd48, "cortex-x2"),
    (0x41, 0xd49, "neoverse-n2"),
    (0x41, 0xd4a, "neoverse-e1"),
    (0x41, 0xd4b, "cortex-a78c"),
    (0x41, 0xd4c, "cortex-x1c"),
    (0x41, 0xd4d, "cortex-a715"),
    (0x41, 0xd4e, "cortex-x3"),
    (0x41, 0xd4f, "neoverse-v2"),
    (0x41, 0xd80, "cortex-a520"),
    (0x41, 0xd81, "cortex-a720"),
    (0x41, 0xd82, "cortex-x4"),
    (0x41, 0xd83, "neoverse-v3ae"),
    (0x41, 0xd84, "neoverse-v3"),
    (0x41, 0xd85, "cortex-x925"),
    (0x41, 0xd87, "cortex-a725"),
    (0x41, 0xd8e, "neoverse-n3"),
    (0x42, 0x516, "thunderx2t99"),
    (0x43, 0x0a1, "thunderxt88"),
    (0x43, 0x0af, "thunderx2t99"),
    (0x46, 0x001, "a64fx"),
    (0x48, 0xd01, "tsv110"),
    (0x4e, 0x004, "carmel"),
    (0x51, 0x001, "oryon-1"),
    (0x51, 0xc00, "falkor"),
    (0x51, 0xc01, "saphira"),
    (0x61, 0x022, "apple-m1"),
    (0x61, 0x023, "apple-m1"),
    (0x6d, 0xd49, "neoverse-n2"),
    (0xc0, 0xac3, "ampere1"),
    (0xc0, 0xac4, "ampere1a"),
    (0xc0, 0xac5, "ampere1b"),
];

#[cfg(target_arch = "aarch64")]
pub(super) fn look() -> Found {
    // SAFETY: getauxval(3) reads the process's own auxiliary vector, and returns 0 for an unknown entry.
    let (hwcap, hwcap2) = unsafe { (libc::getauxval(libc::AT_HWCAP), libc::getauxval(libc::AT_HWCAP2)) };
    let name = if hwcap & HWCAP_CPUID != 0 { name(midr()) } else { "" };
    Found { name, features: features(hwcap, hwcap2) }
}

/// MIDR_EL1 of the processor that this thread runs on now.
#[cfg(target_arch = "aarch64")]
fn midr() -> u64 {
    let midr;
    // SAFETY: the instruction reads a register, which the kernel emulates for processes where it says so
    // (HWCAP_CPUID, which the caller has seen).
    unsafe { std::arch::asm!("mrs {}, midr_el1", out(reg) midr, options(nomem, nostack, preserves_flags)) };
    midr
}

fn features(hwcap: u64, hwcap2: u64) -> Vec<&'static str> {
    let has = |(_, first, second): &&Feature| hwcap & first == *first && hwcap2 & second == *second;
    FEATURES.iter().filter(has).map(|(name, ..)| *name).collect()
}

/// The name of the processor with this MIDR_EL1; empty if it is in no table.
fn name(midr: u64) -> &'static str {
    let (implementer, part) = (midr >> 24 & 0xff, midr >> 4 & 0xfff);
    let named = NAMES.iter().find(|(by, number, _)| (*by, *number) == (implementer, part));
    named.map_or("", |(.., name)| name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_feature_needs_all_of_its_bits() {
        // Neoverse N1 on Linux: fp asimd evtstrm aes pmull sha1 sha2 crc32 atomics fphp asimdhp cpuid
        // asimdrdm lrcpc dcpop asimddp ssbs.
        let n1 = features(0x1011_9fff & !(1 << 13 | 1 << 14) | 1 << 15 | 1 << 12, 0);
        let expected = ["fp", "simd", "aes", "sha2", "crc", "lse", "fp16", "rdma", "rcpc", "dotprod", "ssbs"];
        assert_eq!(n1, expected);
        // AES without PMULL, and SVE2's word without SVE.
        assert_eq!(features(1 << 3, 1 << 1), [""; 0]);
        assert_eq!(features(1 << 22, 1 << 1), ["sve", "sve2"]);
    }

    #[test]
    fn processors_are_named_by_implementer_and_part() {
        let of = [0x413f_d0c1, 0x410f_d490, 0x461f_0010, 0xc00f_ac30, 0x410f_d0f0, 0x610f_d0c1, 0];
        assert_eq!(of.map(name), ["neoverse-n1", "neoverse-n2", "a64fx", "ampere1", "", "", ""]);
    }

    /// Features that neither gcc 12 nor clang 14 knows.
    const YOUNG: [&str; 10] =
        ["bti", "cssc", "fcma", "jscvt", "lse128", "sme-f64f64", "sme-i16i64", "sme2", "sve2p1", "wfxt"];

    #[test]
    fn a_compiler_takes_the_features_as_options() {
        use super::super::tests::{all_work, takes};

        // clang has other names for some of them, and knows some that gcc does not.
        if !all_work(&["aarch64-linux-gnu-gcc"]) {
            return;
        }
        let takes = |march: &str| {
            let march = format!("-march={march}");
            takes("aarch64-linux-gnu-gcc", std::slice::from_ref(&march))
                || takes("clang", &["--target=aarch64-linux-gnu".to_owned(), march])
        };
        for (feature, ..) in FEATURES {
            assert!(takes(&format!("armv8-a+{feature}")) || YOUNG.contains(&feature), "{feature}");
        }
    }

    /// A CPU's description accepts everything in the tables.
    #[test]
    fn a_cpu_description_accepts_all_features_and_each_name() {
        use farjump_core::cpu::Cpu;
        use farjump_core::image::{Level, Machine};
        let all = features(u64::MAX, u64::MAX);
        assert_eq!(all.len(), FEATURES.len());
        for (.., name) in NAMES {
            let cpu = Cpu::new(Machine::AARCH64, Level::BASELINE, name, all.clone());
            assert_eq!(cpu.unwrap().features().len(), FEATURES.len(), "{name}");
        }
    }

    #[cfg(target_arch = "aarch64")]
    #[test]
    fn the_standard_library_sees_the_same_instructions() {
        let cpu = super::super::detected();
        macro_rules! compare {
            ($($theirs:tt $ours:literal,)*) => {
                [$(($ours, std::arch::is_aarch64_feature_detected!($theirs))),*]
            };
        }
        let theirs = compare! {
            "aes" "aes", "bf16" "bf16", "bti" "bti", "crc" "crc", "dotprod" "dotprod", "f32mm" "f32mm",
            "f64mm" "f64mm", "fcma" "fcma", "fhm" "fp16fml", "flagm" "flagm", "fp" "fp", "fp16" "fp16",
            "i8mm" "i8mm", "jsconv" "jscvt", "lse" "lse", "mte" "memtag", "neon" "simd", "rand" "rng",
            "rcpc" "rcpc", "rdm" "rdma", "sb" "sb", "sha2" "sha2", "sha3" "sha3", "sm4" "sm4",
            "ssbs" "ssbs", "sve" "sve", "sve2" "sve2", "sve2-aes" "sve2-aes",
            "sve2-bitperm" "sve2-bitperm", "sve2-sha3" "sve2-sha3", "sve2-sm4" "sve2-sm4",
        };
        for (feature, theirs) in theirs {
            assert_eq!(cpu.has(feature), theirs, "{feature}");
        }
        let pauth = std::arch::is_aarch64_feature_detected!("paca")
            && std::arch::is_aarch64_feature_detected!("pacg");
        assert_eq!(cpu.has("pauth"), pauth);
    }
}
