//! `cargo xtask test`: all tests, counted.

pub(crate) mod card;
pub(crate) mod languages;
pub(crate) mod mpi;
pub(crate) mod places;
pub(crate) mod programs;
pub(crate) mod report;
pub(crate) mod suite;
pub(crate) mod tsan;

use std::env;

use crate::emulated;
use crate::fetch::packages;
use crate::fetch::servers;
use crate::process::{Failed, Interrupt, Run};
use crate::python;
use crate::step::Verdict;
use crate::test::programs::TestPrograms;
use crate::test::report::Tally;
use crate::test::suite::{charge, suite, summarise};
use crate::ucx;
use crate::vm;
use crate::workspace::{Workspace, root};

/// The time of all tests on a machine with Rust and a C compiler alone, in minutes. The second number is the share of
/// a first build in it, and the third the size of its target folder in gigabytes. Measured on two virtual processors
/// (docs/design/tests.md).
const MINUTES: u32 = 20;
const BUILDING: u32 = 4;
const GIGABYTES: u32 = 4;

/// The filter for the models of the protocol.
const MODELS: &str = "loom";
/// The filter for the tests of races under ThreadSanitizer.
const RACES: &str = "tsan";
/// The filter for the virtual machines.
const MACHINES: &str = "vm";
/// The filter for the tests for other architectures.
const EMULATED: &str = "emulated";
/// The filter for the machines with longer pages.
const LONG_PAGES: &str = vm::pages::NAME;
/// The filter for a target on a card, under the emulator.
const CARD: &str = card::NAME;
/// The filter for the tests of the Python package.
const PYTHON: &str = "python";
/// The filter for ProxyStore's own tests.
const PROXYSTORE: &str = "proxystore";
/// The filter for the tests of UCX.
const UCX: &str = "ucx";

/// The suite of the tests in documentation.
const DOCUMENTED: &str = "documentation's tests";

/// Options of `cargo xtask test`.
#[derive(clap::Args, Debug, Default)]
pub(crate) struct Options {
    /// Install missing packages by apt, as root or by a sudo that needs no password. In CI this is the default.
    #[arg(long)]
    install: bool,
    /// Run the tests that need an RDMA device on this one (`mlx5_0` or `mlx5_0:1`), and start no virtual machines.
    #[arg(long, value_name = "NAME")]
    pub(crate) device: Option<String>,
    /// Run the virtual machines, too; the filter `vm` runs them alone.
    #[arg(long, conflicts_with_all = ["device", "with"])]
    pub(crate) vm: bool,
    /// Run the tests for aarch64 and riscv64, too, under an emulator. Their tools and libraries are downloaded and
    /// unpacked. The filter `emulated` runs them alone, `long-pages` those on machines with pages of 16 and 64 KiB, and
    /// `emulated-card` the page on cards.
    #[arg(long, conflicts_with_all = ["device", "with"])]
    pub(crate) emulated: bool,
    /// Run the tests of UCX with each of these versions; with the filter `ucx`. 1.13 is the system's; 1.14 to
    /// 1.22 are installed by pip, and checked by their hashes.
    #[arg(long, value_name = "VERSION,…", value_delimiter = ',', value_parser = ucx::Choice::parse)]
    pub(crate) with: Vec<ucx::Choice>,
    /// Run only tests whose name contains one of these. The models of the protocol run then if one of them is
    /// `loom`, the tests of races under ThreadSanitizer if one is `tsan`, those of the Python package if one is
    /// `python`, ProxyStore's own with its connector if one is `proxystore`, and the virtual machines if one is `vm`.
    pub(crate) filters: Vec<String>,
}

/// Runs the chore. Returns `true` if nothing failed.
///
/// # Errors
/// When interrupted, or cargo cannot be run.
pub(crate) fn run(options: &Options, interrupt: &Interrupt) -> Result<bool, Failed> {
    if !options.with.is_empty() && options.filters != [UCX] {
        return Err(Failed::Because(
            "--with is for the tests of UCX: say `cargo xtask test ucx --with …`".to_owned(),
        ));
    }
    let machines = options.with.is_empty() && (options.vm || named_among(&options.filters, MACHINES));
    let wanted = packages::wanted(machines && options.device.is_none() || long_pages(options));
    let lacking = packages::provide(&wanted, options.install, interrupt)?;
    if options.filters.is_empty() && !packages::in_ci() {
        say!("{}", duration(interrupt)?);
    }
    let mut tally = Tally::default();
    let ran = match options.with.is_empty() {
        true => all(options, machines, &mut tally, interrupt),
        false => suite::counted(UCX, ucx::run(&options.with, interrupt)).map(|ran| tally.add(ran)),
    };
    charge(&mut tally, &lacking);
    // The summary includes what ran before an interrupt.
    summarise(&tally, &lacking);
    ran.map(|()| tally.failed.is_empty())
}

/// A sentence with the time that all tests take, and the folder in which cargo builds.
///
/// # Errors
/// When cargo fails.
fn duration(interrupt: &Interrupt) -> Result<String, Failed> {
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let target = Workspace::load(false, interrupt)?.target();
    Ok(format!(
        "All tests take about {MINUTES} minutes on two processors, of which {BUILDING} go into the first build; here are \
         {processors}. They take {GIGABYTES} GB in {}. Words behind `cargo xtask test` choose tests by their names.",
        target.display()
    ))
}

/// Returns whether the machines with longer pages run. They take too long for CI's emulated tests.
fn long_pages(options: &Options) -> bool {
    let emulated = options.emulated || named_among(&options.filters, EMULATED);
    named_among(&options.filters, LONG_PAGES) || emulated && !packages::in_ci()
}

/// Returns whether a suite with a filter of its own runs with these filters.
fn chosen(filters: &[String], own: &str) -> bool {
    filters.is_empty() || named_among(filters, own)
}

/// Returns whether the filter of a suite is one of these.
fn named_among(filters: &[String], own: &str) -> bool {
    filters.iter().any(|filter| filter == own)
}

/// Runs every suite, and the virtual machines if `machines`, and adds the results.
///
/// # Errors
/// When interrupted. A suite that fails, or cannot run, is a failure in the tally.
fn all(options: &Options, machines: bool, tally: &mut Tally, interrupt: &Interrupt) -> Result<(), Failed> {
    let (filters, device) = (&options.filters[..], options.device.as_deref());
    let own = [MODELS, RACES, MACHINES, EMULATED, LONG_PAGES, CARD, PYTHON, PROXYSTORE];
    let others = filters.is_empty() || filters.iter().any(|filter| !own.contains(&filter.as_str()));
    let emulated = options.emulated || named_among(filters, EMULATED);

    let mut add = |name: &str, ran| suite::counted(name, ran).map(|ran| tally.add(ran));
    if others {
        add("tests", of_workspace(&[], filters, device, interrupt))?;
        // The device is for the tests of verbs alone.
        if device.is_none() {
            add(mpi::NAME, mpi::second(filters, interrupt))?;
        }
    }
    if chosen(filters, MODELS) {
        add(MODELS, models(interrupt))?;
    }
    if chosen(filters, RACES) {
        add(RACES, tsan::all(interrupt))?;
    }
    if chosen(filters, PYTHON) && device.is_none() {
        add(PYTHON, python::all(!others, interrupt))?;
    }
    if chosen(filters, PROXYSTORE) && device.is_none() {
        add(PROXYSTORE, python::proxystore(!others, interrupt))?;
    }
    if emulated {
        add(EMULATED, emulated::all(interrupt))?;
    }
    if long_pages(options) {
        add(LONG_PAGES, vm::pages::all(interrupt))?;
    }
    if named_among(filters, CARD) || emulated && !packages::in_ci() {
        add(CARD, card::all(interrupt))?;
    }
    match device {
        None if machines => add(vm::NAME, vm::all(interrupt))?,
        Some(device) if machines || filters.is_empty() => {
            tally.skipped.push((vm::NAME.to_owned(), format!("{device} is there instead")));
        }
        None if filters.is_empty() => {
            tally.skipped.push((vm::NAME.to_owned(), "`--vm` runs them".to_owned()));
        }
        _ => {}
    }
    if tally.is_empty() {
        tally.fail(format!("no test has a name with {}", filters.join(" or ")));
    }
    Ok(())
}

/// Runs the tests of the workspace, except those of the packages in the folders `apart`; with `device`, on that RDMA
/// device.
///
/// # Errors
/// When interrupted, or the tests cannot be built.
pub(crate) fn of_workspace(
    apart: &[&str],
    filters: &[String],
    device: Option<&str>,
    interrupt: &Interrupt,
) -> Result<Tally, Failed> {
    // Before all others: later suites get the built programs, and if the build fails, its errors are the end of
    // cargo's output.
    let programs = TestPrograms::built_or_build(interrupt)?.without(apart);
    let words: Vec<&str> = ["--show-output"].into_iter().chain(filters.iter().map(String::as_str)).collect();
    let mut run = on(device, programs.run(&words, interrupt));
    let documented = cargo(interrupt).args(["test", "--doc", "--workspace", "--no-fail-fast"]);
    let documented = on(device, documented.args(packages::features()).args(["--"]).args(&words));
    let mut skipped = Vec::new();
    if filters.is_empty() && device.is_none() {
        let folder = Workspace::load(false, interrupt)?.target().join("servers");
        let (servers, missing) = servers::all(&folder, interrupt)?;
        let servers = env::join_paths(servers.iter().map(|server| &server.program)).unwrap_or_default();
        run = run.env("FARJUMP_KV_SERVERS", servers);
        skipped.extend(missing.into_iter().map(|(name, why)| (format!("the module in {name}"), why)));
        skipped.extend(packages::mpi().err().map(|why| ("the MPI program".to_owned(), why)));
    }
    let must = filters.is_empty();
    let mut tally = suite("tests", run, must)?;
    tally.add(suite(DOCUMENTED, documented, must)?);
    tally.skipped.extend(skipped);
    Ok(tally)
}

/// The run, with this RDMA device for the tests of verbs.
fn on<'i>(device: Option<&str>, run: Run<'i>) -> Run<'i> {
    device.into_iter().fold(run, |run, device| run.env("FARJUMP_DEVICE", device))
}

/// Runs the tests of the package in this folder, whose name marks their lines.
///
/// # Errors
/// As [`of_workspace`].
pub(crate) fn of_package(folder: &str, interrupt: &Interrupt) -> Result<Tally, Failed> {
    let programs = TestPrograms::built_or_build(interrupt)?.of(&[folder]);
    suite(folder, programs.run(&["--show-output"], interrupt).mark(&format!("{folder} | ")), true)
}

/// Builds the tests of the workspace. Tests of the documentation are built when they run.
pub(crate) fn build(interrupt: &Interrupt) -> Verdict {
    TestPrograms::build(interrupt).map(drop)
}

/// Settings of the release profile for the models, which run as fast without the rest of it.
const MODELS_BUILT: [(&str, &str); 3] = [
    ("CARGO_PROFILE_RELEASE_LTO", "off"),
    ("CARGO_PROFILE_RELEASE_DEBUG", "0"),
    ("CARGO_PROFILE_RELEASE_CODEGEN_UNITS", "16"),
];

/// Runs the models of the protocol.
///
/// # Errors
/// When interrupted.
pub(crate) fn models(interrupt: &Interrupt) -> Result<Tally, Failed> {
    let target = Workspace::load(false, interrupt)?.target().join("loom");
    let run = cargo(interrupt)
        .args(["test", "--package", "farjump-core", "--lib", "--release", "--no-fail-fast"])
        .args(["--", "--show-output", "loom"])
        .env("RUSTFLAGS", "--cfg loom")
        .env("CARGO_TARGET_DIR", target);
    let run = MODELS_BUILT.into_iter().fold(run, |run, (name, value)| run.env(name, value));
    suite("models of the protocol (loom)", run, true)
}

fn cargo(interrupt: &Interrupt) -> Run<'_> {
    Run::cargo(interrupt).directory(root()).env("CARGO_TERM_COLOR", "never")
}
