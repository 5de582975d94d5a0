//! Calls as Python states them: of a library's function with bytes, or of a Python function with its arguments.

use pyo3::exceptions::PyTypeError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyTuple};
use pyo3::{PyTraverseError, PyVisit};

use crate::library::Library;

/// A function with its arguments, as they travel.
pub(crate) struct Call<'py> {
    pub(crate) library: Bound<'py, Library>,
    /// An object that shows the bytes of the payload.
    pub(crate) payload: Bound<'py, PyAny>,
    pub(crate) results: Results,
}

/// Makes the results of a function's calls of their outcomes. Without an object of Python's that does, results are the
/// replies.
pub(crate) struct Results(Option<Py<PyAny>>);

impl<'py> Call<'py> {
    /// The call of `function`, a library or an object with the method `_farjump_call`, with these arguments.
    ///
    /// # Errors
    /// `TypeError` for other objects, and for a library with other than one argument; those of the method.
    pub(crate) fn of(function: &Bound<'py, PyAny>, args: &Bound<'py, PyTuple>) -> PyResult<Call<'py>> {
        if let Ok(library) = function.cast::<Library>() {
            let Ok(payload) = args.get_item(0) else { return Err(count(0)) };
            if args.len() != 1 {
                return Err(count(args.len()));
            }
            return Ok(Call { library: library.clone(), payload, results: Results(None) });
        }
        let py = function.py();
        let Some(call) = function.getattr_opt(intern!(py, "_farjump_call"))? else {
            let name = function.get_type().name()?;
            return Err(PyTypeError::new_err(format!(
                "a {name} cannot be injected: give a farjump.Library, or a function with the decorator @farjump.ifunc"
            )));
        };
        let (library, payload, results): (Bound<'py, PyAny>, _, Py<PyAny>) =
            call.call1((args,))?.extract()?;
        Ok(Call { library: library.cast_into()?, payload, results: Results(Some(results)) })
    }
}

impl<'py> Call<'py> {
    /// The call of `function` with the arguments of one item: those in it if it is a tuple, and the function is no library.
    ///
    /// # Errors
    /// As [`Call::of`].
    pub(crate) fn of_item(function: &Bound<'py, PyAny>, item: Bound<'py, PyAny>) -> PyResult<Call<'py>> {
        if let Ok(args) = item.cast::<PyTuple>()
            && function.cast::<Library>().is_err()
        {
            return Call::of(function, args);
        }
        Call::of(function, &PyTuple::new(function.py(), [item])?)
    }
}

fn count(found: usize) -> PyErr {
    PyTypeError::new_err(format!(
        "the function of a library takes one argument, its bytes, and there are {found}; give a timeout by its name"
    ))
}

impl Results {
    pub(crate) fn visit(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.0)
    }

    /// The result that a call has by this outcome. Runs code of Python's: no lock may be held.
    pub(crate) fn of(&self, py: Python<'_>, outcome: PyResult<Py<PyBytes>>) -> PyResult<Py<PyAny>> {
        match (&self.0, outcome) {
            (None, outcome) => Ok(outcome?.into_any()),
            (Some(results), Ok(reply)) => results.call_method1(py, intern!(py, "result"), (reply,)),
            (Some(results), Err(error)) => {
                let raised =
                    results.call_method1(py, intern!(py, "error"), (error.into_value(py).into_any(),))?;
                Err(PyErr::from_value(raised.into_bound(py)))
            }
        }
    }
}
