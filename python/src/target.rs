//! Targets.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError, Weak};
use std::thread;
use std::time::{Duration, Instant};

use farjump::{Error, Mode, Stopper};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::errors::{closed, exception, guarded, limit, raise};
use crate::library::Library;
use crate::process::Process;
use crate::store::handle_exception;

/// Longest time without a check for signals, in the thread that handles them.
const TURN: Duration = Duration::from_millis(20);
/// Polls without a frame before a target sleeps.
const IDLE_POLLS: u32 = 2000;
/// Polls between two checks whether a source waits for this processor.
const POLLS_TO_YIELD: u32 = 64;
/// Time that the end of the interpreter allows a target to end.
const END: Duration = Duration::from_secs(1);

/// Targets that the interpreter closes at its end, so that their sockets go.
static TARGETS: Mutex<Vec<Weak<Served>>> = Mutex::new(Vec::new());

struct Served {
    /// `None` once closed. Held for as long as a thread serves.
    target: Mutex<Option<farjump::Target<'static>>>,
    stopper: Stopper,
    process: Process,
}

/// A target, in which the functions that sources inject run. It serves while `run` or `poll` does, in one thread at
/// a time.
#[pyclass(frozen, module = "farjump", weakref)]
pub(crate) struct Target {
    served: Arc<Served>,
    address: String,
}

/// Serves until it is stopped or `until`. `true` if it was stopped.
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
    // A target that is stopped only says so to its sources.
    target.run().map(|()| true)
}

impl Served {
    /// The target, for this thread alone.
    fn take(&self) -> Option<MutexGuard<'_, Option<farjump::Target<'static>>>> {
        match self.target.try_lock() {
            Ok(target) => Some(target),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// Serves until `until` without the GIL. `Err` inside says that it is closed or served elsewhere.
    fn serve(&self, until: Option<Instant>) -> Result<Result<bool, Error>, bool> {
        let mut held = self.take().ok_or(false)?;
        let target = held.as_mut().ok_or(true)?;
        Ok(match until {
            Some(until) => serve(target, &self.stopper, until),
            None => target.run().map(|()| true),
        })
    }

    /// Stops the target, and closes it once no thread serves.
    fn close(&self) {
        self.stopper.stop();
        drop(self.target.lock().unwrap_or_else(PoisonError::into_inner).take());
    }
}

/// Whether signals are handled in this thread.
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
    #[expect(clippy::too_many_arguments, reason = "named ones, of Python")]
    #[pyo3(
        signature = (address, *, transport=None, exports=Vec::new(), local=Vec::new(), modes=None, key_file=None, store=None),
        text_signature = "(address, *, transport=None, exports=(), local=(), modes=None, key_file=None, store=None)"
    )]
    fn new(
        py: Python<'_>,
        address: &str,
        transport: Option<&str>,
        exports: Vec<PathBuf>,
        local: Vec<Py<Library>>,
        modes: Option<Vec<String>>,
        key_file: Option<PathBuf>,
        store: Option<u64>,
    ) -> PyResult<Target> {
        guarded(py, || {
            let process = Process::this();
            let mut builder = farjump::Target::listen(address);
            if let Some(name) = transport {
                builder = builder.transport(name);
            }
            for path in exports {
                // SAFETY: as for `ctypes.CDLL`, the program answers for the libraries that it names.
                builder = unsafe { builder.export_library(path) };
            }
            builder = local.iter().fold(builder, |builder, library| builder.local(&library.get().library));
            if let Some(modes) = modes {
                let modes: Result<Vec<Mode>, String> = modes.iter().map(|mode| mode.parse()).collect();
                builder = builder.modes(&modes.map_err(PyValueError::new_err)?);
            }
            if let Some(path) = key_file {
                builder = builder.key_file(path);
            }
            if let Some(bytes) = store {
                let store = farjump_handles::Store::options().capacity(bytes).build();
                builder = builder.objects(store.map_err(|error| handle_exception(py, &error))?.service());
            }
            let target = builder.build().map_err(|error| exception(py, &error))?;
            let (address, stopper) = (target.address(), target.stopper());
            let served = Arc::new(Served { target: Mutex::new(Some(target)), stopper, process });
            let mut targets = TARGETS.lock().unwrap_or_else(PoisonError::into_inner);
            targets.retain(|target| target.strong_count() != 0);
            targets.push(Arc::downgrade(&served));
            Ok(Target { served, address })
        })
    }

    /// Runs the calls that have come, and returns their number. Never waits.
    fn poll(&self, py: Python<'_>) -> PyResult<usize> {
        guarded(py, || {
            self.served.process.check(py, "target")?;
            let ran = py.detach(|| {
                let mut held = self.served.take().ok_or(false)?;
                Ok(held.as_mut().ok_or(true)?.poll())
            });
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
                let turn = in_turns.then(|| Instant::now() + TURN);
                let until = turn.into_iter().chain(deadline).min();
                let ended = py.detach(|| self.served.serve(until));
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

    /// The address that it listens at, with the port that the system chose for port 0.
    #[getter]
    fn address(&self) -> &str {
        &self.address
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
    let targets = std::mem::take(&mut *TARGETS.lock().unwrap_or_else(PoisonError::into_inner));
    py.detach(|| {
        let until = Instant::now() + END;
        for served in targets.iter().filter_map(Weak::upgrade).filter(|served| served.process.is_this()) {
            served.stopper.stop();
            loop {
                if let Some(mut target) = served.take() {
                    drop(target.take());
                    break;
                }
                // A call that does not end keeps it.
                if Instant::now() >= until {
                    break;
                }
                thread::sleep(Duration::from_millis(1));
            }
        }
    });
}
