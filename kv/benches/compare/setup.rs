//! A server with everything that the comparison needs, in one of the states.

use std::cell::RefCell;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use farjump::build::{Options, build};
use farjump::{Library, Link};
use farjump_benches::rounds::Result;
use farjump_fixtures::process::PATIENCE;
use rustix::process::Pid;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity, sched_yield};
use tempfile::TempDir;

use crate::client::{Client, request};
use crate::data;
use crate::server::{Server, Start};

/// The behaviour of the server between calls.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum State {
    /// It sleeps: 300 us pass before each call.
    Asleep,
    /// It polls for 20 us after work, and the next call comes at once.
    Lingering,
    /// It never sleeps.
    Spinning,
}

impl State {
    pub(crate) const ALL: [State; 3] = [State::Asleep, State::Lingering, State::Spinning];

    pub(crate) fn name(self) -> &'static str {
        match self {
            State::Asleep => "server asleep",
            State::Lingering => "server lingering",
            State::Spinning => "server spinning",
        }
    }
}

/// The processors on which the processes run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Place {
    /// The server on one processor, everything else on another.
    Apart,
    /// All on one processor.
    OneCore,
    /// The system chooses.
    Unpinned,
}

impl Place {
    pub(crate) const ALL: [Place; 3] = [Place::Apart, Place::OneCore, Place::Unpinned];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Place::Apart => "pinned to two cores",
            Place::OneCore => "pinned to one core",
            Place::Unpinned => "unpinned",
        }
    }
}

/// Files that are built once for all servers.
pub(crate) struct Built {
    pub(crate) folder: TempDir,
    pub(crate) program: PathBuf,
    /// A Python program with NumPy, if there is one.
    pub(crate) python: Option<PathBuf>,
    /// The processors that this process may use.
    allowed: CpuSet,
    processors: Vec<usize>,
}

impl Built {
    /// Compiles the functions and the module to compare with.
    ///
    /// # Errors
    /// The name of the thing that cannot be built, with the compiler's message.
    pub(crate) fn new(program: PathBuf, python: &Path) -> Result<Built> {
        let allowed = sched_getaffinity(None)?;
        let processors = (0..CpuSet::MAX_CPU).filter(|&number| allowed.is_set(number)).collect();
        let has_numpy = Command::new(python).args(["-c", "import numpy"]).output();
        let python = has_numpy.is_ok_and(|done| done.status.success()).then(|| python.to_owned());
        let built = Built { folder: tempfile::tempdir()?, program, python, allowed, processors };
        let package = Path::new(env!("CARGO_MANIFEST_DIR"));
        for source in ["empty", "work", "hash_sum"] {
            built.ifunc(&package.join(format!("benches/ifuncs/{source}.c")), "", &[])?;
        }
        for source in ["chase", "bloom", "token_bucket", "leaders", "downsample", "protobuf_sum"] {
            built.ifunc(&package.join(format!("../ifuncs/samples/kv/{source}.c")), "", &[])?;
        }
        // Built as its own text describes, and for this processor.
        built.ifunc(&package.join("../ifuncs/samples/kv/nearest.c"), "_plain", &[])?;
        for source in ["../ifuncs/samples/kv/nearest.c", "../ifuncs/samples/kv/topk.c"] {
            built.ifunc(&package.join(source), "", &VECTORISED)?;
        }
        for sample in ["filter_aggregate", "json_path"] {
            built.rust_sample(package, sample)?;
        }
        let mut cc = Command::new("cc");
        cc.args(VECTORISED).args(["-shared", "-fPIC", "-Wall", "-Wextra", "-o"]).arg(built.path("module.so"));
        for folder in ["../ifuncs/samples/kv", "../ifuncs/include"] {
            cc.arg("-I").arg(package.join(folder));
        }
        let done = cc.arg(package.join("benches/compare/module.c")).output();
        let done = done.map_err(|error| format!("cc does not start: {error}: install a C compiler"))?;
        if !done.status.success() {
            return Err(format!("module.c cannot be built: {}", String::from_utf8_lossy(&done.stderr)).into());
        }
        Ok(built)
    }

    /// A file in the folder.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Number of processors that this process may use.
    pub(crate) fn processors(&self) -> usize {
        self.processors.len()
    }

    /// The file of a function.
    pub(crate) fn library_file(&self, name: &str) -> PathBuf {
        self.path(&format!("lib{name}.so"))
    }

    /// Builds the function of a C file. `behind`, after its name, distinguishes builds with other flags.
    fn ifunc(&self, source: &Path, behind: &str, flags: &[&str]) -> Result<()> {
        let package = Path::new(env!("CARGO_MANIFEST_DIR"));
        let name = source.file_stem().unwrap_or_default().to_string_lossy();
        let mut cflags = vec![format!("-I{}", package.join("../ifuncs/include").display())];
        cflags.extend(flags.iter().map(|flag| (*flag).to_owned()));
        let output = self.library_file(&format!("{name}{behind}"));
        self.build(&name, Options { inputs: vec![source.to_owned()], output, cflags, ..Options::default() })
    }

    fn build(&self, name: &str, options: Options) -> Result<()> {
        let options = Options { name: Some(name.to_owned()), ..options };
        build(&options).map_err(|error| format!("{name} cannot be built: {error}"))?;
        Ok(())
    }

    /// Builds a sample in Rust, as a crate.
    fn rust_sample(&self, package: &Path, name: &str) -> Result<()> {
        let at = |path: &str| package.join(path).display().to_string();
        let manifest = format!(
            "[package]\nname = {name:?}\nedition = \"2024\"\n[lib]\npath = {:?}\n[dependencies]\n\
             farjump-ifunc = {{ path = {:?} }}\nfarjump-kv-ifunc = {{ path = {:?} }}\n[workspace]\n",
            at(&format!("../ifuncs/samples/kv/{name}.rs")),
            at("../ifuncs/rust"),
            at("../ifuncs/kv")
        );
        let folder = self.path(name);
        fs::create_dir(&folder)?;
        fs::write(folder.join("Cargo.toml"), manifest)?;
        let output = self.library_file(name);
        self.build(name, Options { inputs: vec![folder], output, ..Options::default() })
    }

    /// Pins this process, and a server if there is one.
    ///
    /// # Errors
    /// When the system refuses.
    fn pin(&self, server: Option<u32>, place: Place) -> Result<()> {
        let one = |index: usize| {
            let mut set = CpuSet::new();
            set.set(self.processors[index.min(self.processors.len() - 1)]);
            set
        };
        let (own, others) = match place {
            Place::Apart => (one(0), one(1)),
            Place::OneCore => (one(0), one(0)),
            Place::Unpinned => (self.allowed, self.allowed),
        };
        sched_setaffinity(None, &own)?;
        let Some(server) = server else { return Ok(()) };
        // Threads that the server has besides its main thread.
        for thread in fs::read_dir(format!("/proc/{server}/task"))? {
            let number = thread?.file_name().to_string_lossy().parse()?;
            sched_setaffinity(Pid::from_raw(number), &others)?;
        }
        Ok(())
    }
}

/// Flags for this machine's processor. For the eight sums, GCC without the last flag makes code for AVX-512 that takes
/// five times as long as with it. That is also three times as long as code for any processor.
const VECTORISED: [&str; 3] = ["-O3", "-march=native", "-ffast-math"];

/// A server in one of the states.
pub(crate) struct Fixture<'b> {
    pub(crate) built: &'b Built,
    pub(crate) server: Server,
    pub(crate) state: State,
    /// The server's name and version.
    pub(crate) version: String,
    pid: u32,
}

impl<'b> Fixture<'b> {
    /// Starts a server, and gives it data, functions in Lua, and the module to compare with.
    ///
    /// # Errors
    /// When the server refuses them.
    pub(crate) fn new(built: &'b Built, state: State) -> Result<Fixture<'b>> {
        built.pin(None, Place::Unpinned)?;
        let start = Start::new(&built.program).args("load local");
        let start = match state {
            State::Asleep => start,
            State::Lingering => start.args("linger 20us"),
            State::Spinning => start.args("spin"),
        };
        let server = start.run();
        let mut client = server.client();
        if let Some(problem) = client.info("farjump", "farjump_problem") {
            return Err(format!("the module does not listen: {problem}").into());
        }
        let pid = client.info("server", "process_id").ok_or("INFO has no process_id")?.parse()?;
        let version = ["valkey_version", "redis_version"]
            .iter()
            .find_map(|field| Some(format!("{field} {}", client.info("server", field)?)));
        let version = version.ok_or("INFO has no version")?;
        let mut fixture = Fixture { built, server, state, version, pid };
        fixture.fill()?;
        Ok(fixture)
    }

    fn fill(&mut self) -> Result<()> {
        let mut client = Client::connect(&self.server.path("s"))?;
        let module = self.built.path("module.so");
        client.run(&request(&[b"MODULE", b"LOAD", module.as_os_str().as_encoded_bytes()]))?;
        client.run(&request(&[b"FUNCTION", b"LOAD", include_bytes!("functions.lua")]))?;
        for command in data::commands() {
            client.run(&command)?;
        }
        Ok(())
    }

    /// The address of the target.
    pub(crate) fn address(&self) -> String {
        format!("unix:{}", self.server.path("fj.sock").display())
    }

    /// Pins the processes, and then makes a link and a connection.
    ///
    /// # Errors
    /// When they cannot be pinned or made.
    pub(crate) fn rig(&self, place: Place) -> Result<Rig<'_>> {
        self.built.pin(Some(self.pid), place)?;
        // A link chooses its way of waiting by the processor on which it is made.
        let link = Link::builder(&self.address()).transport("shm").connect()?;
        let client = RefCell::new(Client::connect(&self.server.path("s"))?);
        Ok(Rig { fixture: self, place, link, client })
    }

    /// A function.
    ///
    /// # Errors
    /// When its file has changed since it was built.
    pub(crate) fn library(&self, name: &str) -> Result<Library> {
        Ok(Library::open(self.built.library_file(name))?)
    }
}

/// State that a group of cases uses.
pub(crate) struct Rig<'f> {
    pub(crate) fixture: &'f Fixture<'f>,
    pub(crate) place: Place,
    pub(crate) link: Link,
    pub(crate) client: RefCell<Client>,
}

impl Rig<'_> {
    /// Calls a function, and returns its reply.
    ///
    /// # Errors
    /// The error of the call.
    #[inline]
    pub(crate) fn call(&self, library: &Library, payload: &[u8]) -> Result<farjump::Reply> {
        Ok(self.link.inject(library, payload)?.wait(PATIENCE)?)
    }

    /// Runs an operation `count` times, each on a server in the state of the fixture. Returns nanoseconds for one: the
    /// median if the server sleeps before each, otherwise the mean.
    ///
    /// # Errors
    /// The error of the operation.
    pub(crate) fn time(&self, count: usize, mut operation: impl FnMut() -> Result<()>) -> Result<f64> {
        if self.fixture.state != State::Asleep {
            let start = Instant::now();
            (0..count).try_for_each(|_| operation())?;
            return Ok(start.elapsed().as_nanos() as f64 / count as f64);
        }
        let mut figures = Vec::with_capacity(count);
        for _ in 0..count {
            pause();
            let start = Instant::now();
            operation()?;
            figures.push(start.elapsed().as_nanos() as f64);
        }
        Ok(farjump_benches::rounds::Spread::of(figures).median)
    }
}

/// The title of a group, with the states that it was measured in.
pub(crate) fn title(what: &str, state: State, place: Place) -> String {
    format!("{what}; {}, {}", state.name(), place.name())
}

/// Lets the server fall asleep. This process stays awake, and lets other processes run on its processor.
fn pause() {
    let start = Instant::now();
    while start.elapsed() < Duration::from_micros(300) {
        sched_yield();
    }
}
