//! Fixture of tests of links and targets: a folder, ifunc libraries, source and target in one thread.

#![allow(dead_code, unused_imports, reason = "each test binary uses its part")]

pub(crate) mod chronicle;
pub(crate) mod distinct;
mod failures;

use std::collections::HashMap;
use std::env;
use std::fs;
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread;
use std::time::{Duration, SystemTime};

pub(crate) use failures::{panicked, peer_gone, refused, rejected, timed_out};
use farjump::admin::Admin;
use farjump::build::{Options, build};
use farjump::{CodeId, Error, Library, Link, LinkBuilder, Pending, Reply, Target, TargetBuilder};
use farjump_core::image::Machine;
use farjump_fixtures::IFUNCS;
pub(crate) use farjump_fixtures::PATIENCE;
pub(crate) use farjump_fixtures::forked::in_child;
use farjump_fixtures::raw_source::RawSource;
pub(crate) use farjump_fixtures::watchdog::Watchdog;
use rustix::event::{PollFd, PollFlags, Timespec};
use tempfile::TempDir;

/// A timeout that no test should reach.
pub(crate) const FOREVER: Duration = Duration::from_secs(3600);

/// The instruction that returns.
#[cfg(target_arch = "x86_64")]
pub(crate) const RETURN: [u8; 1] = [0xc3];
#[cfg(target_arch = "aarch64")]
pub(crate) const RETURN: [u8; 4] = 0xd65f_03c0_u32.to_le_bytes();
#[cfg(target_arch = "riscv64")]
pub(crate) const RETURN: [u8; 4] = 0x0000_8067_u32.to_le_bytes();

/// A machine that is not this one.
pub(crate) const FOREIGN: Machine =
    if cfg!(target_arch = "x86_64") { Machine::AARCH64 } else { Machine::X86_64 };

/// A folder of its own for a test, removed at its end.
pub(crate) struct Place {
    folder: TempDir,
    _watchdog: Watchdog,
}

impl Place {
    pub(crate) fn new() -> Place {
        Place { folder: farjump_fixtures::folder(), _watchdog: Watchdog::new() }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn address(&self) -> String {
        self.address_of("t.sock")
    }

    /// The address of another socket in the folder.
    pub(crate) fn address_of(&self, name: &str) -> String {
        format!("unix:{}", self.path(name).display())
    }

    pub(crate) fn target<'a>(&self) -> TargetBuilder<'a> {
        Target::listen(&self.address())
    }

    pub(crate) fn admin(&self) -> Admin {
        Admin::new(&self.address()).unwrap().timeout(PATIENCE)
    }

    pub(crate) fn link(&self) -> LinkBuilder {
        Link::builder(&self.address())
    }
}

/// The time of the last change of a file, or of a folder and everything in it.
fn last_change(path: &Path) -> SystemTime {
    let metadata = path.metadata().unwrap();
    let own = metadata.modified().unwrap();
    if !metadata.is_dir() {
        return own;
    }
    fs::read_dir(path).unwrap().map(|entry| last_change(&entry.unwrap().path())).fold(own, SystemTime::max)
}

/// The path of an ifunc library, which is built once for all processes of a test binary.
///
/// Its source is `NAME.c`, or `NAME.rs`, in `tests/ifuncs` or [`IFUNCS`]. If there is none, it is the sample of that
/// name, in C or, for `NAME.rs`, in Rust. A function of these tests with an underscore in its library's name has the
/// part before it as its name.
pub(crate) fn library_path(name: &str) -> PathBuf {
    static BUILT: OnceLock<Mutex<HashMap<String, PathBuf>>> = OnceLock::new();
    let mut built = BUILT.get_or_init(Mutex::default).lock().unwrap();
    if let Some(path) = built.get(name) {
        return path.clone();
    }
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    let rust = name.strip_suffix(".rs");
    let file = rust.map_or_else(|| format!("{name}.c"), |_| name.to_owned());
    let folders = [package.join("tests/ifuncs"), PathBuf::from(IFUNCS)];
    let samples = package.join("../ifuncs/samples");
    let own = folders.iter().map(|folder| folder.join(&file)).find(|source| source.exists());
    let (source, routines) = if let Some(own) = own {
        (own, rust.or_else(|| name.split('_').next()))
    } else if let Some(rust) = rust {
        (samples.join("rust").join(name), Some(rust))
    } else {
        (samples.join(format!("c/{name}.c")), None)
    };
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("ifuncs-{}", env!("CARGO_CRATE_NAME")));
    let library = folder.join(format!("lib{name}.so"));
    let [own, shared] = folders;
    let inputs = [env::current_exe().unwrap(), own, shared, package.join("../ifuncs")];
    let is_current = || inputs.iter().all(|input| last_change(input) < last_change(&library));
    if !library.exists() || !is_current() {
        // Another process may be building the same one, or using it.
        let own_folder = folder.join(std::process::id().to_string());
        fs::create_dir_all(&own_folder).unwrap();
        let options = Options {
            inputs: vec![source],
            output: own_folder.join(format!("lib{name}.so")),
            name: routines.map(str::to_owned),
            ..Options::default()
        };
        let report = build(&options).unwrap_or_else(|error| panic!("{name}: {error}"));
        fs::rename(report.library, &library).unwrap();
        fs::remove_dir_all(own_folder).unwrap();
    }
    built.insert(name.to_owned(), library.clone());
    library
}

/// An ifunc library, see [`library_path`]; loaded if it has payload routines of its own.
pub(crate) fn library(name: &str) -> Library {
    let library = Library::open(library_path(name)).unwrap();
    match library.check_payload() {
        Ok(()) => library,
        // SAFETY: they are built from sources of these tests.
        Err(_) => unsafe { Library::load(library.path()) }.unwrap(),
    }
}

/// The id of a library's code.
pub(crate) fn id_of(library: &Library) -> CodeId {
    library.images()[0].id()
}

/// A library's code as bytes.
pub(crate) fn image_of(library: &Library) -> Vec<u8> {
    library.images()[0].bytes().to_vec()
}

/// A link and its target, both in the thread of the test: nothing happens but the test's own actions.
pub(crate) struct Pair<'a> {
    pub(crate) link: Link,
    pub(crate) target: Target<'a>,
}

impl<'a> Pair<'a> {
    pub(crate) fn new(place: &Place) -> Pair<'a> {
        Pair::of(place.target(), place.link())
    }

    /// The same pair with a folder of its own.
    pub(crate) fn start() -> (Place, Pair<'a>) {
        let place = Place::new();
        let pair = Pair::new(&place);
        (place, pair)
    }

    pub(crate) fn of(target: TargetBuilder<'a>, link: LinkBuilder) -> Pair<'a> {
        let mut target = target.build().unwrap();
        let link = while_polling(&mut target, || link.connect()).unwrap();
        Pair { link, target }
    }

    /// A hostile source of the target, after the handshake.
    pub(crate) fn hostile(&mut self) -> RawSource {
        let address = self.target.address();
        while_polling(&mut self.target, || RawSource::connect(&address))
    }

    /// Waits until the target has run all sent frames.
    pub(crate) fn serve(&mut self) -> usize {
        serve(&mut self.target)
    }

    /// Injects a function, lets the target run it, and takes the outcome.
    pub(crate) fn call(&mut self, library: &Library, args: &[u8]) -> Result<Reply, Error> {
        let mut pending = self.link.inject(library, args)?;
        outcome_of(&mut self.target, &mut pending)
    }

    /// Waits until all sent frames have run.
    pub(crate) fn flush(&mut self) -> Result<(), Error> {
        let link = &mut self.link;
        meanwhile(&mut self.target, move || link.flush(PATIENCE))
    }
}

/// Polls until there is no more work.
pub(crate) fn serve(target: &mut Target<'_>) -> usize {
    let mut all = 0;
    loop {
        match target.poll().unwrap() {
            0 => return all,
            ran => all += ran,
        }
    }
}

/// Polls until `is_so` returns true for the target.
pub(crate) fn poll_until(target: &mut Target<'_>, is_so: impl Fn(&Target<'_>) -> bool) {
    while !is_so(target) {
        target.poll().unwrap();
    }
}

/// Polls source and target until the outcome has come.
pub(crate) fn outcome_of(target: &mut Target<'_>, pending: &mut Pending<'_>) -> Result<Reply, Error> {
    loop {
        target.poll().unwrap();
        if let Some(reply) = pending.poll()? {
            return Ok(reply);
        }
    }
}

/// Polls the target while another thread runs `act`, which waits for it.
pub(crate) fn meanwhile<T: Send>(target: &mut Target<'_>, act: impl FnOnce() -> T + Send) -> T {
    alongside(act, || {
        target.poll().unwrap();
        thread::yield_now();
    })
}

/// As [`meanwhile`], for making a link. It also works for a target that hardly ever checks for connections while it
/// polls.
pub(crate) fn while_polling<T: Send>(target: &mut Target<'_>, connect: impl FnOnce() -> T + Send) -> T {
    alongside(connect, || {
        target.wait(Duration::from_millis(1)).unwrap();
        target.poll().unwrap();
    })
}

pub(crate) fn alongside<T: Send>(act: impl FnOnce() -> T + Send, mut turn: impl FnMut()) -> T {
    thread::scope(|scope| {
        let other = scope.spawn(act);
        while !other.is_finished() {
            turn();
        }
        other.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// Returns whether a descriptor becomes readable within `timeout`.
pub(crate) fn readable(descriptor: BorrowedFd<'_>, timeout: Duration) -> bool {
    let timeout = Timespec { tv_sec: timeout.as_secs() as i64, tv_nsec: timeout.subsec_nanos().into() };
    rustix::event::poll(&mut [PollFd::from_borrowed_fd(descriptor, PollFlags::IN)], Some(&timeout)).unwrap()
        == 1
}

/// Sleeps on a link's descriptor alone, as event loops do, until `done` returns a value.
///
/// # Panics
/// When nothing wakes it: here no periodic poll finds a lost wake, unless the transport requires polls.
pub(crate) fn sleep_until<T>(link: &Link, mut done: impl FnMut() -> Option<T>) -> T {
    loop {
        if let Some(done) = done() {
            return done;
        }
        if let Some(longest) = link.arm().unwrap() {
            let naps = longest < Duration::from_secs(1);
            let woken = readable(link.as_fd().unwrap(), if naps { longest } else { PATIENCE });
            assert!(woken || naps, "nothing woke the source");
        }
        link.disarm();
    }
}

/// The outcome of a call, for which the link sleeps as in [`sleep_until`].
pub(crate) fn sleep_for(link: &Link, mut call: Pending<'_>) -> Result<Reply, Error> {
    sleep_until(link, || call.poll().transpose())
}

/// Values recorded by handlers, which run elsewhere.
pub(crate) struct Seen<T>(Arc<Mutex<Vec<T>>>);

impl<T: Clone + Send + 'static> Seen<T> {
    /// An empty record, and a function that adds to it.
    pub(crate) fn new() -> (Seen<T>, impl Fn(T) + Clone + Send + 'static) {
        let values = Arc::<Mutex<Vec<T>>>::default();
        let record = Arc::clone(&values);
        (Seen(values), move |value| record.lock().unwrap().push(value))
    }

    pub(crate) fn all(&self) -> Vec<T> {
        self.0.lock().unwrap().clone()
    }
}

/// Waits for a condition; the watchdog bounds the wait.
pub(crate) fn eventually(mut holds: impl FnMut() -> bool) {
    while !holds() {
        thread::sleep(Duration::from_millis(2));
    }
}

/// Counters of the target's `sequence`: its calls, and those that were out of order.
pub(crate) fn sequence(link: &Link) -> [u64; 2] {
    let seen = link.inject(&library("sequence"), b"").unwrap().wait(PATIENCE).unwrap();
    to_words(&seen).try_into().unwrap()
}

/// Number of frames of the source's sequence that the target has run, none of them out of order.
pub(crate) fn ran(link: &Link) -> u64 {
    let [calls, wrong] = sequence(link);
    assert_eq!(wrong, 0, "frames ran out of order");
    calls
}

/// Native words as bytes: arguments of the test ifuncs.
pub(crate) fn words(words: &[u64]) -> Vec<u8> {
    zerocopy::IntoBytes::as_bytes(words).to_vec()
}

/// Bytes as native words.
pub(crate) fn to_words(bytes: &[u8]) -> Vec<u64> {
    assert_eq!(bytes.len() % 8, 0, "{} bytes are no words", bytes.len());
    bytes.chunks(8).map(|word| u64::from_ne_bytes(word.try_into().unwrap())).collect()
}
