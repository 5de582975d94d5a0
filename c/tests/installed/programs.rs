//! C programs: compiling them in several ways, and running them with a time limit.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

pub(crate) use farjump_fixtures::process::{PATIENCE, Process, finish};
use farjump_tools::Tool;
use tempfile::TempDir;

use crate::common::package;
use crate::installation::prefix;

/// The compilation and linking of a program.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Linkage {
    /// Against `libfarjump.so`.
    Shared,
    /// Against `libfarjump.a`.
    Static,
    /// Against `libfarjump.a`, with AddressSanitizer, its search for leaks, and UndefinedBehaviorSanitizer.
    Sanitized,
}

impl Linkage {
    /// Returns the reason if it is unavailable here: no compiler, or one whose sanitizers do not work.
    fn hindrance(self) -> Option<String> {
        let flags = if self == Linkage::Sanitized { &SANITIZERS[..] } else { &[] };
        if let Err(why) = Tool::tried(&[&["cc"], flags].concat().join(" ")) {
            return Some(why);
        }
        let folder = TempDir::new().unwrap();
        let source = folder.path().join("probe.c");
        std::fs::write(&source, "int main(void) { return 0; }").unwrap();
        let mut compile = Command::new("cc");
        finish(compile.args(flags).arg(&source).arg("-o").arg(folder.path().join("probe"))).worked();
        let ran = Command::new(folder.path().join("probe")).output();
        (!ran.is_ok_and(|output| output.status.success())).then(|| format!("nothing runs {self:?} here"))
    }

    /// Returns whether it is available here. If not, prints that the test is skipped.
    pub(crate) fn is_open(self) -> bool {
        let hindrance = self.hindrance();
        if let Some(why) = &hindrance {
            println!("skipped: {why}");
        }
        hindrance.is_none()
    }

    /// Returns the linker arguments that follow the program.
    pub(crate) fn libraries(self) -> Vec<String> {
        let lib = prefix().join("lib");
        match self {
            Linkage::Shared => {
                vec![
                    format!("-L{}", lib.display()),
                    "-lfarjump".into(),
                    format!("-Wl,-rpath,{}", lib.display()),
                ]
            }
            Linkage::Static | Linkage::Sanitized => {
                let native = ["-lgcc_s", "-lutil", "-lrt", "-lpthread", "-lm", "-ldl"].map(str::to_owned);
                [lib.join("libfarjump.a").display().to_string()].into_iter().chain(native).collect()
            }
        }
    }
}

pub(crate) const SANITIZERS: [&str; 2] = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all"];
pub(crate) const WARNINGS: [&str; 4] = ["-Wall", "-Wextra", "-Werror", "-pedantic"];

/// Compiles `tests/programs/NAME.c` into `folder`.
pub(crate) fn compile(name: &str, linkage: Linkage, folder: &Path) -> PathBuf {
    let program = folder.join(name);
    let mut cc = Command::new("cc");
    // Their own symbols are dynamic ones, so that a target can offer them.
    cc.args(["-std=c11", "-D_GNU_SOURCE", "-g", "-rdynamic"])
        .args(WARNINGS)
        .arg("-I")
        .arg(prefix().join("include"));
    if linkage == Linkage::Sanitized {
        cc.args(SANITIZERS);
    }
    cc.arg(package().join("tests/programs").join(format!("{name}.c"))).arg("-o").arg(&program);
    finish(cc.args(linkage.libraries()).arg("-lpthread")).worked();
    program
}

/// Starts a program in this folder, with lines for its input.
pub(crate) fn start(
    program: &Path,
    args: impl IntoIterator<Item = impl AsRef<OsStr>>,
    folder: &Path,
) -> Process {
    Process::start(Command::new(program).args(args).current_dir(folder).stdin(Stdio::piped()))
}
