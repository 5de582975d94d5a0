//! An awaitable that is done when it is made.
//!
//! A class of PyO3's would raise `StopIteration` for its value, which takes longer than many calls. If a type has the
//! slot `am_send`, CPython gets the value itself from it.

use std::ffi::{c_int, c_void};
use std::ptr;

use pyo3::ffi::{self, PyObject, PySendResult, PyType_Slot, visitproc};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyType;

/// The object. Python sees the first field only.
#[repr(C)]
struct Ready {
    head: PyObject,
    /// An owned reference; null before [`ready`] sets it.
    value: *mut PyObject,
}

/// Deallocates the object.
///
/// # Safety
/// For the type of [`ready`] only: `this` is one of its objects, with no reference left.
unsafe extern "C" fn dealloc(this: *mut PyObject) {
    // SAFETY: the caller's condition; `value` is null or a reference that the object owns and that is dropped once. The
    // type is a heap type with garbage collection, to which each object has a reference. So `PyType_GenericAlloc`
    // allocated the memory that `PyObject_GC_Del` frees, and had the collector track the object.
    unsafe {
        let class = ffi::Py_TYPE(this);
        ffi::PyObject_GC_UnTrack(this.cast());
        ffi::Py_XDECREF((*this.cast::<Ready>()).value);
        ffi::PyObject_GC_Del(this.cast());
        ffi::Py_DECREF(class.cast());
    }
}

/// Lets the garbage collector visit the value and the type.
///
/// # Safety
/// As [`own_iterator`]. `visit` is the collector's function, and `arg` its argument.
unsafe extern "C" fn traverse(this: *mut PyObject, visit: visitproc, arg: *mut c_void) -> c_int {
    // SAFETY: the caller's condition; the object has a reference to each of the two.
    unsafe {
        for one in [(*this.cast::<Ready>()).value, ffi::Py_TYPE(this).cast()] {
            let stopped = if one.is_null() { 0 } else { visit(one, arg) };
            if stopped != 0 {
                return stopped;
            }
        }
    }
    0
}

/// Returns the object itself, which is its own iterator.
///
/// # Safety
/// For the type of [`ready`] only.
unsafe extern "C" fn own_iterator(this: *mut PyObject) -> *mut PyObject {
    // SAFETY: the caller has a reference.
    unsafe { ffi::Py_NewRef(this) }
}

/// Ends the iteration with the value.
///
/// # Safety
/// As [`own_iterator`].
unsafe extern "C" fn next(this: *mut PyObject) -> *mut PyObject {
    // SAFETY: the value was set when the object was made, and the class is one of Python's. `made` is an exception or
    // null with one set; this function drops its reference.
    unsafe {
        let (class, value) = (ffi::PyExc_StopIteration, (*this.cast::<Ready>()).value);
        // CPython takes other objects for the value itself. It would unpack these.
        if ffi::PyTuple_Check(value) != 0 || ffi::PyExceptionInstance_Check(value) != 0 {
            let made = ffi::PyObject_CallFunctionObjArgs(class, value, ptr::null_mut::<PyObject>());
            if !made.is_null() {
                ffi::PyErr_SetObject(class, made);
                ffi::Py_DECREF(made);
            }
        } else {
            ffi::PyErr_SetObject(class, value);
        }
    }
    ptr::null_mut()
}

/// Returns the value.
///
/// # Safety
/// As [`own_iterator`], and `result` points to a variable.
unsafe extern "C" fn send(
    this: *mut PyObject,
    _sent: *mut PyObject,
    result: *mut *mut PyObject,
) -> PySendResult {
    // SAFETY: the caller's condition; the value was set when the object was made.
    unsafe { *result = ffi::Py_NewRef((*this.cast::<Ready>()).value) };
    PySendResult::PYGEN_RETURN
}

/// Makes the type.
fn class(py: Python<'_>) -> PyResult<Py<PyType>> {
    let slot = |slot: c_int, pfunc: *mut c_void| PyType_Slot { slot, pfunc };
    let mut slots = [
        slot(ffi::Py_tp_dealloc, dealloc as *mut c_void),
        slot(ffi::Py_tp_traverse, traverse as *mut c_void),
        slot(ffi::Py_tp_iter, own_iterator as *mut c_void),
        slot(ffi::Py_tp_iternext, next as *mut c_void),
        slot(ffi::Py_am_await, own_iterator as *mut c_void),
        slot(ffi::Py_am_send, send as *mut c_void),
        slot(0, ptr::null_mut()),
    ];
    let flags = ffi::Py_TPFLAGS_DEFAULT | ffi::Py_TPFLAGS_HAVE_GC | ffi::Py_TPFLAGS_DISALLOW_INSTANTIATION;
    let mut spec = ffi::PyType_Spec {
        name: c"farjump.Ready".as_ptr(),
        basicsize: size_of::<Ready>() as c_int,
        itemsize: 0,
        flags: flags as _,
        slots: slots.as_mut_ptr(),
    };
    // SAFETY: the specification is complete, ends with an empty slot, and is copied; the name is static. Each function
    // has the type that its slot requires. The result is a new reference to a type, or null with an exception.
    unsafe {
        Bound::from_owned_ptr_or_err(py, ffi::PyType_FromSpec(&raw mut spec))
            .map(|class| class.cast_into_unchecked().unbind())
    }
}

/// Returns an awaitable with this value.
pub(crate) fn ready<'py>(py: Python<'py>, value: Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    static CLASS: PyOnceLock<Py<PyType>> = PyOnceLock::new();
    let class = CLASS.get_or_try_init(py, || class(py))?;
    // SAFETY: `class` makes objects of the layout of `Ready`, zeroed, of which this one is not shared yet. It owns the
    // reference to the value from here on.
    unsafe {
        let made = ffi::PyType_GenericAlloc(class.as_ptr().cast(), 0);
        let made = Bound::from_owned_ptr_or_err(py, made)?;
        (*made.as_ptr().cast::<Ready>()).value = value.into_ptr();
        Ok(made)
    }
}
