//! Tests for other architectures, under an emulator of single programs (QEMU).
//!
//! Packages with the tools are unpacked into `target/emulated`: the emulator, a compiler with a standard library for
//! each platform, a linker, and the libraries to link. A standard library without a package is built from the
//! compiler's sources. `docs/design/tests.md` has the reasons.

mod cross;
mod platform;
mod standard_library;
mod tools;
mod wrappers;

use std::path::PathBuf;
use std::time::Instant;

pub(crate) use self::cross::{Cross, platforms};
use self::platform::Platform;
pub(crate) use self::tools::Tools;
use crate::fetch::debs::Outcome;
use crate::fetch::packages;
use crate::process::{Ended, Failed, Interrupt, Run};
use crate::test::programs::TestPrograms;
use crate::test::report::{Tally, Took};
use crate::test::suite::{counted, suite};
use crate::workspace::{BUILDING, Workspace, built_as_for_tests, root};

/// The folder of the tools, and of the files that they build.
pub(crate) fn folder(workspace: &Workspace) -> PathBuf {
    workspace.target().join("emulated")
}

/// Runs the tests, or reports why they cannot run.
///
/// # Errors
/// When interrupted, or cargo cannot be run.
pub(crate) fn all(interrupt: &Interrupt) -> Result<Tally, Failed> {
    let workspace = Workspace::load(false, interrupt)?;
    let folder = folder(&workspace);
    let mut tally = Tally::default();
    let begun = Instant::now();
    let tools = match Tools::get(&folder, interrupt)? {
        Outcome::Here(tools) => tools,
        Outcome::Missing(why) => {
            tally
                .skipped
                .extend(platform::ALL.iter().map(|platform| (platform.suite.to_owned(), why.clone())));
            return Ok(tally);
        }
    };
    let mut programs = Programs::of_own(interrupt)?;
    say!("prepared the emulated tests in {} s", begun.elapsed().as_secs());
    for platform in platform::ALL {
        let ran = of_platform(platform, &tools, &workspace, &mut programs, interrupt);
        tally.add(counted(platform.suite, ran)?);
    }
    Ok(tally)
}

/// Runs `cargo check` of core for `platform`, which has no operating system and no package of a standard library.
/// cargo checks that library from the compiler's sources. Returns the end and the output of cargo, or the reason why
/// there is no compiler.
///
/// # Errors
/// When interrupted, or cargo cannot be run.
pub(crate) fn check_core(platform: &str, interrupt: &Interrupt) -> Result<Outcome<Ended>, Failed> {
    let folder = folder(&Workspace::load(false, interrupt)?);
    let tools = match Tools::get(&folder, interrupt)? {
        Outcome::Here(tools) => tools,
        Outcome::Missing(why) => return Ok(Outcome::Missing(why)),
    };
    if let Outcome::Missing(why) = tools.sources()? {
        return Ok(Outcome::Missing(why));
    }
    let run = Run::cargo(interrupt)
        .args(["check", "--package", "farjump-core", "--target", platform, "-Zbuild-std=core,alloc"])
        .directory(root())
        .env("CARGO_TARGET_DIR", folder.join("bare"))
        .env("CARGO_TERM_COLOR", "never")
        .env("CARGO_PROFILE_DEV_DEBUG", "0")
        // Allows `-Z`.
        .env("RUSTC_BOOTSTRAP", "1")
        .limit(BUILDING)
        .quiet();
    tools.with_compiler(run).run().map(Outcome::Here)
}

/// The test program of links, which plays a target.
const LINKS: &str = "links";

/// The programs with which tests make pairs and chains of machines.
struct Programs {
    /// `farjump` for this machine.
    own: PathBuf,
    /// The test between two machines, built for this machine.
    machines: Option<PathBuf>,
    /// [`LINKS`] for a platform whose tests ran before, started through its emulator.
    third: Option<PathBuf>,
}

impl Programs {
    /// Builds the programs for this machine.
    fn of_own(interrupt: &Interrupt) -> Result<Programs, Failed> {
        // The test between two machines looks for the compile process in its own folder.
        let own = built_as_for_tests(&["--bin", "farjump", "--bin", "farjump_compiler"], interrupt)?;
        let (package, test) = platform::MACHINES;
        let run = Run::cargo(interrupt).args(["test", "--no-run", "--package", package, "--test", test]);
        let built = TestPrograms::of_build(run.directory(root()).limit(BUILDING), package, interrupt)?;
        Ok(Programs { own: own.program("farjump")?, machines: built.file_of(test), third: None })
    }
}

/// Runs the tests of one platform.
fn of_platform(
    platform: &'static Platform,
    tools: &Tools<'_>,
    workspace: &Workspace,
    programs: &mut Programs,
    interrupt: &Interrupt,
) -> Result<Tally, Failed> {
    let mut tally = Tally::default();
    let begun = Instant::now();
    let cross = match Cross::of(platform, tools, &folder(workspace), interrupt)? {
        Outcome::Here(cross) => cross,
        Outcome::Missing(why) => {
            tally.skipped.push((platform.suite.to_owned(), why));
            return Ok(tally);
        }
    };
    let wrappers = &cross.wrappers;
    say!("prepared {} in {} s", platform.suite, begun.elapsed().as_secs());
    let built = cross.cargo().args(["test", "--no-run", "--target", platform.rust]).limit(BUILDING);
    let what = format!("the tests for {}", platform.suite);
    let begun = Instant::now();
    let built =
        TestPrograms::of_build(built.args(platform.packages()).args(platform.programs()), &what, interrupt)?;
    let building = begun.elapsed().as_secs_f64();
    tally.suites.push(Took { suite: what, building, running: 0.0 });
    for tests in platform.tests {
        let skipped = || tests.skipped.iter().copied().flatten();
        let words = skipped().flat_map(|(name, _)| ["--skip", name]);
        let words: Vec<_> = ["--show-output"].into_iter().chain(words).collect();
        let chosen = built.of(&[workspace.folder_of(tests.package)?]).selected(tests.programs);
        let name = format!("{} for {}", tests.package, platform.suite);
        let run = chosen.run(&words, interrupt).shown_as(format!("{} ({name})", words.join(" ")));
        let mut run = run
            .env("THROUGH", &wrappers.runner)
            // The emulator does not see the programs that a program starts.
            .env("FARJUMP_TEST_RUNNER", &wrappers.runner);
        // Programs of other architectures, for pairs and chains.
        run = run.env("FARJUMP_TEST_OTHER", &programs.own);
        if let Some(machines) = &programs.machines {
            run = run.env("FARJUMP_TEST_OTHER_MACHINES", machines);
        }
        // The Rust compiler whose LLVM this machine's programs use.
        if let Some(rustc) = packages::find("rustc") {
            run = run.env("FARJUMP_TEST_RUSTC", rustc);
        }
        if let Some(third) = &programs.third {
            run = run.env("FARJUMP_TEST_THIRD", third);
        }
        for (name, value) in platform.variables {
            run = run.env(name, value);
        }
        tally.add(suite(&name, run, true)?);
        tally
            .skipped
            .extend(skipped().map(|(name, why)| (format!("{}: {name}", tests.package), (*why).to_owned())));
    }
    if platform.is_third
        && let Some(links) = built.file_of(LINKS)
    {
        programs.third = Some(wrappers.start(&links)?);
    }
    Ok(tally)
}
