//! Interpreters of CPython, and environments of them with the wheel.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use farjump_tools::Tool;

use crate::fetch::packages;
use crate::fetch::wheels::by_pip;
use crate::process::{Failed, Interrupt, Run, variable};

/// Minor versions of CPython 3 that the package is tested on.
pub(super) const VERSIONS: [u32; 4] = [11, 12, 13, 14];
/// The code that an interpreter has to run: Debian has this module in a package of its own.
const WITH_VENV: &str = "import venv";
/// Limit for making an environment, or building an ifunc.
pub(super) const SHORT: Duration = Duration::from_secs(120);

/// A new virtual environment with the wheel alone, and its interpreter. `Err` inside says why it cannot be made.
pub(super) fn installed(
    interpreter: &Path,
    environment: &Path,
    wheel: &Path,
    interrupt: &Interrupt,
) -> Result<Result<PathBuf, String>, Failed> {
    let python = environment.join("bin/python");
    let venv = Run::new(interpreter, interrupt).args(["-m", "venv", "--without-pip"]).args([environment]);
    let pip = Run::new("python3", interrupt).args(["-m", "pip", "--disable-pip-version-check", "--python"]);
    let pip = pip.args([&python]).args(["install", "--quiet", "--no-index", "--no-deps"]).args([wheel]);
    for (run, what) in [(venv, "no virtual environment"), (pip, "pip cannot install the wheel")] {
        if let Err(said) = by_pip(run.limit(SHORT))? {
            return Ok(Err(format!("{what}: {said}")));
        }
    }
    Ok(Ok(python))
}

/// The interpreter of each version, if it runs: from the path, or from pyenv.
pub(super) fn interpreters() -> Vec<(u32, Option<PathBuf>)> {
    VERSIONS.map(|version| (version, interpreter(version))).to_vec()
}

/// The interpreter of CPython 3.`version`, if one runs.
pub(super) fn interpreter(version: u32) -> Option<PathBuf> {
    let name = format!("python3.{version}");
    let pyenv = variable("PYENV_ROOT").map(PathBuf::from);
    let pyenv = pyenv.or_else(|| Some(PathBuf::from(variable("HOME")?).join(".pyenv")));
    let theirs = pyenv.into_iter().flat_map(|root| fs::read_dir(root.join("versions")).into_iter().flatten());
    let theirs = theirs.flatten().map(|entry| entry.path().join("bin").join(&name));
    // pyenv has programs in the path that only print which version to choose.
    let runs = |path: &PathBuf| Tool::tried_on(&path.to_string_lossy(), WITH_VENV).is_ok();
    packages::find(&name).into_iter().chain(theirs).find(runs)
}
