//! A folder to work in, and processes under a watchdog: each ends with its test, also if that is killed, or fails it after
//! some minutes.

use std::fs;
use std::ops::Deref;
use std::path::Path;
use std::process::Command;

use farjump_fixtures::helper_process::{HelperProcess, role, say};
pub(crate) use farjump_fixtures::process::{
    Done, Process, children_of, finish, kill, process_fields, quoted, runs, wait_for,
};
use farjump_fixtures::this_test;
use farjump_fixtures::workbench::is_usable;
pub(crate) use farjump_fixtures::workbench::{documented, keys, patient, start_target};

/// A folder for this package's program.
pub(crate) struct Workbench(farjump_fixtures::workbench::Workbench);

impl Workbench {
    pub(crate) fn new() -> Workbench {
        Workbench(farjump_fixtures::workbench::Workbench::new(env!("CARGO_BIN_EXE_farjump")))
    }

    /// Returns a folder, if `transport` can be used here; otherwise prints the reason.
    pub(crate) fn with_transport(transport: &str) -> Option<Workbench> {
        is_usable(transport).then(Workbench::new)
    }
}

impl Deref for Workbench {
    type Target = farjump_fixtures::workbench::Workbench;

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

/// The processes of a run of tests that is killed have only the system to end them.
#[test]
fn a_killed_run_of_tests_leaves_no_target() {
    if let [folder] = &*role() {
        let mut serve = Command::new(env!("CARGO_BIN_EXE_farjump"));
        let (target, _) = start_target(serve.args(["serve", "--listen", "unix:s"]).current_dir(folder));
        say(&target.pid().to_string());
        loop {
            std::thread::park();
        }
    }
    let bench = Workbench::new();
    let folder = bench.path("");
    let mut run = HelperProcess::of_test(this_test!(), &[folder.to_str().expect("it is text")]);
    let target = run.hear().parse().expect("a number");
    assert!(runs(target));
    run.kill();
    wait_for("the end of the target", || (!runs(target)).then_some(()));
}

/// Keeps tests with gdb and tests with perf apart, in whichever process each runs: `perf record` fails without
/// a word while gdb attaches to another process.
pub(crate) fn alone() -> fs::File {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("debuggers.lock");
    // Another user's tests may have made it: for a lock it need only be readable.
    let lock = fs::File::open(&path).or_else(|_| fs::File::create(&path)).or_else(|_| fs::File::open(&path));
    let lock = lock.expect("cargo has made the folder");
    rustix::fs::flock(&lock, rustix::fs::FlockOperation::LockExclusive).expect("a file can be locked");
    lock
}

/// Returns whether gdb could attach to a process, by its output. If not, prints the reason.
pub(crate) fn gdb_attached(said: &Done) -> bool {
    let refused =
        ["ptrace: Operation not permitted", "Could not attach"].iter().any(|no| said.err.contains(no));
    if refused {
        eprintln!("skipped: gdb may not attach here: {}", said.err.trim().replace('\n', " "));
    }
    !refused
}
