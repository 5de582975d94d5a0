//! Every useful combination of features builds without a warning, and so do the tests that need no more
//! features.

use crate::process::Interrupt;
use crate::step::{Verdict, cargo};

/// Each package with its combinations. The workspace build covers all features of farjump-ifunc, farjump-core
/// and farjump-loader.
const COMBINATIONS: [(&str, &[&str]); 7] = [
    ("farjump", &["", "shm", "tcp", "ucx", "verbs", "build", "shm,build", "shm,key", "shm,tokio"]),
    ("farjump-benches", &["", "in-process", "build"]),
    ("farjump-cli", &["", "shm", "build", "shm,build", "shm,build,iceoryx2"]),
    ("farjump-control", &["", "key"]),
    ("farjump-transports", &["", "shm", "tcp"]),
    ("farjump-loader", &[""]),
    ("farjump-c", &["", "shm"]),
];

/// Packages whose tests request features of the package itself, and so hide a library without them. The lints
/// of the workspace cover these tests.
const LIBRARY_ALONE: [&str; 1] = ["farjump"];

/// Tests of refusals by name in a build that lacks a feature. They are in no other build.
const WITHOUT: [&str; 4] = ["test", "--package", "farjump-control", "--lib"];

/// Builds them all.
pub(crate) fn check(interrupt: &Interrupt) -> Verdict {
    for (package, combinations) in COMBINATIONS {
        for features in combinations {
            let mut args = vec!["clippy", "--package", package, "--no-default-features"];
            args.push(if LIBRARY_ALONE.contains(&package) { "--lib" } else { "--all-targets" });
            if !features.is_empty() {
                args.extend(["--features", features]);
            }
            args.extend(["--", "-D", "warnings"]);
            cargo(interrupt, &args, &[])?;
        }
    }
    cargo(interrupt, &WITHOUT, &[])
}
