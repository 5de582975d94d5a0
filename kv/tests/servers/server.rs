//! Servers that a test starts, with the module in them.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::{env, fs};

use farjump::build::{Options, build};
use farjump::{Error, Library, Link};
use farjump_fixtures::process::{PATIENCE, Process, runs, wait_for};
use farjump_fixtures::watchdog::Watchdog;
use tempfile::TempDir;

use crate::resp::{Client, Value};

/// The variable with the programs of servers, one after the other with colons between.
const SERVERS: &str = "FARJUMP_KV_SERVERS";
/// The end of the names of functions in Rust.
pub(crate) const RUST: &str = ".rs";

/// The programs to test with: those that the environment names, and those of the system.
fn programs() -> Vec<PathBuf> {
    let named = env::var_os(SERVERS).unwrap_or_default();
    let mut programs: Vec<PathBuf> = env::split_paths(&named).filter(|path| path.is_file()).collect();
    for name in ["redis-server", "valkey-server"] {
        let path = env::var_os("PATH").unwrap_or_default();
        let found = env::split_paths(&path).map(|folder| folder.join(name)).find(|path| path.is_file());
        programs.extend(found.filter(|_| programs.iter().all(|path| !path.ends_with(name))));
    }
    programs
}

/// Runs a test on each available server, or reports that there is none.
pub(crate) fn on_each(test: impl Fn(&Path)) {
    let _watchdog = Watchdog::new();
    let programs = programs();
    if programs.is_empty() {
        println!(
            "skipped: there is no redis-server and no valkey-server: install one, or name it in {SERVERS}"
        );
    }
    for program in programs {
        println!("on {}", program.display());
        test(&program);
    }
}

/// The module that was built with this test.
pub(crate) fn module() -> PathBuf {
    let deps = env::current_exe().expect("the test has a file");
    let deps = deps.parent().expect("it is in a folder");
    let places = [deps.join("libfarjump_kv.so"), deps.with_file_name("libfarjump_kv.so")];
    let found = places.into_iter().find(|path| path.is_file());
    found.expect("cargo builds the module with its tests")
}

/// A server, ended when dropped.
pub(crate) struct Server {
    process: Process,
    folder: TempDir,
    program: PathBuf,
    options: Vec<OsString>,
}

/// The settings for starting a server.
pub(crate) struct Start<'a> {
    program: &'a Path,
    options: Vec<OsString>,
    module: Vec<OsString>,
    prepare: fn(&mut Command),
}

impl<'a> Start<'a> {
    /// Returns the settings of a server with the module, which listens at a socket in the server's folder.
    pub(crate) fn new(program: &'a Path) -> Start<'a> {
        Start { program, options: Vec::new(), module: vec!["unix:fj.sock".into()], prepare: |_| {} }
    }

    /// Adds options of the server's.
    pub(crate) fn options(mut self, options: &str) -> Self {
        self.options.extend(options.split(' ').map(OsString::from));
        self
    }

    /// Adds arguments of the module's.
    pub(crate) fn args(mut self, args: &str) -> Self {
        self.module.extend(args.split(' ').map(OsString::from));
        self
    }

    /// Adds an argument of the module's, which may have blanks.
    pub(crate) fn arg(mut self, arg: impl Into<OsString>) -> Self {
        self.module.push(arg.into());
        self
    }

    /// Gives the module only these arguments.
    pub(crate) fn only(mut self, args: &[&str]) -> Self {
        self.module = args.iter().map(OsString::from).collect();
        self
    }

    /// Prepares the command before it starts.
    pub(crate) fn prepared(mut self, prepare: fn(&mut Command)) -> Self {
        self.prepare = prepare;
        self
    }

    /// Starts the server, and waits until it replies.
    #[track_caller]
    pub(crate) fn run(self) -> Server {
        self.run_in(farjump_fixtures::folder())
    }

    /// Starts the server in a folder that may have files of an earlier one.
    #[track_caller]
    pub(crate) fn run_in(self, folder: TempDir) -> Server {
        let mut options = self.options;
        options.push("--loadmodule".into());
        options.push(module().into());
        options.extend(self.module);
        let process = start(self.program, folder.path(), &options, self.prepare);
        let server = Server { process, folder, program: self.program.to_owned(), options };
        server.client();
        server
    }
}

/// Returns the folder of the libraries of a server that was unpacked and not installed. It is beside the server.
pub(crate) fn libraries(program: &Path) -> Option<PathBuf> {
    let libraries = program.ancestors().nth(2).map(|root| root.join("lib/x86_64-linux-gnu"));
    libraries.filter(|folder| folder.is_dir() && !folder.starts_with("/usr"))
}

fn start(program: &Path, folder: &Path, options: &[OsString], prepare: fn(&mut Command)) -> Process {
    let mut command = Command::new(program);
    if let Some(libraries) = libraries(program) {
        command.env("LD_LIBRARY_PATH", libraries);
    }
    command.args(["--port", "0", "--unixsocket", "s", "--unixsocketperm", "700", "--daemonize", "no"]);
    command.args(["--save", "", "--appendonly", "no", "--logfile", "log", "--repl-diskless-sync-delay", "0"]);
    command.args(["--enable-module-command", "yes", "--enable-debug-command", "yes", "--dir"]).arg(folder);
    command.args(options).stdin(Stdio::null()).current_dir(folder);
    prepare(&mut command);
    Process::start(&mut command)
}

impl Server {
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Returns a client, once the server replies.
    #[track_caller]
    pub(crate) fn client(&self) -> Client {
        wait_for("the server to answer", || {
            assert!(runs(self.process.pid()), "the server has ended: {}", self.log());
            let mut client = Client::connect(&self.path("s"))?;
            client.send(&[b"PING"]);
            let is_ready = client.reply()? == Value::Status("PONG".to_owned());
            is_ready.then_some(client)
        })
    }

    /// Returns the server's log.
    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.path("log")).unwrap_or_default()
    }

    /// A link to the target.
    #[track_caller]
    pub(crate) fn link(&self) -> Link {
        Link::connect(&format!("unix:{}", self.path("fj.sock").display())).expect("the target takes links")
    }

    /// Makes the server listen at a port of the loopback, for replicas.
    #[track_caller]
    pub(crate) fn open_port(&self) -> u32 {
        let mut client = self.client();
        client.say("CONFIG SET bind 127.0.0.1").worked();
        let mut ports = (0..1000).map(|step| 20_000 + (std::process::id() * 7 + step * 13) % 10_000);
        let opened =
            ports.find(|port| !matches!(client.say(&format!("CONFIG SET port {port}")), Value::Error(_)));
        opened.expect("some port is free")
    }

    /// Makes the server follow the primary at this port of the loopback, and waits until it does.
    #[track_caller]
    pub(crate) fn follow(&self, port: u32) {
        self.client().say(&format!("REPLICAOF 127.0.0.1 {port}")).worked();
        until("the replica to be connected", || {
            self.client().info("replication", "master_link_status").as_deref() == Some("up")
        });
    }

    /// Returns whether the server runs.
    pub(crate) fn runs(&self) -> bool {
        runs(self.process.pid())
    }

    /// Ends the server as SHUTDOWN does, and checks that it ends well. Returns its folder.
    #[track_caller]
    pub(crate) fn shut_down(self) -> TempDir {
        self.shut_down_by(b"NOSAVE")
    }

    /// As [`Server::shut_down`], with a modifier of SHUTDOWN.
    #[track_caller]
    pub(crate) fn shut_down_by(mut self, modifier: &[u8]) -> TempDir {
        self.client().send(&[b"SHUTDOWN", modifier]);
        until("the server to end", || !runs(self.process.pid()));
        let status = self.process.wait();
        assert!(status.success(), "{status}: {}", self.log());
        self.folder
    }

    /// Waits until the append-only file has the writes of functions: replies of commands come after it.
    #[track_caller]
    pub(crate) fn write_file(&self) {
        drop(self.client());
    }

    /// Kills the server by SIGKILL once its append-only file is written, and starts it again in its folder.
    #[track_caller]
    pub(crate) fn kill_and_start_again(mut self) -> Server {
        self.write_file();
        self.process.kill_and_wait();
        self.start_again()
    }

    /// Starts a crashed server again in its folder. Also returns its standard error.
    #[track_caller]
    pub(crate) fn start_after_crash(mut self) -> (Server, String) {
        until("the server to end", || !self.runs());
        let gone = Process::start(&mut Command::new("true"));
        let done = std::mem::replace(&mut self.process, gone).finish();
        assert!(done.code > 128, "it ended by {}", done.code);
        (self.start_again(), done.err)
    }

    fn start_again(self) -> Server {
        let process = start(&self.program, self.folder.path(), &self.options, |_| {});
        let server = Server { process, folder: self.folder, program: self.program, options: self.options };
        server.client();
        server
    }
}

/// The library of a function's source: `NAME.c` in `tests/ifuncs` or `ifuncs/samples/kv`, or `NAME.rs` in the latter.
/// Built once for each run of the tests.
pub(crate) fn library_file(name: &str) -> PathBuf {
    static BUILT: Mutex<BTreeMap<String, Arc<OnceLock<()>>>> = Mutex::new(BTreeMap::new());
    let built =
        BUILT.lock().unwrap_or_else(PoisonError::into_inner).entry(name.to_owned()).or_default().clone();
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("farjump-kv-ifuncs");
    let output = folder.join(format!("lib{name}.so"));
    built.get_or_init(|| {
        fs::create_dir_all(&folder).expect("there is space for a folder");
        let (input, function) = match name.strip_suffix(RUST) {
            Some(function) => (author_crate(&folder, function), function),
            None => (c_file(name), name),
        };
        let options = Options {
            inputs: vec![input],
            output: output.clone(),
            name: Some(function.to_owned()),
            cflags: vec!["-Wall".to_owned(), "-Wextra".to_owned()],
            ..Options::default()
        };
        let report = build(&options).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(report.messages, "", "the compiler warns");
    });
    output
}

fn c_file(name: &str) -> PathBuf {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    let places =
        ["tests/ifuncs", "../ifuncs/samples/kv"].map(|place| package.join(place).join(format!("{name}.c")));
    places.into_iter().find(|source| source.is_file()).expect("there is such a source")
}

/// Makes a crate of a sample in Rust, as an author does. Returns its folder.
fn author_crate(folder: &Path, name: &str) -> PathBuf {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    let at = |path: &str| package.join(path).display().to_string();
    let manifest = format!(
        "[package]\nname = \"{name}\"\nedition = \"2024\"\n[lib]\npath = {:?}\n[dependencies]\n\
         farjump-ifunc = {{ path = {:?} }}\nfarjump-kv-ifunc = {{ path = {:?} }}\n[workspace]\n",
        at(&format!("../ifuncs/samples/kv/{name}.rs")),
        at("../ifuncs/rust"),
        at("../ifuncs/kv")
    );
    let of_crate = folder.join(name);
    fs::create_dir_all(&of_crate).expect("there is space for a folder");
    fs::write(of_crate.join("Cargo.toml"), manifest).expect("there is space for a file");
    of_crate
}

/// As [`library_file`], opened.
pub(crate) fn library(name: &str) -> Library {
    Library::open(library_file(name)).expect("the library was just built")
}

/// A payload of `ops`: operations of words between spaces, with semicolons between.
pub(crate) fn ops(text: &str) -> Vec<u8> {
    let operations = text.split("; ").map(|operation| operation.replace(' ', "\x1f") + "\x1e");
    operations.collect::<String>().into_bytes()
}

/// Runs operations by a link. Returns a line for each.
#[track_caller]
pub(crate) fn run_ops(link: &Link, text: &str) -> Vec<String> {
    let reply = try_ops(link, text).unwrap_or_else(|error| panic!("{text}: {error}"));
    reply.lines().map(str::to_owned).collect()
}

/// As [`run_ops`], for operations that may fail.
pub(crate) fn try_ops(link: &Link, text: &str) -> Result<String, Error> {
    let reply = link.inject(&library("ops"), &ops(text))?.wait(PATIENCE)?;
    Ok(String::from_utf8_lossy(&reply).into_owned())
}

/// Waits until `condition` holds.
#[track_caller]
pub(crate) fn until(what: &str, condition: impl Fn() -> bool) {
    wait_for(what, || condition().then_some(()));
}
