//! Data for injected functions: a file, or bytes in memory.

use std::ffi::{c_char, c_void};
use std::sync::Arc;

use farjump::Data;

use crate::api::catch::{bytes, give, guarded, object, path, take, variable};
use crate::api::config::change;
use crate::api::status::farjump_status_t::{self, *};
use crate::api::target::config::{Args, farjump_target_config_t};

/// Data that injected functions see as a `struct farjump_data` of farjump_ifunc.h. Any number of threads and
/// targets may use it at once.
#[derive(Debug)]
pub struct farjump_data_t {
    data: Arc<Data>,
}

/// Maps the file at `path`, read-only. farjump_data_free() ends it.
///
/// A process that writes to the file may change the data that functions see. A process that shortens it ends
/// the target when the missing bytes are read; the option `crash-report` then names the file.
/// To change the data, write a new file, rename it to this path, and make a new target.
///
/// FARJUMP_ERROR_SYSTEM for a file that does not exist, cannot be read, or is not regular.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_data_open(
    path: *const c_char,
    data: *mut *mut farjump_data_t,
) -> farjump_status_t {
    guarded(|| {
        // SAFETY: the header requires a variable for a pointer, and for a text.
        let (opened, path) = unsafe { (variable(data, "data")?, self::path(path, "path")?) };
        *opened = given(Data::open(path)?);
        Ok(FARJUMP_OK)
    })
}

/// Copies `size` bytes that lie in memory. The path that functions see is empty. farjump_data_free() ends it.
///
/// To lend memory without a copy, fill in a `struct farjump_data` of farjump_ifunc.h, and pass its address to
/// farjump_target_config_set_args().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_data_from_bytes(
    bytes: *const c_void,
    size: usize,
    data: *mut *mut farjump_data_t,
) -> farjump_status_t {
    guarded(|| {
        // SAFETY: the header requires a variable for a pointer, and `size` bytes.
        let (made, bytes) = unsafe { (variable(data, "data")?, self::bytes(bytes, size, "bytes")?) };
        *made = given(Data::from_bytes(bytes.to_vec()));
        Ok(FARJUMP_OK)
    })
}

fn given(data: Data) -> *mut farjump_data_t {
    give(farjump_data_t { data: Arc::new(data) })
}

/// Frees it, and sets the variable to NULL. Does nothing if it is NULL already. Configurations and targets
/// that use the data keep it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_data_free(data: *mut *mut farjump_data_t) -> farjump_status_t {
    guarded(|| {
        // SAFETY: the header requires a variable with one of `farjump_data_open`, which nothing else uses.
        drop(unsafe { take(data, "data", |_| Ok(()))? });
        Ok(FARJUMP_OK)
    })
}

/// Makes `data` the third argument of every injected function, a `struct farjump_data *`, in place of
/// farjump_target_config_set_args().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_target_config_set_data(
    config: *mut farjump_target_config_t,
    data: *const farjump_data_t,
) -> farjump_status_t {
    change!(config, config.args = Some(Args::Data(Arc::clone(&object(data, "data")?.data))))
}
