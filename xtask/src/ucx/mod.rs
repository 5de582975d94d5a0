//! `cargo xtask test ucx --with VERSION,…`: the tests of everything that uses UCX, with each of several
//! versions of it.

mod wheels;

use std::fmt::Write;
use std::path::{Path, PathBuf};

use crate::process::{Failed, Interrupt, variable};
use crate::test::programs::TestPrograms;
use crate::test::report::Tally;
use crate::test::suite::suite;
pub(crate) use wheels::Choice;
use wheels::Wheel;

/// Tests that use UCX: their name in the table, cargo's arguments, and the chosen tests.
struct Suite {
    name: &'static str,
    targets: &'static [&'static str],
    filters: &'static [&'static str],
}

/// All suites, in the order of the table.
const SUITES: [Suite; 6] = [
    Suite {
        name: "unit",
        targets: &["--lib"],
        filters: &["ucx::", "ucp_ifunc::", "open::tests::the_ucx", "log::tests::ucxs"],
    },
    Suite { name: "peers", targets: &["--test", "transports"], filters: &["ucx", "strangers::"] },
    Suite { name: "conformance", targets: &["--test", "conformance"], filters: &["ucx"] },
    Suite { name: "links", targets: &["--test", "ucx"], filters: &[] },
    Suite {
        name: "program",
        targets: &["--test", "cli", "--test", "perf"],
        filters: &["a_target_listens_on_one_socket", "ucx"],
    },
    Suite { name: "ucp_ifunc", targets: &["--test", "ucp_ifunc"], filters: &[] },
];

/// Long tests that repeat others: conformance over one of UCX's transports for shared memory each, and under other
/// rules; the C library under sanitizers, and its measurement.
const REPEATED: [&str; 5] =
    ["_memory_alone", "ucx_put_fenced", "ucx_put_checked", "under_address_sanitizer", "measuring::"];

/// The library of the newest known version. `Err` inside says why it is not available.
///
/// # Errors
/// When interrupted.
pub(crate) fn newest_library(interrupt: &Interrupt) -> Result<Result<PathBuf, String>, Failed> {
    Ok(Wheel::newest().folder(interrupt)?.map(|folder| folder.join("libucp.so.0")))
}

/// Runs every suite with the newest known version, without the tests that only repeat others ([`REPEATED`]).
///
/// # Errors
/// When interrupted, or cargo cannot be run.
pub(crate) fn newest(interrupt: &Interrupt) -> Result<Result<Tally, String>, Failed> {
    let newest = Wheel::newest();
    Ok(match newest.folder(interrupt)? {
        Ok(_) => Ok(run_but(&[Choice::Wheel(newest)], &REPEATED, interrupt)?),
        Err(why) => Err(why),
    })
}

/// Runs every suite with each of these versions.
///
/// # Errors
/// When interrupted, or cargo cannot be run.
pub(crate) fn run(with: &[Choice], interrupt: &Interrupt) -> Result<Tally, Failed> {
    run_but(with, &[], interrupt)
}

/// Runs every suite with each of these versions, without tests whose names contain one of `left_out`.
fn run_but(with: &[Choice], left_out: &[&str], interrupt: &Interrupt) -> Result<Tally, Failed> {
    let programs = TestPrograms::built_or_build(interrupt)?;
    let mut tally = Tally::default();
    let mut table = format!("{:8}", "UCX");
    for suite in &SUITES {
        // Writing to a string cannot fail.
        let _ = write!(table, "  {:>18}", suite.name);
    }
    for choice in with {
        let _ = write!(table, "\n{:8}", choice.version());
        let folder = match choice {
            Choice::System(_) => None,
            Choice::Wheel(wheel) => match wheel.folder(interrupt)? {
                Ok(folder) => Some(folder),
                Err(why) => {
                    table.push_str("  not there");
                    tally.fail(why);
                    continue;
                }
            },
        };
        for part in &SUITES {
            let ran = part.run(&programs, *choice, folder.as_deref(), left_out, interrupt)?;
            let (passed, failed, skipped) = (ran.passed, ran.failed.len(), ran.skipped.len());
            let _ = write!(table, "  {:>18}", format!("{passed} ok, {failed} not, {skipped} no"));
            tally.add(ran);
        }
    }
    say!("\n{table}\n(ok: passed; not: failed; no: skipped)");
    Ok(tally)
}

impl Suite {
    fn run(
        &self,
        programs: &TestPrograms,
        choice: Choice,
        folder: Option<&Path>,
        left_out: &[&str],
        interrupt: &Interrupt,
    ) -> Result<Tally, Failed> {
        let name = format!("UCX {}, {}", choice.version(), self.name);
        let words = left_out.iter().flat_map(|name| ["--skip", name]);
        let words: Vec<_> = ["--show-output"].iter().chain(self.filters).copied().chain(words).collect();
        let run = programs.selected(self.targets).run(&words, interrupt).shown_as(format!(
            "{} {}",
            self.targets.join(" "),
            words.join(" ")
        ));
        let run = run.env("FARJUMP_TEST_UCX", choice.version()).mark(&format!("UCX {} | ", choice.version()));
        let run = match folder {
            // `FARJUMP_UCX` is for farjump, which opens the library. Programs in C are linked with the library by
            // `LIBRARY_PATH`, and find it by `LD_LIBRARY_PATH`.
            Some(folder) => ["LIBRARY_PATH", "LD_LIBRARY_PATH"]
                .into_iter()
                .fold(run.env("FARJUMP_UCX", folder.join("libucp.so.0")), |run, name| {
                    run.env(name, before(folder, variable(name)))
                }),
            None => run,
        };
        let mut tally = suite(&name, run, true)?;
        for failure in &mut tally.failed {
            failure.name = format!("{} (UCX {})", failure.name, choice.version());
        }
        for (skipped, _) in &mut tally.skipped {
            *skipped = format!("{skipped} (UCX {})", choice.version());
        }
        Ok(tally)
    }
}

/// A list of folders with this one before the others.
fn before(folder: &Path, others: Option<std::ffi::OsString>) -> std::ffi::OsString {
    let mut list = folder.as_os_str().to_owned();
    if let Some(others) = others {
        list.push(":");
        list.push(others);
    }
    list
}
