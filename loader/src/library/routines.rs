//! The routines of a library: their types, and finding them.

use std::ffi::{c_int, c_void};
use std::path::Path;
use std::ptr::NonNull;

use crate::error::Error;
use crate::shared_library::Loaded;

/// `NAME_main(payload, payload_size, target_args)`.
pub type MainRoutine = unsafe extern "C" fn(*mut c_void, usize, *mut c_void);
pub(super) type MaxSizeRoutine = unsafe extern "C" fn(*mut c_void, usize) -> usize;
type InitRoutine = unsafe extern "C" fn(*mut c_void, usize, *mut c_void, usize) -> c_int;
type ShrinkRoutine = unsafe extern "C" fn(*mut c_void, *mut usize, *mut c_void, usize) -> c_int;
type ArgsFirstRoutine = unsafe extern "C" fn(*mut c_void, usize, *mut c_void, *mut usize) -> c_int;

#[derive(Clone, Copy)]
pub(super) enum Init {
    Exact(InitRoutine),
    Shrink(ShrinkRoutine),
    /// Three-Chains' order of arguments; it may shrink.
    ArgsFirst(ArgsFirstRoutine),
    /// Routines of the author's, which are not loaded.
    Missing,
}

/// Stands in for the author's routine, which is not loaded: no length is enough.
pub(super) extern "C" fn no_routine(_: *mut c_void, _: usize) -> usize {
    usize::MAX
}

/// The suffixes of a library's routines.
pub(super) struct Routines {
    max_size: &'static str,
    init: &'static str,
}

/// The routines of the library of `name`; `has` says whether a symbol exists.
pub(super) fn check_routines(name: &str, path: &Path, has: impl Fn(&str) -> bool) -> Result<Routines, Error> {
    let missing = |routine: &str| Error::MissingRoutine {
        path: path.to_path_buf(),
        routine: format!("{name}_{routine}"),
    };
    let has = |suffix: &str| has(&format!("{name}{suffix}"));
    if !has("_main") {
        return Err(missing("main"));
    }
    // Three-Chains renamed one routine and swapped the arguments of the other: the name decides the order.
    let max_size = match (has("_payload_get_max_size"), has("_payload_bound")) {
        (true, _) => "_payload_get_max_size",
        (false, true) => "_payload_bound",
        (false, false) => return Err(missing("payload_get_max_size")),
    };
    let init = match (has("_payload_init"), has("_payload_init_shrink")) {
        (true, false) => "_payload_init",
        (false, true) => "_payload_init_shrink",
        (false, false) => return Err(missing(&format!("payload_init` or `{name}_payload_init_shrink"))),
        (true, true) => return Err(Error::TwoInits { path: path.to_path_buf(), name: name.to_owned() }),
    };
    Ok(Routines { max_size, init })
}

/// Finds the routines of the library.
///
/// # Safety
/// The library's routines must have the types of `farjump_ifunc.h`, or beside `payload_bound` those of
/// Three-Chains.
pub(super) unsafe fn find_routines(
    loaded: &Loaded,
    name: &str,
    path: &Path,
) -> Result<(MaxSizeRoutine, Init, MainRoutine), Error> {
    let routines = check_routines(name, path, |routine| loaded.symbol(routine).is_some())?;
    let missing = |routine: String| Error::MissingRoutine { path: path.to_path_buf(), routine };
    let need = |suffix: &str| {
        let routine = format!("{name}{suffix}");
        loaded.symbol(&routine).ok_or_else(|| missing(routine))
    };
    let (main, max_size, init) = (need("_main")?, need(routines.max_size)?, need(routines.init)?);
    // SAFETY: the caller ensures that functions of these names have these types (see Safety).
    let (main, max_size) = unsafe {
        (
            std::mem::transmute::<NonNull<c_void>, MainRoutine>(main),
            std::mem::transmute::<NonNull<c_void>, MaxSizeRoutine>(max_size),
        )
    };
    // SAFETY: the caller ensures that functions of these names have these types (see Safety); the names
    // decide which.
    let init = unsafe {
        match (routines.init, routines.max_size) {
            ("_payload_init_shrink", _) => {
                Init::Shrink(std::mem::transmute::<NonNull<c_void>, ShrinkRoutine>(init))
            }
            (_, "_payload_bound") => {
                Init::ArgsFirst(std::mem::transmute::<NonNull<c_void>, ArgsFirstRoutine>(init))
            }
            _ => Init::Exact(std::mem::transmute::<NonNull<c_void>, InitRoutine>(init)),
        }
    };
    Ok((max_size, init, main))
}
