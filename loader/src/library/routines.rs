//! The routines of a library: their types and their lookup.

use std::any::Any;
use std::ffi::{c_int, c_void};
use std::fmt;
use std::path::Path;
use std::ptr::NonNull;
use std::sync::Arc;

use crate::error::Error;
use crate::shared_library::Loaded;

/// `NAME_main(payload, payload_size, target_args)`.
pub type MainRoutine = unsafe extern "C" fn(*mut c_void, usize, *mut c_void);
pub(super) type MaxSizeRoutine = unsafe extern "C" fn(*mut c_void, usize) -> usize;
type InitRoutine = unsafe extern "C" fn(*mut c_void, usize, *mut c_void, usize) -> c_int;
type ShrinkRoutine = unsafe extern "C" fn(*mut c_void, *mut usize, *mut c_void, usize) -> c_int;
type ArgsFirstRoutine = unsafe extern "C" fn(*mut c_void, usize, *mut c_void, *mut usize) -> c_int;

/// The owner of the memory that contains routines.
pub(super) type Owner = Arc<dyn Any + Send + Sync>;

/// Payload routines in this process that belong to no library: a program made or linked them.
pub struct PayloadRoutines {
    pub(super) max_size: MaxSizeRoutine,
    pub(super) init: Init,
    pub(super) owner: Owner,
}

impl PayloadRoutines {
    /// Takes the routines of the ifunc `name`. `find` returns the address of a routine by its whole name, such as
    /// `NAME_payload_init`. The names that exist decide the order of arguments. `owner` keeps the routines in memory,
    /// and is dropped with the last handle on their library.
    ///
    /// # Errors
    /// [`Error::MissingRoutine`] and [`Error::TwoInits`], with `origin` for the library's path.
    ///
    /// # Safety
    /// The conditions of [`Library::load`](super::Library::load) for payload routines. They must stay valid as long as
    /// `owner` exists.
    pub unsafe fn new(
        name: &str,
        origin: &Path,
        find: impl Fn(&str) -> Option<NonNull<c_void>>,
        owner: Arc<dyn Any + Send + Sync>,
    ) -> Result<PayloadRoutines, Error> {
        let main = format!("{name}_main");
        let find = |routine: &str| if routine == main { Some(NonNull::dangling()) } else { find(routine) };
        // SAFETY: the caller ensures it (see Safety). The address that stands for the function is not returned.
        let (max_size, init) = unsafe { find_routines(name, origin, find) }?;
        Ok(PayloadRoutines { max_size, init, owner })
    }
}

impl fmt::Debug for PayloadRoutines {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("PayloadRoutines").finish_non_exhaustive()
    }
}

#[derive(Clone, Copy)]
pub(super) enum Init {
    Exact(InitRoutine),
    Shrink(ShrinkRoutine),
    /// Three-Chains' order of arguments; the routine may shrink the payload.
    ArgsFirst(ArgsFirstRoutine),
    /// The author's routines, which are not loaded.
    Missing,
}

/// Replaces the author's routine, which is not loaded: returns a length that no buffer has.
pub(super) extern "C" fn no_routine(_: *mut c_void, _: usize) -> usize {
    usize::MAX
}

/// The suffixes of a library's routines.
pub(super) struct Routines {
    max_size: &'static str,
    init: &'static str,
}

/// The routines of the library of `name`; `has` returns whether a symbol exists.
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

/// Finds the payload routines of `name` by `find`, which returns the address of a symbol. Errors name `path`.
///
/// # Safety
/// The routines must have the types of `farjump_ifunc.h`, or beside `payload_bound` those of Three-Chains.
pub(super) unsafe fn find_routines(
    name: &str,
    path: &Path,
    find: impl Fn(&str) -> Option<NonNull<c_void>>,
) -> Result<(MaxSizeRoutine, Init), Error> {
    let routines = check_routines(name, path, |routine| find(routine).is_some())?;
    let need = |suffix: &str| {
        let routine = format!("{name}{suffix}");
        find(&routine).ok_or_else(|| Error::MissingRoutine { path: path.to_path_buf(), routine })
    };
    let (max_size, init) = (need(routines.max_size)?, need(routines.init)?);
    // SAFETY: the caller ensures that functions of these names have these types (see Safety).
    let max_size = unsafe { std::mem::transmute::<NonNull<c_void>, MaxSizeRoutine>(max_size) };
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
    Ok((max_size, init))
}

/// The function of a loaded library.
///
/// # Safety
/// It must have the type of `farjump_ifunc.h`.
pub(super) unsafe fn find_main(loaded: &Loaded, name: &str) -> Option<MainRoutine> {
    let main = loaded.symbol(&format!("{name}_main"))?;
    // SAFETY: the caller ensures that the function of this name has this type (see Safety).
    Some(unsafe { std::mem::transmute::<NonNull<c_void>, MainRoutine>(main) })
}
