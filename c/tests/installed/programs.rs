//! C programs: compiling them in several ways, and running them with a time limit.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::installation::{package, prefix};

/// Time after which a program is killed. Programs with sanitizers are slow, and share the machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(240);

/// The compilation and linking of a program.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Way {
    /// Against `libfarjump.so`.
    Shared,
    /// Against `libfarjump.a`.
    Static,
    /// Against `libfarjump.a`, with AddressSanitizer, its search for leaks, and UndefinedBehaviorSanitizer.
    Sanitized,
}

impl Way {
    /// The reason if it is unavailable here: no compiler, or one whose sanitizers do not work.
    fn hindrance(self) -> Option<String> {
        let folder = TempDir::new().unwrap();
        let source = folder.path().join("probe.c");
        std::fs::write(&source, "int main(void) { return 0; }").unwrap();
        let mut compile = Command::new("cc");
        compile.arg(&source).arg("-o").arg(folder.path().join("probe"));
        if self == Way::Sanitized {
            compile.args(SANITIZERS);
        }
        let compiled = compile.output();
        if !compiled.is_ok_and(|output| output.status.success()) {
            return Some(format!("cc compiles nothing here ({self:?})"));
        }
        let ran = Command::new(folder.path().join("probe")).output();
        (!ran.is_ok_and(|output| output.status.success())).then(|| format!("nothing runs {self:?} here"))
    }

    /// Whether it is available here. If not, says that the test is skipped.
    pub(crate) fn is_open(self) -> bool {
        let hindrance = self.hindrance();
        if let Some(why) = &hindrance {
            println!("skipped: {why}");
        }
        hindrance.is_none()
    }

    /// Linker arguments that follow the program.
    pub(crate) fn libraries(self) -> Vec<String> {
        let lib = prefix().join("lib");
        match self {
            Way::Shared => {
                vec![
                    format!("-L{}", lib.display()),
                    "-lfarjump".into(),
                    format!("-Wl,-rpath,{}", lib.display()),
                ]
            }
            Way::Static | Way::Sanitized => {
                let native = ["-lgcc_s", "-lutil", "-lrt", "-lpthread", "-lm", "-ldl"].map(str::to_owned);
                [lib.join("libfarjump.a").display().to_string()].into_iter().chain(native).collect()
            }
        }
    }
}

pub(crate) const SANITIZERS: [&str; 2] = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all"];
pub(crate) const WARNINGS: [&str; 4] = ["-Wall", "-Wextra", "-Werror", "-pedantic"];

/// Compiles `tests/programs/NAME.c` into `folder`.
pub(crate) fn compile(name: &str, way: Way, folder: &Path) -> PathBuf {
    let program = folder.join(name);
    let mut cc = Command::new("cc");
    // Their own symbols are dynamic ones, so that a target can offer them.
    cc.args(["-std=c11", "-D_GNU_SOURCE", "-g", "-rdynamic"])
        .args(WARNINGS)
        .arg("-I")
        .arg(prefix().join("include"));
    if way == Way::Sanitized {
        cc.args(SANITIZERS);
    }
    cc.arg(package().join("tests/programs").join(format!("{name}.c"))).arg("-o").arg(&program);
    finish(cc.args(way.libraries()).arg("-lpthread"));
    program
}

/// Runs a compiler or similar tool to its end.
///
/// # Panics
/// With its output, if it failed.
pub(crate) fn finish(command: &mut Command) -> String {
    let output = command.stdin(Stdio::null()).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{command:?} failed: {said}{}", String::from_utf8_lossy(&output.stderr));
    said
}

/// Whether a program is in `PATH`. If not, says that the test is skipped.
pub(crate) fn is_there(program: &str) -> bool {
    let there = Command::new(program).arg("--version").output().is_ok_and(|output| output.status.success());
    if !there {
        println!("skipped: {program} is not installed");
    }
    there
}

/// A running program; killed with the test in any case.
pub(crate) struct Program {
    child: Child,
    input: Option<ChildStdin>,
    lines: Receiver<String>,
    errors: Option<JoinHandle<String>>,
}

impl Program {
    pub(crate) fn start(
        program: &Path,
        args: impl IntoIterator<Item = impl AsRef<OsStr>>,
        folder: &Path,
    ) -> Program {
        let mut command = Command::new(program);
        command.args(args).current_dir(folder);
        Program::spawn(command)
    }

    pub(crate) fn spawn(mut command: Command) -> Program {
        let streams = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = streams.spawn().unwrap();
        let (output, mut errors) = (child.stdout.take().unwrap(), child.stderr.take().unwrap());
        let (sender, lines) = mpsc::channel();
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        let errors = std::thread::spawn(move || {
            let mut text = String::new();
            drop(errors.read_to_string(&mut text));
            text
        });
        Program { input: child.stdin.take(), child, lines, errors: Some(errors) }
    }

    /// Its next line of output.
    ///
    /// # Panics
    /// With its standard error, if there is none in time.
    pub(crate) fn line(&mut self) -> String {
        self.lines.recv_timeout(PATIENCE).unwrap_or_else(|_| {
            drop(self.child.kill());
            panic!("the program says no more: {}", self.errors());
        })
    }

    /// Ends it by a signal, as a user does, and waits as [`Program::finish`] does.
    pub(crate) fn stop(self) -> Vec<String> {
        kill_process(Pid::from_child(&self.child), Signal::TERM).unwrap();
        self.finish()
    }

    /// Writes a line to its input.
    ///
    /// # Panics
    /// With its standard error, if it has ended.
    pub(crate) fn tell(&mut self, line: &str) {
        let input = self.input.as_mut().expect("its input has not ended");
        // In one piece: the programs take each read for whole lines.
        if let Err(error) = input.write_all(format!("{line}\n").as_bytes()) {
            drop(self.child.kill());
            panic!("the program takes no input: {error}: {}", self.errors());
        }
    }

    /// Ends its input, waits for its end and returns its remaining output.
    ///
    /// # Panics
    /// With its standard error, if it failed or does not end.
    pub(crate) fn finish(mut self) -> Vec<String> {
        drop(self.input.take());
        let mut said = Vec::new();
        loop {
            match self.lines.recv_timeout(PATIENCE) {
                Ok(line) => said.push(line),
                Err(mpsc::RecvTimeoutError::Disconnected) => break,
                Err(mpsc::RecvTimeoutError::Timeout) => {
                    drop(self.child.kill());
                    panic!("the program hangs after {said:?}: {}", self.errors());
                }
            }
        }
        let status = self.child.wait().unwrap();
        assert!(status.success(), "the program ended with {status} after {said:?}: {}", self.errors());
        said
    }

    fn errors(&mut self) -> String {
        self.errors.take().and_then(|errors| errors.join().ok()).unwrap_or_default()
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // The kill fails if it has ended, and the wait follows in any case.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}
