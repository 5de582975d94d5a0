//! Programs that valgrind runs.

use std::process::Command;

use farjump_tools::all_work;

use crate::installation::ifuncs;
use crate::programs::{Linkage, Process, compile};

/// Reports that are none of farjump's, each with its reason.
const SUPPRESSED: &str =
    concat!("--suppressions=", env!("CARGO_MANIFEST_DIR"), "/tests/installed/valgrind.supp");
/// The exit code of valgrind for an error that it found.
const FOUND: &str = "--error-exitcode=99";

#[test]
fn a_target_and_a_link_run_clean_in_valgrind() {
    if !all_work(&["valgrind"]) || !Linkage::Shared.is_open() {
        return;
    }
    let folder = farjump_fixtures::folder();
    let program = compile("watched", Linkage::Shared, folder.path());
    let mut valgrind = Command::new("valgrind");
    // Injected code lies in a file's memory, where valgrind takes code for unchanging by itself.
    valgrind.args(["-q", FOUND, "--smc-check=all", "--leak-check=full"]);
    // Valgrind reports all memory of a thread that is not joined as possibly lost.
    valgrind.args(["--errors-for-leak-kinds=definite,possible", "--show-leak-kinds=definite,possible"]);
    // Names of functions as the linker has them, which the suppressions use.
    valgrind.args(["--read-inline-info=no", SUPPRESSED]);
    valgrind.arg(&program).arg(ifuncs()).arg(folder.path());
    let done = Process::start(&mut valgrind).finish();
    assert_eq!((done.code, done.text()), (0, "all is as it should be\n"), "{}", done.err);
}
