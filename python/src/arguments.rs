//! Arguments of calls: the bytes of any Python object that exposes a buffer, without a copy.

use pyo3::buffer::PyUntypedBuffer;
use pyo3::conversion::FromPyObjectOwned;
use pyo3::exceptions::{PyBufferError, PyTypeError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyMemoryView, PyString};

use crate::errors::class_name;

/// The bytes of one argument, borrowed from its object.
pub(crate) enum Arguments<'py> {
    Bytes(Bound<'py, PyBytes>),
    Buffer(PyUntypedBuffer),
}

impl<'py> Arguments<'py> {
    /// Returns the bytes of `object`.
    ///
    /// # Errors
    /// `TypeError` for an object without a buffer, or whose items are references; `BufferError` for bytes that do not
    /// lie side by side.
    pub(crate) fn of(object: &Bound<'py, PyAny>) -> PyResult<Arguments<'py>> {
        Arguments::named(object, "args")
    }

    /// As [`Arguments::of`], for an argument of another name.
    pub(crate) fn named(object: &Bound<'py, PyAny>, name: &str) -> PyResult<Arguments<'py>> {
        if let Ok(bytes) = object.cast::<PyBytes>() {
            return Ok(Arguments::Bytes(bytes.clone()));
        }
        let buffer = match PyUntypedBuffer::get(object) {
            Ok(buffer) => buffer,
            Err(error) => match PyMemoryView::from(object) {
                // PyO3 accepts neither a buffer without dimensions nor one that omits its strides, as those of ctypes
                // do.
                Ok(view) if is_scalar(&view)? => return of_scalar(&view, name).map(Arguments::Bytes),
                Ok(view) => PyUntypedBuffer::get(&view)?,
                Err(_) => return Err(refusal(object, name, error)),
            },
        };
        if !buffer.is_c_contiguous() {
            return Err(PyBufferError::new_err(format!(
                "the bytes of {name} do not lie side by side: give a copy (bytes({name}), numpy.ascontiguousarray({name}))"
            )));
        }
        check_items(buffer.format().to_bytes(), name)?;
        Ok(Arguments::Buffer(buffer))
    }

    /// Returns the bytes. The object keeps them where they are for as long as `self` lives.
    pub(crate) fn bytes(&self) -> &[u8] {
        match self {
            Arguments::Bytes(bytes) => bytes.as_bytes(),
            Arguments::Buffer(buffer) if buffer.len_bytes() == 0 => &[],
            // SAFETY: the buffer is contiguous (`of`), so `len_bytes` bytes are readable at `buf_ptr` until it is
            // released, which needs `self`. A program that changes them during the call, in another thread, sends
            // either value: they are only copied.
            Arguments::Buffer(buffer) => unsafe {
                std::slice::from_raw_parts(buffer.buf_ptr().cast::<u8>(), buffer.len_bytes())
            },
        }
    }
}

/// The items of any iterable but a string. PyO3's own conversion to a vector trusts the length that an object states,
/// and panics.
pub(crate) struct Items<T>(pub(crate) Vec<T>);

impl<'py, T: FromPyObjectOwned<'py>> FromPyObject<'_, 'py> for Items<T> {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<Items<T>> {
        if object.is_instance_of::<PyString>() {
            return Err(PyTypeError::new_err("it is a single str: give a list or a tuple"));
        }
        let items = object.try_iter()?.map(|item| item?.extract().map_err(Into::into));
        items.collect::<PyResult<Vec<T>>>().map(Items)
    }
}

/// Returns the error for an object whose buffer is unavailable for this reason.
fn refusal(object: &Bound<'_, PyAny>, name: &str, error: PyErr) -> PyErr {
    if !error.is_instance_of::<PyTypeError>(object.py()) {
        return error;
    }
    PyTypeError::new_err(format!(
        "{name} is of type {}, which has no bytes to send: give bytes, bytearray, memoryview or a contiguous array",
        class_name(object)
    ))
}

/// Returns whether the view shows one value, such as a number of NumPy's or ctypes', and no array.
fn is_scalar(view: &Bound<'_, PyMemoryView>) -> PyResult<bool> {
    Ok(view.getattr(intern!(view.py(), "ndim"))?.extract::<usize>()? == 0)
}

/// Returns the bytes of one value.
///
/// # Errors
/// `TypeError` for a reference.
fn of_scalar<'py>(view: &Bound<'py, PyMemoryView>, name: &str) -> PyResult<Bound<'py, PyBytes>> {
    check_items(view.getattr(intern!(view.py(), "format"))?.extract::<String>()?.as_bytes(), name)?;
    Ok(view.call_method0(intern!(view.py(), "tobytes"))?.cast_into()?)
}

/// Checks that items of this format (Python's `struct`) are no references.
///
/// # Errors
/// `TypeError` if they are.
fn check_items(format: &[u8], name: &str) -> PyResult<()> {
    if format.iter().any(|code| matches!(code, b'O' | b'P' | b'&')) {
        return Err(PyTypeError::new_err(format!(
            "the items of {name} are references to objects, which mean nothing elsewhere: send their values"
        )));
    }
    Ok(())
}
