//! Every combination of features that makes sense builds, tests included, without a warning.

use crate::child::Interrupt;
use crate::ci::{Verdict, cargo};

/// Each package with its combinations. All features of farjump-ifunc and farjump-core are in the one build they have.
const COMBINATIONS: [(&str, &[&str]); 6] = [
    ("farjump", &["", "shm", "build", "shm,build"]),
    ("farjump-benches", &["", "in-process", "build"]),
    ("farjump-cli", &["", "shm", "build", "shm,build", "shm,build,iceoryx2"]),
    ("farjump-transports", &["", "shm", "tcp"]),
    ("farjump-loader", &["", "build"]),
    ("farjump-c", &["", "shm"]),
];

/// Builds them all.
pub(crate) fn check(interrupt: &Interrupt) -> Verdict {
    for (package, combinations) in COMBINATIONS {
        for features in combinations {
            let mut args = vec!["clippy", "--package", package, "--all-targets", "--no-default-features"];
            if !features.is_empty() {
                args.extend(["--features", features]);
            }
            args.extend(["--", "-D", "warnings"]);
            cargo(interrupt, &args, &[])?;
        }
    }
    Ok(())
}
