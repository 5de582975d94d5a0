//! No part needs UCX: on this machine with UCX hidden, the crate that binds it builds, and farjump passes its tests
//! and works.
//!
//! Every command of this step runs in a [view](crate::view) of this machine without UCX's files: library, modules,
//! headers, descriptions for other build systems. So no process of the step finds UCX: not cargo, not a test, not a
//! program that a test starts. Programs and tests are those of an earlier build: a program that was linked with UCX
//! would not start here.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::fetch::packages;
use crate::process::{Ended, Failed, Interrupt, Run, cargo};
use crate::test::programs::TestPrograms;
use crate::test::report::{Tally, shown_lines};
use crate::view::View;
use crate::workspace::{Workspace, root};

/// Limit for building, or testing.
const LIMIT: Duration = Duration::from_secs(15 * 60);
/// Builds the crate that binds UCX once more. No other crate uses UCX, and no build script looks for it elsewhere:
/// only the guard and the MPI program have one. Cargo keeps builds apart by any difference in a profile; no other
/// step uses this one.
const BINDING: [&str; 5] = [
    "check",
    "--package",
    "farjump-ucx-sys",
    "--config",
    "profile.dev.package.farjump-ucx-sys.codegen-units=15",
];
/// The folders of packages whose units use UCX, or its absence.
const PACKAGES: [&str; 6] = ["benches", "c", "cli", "farjump", "transports", "transports/ucx-sys"];
/// Their tests, except those of the transports and of the program. Those run without UCX in one of the
/// [places](crate::test::places). Unrelated tests run with all the others.
const TESTS: [&str; 6] = ["--lib", "--bins", "--test", "bindings", "--test", "ucx"];
/// Arguments of the tests.
const WORDS: [&str; 1] = ["--show-output"];
/// Words of the message for missing UCX: the missing library, and the package that has it.
const SAID: [&str; 3] =
    ["UCX is not installed", "libucp.so.0: cannot open shared object file", "package libucx0"];

/// Tests and uses farjump without UCX, and builds its binding. `Err` inside says why UCX cannot be hidden here.
pub(crate) fn check(interrupt: &Interrupt) -> Result<Result<Tally, String>, Failed> {
    if let Some(why) = View::obstacle(interrupt)? {
        return Ok(Err(why));
    }
    let programs = TestPrograms::built_or_build(interrupt)?;
    let target = Workspace::load(false, interrupt)?.target();
    let files = files_of_ucx(&target, interrupt)?;
    let view = View::new("without UCX", interrupt)?.without(&files);
    let run = |program: &Path, args: &[&str]| view.run(program, args).directory(root()).limit(LIMIT);
    say!("taken away: {}", files.iter().map(|file| file.display().to_string()).collect::<Vec<_>>().join(" "));

    let begun = Instant::now();
    let binding = run(Path::new(&cargo()), &BINDING).env("CARGO_TERM_QUIET", "true");
    succeeded(&binding.run()?, "cargo")?;
    let program = programs.program("farjump")?;
    let shown = run(&program, &["transports"]).run()?;
    succeeded(&shown, "farjump transports")?;
    if let Some(left_out) = SAID.iter().find(|said| !shown.output.contains(**said)) {
        return Err(Failed::Because(format!("`farjump transports` does not say `{left_out}`")));
    }
    succeeded(&run(&program, &["demo"]).run()?, "farjump demo")?;
    let asked = run(&program, &["serve", "--listen", "unix:unused", "--transport", "ucx-am"]).run()?;
    if asked.status.success() || !SAID.iter().all(|said| asked.output.contains(said)) {
        return Err(Failed::Because(
            "`farjump serve --transport ucx-am` does not fail with the reason".to_owned(),
        ));
    }

    let tests = run(Path::new(TestPrograms::RUNNER), &TestPrograms::args(&WORDS)).shown_as(TESTS.join(" "));
    let ended = programs
        .of(&PACKAGES)
        .selected(&TESTS)
        .passed_to(tests)
        .showing(shown_lines(!packages::in_ci()))
        .run()?;
    let mut tally = Tally::read(&ended.output);
    tally.took("without UCX", begun.elapsed());
    if !ended.status.success() && tally.failed.is_empty() {
        tally.fail_with(format!("the tests failed ({}) without naming one", ended.status), ended.output);
    }
    say!("\n{}{tally}", tally.names());
    is_taken_away(&mut tally);
    Ok(Ok(tally))
}

/// Adds a failure if none of these tests was skipped for lack of UCX.
pub(crate) fn is_taken_away(tally: &mut Tally) {
    let names_ucx = |reason: &str| SAID.iter().all(|said| reason.contains(said));
    let count = tally.skipped.iter().filter(|(_, reason)| names_ucx(reason)).count();
    say!("{count} tests were skipped because there is no UCX");
    if count == 0 {
        tally.fail("no test was skipped because UCX is not there: was it taken away?");
    }
}

/// # Errors
/// When the program failed. Its output was shown.
fn succeeded(ended: &Ended, what: &str) -> Result<(), Failed> {
    match ended.status.success() {
        true => Ok(()),
        false => Err(Failed::Because(format!("{what} failed without UCX ({})", ended.status))),
    }
}

/// UCX's files in the folders of libraries and headers. Cargo adds folders below `target` to the path of libraries.
/// This project built the files in those, such as the test program `ucx`.
pub(crate) fn files_of_ucx(target: &Path, interrupt: &Interrupt) -> Result<Vec<PathBuf>, Failed> {
    // Not every user has ldconfig in the path.
    let cache =
        Run::new("sh", interrupt).args(["-c", "PATH=$PATH:/sbin:/usr/sbin ldconfig -p"]).quiet().run()?;
    succeeded(&cache, "ldconfig -p")?;
    let cached = cache.output.lines().filter_map(|line| Path::new(line.split_once(" => ")?.1).parent());
    let named = std::env::var_os("LD_LIBRARY_PATH").unwrap_or_default();
    let usual = ["/usr/include", "/usr/local/include", "/usr/local/lib"].map(PathBuf::from);
    let libraries: BTreeSet<_> = cached.map(Path::to_owned).chain(std::env::split_paths(&named)).collect();
    let beside = libraries.iter().map(|folder| folder.join("pkgconfig"));
    // One folder may have several names (`/lib` and `/usr/lib`); missing ones have no files.
    let folders: BTreeSet<_> = usual
        .into_iter()
        .chain(beside)
        .chain(libraries.clone())
        .filter(|folder| !folder.starts_with(target))
        .filter_map(|folder| folder.canonicalize().ok())
        .collect();
    let entries = folders.iter().filter_map(|folder| fs::read_dir(folder).ok()).flatten().flatten();
    Ok(entries
        .filter(|entry| entry.file_name().to_str().is_some_and(is_of_ucx))
        .map(|entry| entry.path())
        .collect())
}

/// Returns whether a file or folder with this name, in a folder of libraries, headers or descriptions of packages,
/// belongs to UCX.
fn is_of_ucx(name: &str) -> bool {
    let own = ["ucm", "ucp", "ucs", "ucs_signal", "uct", "ucx"];
    let stem = name.split(['.', '-']).next().unwrap_or(name);
    own.contains(&stem) || stem.strip_prefix("lib").is_some_and(|stem| own.contains(&stem))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_names_of_ucx_are_recognized_and_similar_ones_are_not() {
        for name in ["libucp.so.0", "libucs_signal.so.0.0.0", "libuct.a", "ucx", "ucp", "ucx-cma.pc"] {
            assert!(is_of_ucx(name), "{name}");
        }
        for name in ["libuchardet.so.0", "libucpp.so.13", "ucontext.h", "libxucx.so", "lib"] {
            assert!(!is_of_ucx(name), "{name}");
        }
    }
}
