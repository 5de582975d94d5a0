//! Every useful combination of features builds without a warning, and so do the tests that need none.

use crate::process::Interrupt;
use crate::step::{Verdict, cargo};

/// Each package with its combinations. The workspace build covers all features of farjump-ifunc and farjump-core.
const COMBINATIONS: [(&str, &[&str]); 7] = [
    ("farjump", &["", "shm", "tcp", "ucx", "verbs", "build", "shm,tokio"]),
    ("farjump-benches", &["", "build", "shm,build,iceoryx2"]),
    ("farjump-cli", &["", "shm", "shm,build"]),
    ("farjump-control", &["", "key"]),
    ("farjump-transports", &["", "shm", "tcp"]),
    ("farjump-loader", &[""]),
    ("farjump-c", &["", "shm"]),
];

/// Packages whose tests request features of the package itself, and so hide a library without them. The lints
/// of the workspace cover these tests.
const LIBRARY_ALONE: [&str; 1] = ["farjump"];

/// Packages whose tests are linted without features, too. The tests of programs and bindings would take a sixth of
/// the whole check's time.
const WITH_TESTS: [&str; 2] = ["farjump-control", "farjump-transports"];

/// Tests of refusals by name in a build that lacks a feature. No other build has them.
const WITHOUT: [&str; 4] = ["test", "--package", "farjump-control", "--lib"];

/// Builds all combinations.
pub(crate) fn check(interrupt: &Interrupt) -> Verdict {
    for (package, combinations) in COMBINATIONS {
        for features in combinations {
            let mut args = vec!["clippy", "--package", package, "--no-default-features"];
            args.extend(match *features {
                _ if LIBRARY_ALONE.contains(&package) => &["--lib"][..],
                "" if WITH_TESTS.contains(&package) => &["--all-targets"],
                // Library and programs, as users build them. The lints of the workspace cover the tests.
                _ => &[],
            });
            if !features.is_empty() {
                args.extend(["--features", features]);
            }
            args.extend(["--", "-D", "warnings"]);
            cargo(interrupt, &args, &[])?;
        }
    }
    cargo(interrupt, &WITHOUT, &[])
}
