//! Clients of stores of objects.

use std::ffi::{c_int, c_void};
use std::time::Duration;

use farjump_handles::{Client, ClientConfig, Error, Patience, PublisherConfig, SubscriberConfig, View};
use pyo3::exceptions::PyBufferError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyMemoryView};

use crate::arguments::{Arguments, Items};
use crate::errors::{closed, guarded, limit};
use crate::lock::Lock;
use crate::objects::handle::Handle;
use crate::objects::request::{LARGE, Timeout, handle_exception, request};
use crate::objects::stream::{Publisher, Subscriber};
use crate::options;
use crate::process::Process;

/// A connection to the owner of objects. Any number of threads may use it.
///
/// Options are keyword arguments (docs/reference/options.md): connect_timeout, timeout for requests that have none of
/// their own, transport, key_file, and mapped.
#[pyclass(frozen, module = "farjump", weakref)]
pub(crate) struct Store {
    /// `None` once closed.
    client: Lock<Option<Client>>,
    address: String,
    /// Time limit of requests without one of their own.
    timeout: Duration,
    process: Process,
}

/// The bytes of an object, as a buffer that cannot be written. They stay while any view of the buffer is left.
#[pyclass(frozen, module = "farjump._native")]
pub(crate) struct Held {
    view: View,
}

#[pymethods]
impl Held {
    /// # Safety
    /// Only the interpreter calls this, with a view to fill.
    unsafe fn __getbuffer__(slf: Bound<'_, Self>, view: *mut ffi::Py_buffer, flags: c_int) -> PyResult<()> {
        if view.is_null() {
            return Err(PyBufferError::new_err("there is no view to fill"));
        }
        let bytes: &[u8] = &slf.get().view;
        let (start, len) = (bytes.as_ptr().cast_mut().cast::<c_void>(), bytes.len());
        // SAFETY: the bytes stay while `slf` lives, and the view holds `slf`. The view is read-only, so nothing writes
        // the bytes through it. The interpreter gives a view that may be filled.
        let filled =
            unsafe { ffi::PyBuffer_FillInfo(view, slf.as_ptr(), start, len as ffi::Py_ssize_t, 1, flags) };
        if filled == 0 { Ok(()) } else { Err(PyErr::fetch(slf.py())) }
    }
}

impl Store {
    fn client(&self, py: Python<'_>) -> PyResult<Client> {
        self.process.check(py, "store")?;
        self.client.with(|client| client.clone()).ok_or_else(|| closed(py, "store"))
    }

    /// Runs a request as [`request`] does.
    fn run<T: Send>(
        &self,
        py: Python<'_>,
        timeout: Option<Duration>,
        is_long: bool,
        work: impl FnOnce(&Client, &mut Patience<'_>) -> Result<T, Error> + Send,
    ) -> PyResult<T> {
        let client = self.client(py)?;
        request(py, timeout, is_long, move |patience| work(&client, patience))
    }

    fn put_all(&self, py: Python<'_>, parts: &[Bound<'_, PyAny>], type_name: &str) -> PyResult<Handle> {
        guarded(py, || {
            let held = parts.iter().map(Arguments::of).collect::<PyResult<Vec<_>>>()?;
            let parts: Vec<&[u8]> = held.iter().map(|part| part.bytes()).collect();
            let len: usize = parts.iter().map(|part| part.len()).sum();
            let put =
                |client: &Client, patience: &mut Patience<'_>| client.put_parts(type_name, &parts, patience);
            Ok(Handle { handle: self.run(py, Some(self.timeout), len >= LARGE, put)? })
        })
    }
}

fn memory_of(py: Python<'_>, view: View) -> PyResult<Py<PyMemoryView>> {
    let held = Bound::new(py, Held { view })?;
    Ok(PyMemoryView::from(held.as_any())?.unbind())
}

#[pymethods]
impl Store {
    #[new]
    #[pyo3(signature = (address, **options), text_signature = "(address, **options)")]
    fn new(py: Python<'_>, address: &str, options: Option<&Bound<'_, PyDict>>) -> PyResult<Store> {
        guarded(py, || {
            let process = Process::this();
            let config: ClientConfig = options::config(options)?;
            let timeout = config.timeout;
            let builder = Client::builder(address).config(config);
            let client = py.detach(|| builder.connect()).map_err(|error| handle_exception(py, &error))?;
            Ok(Store { client: Lock::new(Some(client)), address: address.to_owned(), timeout, process })
        })
    }

    /// Puts an object with these bytes, and returns its handle.
    #[pyo3(signature = (data, *, type_name=""))]
    fn put(&self, py: Python<'_>, data: &Bound<'_, PyAny>, type_name: &str) -> PyResult<Handle> {
        self.put_all(py, std::slice::from_ref(data), type_name)
    }

    /// Puts an object with the bytes of these parts, one behind the other.
    #[pyo3(signature = (parts, *, type_name=""))]
    fn put_parts(&self, py: Python<'_>, parts: Items<Bound<'_, PyAny>>, type_name: &str) -> PyResult<Handle> {
        self.put_all(py, &parts.0, type_name)
    }

    /// Returns the bytes of an object: a read-only memoryview, without a copy if the owner is on this machine.
    #[pyo3(signature = (handle, timeout=Timeout::OfStore), text_signature = "($self, handle, timeout=...)")]
    fn get(&self, py: Python<'_>, handle: &Handle, timeout: Timeout) -> PyResult<Py<PyMemoryView>> {
        guarded(py, || {
            let limit = timeout.limit(self.timeout)?;
            let get =
                |client: &Client, patience: &mut Patience<'_>| client.get_with(&handle.handle, patience);
            let is_long = handle.handle.len() >= LARGE as u64 && self.client(py)?.mapping().is_err();
            memory_of(py, self.run(py, limit, is_long, get)?)
        })
    }

    /// Returns the bytes as `get` does, but waits until a reserved handle has its contents.
    #[pyo3(signature = (handle, timeout=None))]
    fn wait(&self, py: Python<'_>, handle: &Handle, timeout: Option<f64>) -> PyResult<Py<PyMemoryView>> {
        guarded(py, || {
            let limit = limit(timeout, "timeout")?;
            let wait = |client: &Client, patience: &mut Patience<'_>| client.wait(&handle.handle, patience);
            memory_of(py, self.run(py, limit, false, wait)?)
        })
    }

    /// Returns whether an object exists or is reserved.
    fn exists(&self, py: Python<'_>, handle: &Handle) -> PyResult<bool> {
        guarded(py, || self.run(py, Some(self.timeout), false, |client, _| client.exists(&handle.handle)))
    }

    /// Evicts an object. Later readers do not find it; those that have it keep it. Returns whether it was there.
    fn evict(&self, py: Python<'_>, handle: &Handle) -> PyResult<bool> {
        guarded(py, || self.run(py, Some(self.timeout), false, |client, _| client.evict(&handle.handle)))
    }

    /// Returns a handle whose object gets its contents later, by `set`.
    #[pyo3(signature = (*, type_name=""))]
    fn reserve(&self, py: Python<'_>, type_name: &str) -> PyResult<Handle> {
        guarded(py, || {
            let handle = self.run(py, Some(self.timeout), false, |client, _| client.reserve(type_name))?;
            Ok(Handle { handle })
        })
    }

    /// Gives a reserved handle these bytes as contents, in place of those that it has.
    fn set(&self, py: Python<'_>, handle: &Handle, data: &Bound<'_, PyAny>) -> PyResult<()> {
        guarded(py, || {
            let held = Arguments::of(data)?;
            let bytes = held.bytes();
            let set =
                |client: &Client, patience: &mut Patience<'_>| client.set(&handle.handle, &[bytes], patience);
            self.run(py, Some(self.timeout), bytes.len() >= LARGE, set)
        })
    }

    /// Makes the owner evict the object in so many seconds. None removes the limit.
    fn lease(&self, py: Python<'_>, handle: &Handle, seconds: Option<f64>) -> PyResult<()> {
        guarded(py, || {
            let time = limit(seconds, "seconds")?;
            self.run(py, Some(self.timeout), false, |client, _| client.lease(&handle.handle, time))
        })
    }

    /// Opens a topic of the owner's to publish in it. Options are keyword arguments (docs/reference/options.md):
    /// capacity, keep, await_subscribers, and overflow, the action when the topic is full: "wait" for the slowest
    /// subscriber, "refuse" or "drop-oldest". The first publisher of a topic decides on all but the last.
    #[pyo3(signature = (topic, **options))]
    fn publisher(
        &self,
        py: Python<'_>,
        topic: &str,
        options: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Publisher> {
        guarded(py, || {
            let config: PublisherConfig = options::config(options)?;
            let made =
                self.run(py, Some(self.timeout), false, |client, _| client.publisher(topic, config))?;
            Ok(Publisher::new(made, self.timeout, self.process))
        })
    }

    /// Subscribes to a topic of the owner's. Options are keyword arguments (docs/reference/options.md). With from_now,
    /// the subscription begins with the next entry, otherwise with the oldest. The stream ends when as many publishers
    /// have come as the option publishers says, and all have finished.
    #[pyo3(signature = (topic, **options))]
    fn subscribe(
        &self,
        py: Python<'_>,
        topic: &str,
        options: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Subscriber> {
        guarded(py, || {
            let config: SubscriberConfig = options::config(options)?;
            let made =
                self.run(py, Some(self.timeout), false, |client, _| client.subscribe(topic, config))?;
            Ok(Subscriber::new(made, self.process))
        })
    }

    /// Discards a topic that has neither publishers nor subscribers, and evicts the objects that it owns. Returns
    /// whether it was there.
    fn discard_topic(&self, py: Python<'_>, topic: &str) -> PyResult<bool> {
        guarded(py, || self.run(py, Some(self.timeout), false, |client, _| client.discard_topic(topic)))
    }

    /// The reason why the owner's memory is not mapped; empty if it is.
    #[getter]
    fn unmapped(&self, py: Python<'_>) -> PyResult<String> {
        guarded(py, || {
            let client = self.client(py)?;
            Ok(py.detach(|| client.mapping().err().unwrap_or_default().to_owned()))
        })
    }

    /// Closes the connection. Views of objects stay. Closing it again does nothing.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        self.process.check(py, "store")?;
        drop(self.client.with(Option::take));
        Ok(())
    }

    /// Returns whether the connection was closed.
    #[getter]
    fn closed(&self) -> bool {
        self.client.with(|client| client.is_none())
    }

    /// Returns whether the connection was closed or its owner has ended, as far as this process sees without waiting.
    #[getter]
    fn gone(&self) -> bool {
        self.client.with(|client| client.clone()).is_none_or(|client| client.is_gone())
    }

    /// The owner's address.
    #[getter]
    fn address(&self) -> &str {
        &self.address
    }

    /// Returns whether the owner has a file for objects.
    #[getter]
    fn spills(&self, py: Python<'_>) -> PyResult<bool> {
        Ok(self.client(py)?.spills())
    }

    /// The epoch of the owner's store.
    #[getter]
    fn epoch(&self, py: Python<'_>) -> PyResult<u64> {
        Ok(self.client(py)?.epoch())
    }

    fn __enter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, py: Python<'_>, _exception: &Bound<'_, PyAny>) -> PyResult<()> {
        self.close(py)
    }

    fn __repr__(&self) -> String {
        format!("<farjump.Store at {}>", self.address)
    }
}
