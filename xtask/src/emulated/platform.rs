//! The platforms of emulated tests: what differs between them.

/// A platform of which tests run under the emulator.
pub(super) struct Platform {
    /// The suite's name in counts.
    pub(super) suite: &'static str,
    /// The platform, as Rust and clang name it.
    pub(super) rust: &'static str,
    pub(super) clang: &'static str,
    /// The emulator's program.
    pub(super) emulator: &'static str,
    /// Packages with which programs are linked.
    pub(super) packages: Packages,
    /// The source of its standard library.
    pub(super) standard_library: StandardLibrary,
    /// Crates whose tests run.
    pub(super) crates: &'static [&'static str],
    /// Variables that tell the tests about the emulator.
    pub(super) variables: &'static [(&'static str, &'static str)],
}

/// Packages with which programs are linked.
pub(super) enum Packages {
    /// Those of Debian for the platform, by Debian's name of it.
    OfPlatform { architecture: &'static str, names: &'static [&'static str] },
    /// Those for cross compilers, where Debian does not have the platform. The folder has its libraries.
    Cross { folder: &'static str, names: &'static [&'static str] },
}

/// The source of a platform's standard library.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum StandardLibrary {
    /// It is among the packages.
    Packaged,
    /// It is built from the compiler's sources, and kept.
    Built,
}

/// The standard library of the compiler's package.
pub(super) const STANDARD_LIBRARY: &str = "libstd-rust-web-dev";

/// The emulator runs stale code until it is told of fresh code.
const KEEPS_STALE_CODE: (&str, &str) = ("FARJUMP_TEST_KEEPS_STALE_CODE", "1");
/// It is told by protecting the code's memory anew, and by nothing else.
const PROTECTED_ANEW: (&str, &str) = ("FARJUMP_TEST_PROTECTED_ANEW", "1");

/// All of them.
pub(super) const ALL: &[Platform] = &[
    Platform {
        suite: "core for aarch64, emulated",
        rust: "aarch64-unknown-linux-gnu",
        clang: "aarch64-linux-gnu",
        emulator: "qemu-aarch64",
        packages: Packages::OfPlatform {
            architecture: "arm64",
            names: &[STANDARD_LIBRARY, "libc6-dev", "libc6", "libgcc-12-dev", "libgcc-s1", "linux-libc-dev"],
        },
        standard_library: StandardLibrary::Packaged,
        crates: &["farjump-core"],
        variables: &[KEEPS_STALE_CODE],
    },
    Platform {
        suite: "core for riscv64, emulated",
        rust: "riscv64gc-unknown-linux-gnu",
        clang: "riscv64-linux-gnu",
        emulator: "qemu-riscv64",
        packages: Packages::Cross {
            folder: "usr/riscv64-linux-gnu",
            names: &[
                "libc6-dev-riscv64-cross",
                "libc6-riscv64-cross",
                "libgcc-12-dev-riscv64-cross",
                "libgcc-s1-riscv64-cross",
                "linux-libc-dev-riscv64-cross",
            ],
        },
        standard_library: StandardLibrary::Built,
        crates: &["farjump-core", "farjump-os"],
        variables: &[KEEPS_STALE_CODE, PROTECTED_ANEW],
    },
];

impl Platform {
    /// Its architecture: the first part of its name.
    pub(super) fn architecture(&self) -> &'static str {
        self.clang.split('-').next().unwrap_or(self.clang)
    }

    /// Cargo's variable for a setting of the platform.
    pub(super) fn variable(&self, setting: &str) -> String {
        format!("CARGO_TARGET_{}_{setting}", self.rust.to_uppercase().replace('-', "_"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cargos_variables_name_the_platform() {
        let variables: Vec<_> = ALL.iter().map(|platform| platform.variable("RUNNER")).collect();
        assert_eq!(
            variables,
            [
                "CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER",
                "CARGO_TARGET_RISCV64GC_UNKNOWN_LINUX_GNU_RUNNER"
            ]
        );
    }
}
