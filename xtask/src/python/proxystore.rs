//! ProxyStore's own tests, from its source distributions, with farjump's connector in place of ProxyStore's
//! connectors. Also the tests of that connector, which need ProxyStore.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::interpreters::{installed, interpreter};
use super::tests::{program, wheel};
use crate::fetch::wheels::{by_pip, kept};
use crate::process::{Failed, Interrupt, Run};
use crate::test::languages;
use crate::test::report::Tally;
use crate::test::suite::suite;
use crate::workspace::{Workspace, root};

/// The name of all these tests in counts.
const NAME: &str = "ProxyStore's own tests";
/// The minor version of the interpreter: packages.txt has the wheels for it.
const VERSION: u32 = 11;
/// The folder of the plugins, and of the lists of packages.
const FOLDER: &str = "python/tests/proxystore_suite";
/// The folder of the downloads. A change of the lists needs a new number.
const KEPT: &str = "proxystore/2";
/// Limit for a download on a slow network.
const LIMIT: Duration = Duration::from_secs(15 * 60);

/// Each source distribution's folder, the plugin that sets the connector, and the tests.
const SUITES: [(&str, &str, &[&str]); 2] = [
    (
        "proxystore-1.1.0",
        "proxystore_plugin",
        &["tests/connectors/connector_test.py", "tests/store", "tests/stream/interface_test.py"],
    ),
    ("proxystore_ex-0.1.5", "proxystore_ex_plugin", &["tests/connectors/connectors_test.py"]),
];

/// Runs the tests on one interpreter. With `builds`, builds the program farjump, which serves as a target; otherwise
/// it was built with the other tests.
///
/// # Errors
/// When interrupted, or the wheel cannot be built.
pub(crate) fn all(builds: bool, interrupt: &Interrupt) -> Result<Tally, Failed> {
    let skipped = |why: String| Tally { skipped: vec![(NAME.to_owned(), why)], ..Tally::default() };
    let Some(interpreter) = interpreter(VERSION) else {
        return Ok(skipped(format!("there is no python3.{VERSION} that runs")));
    };
    let wheel = match wheel(interrupt)? {
        Ok(wheel) => wheel,
        Err(why) => return Ok(skipped(why)),
    };
    let program = program(builds, interrupt)?;
    let target = Workspace::load(false, interrupt)?.target();
    let failed = |error: std::io::Error| Failed::Because(format!("{}: {error}", target.display()));
    let made = tempfile::tempdir_in(target.join("python")).map_err(failed)?;
    let python = match installed(&interpreter, &made.path().join("environment"), &wheel, interrupt)? {
        Ok(python) => python,
        Err(why) => return Ok(skipped(why)),
    };
    let downloads = match downloads(&python, interrupt)? {
        Ok(downloads) => downloads,
        Err(why) => return Ok(skipped(why)),
    };
    let folder = root().join(FOLDER);
    let packages = downloads.join("packages");
    let path = format!("{}:{}", folder.display(), packages.display());
    let python = |args: &[&str]| {
        let run = Run::new(&python, interrupt).args(["-W", "ignore"]).args(args);
        run.env("PYTHONPATH", &path).env("PYTHONDONTWRITEBYTECODE", "1").env("TEST_PROGRAM", &program)
    };
    let mut tally = Tally::default();
    for (sources, plugin, tests) in SUITES {
        let run = python(&["-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", plugin]).args(tests);
        let run = run.args(["--basetemp".as_ref(), made.path().join(sources).as_os_str()]);
        let run = run.directory(&downloads.join("sources").join(sources));
        tally.add(suite(&format!("{NAME}: {sources}"), run.shown_as(format!("pytest -p {plugin}")), true)?);
    }
    let run = python(&["python/tests/run.py", "--in", FOLDER]).directory(root());
    // Numba compiles functions that run at the data of proxies.
    let run = match languages::numba(interrupt)? {
        Ok(numba) => run.env("PYTHONPATH", format!("{path}:{}", numba.display())),
        Err(why) => {
            tally.skipped.push((format!("{NAME}: functions at proxies"), why));
            run
        }
    };
    let run = run.shown_as(format!("python3.{VERSION} python/tests/run.py --in {FOLDER}"));
    tally.add(suite("Python package with ProxyStore", run, true)?);
    Ok(tally)
}

/// The folder of the packages and of the unpacked sources. `Err` inside says why it is not available.
fn downloads(python: &Path, interrupt: &Interrupt) -> Result<Result<PathBuf, String>, Failed> {
    let lists = root().join(FOLDER);
    let advice = |said: String| {
        format!(
            "the packages of {FOLDER}/packages.txt and sources.txt cannot be installed, which needs pip and an index of \
             packages (PyPI, or what pip's settings name): {said}"
        )
    };
    kept(KEPT, NAME, |made| {
        let failed = |error: std::io::Error| Failed::Because(format!("{}: {error}", made.display()));
        let (packages, sources) = (made.join("packages"), made.join("sources"));
        fs::create_dir_all(&sources).map_err(failed)?;
        let pip = |command: &[&str], list: &str| {
            let run = Run::new("python3", interrupt).limit(LIMIT).args([
                "-m",
                "pip",
                "--disable-pip-version-check",
            ]);
            let run = run.args(["--python".as_ref(), python.as_os_str()]).args(command);
            run.args(["--quiet", "--no-deps", "--require-hashes", "--requirement"]).args([lists.join(list)])
        };
        let run = pip(&["install", "--only-binary=:all:"], "packages.txt");
        if let Err(said) = by_pip(run.args(["--target".as_ref(), packages.as_os_str()]))? {
            return Ok(Err(advice(said)));
        }
        // pip builds their descriptions with setuptools, which is among the packages.
        let run = pip(&["download", "--no-binary=:all:", "--no-build-isolation"], "sources.txt");
        let run = run.env("PYTHONPATH", &packages).args(["--dest".as_ref(), sources.as_os_str()]);
        if let Err(said) = by_pip(run)? {
            return Ok(Err(advice(said)));
        }
        let archives: Vec<_> = fs::read_dir(&sources).map_err(failed)?.filter_map(Result::ok).collect();
        for archive in archives {
            let run = Run::new("tar", interrupt).args(["xzf".as_ref(), archive.path().as_os_str()]);
            if let Err(said) = by_pip(run.directory(&sources))? {
                return Ok(Err(format!("{} cannot be unpacked: {said}", archive.path().display())));
            }
        }
        Ok(Ok(()))
    })
}
