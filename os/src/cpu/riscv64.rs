//! Detection on riscv64, by the system call `riscv_hwprobe`, and before Linux 6.4 by AT_HWCAP.
//!
//! Keys and bits are those of Linux (`Documentation/arch/riscv/hwprobe.rst`), names of features those of the
//! extensions in `-march`. Names of processors are not requested.

#[cfg(target_arch = "riscv64")]
use super::Found;

/// Extensions that each Linux process may count on, with the letters I, M and A.
const ALWAYS: [&str; 2] = ["zicsr", "zifencei"];

/// Letters of AT_HWCAP: bit 0 is `a`.
const LETTERS: [&str; 7] = ["i", "m", "a", "f", "d", "c", "v"];

/// Bits of the value for the key RISCV_HWPROBE_KEY_IMA_EXT_0. Bit 0 stands for both F and D.
const IMA_EXT_0: [(u32, &str); 48] = [
    (0, "f"),
    (0, "d"),
    (1, "c"),
    (2, "v"),
    (3, "zba"),
    (4, "zbb"),
    (5, "zbs"),
    (6, "zicboz"),
    (7, "zbc"),
    (8, "zbkb"),
    (9, "zbkc"),
    (10, "zbkx"),
    (11, "zknd"),
    (12, "zkne"),
    (13, "zknh"),
    (14, "zksed"),
    (15, "zksh"),
    (16, "zkt"),
    (17, "zvbb"),
    (18, "zvbc"),
    (19, "zvkb"),
    (20, "zvkg"),
    (21, "zvkned"),
    (22, "zvknha"),
    (23, "zvknhb"),
    (24, "zvksed"),
    (25, "zvksh"),
    (26, "zvkt"),
    (27, "zfh"),
    (28, "zfhmin"),
    (29, "zihintntl"),
    (30, "zvfh"),
    (31, "zvfhmin"),
    (32, "zfa"),
    (33, "ztso"),
    (34, "zacas"),
    (35, "zicond"),
    (36, "zihintpause"),
    (37, "zve32x"),
    (38, "zve32f"),
    (39, "zve64x"),
    (40, "zve64f"),
    (41, "zve64d"),
    (42, "zimop"),
    (43, "zca"),
    (44, "zcb"),
    (45, "zcd"),
    (48, "zawrs"),
];

#[cfg(target_arch = "riscv64")]
pub(super) fn look() -> Found {
    let features = match probe() {
        Some((base, extensions)) => probed(base, extensions),
        None => {
            // SAFETY: getauxval(3) reads the process's own auxiliary vector, and returns 0 for an unknown
            // entry.
            lettered(unsafe { libc::getauxval(libc::AT_HWCAP) })
        }
    };
    Found { name: "", features }
}

/// The values for the keys of the base behaviour and of its extensions, for all processors; `None` before
/// Linux 6.4.
#[cfg(target_arch = "riscv64")]
fn probe() -> Option<(u64, u64)> {
    const SYS_RISCV_HWPROBE: libc::c_long = 258;
    /// `struct riscv_hwprobe`.
    #[repr(C)]
    struct Pair {
        key: i64,
        value: u64,
    }
    const KEY_BASE_BEHAVIOR: i64 = 3;
    const KEY_IMA_EXT_0: i64 = 4;
    let mut pairs = [Pair { key: KEY_BASE_BEHAVIOR, value: 0 }, Pair { key: KEY_IMA_EXT_0, value: 0 }];
    // SAFETY: the call writes two pairs, which are local variables; no set of processors means all.
    let result = unsafe {
        libc::syscall(
            SYS_RISCV_HWPROBE,
            pairs.as_mut_ptr(),
            pairs.len(),
            0usize,
            std::ptr::null::<u8>(),
            0u32,
        )
    };
    let [base, extensions] = pairs;
    // A key that the kernel does not know becomes -1.
    let known = result == 0 && base.key == KEY_BASE_BEHAVIOR && extensions.key == KEY_IMA_EXT_0;
    known.then_some((base.value, extensions.value))
}

/// The features by `riscv_hwprobe`.
fn probed(base: u64, extensions: u64) -> Vec<&'static str> {
    // RISCV_HWPROBE_BASE_BEHAVIOR_IMA. The extensions are those of this base.
    if base & 1 == 0 {
        return Vec::new();
    }
    let has = |(bit, _): &&(u32, &str)| extensions & 1 << bit != 0;
    let extensions = IMA_EXT_0.iter().filter(has).map(|(_, name)| *name);
    ["i", "m", "a"].into_iter().chain(ALWAYS).chain(extensions).collect()
}

/// The features by AT_HWCAP.
fn lettered(hwcap: u64) -> Vec<&'static str> {
    let has = |letter: &&str| hwcap & 1 << (letter.as_bytes()[0] - b'a') != 0;
    LETTERS.into_iter().filter(has).chain(ALWAYS).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hwprobe_and_hwcap_agree_on_a_plain_processor() {
        let mut probed = probed(1, 0b11);
        let mut lettered = lettered([0, 2, 3, 5, 8, 12].map(|bit| 1 << bit).iter().sum());
        probed.sort_unstable();
        lettered.sort_unstable();
        assert_eq!(probed, ["a", "c", "d", "f", "i", "m", "zicsr", "zifencei"]);
        assert_eq!(probed, lettered);
    }

    #[test]
    fn extensions_are_detected_by_their_bits_and_only_with_the_base() {
        let base = ["i", "m", "a", "zicsr", "zifencei"];
        assert_eq!(probed(1, 1 << 2 | 1 << 35), [&base[..], &["v", "zicond"]].concat());
        assert_eq!(probed(0, u64::MAX), [""; 0]);
    }

    /// A CPU's description accepts everything in the table.
    #[test]
    fn a_cpu_description_accepts_every_feature() {
        use farjump_core::cpu::Cpu;
        use farjump_core::image::{Level, Machine};
        let all = probed(1, u64::MAX);
        let cpu = Cpu::new(Machine::RISCV, Level::BASELINE, "", all.clone()).unwrap();
        assert_eq!(cpu.features().len(), all.len());
    }
}
