//! Links.

use std::collections::VecDeque;
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::sync::{Arc, LazyLock};
use std::thread;
use std::time::{Duration, Instant};

use farjump::{Awaited, Error, InjectError, LinkConfig, WaitError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyTuple};

use crate::arguments::Arguments;
use crate::calls::awaited::{Credit, Entry};
use crate::calls::call::Call;
use crate::calls::event_loop::Bridge;
use crate::calls::pending::{Pending, outcome};
use crate::calls::pendings::{Pendings, send};
use crate::calls::ready::ready;
use crate::calls::sending::{Unsent, try_to_group};
use crate::calls::shared::Shared;
use crate::errors::{closed, exception, guarded, limit, raise};
use crate::objects::handle::Handle;
use crate::objects::request::handle_exception;
use crate::options;
use crate::process::Process;

/// Time between two checks for signals while a link is made.
const CONNECT_TURN: Duration = Duration::from_millis(20);

/// A connection to a target. Any number of threads and event loops may use it at once.
///
/// Options are keyword arguments: docs/reference/options.md describes them, and `Link.options` names them.
#[pyclass(frozen, module = "farjump", weakref)]
pub(crate) struct Link {
    shared: Arc<Shared>,
}

/// The library by which a program calls a target's object store.
static STORE: LazyLock<Result<farjump::Library, String>> =
    LazyLock::new(|| farjump::Library::by_name(farjump::objects::NAME).map_err(|error| error.to_string()));

#[pymethods]
impl Link {
    #[new]
    #[pyo3(signature = (address, **options), text_signature = "(address, **options)")]
    fn new(py: Python<'_>, address: &str, options: Option<&Bound<'_, PyDict>>) -> PyResult<Link> {
        guarded(py, || {
            let process = Process::this();
            let mut config: LinkConfig = options::config(options)?;
            let send_timeout = config.send_timeout;
            // The link's own wait, at the end of a group, holds its lock.
            config.send_timeout = send_timeout.min(LinkConfig::default().send_timeout);
            let link = connect(py, farjump::Link::builder(address).config(config))?;
            let shared = Shared::new(link, address.to_owned(), send_timeout, process);
            Ok(Link { shared: Arc::new(shared) })
        })
    }

    /// Sends a call of the function with these arguments, and returns it without waiting for the outcome. A library's
    /// function has one argument, its bytes.
    #[pyo3(signature = (function, /, *args))]
    fn inject(
        &self,
        py: Python<'_>,
        function: &Bound<'_, PyAny>,
        args: &Bound<'_, PyTuple>,
    ) -> PyResult<Pending> {
        guarded(py, || {
            let call = Call::of(function, args)?;
            let number = self.send_call(py, &call)?;
            Ok(Pending::new(&self.shared, number, call.results))
        })
    }

    /// As `inject`, and awaits credit where `inject` waits for it: `pending = await link.inject_async(library, args)`.
    /// A call that lacks credit keeps a copy of the bytes, and is sent in its turn.
    #[pyo3(signature = (function, /, *args))]
    fn inject_async<'py>(
        &self,
        py: Python<'py>,
        function: &Bound<'py, PyAny>,
        args: &Bound<'py, PyTuple>,
    ) -> PyResult<Bound<'py, PyAny>> {
        guarded(py, || {
            self.shared.process.check(py, "link")?;
            let Call { library, payload, results } = Call::of(function, args)?;
            let args = Arguments::of(&payload)?;
            if !Bridge::sends(py, &self.shared)?
                && let Some(number) = self.send_at_once(py, &library.get().library, args.bytes())?
            {
                let pending = Bound::new(py, Pending::new(&self.shared, number, results))?;
                return ready(py, pending.into_any());
            }
            let future = Bridge::new_future(py)?;
            let (unsent, since) = (Unsent::new(library.unbind(), &args), Instant::now());
            let credit = Credit { future: future.clone_ref(py), unsent, results, since, sent: None };
            Bridge::add(py, &self.shared, Entry::Credit(credit))?;
            Ok(future.into_bound(py))
        })
    }

    /// Sends a call for each item of an iterable, with its bytes as arguments, and returns the calls as one: the outcome
    /// is the list of their replies. For a function of several arguments the items are tuples. Where an event loop runs,
    /// calls that find no credit are sent while the outcome is awaited; elsewhere `map` waits for it. Calls of the items of a
    /// list or a tuple wake a sleeping target together.
    #[pyo3(signature = (function, args, /, *, return_exceptions=false))]
    fn map(
        &self,
        py: Python<'_>,
        function: &Bound<'_, PyAny>,
        args: &Bound<'_, PyAny>,
        return_exceptions: bool,
    ) -> PyResult<Pendings> {
        guarded(py, || {
            self.shared.process.check(py, "link")?;
            let is_awaited = Bridge::is_in_loop(py)?;
            // Other iterables may take long between two items.
            let are_there = args.is_instance_of::<PyList>() || args.is_instance_of::<PyTuple>();
            let _group = Finish { link: self, py };
            let (mut calls, mut unsent) = (Vec::new(), VecDeque::new());
            for args in args.try_iter()? {
                let Call { library, payload, results } = Call::of_item(function, args?)?;
                let (args, rust) = (Arguments::of(&payload)?, &library.get().library);
                let number = match is_awaited {
                    false => Some(send(py, &self.shared, rust, args.bytes(), &calls)?),
                    true if unsent.is_empty() => self.send_at_once(py, rust, args.bytes())?,
                    true => None,
                };
                let pending = match number {
                    Some(number) => Pending::new(&self.shared, number, results),
                    None => {
                        unsent.push_back((calls.len(), Unsent::new(library.unbind(), &args)));
                        Pending::unsent(&self.shared, results)
                    }
                };
                calls.push(Py::new(py, pending)?);
                if !are_there || calls.len().is_multiple_of(GROUP) {
                    self.finish_group(py);
                }
            }
            Ok(Pendings::new(calls, unsent, return_exceptions))
        })
    }

    /// Sends a call and waits for the result, `timeout` seconds at most. At the timeout the call is cancelled.
    #[pyo3(signature = (function, /, *args, timeout=None))]
    fn call(
        &self,
        py: Python<'_>,
        function: &Bound<'_, PyAny>,
        args: &Bound<'_, PyTuple>,
        timeout: Option<f64>,
    ) -> PyResult<Py<PyAny>> {
        guarded(py, || {
            let limit = limit(timeout, "timeout")?;
            let call = Call::of(function, args)?;
            let number = self.send_call(py, &call)?;
            match self.shared.wait(py, limit, |link| link.poll_raw(number).transpose()) {
                Ok(Some(found)) => outcome(py, found, &call.results),
                Ok(None) => {
                    self.shared.abandon(number);
                    Err(self.shared.timed_out(py, Awaited::Outcome, limit.unwrap_or_default()))
                }
                Err(error) => {
                    self.shared.abandon(number);
                    Err(error)
                }
            }
        })
    }

    /// Sends a one-way call. The next `flush` reports whether all one-way calls ran.
    #[pyo3(signature = (function, /, *args))]
    fn send(&self, py: Python<'_>, function: &Bound<'_, PyAny>, args: &Bound<'_, PyTuple>) -> PyResult<()> {
        guarded(py, || {
            let call = Call::of(function, args)?;
            self.try_to_send(py, &call, farjump::Link::try_send)
        })
    }

    /// Makes the owner read the handle's object from its file before the next call that names the object starts.
    fn _hold(&self, py: Python<'_>, handle: &Handle) -> PyResult<()> {
        guarded(py, || {
            self.shared.process.check(py, "link")?;
            let store = STORE.as_ref().map_err(|why| raise(py, "Error", why.clone()))?;
            let limit = self.shared.send_timeout;
            let held =
                self.shared.wait(py, Some(limit), |link| match handle.handle.try_hold(link, store) {
                    Err(farjump_handles::Error::Link(Error::Inject(InjectError::Full))) => None,
                    held => Some(held),
                })?;
            match held {
                Some(held) => held.map_err(|error| handle_exception(py, &error)),
                None => Err(self.shared.timed_out(py, Awaited::Credit, limit)),
            }
        })
    }

    /// Waits until everything sent before has run. Raises the first refusal of a call sent by `send`.
    #[pyo3(signature = (timeout=None))]
    fn flush(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<()> {
        guarded(py, || {
            self.shared.process.check(py, "link")?;
            let limit = limit(timeout, "timeout")?;
            let flushed = self.shared.flush(py, limit)?;
            flushed.map_err(|error| match (error, limit) {
                (Error::Wait(WaitError::TimedOut { awaited, .. }), Some(limit)) => {
                    self.shared.timed_out(py, awaited, limit)
                }
                (error, _) => exception(py, &error),
            })
        })
    }

    /// Closes the link. Calls that are pending end with Closed. Closing it again does nothing.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        guarded(py, || {
            self.shared.process.check(py, "link")?;
            self.shared.close(py)
        })
    }

    /// Returns whether the link was closed.
    #[getter]
    fn closed(&self, py: Python<'_>) -> PyResult<bool> {
        self.shared.process.check(py, "link")?;
        Ok(self.shared.with(py, |held| held.link().is_none()))
    }

    /// The address that the program passed.
    #[getter]
    fn address(&self) -> &str {
        &self.shared.address
    }

    /// The name of the transport in use.
    #[getter]
    fn transport(&self, py: Python<'_>) -> PyResult<String> {
        self.with(py, farjump::Link::transport)
    }

    /// Statistics of the link: frames, frames_with_code, code_bytes, payload_bytes.
    #[getter]
    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let stats = self.with(py, farjump::Link::stats)?;
        let fields = (stats.frames, stats.frames_with_code, stats.code_bytes, stats.payload_bytes);
        py.import("farjump._types")?.getattr("LinkStats")?.call1(fields)
    }

    /// The target's process: pid, uid, name, address.
    #[getter]
    fn peer<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let peer = self.with(py, farjump::Link::peer)?;
        let address = peer.address.map(|address| address.to_string());
        py.import("farjump._types")?.getattr("Peer")?.call1((peer.pid, peer.uid, peer.name, address))
    }

    /// Its options as text, by the names of their keyword arguments. None where other options, or the machine, decide.
    #[getter]
    fn options<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        guarded(py, || {
            let config = self.with(py, farjump::Link::config)?;
            options::shown(py, &LinkConfig { send_timeout: self.shared.send_timeout, ..config })
        })
    }

    fn __enter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, py: Python<'_>, _exception: &Bound<'_, PyAny>) -> PyResult<()> {
        self.close(py)
    }

    fn __repr__(&self) -> String {
        format!("<farjump.Link to {}>", self.shared.address)
    }
}

/// Number of calls after which `map` wakes the target. The target then works while `map` sends more.
const GROUP: usize = 128;

/// A guard that finishes the group of a `map`, also if the `map` fails.
struct Finish<'py> {
    link: &'py Link,
    py: Python<'py>,
}

impl Drop for Finish<'_> {
    fn drop(&mut self) {
        self.link.finish_group(self.py);
    }
}

impl Link {
    /// Runs `act` on the link, if it is open.
    fn with<R: Send>(&self, py: Python<'_>, act: impl FnOnce(&farjump::Link) -> R + Send) -> PyResult<R> {
        guarded(py, || {
            self.shared.process.check(py, "link")?;
            let done = self.shared.with(py, |held| held.link().map(act));
            done.ok_or_else(|| closed(py, "link"))
        })
    }

    /// Wakes the target, if it sleeps, for calls that were sent. An error comes with their outcomes.
    fn finish_group(&self, py: Python<'_>) {
        // The arguments may have come from a generator that forked.
        if !self.shared.process.is_this() {
            return;
        }
        self.shared.with(py, |held| {
            if let Some(link) = held.link() {
                let _ = link.group().finish();
            }
        });
    }

    /// Sends a call of a group, and returns its number. `None` without credit.
    fn send_at_once(
        &self,
        py: Python<'_>,
        library: &farjump::Library,
        bytes: &[u8],
    ) -> PyResult<Option<u32>> {
        let sent = self.shared.look(py, |link| link.map(|link| try_to_group(link, library, bytes)));
        let sent = sent.ok_or_else(|| closed(py, "link"))?;
        sent.transpose().map_err(|error| exception(py, &error))
    }

    /// Sends a call with a reply, and returns its number.
    fn send_call(&self, py: Python<'_>, call: &Call<'_>) -> PyResult<u32> {
        self.try_to_send(py, call, |link, library, args| {
            link.try_inject(library, args).map(farjump::Pending::into_raw)
        })
    }

    /// Sends, and waits for credit where that is missing.
    fn try_to_send<R: Send>(
        &self,
        py: Python<'_>,
        call: &Call<'_>,
        send: impl Fn(&farjump::Link, &farjump::Library, &[u8]) -> Result<R, Error> + Send,
    ) -> PyResult<R> {
        self.shared.process.check(py, "link")?;
        let args = Arguments::of(&call.payload)?;
        let library = &call.library.get().library;
        let bytes = args.bytes();
        let sent = self.shared.wait(py, Some(self.shared.send_timeout), move |link| {
            match send(link, library, bytes) {
                Err(Error::Inject(InjectError::Full)) => None,
                sent => Some(sent),
            }
        })?;
        match sent {
            Some(sent) => sent.map_err(|error| exception(py, &error)),
            None => Err(self.shared.timed_out(py, Awaited::Credit, self.shared.send_timeout)),
        }
    }
}

/// Connects in a separate thread, so that a signal ends the wait.
fn connect(py: Python<'_>, builder: farjump::LinkBuilder) -> PyResult<farjump::Link> {
    let (give, mut take) = sync_channel(1);
    let connects = thread::Builder::new().name("farjump-connect".into());
    connects.spawn(move || drop(give.send(builder.connect())))?;
    loop {
        let (back, came) = py.detach(|| {
            let came = take.recv_timeout(CONNECT_TURN);
            (take, came)
        });
        take = back;
        match came {
            Ok(made) => return made.map_err(|error| exception(py, &error)),
            Err(RecvTimeoutError::Timeout) => py.check_signals()?,
            Err(RecvTimeoutError::Disconnected) => {
                return Err(raise(py, "Error", "farjump failed to connect, which is a bug in it"));
            }
        }
    }
}
