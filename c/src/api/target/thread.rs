//! Stopping a target, and running one on its own thread.

use std::ffi::c_int;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use farjump::{Data, Stopper, TargetThread};

use crate::api::catch::{give, guarded, object, take, variable};
use crate::api::last_error::Failure;
use crate::api::status::farjump_status_t::{self, *};
use crate::api::target::farjump_target_t;

/// An object that stops farjump_target_run(), even while that sleeps. Any number of threads may use it at
/// once, and signal handlers too.
#[derive(Debug)]
pub struct farjump_stopper_t {
    stopper: Stopper,
}

/// A target on a thread of its own.
#[derive(Debug)]
pub struct farjump_target_thread_t {
    thread: TargetThread,
    /// The data that injected functions get. It must outlive the target.
    data: Option<Arc<Data>>,
}

/// Makes a handle that stops the target. It may outlive the target, also a target that is handed to a thread.
/// farjump_stopper_free() ends it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_stopper_new(
    target: *mut farjump_target_t,
    stopper: *mut *mut farjump_stopper_t,
) -> farjump_status_t {
    guarded(|| {
        // SAFETY: the header requires a variable for a pointer.
        let made = unsafe { variable(stopper, "stopper")? };
        // SAFETY: the header requires a target that only this thread uses.
        let stopper = unsafe { object(target.cast_const(), "target")? }.usable()?.stopper();
        *made = give(farjump_stopper_t { stopper });
        Ok(FARJUMP_OK)
    })
}

/// Stops the target after its current frames, and for good: a target that was stopped does not run again.
/// Safe in a signal handler, where farjump_last_error() is not.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_stopper_stop(stopper: *const farjump_stopper_t) -> farjump_status_t {
    // Not `guarded`: noting an error allocates, which a signal handler may not. SAFETY: the header requires
    // NULL or one of `farjump_stopper_new`.
    let Some(stopper) = (unsafe { stopper.as_ref() }) else { return FARJUMP_ERROR_ARGUMENT };
    match catch_unwind(AssertUnwindSafe(|| stopper.stopper.stop())) {
        Ok(()) => FARJUMP_OK,
        Err(_) => FARJUMP_ERROR_INTERNAL,
    }
}

/// Frees the handle, and sets the variable to NULL. Does nothing if it is NULL already. This does not stop
/// the target.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_stopper_free(stopper: *mut *mut farjump_stopper_t) -> farjump_status_t {
    guarded(|| {
        // SAFETY: the header requires a variable with one of `farjump_stopper_new`, which nothing else uses.
        drop(unsafe { take(stopper, "stopper", |_| Ok(()))? });
        Ok(FARJUMP_OK)
    })
}

/// Hands the target to a thread of its own, which runs it until farjump_target_thread_stop(). The variable
/// `target` becomes NULL: the thread owns the target, and uses callbacks, exports and arguments there.
///
/// FARJUMP_ERROR_SYSTEM when the thread cannot be made; the target is then closed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_target_spawn(
    target: *mut *mut farjump_target_t,
    thread: *mut *mut farjump_target_thread_t,
) -> farjump_status_t {
    guarded(|| {
        // SAFETY: the header requires a variable for a pointer.
        let made = unsafe { variable(thread, "thread")? };
        let may = |target: &farjump_target_t| target.usable().map(drop);
        // SAFETY: the header requires a variable with a result of `farjump_target_listen`, which nothing else
        // uses.
        let target = unsafe { take(target, "target", may)? }.ok_or_else(|| Failure::null("*target"))?;
        let (target, data) = target.into_rust();
        *made = give(farjump_target_thread_t { thread: target.spawn()?, data });
        Ok(FARJUMP_OK)
    })
}

/// Stops the target, waits for its thread, and sets the variable to NULL. Does nothing if it is NULL already;
/// there is no target then. `target` receives the target, with its statistics and without links. NULL for
/// `target` closes it. From the target's own thread the call fails with FARJUMP_ERROR_BUSY, and the thread
/// continues.
///
/// Fails with the error that ended the target before it was stopped; it is then closed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_target_thread_stop(
    thread: *mut *mut farjump_target_thread_t,
    target: *mut *mut farjump_target_t,
) -> farjump_status_t {
    guarded(|| {
        let back = if target.is_null() {
            None
        } else {
            // SAFETY: the header requires NULL or a variable for a pointer.
            Some(unsafe { variable(target, "target")? })
        };
        let may = |thread: &farjump_target_thread_t| match thread.thread.is_current() {
            true => Err(Failure::new(
                FARJUMP_ERROR_BUSY,
                "a target's own thread cannot wait for its own end: stop it by a farjump_stopper_t",
            )),
            false => Ok(()),
        };
        // SAFETY: the header requires a variable with a result of `farjump_target_spawn`, which nothing else
        // uses.
        let Some(thread) = (unsafe { take(thread, "thread", may)? }) else { return Ok(FARJUMP_OK) };
        let farjump_target_thread_t { thread, data } = *thread;
        // Made even if it is only dropped: the target then ends before its data.
        let target = farjump_target_t::new(thread.stop()?, data);
        if let Some(back) = back {
            *back = give(target);
        }
        Ok(FARJUMP_OK)
    })
}

/// Removes the socket files of this process's targets, and ends the process at once with the exit status
/// `code`. It does not return.
///
/// It waits for no function that runs, runs no destructor and no exit handler, and links end unannounced.
/// This is for a thread that waits for signals or a deadline, where closing the target could take too long.
/// Call farjump_stopper_stop() first, and this function if the target does not end in time. Other threads
/// continue meanwhile; none of them makes a further socket file. A signal handler must not call it, as it
/// takes a lock.
#[unsafe(no_mangle)]
pub extern "C" fn farjump_end_process(code: c_int) -> ! {
    farjump::end_process(code)
}
