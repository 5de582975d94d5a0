//! Options as keyword arguments. The tables of `farjump::config` have their names, types and errors.

use std::ffi::OsString;
use std::time::Duration;

use farjump::config::{Config, Given, Interfaces, Origin, Shape, shown_duration};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyInt, PyMapping, PyString};

use crate::errors::{class_name, config_exception};

/// Limits that `None` removes. Any other option keeps its default with `None`.
const REMOVABLE: [&str; 3] = ["connect-timeout", "send-timeout", "timeout"];

/// A value as the table reads it.
enum Value {
    Text(String),
    Items(Vec<OsString>),
}

/// Returns a configuration with these keyword arguments.
///
/// # Errors
/// `TypeError` for an unknown name, or a value of a wrong type; `ValueError` for any other fault.
pub(crate) fn config<C: Config>(options: Option<&Bound<'_, PyDict>>) -> PyResult<C> {
    let mut config = C::default();
    set_all(&mut config, options)?;
    check(&config)?;
    Ok(config)
}

/// Sets options by keyword arguments. Does not check how they fit each other ([`check`]).
///
/// # Errors
/// As [`config`].
pub(crate) fn set_all<C: Config>(config: &mut C, options: Option<&Bound<'_, PyDict>>) -> PyResult<()> {
    for (name, value) in options.into_iter().flatten() {
        set(config, &name.extract::<String>()?, &value)?;
    }
    Ok(())
}

/// Sets an option. `None` leaves it as it is, or removes a limit.
///
/// # Errors
/// As [`config`].
pub(crate) fn set<C: Config>(config: &mut C, name: &str, value: &Bound<'_, PyAny>) -> PyResult<()> {
    let value = match C::row(name, Interfaces::PYTHON) {
        Ok(row) if value.is_none() && REMOVABLE.contains(&row.info.name) => {
            Value::Text(shown_duration(Duration::MAX))
        }
        Ok(_) if value.is_none() => return Ok(()),
        Ok(row) => written(value, row.info.shape)?.ok_or_else(|| wrong_type(value, name, row.info.shape))?,
        // Setting it fails, whatever the value is.
        Err(_) => Value::Text(String::new()),
    };
    let given = match &value {
        Value::Text(text) => Given::Text(text),
        Value::Items(items) => Given::Items(items),
    };
    let set = config.set_from(name, &given, Origin::Keyword(name.to_owned()), Interfaces::PYTHON);
    set.map_err(|error| config_exception(&error))
}

/// Checks that the options of a configuration fit each other.
///
/// # Errors
/// `ValueError`.
pub(crate) fn check<C: Config>(config: &C) -> PyResult<()> {
    let checked = config.check(|name| Origin::Keyword(name.replace('-', "_")));
    checked.map_err(|error| config_exception(&error))
}

/// Returns the options of a configuration as text, by the names of their keyword arguments.
pub(crate) fn shown<'py, C: Config>(py: Python<'py>, config: &C) -> PyResult<Bound<'py, PyDict>> {
    let options = PyDict::new(py);
    for row in C::rows().iter().filter(|row| row.info.shown.contains(Interfaces::PYTHON)) {
        let value = config.get(row.info.name).map_err(|error| config_exception(&error))?;
        options.set_item(row.info.field(), value)?;
    }
    Ok(options)
}

/// Returns whether a value is a path, or text, which is one too.
pub(crate) fn is_path(value: &Bound<'_, PyAny>) -> PyResult<bool> {
    Ok(value.is_instance_of::<PyString>() || value.hasattr("__fspath__")?)
}

/// Returns a value of this shape as the table reads it. `None` if the value is of another type.
///
/// # Errors
/// The exception of the value's own code.
fn written(value: &Bound<'_, PyAny>, shape: Shape) -> PyResult<Option<Value>> {
    match value.cast::<PyString>() {
        // A path may have any bytes, which Python keeps as surrogates.
        Ok(path) if shape == Shape::Path => return Ok(Some(Value::Items(vec![path.extract()?]))),
        Ok(text) => return Ok(Some(Value::Text(text.to_cow()?.into_owned()))),
        Err(_) => {}
    }
    // To Python a bool is a number as well.
    let is_bool = value.is_instance_of::<PyBool>();
    let text = match shape {
        Shape::Bytes | Shape::Count if !is_bool => whole(value)?,
        Shape::Duration if !is_bool => or_none(value, value.extract::<f64>())?.map(seconds),
        Shape::Flag => {
            or_none(value, value.extract::<bool>())?.map(|flag| if flag { "yes" } else { "no" }.to_owned())
        }
        Shape::Path => return Ok(path(value)?.map(|path| Value::Items(vec![path]))),
        Shape::List => return Ok(items(value)?.map(Value::Items)),
        Shape::Pairs => return Ok(pairs(value)?.map(Value::Items)),
        _ => None,
    };
    Ok(text.map(Value::Text))
}

/// Returns the digits of a whole number.
fn whole(value: &Bound<'_, PyAny>) -> PyResult<Option<String>> {
    let py = value.py();
    let Some(number) = or_none(value, py.import("operator")?.call_method1("index", (value,)))? else {
        return Ok(None);
    };
    // A derived class may show its numbers in another way.
    py.get_type::<PyInt>().call_method1("__repr__", (number,))?.extract().map(Some)
}

/// Returns the text of a time in seconds.
fn seconds(time: f64) -> String {
    if time == f64::INFINITY {
        return shown_duration(Duration::MAX);
    }
    // The table refuses the text of a number that is no time.
    Duration::try_from_secs_f64(time).map_or_else(|_| format!("{time:?}s"), shown_duration)
}

/// Returns the path that a value is. `None` if it is none, or has `bytes`.
fn path(value: &Bound<'_, PyAny>) -> PyResult<Option<OsString>> {
    let Some(path) = or_none(value, value.py().import("os")?.call_method1("fspath", (value,)))? else {
        return Ok(None);
    };
    path.cast::<PyString>().ok().map(|path| path.extract()).transpose()
}

/// Returns the items of an iterable of text or paths.
fn items(value: &Bound<'_, PyAny>) -> PyResult<Option<Vec<OsString>>> {
    let Some(iterator) = or_none(value, value.try_iter())? else { return Ok(None) };
    iterator.map(|item| path(&item?)).collect()
}

/// Returns the pairs of a mapping from text to text.
fn pairs(value: &Bound<'_, PyAny>) -> PyResult<Option<Vec<OsString>>> {
    let Ok(mapping) = value.cast::<PyMapping>() else { return Ok(None) };
    let pair = |pair: Bound<'_, PyAny>| {
        let pair = or_none(value, pair.extract::<(String, String)>())?;
        Ok(pair.map(|(name, value)| format!("{name}={value}").into()))
    };
    mapping.items()?.iter().map(pair).collect()
}

/// Returns `None` in place of a `TypeError`.
fn or_none<T>(value: &Bound<'_, PyAny>, result: PyResult<T>) -> PyResult<Option<T>> {
    match result {
        Err(error) if error.is_instance_of::<PyTypeError>(value.py()) => Ok(None),
        result => result.map(Some),
    }
}

/// Returns the error for a value of a wrong type.
fn wrong_type(value: &Bound<'_, PyAny>, name: &str, shape: Shape) -> PyErr {
    let expected = match shape {
        Shape::Bytes | Shape::Count => "an int or a str",
        Shape::Duration => "seconds or a str",
        Shape::Flag => "a bool or a str",
        Shape::Path => "a str or a path",
        Shape::List => "an iterable of str or paths, or a str with commas",
        Shape::Pairs => "a mapping from str to str, or a str with commas",
        _ => "a str",
    };
    PyTypeError::new_err(format!("{name} is of type {}: give {expected}", class_name(value)))
}
