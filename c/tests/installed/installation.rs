//! The installation that the tests compile against, and the ifunc libraries that the programs inject.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::{env, fs};

use farjump_fixtures::process::finish;

use crate::common::{archive, package};
use farjump::build::{Options, build};

/// A folder that `make` fills, once for all tests of a run: also where each test is a process of its own.
fn shared(name: &str, make: impl FnOnce(&Path)) -> PathBuf {
    let temporary = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let (folder, made) = (temporary.join(name), temporary.join(format!("{name}.made")));
    let lock = fs::File::create(temporary.join(format!("{name}.lock"))).unwrap();
    rustix::fs::flock(&lock, rustix::fs::FlockOperation::LockExclusive).unwrap();
    // cargo-nextest has a name for each of its runs.
    let run = env::var("NEXTEST_RUN_ID").unwrap_or_else(|_| std::process::id().to_string());
    if fs::read_to_string(&made).ok().as_ref() != Some(&run) {
        // Files of an earlier version must not be found.
        drop(fs::remove_dir_all(&folder));
        make(&folder);
        fs::write(made, run).unwrap();
    }
    folder
}

/// The prefix, with the library that was built with this test.
pub(crate) fn prefix() -> &'static Path {
    static PREFIX: OnceLock<PathBuf> = OnceLock::new();
    PREFIX.get_or_init(|| shared("farjump-c-prefix", install))
}

fn install(prefix: &Path) {
    let mut install = Command::new(env!("CARGO"));
    install.args(["run", "--quiet", "--package", "xtask", "--", "install", "--prefix"]);
    install.arg(prefix).arg("--archive").arg(archive()).stdin(Stdio::null());
    finish(install.current_dir(package())).worked();
}

/// The folder of the ifunc libraries, each built of the file of its name in `tests/ifuncs`.
pub(crate) fn ifuncs() -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| shared("farjump-c-ifuncs", build_ifuncs))
}

fn build_ifuncs(folder: &Path) {
    fs::create_dir_all(folder).unwrap();
    for entry in fs::read_dir(package().join("tests/ifuncs")).unwrap() {
        let source = entry.unwrap().path();
        let name = source.file_stem().unwrap().to_string_lossy();
        let output = folder.join(format!("lib{name}.so"));
        let inputs = vec![source];
        build(&Options { inputs, output, carry_source: true, ..Options::default() }).unwrap();
    }
}
