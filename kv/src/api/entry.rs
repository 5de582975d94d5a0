//! The two functions that a server looks for in a module's file.

use std::ffi::{CStr, c_int, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;

use super::Level;
use super::context::Context;
use super::functions;
use super::strings::bytes_of;
use super::types::{API_VERSION, HANDLE_ATOMIC_SLOT_MIGRATION, OK, RawContext, RawString};

/// The module's name.
const NAME: &CStr = c"farjump";
/// The module's version, as MODULE LIST shows it: 10,000 for 1.0.0.
const VERSION: c_int = 100;

/// A module that is being loaded.
pub(crate) struct Loading<'a> {
    /// The context of `RedisModule_OnLoad`.
    pub(crate) context: Context<'a>,
    /// The arguments behind the file's name.
    pub(crate) args: Vec<Vec<u8>>,
    /// Functions that the server lacks, by name.
    pub(crate) missing: Vec<&'static str>,
}

/// Functions that the module needs even to report what is missing.
const NEEDED_TO_REPORT: [&str; 9] = [
    "IsModuleNameBusy",
    "SetModuleAttribs",
    "CreateCommand",
    "ReplyWithError",
    "StringPtrLen",
    "Log",
    "RegisterInfoFunc",
    "InfoAddSection",
    "InfoAddFieldCString",
];

/// The log's message at a second load. The server's reply to MODULE LOAD refers to the log.
const LOADED_ALREADY: &str = "the module is loaded already, and runs on with its first arguments: CONFIG SET farjump.linger and farjump.limit change \
     these two; for the others run MODULE UNLOAD farjump before MODULE LOAD. Keep one loadmodule line in the configuration";

/// Called by the server when it loads the module. Succeeds always, as a server ends that cannot load one: what keeps the
/// module from its work stands in INFO and in the answers of its commands. Exceptions are a server so old that it has
/// neither, and a module that is loaded already: nothing of the process has changed then, and what ran runs on.
///
/// # Safety
/// For servers alone, with their arguments.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn RedisModule_OnLoad(
    raw: *mut RawContext,
    args: *mut *mut RawString,
    count: c_int,
) -> c_int {
    if raw.is_null() {
        return 1;
    }
    // SAFETY: the server calls this with such a context.
    let found = unsafe { functions::find(raw) };
    let missing = found.missing();
    if missing.iter().any(|name| NEEDED_TO_REPORT.contains(name)) {
        eprintln!("farjump: this server is too old for modules: use Redis 7.0, Valkey 8.0, or a later one");
        return 1;
    }
    // SAFETY: the name is zero-terminated.
    if unsafe { found.is_module_name_busy()(NAME.as_ptr()) } != 0 {
        super::log(Level::Warning, LOADED_ALREADY);
        return 1;
    }
    // SAFETY: the context is valid, and the name zero-terminated. The server copies it.
    unsafe { found.set_module_attribs()(raw, NAME.as_ptr(), VERSION, API_VERSION) };
    // SAFETY: the context is that of OnLoad.
    unsafe { functions::set_valkey_options(raw, HANDLE_ATOMIC_SLOT_MIGRATION) };
    // SAFETY: the context is valid until this returns.
    let Some(context) = (unsafe { Context::new(raw) }) else { return 1 };
    let count = usize::try_from(count).unwrap_or(0);
    // SAFETY: the server passes `count` strings, which live until this returns.
    let args = (0..count).map(|index| unsafe { bytes_of(*args.add(index)) }.to_vec()).collect();
    match catch_unwind(AssertUnwindSafe(|| crate::load(Loading { context, args, missing }))) {
        Ok(()) | Err(_) => OK,
    }
}

/// Called by the server before it unloads the module.
///
/// # Safety
/// For servers alone, with their arguments.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn RedisModule_OnUnload(_: *mut RawContext) -> c_int {
    match catch_unwind(crate::unload) {
        Ok(true) => OK,
        Ok(false) | Err(_) => 1,
    }
}

/// Keeps this file mapped until the process ends, even when the server closes it. Handlers of signals and forks stay
/// installed, and thread-local values are dropped later.
pub(crate) fn stay_loaded() {
    let mut found = libc::Dl_info {
        dli_fname: ptr::null(),
        dli_fbase: ptr::null_mut(),
        dli_sname: ptr::null(),
        dli_saddr: ptr::null_mut(),
    };
    // SAFETY: the address is one of this file's, and the structure is the caller's. The file is loaded under this name.
    // Opened with these flags, it is not loaded again, but marked to stay.
    unsafe {
        if libc::dladdr(stay_loaded as *const c_void, &raw mut found) != 0 && !found.dli_fname.is_null() {
            libc::dlopen(found.dli_fname, libc::RTLD_NOW | libc::RTLD_NOLOAD | libc::RTLD_NODELETE);
        }
    }
}
