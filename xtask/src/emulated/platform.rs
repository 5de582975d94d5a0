//! The platforms of emulated tests: what differs between them.

/// A platform of which tests run under the emulator.
pub(super) struct Platform {
    /// The suite's name in counts.
    pub(super) suite: &'static str,
    /// The platform, as Rust, clang and Debian name it.
    pub(super) rust: &'static str,
    pub(super) clang: &'static str,
    pub(super) debian: &'static str,
    /// The emulator's program.
    pub(super) emulator: &'static str,
    /// Packages of the platform, with which programs are linked.
    pub(super) libraries: &'static [&'static str],
    /// Crates whose tests run.
    pub(super) crates: &'static [&'static str],
    /// Variables that tell the tests about the emulator.
    pub(super) variables: &'static [(&'static str, &'static str)],
}

/// The standard library of the compiler's package.
pub(super) const STANDARD_LIBRARY: &str = "libstd-rust-web-dev";

/// All of them.
pub(super) const ALL: &[Platform] = &[Platform {
    suite: "core for aarch64, emulated",
    rust: "aarch64-unknown-linux-gnu",
    clang: "aarch64-linux-gnu",
    debian: "arm64",
    emulator: "qemu-aarch64",
    libraries: &[STANDARD_LIBRARY, "libc6-dev", "libc6", "libgcc-12-dev", "libgcc-s1", "linux-libc-dev"],
    crates: &["farjump-core"],
    // The emulator runs stale code until it is told of fresh code.
    variables: &[("FARJUMP_TEST_KEEPS_STALE_CODE", "1")],
}];

impl Platform {
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
        assert_eq!(ALL[0].variable("RUNNER"), "CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER");
    }
}
