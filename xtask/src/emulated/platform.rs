//! The platforms of emulated tests, with their differences.

use std::collections::BTreeSet;

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
    /// The tests that run.
    pub(super) tests: &'static [Tests],
    /// Whether the tests of later platforms start a target of this one.
    pub(super) is_third: bool,
    /// Variables that describe the emulator to the tests.
    pub(super) variables: &'static [(&'static str, &'static str)],
}

/// Tests of one crate.
pub(super) struct Tests {
    /// The crate's package.
    pub(super) package: &'static str,
    /// cargo's options for its test programs: `--lib`, and `--test` with a name each.
    pub(super) programs: &'static [&'static str],
    /// Lists of tests, or modules of them, that do not run, with the reason.
    pub(super) skipped: &'static [Skipped],
}

/// Names of tests, each with the reason why it does not run.
pub(super) type Skipped = &'static [(&'static str, &'static str)];

/// Packages with which programs are linked.
pub(super) enum Packages {
    /// Debian's packages for the platform, by Debian's name of it.
    OfPlatform { architecture: &'static str, names: &'static [&'static str] },
    /// Packages for cross compilers, if Debian does not have the platform. The folder has its libraries.
    Cross { folder: &'static str, names: &'static [&'static str] },
}

/// The source of a platform's standard library.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum StandardLibrary {
    /// One of the packages has it.
    Packaged,
    /// It is built from the compiler's sources, and kept.
    Built,
}

/// The standard library of the compiler's package.
pub(super) const STANDARD_LIBRARY: &str = "libstd-rust-web-dev";

/// The emulator runs stale code until it is notified of fresh code.
const KEEPS_STALE_CODE: (&str, &str) = ("FARJUMP_TEST_KEEPS_STALE_CODE", "1");
/// Only a new protection of the code's memory notifies it.
const PROTECTED_ANEW: (&str, &str) = ("FARJUMP_TEST_PROTECTED_ANEW", "1");

/// All platforms.
pub(super) const ALL: &[Platform] = &[
    Platform {
        suite: "aarch64, emulated",
        rust: "aarch64-unknown-linux-gnu",
        clang: "aarch64-linux-gnu",
        emulator: "qemu-aarch64",
        packages: Packages::OfPlatform {
            architecture: "arm64",
            names: &[
                STANDARD_LIBRARY,
                "libc6-dev",
                "libc6",
                "libgcc-12-dev",
                "libgcc-s1",
                "libstdc++-12-dev",
                "libstdc++6",
                "linux-libc-dev",
                // UCX, and the libraries that it links.
                "libucx0",
                "libibverbs1",
                "librdmacm1",
                "libnl-3-200",
                "libnl-route-3-200",
                "libnuma1",
                "libgomp1",
            ],
        },
        standard_library: StandardLibrary::Packaged,
        tests: AARCH64,
        is_third: true,
        variables: &[KEEPS_STALE_CODE],
    },
    Platform {
        suite: "riscv64, emulated",
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
        tests: RISCV64,
        is_third: false,
        variables: &[KEEPS_STALE_CODE, PROTECTED_ANEW],
    },
];

/// Reasons for tests that do not run under the emulator.
const NO_LIMITS: &str = "the emulator keeps no limit of the address space";
const NO_MAPS: &str = "the emulator shows its own mappings for those of the program";
const NO_FAULTS: &str = "the emulator's own page faults are counted";

const NOT_STARTED: &str = "a program that is not there ends with 127 under the emulator, as one that fails";
const NO_TRACING: &str = "the emulator does not trace processes";
const STALE_CODE: &str =
    "the emulator runs old code for new code at the same address: it ignores riscv64's flush";
const BY_A_SHELL: &str = "a shell does not start a program by way of the emulator";
const SAME_CODE: &str = "takes long under the emulator, and runs what other tests run";

/// The tests of core: of the functions that make fresh code run, of its formats, and its unit tests.
const CORE: &[&str] =
    &["--lib", "--test", "frame", "--test", "icache", "--test", "image", "--test", "signal"];
/// The builder's tests that need the platform. The others run on the machine that builds.
const BUILDER: &[&str] = &["--lib", "--test", "own_linker"];
/// Tests of the builder that the emulator does not let run, or that nothing is gained by.
const BUILDER_SKIPPED: Skipped = &[
    ("images_for_other_machines", "the compilers of these tests make code for the platform alone"),
    ("damaged_objects_are_linked_or_refused", SAME_CODE),
];
/// The loader's tests.
const LOADER: &[&str] = &["--lib", "--test", "allocations", "--test", "loading"];
/// The tests of the system's doors.
const OS: &[&str] = &["--lib", "--test", "descriptors"];
/// Tests of the loader that the emulator does not let run on any platform.
const LOADER_SKIPPED: Skipped = &[
    ("placing_and_running_waits_for_no_page", NO_FAULTS),
    ("a_forked_child_copies_code_and_statics_and_places_nothing", NO_MAPS),
    ("where_there_is_no_memory_the_error_says_so", NO_LIMITS),
    ("the_advised_limit_is_above_the_current_one", NO_LIMITS),
    ("ptrace_writes_traps_where_debuggers", NO_TRACING),
];

/// Tests of the loader that need riscv64's flush.
const LOADER_STALE_CODE: Skipped = &[
    ("calling_code_that_was_freed_ends_the_process_at_once", STALE_CODE),
    ("threads_that_share_an_arena_do_not_disturb_one_another", STALE_CODE),
    ("reused_arena_space_runs_the_new_code", STALE_CODE),
];

/// Tests of farjump-os that do not run on any platform.
const OS_SKIPPED: Skipped = &[("the_limit_of_a_real_control_group_counts", BY_A_SHELL)];

/// Tests of links that do not run on any platform.
const LINKS_SKIPPED: Skipped =
    &[("each_obstacle_leaves_the_carried_image_in_use_and_can_be_read", NOT_STARTED)];
/// Tests of links that need riscv64's flush.
const LINKS_STALE_CODE: Skipped = &[
    ("eviction::", STALE_CODE),
    ("code_evicted_by_an_own_call_is_requested_again", STALE_CODE),
    ("in_place::", STALE_CODE),
];
/// Tests of rights, waits, sessions and hostile peers.
const LINKS_SAME: Skipped = &[
    ("admin::", SAME_CODE),
    ("awaiting::", SAME_CODE),
    ("batches::", SAME_CODE),
    ("callers::", SAME_CODE),
    ("closed_libraries::", SAME_CODE),
    ("event_loop::", SAME_CODE),
    ("held_replies::", SAME_CODE),
    ("hostile_sources::", SAME_CODE),
    ("hostile_targets::", SAME_CODE),
    ("large::", SAME_CODE),
    ("libraries::", SAME_CODE),
    ("mutated_frames::", SAME_CODE),
    ("own_calls::", SAME_CODE),
    ("peer_death::", SAME_CODE),
    ("policy::", SAME_CODE),
    ("principals::", SAME_CODE),
    ("processors::", SAME_CODE),
    ("rights::", SAME_CODE),
    ("shared_waits::", SAME_CODE),
    ("sleep::", SAME_CODE),
    ("streams::", SAME_CODE),
    ("targets::", SAME_CODE),
    ("tcp_key::", SAME_CODE),
    ("typed::", SAME_CODE),
];

/// The package with a test between this machine and the platform, and its test program.
pub(super) const MACHINES: (&str, &str) = ("farjump-machines", "machines");

/// The tests for aarch64: of each crate that has code for the architecture, or relies on its guarantees. The tests of
/// two machines on the papers' interface need the C library for the platform.
const AARCH64: &[Tests] = &[
    Tests { package: "farjump-core", programs: CORE, skipped: &[] },
    Tests { package: "farjump-loader", programs: LOADER, skipped: &[LOADER_SKIPPED] },
    Tests { package: "farjump-builder", programs: BUILDER, skipped: &[BUILDER_SKIPPED] },
    Tests { package: "farjump-os", programs: OS, skipped: &[OS_SKIPPED] },
    Tests { package: "farjump", programs: &["--lib", "--test", "links"], skipped: &[LINKS_SKIPPED] },
    Tests {
        package: "farjump-transports",
        programs: &["--lib", "--test", "transports"],
        skipped: &[&[(
            "the_sender_gets_an_error_if_a_tcp_peer_dies_mid_frame",
            "UCX's endpoint times out under the emulator, before the peer ends",
        )]],
    },
    Tests { package: MACHINES.0, programs: &["--test", MACHINES.1], skipped: &[] },
];

/// The tests for riscv64: of placing code, of entering and leaving it, and of chains of machines. All other
/// work of a source and a target is the same on each architecture, and is tested for aarch64.
const RISCV64: &[Tests] = &[
    Tests { package: "farjump-core", programs: CORE, skipped: &[] },
    Tests { package: "farjump-loader", programs: LOADER, skipped: &[LOADER_SKIPPED, LOADER_STALE_CODE] },
    Tests { package: "farjump-builder", programs: BUILDER, skipped: &[BUILDER_SKIPPED] },
    Tests { package: "farjump-os", programs: OS, skipped: &[OS_SKIPPED] },
    Tests {
        package: "farjump",
        programs: &["--lib", "--test", "links"],
        skipped: &[LINKS_SKIPPED, LINKS_STALE_CODE, LINKS_SAME],
    },
];

impl Platform {
    /// The platform's architecture: the first part of its name.
    pub(super) fn architecture(&self) -> &'static str {
        self.clang.split('-').next().unwrap_or(self.clang)
    }

    /// cargo's arguments for the packages whose tests run. One command builds all of them, and each crate once: the
    /// packages that a command names decide the features of their dependencies.
    pub(super) fn packages(&self) -> impl Iterator<Item = &'static str> {
        let packages: BTreeSet<_> = self.tests.iter().map(|tests| tests.package).collect();
        packages.into_iter().flat_map(|package| ["--package", package])
    }

    /// cargo's arguments for the test programs of all of them. Each name is of one package's program; `--lib` is for
    /// all packages.
    pub(super) fn programs(&self) -> impl Iterator<Item = &'static str> {
        let words = self.tests.iter().flat_map(|tests| tests.programs).copied();
        // cargo accepts it only once.
        ["--lib"].into_iter().chain(words.filter(|word| *word != "--lib"))
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
