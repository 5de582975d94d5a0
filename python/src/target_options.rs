//! Choices for a target, as Python gives them.

use std::collections::BTreeMap;
use std::path::PathBuf;

use farjump::{CodeId, Data, FamilyId, Key, Mode, Rights, TargetBuilder};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyString;

use crate::arguments::{Arguments, Items};
use crate::errors::{exception, limit};
use crate::library::Library;

/// The choices, each of which has a usable default.
pub(crate) struct Choices {
    pub(crate) transport: Option<String>,
    pub(crate) exports: Items<PathBuf>,
    pub(crate) wanted_libraries: Items<String>,
    pub(crate) process_symbols: bool,
    pub(crate) local: Items<Py<Library>>,
    pub(crate) modes: Option<Items<String>>,
    pub(crate) data: Option<Py<PyAny>>,
    pub(crate) rights: Option<Items<String>>,
    pub(crate) allow_code: Option<Items<String>>,
    pub(crate) allow_making: bool,
    pub(crate) destinations: Option<BTreeMap<String, String>>,
    pub(crate) key_file: Option<PathBuf>,
    pub(crate) peer_key_file: Option<PathBuf>,
    pub(crate) peer_timeout: Option<f64>,
    pub(crate) clear: bool,
    pub(crate) mailbox_size: Option<usize>,
    pub(crate) arena_size: Option<usize>,
    pub(crate) store_capacity: Option<(usize, usize)>,
    pub(crate) max_sources: Option<usize>,
    pub(crate) max_payload: Option<usize>,
    pub(crate) max_image: Option<usize>,
    pub(crate) max_frame: Option<usize>,
    pub(crate) max_source_memory: Option<usize>,
    pub(crate) handshake_timeout: Option<f64>,
}

type Builder = TargetBuilder<'static>;

/// Makes a choice, if it was given.
fn set<T>(builder: Builder, choice: Option<T>, make: impl FnOnce(Builder, T) -> Builder) -> Builder {
    match choice {
        Some(choice) => make(builder, choice),
        None => builder,
    }
}

impl Choices {
    /// Starts the builder of a target with these choices.
    ///
    /// # Errors
    /// An invalid value; a file that cannot be read.
    pub(crate) fn builder(self, py: Python<'_>, address: &str) -> PyResult<Builder> {
        let builder = farjump::Target::listen(address).args_owned(data(py, self.data.as_ref())?);
        let builder = self.exports.0.into_iter().fold(builder, |builder, path| {
            // SAFETY: as for `ctypes.CDLL`, the program is responsible for the libraries that it names.
            unsafe { builder.export_library(path) }
        });
        let builder = self.wanted_libraries.0.into_iter().fold(builder, |builder, soname| {
            // SAFETY: as above: the program is responsible for the libraries that it names.
            unsafe { builder.wanted_library(soname) }
        });
        let builder =
            self.local.0.iter().fold(builder, |builder, library| builder.local(&library.get().library));
        let builder =
            builder.process_symbols(self.process_symbols).allow_making(self.allow_making).clear(self.clear);
        let builder = set(builder, self.transport, |builder, name| builder.transport(&name));
        let modes = self.modes.map(|modes| modes.0.iter().map(|mode| mode.parse()).collect());
        let modes: Option<Result<Vec<Mode>, String>> = modes;
        let modes = modes.transpose().map_err(PyValueError::new_err)?;
        let builder = set(builder, modes, |builder, modes| builder.modes(&modes));
        let builder = set(builder, self.rights.map(rights).transpose()?, TargetBuilder::rights);
        let ids = self.allow_code.map(|ids| ids.0.iter().map(|id| code_id(id)).collect());
        let ids: Option<PyResult<Vec<CodeId>>> = ids;
        let builder = set(builder, ids.transpose()?, |builder, ids| {
            let families: Vec<_> = ids.iter().map(|id| FamilyId(id.0)).collect();
            builder.allow_code(ids).allow_family(families)
        });
        let builder = self
            .destinations
            .into_iter()
            .flatten()
            .fold(builder, |builder, (name, address)| builder.destination(&name, &address));
        let builder = set(builder, self.key_file, TargetBuilder::key_file);
        let key = self.peer_key_file.map(|path| Key::read(&path)).transpose();
        let builder =
            set(builder, key.map_err(|error| exception(py, &error.into()))?, TargetBuilder::peer_key);
        let builder = set(builder, limit(self.peer_timeout, "peer_timeout")?, TargetBuilder::peer_timeout);
        let builder = set(
            builder,
            limit(self.handshake_timeout, "handshake_timeout")?,
            TargetBuilder::handshake_timeout,
        );
        let builder = set(builder, self.mailbox_size, TargetBuilder::mailbox_size);
        let builder = set(builder, self.arena_size, TargetBuilder::arena_size);
        let builder = set(builder, self.store_capacity, |builder, (bytes, images)| {
            builder.store_capacity(bytes, images)
        });
        let builder = set(builder, self.max_sources, TargetBuilder::max_sources);
        let builder = set(builder, self.max_payload, TargetBuilder::max_payload);
        let builder = set(builder, self.max_image, TargetBuilder::max_image);
        let builder = set(builder, self.max_frame, TargetBuilder::max_frame);
        Ok(set(builder, self.max_source_memory, TargetBuilder::max_source_memory))
    }
}

/// Returns the data that functions get: bytes, or the file at a path.
fn data(py: Python<'_>, given: Option<&Py<PyAny>>) -> PyResult<Data> {
    let Some(given) = given.map(|given| given.bind(py)) else { return Ok(Data::empty()) };
    let is_path = given.is_instance_of::<PyString>() || given.hasattr("__fspath__")?;
    if is_path {
        return Data::open(given.extract::<PathBuf>()?).map_err(|error| exception(py, &error));
    }
    Ok(Data::from_bytes(Arguments::named(given, "data")?.bytes().to_vec()))
}

/// Returns the rights with these names.
fn rights(names: Items<String>) -> PyResult<Rights> {
    names.0.into_iter().try_fold(Rights::empty(), |rights, name| {
        let right: Rights = name.parse().map_err(|error: String| PyValueError::new_err(error))?;
        Ok(rights | right)
    })
}

/// Parses a code id or family id in the form that [`Library`] and `farjump inspect` show.
fn code_id(text: &str) -> PyResult<CodeId> {
    let is_id = text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    let number = is_id.then(|| u128::from_str_radix(text, 16).ok()).flatten();
    let number = number.ok_or_else(|| {
        PyValueError::new_err(format!(
            "allow_code: {text:?} is no code id: give the 32 hexadecimal digits of Library.identity or `farjump inspect`"
        ))
    })?;
    Ok(CodeId(number.to_be_bytes()))
}
