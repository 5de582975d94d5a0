use std::process::Command;

use farjump_core::cpu::Cpu;
use farjump_core::image::{Level, Machine};

use super::super::detected;
use super::super::tests::takes;
use super::*;

pub(in super::super) fn all() -> Vec<&'static str> {
    FEATURES.iter().map(|(name, ..)| *name).collect()
}

#[test]
fn the_standard_library_sees_the_same_instructions() {
    let cpu = detected();
    macro_rules! compare {
        ($($theirs:tt $ours:literal,)*) => { [$(($ours, std::is_x86_feature_detected!($theirs))),*] };
    }
    let theirs = compare! {
        "adx" "adx", "aes" "aes", "avx" "avx", "avx2" "avx2", "avx512bf16" "avx512bf16",
        "avx512bitalg" "avx512bitalg", "avx512bw" "avx512bw", "avx512cd" "avx512cd",
        "avx512dq" "avx512dq", "avx512f" "avx512f", "avx512fp16" "avx512fp16",
        "avx512ifma" "avx512ifma", "avx512vbmi" "avx512vbmi", "avx512vbmi2" "avx512vbmi2",
        "avx512vl" "avx512vl", "avx512vnni" "avx512vnni", "avx512vp2intersect" "avx512vp2intersect",
        "avx512vpopcntdq" "avx512vpopcntdq", "avxifma" "avxifma", "avxneconvert" "avxneconvert",
        "avxvnni" "avxvnni", "avxvnniint16" "avxvnniint16", "avxvnniint8" "avxvnniint8",
        "bmi1" "bmi", "bmi2" "bmi2", "cmpxchg16b" "cx16", "f16c" "f16c", "fma" "fma", "fxsr" "fxsr",
        "gfni" "gfni", "kl" "kl", "lzcnt" "lzcnt", "mmx" "mmx", "movbe" "movbe", "pclmulqdq" "pclmul",
        "popcnt" "popcnt", "rdrand" "rdrnd", "rdseed" "rdseed", "rtm" "rtm", "sha" "sha",
        "sha512" "sha512", "sm3" "sm3", "sm4" "sm4", "sse" "sse", "sse2" "sse2", "sse3" "sse3",
        "sse4.1" "sse4.1", "sse4.2" "sse4.2", "sse4a" "sse4a", "ssse3" "ssse3", "tbm" "tbm",
        "vaes" "vaes", "vpclmulqdq" "vpclmulqdq", "widekl" "widekl", "xsave" "xsave",
        "xsavec" "xsavec", "xsaveopt" "xsaveopt", "xsaves" "xsaves",
    };
    for (feature, theirs) in theirs {
        assert!(all().contains(&feature), "{feature}");
        assert_eq!(cpu.has(feature), theirs, "{feature}");
    }
}

/// glibc prints `x86-64-v3 (supported, searched)` for each level whose libraries it searches.
#[test]
fn the_dynamic_linker_sees_the_same_level() {
    let output = super::super::tests::output(Command::new("/lib64/ld-linux-x86-64.so.2").arg("--help"));
    let text = output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default();
    if !text.contains("x86-64-v2") {
        return eprintln!("skipped: the dynamic linker here does not print CPU levels (glibc 2.33)");
    }
    for level in Level::all(Machine::X86_64).filter(|level| *level != Level::BASELINE) {
        let start = format!("x86-64-{level} (supported");
        let theirs = text.lines().any(|line| line.trim_start().starts_with(&start));
        assert_eq!(detected().level() >= level, theirs, "{level}");
    }
}

/// Features that gcc 12 and clang 14 do not know.
const YOUNG: [&str; 9] = [
    "avxifma",
    "avxneconvert",
    "avxvnniint16",
    "avxvnniint8",
    "cmpccxadd",
    "prefetchi",
    "sha512",
    "sm3",
    "sm4",
];

#[test]
fn compilers_take_the_features_as_options() {
    let mut tried = 0;
    for compiler in ["gcc", "clang"] {
        let takes =
            |options: Vec<String>| takes(compiler, &[vec!["-march=x86-64".to_owned()], options].concat());
        if !takes(Vec::new()) {
            continue;
        }
        tried += 1;
        let option = |feature: &str| format!("-m{feature}");
        for feature in all() {
            assert!(takes(vec![option(feature)]) || YOUNG.contains(&feature), "{compiler} -m{feature}");
        }
        let old: Vec<_> = all().into_iter().filter(|name| !YOUNG.contains(name)).map(option).collect();
        assert!(takes(old.clone()), "{compiler} {old:?}");
    }
    if tried == 0 {
        eprintln!("skipped: there is neither a gcc nor a clang for x86-64");
    }
}

/// A processor with every bit of every leaf, under a system with these components in XCR0.
fn full(xcr0: u64, hwcap2: u64) -> Vec<&'static str> {
    let every = |leaf: u32, _| match leaf {
        0 => CpuidResult { eax: 0x20, ebx: 0, ecx: 0, edx: 0 },
        0x8000_0000 => CpuidResult { eax: 0x8000_0008, ebx: 0, ecx: 0, edx: 0 },
        _ => CpuidResult { eax: !0, ebx: !0, ecx: !0, edx: !0 },
    };
    Processor { cpuid: every, xcr0: || xcr0, hwcap2 }.look().features
}

fn level_of(features: &[&str]) -> u8 {
    Cpu::level_with(Machine::X86_64, |feature| features.contains(&feature)).number()
}

#[test]
fn features_need_registers_that_the_system_saves() {
    let everything = full(0xe7, 2);
    assert_eq!((everything.len(), level_of(&everything)), (FEATURES.len(), 4));
    // x87 and SSE alone, AVX without the upper halves of AVX-512, and without its mask registers.
    for (xcr0, avx, level) in [(0x3, false, 2), (0x7, true, 3), (0x67, true, 3), (0xc7, true, 3)] {
        let features = full(xcr0, 0);
        assert!(!features.iter().any(|feature| feature.starts_with("avx512")), "{xcr0:#x}");
        for feature in ["avx", "avx2", "fma", "f16c", "vaes", "vpclmulqdq", "sha512"] {
            assert_eq!(features.contains(&feature), avx, "{feature} with {xcr0:#x}");
        }
        assert_eq!(level_of(&features), level, "{xcr0:#x}");
        assert!(["bmi2", "aes", "sha"].iter().all(|feature| features.contains(feature)));
        assert!(!features.contains(&"fsgsbase"));
    }
}

#[test]
fn a_feature_without_its_foundation_is_not_detected() {
    // A virtual machine that hides AVX2 alone: leaf 7, ebx, bit 5.
    let cpuid = |leaf: u32, _| match leaf {
        0 => CpuidResult { eax: 0x20, ebx: 0, ecx: 0, edx: 0 },
        7 => CpuidResult { eax: 1, ebx: !(1 << 5), ecx: !0, edx: !0 },
        0x8000_0000 => CpuidResult { eax: 0x8000_0008, ebx: 0, ecx: 0, edx: 0 },
        _ => CpuidResult { eax: !0, ebx: !0, ecx: !0, edx: !0 },
    };
    let features = Processor { cpuid, xcr0: || !0, hwcap2: 0 }.look().features;
    assert!(features.contains(&"avx") && features.contains(&"fma"));
    for hidden in ["avx2", "vaes", "avx512f", "avx512bw", "avx512vbmi2", "avxvnni"] {
        assert!(!features.contains(&hidden), "{hidden}");
    }
    assert_eq!(level_of(&features), 2);
}

#[test]
fn leaves_behind_the_last_one_are_not_read() {
    let cpuid = |leaf: u32, subleaf: u32| match (leaf, subleaf) {
        (0, _) => CpuidResult { eax: 1, ebx: 0, ecx: 0, edx: 0 },
        (0x8000_0000, _) => CpuidResult { eax: 0, ebx: 0, ecx: 0, edx: 0 },
        (1, _) => CpuidResult { eax: 0, ebx: 0, ecx: 0, edx: 0x0780_0000 },
        leaf => panic!("leaf {leaf:?}"),
    };
    let xcr0 = || panic!("xgetbv is not enabled");
    let found = Processor { cpuid, xcr0, hwcap2: 0 }.look();
    assert_eq!(found.features, ["mmx", "fxsr", "sse", "sse2"]);
}

#[test]
fn features_come_behind_those_that_they_need() {
    for (index, (name, _, _, needs)) in FEATURES.iter().enumerate() {
        let before = &all()[..index];
        assert!(needs.iter().all(|need| before.contains(need)), "{name}");
        assert!(!before.contains(name), "{name} is there twice");
    }
    let cpu = Cpu::new(Machine::X86_64, Level::BASELINE, "", all()).unwrap();
    assert_eq!(cpu.features().len(), FEATURES.len());
    let highest = Level::all(Machine::X86_64).last().unwrap();
    for feature in Cpu::of_level(Machine::X86_64, highest).features() {
        assert!(cpu.has(feature), "{feature} is not looked for");
    }
}
