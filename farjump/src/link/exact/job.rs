//! Compilations, of which a process runs one for each source and CPU, and their results.
//!
//! Links that want the same image share a [`Job`]. The last one that is dropped stops it. An image that was compiled
//! stays for later links of the process.

use std::collections::{HashMap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use std::thread::{self, JoinHandle};

use farjump_builder::{CarriedSource, Options, Supervisor, build_for_cpu};
use farjump_core::cpu::Cpu;
use farjump_core::image::CodeId;
use farjump_loader::{Library, LibraryImage};
use farjump_os::{PerProcess, limits};

use super::{KeptCause, PeerCompiler};

/// Most images that are kept for later links. The oldest goes first.
const MOST_IMAGES: usize = 64;

/// Names a compilation.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Key {
    source: CodeId,
    name: String,
    cpu: Cpu,
    compiler: PeerCompiler,
}

/// The outcome of a compilation.
type Outcome = Result<LibraryImage, KeptCause>;

/// The compilations of this process.
#[derive(Default)]
struct Jobs {
    running: HashMap<Key, Weak<Running>>,
    /// In the order in which they were compiled.
    compiled: VecDeque<(Key, LibraryImage)>,
}

static JOBS: PerProcess<Mutex<Jobs>> = PerProcess::new();

fn with_jobs<T>(act: impl FnOnce(&mut Jobs) -> T) -> T {
    // Nothing panics while it holds the lock.
    act(&mut JOBS.get().lock().unwrap_or_else(PoisonError::into_inner))
}

/// A compilation that runs, or has just ended. Clones share it.
#[derive(Clone, Debug)]
pub(in crate::link) struct Job(Arc<Running>);

#[derive(Debug)]
struct Running {
    outcome: Arc<OnceLock<Outcome>>,
    supervisor: Supervisor,
    thread: Option<JoinHandle<()>>,
    /// The process that it runs in: a forked child has a copy, and no thread.
    process: u32,
}

/// A requested compilation.
pub(super) enum Started {
    /// It was done earlier.
    Compiled(LibraryImage),
    Job(Job),
}

/// Starts compiling the source of `library` for `cpu` in the background, unless that was done or is under way.
///
/// # Errors
/// The library carries no source, or the system has no descriptor or thread left.
pub(super) fn start(library: &Library, cpu: &Cpu, compiler: &PeerCompiler) -> Result<Started, KeptCause> {
    let source = library.source().ok_or(KeptCause::NoSource)?;
    let (name, cpu, compiler) = (library.name().to_owned(), cpu.clone(), compiler.clone());
    let key = Key { source: source.id(), name, cpu, compiler };
    with_jobs(|jobs| {
        if let Some((_, image)) = jobs.compiled.iter().find(|(other, _)| *other == key) {
            return Ok(Started::Compiled(image.clone()));
        }
        if let Some(running) = jobs.running.get(&key).and_then(Weak::upgrade) {
            return Ok(Started::Job(Job(running)));
        }
        let running = Running::start(key.clone(), source.clone())?;
        jobs.running.retain(|_, running| running.strong_count() != 0);
        jobs.running.insert(key, Arc::downgrade(&running));
        Ok(Started::Job(Job(running)))
    })
}

impl Job {
    /// Returns its outcome, once it has ended.
    pub(super) fn result(&self) -> Option<Outcome> {
        self.0.outcome.get().cloned()
    }
}

impl Running {
    fn start(key: Key, source: CarriedSource) -> Result<Arc<Running>, KeptCause> {
        let failed = |error: std::io::Error| {
            let advice = limits::behind_thread(&error);
            KeptCause::not_compiled(&format!("cannot start to compile: {error}{advice}"))
        };
        let supervisor = Supervisor::new(key.compiler.time_limit).map_err(failed)?;
        let outcome = Arc::<OnceLock<Outcome>>::default();
        let (sink, by) = (Arc::clone(&outcome), supervisor.clone());
        let work = move || {
            let compiled = catch_unwind(AssertUnwindSafe(|| compile(&key, &source, by)));
            let compiled = compiled.unwrap_or_else(|_| Err(KeptCause::not_compiled("the builder panicked")));
            if let Ok(image) = &compiled {
                with_jobs(|jobs| jobs.keep(key, image.clone()));
            }
            // Last: no file and no process of the build is left, and the thread ends.
            let _ = sink.set(compiled);
        };
        let thread = thread::Builder::new().name("farjump-compile".into()).spawn(work).map_err(failed)?;
        Ok(Arc::new(Running { outcome, supervisor, thread: Some(thread), process: std::process::id() }))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if self.process != std::process::id() {
            // The parent's job, which has the thread, continues.
            return;
        }
        self.supervisor.stop();
        if let Some(thread) = self.thread.take() {
            // Its programs are killed, so it ends at once.
            let _ = thread.join();
        }
    }
}

impl Jobs {
    fn keep(&mut self, key: Key, image: LibraryImage) {
        self.running.remove(&key);
        if self.compiled.len() >= MOST_IMAGES {
            self.compiled.pop_front();
        }
        self.compiled.push_back((key, image));
    }
}

fn compile(key: &Key, source: &CarriedSource, supervisor: Supervisor) -> Outcome {
    let PeerCompiler { cc, target_ccs, linker, .. } = key.compiler.clone();
    let name = Some(key.name.clone());
    let options = Options { name, cc, target_ccs, linker, supervisor, ..Options::default() };
    build_for_cpu(source, &key.cpu, &options).map_err(|error| KeptCause::not_compiled(&error.to_string()))
}
