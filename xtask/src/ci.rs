//! `cargo xtask ci`: all checks that a change has to pass.

use std::time::Instant;

use crate::checks::{
    self,
    without_ucx::{self, Seen},
};
use crate::coverage;
use crate::guard;
use crate::install;
use crate::packages;
use crate::process::{Failed, Interrupt};
use crate::step::{Verdict, cargo};
use crate::suite;
use crate::test;
use crate::test_report::Tally;
use crate::ucx;
use crate::workspace::Workspace;

/// Options of `cargo xtask ci`.
#[derive(clap::Args, Debug)]
pub(crate) struct Options {
    /// Install nothing; name missing packages and continue.
    #[arg(long)]
    no_install: bool,
}

/// A step: its name, and its function.
type Step = (&'static str, fn(&Interrupt) -> Verdict);

/// The steps besides the tests, cheap ones first.
const STEPS: [Step; 13] = [
    ("the lock file fits", checks::dependencies::locked),
    ("formatting", formatting),
    ("licences, sources and versions of dependencies", checks::dependencies::check),
    ("crates of the library", checks::few_crates::check),
    ("links in documents", checks::doc_links::check),
    ("lengths of files", checks::file_lengths::check),
    ("circles of modules", checks::cycles::check),
    ("lints", lints),
    ("documentation", documentation),
    ("combinations of features", checks::features::check),
    ("core without std", checks::no_std::check),
    ("no native library", checks::no_native_library::check),
    ("installing", install::check),
];

/// A step that some machines cannot run. Its verdict is `ok`, `FAILED` or `skipped`, with the reason.
type Tried = fn(&Interrupt) -> Result<(&'static str, String), Failed>;

/// Runs all steps, also after one that failed; `true` if none did.
///
/// # Errors
/// When interrupted.
pub(crate) fn run(options: &Options, interrupt: &Interrupt) -> Result<bool, Failed> {
    let lacking = match options.no_install {
        true => packages::missing(&packages::wanted(true)),
        false => packages::install(&packages::wanted(true), interrupt)?,
    };
    let mut lines = Vec::new();
    let mut all_passed = true;
    for (name, step) in STEPS {
        println!("\n== {name}");
        let begun = Instant::now();
        let verdict = match step(interrupt) {
            Err(error) if error.is_interrupt() => return Err(error),
            verdict => verdict,
        };
        let (word, why) = match &verdict {
            Ok(()) => ("ok", String::new()),
            Err(error) => ("FAILED", format!(": {error}")),
        };
        println!("{word}{why}");
        all_passed &= verdict.is_ok();
        lines.push(format!("{word:6}  {name} ({} s){why}", begun.elapsed().as_secs()));
    }
    let mut tried = |name: &str, step: Tried| -> Result<String, Failed> {
        println!("\n== {name}");
        let begun = Instant::now();
        let (word, said) = match step(interrupt) {
            Err(error) if error.is_interrupt() => return Err(error),
            Err(error) => ("FAILED", error.to_string()),
            Ok(found) => found,
        };
        println!("{word}: {said}");
        all_passed &= word != "FAILED";
        Ok(format!("{word:6}  {name} ({} s): {said}", begun.elapsed().as_secs()))
    };
    lines.push(tried("hot path", hot_path)?);
    lines.push(tried("reach of the fuzzers", coverage::check)?);
    let begun = Instant::now();
    let mut tally: Tally = test::all(&[], None, true, interrupt)?;
    suite::charge(&mut tally, &lacking);
    let word = if tally.failed.is_empty() { "ok" } else { "FAILED" };
    lines.push(format!("{word:6}  tests ({} s): {}", begun.elapsed().as_secs(), tally.times()));
    lines.push(tried("newest UCX", newest_ucx)?);
    lines.push(tried("without UCX", no_ucx)?);
    all_passed &= tally.failed.is_empty();
    println!("\n== all\n{}", lines.join("\n"));
    suite::summarise(&tally, &lacking);
    Ok(all_passed)
}

fn hot_path(interrupt: &Interrupt) -> Result<(&'static str, String), Failed> {
    Ok(match guard::check(interrupt)? {
        guard::Seen::Counted => ("ok", "no more than was recorded".to_owned()),
        guard::Seen::NotHere(why) => ("skipped", why),
    })
}

fn newest_ucx(interrupt: &Interrupt) -> Result<(&'static str, String), Failed> {
    Ok(match ucx::newest(interrupt)? {
        ucx::Seen::Ran(tally) if tally.failed.is_empty() => ("ok", with_times(&tally)),
        ucx::Seen::Ran(tally) => ("FAILED", format!("{tally}\n{}", tally.names())),
        ucx::Seen::NotHere(why) => ("skipped", why),
    })
}

fn no_ucx(interrupt: &Interrupt) -> Result<(&'static str, String), Failed> {
    Ok(match without_ucx::check(interrupt)? {
        Seen::Ran(tally) if tally.failed.is_empty() => ("ok", with_times(&tally)),
        Seen::Ran(tally) => ("FAILED", tally.to_string()),
        Seen::NotHere(why) => ("skipped", why),
    })
}

fn with_times(tally: &Tally) -> String {
    format!("{tally}; {}", tally.times())
}

fn formatting(interrupt: &Interrupt) -> Verdict {
    cargo(interrupt, &["fmt", "--all", "--check"], &[])
}

fn lints(interrupt: &Interrupt) -> Verdict {
    let all = ["clippy", "--workspace", "--all-targets"];
    cargo(interrupt, &[&all, packages::features(), &["--", "-D", "warnings"]].concat(), &[])?;
    // The models are compiled with their flag only.
    let target = Workspace::load(false, interrupt)?.target().join("loom");
    let env = [("RUSTFLAGS", "--cfg loom"), ("CARGO_TARGET_DIR", &*target.to_string_lossy())];
    let models = ["clippy", "--package", "farjump-core", "--lib", "--tests", "--", "-D", "warnings"];
    cargo(interrupt, &models, &env)
}

fn documentation(interrupt: &Interrupt) -> Verdict {
    let all = ["doc", "--workspace", "--no-deps"];
    cargo(interrupt, &[&all, packages::features()].concat(), &[("RUSTDOCFLAGS", "-D warnings")])
}
