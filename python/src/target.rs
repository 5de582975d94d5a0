//! Targets.

use std::sync::{Arc, Weak};
use std::thread;
use std::time::{Duration, Instant};

use farjump::{Data, Error, Stats, Stopper, TargetBuilder, TargetConfig};
use farjump_handles::StoreConfig;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyString, PyTuple};

use crate::arguments::Arguments;
use crate::errors::{closed, exception, guarded, limit, raise};
use crate::library::Library;
use crate::lock::Lock;
use crate::objects::request::handle_exception;
use crate::options;
use crate::process::Process;

/// Longest time without a check for signals, in the thread that handles them. Also the longest age of statistics while
/// a thread serves.
const TURN: Duration = Duration::from_millis(20);
/// Polls without a frame before a target sleeps.
const IDLE_POLLS: u32 = 2000;
/// Polls between two checks whether a source waits for this processor.
const POLLS_TO_YIELD: u32 = 64;
/// Time that the end of the interpreter allows a target to end.
const END: Duration = Duration::from_secs(1);

/// Targets that the interpreter closes at its end, so that their sockets are removed.
static TARGETS: Lock<Vec<Weak<Served>>> = Lock::new(Vec::new());

/// A target's last known state.
#[derive(Clone)]
struct Known {
    stats: Stats,
    sources: usize,
}

impl Known {
    fn of(target: &farjump::Target<'_>) -> Known {
        Known { stats: target.stats(), sources: target.sources() }
    }
}

struct Served {
    /// The target; `None` once closed. A thread that serves holds the lock throughout.
    target: Lock<Option<farjump::Target<'static>>>,
    /// The state after the last turn of a thread that serves.
    known: Lock<Known>,
    stopper: Stopper,
    process: Process,
}

/// A target, in which the functions that sources inject run. It serves while `run` or `poll` does, in one thread at
/// a time.
///
/// `local` has the libraries whose functions sources may call by name, or their paths. `data` is the bytes that
/// functions work on, which are copied, or the path of a file. Further options are keyword arguments:
/// docs/reference/options.md describes them, and `Target.options` names them.
#[pyclass(frozen, module = "farjump", weakref)]
pub(crate) struct Target {
    served: Arc<Served>,
    address: String,
    config: TargetConfig,
}

/// Returns the builder of a target with these options.
///
/// # Errors
/// An invalid value; no memory for objects.
fn builder(
    py: Python<'_>,
    address: &str,
    local: Option<&Bound<'_, PyAny>>,
    data: Option<&Bound<'_, PyAny>>,
    options: Option<&Bound<'_, PyDict>>,
) -> PyResult<TargetBuilder<'static>> {
    let mut config = TargetConfig::default();
    options::set_all(&mut config, options)?;
    let libraries = local.map(|local| libraries(&mut config, local)).transpose()?.unwrap_or_default();
    let data = data.map(|data| bytes(&mut config, data)).transpose()?.unwrap_or_else(|| Some(Data::empty()));
    options::check(&config)?;
    let mut builder = farjump::Target::listen(address);
    if let Some(data) = data {
        builder = builder.args_owned(data);
    }
    if let Some(capacity) = config.objects {
        let store = StoreConfig {
            capacity: Some(capacity as u64),
            spill_folder: config.objects_spill_folder.clone(),
            spill_bytes: config.objects_spill_bytes.map(|bytes| bytes as u64),
            ..StoreConfig::default()
        };
        let store = farjump_handles::Store::options().config(store).build();
        builder = builder.objects(store.map_err(|error| handle_exception(py, &error))?.service());
    }
    let builder = libraries
        .iter()
        .fold(builder.config(config), |builder, library| builder.local(&library.get().library));
    // SAFETY: as for `ctypes.CDLL`, the program is responsible for the libraries that it names.
    Ok(unsafe { builder.load_libraries() })
}

/// Returns the libraries among the items of `local`. Its paths are an option.
fn libraries(config: &mut TargetConfig, local: &Bound<'_, PyAny>) -> PyResult<Vec<Py<Library>>> {
    let items = if local.is_instance_of::<PyString>() { None } else { local.try_iter().ok() };
    let Some(items) = items else {
        // Text, or a value of a wrong type.
        options::set(config, "local", local)?;
        return Ok(Vec::new());
    };
    let (mut libraries, paths) = (Vec::new(), PyList::empty(local.py()));
    for item in items {
        let item = item?;
        match item.cast::<Library>() {
            Ok(library) => libraries.push(library.clone().unbind()),
            Err(_) => paths.append(item)?,
        }
    }
    options::set(config, "local", &paths)?;
    Ok(libraries)
}

/// Returns the bytes of `data`. If it is a path instead, that is an option, and `None` is returned.
fn bytes(config: &mut TargetConfig, data: &Bound<'_, PyAny>) -> PyResult<Option<Data>> {
    if options::is_path(data)? {
        return options::set(config, "data", data).map(|()| None);
    }
    Ok(Some(Data::from_bytes(Arguments::named(data, "data")?.bytes().to_vec())))
}

/// Serves until the target is stopped, or `until`. Returns `true` if it was stopped.
fn serve(target: &mut farjump::Target<'_>, stopper: &Stopper, until: Instant) -> Result<bool, Error> {
    let mut idle = 0_u32;
    while !stopper.is_stopped() {
        idle = if target.poll()? == 0 { idle.saturating_add(1) } else { 0 };
        if idle.is_multiple_of(POLLS_TO_YIELD) {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(false);
            }
            if idle >= IDLE_POLLS {
                if target.wait(left)? {
                    idle = 1;
                }
            } else if idle != 0 && target.may_share_processor() {
                thread::yield_now();
            }
        }
    }
    // On a stopped target, `run` only informs the sources.
    target.run().map(|()| true)
}

impl Served {
    /// Runs `work` on the target, in this thread alone. Returns `Err(true)` if the target is closed, `Err(false)` if
    /// another thread serves.
    fn with_target<R: Send>(
        &self,
        work: impl FnOnce(&mut farjump::Target<'static>) -> R + Send,
    ) -> Result<R, bool> {
        self.target.try_with(|target| target.as_mut().map(work).ok_or(true)).unwrap_or(Err(false))
    }

    /// Serves in turns without the GIL: one turn if `once`, otherwise until `deadline`. The outer `Err` is that of
    /// [`Served::with_target`].
    fn serve(&self, deadline: Option<Instant>, once: bool) -> Result<Result<bool, Error>, bool> {
        self.with_target(|target| {
            loop {
                let turn = Instant::now() + TURN;
                let until = deadline.map_or(turn, |deadline| deadline.min(turn));
                let served = serve(target, &self.stopper, until);
                self.note(target);
                if once
                    || !matches!(served, Ok(false))
                    || deadline.is_some_and(|deadline| Instant::now() >= deadline)
                {
                    return served;
                }
            }
        })
    }

    fn note(&self, target: &farjump::Target<'_>) {
        let now = Known::of(target);
        self.known.with(|known| *known = now);
    }

    /// Returns the target's state: the current one, or the one at the end of the last turn of the thread that serves.
    fn known(&self) -> Known {
        // If the target is closed or another thread serves, the last noted state counts.
        let _ = self.with_target(|target| self.note(target));
        self.known.with(|known| known.clone())
    }

    /// Stops the target, and closes it once no thread serves.
    fn close(&self) {
        self.stopper.stop();
        if let Some(target) = self.target.with(Option::take) {
            self.note(&target);
        }
    }
}

/// Returns whether this thread handles signals.
fn handles_signals(py: Python<'_>) -> PyResult<bool> {
    let threading = py.import("threading")?;
    Ok(threading.call_method0("current_thread")?.is(&threading.call_method0("main_thread")?))
}

impl Target {
    fn refused(py: Python<'_>, is_closed: bool) -> PyErr {
        if is_closed {
            return closed(py, "target");
        }
        raise(
            py,
            "ServeError",
            "another thread serves with this target: stop it first, or let that thread serve",
        )
    }
}

#[pymethods]
impl Target {
    #[new]
    #[pyo3(
        signature = (address, *, local=None, data=None, **options),
        text_signature = "(address, *, local=(), data=None, **options)"
    )]
    fn new(
        py: Python<'_>,
        address: &str,
        local: Option<&Bound<'_, PyAny>>,
        data: Option<&Bound<'_, PyAny>>,
        options: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Target> {
        guarded(py, || {
            let process = Process::this();
            let builder = builder(py, address, local, data, options)?;
            let target = builder.build().map_err(|error| exception(py, &error))?;
            let (address, stopper) = (target.address(), target.stopper());
            let config = target.config().clone();
            let known = Lock::new(Known::of(&target));
            let served = Arc::new(Served { target: Lock::new(Some(target)), known, stopper, process });
            TARGETS.with(|targets| {
                targets.retain(|target| target.strong_count() != 0);
                targets.push(Arc::downgrade(&served));
            });
            Ok(Target { served, address, config })
        })
    }

    /// Runs the calls that have come, and returns their number. Never waits.
    fn poll(&self, py: Python<'_>) -> PyResult<usize> {
        guarded(py, || {
            self.served.process.check(py, "target")?;
            let ran = py.detach(|| self.served.with_target(farjump::Target::poll));
            ran.map_err(|is_closed| Target::refused(py, is_closed))?.map_err(|error| exception(py, &error))
        })
    }

    /// Serves until `stop`, or for `timeout` seconds. Returns True if it was stopped. A target that was stopped serves no
    /// more.
    #[pyo3(signature = (timeout=None))]
    fn run(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<bool> {
        guarded(py, || {
            self.served.process.check(py, "target")?;
            let deadline = limit(timeout, "timeout")?.and_then(|limit| Instant::now().checked_add(limit));
            let in_turns = handles_signals(py)?;
            loop {
                let ended = py.detach(|| self.served.serve(deadline, in_turns));
                match ended.map_err(|is_closed| Target::refused(py, is_closed))? {
                    Ok(true) => return Ok(true),
                    Ok(false) => {}
                    Err(error) => return Err(exception(py, &error)),
                }
                py.check_signals()?;
                if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                    return Ok(false);
                }
            }
        })
    }

    /// Ends `run` after its current calls, from any thread. The target then serves no more.
    fn stop(&self, py: Python<'_>) -> PyResult<()> {
        self.served.process.check(py, "target")?;
        self.served.stopper.stop();
        Ok(())
    }

    /// Stops the target, waits until no thread serves, and removes its socket. Closing it again does nothing.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        guarded(py, || {
            self.served.process.check(py, "target")?;
            py.detach(|| self.served.close());
            Ok(())
        })
    }

    /// The target's statistics. While a thread serves, they are up to 20 ms old.
    #[getter]
    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        guarded(py, || {
            self.served.process.check(py, "target")?;
            let Known { stats, sources } = self.served.known();
            let refused = stats.refusals();
            let store = stats.store;
            let fields = [stats.calls, stats.forwarded, stats.frames, stats.bytes, refused, sources as u64]
                .into_iter()
                .chain([stats.links, stats.links_ended, stats.sources_refused, stats.images_linked])
                .map(|number| number.into_pyobject(py).map(Bound::into_any));
            let time = stats.link_time.as_secs_f64().into_pyobject(py)?.into_any();
            let rest = [store.images as u64, store.bytes as u64, store.evictions]
                .map(|number| number.into_pyobject(py));
            let fields: Vec<_> = fields.collect::<Result<_, _>>()?;
            let rest =
                rest.into_iter().map(|number| number.map(Bound::into_any)).collect::<Result<Vec<_>, _>>()?;
            let fields = PyTuple::new(py, fields.into_iter().chain([time]).chain(rest).collect::<Vec<_>>())?;
            py.import("farjump._types")?.getattr("TargetStats")?.call1(fields)
        })
    }

    /// The address that it listens at, with the port that the system chose for port 0.
    #[getter]
    fn address(&self) -> &str {
        &self.address
    }

    /// Its options as text, by the names of their keyword arguments. None where other options, or the machine, decide.
    #[getter]
    fn options<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        guarded(py, || options::shown(py, &self.config))
    }

    fn __enter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, py: Python<'_>, _exception: &Bound<'_, PyAny>) -> PyResult<()> {
        self.close(py)
    }

    fn __repr__(&self) -> String {
        format!("<farjump.Target at {}>", self.address)
    }
}

/// Closes all targets of this process, at the end of the interpreter.
#[pyfunction]
pub(crate) fn close_targets(py: Python<'_>) {
    let targets = TARGETS.with(std::mem::take);
    py.detach(|| {
        let until = Instant::now() + END;
        for served in targets.iter().filter_map(Weak::upgrade).filter(|served| served.process.is_this()) {
            served.stopper.stop();
            loop {
                if let Some(target) = served.target.try_with(Option::take) {
                    drop(target);
                    break;
                }
                // A call that does not end keeps its target.
                if Instant::now() >= until {
                    break;
                }
                thread::sleep(Duration::from_millis(1));
            }
        }
    });
}
