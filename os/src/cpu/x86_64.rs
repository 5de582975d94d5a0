//! Detection on x86-64, by `cpuid` and `xgetbv`.
//!
//! Bits and conditions are those of the Intel manual (volume 2A, CPUID; volume 1, 13.3 and 14.3) and of AMD's
//! (volume 3, appendix E). The names of features are those of gcc's and clang's `-m` options.

use core::arch::x86_64::{__cpuid_count, _xgetbv, CpuidResult};

use super::Found;
use super::x86_64_names::name;

/// A leaf and subleaf of `cpuid` that is read.
#[derive(Clone, Copy)]
enum Leaf {
    /// 1
    Basic,
    /// 7, 0
    Extended,
    /// 7, 1
    Extended1,
    /// 0xd, 1
    Saving,
    /// 0x19
    KeyLocker,
    /// 0x8000_0001
    Amd,
    /// 0x8000_0008
    Amd8,
}
use Leaf::*;

#[derive(Clone, Copy)]
enum Register {
    Eax,
    Ebx,
    Ecx,
    Edx,
}
use Register::*;

/// The system's part, without which a process may not use a feature.
#[derive(Clone, Copy)]
enum System {
    /// Nothing, or `cpuid` reports whether the system did it.
    Nothing,
    /// Save registers by `xsave`, whichever the system chose.
    Saves,
    /// Save the registers of AVX.
    SavesAvx,
    /// Save the registers of AVX-512.
    SavesAvx512,
    /// Allow the instructions that read and write the bases of the segments fs and gs.
    AllowsBases,
}
use System::*;

/// A feature: its name, its bit in `cpuid`, the system's part, and the features that compilers assume with
/// it. A virtual machine may hide one of those and not the feature itself.
type Feature = (&'static str, (Leaf, Register, u32), System, &'static [&'static str]);

/// Features come behind those that they need. Features that no compiler option names are left out. So are
/// those that a process cannot use, or only on request to the system (AMX, SGX, user interrupts, shadow
/// stacks).
#[rustfmt::skip]
const FEATURES: [Feature; 78] = [
    ("mmx", (Basic, Edx, 23), Nothing, &[]),
    ("fxsr", (Basic, Edx, 24), Nothing, &[]),
    ("sse", (Basic, Edx, 25), Nothing, &[]),
    ("sse2", (Basic, Edx, 26), Nothing, &["sse"]),
    ("sse3", (Basic, Ecx, 0), Nothing, &["sse2"]),
    ("pclmul", (Basic, Ecx, 1), Nothing, &["sse2"]),
    ("ssse3", (Basic, Ecx, 9), Nothing, &["sse3"]),
    ("cx16", (Basic, Ecx, 13), Nothing, &[]),
    ("sse4.1", (Basic, Ecx, 19), Nothing, &["ssse3"]),
    ("sse4.2", (Basic, Ecx, 20), Nothing, &["sse4.1"]),
    ("movbe", (Basic, Ecx, 22), Nothing, &[]),
    ("popcnt", (Basic, Ecx, 23), Nothing, &[]),
    ("aes", (Basic, Ecx, 25), Nothing, &["sse2"]),
    ("xsave", (Basic, Ecx, 26), Saves, &[]),
    ("avx", (Basic, Ecx, 28), SavesAvx, &["sse4.2", "xsave"]),
    ("fma", (Basic, Ecx, 12), SavesAvx, &["avx"]),
    ("f16c", (Basic, Ecx, 29), SavesAvx, &["avx"]),
    ("rdrnd", (Basic, Ecx, 30), Nothing, &[]),

    ("sahf", (Amd, Ecx, 0), Nothing, &[]),
    ("lzcnt", (Amd, Ecx, 5), Nothing, &[]),
    ("sse4a", (Amd, Ecx, 6), Nothing, &["sse3"]),
    ("prfchw", (Amd, Ecx, 8), Nothing, &[]),
    ("lwp", (Amd, Ecx, 15), Saves, &[]),
    ("fma4", (Amd, Ecx, 16), SavesAvx, &["avx", "sse4a"]),
    ("xop", (Amd, Ecx, 11), SavesAvx, &["fma4"]),
    ("tbm", (Amd, Ecx, 21), Nothing, &[]),
    ("mwaitx", (Amd, Ecx, 29), Nothing, &[]),
    ("clzero", (Amd8, Ebx, 0), Nothing, &[]),

    ("fsgsbase", (Extended, Ebx, 0), AllowsBases, &[]),
    ("bmi", (Extended, Ebx, 3), Nothing, &[]),
    ("avx2", (Extended, Ebx, 5), SavesAvx, &["avx"]),
    ("bmi2", (Extended, Ebx, 8), Nothing, &[]),
    ("rtm", (Extended, Ebx, 11), Nothing, &[]),
    ("rdseed", (Extended, Ebx, 18), Nothing, &[]),
    ("adx", (Extended, Ebx, 19), Nothing, &[]),
    ("clflushopt", (Extended, Ebx, 23), Nothing, &[]),
    ("clwb", (Extended, Ebx, 24), Nothing, &[]),
    ("sha", (Extended, Ebx, 29), Nothing, &["sse2"]),
    ("pku", (Extended, Ecx, 4), Nothing, &[]),
    ("waitpkg", (Extended, Ecx, 5), Nothing, &[]),
    ("gfni", (Extended, Ecx, 8), Nothing, &["sse2"]),
    ("vaes", (Extended, Ecx, 9), SavesAvx, &["aes", "avx2"]),
    ("vpclmulqdq", (Extended, Ecx, 10), SavesAvx, &["avx2", "pclmul"]),
    ("rdpid", (Extended, Ecx, 22), Nothing, &[]),
    ("kl", (KeyLocker, Ebx, 0), Nothing, &["sse2"]),
    ("widekl", (KeyLocker, Ebx, 2), Nothing, &["kl"]),
    ("cldemote", (Extended, Ecx, 25), Nothing, &[]),
    ("movdiri", (Extended, Ecx, 27), Nothing, &[]),
    ("movdir64b", (Extended, Ecx, 28), Nothing, &[]),
    ("serialize", (Extended, Edx, 14), Nothing, &[]),
    ("tsxldtrk", (Extended, Edx, 16), Nothing, &[]),

    ("avx512f", (Extended, Ebx, 16), SavesAvx512, &["avx2", "f16c", "fma"]),
    ("avx512dq", (Extended, Ebx, 17), SavesAvx512, &["avx512f"]),
    ("avx512ifma", (Extended, Ebx, 21), SavesAvx512, &["avx512f"]),
    ("avx512cd", (Extended, Ebx, 28), SavesAvx512, &["avx512f"]),
    ("avx512bw", (Extended, Ebx, 30), SavesAvx512, &["avx512f"]),
    ("avx512vl", (Extended, Ebx, 31), SavesAvx512, &["avx512f"]),
    ("avx512vbmi", (Extended, Ecx, 1), SavesAvx512, &["avx512bw"]),
    ("avx512vbmi2", (Extended, Ecx, 6), SavesAvx512, &["avx512bw"]),
    ("avx512vnni", (Extended, Ecx, 11), SavesAvx512, &["avx512f"]),
    ("avx512bitalg", (Extended, Ecx, 12), SavesAvx512, &["avx512bw"]),
    ("avx512vpopcntdq", (Extended, Ecx, 14), SavesAvx512, &["avx512f"]),
    ("avx512vp2intersect", (Extended, Edx, 8), SavesAvx512, &["avx512dq"]),
    ("avx512fp16", (Extended, Edx, 23), SavesAvx512, &["avx512bw", "avx512dq", "avx512vl"]),
    ("avx512bf16", (Extended1, Eax, 5), SavesAvx512, &["avx512bw"]),

    ("sha512", (Extended1, Eax, 0), SavesAvx, &["avx2"]),
    ("sm3", (Extended1, Eax, 1), SavesAvx, &["avx"]),
    ("sm4", (Extended1, Eax, 2), SavesAvx, &["avx2"]),
    ("avxvnni", (Extended1, Eax, 4), SavesAvx, &["avx2"]),
    ("cmpccxadd", (Extended1, Eax, 7), Nothing, &[]),
    ("avxifma", (Extended1, Eax, 23), SavesAvx, &["avx2"]),
    ("avxvnniint8", (Extended1, Edx, 4), SavesAvx, &["avx2"]),
    ("avxneconvert", (Extended1, Edx, 5), SavesAvx, &["avx2"]),
    ("avxvnniint16", (Extended1, Edx, 10), SavesAvx, &["avx2"]),
    ("prefetchi", (Extended1, Edx, 14), Nothing, &[]),

    ("xsaveopt", (Saving, Eax, 0), Saves, &["xsave"]),
    ("xsavec", (Saving, Eax, 1), Saves, &["xsave"]),
    ("xsaves", (Saving, Eax, 3), Saves, &["xsave"]),
];

/// A view of the processor. Tests make others up.
struct Processor<C: Fn(u32, u32) -> CpuidResult, X: Fn() -> u64> {
    /// `cpuid` of a leaf and subleaf.
    cpuid: C,
    /// XCR0, if the system has enabled `xgetbv`.
    xcr0: X,
    /// AT_HWCAP2 of the process.
    hwcap2: u64,
}

pub(super) fn look() -> Found {
    Processor { cpuid, xcr0, hwcap2: hwcap2() }.look()
}

impl<C: Fn(u32, u32) -> CpuidResult, X: Fn() -> u64> Processor<C, X> {
    fn look(&self) -> Found {
        let vendor = (self.cpuid)(0, 0);
        let (most, most_amd) = (vendor.eax, (self.cpuid)(0x8000_0000, 0).eax);
        const NONE: CpuidResult = CpuidResult { eax: 0, ebx: 0, ecx: 0, edx: 0 };
        let at = |leaf: u32, subleaf: u32, most: u32| {
            // Leaves behind the last one return the contents of other leaves.
            if leaf <= most { (self.cpuid)(leaf, subleaf) } else { NONE }
        };
        let basic = at(1, 0, most);
        let extended = at(7, 0, most);
        let extended1 = if extended.eax >= 1 { at(7, 1, most) } else { NONE };
        // The system has enabled xgetbv, and saves the registers that xgetbv names.
        let saves = basic.ecx & 1 << 27 != 0;
        let save_leaf = if saves { at(0xd, 1, most) } else { NONE };
        let key_locker = if extended.ecx & 1 << 23 != 0 { at(0x19, 0, most) } else { NONE };
        let amd = at(0x8000_0001, 0, most_amd);
        let amd8 = at(0x8000_0008, 0, most_amd);
        let saved = if saves { (self.xcr0)() } else { 0 };

        let mut features: Vec<&'static str> = Vec::new();
        for (feature, (leaf, register, bit), system, needs) in FEATURES {
            let leaf = match leaf {
                Basic => basic,
                Extended => extended,
                Extended1 => extended1,
                Saving => save_leaf,
                KeyLocker => key_locker,
                Amd => amd,
                Amd8 => amd8,
            };
            let register = match register {
                Eax => leaf.eax,
                Ebx => leaf.ebx,
                Ecx => leaf.ecx,
                Edx => leaf.edx,
            };
            let all_of = |components: u64| saved & components == components;
            let allowed = match system {
                Nothing => true,
                Saves => saves,
                SavesAvx => all_of(0x6),
                SavesAvx512 => all_of(0xe6),
                AllowsBases => self.hwcap2 & 2 != 0,
            };
            if register & 1 << bit != 0 && allowed && needs.iter().all(|need| features.contains(need)) {
                features.push(feature);
            }
        }
        let vendor = [vendor.ebx, vendor.edx, vendor.ecx];
        Found { name: name(vendor, basic.eax, &features), features }
    }
}

#[allow(unused_unsafe, reason = "the function is unsafe in older compilers")]
fn cpuid(leaf: u32, subleaf: u32) -> CpuidResult {
    // SAFETY: each processor of this architecture has the instruction.
    unsafe { __cpuid_count(leaf, subleaf) }
}

fn xcr0() -> u64 {
    #[target_feature(enable = "xsave")]
    fn read() -> u64 {
        // SAFETY: the intrinsic needs the target feature alone, which this function has; register 0 exists
        // with that feature.
        #[allow(unused_unsafe, reason = "the function is unsafe in older compilers")]
        unsafe {
            _xgetbv(0)
        }
    }
    // SAFETY: the caller has seen in `cpuid` (OSXSAVE) that processor and system have enabled the
    // instruction.
    unsafe { read() }
}

fn hwcap2() -> u64 {
    // SAFETY: getauxval(3) reads the process's own auxiliary vector, and returns 0 for an unknown entry.
    unsafe { libc::getauxval(libc::AT_HWCAP2) }
}

#[cfg(test)]
#[path = "x86_64_tests.rs"]
pub(super) mod tests;
