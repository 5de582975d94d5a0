//! The tests of the Python package: the wheel in a new virtual environment of each interpreter, alone, with mypy, or with
//! Numba.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use farjump_tools::Tool;

use super::interpreters::{SHORT, VERSIONS, installed, interpreters};
use super::wheel;
use crate::fetch::packages;
use crate::fetch::wheels::Set;
use crate::process::{Failed, Interrupt, Run};
use crate::test::languages;
use crate::test::programs::TestPrograms;
use crate::test::report::{Tally, last};
use crate::test::suite::suite;
use crate::workspace::{Workspace, built_as_for_tests, root};

/// The suite's name in counts.
const NAME: &str = "Python package";
/// The versions that CI leaves out: the wheel is the same file for all.
const IN_BETWEEN: [u32; 2] = [12, 13];
/// The ifuncs of the tests.
const IFUNCS: [&str; 5] = [
    "integration-tests/ifuncs/echo.c",
    "integration-tests/ifuncs/missing.c",
    "integration-tests/ifuncs/panics.c",
    "python/tests/ifuncs/length.c",
    "python/tests/ifuncs/slow.c",
];
/// The minor version of CPython 3 that [`BESIDE`] is for.
const CHECKED: u32 = 11;
/// mypy, which checks the stubs, and uvloop, in whose event loops calls are awaited, for 64-bit x86.
const BESIDE: Set<'_> = Set {
    what: "mypy 2.4.1 and uvloop 0.23.0",
    name: "mypy-uvloop/1",
    pinned: &[
        ("ast-serialize", "0.13.1", "9f99786e0d62082a5b121b3437f3167562133711df22128de1e9886f57f0b226"),
        ("librt", "0.17.0", "598c5455f07fc182a926b88e63776c49dc4cf47465c998cbc6ba1f010b875b51"),
        ("mypy", "2.4.1", "b69a15fc2e75858d6b15e91ed3a0dcff1a533265183b64734138791fe0f49aa5"),
        ("mypy-extensions", "1.2.0", "993e7a20aa5671eb41a7132cf555af30062da99729601601b9a8382b11cae768"),
        ("pathspec", "1.1.1", "a00ce642f577bf7f473932318056212bc4f8bfdf53128c78bbd5af0b9b20b189"),
        ("typing-extensions", "4.16.0", "481caa481374e813c1b176ada14e97f1f67a4539ce9cfeb3f350d78d6370c2e8"),
        ("uvloop", "0.23.0", "ab17b3a8aa754be0de0e397f7b95f13b14e56f077a4c6ae295e3d4afd199b325"),
    ],
};

/// The wheel that [`build`] built last.
static BUILT: Mutex<Option<PathBuf>> = Mutex::new(None);

/// Builds the wheel for the tests. `Err` inside says why it cannot be built here.
///
/// # Errors
/// When interrupted, or the build fails.
pub(crate) fn build(interrupt: &Interrupt) -> Result<Result<(), String>, Failed> {
    Ok(wheel(interrupt)?.map(drop))
}

/// The wheel for the tests, built once. `Err` inside says why it cannot be built here.
///
/// # Errors
/// When interrupted, or the build fails.
pub(super) fn wheel(interrupt: &Interrupt) -> Result<Result<PathBuf, String>, Failed> {
    if let Some(wheel) = BUILT.lock().unwrap_or_else(PoisonError::into_inner).clone() {
        return Ok(Ok(wheel));
    }
    if interpreters().iter().all(|(_, interpreter)| interpreter.is_none()) {
        let names = VERSIONS.map(|version| format!("python3.{version}"));
        return Ok(Err(format!("none of {} is there and runs", names.join(", "))));
    }
    let out = Workspace::load(false, interrupt)?.target().join("python/tested");
    let built = wheel::built(&out, &wheel::Glibc::System, wheel::Profile::Dev, interrupt)?;
    if let Ok(wheel) = &built {
        *BUILT.lock().unwrap_or_else(PoisonError::into_inner) = Some(wheel.clone());
    }
    Ok(built)
}

/// The program farjump, which serves as a target, and beside it the one that measures. With `builds` they are built alone,
/// otherwise with the other tests.
///
/// # Errors
/// When interrupted, or it cannot be built.
pub(super) fn program(builds: bool, interrupt: &Interrupt) -> Result<PathBuf, Failed> {
    match builds {
        true => {
            built_as_for_tests(&["--bin", "farjump", "--bin", "farjump-perf"], interrupt)?.program("farjump")
        }
        false => TestPrograms::built_or_build(interrupt)?.program("farjump"),
    }
}

/// Runs the tests on each interpreter. With `builds`, builds the program farjump, which serves as a target; otherwise it
/// was built with the other tests.
///
/// # Errors
/// When interrupted, or the wheel or the program cannot be built.
pub(crate) fn all(builds: bool, interrupt: &Interrupt) -> Result<Tally, Failed> {
    let skipped = |why: String| Tally { skipped: vec![(NAME.to_owned(), why)], ..Tally::default() };
    if let Err(why) = Tool::tried("cc") {
        return Ok(skipped(format!("{why}: the ifuncs of the tests are in C")));
    }
    let wheel = match wheel(interrupt)? {
        Ok(wheel) => wheel,
        Err(why) => return Ok(skipped(why)),
    };
    let program = program(builds, interrupt)?;
    let target = Workspace::load(false, interrupt)?.target();
    let failed = |error: std::io::Error| Failed::Because(format!("{}: {error}", target.display()));
    let made = tempfile::tempdir_in(target.join("python")).map_err(failed)?;
    let libraries = made.path().join("libraries");
    fs::create_dir(&libraries).map_err(failed)?;
    for source in IFUNCS {
        let name = Path::new(source).file_stem().unwrap_or_default().to_string_lossy();
        let library = libraries.join(format!("lib{name}.so"));
        let run = Run::new(&program, interrupt).args(["build", source, "-o"]).args([library]);
        done(run.directory(root()).limit(SHORT).quiet(), &format!("{source} cannot be built"))?;
    }
    let mut tally = Tally::default();
    for (version, interpreter) in interpreters() {
        let name = format!("{NAME}, CPython 3.{version}");
        if packages::in_ci() && IN_BETWEEN.contains(&version) {
            let why =
                "CI runs the oldest and the newest: `cargo xtask test python` runs them where CI is not set";
            tally.skipped.push((name, why.to_owned()));
            continue;
        }
        let Some(interpreter) = interpreter else {
            tally.skipped.push((name, format!("there is no python3.{version} that runs")));
            continue;
        };
        let environment = made.path().join(format!("3.{version}"));
        match installed(&interpreter, &environment, &wheel, interrupt)? {
            Err(why) => tally.skipped.push((name, why)),
            Ok(python) => {
                if version == languages::PYTHON {
                    match languages::numba(interrupt)? {
                        Ok(wheels) => see(&environment, version, &wheels).map_err(failed)?,
                        Err(why) => tally.skipped.push((format!("{name}, Numba"), why)),
                    }
                }
                let run = Run::new(python, interrupt).args(["-W", "ignore", "python/tests/run.py"]);
                let run = run.args([&libraries, &program]).env("PYTHONDONTWRITEBYTECODE", "1");
                let run = run.directory(root()).shown_as(format!("python3.{version} python/tests/run.py"));
                let beside = match version {
                    CHECKED => BESIDE.folder(|_| Ok(()), interrupt)?.map(Some),
                    _ => Ok(None),
                };
                let run = match beside {
                    Ok(Some(folder)) => run.env("PYTHONPATH", folder),
                    Ok(None) => run,
                    Err(why) => {
                        tally.skipped.push((format!("{name}, stubs and uvloop"), why));
                        run
                    }
                };
                tally.add(suite(&name, run, true)?);
            }
        }
    }
    Ok(tally)
}

/// Makes an environment find the packages in `folder`.
fn see(environment: &Path, version: u32, folder: &Path) -> std::io::Result<()> {
    let packages = environment.join(format!("lib/python3.{version}/site-packages"));
    fs::write(packages.join("wheels.pth"), format!("{}\n", folder.display()))
}

/// Runs a command, and fails unless it succeeds.
fn done(run: Run<'_>, what: &str) -> Result<(), Failed> {
    let ended = run.run()?;
    match ended.status.success() {
        true => Ok(()),
        false => Err(Failed::Because(format!("{what}\n    {}", last(&ended.output).join("\n    ")))),
    }
}
