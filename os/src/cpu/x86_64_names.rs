//! The names of x86-64 processors in the compilers' options.
//!
//! Families and models are those of LLVM (`llvm/lib/TargetParser/Host.cpp`), Linux
//! (`arch/x86/include/asm/intel-family.h`, `arch/x86/kernel/cpu/amd.c`) and gcc
//! (`gcc/common/config/i386/cpuinfo.h`).

/// First model, last model, name.
type Models = (u32, u32, &'static str);

/// AMD's family 0x17.
const ZEN_1_2: [Models; 6] = [
    (0x00, 0x2f, "znver1"),
    (0x30, 0x4f, "znver2"),
    (0x50, 0x5f, "znver1"),
    (0x60, 0x7f, "znver2"),
    (0x84, 0x91, "znver2"),
    (0xa0, 0xaf, "znver2"),
];
/// AMD's family 0x19.
const ZEN_3_4: [Models; 4] =
    [(0x00, 0x0f, "znver3"), (0x10, 0x1f, "znver4"), (0x20, 0x5f, "znver3"), (0x60, 0xaf, "znver4")];
/// AMD's family 0x1a. The models between are later ones.
const ZEN_5: [Models; 2] = [(0x00, 0x4f, "znver5"), (0x60, 0x77, "znver5")];

/// Intel's family 6. Model 0x55 has several names.
const INTEL: [Models; 56] = [
    (0x1a, 0x1a, "nehalem"),
    (0x1e, 0x1f, "nehalem"),
    (0x25, 0x25, "westmere"),
    (0x2a, 0x2a, "sandybridge"),
    (0x2c, 0x2c, "westmere"),
    (0x2d, 0x2d, "sandybridge"),
    (0x2e, 0x2e, "nehalem"),
    (0x2f, 0x2f, "westmere"),
    (0x37, 0x37, "silvermont"),
    (0x3a, 0x3a, "ivybridge"),
    (0x3c, 0x3c, "haswell"),
    (0x3d, 0x3d, "broadwell"),
    (0x3e, 0x3e, "ivybridge"),
    (0x3f, 0x3f, "haswell"),
    (0x45, 0x46, "haswell"),
    (0x47, 0x47, "broadwell"),
    (0x4a, 0x4a, "silvermont"),
    (0x4c, 0x4d, "silvermont"),
    (0x4e, 0x4e, "skylake"),
    (0x4f, 0x4f, "broadwell"),
    (0x55, 0x55, "skylake-avx512"),
    (0x56, 0x56, "broadwell"),
    (0x5a, 0x5a, "silvermont"),
    (0x5c, 0x5c, "goldmont"),
    (0x5d, 0x5d, "silvermont"),
    (0x5e, 0x5e, "skylake"),
    (0x5f, 0x5f, "goldmont"),
    (0x66, 0x66, "cannonlake"),
    (0x6a, 0x6a, "icelake-server"),
    (0x6c, 0x6c, "icelake-server"),
    (0x7a, 0x7a, "goldmont-plus"),
    (0x7d, 0x7e, "icelake-client"),
    (0x86, 0x86, "tremont"),
    (0x8a, 0x8a, "tremont"),
    (0x8c, 0x8d, "tigerlake"),
    (0x8e, 0x8e, "skylake"),
    (0x8f, 0x8f, "sapphirerapids"),
    (0x96, 0x96, "tremont"),
    (0x97, 0x97, "alderlake"),
    (0x9a, 0x9a, "alderlake"),
    (0x9c, 0x9c, "tremont"),
    (0x9e, 0x9e, "skylake"),
    (0xa5, 0xa6, "skylake"),
    (0xa7, 0xa7, "rocketlake"),
    (0xaa, 0xaa, "meteorlake"),
    (0xac, 0xac, "meteorlake"),
    (0xad, 0xad, "graniterapids"),
    (0xae, 0xae, "graniterapids-d"),
    (0xaf, 0xaf, "sierraforest"),
    (0xb6, 0xb6, "grandridge"),
    (0xb7, 0xb7, "raptorlake"),
    (0xba, 0xba, "raptorlake"),
    (0xbd, 0xbd, "lunarlake"),
    (0xbf, 0xbf, "raptorlake"),
    (0xc5, 0xc6, "arrowlake"),
    (0xcf, 0xcf, "emeraldrapids"),
];

/// Returns the name of the processor by leaf 0 of `cpuid` (ebx, edx, ecx), register eax of its leaf 1, and its
/// features; empty if it is in no table.
pub(super) fn name(vendor: [u32; 3], signature: u32, features: &[&str]) -> &'static str {
    let vendor: Vec<u8> = vendor.into_iter().flat_map(u32::to_le_bytes).collect();
    let base = signature >> 8 & 0xf;
    let family = if base == 0xf { base + (signature >> 20 & 0xff) } else { base };
    // Both vendors have more than 16 models in the families below alone.
    let model = (signature >> 4 & 0xf) | (signature >> 12 & 0xf0);
    let models: &[Models] = match (&vendor[..], family) {
        (b"AuthenticAMD", 0x17) => &ZEN_1_2,
        (b"AuthenticAMD", 0x19) => &ZEN_3_4,
        (b"AuthenticAMD", 0x1a) => &ZEN_5,
        (b"GenuineIntel", 6) => &INTEL,
        _ => &[],
    };
    let found = models.iter().find(|(first, last, _)| (*first..=*last).contains(&model));
    match found.map_or("", |(.., name)| name) {
        "skylake-avx512" if features.contains(&"avx512bf16") => "cooperlake",
        "skylake-avx512" if features.contains(&"avx512vnni") => "cascadelake",
        name => name,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(vendor: &[u8; 12]) -> [u32; 3] {
        [0, 4, 8].map(|at| u32::from_le_bytes([vendor[at], vendor[at + 1], vendor[at + 2], vendor[at + 3]]))
    }

    /// Signatures are those that `cpuid -1` prints on such processors.
    #[test]
    fn processors_are_named_by_vendor_family_and_model() {
        let amd = |signature| name(words(b"AuthenticAMD"), signature, &[]);
        let intel = |signature, features: &[&str]| name(words(b"GenuineIntel"), signature, features);
        // EPYC 7401, EPYC 7742, Ryzen 9 5950X, EPYC 9654, Ryzen 9 7950X, EPYC 9755.
        let signatures = [0x80_0f12, 0x83_0f10, 0xa2_0f10, 0xa1_0f11, 0xa6_0f12, 0xb0_0f21];
        assert_eq!(signatures.map(amd), ["znver1", "znver2", "znver3", "znver4", "znver4", "znver5"]);
        // Xeon E5-2680 v4, Xeon 6248, Core i7-8700K, Xeon 8480+.
        assert_eq!(intel(0x4_06f1, &[]), "broadwell");
        assert_eq!(intel(0x9_06ea, &[]), "skylake");
        assert_eq!(intel(0x8_06f8, &[]), "sapphirerapids");
        assert_eq!(intel(0x5_0657, &[]), "skylake-avx512");
        assert_eq!(intel(0x5_0657, &["avx512vnni"]), "cascadelake");
        assert_eq!(intel(0x5_065b, &["avx512bf16", "avx512vnni"]), "cooperlake");
    }

    #[test]
    fn an_unknown_processor_has_no_name() {
        let unknown =
            [(b"AuthenticAMD", 0x60_0f12), (b"AuthenticAMD", 0xb5_0f00), (b"GenuineIntel", 0xf_06f0)];
        for (vendor, signature) in unknown {
            assert_eq!(name(words(vendor), signature, &[]), "", "{signature:#x}");
        }
        // An Intel signature of another vendor.
        assert_eq!(name(words(b"CentaurHauls"), 0x4_06f1, &[]), "");
    }

    #[test]
    fn ranges_of_models_do_not_overlap() {
        for models in [&ZEN_1_2[..], &ZEN_3_4, &ZEN_5, &INTEL] {
            for (first, last, name) in models {
                assert!(first <= last, "{name}");
                let same = |(from, to, _): &&Models| from <= last && first <= to;
                assert_eq!(models.iter().filter(same).count(), 1, "{name}");
            }
        }
    }
}
