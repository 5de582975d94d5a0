//! The tests of races under ThreadSanitizer. Unchanged, they must show no race; with each race planted, it must be
//! found.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

use crate::process::{Failed, Interrupt, Run, variable};
use crate::test::report::{Tally, Took};
use crate::test::suite::{LIMIT, suite};
use crate::workspace::{Workspace, root};

/// The suite's name in counts.
const NAME: &str = "tests of races (ThreadSanitizer)";
/// The platform. cargo gets its name, so that it builds build scripts and macros without the sanitizer.
const PLATFORM: &str = "x86_64-unknown-linux-gnu";
/// The races: a relaxed store hands over in place of a release.
const PLANTED: [&str; 3] = ["frame", "credit", "notice"];
/// ThreadSanitizer's message for a race.
const FOUND: &str = "WARNING: ThreadSanitizer: data race";
/// False reports to suppress if the locks of the standard library are not instrumented. They are in libtest itself,
/// and in the queue of descriptors that a thread of the process closes. The link's own accesses are in neither.
const SUPPRESSIONS: &str = "race:CompletedTest\nrace:farjump_os::deferred_close\n";

/// The compiler of the tests.
enum Compiler {
    /// A nightly with the source of the standard library, which is instrumented, too.
    Nightly,
    /// The compiler of this program, made to accept options of nightlies. Its standard library is not instrumented:
    /// the tests synchronize their threads by atomics of their own and by `join`.
    Own,
}

/// Runs the tests, or reports why they cannot run.
///
/// # Errors
/// When interrupted, or cargo cannot be run.
pub(crate) fn all(interrupt: &Interrupt) -> Result<Tally, Failed> {
    let mut tally = Tally::default();
    let compiler = match compiler(interrupt)? {
        Ok(compiler) => compiler,
        Err(why) => {
            tally.skipped.push((NAME.to_owned(), why));
            return Ok(tally);
        }
    };
    let target = Workspace::load(false, interrupt)?.target().join("tsan");
    let suppressions = target.join("suppressions");
    fs::create_dir_all(&target)
        .and_then(|()| {
            fs::write(&suppressions, if matches!(compiler, Compiler::Own) { SUPPRESSIONS } else { "" })
        })
        .map_err(|error| Failed::Because(format!("writing {}: {error}", suppressions.display())))?;
    let options = format!("exitcode=66 halt_on_error=1 suppressions=\"{}\"", suppressions.display());
    let cargo = || {
        let mut flags = "-Zsanitizer=thread --cfg farjump_planted".to_owned();
        let run = match compiler {
            Compiler::Nightly => {
                Run::new("rustup", interrupt).args(["run", "nightly", "cargo", "test", "-Zbuild-std"])
            }
            Compiler::Own => {
                flags.push_str(" -Cunsafe-allow-abi-mismatch=sanitizer");
                Run::cargo(interrupt).args(["test"]).env("RUSTC_BOOTSTRAP", "1")
            }
        };
        run.args(["--package", "farjump-races", "--target", PLATFORM])
            .args(["--", "--show-output", "--test-threads=1"])
            .directory(root())
            .limit(LIMIT)
            .env("CARGO_TERM_COLOR", "never")
            .env("CARGO_TARGET_DIR", &target)
            .env("RUSTFLAGS", flags)
            .env("TSAN_OPTIONS", &options)
    };
    tally.add(suite(NAME, cargo(), true)?);
    if !tally.failed.is_empty() {
        return Ok(tally);
    }
    if matches!(compiler, Compiler::Own) {
        say!(
            "The standard library was not instrumented. To have it so: rustup toolchain install nightly --component rust-src"
        );
    }
    let begun = Instant::now();
    for race in PLANTED {
        let ended = cargo().env("FARJUMP_PLANTED", race).quiet().run()?;
        if !ended.status.success() && ended.output.contains(FOUND) {
            say!("found the planted race: {race}");
            tally.passed += 1;
        } else {
            tally.fail_with(format!("{NAME}: the planted race `{race}` was not found"), ended.output);
        }
    }
    let (suite, running) = (format!("{NAME}, planted"), begun.elapsed().as_secs_f64());
    tally.suites.push(Took { suite, building: 0.0, running });
    Ok(tally)
}

/// A compiler for the tests, or the reason why there is none.
fn compiler(interrupt: &Interrupt) -> Result<Result<Compiler, String>, Failed> {
    if cfg!(not(all(target_arch = "x86_64", target_os = "linux", target_env = "gnu"))) {
        return Ok(Err(format!("they run on {PLATFORM} alone")));
    }
    let nightly = sysroot(Run::new("rustup", interrupt).args(["run", "nightly", "rustc"]))?;
    if nightly.is_some_and(|sysroot| {
        has_runtime(&sysroot) && sysroot.join("lib/rustlib/src/rust/library/Cargo.lock").exists()
    }) {
        return Ok(Ok(Compiler::Nightly));
    }
    let rustc = variable("RUSTC").unwrap_or_else(|| "rustc".into());
    if sysroot(Run::new(rustc, interrupt))?.is_some_and(|sysroot| has_runtime(&sysroot)) {
        return Ok(Ok(Compiler::Own));
    }
    Ok(Err(format!(
        "this compiler came without ThreadSanitizer's runtime for {PLATFORM}, and there is no nightly with rust-src: rustup toolchain install nightly --component rust-src"
    )))
}

/// Folder of the toolchain of this `rustc`; `None` if there is none.
fn sysroot(rustc: Run<'_>) -> Result<Option<PathBuf>, Failed> {
    match rustc.args(["--print", "sysroot"]).quiet().run() {
        Ok(ended) if ended.status.success() => Ok(ended.output.lines().last().map(PathBuf::from)),
        Err(error) if error.is_interrupt() => Err(error),
        _ => Ok(None),
    }
}

/// Returns whether the toolchain has the runtime for sanitized programs: `librustc-CHANNEL_rt.tsan.a`.
fn has_runtime(sysroot: &Path) -> bool {
    let files = fs::read_dir(sysroot.join("lib/rustlib").join(PLATFORM).join("lib"));
    let mut names = files.into_iter().flatten().flatten().map(|file| file.file_name());
    names.any(|name| name.to_string_lossy().ends_with("_rt.tsan.a"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_toolchain_has_the_sanitizer_if_its_runtime_is_there() {
        let sysroot = tempfile::tempdir().unwrap();
        assert!(!has_runtime(sysroot.path()));
        let lib = sysroot.path().join("lib/rustlib").join(PLATFORM).join("lib");
        fs::create_dir_all(&lib).unwrap();
        fs::write(lib.join("librustc-nightly_rt.asan.a"), "").unwrap();
        assert!(!has_runtime(sysroot.path()));
        fs::write(lib.join("librustc-nightly_rt.tsan.a"), "").unwrap();
        assert!(has_runtime(sysroot.path()));
    }
}
