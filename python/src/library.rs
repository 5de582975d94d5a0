//! Ifunc libraries.

use std::path::PathBuf;

use pyo3::prelude::*;

use crate::errors::{exception, guarded};

/// An ifunc library, `libNAME.so`, as `farjump build` makes it. It is read, and nothing of it runs here.
#[pyclass(frozen, module = "farjump", weakref)]
pub(crate) struct Library {
    pub(crate) library: farjump::Library,
}

#[pymethods]
impl Library {
    #[new]
    fn new(py: Python<'_>, path: PathBuf) -> PyResult<Library> {
        guarded(py, || {
            let opened = py.detach(|| farjump::Library::open(path));
            let library = opened.map_err(|error| exception(py, &error.into()))?;
            Ok(Library { library })
        })
    }

    /// The name of its function.
    #[getter]
    fn name(&self) -> &str {
        self.library.name()
    }

    /// The path that it was read from.
    #[getter]
    fn path(&self) -> PathBuf {
        self.library.path().to_owned()
    }

    /// The ids of its images, each for a machine, as `farjump inspect` shows them.
    #[getter]
    fn identity(&self) -> Vec<String> {
        self.library.images().iter().map(|image| image.id().to_string()).collect()
    }

    fn __repr__(&self) -> String {
        format!("<farjump.Library {} at {:?}>", self.library.name(), self.library.path())
    }
}
