//! Ifunc libraries.

use std::path::PathBuf;

use farjump::{Level, Machine, Platform};
use farjump_builder::{LinkError, link_library as link};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::errors::{exception, guarded, raise};

/// An ifunc library, `libNAME.so`, as `farjump build` makes it. This process reads it, and runs none of its code.
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

    /// Takes a library from memory: the contents of a library's file, or an image, which needs the name of its
    /// function.
    #[staticmethod]
    #[pyo3(signature = (data, name=None))]
    fn from_bytes(py: Python<'_>, data: &[u8], name: Option<&str>) -> PyResult<Library> {
        guarded(py, || {
            let opened = py.detach(|| farjump::Library::from_bytes(name, data));
            let library = opened.map_err(|error| exception(py, &error.into()))?;
            Ok(Library { library })
        })
    }

    /// The name of its function.
    #[getter]
    fn name(&self) -> &str {
        self.library.name()
    }

    /// The path of its file; `<memory>` if it has none.
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

/// Links a library for this machine by farjump's own linker. Makes an image for each CPU level, of the code that
/// `NAME_main` reaches in its object. `origin` is the path of its source. Runs no program, and writes no file.
#[pyfunction]
pub(crate) fn link_library(
    py: Python<'_>,
    name: &str,
    origin: PathBuf,
    objects: Vec<(u8, Vec<u8>)>,
) -> PyResult<Library> {
    guarded(py, || {
        let machine = Machine::native().ok_or_else(|| {
            raise(
                py,
                "LibraryError",
                "farjump links for x86-64, aarch64 and riscv64, and not for this machine",
            )
        })?;
        let of_level = |(level, object)| match Level::new(machine, level) {
            Some(level) => Ok((Platform { machine, level }, object)),
            None => Err(PyValueError::new_err(format!("{machine} has no level {level}"))),
        };
        let objects = objects.into_iter().map(of_level).collect::<PyResult<Vec<_>>>()?;
        let linked = py.detach(|| link(name, origin, objects));
        let library = linked.map_err(|error| match error {
            LinkError::Library(error) => exception(py, &error.into()),
            error => raise(py, "LibraryError", error.to_string()),
        })?;
        Ok(Library { library })
    })
}
