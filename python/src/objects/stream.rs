//! Streams of handles: publishers, subscribers and items.

use std::sync::MutexGuard;
use std::time::Duration;

use farjump_handles::{Error, Patience};
use pyo3::prelude::*;

use crate::arguments::Arguments;
use crate::errors::{closed, guarded, limit, raise};
use crate::lock::{Lock, Single};
use crate::objects::handle::Handle;
use crate::objects::request::{LARGE, Timeout, request};
use crate::process::Process;

/// Takes a value that one thread uses at a time. Fails rather than waits, because the thread that has it may sleep for
/// long.
fn take<'m, T>(
    py: Python<'_>,
    single: &'m Single<Option<T>>,
    what: &str,
) -> PyResult<MutexGuard<'m, Option<T>>> {
    single.take().ok_or_else(|| {
        raise(py, "StreamError", format!("another call uses this {what}: give each thread its own"))
    })
}

/// Publishes handles in a topic. A `with` block finishes it at the end. If the block raises, subscribers learn that the
/// publisher is gone.
#[pyclass(frozen, module = "farjump", weakref)]
pub(crate) struct Publisher {
    /// `None` once finished or closed.
    publisher: Single<Option<farjump_handles::Publisher>>,
    topic: String,
    number: u64,
    /// Time limit of requests without one of their own.
    timeout: Duration,
    process: Process,
}

impl Publisher {
    pub(crate) fn new(
        publisher: farjump_handles::Publisher,
        timeout: Duration,
        process: Process,
    ) -> Publisher {
        let (topic, number) = (publisher.topic().to_owned(), publisher.number());
        Publisher { publisher: Single::new(Some(publisher)), topic, number, timeout, process }
    }

    fn run<T: Send>(
        &self,
        py: Python<'_>,
        timeout: Timeout,
        is_long: bool,
        work: impl FnOnce(&mut farjump_handles::Publisher, &mut Patience<'_>) -> Result<T, Error> + Send,
    ) -> PyResult<T> {
        let limit = timeout.limit(self.timeout)?;
        self.process.check(py, "publisher")?;
        let mut taken = take(py, &self.publisher, "publisher")?;
        let publisher = taken.as_mut().ok_or_else(|| closed(py, "publisher"))?;
        request(py, limit, is_long, |patience| work(publisher, patience))
    }
}

#[pymethods]
impl Publisher {
    /// Publishes a handle, whose object stays as it is. Returns the entry's number.
    #[pyo3(signature = (handle, timeout=Timeout::OfStore), text_signature = "($self, handle, timeout=...)")]
    fn publish(&self, py: Python<'_>, handle: &Handle, timeout: Timeout) -> PyResult<u64> {
        guarded(py, || {
            self.run(py, timeout, false, |publisher, patience| {
                publisher.publish_with(&handle.handle, false, patience)
            })
        })
    }

    /// Publishes a handle and gives its object to the topic, which evicts the object when all subscribers have finished
    /// with it.
    #[pyo3(signature = (handle, timeout=Timeout::OfStore), text_signature = "($self, handle, timeout=...)")]
    fn give(&self, py: Python<'_>, handle: &Handle, timeout: Timeout) -> PyResult<u64> {
        guarded(py, || {
            self.run(py, timeout, false, |publisher, patience| {
                publisher.publish_with(&handle.handle, true, patience)
            })
        })
    }

    /// Puts an object with these bytes, which the topic owns, and publishes it.
    #[pyo3(
        signature = (data, *, type_name="", timeout=Timeout::OfStore),
        text_signature = "($self, data, *, type_name='', timeout=...)"
    )]
    fn publish_bytes(
        &self,
        py: Python<'_>,
        data: &Bound<'_, PyAny>,
        type_name: &str,
        timeout: Timeout,
    ) -> PyResult<u64> {
        guarded(py, || {
            let held = Arguments::of(data)?;
            let bytes = held.bytes();
            self.run(py, timeout, bytes.len() >= LARGE, |publisher, patience| {
                publisher.publish_bytes_with(type_name, &[bytes], patience)
            })
        })
    }

    /// Ends the publisher: the stream ends when all publishers have finished. Finishing again does nothing.
    #[pyo3(signature = (timeout=Timeout::OfStore), text_signature = "($self, timeout=...)")]
    fn finish(&self, py: Python<'_>, timeout: Timeout) -> PyResult<()> {
        guarded(py, || {
            if self.closed() {
                return Ok(());
            }
            self.run(py, timeout, false, farjump_handles::Publisher::finish_with)?;
            self.close(py)
        })
    }

    /// Ends the publisher. If it has not finished, subscribers learn that it is gone.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        self.process.check(py, "publisher")?;
        let taken = take(py, &self.publisher, "publisher")?.take();
        drop(taken);
        Ok(())
    }

    /// Returns whether the publisher has finished or was closed.
    #[getter]
    fn closed(&self) -> bool {
        self.publisher.take().is_some_and(|publisher| publisher.is_none())
    }

    /// The topic's name.
    #[getter]
    fn topic(&self) -> &str {
        &self.topic
    }

    /// The number of this publisher, as in its items.
    #[getter]
    fn number(&self) -> u64 {
        self.number
    }

    fn __enter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    #[pyo3(signature = (exception_type=None, exception=None, traceback=None))]
    fn __exit__(
        &self,
        py: Python<'_>,
        exception_type: Option<&Bound<'_, PyAny>>,
        exception: Option<&Bound<'_, PyAny>>,
        traceback: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        let _ = (exception, traceback);
        match exception_type {
            Some(_) => self.close(py),
            None => self.finish(py, Timeout::OfStore),
        }
    }

    fn __repr__(&self) -> String {
        format!("<farjump.Publisher {} in topic {:?}>", self.number, self.topic)
    }
}

/// Gets the handles that are published in a topic: by `next`, or by iterating over it.
#[pyclass(frozen, module = "farjump", weakref)]
pub(crate) struct Subscriber {
    /// `None` once closed.
    subscriber: Single<Option<farjump_handles::Subscriber>>,
    topic: String,
    process: Process,
}

impl Subscriber {
    pub(crate) fn new(subscriber: farjump_handles::Subscriber, process: Process) -> Subscriber {
        let topic = subscriber.topic().to_owned();
        Subscriber { subscriber: Single::new(Some(subscriber)), topic, process }
    }

    fn wait(&self, py: Python<'_>, limit: Option<Duration>) -> PyResult<Option<Item>> {
        self.process.check(py, "subscriber")?;
        let mut taken = take(py, &self.subscriber, "subscriber")?;
        let subscriber = taken.as_mut().ok_or_else(|| closed(py, "subscriber"))?;
        let item = request(py, limit, false, |patience| subscriber.next(patience))?;
        Ok(item.map(|item| Item {
            handle: item.handle().clone(),
            number: item.number(),
            publisher: item.publisher(),
            lost: item.lost(),
            is_owned: item.is_owned(),
            item: Lock::new(Some(item)),
        }))
    }
}

#[pymethods]
impl Subscriber {
    /// Waits for the next item. Returns `None` when all publishers have finished and no item is left.
    #[pyo3(signature = (timeout=None))]
    fn next(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<Option<Item>> {
        guarded(py, || self.wait(py, limit(timeout, "timeout")?))
    }

    fn __iter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __next__(&self, py: Python<'_>) -> PyResult<Option<Item>> {
        guarded(py, || self.wait(py, None))
    }

    /// The number of items dropped so far because this subscriber was too slow.
    #[getter]
    fn lost(&self, py: Python<'_>) -> PyResult<u64> {
        let taken = take(py, &self.subscriber, "subscriber")?;
        taken.as_ref().map(farjump_handles::Subscriber::lost).ok_or_else(|| closed(py, "subscriber"))
    }

    /// Ends the subscription. Items stay.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        self.process.check(py, "subscriber")?;
        let taken = take(py, &self.subscriber, "subscriber")?.take();
        drop(taken);
        Ok(())
    }

    /// Returns whether the subscriber was closed.
    #[getter]
    fn closed(&self) -> bool {
        self.subscriber.take().is_some_and(|subscriber| subscriber.is_none())
    }

    /// The topic's name.
    #[getter]
    fn topic(&self) -> &str {
        &self.topic
    }

    fn __enter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, py: Python<'_>, _exception: &Bound<'_, PyAny>) -> PyResult<()> {
        self.close(py)
    }

    fn __repr__(&self) -> String {
        format!("<farjump.Subscriber of topic {:?}>", self.topic)
    }
}

/// An entry of a topic: the handle of an object. An object that the topic owns stays while the item does.
#[pyclass(frozen, module = "farjump", weakref)]
pub(crate) struct Item {
    handle: farjump_handles::Handle,
    number: u64,
    publisher: u64,
    lost: u64,
    is_owned: bool,
    /// `None` once released.
    item: Lock<Option<farjump_handles::Item>>,
}

#[pymethods]
impl Item {
    /// The handle.
    #[getter]
    fn handle(&self) -> Handle {
        Handle { handle: self.handle.clone() }
    }

    /// The number of the entry in its topic. Numbers ascend.
    #[getter]
    fn number(&self) -> u64 {
        self.number
    }

    /// The number of its publisher.
    #[getter]
    fn publisher(&self) -> u64 {
        self.publisher
    }

    /// The number of items dropped between the one before and this one, because the subscriber was too slow.
    #[getter]
    fn lost(&self) -> u64 {
        self.lost
    }

    /// Returns whether the topic owns the object.
    #[getter]
    fn owned(&self) -> bool {
        self.is_owned
    }

    /// Releases an object that the topic owns before the item ends. Views of it stay.
    fn release(&self) {
        drop(self.item.with(Option::take));
    }

    fn __repr__(&self) -> String {
        format!(
            "<farjump.Item {} of publisher {}: object {} ({} bytes)>",
            self.number,
            self.publisher,
            self.handle.number(),
            self.handle.len()
        )
    }
}
