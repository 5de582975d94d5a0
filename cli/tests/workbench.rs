//! A folder to work in, and processes under a watchdog: each ends with its test, or after a minute.

use std::ffi::OsStr;
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

/// Time after which a process counts as hung.
const WATCHDOG: Duration = Duration::from_secs(60);

/// A folder with an empty folder `tmp` for temporary files in it.
pub(crate) struct Workbench(TempDir);

/// A process's exit and output. A signal counts as 128 and its number.
pub(crate) struct Done {
    pub(crate) code: i32,
    pub(crate) out: Vec<u8>,
    pub(crate) err: String,
}

impl Done {
    /// Returns standard output as text.
    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.out).expect("standard output is text")
    }

    /// Returns the text after `error:`. Checks that it is one sentence without a panic, and the exit code.
    #[track_caller]
    pub(crate) fn error(&self, code: i32) -> &str {
        assert_eq!(self.code, code, "{}", self.err);
        assert!(!self.err.contains("thread '") && !self.err.contains("RUST_BACKTRACE"), "{}", self.err);
        let line = self.err.lines().find_map(|line| line.strip_prefix("error: "));
        line.unwrap_or_else(|| panic!("there is no error in {:?}", self.err))
    }

    /// Checks that it succeeded.
    #[track_caller]
    pub(crate) fn worked(self) -> Done {
        assert_eq!(self.code, 0, "{}", self.err);
        self
    }
}

impl From<Output> for Done {
    fn from(output: Output) -> Done {
        let code = output.status.code().or(output.status.signal().map(|signal| 128 + signal));
        Done {
            code: code.expect("a process ends by exiting or by a signal"),
            out: output.stdout,
            err: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }
}

impl Workbench {
    pub(crate) fn new() -> Workbench {
        let folder = tempfile::Builder::new().prefix("farjump-cli-").tempdir().expect("a folder can be made");
        fs::create_dir(folder.path().join("tmp")).expect("a folder can be made");
        Workbench(folder)
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub(crate) fn write(&self, name: &str, contents: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path(name);
        fs::write(&path, contents).expect("a file can be written");
        path
    }

    /// Returns the address of a socket in the folder.
    pub(crate) fn address(&self) -> String {
        format!("unix:{}", self.path("s").display())
    }

    /// `farjump` in this folder, without any of its environment variables.
    pub(crate) fn farjump(&self) -> Command {
        self.program(env!("CARGO_BIN_EXE_farjump"))
    }

    /// Another program in the same environment.
    pub(crate) fn program(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new(program);
        command.current_dir(self.0.path()).env("TMPDIR", self.path("tmp")).stdin(Stdio::null());
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("FARJUMP_") {
                command.env_remove(name);
            }
        }
        command
    }

    /// Runs `farjump` with these arguments to its end.
    pub(crate) fn run<A: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = A>) -> Done {
        finish(self.farjump().args(args))
    }

    /// Injects a library into the target at [`Workbench::address`].
    pub(crate) fn inject(&self, library: &Path, more: &[&str]) -> Done {
        let address = self.address();
        let mut args = vec![OsStr::new("inject"), library.as_os_str(), OsStr::new("--to"), address.as_ref()];
        args.extend(more.iter().map(OsStr::new));
        self.run(args)
    }

    /// Builds one of the samples in C.
    pub(crate) fn sample(&self, name: &str) -> PathBuf {
        let samples = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../ifuncs/samples/c"));
        self.build(&samples.join(format!("{name}.c")), name)
    }

    /// Builds an ifunc library from C, without the line of the header.
    pub(crate) fn library(&self, name: &str, source: &str) -> PathBuf {
        let source = format!("#include <farjump_ifunc.h>\n{source}");
        self.build(&self.write(&format!("{name}.c"), source), name)
    }

    fn build(&self, source: &Path, name: &str) -> PathBuf {
        let library = self.path(&format!("lib{name}.so"));
        self.run([OsStr::new("build"), source.as_os_str(), OsStr::new("-o"), library.as_os_str()]).worked();
        library
    }

    /// Builds an ordinary shared library from C.
    pub(crate) fn plain_library(&self, name: &str, source: &str) -> PathBuf {
        let source = self.write(&format!("plain-{name}.c"), source);
        let library = self.path(&format!("lib{name}.so"));
        finish(Command::new("cc").args(["-shared", "-fPIC", "-o"]).arg(&library).arg(source)).worked();
        library
    }

    /// Copies the program `contents`. Another process copies it: while a child that another test is starting
    /// holds a written file open, that file cannot be executed.
    pub(crate) fn executable(&self, name: &str, contents: &Path) -> PathBuf {
        let path = self.path(name);
        finish(Command::new("cp").arg(contents).arg(&path)).worked();
        finish(Command::new("chmod").arg("700").arg(&path)).worked();
        path
    }

    /// Starts a target at [`Workbench::address`] and waits until it is ready.
    pub(crate) fn serve(&self, args: &[&str]) -> Serving {
        let mut command = self.farjump();
        command.args(["serve", "--listen", &self.address()]).args(args);
        Serving::start(&mut command)
    }

    /// Returns the temporary files left behind.
    pub(crate) fn leftovers(&self) -> Vec<PathBuf> {
        let entries = fs::read_dir(self.path("tmp")).expect("the folder is still there");
        entries.map(|entry| entry.expect("it can be read").path()).collect()
    }
}

/// Runs a command to its end.
pub(crate) fn finish(command: &mut Command) -> Done {
    Watched::start(command.stdout(Stdio::piped()).stderr(Stdio::piped())).finish()
}

/// A process that is killed on drop, or when it hangs.
pub(crate) struct Watched(Option<Child>);

impl Watched {
    pub(crate) fn start(command: &mut Command) -> Watched {
        Watched(Some(command.spawn().expect("the program can be started")))
    }

    pub(crate) fn pid(&self) -> u32 {
        self.0.as_ref().expect("it runs").id()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill(self.pid(), signal);
    }

    pub(crate) fn finish(mut self) -> Done {
        let child = self.0.take().expect("it runs");
        let pid = child.id();
        let (ended, watch) = mpsc::channel::<()>();
        let watchdog = std::thread::spawn(move || {
            let hangs = watch.recv_timeout(WATCHDOG) == Err(RecvTimeoutError::Timeout);
            if hangs {
                kill(pid, Signal::KILL);
            }
            hangs
        });
        let output = child.wait_with_output().expect("its output can be read");
        drop(ended);
        let hung = watchdog.join().expect("the watchdog does not panic");
        assert!(!hung, "the process hung: {output:?}");
        output.into()
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        if let Some(child) = &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// A running `farjump serve`.
pub(crate) struct Serving {
    process: Watched,
    lines: Receiver<String>,
    pub(crate) ready: String,
}

impl Serving {
    pub(crate) fn start(command: &mut Command) -> Serving {
        let mut process = Watched::start(command.stdout(Stdio::piped()).stderr(Stdio::piped()));
        let out = process.0.as_mut().and_then(|child| child.stdout.take()).expect("it is piped");
        let (sender, lines) = mpsc::channel();
        std::thread::spawn(move || {
            for line in BufReader::new(out).lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    break;
                }
            }
        });
        let mut serving = Serving { process, lines, ready: String::new() };
        match serving.lines.recv_timeout(WATCHDOG) {
            Ok(line) => serving.ready = line,
            Err(_) => panic!("no target: {}", serving.kill().err),
        }
        serving
    }

    pub(crate) fn pid(&self) -> u32 {
        self.process.pid()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        self.process.signal(signal);
    }

    /// Returns the next line that it prints.
    pub(crate) fn line(&self) -> String {
        self.lines.recv_timeout(WATCHDOG).expect("it prints a line")
    }

    /// Ends it with SIGTERM.
    pub(crate) fn stop(self) -> Done {
        self.signal(Signal::TERM);
        self.finish()
    }

    /// Ends it with SIGKILL.
    pub(crate) fn kill(self) -> Done {
        self.signal(Signal::KILL);
        self.finish()
    }

    pub(crate) fn finish(self) -> Done {
        self.process.finish()
    }
}

pub(crate) fn kill(pid: u32, signal: Signal) {
    let pid = Pid::from_raw(pid as i32).expect("no process has the id 0");
    // It may have ended.
    let _ = kill_process(pid, signal);
}

/// Waits until `condition` returns a value.
#[track_caller]
pub(crate) fn wait_for<T>(what: &str, condition: impl Fn() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(found) = condition() {
            return found;
        }
        assert!(start.elapsed() < WATCHDOG, "waited in vain for {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Returns whether a process runs. One that has ended and is not yet reaped does not.
pub(crate) fn runs(pid: u32) -> bool {
    process_fields(pid).is_some_and(|fields| fields[0] != "Z" && fields[0] != "X")
}

/// Returns the fields of /proc/PID/stat from the third on (proc(5)): state, parent, …
pub(crate) fn process_fields(pid: u32) -> Option<Vec<String>> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, fields) = stat.rsplit_once(") ")?;
    Some(fields.split_whitespace().map(String::from).collect())
}
