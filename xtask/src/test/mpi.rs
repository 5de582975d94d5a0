//! The MPI program over a second MPI, where the machine has Open MPI and MPICH.
//!
//! All tests together build the program with `mpicc`, or with the compiler in `MPICC`. Debian also has a name of its
//! own for the compiler of each MPI.

use std::path::PathBuf;

use farjump_tools::Tool;

use crate::fetch::packages::{self, OF_MPI, OF_MPICH, OF_OPEN_MPI};
use crate::process::{Failed, Interrupt, Run};
use crate::test::report::Tally;
use crate::test::suite::suite;
use crate::workspace::root;

/// The suite's name in counts.
pub(crate) const NAME: &str = "the MPI program over a second MPI";

/// The compiler of each MPI.
const COMPILERS: [&str; 2] = [OF_OPEN_MPI, OF_MPICH];

/// Options that keep the builds over two MPIs side by side in one target directory. Cargo separates them by
/// any difference in a profile. Only crates that depend on the MPI are built twice.
const APART: [&str; 4] = [
    "--config",
    "profile.dev.package.mpi-sys.codegen-units=15",
    "--config",
    "profile.dev.package.farjump-mpi-example.codegen-units=15",
];

/// Runs the tests of the MPI program over the MPI that the run of all tests did not use.
///
/// # Errors
/// When interrupted.
pub(crate) fn second(filters: &[String], interrupt: &Interrupt) -> Result<Tally, Failed> {
    let first = packages::mpi_compiler();
    let mut tally = Tally::default();
    let compiler = match other_than(&first) {
        Ok(compiler) => compiler,
        // The filters may choose only other tests.
        Err(_) if !filters.is_empty() => return Ok(tally),
        Err(why) => {
            tally.skipped.push((NAME.to_owned(), why));
            return Ok(tally);
        }
    };
    let run = Run::cargo(interrupt).directory(root()).env("CARGO_TERM_COLOR", "never");
    // The packages are those of the run of all tests, so that their dependencies are built alike.
    let run = run.args(["test", "--workspace", "--no-fail-fast"]).args(packages::features());
    let run = run.args(APART).args(["--test", "jobs", "--", "--show-output"]).args(filters);
    tally =
        suite(&format!("the MPI program with {compiler}"), run.env("MPICC", compiler), filters.is_empty())?;
    for failure in &mut tally.failed {
        failure.name = format!("{} ({compiler})", failure.name);
    }
    for (skipped, _) in &mut tally.skipped {
        *skipped = format!("{skipped} ({compiler})");
    }
    Ok(tally)
}

/// Returns the compiler of an MPI other than that of `first`, or why there is none.
fn other_than(first: &str) -> Result<&'static str, String> {
    packages::mpi()?;
    let own = program(first).ok_or_else(|| format!("there is no {first}"))?;
    let mut others = COMPILERS.into_iter().filter(|name| program(name).is_some_and(|path| path != own));
    let other = others.next().ok_or_else(|| {
        let [open, mpich] = COMPILERS;
        format!("there is no MPI but that of {first}: neither {open} nor {mpich} is of another one")
    })?;
    Tool::tried_on(other, OF_MPI).map(|_| other)
}

/// Returns the file of a program, without links.
fn program(name: &str) -> Option<PathBuf> {
    packages::find(name).and_then(|path| path.canonicalize().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_compiler_that_is_not_there_has_no_other() {
        let folder = tempfile::tempdir().unwrap();
        assert!(other_than(folder.path().join("mpicc").to_str().unwrap()).is_err());
        assert_eq!(program("/"), None, "a folder is no program");
    }

    #[test]
    fn the_other_mpi_is_never_the_first() {
        for first in COMPILERS {
            if let Ok(other) = other_than(first) {
                assert_ne!(program(other), program(first));
            }
        }
    }
}
