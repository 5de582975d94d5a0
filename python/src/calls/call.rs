//! Calls as Python states them: of a library's function with bytes, or of a Python function with its arguments.

use pyo3::exceptions::PyTypeError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyTuple};
use pyo3::{PyTraverseError, PyVisit};

use crate::library::Library;

/// A function with its arguments, encoded for sending.
pub(crate) struct Call<'py> {
    pub(crate) library: Bound<'py, Library>,
    /// An object that exposes the bytes of the payload.
    pub(crate) payload: Bound<'py, PyAny>,
    pub(crate) results: Results,
}

/// Converts the outcomes of a function's calls into results. Without a Python object that does so, results are the
/// replies.
pub(crate) struct Results(Option<Py<PyAny>>);

impl<'py> Call<'py> {
    /// Returns the call of `function`, a library or an object with the method `_farjump_call`, with these arguments.
    ///
    /// # Errors
    /// `TypeError` for other objects, and for a library with a number of arguments other than one; errors of the
    /// method.
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
    /// Returns the call of `function` with the arguments of one item. A tuple holds the arguments, unless the function
    /// is a library.
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

    /// Returns the result of a call with this outcome. Runs Python code: the caller may hold no lock.
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
