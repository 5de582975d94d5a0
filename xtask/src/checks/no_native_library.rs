//! No crate in the program with `shm` alone links a native library, except for code that the crate includes and
//! compiles. The program with all transports needs none to start: it loads UCX and verbs at run time.
//!
//! Build scripts run in the check of combinations of features, which builds that program and the library.

use crate::process::{Failed, Interrupt, Run};
use crate::step::Verdict;
use crate::workspace::{Workspace, built_as_for_tests, crate_tree};

/// Libraries that any Rust program on Linux with glibc may need at run time.
const SYSTEM: [&str; 7] = [
    "libc.so.6",
    "libgcc_s.so.1",
    "libm.so.6",
    "libdl.so.2",
    "libpthread.so.0",
    "librt.so.1",
    "ld-linux-x86-64.so.2",
];

/// Crates that declare a library which is their own code: they need only a C compiler.
const OWN_CODE: [&str; 1] = ["ring"];

const PROGRAM: [&str; 5] = ["--package", "farjump-cli", "--no-default-features", "--features", "shm"];

/// Checks that no crate in the smallest program links a library. Then reads the libraries that the full program
/// needs, which the step before has built to install it.
pub(crate) fn check(interrupt: &Interrupt) -> Verdict {
    let workspace = Workspace::load(false, interrupt)?;
    let tree = [&PROGRAM[..], &["--edges", "normal,build"]].concat();
    let tree = crate_tree(&tree, "farjump-transports", interrupt)?;
    let used: Vec<_> = tree.iter().filter_map(|line| line.split_whitespace().next()).collect();
    for package in workspace.packages().filter(|package| used.contains(&package.name())) {
        if OWN_CODE.contains(&package.name()) {
            continue;
        }
        // A crate can declare a name only to be unique, as rayon-core does; this program has no such crate.
        if let Some(library) = package.links() {
            return Err(Failed::Because(format!("{} links the native library {library}", package.name())));
        }
    }

    let program = built_as_for_tests(&["--bin", "farjump"], interrupt)?.program("farjump")?;
    let ended = Run::new("readelf", interrupt).args(["-d"]).args([&program]).quiet().run()?;
    let needed: Vec<_> = ended.output.lines().filter_map(library).collect();
    if !needed.contains(&"libc.so.6") {
        return Err(Failed::Because(format!("readelf does not show what it needs:\n{}", ended.output)));
    }
    say!("farjump needs {}", needed.join(", "));
    match needed.iter().find(|name| !SYSTEM.contains(name)) {
        None => Ok(()),
        Some(other) => Err(Failed::Because(format!("farjump needs {other} at run time"))),
    }
}

/// The library in a line `0x… (NEEDED)  Shared library: [libc.so.6]` of readelf.
fn library(line: &str) -> Option<&str> {
    line.split_once("(NEEDED)")?.1.split_once('[')?.1.split(']').next()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn needed_libraries_are_read_from_readelf() {
        let line = " 0x0000000000000001 (NEEDED)             Shared library: [libc.so.6]";
        assert_eq!(library(line), Some("libc.so.6"));
        assert_eq!(library(" 0x000000000000000e (SONAME)  Library soname: [x.so]"), None);
    }
}
