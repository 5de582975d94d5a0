//! A folder in which the example is built as the README says, and its programs run.

use std::ffi::OsStr;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use farjump_fixtures::process::quoted;
use farjump_tools::all_work;
use tempfile::TempDir;

use super::page::{Typed, typed};
use crate::common::{ifunc_library, package};
use crate::installation::prefix;
use crate::programs::{Linkage, Process, SANITIZERS, WARNINGS, finish};

/// Directory of the recordings that the README reads.
const REAL: &str = "/usr/share/sounds/alsa";

/// A transport, by its name.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Transport(pub(crate) &'static str);

impl Transport {
    pub(crate) const SHM: Transport = Transport("shm");
    pub(crate) const PUT: Transport = Transport("ucx-put");
    pub(crate) const AM: Transport = Transport("ucx-am");
    /// The transport between machines, here on one.
    pub(crate) const TCP: Transport = Transport("tcp");

    /// Returns whether it is available. If not, prints that the test is skipped.
    pub(crate) fn is_open(self) -> bool {
        let found = farjump::transports::available().into_iter().find(|backend| backend.name == self.0);
        match found.map(|backend| backend.usable) {
            Some(Ok(_)) => true,
            other => {
                println!("skipped: {} cannot be used: {other:?}", self.0);
                false
            }
        }
    }
}

/// A folder with the programs and the libraries of the example.
pub(crate) struct Fixture(TempDir);

impl Fixture {
    /// `None`, with a message, where a dependency of the example is missing.
    pub(crate) fn new(linkage: Linkage) -> Option<Fixture> {
        if !linkage.is_open() || !all_work(&["pkg-config", "sqlite3"]) {
            return None;
        }
        let sqlite = Command::new("pkg-config").args(["--exists", "sqlite3"]).status();
        if !sqlite.is_ok_and(|status| status.success()) {
            println!("skipped: SQLite's headers are not here (libsqlite3-dev)");
            return None;
        }
        let fixture = Fixture(farjump_fixtures::folder());
        symlink(package(), fixture.path("c")).unwrap();
        for Typed { command, .. } in typed() {
            if let Some(compile) = command.strip_prefix("cc ") {
                fixture.compile(linkage, compile);
            } else if let Some(from_to) = command.strip_prefix("farjump build ") {
                fixture.build(from_to);
            }
        }
        Some(fixture)
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub(crate) fn address(&self) -> String {
        format!("unix:{}", self.path("recordings.sock").display())
    }

    /// Compiles in a shell, with the strictest warnings.
    fn compile(&self, linkage: Linkage, rest: &str) {
        let lib = prefix().join("lib");
        let sanitizers = if linkage == Linkage::Sanitized { SANITIZERS.join(" ") } else { String::new() };
        let warnings = WARNINGS.join(" ");
        let rpath = quoted(&lib);
        // The shell that reads the README's line does not interpret pkg-config's quotes in its output. `eval` reads the
        // line a second time.
        let cc = format!("eval \"cc {warnings} -g {sanitizers} -Wl,-rpath,{rpath} {rest}\"");
        let mut shell = Command::new("sh");
        shell.env("PKG_CONFIG_PATH", lib.join("pkgconfig")).current_dir(self.0.path());
        finish(shell.args(["-c", &cc])).worked();
    }

    /// Does the work of `farjump build`, which is not built for this test.
    fn build(&self, from_to: &str) {
        let (source, library) = from_to.split_once(" -o ").expect("it says what to build");
        self.build_library(&self.path(source), library);
    }

    pub(crate) fn build_library(&self, source: &Path, library: &str) {
        ifunc_library(source, self.path(library), &[]).unwrap();
    }

    /// Returns the command of one of the example's programs, which is to run in this folder. It is not started yet.
    pub(crate) fn program(&self, name: &str, transport: Transport, args: &[&str]) -> Command {
        let mut command = Command::new(self.path(&format!("recordings-{name}")));
        command.args(["--transport", transport.0]).args(args).current_dir(self.0.path());
        if transport.0 != Transport::SHM.0 {
            // UCX has its own thread, and gcc 12's search for leaks cannot handle that thread's thread-local variables.
            command.env("ASAN_OPTIONS", "detect_leaks=0");
        }
        command
    }

    /// Returns a target that is ready, with these files in its database.
    pub(crate) fn target(&self, transport: Transport, files: &[&str]) -> Process {
        let address = self.address();
        let args = [&[&address, "recordings.db"], files].concat();
        let target = Process::start(&mut self.program("target", transport, &args));
        assert_eq!(target.line(), format!("ready: {address}"));
        target
    }

    /// Runs the source with these files; returns its output, or its error.
    pub(crate) fn bring(&self, transport: Transport, files: &[&str]) -> Result<Vec<String>, String> {
        let address = self.address();
        said(&mut self.program("source", transport, &[&[address.as_str()], files].concat()))
    }

    /// Returns the output of SQLite's own program.
    pub(crate) fn query(&self, query: &str) -> String {
        let mut sqlite = Command::new("sqlite3");
        let done = finish(sqlite.arg("-readonly").arg(self.path("recordings.db")).arg(query)).worked();
        done.text().trim_end().to_owned()
    }
}

/// Runs a program that ends by itself. Returns its output, or its standard error if it fails.
pub(crate) fn said(command: &mut Command) -> Result<Vec<String>, String> {
    let done = finish(command);
    match done.code {
        // A sanitizer ends programs with this status, too.
        1 if !done.err.contains("Sanitizer") => Err(done.err.trim_end().to_owned()),
        _ => Ok(done.worked().text().lines().map(str::to_owned).collect()),
    }
}

/// Returns the path of a recording that the README reads; `None`, with a message, where there are none.
pub(crate) fn real(name: &str) -> Option<PathBuf> {
    let path = Path::new(REAL).join(name).with_extension("wav");
    if !path.exists() {
        println!("skipped: there is no {} here (alsa-utils)", path.display());
        return None;
    }
    Some(path)
}

/// Returns a path as an argument.
pub(crate) fn word(path: &impl AsRef<OsStr>) -> &str {
    path.as_ref().to_str().unwrap()
}
