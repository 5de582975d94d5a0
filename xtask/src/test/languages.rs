//! The tests of ifuncs in Zig and Python, whose compilers come as wheels.

use std::path::PathBuf;

use crate::fetch::wheels::Set;
use crate::process::{Failed, Interrupt};
use crate::test::programs::TestPrograms;
use crate::test::report::Tally;
use crate::test::suite::suite;

/// Zig, and Numba with its dependencies, for CPython 3.11 on 64-bit x86.
const WHEELS: Set<'_> = Set {
    what: "Zig 0.17.1 and Numba 0.68.1",
    name: "languages/1",
    pinned: &[
        ("ziglang", "0.17.1", "ea6cc5d87b033cf0aedfbc8f9549a908cae6c50ac31f1698188fa48a74524b54"),
        ("numba", "0.68.1", "58fe7a3810261cf13797d8aa94c018cfe91e1e8adf634df60eb60ef834f9367b"),
        ("llvmlite", "0.50.0", "a6ffde00d4be8772a24e3e8b3af6bf86a79e7cf066d944ef56136b3957d707dc"),
        ("numpy", "2.4.6", "89cd468399cfd2504718f0ba50e410dca55a170b61a02ad92bb18c8a65186e93"),
    ],
};

/// The minor version of CPython 3 for which [`numba`] is.
pub(crate) const PYTHON: u32 = 11;

/// The folder of the wheels, Numba among them. `Err` inside says why they are not available.
///
/// # Errors
/// When interrupted.
pub(crate) fn numba(interrupt: &Interrupt) -> Result<Result<PathBuf, String>, Failed> {
    WHEELS.folder(|_| Ok(()), interrupt)
}

/// Runs the tests with the compilers. `Err` inside says why they are not available.
///
/// # Errors
/// When interrupted, or the tests cannot be built.
pub(crate) fn check(interrupt: &Interrupt) -> Result<Result<Tally, String>, Failed> {
    let folder = match numba(interrupt)? {
        Ok(folder) => folder,
        Err(why) => return Ok(Err(why)),
    };
    let programs = TestPrograms::built_or_build(interrupt)?;
    let words = ["--show-output", "languages::"];
    let run = programs.selected(&["--test", "cli", "--test", "ucp_ifunc"]).run(&words, interrupt);
    suite("Zig and Numba", run.env("PYTHONPATH", folder).mark("languages | "), true).map(Ok)
}
