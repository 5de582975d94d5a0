//! A folder to measure in, and processes under a watchdog.

use std::fs;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::process::Command;

pub(crate) use farjump_fixtures::process::{
    Done, Process, children_of, finish, kill, process_fields, runs, wait_for,
};
use farjump_fixtures::workbench::built_beside;
pub(crate) use farjump_fixtures::workbench::{documented, keys, start_target};

/// This package's program.
/// It lies above the folder of this test. cargo's variable for it has a hyphen, which shells drop.
pub(crate) fn perf_program() -> String {
    let test = std::env::current_exe().expect("a process knows its file");
    let path = test.ancestors().nth(2).expect("cargo's folder").join("farjump-perf");
    path.into_os_string().into_string().expect("the path is text")
}

/// A folder for it, and for the program `farjump` beside it.
pub(crate) struct Workbench(farjump_fixtures::workbench::Workbench);

impl Workbench {
    pub(crate) fn new() -> Workbench {
        let farjump = Path::new(&perf_program()).with_file_name("farjump");
        Workbench(farjump_fixtures::workbench::Workbench::new(farjump))
    }

    /// Returns a command of `farjump-perf` in this folder.
    pub(crate) fn perf(&self) -> Command {
        self.program(perf_program())
    }
}

impl Deref for Workbench {
    type Target = farjump_fixtures::workbench::Workbench;

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

/// Returns whether cargo built `farjump`, too; otherwise prints the reason.
pub(crate) fn has_farjump() -> bool {
    built_beside(&perf_program(), "farjump").is_some()
}

/// Returns the program in a folder of its own, as if installed there, so that traces of other runs are not found.
pub(crate) fn installed(bench: &Workbench) -> PathBuf {
    fs::create_dir(bench.path("installed")).expect("a folder can be made");
    bench.executable("installed/farjump-perf", Path::new(&perf_program()))
}
