//! Groups: calls that wake a sleeping target once.

use std::ffi::c_void;
use std::mem::ManuallyDrop;

use crate::api::catch::{bytes, guarded, object, place};
use crate::api::library::farjump_library_t;
use crate::api::link::pending::farjump_pending_t;
use crate::api::link::{farjump_link_t, usable};
use crate::api::status::farjump_status_t::{self, *};

/// Injects as farjump_link_inject() does, but wakes no sleeping target: farjump_group_finish() does that once
/// for all calls before. Without a group each call would wake the target, which would run that call and sleep
/// again. A target that is awake runs the calls as they come. Over transports that wake the target with each
/// frame, a group changes nothing. Finish after some hundreds of calls, so that the target works while you
/// send more.
///
/// The link also wakes the target before a wait for credit, after an error of this function, and before a
/// wait or poll for an outcome, so every call runs.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_group_inject(
    link: *mut farjump_link_t,
    library: *const farjump_library_t,
    args: *const c_void,
    args_size: usize,
    pending: *mut farjump_pending_t,
) -> farjump_status_t {
    guarded(|| {
        // SAFETY: the header requires a place for a number.
        let number = unsafe { place(pending, "pending")? }.write(0);
        // SAFETY: the header requires a link that only this thread uses, an open library, and so many bytes.
        let (link, library, args) =
            unsafe { (usable(link)?, object(library, "library")?, bytes(args, args_size, "args")?) };
        // farjump_group_finish() ends the group.
        let mut group = ManuallyDrop::new(link.rust().group());
        *number = link.number(group.inject(library.rust(), args)?.into_raw());
        Ok(FARJUMP_OK)
    })
}

/// Injects as farjump_group_inject() does, but returns FARJUMP_ERROR_FULL instead of waiting for credit. It
/// then wakes the target.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_group_try_inject(
    link: *mut farjump_link_t,
    library: *const farjump_library_t,
    args: *const c_void,
    args_size: usize,
    pending: *mut farjump_pending_t,
) -> farjump_status_t {
    guarded(|| {
        // SAFETY: as in `farjump_group_inject`.
        let number = unsafe { place(pending, "pending")? }.write(0);
        // SAFETY: as in `farjump_group_inject`.
        let (link, library, args) =
            unsafe { (usable(link)?, object(library, "library")?, bytes(args, args_size, "args")?) };
        let mut group = ManuallyDrop::new(link.rust().group());
        *number = link.number(group.try_inject(library.rust(), args)?.into_raw());
        Ok(FARJUMP_OK)
    })
}

/// Wakes the target, if it sleeps, for the calls of farjump_group_inject().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_group_finish(link: *mut farjump_link_t) -> farjump_status_t {
    guarded(|| {
        // SAFETY: the header requires a link that only this thread uses.
        unsafe { usable(link)? }.rust().group().finish()?;
        Ok(FARJUMP_OK)
    })
}
