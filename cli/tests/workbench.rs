//! A folder to work in, and processes under a watchdog: each ends with its test, also if that is killed, or fails it after
//! some minutes.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use farjump_fixtures::helper_process::{HelperProcess, role, say};
use farjump_fixtures::process::PATIENCE;
pub(crate) use farjump_fixtures::process::{
    Done, Process, children_of, finish, kill, process_fields, quoted, runs, wait_for,
};
use farjump_fixtures::this_test;
use serde_json::Value;
use tempfile::TempDir;

/// A folder with an empty folder `tmp` for temporary files in it.
pub(crate) struct Workbench(TempDir);

impl Workbench {
    pub(crate) fn new() -> Workbench {
        let folder = farjump_fixtures::folder();
        fs::create_dir(folder.path().join("tmp")).expect("a folder can be made");
        Workbench(folder)
    }

    /// Returns a folder, if `transport` can be used here; otherwise prints the reason.
    pub(crate) fn with_transport(transport: &str) -> Option<Workbench> {
        let found = farjump::transports::available().into_iter().find(|found| found.name == transport);
        if let Err(why) = found.expect("every transport is listed").usable {
            println!("skipped: {transport}: {why}");
            return None;
        }
        Some(Workbench::new())
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

    /// Returns a command of `farjump` in this folder, without any of its environment variables. It names the tests'
    /// compiler of Rust, because the program that compiles bitcode looks for none.
    pub(crate) fn farjump(&self) -> Command {
        self.program(env!("CARGO_BIN_EXE_farjump"))
    }

    /// Returns a command of another program in the same environment.
    pub(crate) fn program(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new(program);
        command.current_dir(self.0.path()).env("TMPDIR", self.path("tmp")).stdin(Stdio::null());
        command.env("RUSTC", std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into()));
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

    /// Runs `farjump` with these arguments, and returns what it prints as JSON.
    #[track_caller]
    pub(crate) fn json<A: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = A>) -> Value {
        self.run(args).worked().json()
    }

    /// Returns a command that injects a library into the target at `address`.
    pub(crate) fn injecting(&self, library: &Path, address: &str, more: &[&str]) -> Command {
        let mut command = self.farjump();
        command.arg("inject").arg(library).args(["--to", address]).args(more);
        command
    }

    /// Injects a library into the target at [`Workbench::address`].
    pub(crate) fn inject(&self, library: &Path, more: &[&str]) -> Done {
        finish(&mut self.injecting(library, &self.address(), more))
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
    #[track_caller]
    pub(crate) fn serve(&self, args: &[&str]) -> Process {
        start_target(&mut self.serving(args)).0
    }

    /// Returns a command that starts a target at [`Workbench::address`].
    pub(crate) fn serving(&self, args: &[&str]) -> Command {
        let mut command = self.farjump();
        command.args(["serve", "--listen", &self.address()]).args(args);
        command
    }

    /// Checks that no temporary files are left behind.
    #[track_caller]
    pub(crate) fn is_clean(&self) {
        assert_eq!(self.leftovers(), [""; 0].map(PathBuf::from));
    }

    /// Returns the temporary files left behind.
    pub(crate) fn leftovers(&self) -> Vec<PathBuf> {
        let entries = fs::read_dir(self.path("tmp")).expect("the folder is still there");
        entries.map(|entry| entry.expect("it can be read").path()).collect()
    }
}

/// Gives sources as long for the handshake as a test takes at most, unless the command says how long: on a busy machine
/// one that loads UCX can take more than two seconds.
pub(crate) fn patient(command: &mut Command) -> &mut Command {
    const HANDSHAKE: &str = "--handshake-timeout";
    match command.get_args().any(|arg| arg == HANDSHAKE) {
        true => command,
        false => command.arg(HANDSHAKE).arg(format!("{}s", PATIENCE.as_secs())),
    }
}

/// Starts a target with patience, waits until it is ready, and returns its address too.
#[track_caller]
pub(crate) fn start_target(command: &mut Command) -> (Process, String) {
    let target = Process::start(patient(command));
    let ready = target.line();
    // Its path may have blanks.
    let address = ready.strip_prefix("ready: ").and_then(|rest| Some(rest.rsplit_once(" (pid ")?.0));
    let address = address.unwrap_or_else(|| panic!("no address in {ready:?}"));
    (target, address.to_owned())
}

/// The processes of a run of tests that is killed have only the system to end them.
#[test]
fn a_killed_run_of_tests_leaves_no_target() {
    if let [folder] = &*role() {
        let mut serve = Command::new(env!("CARGO_BIN_EXE_farjump"));
        let (target, _) = start_target(serve.args(["serve", "--listen", "unix:s"]).current_dir(folder));
        say(&target.pid().to_string());
        loop {
            std::thread::park();
        }
    }
    let bench = Workbench::new();
    let folder = bench.path("");
    let mut run = HelperProcess::of_test(this_test!(), &[folder.to_str().expect("it is text")]);
    let target = run.hear().parse().expect("a number");
    assert!(runs(target));
    run.kill();
    wait_for("the end of the target", || (!runs(target)).then_some(()));
}

/// Returns the keys of an object, in their order.
#[track_caller]
pub(crate) fn keys(object: &Value) -> Vec<String> {
    object.as_object().unwrap_or_else(|| panic!("{object} is no object")).keys().cloned().collect()
}

/// Returns the keys in the table that follows `words` in a page of `docs`.
#[track_caller]
pub(crate) fn documented(page: &str, words: &str) -> Vec<String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs").join(page);
    let text = fs::read_to_string(path).expect("the page is there");
    let (_, rest) = text.split_once(words).unwrap_or_else(|| panic!("{words:?} is not in {page}"));
    let table =
        rest.lines().skip_while(|line| !line.starts_with('|')).take_while(|line| line.starts_with('|'));
    table.filter_map(|row| Some(row.strip_prefix("| `")?.split_once('`')?.0.to_owned())).collect()
}

/// Keeps tests with gdb and tests with perf apart, in whichever process each runs: `perf record` fails without
/// a word while gdb attaches to another process.
pub(crate) fn alone() -> fs::File {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("debuggers.lock");
    let lock = fs::File::create(path).expect("cargo has made the folder");
    rustix::fs::flock(&lock, rustix::fs::FlockOperation::LockExclusive).expect("a file can be locked");
    lock
}

/// Returns whether gdb could attach to a process, by its output. If not, prints the reason.
pub(crate) fn gdb_attached(said: &Done) -> bool {
    let refused =
        ["ptrace: Operation not permitted", "Could not attach"].iter().any(|no| said.err.contains(no));
    if refused {
        eprintln!("skipped: gdb may not attach here: {}", said.err.trim().replace('\n', " "));
    }
    !refused
}
