//! `cargo xtask ci`: all checks that a change has to pass.
//!
//! Steps that wait run beside others. The virtual machines, and builds with target folders of their own, run beside
//! the builds of the workspace. The suites with another UCX and without UCX run beside the tests.
//! `docs/design/tests.md` has the reasons and the times.

use std::thread;
use std::time::Instant;

use crate::book;
use crate::checks::{self, without_ucx};
use crate::fetch::packages;
use crate::guard;
use crate::package::install;
use crate::process::{Failed, Interrupt};
use crate::python;
use crate::step::{Verdict, cargo};
use crate::test;
use crate::test::languages;
use crate::test::mpi;
use crate::test::places;
use crate::test::report::Tally;
use crate::test::suite;
use crate::ucx;
use crate::vm;
use crate::workspace::Workspace;

/// Options of `cargo xtask ci`.
#[derive(clap::Args, Debug)]
pub(crate) struct Options {
    /// Install nothing; name missing packages and continue.
    #[arg(long)]
    no_install: bool,
}

/// The work of a step.
#[derive(Clone, Copy)]
enum Work {
    /// Passes or fails.
    Check(fn(&Interrupt) -> Verdict),
    /// Cannot run on some machines. Its verdict is `ok`, `FAILED` or `skipped`, with the reason.
    Tried(fn(&Interrupt) -> Result<(&'static str, String), Failed>),
    /// Counts tests.
    Suite(fn(&Interrupt) -> Result<Tally, Failed>),
    /// Runs tests that another step counts, under other conditions: only its failures count. `Err` inside says why
    /// this machine cannot have these conditions.
    Again(fn(&Interrupt) -> Result<Result<Tally, String>, Failed>),
}
use Work::{Again, Check, Suite, Tried};

/// A step: its name, and its work.
type Step = (&'static str, Work);

/// The steps before all others: those of seconds, and the build of the libraries and programs, which the tests' build
/// continues.
const FIRST: [Step; 12] = [
    ("the lock file fits", Check(checks::dependencies::locked)),
    ("formatting", Check(formatting)),
    ("licences, sources and versions of dependencies", Tried(checks::dependencies::check)),
    ("crates of the library and the program", Check(checks::few_crates::check)),
    ("papers of the crates", Check(checks::crate_papers::check)),
    ("links in documents", Check(checks::doc_links::check)),
    ("book of the pages", Tried(book::check)),
    ("lengths of files", Check(checks::file_lengths::check)),
    ("names", Check(checks::names::check)),
    ("circles of modules", Check(checks::cycles::check)),
    ("installing", Check(install::check)),
    ("no native library", Check(checks::no_native_library::check)),
];

/// The builds of the workspace, one after the other, as they share a target folder.
const BUILDING: [Step; 6] = [
    // It builds with another profile than the other steps, so the programs of the machines are built meanwhile.
    ("hot path", Tried(hot_path)),
    ("lints", Check(lints)),
    ("documentation", Check(documentation)),
    ("combinations of features", Check(checks::features::check)),
    ("building the tests", Check(test::build)),
    ("Python wheel", Tried(python_wheel)),
];

/// Builds that have target folders of their own, and the tests in them. Each build of the workspace ends with a crate
/// that one processor compiles or links, and these use the other processor meanwhile.
const APART: [Step; 1] = [("core without std", Tried(checks::no_std::check))];

/// The virtual machines, whose devices and programs wait for each other most of the time.
const MACHINES: [Step; 1] = [(vm::NAME, Suite(vm::all))];

/// The folder of the measuring programs, whose tests are a suite of their own.
const BENCHES: &str = "benches";

/// The other tests of the workspace, with what this machine has.
const TESTS: [Step; 2] = [("tests", Suite(tests)), (mpi::NAME, Suite(second_mpi))];

/// Tests that need more than the others: compilers from wheels, another UCX or none, another machine, Python. They
/// take as long as the others.
const BESIDE: [Step; 7] = [
    (BENCHES, Suite(benches)),
    ("ifuncs in other languages", Again(languages::check)),
    ("newest UCX", Again(ucx::newest)),
    ("without UCX", Again(without_ucx::check)),
    ("machines as users have them", Again(places::of_users)),
    ("Python package", Suite(python_package)),
    ("ProxyStore's own tests", Suite(proxystore)),
];

/// The checks for which CI has no time, by the commands that run them.
const BY_HAND: [&str; 6] = [
    "cargo xtask test loom",
    "cargo xtask test tsan",
    "cargo xtask test emulated (with test long-pages)",
    "cargo xtask places (odd machines)",
    "cargo xtask vm-test --whole",
    "cargo xtask package",
];

/// The nice value of [`BUILDING`] and [`APART`]: the machines, which have time limits, get the processors first.
const NICE: i32 = 10;

/// The results of steps.
#[derive(Default)]
struct Report {
    lines: Vec<String>,
    failed: bool,
    tally: Tally,
}

impl Report {
    /// Runs these, one after the other.
    fn run(mut self, steps: &[Step], interrupt: &Interrupt) -> Result<Report, Failed> {
        steps.iter().try_for_each(|&step| self.step(step, interrupt))?;
        Ok(self)
    }

    fn step(&mut self, (name, work): Step, interrupt: &Interrupt) -> Result<(), Failed> {
        // A suite prints its name itself.
        if !matches!(work, Suite(_)) {
            say!("\n== {name}");
        }
        let begun = Instant::now();
        let done = match work {
            Check(check) => check(interrupt).map(|()| ("ok", String::new())),
            Tried(tried) => tried(interrupt),
            Suite(suite) => suite::counted(name, suite(interrupt)).map(|tally| {
                let word = if tally.failed.is_empty() { "ok" } else { "FAILED" };
                let times = tally.times();
                self.tally.add(tally);
                (word, times)
            }),
            Again(again) => again(interrupt).map(|ran| match ran {
                Ok(tally) => {
                    let word = if tally.failed.is_empty() { "ok" } else { "FAILED" };
                    let said = format!("{tally}; {}", tally.times());
                    self.tally.failed.extend(tally.failed);
                    self.tally.suites.extend(tally.suites);
                    (word, said)
                }
                Err(why) => ("skipped", why),
            }),
        };
        let (word, said) = match done {
            Err(error) if error.is_interrupt() => return Err(error),
            Err(error) => ("FAILED", error.to_string()),
            Ok(done) => done,
        };
        let said = if said.is_empty() { said } else { format!(": {said}") };
        say!("{word}{said} ({name})");
        self.failed |= word == "FAILED";
        self.lines.push(format!("{word:6}  {name} ({} s){said}", begun.elapsed().as_secs()));
        Ok(())
    }

    fn add(&mut self, other: Report) {
        self.lines.extend(other.lines);
        self.failed |= other.failed;
        self.tally.add(other.tally);
    }
}

/// Runs all steps, also after one that failed. Returns `true` if none did.
///
/// # Errors
/// When interrupted.
pub(crate) fn run(options: &Options, interrupt: &Interrupt) -> Result<bool, Failed> {
    let begun = Instant::now();
    let wanted = packages::wanted(true);
    let lacking = match options.no_install {
        true => packages::missing(&wanted),
        false => packages::install(&wanted, interrupt)?,
    };
    let mut report = Report::default().run(&FIRST, interrupt)?;
    report.add(together(&MACHINES, &[(&BUILDING, NICE), (&APART, NICE)], interrupt)?);
    report.add(together(&TESTS, &[(&BESIDE, 0)], interrupt)?);
    let Report { lines, failed, mut tally } = report;
    let unmet = tally.failed.len();
    suite::charge(&mut tally, &lacking);
    say!("\n== all\n{}\nall of it took {} s", lines.join("\n"), begun.elapsed().as_secs());
    say!("left to runs by hand: {}", BY_HAND.join(", "));
    suite::summarise(&tally, &lacking);
    Ok(!failed && tally.failed.len() == unmet)
}

/// Runs the list `first` and each of the lists `others` at the same time, the others with a nice value.
fn together(first: &[Step], others: &[(&[Step], i32)], interrupt: &Interrupt) -> Result<Report, Failed> {
    thread::scope(|scope| {
        let beside = |&(steps, nice): &(&'_ [Step], i32)| {
            let steps = steps.to_vec();
            scope.spawn(move || {
                // On Linux the value is that of this thread and of the processes that it starts.
                rustix::process::nice(nice)
                    .map_err(|error| Failed::Because(format!("a lower priority: {error}")))?;
                Report::default().run(&steps, interrupt)
            })
        };
        let others: Vec<_> = others.iter().map(beside).collect();
        let first = Report::default().run(first, interrupt);
        let others: Vec<_> = others
            .into_iter()
            .map(|other| other.join().unwrap_or_else(|_| Err(Failed::Because("a step panicked".to_owned()))))
            .collect();
        let mut report = first?;
        for other in others {
            report.add(other?);
        }
        Ok(report)
    })
}

fn tests(interrupt: &Interrupt) -> Result<Tally, Failed> {
    test::of_workspace(&[BENCHES], &[], None, interrupt)
}

fn benches(interrupt: &Interrupt) -> Result<Tally, Failed> {
    test::of_package(BENCHES, interrupt)
}

fn second_mpi(interrupt: &Interrupt) -> Result<Tally, Failed> {
    mpi::second(&[], interrupt)
}

fn python_wheel(interrupt: &Interrupt) -> Result<(&'static str, String), Failed> {
    Ok(match python::build(interrupt)? {
        Ok(()) => ("ok", String::new()),
        Err(why) => ("skipped", why),
    })
}

fn python_package(interrupt: &Interrupt) -> Result<Tally, Failed> {
    python::all(false, interrupt)
}

fn proxystore(interrupt: &Interrupt) -> Result<Tally, Failed> {
    python::proxystore(false, interrupt)
}

fn hot_path(interrupt: &Interrupt) -> Result<(&'static str, String), Failed> {
    Ok(match guard::check(interrupt)? {
        guard::Seen::Counted => ("ok", "no more than was recorded".to_owned()),
        guard::Seen::NotHere(why) => ("skipped", why),
    })
}

fn formatting(interrupt: &Interrupt) -> Verdict {
    cargo(interrupt, &["fmt", "--all", "--check"], &[])
}

fn lints(interrupt: &Interrupt) -> Verdict {
    let all = ["clippy", "--workspace", "--all-targets"];
    cargo(interrupt, &[&all, packages::features(), &["--", "-D", "warnings"]].concat(), &[])?;
    // The models compile only with their flag.
    let target = Workspace::load(false, interrupt)?.target().join("loom");
    let env = [("RUSTFLAGS", "--cfg loom"), ("CARGO_TARGET_DIR", &*target.to_string_lossy())];
    let models = ["clippy", "--package", "farjump-core", "--lib", "--tests", "--", "-D", "warnings"];
    cargo(interrupt, &models, &env)
}

fn documentation(interrupt: &Interrupt) -> Verdict {
    let all = ["doc", "--workspace", "--no-deps"];
    cargo(interrupt, &[&all, packages::features()].concat(), &[("RUSTDOCFLAGS", "-D warnings")])
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;

    use super::*;

    fn failing(_: &Interrupt) -> Verdict {
        Err(Failed::Because("a reason".to_owned()))
    }

    #[test]
    fn lists_run_at_once_and_all_but_the_first_are_niced() {
        static BARRIER: Barrier = Barrier::new(3);
        const MOST: i32 = 19;
        let nice = |_: &Interrupt| {
            BARRIER.wait();
            rustix::process::nice(0).map(|value| ("ok", value.to_string())).map_err(|_| Failed::Interrupted)
        };
        let step = [("nice", Tried(nice))];
        let others = [(&step[..], MOST), (&step, MOST)];
        let report = together(&step, &others, &Interrupt::install().unwrap()).unwrap();
        assert!(!report.failed);
        let values: Vec<_> = report.lines.iter().map(|line| line.rsplit(": ").next().unwrap()).collect();
        let own = rustix::process::nice(0).unwrap().to_string();
        assert_eq!(values, [own, MOST.to_string(), MOST.to_string()]);
    }

    #[test]
    fn a_step_that_fails_ends_no_other_and_is_named() {
        let steps = [("first", Check(failing)), ("second", Check(|_| Ok(())))];
        let report = together(&[], &[(&steps, 0)], &Interrupt::install().unwrap()).unwrap();
        assert!(report.failed);
        let [first, second] = &report.lines[..] else { panic!("{:?}", report.lines) };
        assert!(first.starts_with("FAILED  first (") && first.ends_with(" s): a reason"), "{first}");
        assert!(second.starts_with("ok      second (") && second.ends_with(" s)"), "{second}");
    }

    #[test]
    fn of_repeated_tests_failures_alone_are_counted() {
        let again = |_: &Interrupt| {
            let mut tally = Tally { passed: 7, ..Tally::default() };
            tally.fail("one of them");
            Ok(Ok(tally))
        };
        let nowhere = |_: &Interrupt| Ok(Err("a reason".to_owned()));
        let steps = [("again", Again(again)), ("nowhere", Again(nowhere))];
        let report = together(&[], &[(&steps, 0)], &Interrupt::install().unwrap()).unwrap();
        assert!(report.failed && report.lines[1].starts_with("skipped"), "{:?}", report.lines);
        assert_eq!((report.tally.passed, report.tally.failed.len()), (0, 1));
        assert_eq!(report.tally.failed[0].name, "one of them");
    }

    #[test]
    fn an_interrupt_ends_all() {
        let steps = [("first", Check(|_| Err(Failed::Interrupted))), ("second", Check(failing))];
        let ended = together(&[], &[(&steps, 0)], &Interrupt::install().unwrap());
        assert!(ended.is_err_and(|error| error.is_interrupt()));
    }
}
