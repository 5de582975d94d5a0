//! Handles to objects.

use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};

use pyo3::basic::CompareOp;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::arguments::Arguments;
use crate::errors::{guarded, raise};

/// Names an object at its owner: a small value that can be sent, stored and pickled. `Store.put` makes handles, and so
/// does the constructor, from the bytes of another handle.
#[pyclass(frozen, module = "farjump", weakref)]
pub(crate) struct Handle {
    pub(crate) handle: farjump_handles::Handle,
}

#[pymethods]
impl Handle {
    #[new]
    fn new(py: Python<'_>, data: &Bound<'_, PyAny>) -> PyResult<Handle> {
        guarded(py, || {
            let bytes = Arguments::of(data)?;
            match farjump_handles::Handle::from_bytes(bytes.bytes()) {
                Ok(handle) => Ok(Handle { handle }),
                Err(fault) => Err(raise(py, "HandleError", format!("the bytes are no handle: {fault}"))),
            }
        })
    }

    fn __bytes__<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.handle.to_bytes())
    }

    /// Returns the bytes that represent the object among the arguments of an ifunc.
    fn __farjump_handle__<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        self.__bytes__(py)
    }

    fn __reduce__<'py>(slf: &Bound<'py, Self>) -> (Bound<'py, PyAny>, (Bound<'py, PyBytes>,)) {
        (slf.get_type().into_any(), (slf.get().__bytes__(slf.py()),))
    }

    /// Length of the object in bytes; 0 if it was reserved before it had contents.
    #[getter]
    fn length(&self) -> u64 {
        self.handle.len()
    }

    /// The name of the object's type, as its maker gave it.
    #[getter]
    fn type_name(&self) -> &str {
        self.handle.type_name()
    }

    /// The epoch of the store that has the object.
    #[getter]
    fn epoch(&self) -> u64 {
        self.handle.epoch()
    }

    /// The number of the object in its store.
    #[getter]
    fn number(&self) -> u64 {
        self.handle.number()
    }

    /// Returns whether the owner has this address.
    fn _is_at(&self, address: &str) -> bool {
        self.handle.addresses().iter().any(|own| own == address)
    }

    /// The addresses of the owner.
    #[getter]
    fn addresses(&self) -> Vec<String> {
        self.handle.addresses().to_vec()
    }

    fn __richcmp__(&self, py: Python<'_>, other: &Bound<'_, PyAny>, op: CompareOp) -> Py<PyAny> {
        let other = other.cast::<Handle>().ok().map(|other| &other.get().handle);
        match (op, other) {
            (CompareOp::Eq, Some(other)) => (self.handle == *other)
                .into_pyobject(py)
                .map_or_else(|_| py.NotImplemented(), |is| is.to_owned().into_any().unbind()),
            (CompareOp::Ne, Some(other)) => (self.handle != *other)
                .into_pyobject(py)
                .map_or_else(|_| py.NotImplemented(), |is| is.to_owned().into_any().unbind()),
            _ => py.NotImplemented(),
        }
    }

    fn __hash__(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.handle.hash(&mut hasher);
        hasher.finish()
    }

    fn __repr__(&self) -> String {
        format!(
            "<farjump.Handle of object {} ({} bytes) at {}>",
            self.handle.number(),
            self.handle.len(),
            self.handle.addresses().first().map_or("no address", |address| address)
        )
    }
}
