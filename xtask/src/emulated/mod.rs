//! Tests for other architectures, under an emulator of single programs (QEMU).
//!
//! Packages with the tools are unpacked into `target/emulated`: the emulator, a compiler with a standard library for
//! each platform, a linker, and the libraries to link. Where there is no package of a standard library, it is built
//! from the compiler's sources. `docs/decisions/emulated-tests.md` has the reasons.

mod platform;
mod standard_library;
mod tools;
mod wrappers;

use std::path::PathBuf;
use std::time::Instant;

use self::platform::Platform;
use self::tools::Tools;
use self::wrappers::Wrappers;
use crate::debs::Outcome;
use crate::packages;
use crate::process::{Ended, Failed, Interrupt, Run};
use crate::suite::{counted, suite};
use crate::test_programs::TestPrograms;
use crate::test_report::{Tally, Took};
use crate::workspace::{BUILDING, Workspace, built_as_for_tests, for_emulator, root};

/// Runs them, or reports why not.
///
/// # Errors
/// When interrupted, or cargo cannot be run.
pub(crate) fn all(interrupt: &Interrupt) -> Result<Tally, Failed> {
    let workspace = Workspace::load(false, interrupt)?;
    let folder = workspace.target().join("emulated");
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
    let own = built_as_for_tests(&["--bin", "farjump"], interrupt)?.program("farjump")?;
    say!("prepared the emulated tests in {} s", begun.elapsed().as_secs());
    let mut programs = Programs { own, third: None };
    for platform in platform::ALL {
        let ran = of_platform(platform, &tools, &workspace, &mut programs, interrupt);
        tally.add(counted(platform.suite, ran)?);
    }
    Ok(tally)
}

/// Runs `cargo check` of core for `platform`, which has no operating system and no package of a standard library: cargo checks
/// that from the compiler's sources. Returns its end and output; or the reason why there is no compiler.
///
/// # Errors
/// When interrupted, or cargo cannot be run.
pub(crate) fn check_core(platform: &str, interrupt: &Interrupt) -> Result<Outcome<Ended>, Failed> {
    let folder = Workspace::load(false, interrupt)?.target().join("emulated");
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
    /// `farjump` of this machine.
    own: PathBuf,
    /// [`LINKS`] of a platform whose tests ran before, started by way of its emulator.
    third: Option<PathBuf>,
}

/// Runs those of one platform.
fn of_platform(
    platform: &Platform,
    tools: &Tools<'_>,
    workspace: &Workspace,
    programs: &mut Programs,
    interrupt: &Interrupt,
) -> Result<Tally, Failed> {
    let begun = Instant::now();
    let folder = &workspace.target().join("emulated");
    let folders = match tools.libraries(platform, folder, interrupt)? {
        Outcome::Here(folders) => folders,
        Outcome::Missing(why) => {
            let mut tally = Tally::default();
            tally.skipped.push((platform.suite.to_owned(), why));
            return Ok(tally);
        }
    };
    let wrappers = Wrappers::write(platform, tools, folder, &folders)?;
    say!("prepared {} in {} s", platform.suite, begun.elapsed().as_secs());
    let options = [
        ("--target", PathBuf::from(platform.clang)),
        ("--sysroot", folders.link.clone()),
        ("--gcc-toolchain", folders.link.join("usr")),
        ("--ld-path", tools.linker()),
    ];
    let link = options.map(|(option, value)| format!("-Clink-arg={option}={}", value.display())).join(" ");
    // cargo for the platform.
    let cargo = || {
        let run = for_emulator(Run::cargo(interrupt), &folder.join("build"))
            .directory(root())
            .env("CARGO_TERM_COLOR", "never")
            .env(&platform.variable("LINKER"), "clang")
            // For the C in crates: otherwise a cross compiler of Debian's would have to be installed.
            .env(&format!("CC_{}", platform.rust.replace('-', "_")), &wrappers.c_compiler)
            .env(&platform.variable("RUSTFLAGS"), &link);
        tools.with_compiler(run)
    };
    let mut tally = Tally::default();
    let built = cargo().args(["test", "--no-run", "--target", platform.rust]).limit(BUILDING);
    let what = format!("the tests for {}", platform.suite);
    let begun = Instant::now();
    let built =
        TestPrograms::of_build(built.args(platform.packages()).args(platform.programs()), &what, interrupt)?;
    let building = begun.elapsed().as_secs_f64();
    tally.suites.push(Took { suite: what, building, running: 0.0 });
    for tests in platform.tests() {
        let skipped = || tests.skipped.iter().copied().flatten();
        let words = skipped().flat_map(|(name, _)| ["--skip", name]);
        let words: Vec<_> = ["--show-output"].into_iter().chain(words).collect();
        let chosen = built.of(&[workspace.folder_of(tests.package)?]).selected(tests.programs);
        let name = format!("{} for {}", tests.package, platform.suite);
        let mut run = Run::new(TestPrograms::RUNNER, interrupt).args(TestPrograms::args(&words));
        run = chosen.given_to(run).shown_as(format!("{} ({name})", words.join(" ")));
        run = run
            .env("THROUGH", &wrappers.runner)
            // Of other architectures, for pairs and chains.
            .env("FARJUMP_TEST_OTHER", &programs.own)
            // The emulator does not see the programs that a program starts.
            .env("FARJUMP_TEST_RUNNER", &wrappers.runner);
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
    if packages::in_ci() {
        let why = "CI has no time for them: `cargo xtask test emulated` runs them where CI is not set";
        let left_out = platform.beyond_ci.iter();
        tally.skipped.extend(
            left_out.map(|tests| (format!("{} for {}", tests.package, platform.suite), why.to_owned())),
        );
    }
    if platform.is_third
        && let Some(links) = built.file_of(LINKS)
    {
        programs.third = Some(wrappers.start(&links)?);
    }
    Ok(tally)
}
