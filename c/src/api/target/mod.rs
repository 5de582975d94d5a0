//! Targets: processes, or threads, that injected functions run in.

pub mod admin;
pub mod call;
pub mod config;
pub mod data;
pub mod exports;
pub mod thread;

use std::cell::{RefCell, RefMut};
use std::ffi::{CString, c_char, c_int};
use std::os::fd::AsRawFd;
use std::sync::Arc;

use farjump::{CodeId, Data, RefusalCause, Stats, Target};

use crate::api::c_text::c_text;
use crate::api::catch::{duration, fill, give, guarded, object, place, take, text, value, variable};
use crate::api::config::show;
use crate::api::introspection::{each_image, farjump_image_fn, farjump_image_t};
use crate::api::last_error::Failure;
use crate::api::library::{farjump_code_id_t, farjump_library_t};
use crate::api::shared::cause_of;
use crate::api::status::farjump_status_t::{self, *};
use crate::api::target::config::farjump_target_config_t;

/// A process, or a thread of one, that injected functions run in. It listens at an address, and does nothing
/// by itself. Call farjump_target_poll() in a loop of your own, or farjump_target_run(), or hand it to a
/// thread with farjump_target_spawn(). One thread uses it at a time; it may move between threads.
#[derive(Debug)]
pub struct farjump_target_t {
    target: RefCell<Target<'static>>,
    address: CString,
    /// The value of an option that C has read last.
    shown: RefCell<CString>,
    /// The data that injected functions get. Dropped after the target.
    data: Option<Arc<Data>>,
}

impl farjump_target_t {
    /// Wraps a target for C. `data` is the data that the target was built with.
    pub(crate) fn new(target: Target<'static>, data: Option<Arc<Data>>) -> farjump_target_t {
        let address = c_text(&target.address());
        farjump_target_t { target: RefCell::new(target), address, shown: RefCell::default(), data }
    }

    /// Returns the target, and the data that must outlive it.
    pub(crate) fn into_rust(self) -> (Target<'static>, Option<Arc<Data>>) {
        (self.target.into_inner(), self.data)
    }

    /// Returns the target, if no call on it is under way.
    pub(crate) fn usable(&self) -> Result<RefMut<'_, Target<'static>>, Failure> {
        self.target.try_borrow_mut().map_err(|_| busy())
    }
}

#[cold]
fn busy() -> Failure {
    let text = "the target is in use by the call that this one came from: an injected function and a callback cannot use the \
                target that runs them";
    Failure::new(FARJUMP_ERROR_BUSY, text)
}

/// Returns the target behind a pointer, if it can be used now.
///
/// # Safety
/// Unless it is NULL, `target` must come from `farjump_target_listen`, and only this thread may use it, for
/// `'a`.
#[inline(always)]
pub(crate) unsafe fn usable<'a>(
    target: *mut farjump_target_t,
) -> Result<RefMut<'a, Target<'static>>, Failure> {
    // SAFETY: this function's caller guarantees it. A call on the same target that runs this one shares it.
    unsafe { object(target.cast_const(), "target")? }.usable()
}

/// Statistics of a target since it was made. It may grow at its end.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct farjump_target_stats_t {
    /// Calls made.
    pub calls: u64,
    /// Of those, calls that were forwarded to a destination.
    pub forwarded: u64,
    /// Frames taken: calls, refused or not, each call of a batch counted; and flush requests.
    pub frames: u64,
    /// Bytes that these frames took in their mailboxes.
    pub bytes: u64,
    /// Calls refused, whatever the cause: farjump_target_refused() counts them by cause.
    pub refused: u64,
    /// Images placed.
    pub images_linked: u64,
    /// Time spent placing images, in nanoseconds.
    pub link_ns: u64,
    /// Sources that are connected now.
    pub sources: u64,
    /// Links made.
    pub links: u64,
    /// Links that ended.
    pub links_ended: u64,
    /// Processes rejected because the target had its maximum of sources.
    pub sources_refused: u64,
    /// Images stored now.
    pub store_images: u64,
    /// Their length as they travelled, together, in bytes.
    pub store_bytes: u64,
    /// Images dropped to make space for others.
    pub store_evictions: u64,
    /// Capacity of the store in images; UINT64_MAX without a limit.
    pub store_capacity_images: u64,
    /// Capacity of the store in bytes of images; UINT64_MAX without a limit.
    pub store_capacity_bytes: u64,
    /// Capacity for placed code that is in use, in bytes.
    pub room_used: u64,
    /// Capacity for placed code, in bytes.
    pub room: u64,
}

impl farjump_target_stats_t {
    fn of(stats: &Stats, sources: usize) -> farjump_target_stats_t {
        farjump_target_stats_t {
            calls: stats.calls,
            forwarded: stats.forwarded,
            frames: stats.frames,
            bytes: stats.bytes,
            refused: stats.refusals(),
            images_linked: stats.images_linked,
            link_ns: u64::try_from(stats.link_time.as_nanos()).unwrap_or(u64::MAX),
            sources: sources as u64,
            links: stats.links,
            links_ended: stats.links_ended,
            sources_refused: stats.sources_refused,
            store_images: stats.store.images as u64,
            store_bytes: stats.store.bytes as u64,
            store_evictions: stats.store.evictions,
            store_capacity_images: stats.store.capacity_images as u64,
            store_capacity_bytes: stats.store.capacity_bytes as u64,
            room_used: stats.store.arena_used as u64,
            room: stats.store.arena_capacity as u64,
        }
    }
}

/// Makes a target that listens at `address`: `unix:PATH`, `unix:@NAME`, or `tcp:HOST:PORT`. `config` may be
/// NULL for the defaults: then injected code can call only `memcpy` and its kin, and farjump_reply() and its
/// kin. farjump_target_close() ends it.
///
/// FARJUMP_ERROR_CONNECT when the address is taken or malformed, or no transport is usable. Also for a key
/// file that is needed and holds no key, or that other users may read or write. FARJUMP_ERROR_ARGUMENT for
/// options that contradict or lack each other, that let nothing in, or for which this libfarjump was not
/// built. FARJUMP_ERROR_LIBRARY for a library that cannot be opened, or has no symbols for `debug-symbols`.
/// FARJUMP_ERROR_SYSTEM where memory cannot be made executable, or the compiler of bitcode does not start.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_target_listen(
    address: *const c_char,
    config: *const farjump_target_config_t,
    target: *mut *mut farjump_target_t,
) -> farjump_status_t {
    guarded(|| {
        // SAFETY: the header requires a variable for a pointer, a text, and NULL or a configuration that nothing
        // changes.
        let (made, address, config) =
            unsafe { (variable(target, "target")?, text(address, "address")?, config.as_ref()) };
        let builder = match config {
            // SAFETY: the header requires that exports and arguments stay valid until the target is closed;
            // `farjump_target_t` keeps the data.
            Some(config) => unsafe { config.builder(address) },
            None => Target::listen(address),
        };
        let data = config.and_then(farjump_target_config_t::data);
        *made = give(farjump_target_t::new(builder.build()?, data));
        Ok(FARJUMP_OK)
    })
}

/// Closes it, and sets the variable to NULL. Does nothing if it is NULL already. Its links end; its stored
/// code is lost with its statics.
///
/// FARJUMP_ERROR_BUSY from inside a call on the target: it then stays open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_target_close(target: *mut *mut farjump_target_t) -> farjump_status_t {
    guarded(|| {
        let may = |target: &farjump_target_t| target.usable().map(drop);
        // SAFETY: the header requires a variable with a result of `farjump_target_listen`, which nothing else
        // uses.
        drop(unsafe { take(target, "target", may)? });
        Ok(FARJUMP_OK)
    })
}

/// Runs arrived frames, at most a batch from each source, and writes their number to `ran`, unless that is
/// NULL. Never waits. Now and then it also looks for new sources and for those that are gone. An error of a
/// source ends its own link only.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_target_poll(
    target: *mut farjump_target_t,
    ran: *mut usize,
) -> farjump_status_t {
    guarded(|| {
        // SAFETY: the header requires a target that only this thread uses.
        let frames = unsafe { usable(target)? }.poll()?;
        if !ran.is_null() {
            // SAFETY: the header requires NULL or a place for a number.
            unsafe { ran.write(frames) };
        }
        Ok(FARJUMP_OK)
    })
}

/// Serves until farjump_stopper_stop(): polls, spins for a while when idle, then sleeps. All links have ended
/// when it returns.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_target_run(target: *mut farjump_target_t) -> farjump_status_t {
    guarded(|| {
        // SAFETY: the header requires a target that only this thread uses.
        unsafe { usable(target)? }.run()?;
        Ok(FARJUMP_OK)
    })
}

/// Sleeps until a frame, a connection or a stop comes, `timeout_ns` nanoseconds at most. Returns
/// FARJUMP_NOT_YET if nothing came. The next farjump_target_poll() handles the event.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_target_wait(
    target: *mut farjump_target_t,
    timeout_ns: u64,
) -> farjump_status_t {
    guarded(|| {
        // SAFETY: the header requires a target that only this thread uses.
        let came = unsafe { usable(target)? }.wait(duration(timeout_ns))?;
        Ok(if came { FARJUMP_OK } else { FARJUMP_NOT_YET })
    })
}

/// Prepares to sleep in an event loop of the caller's until farjump_target_fd() becomes readable.
/// `longest_ns` becomes the longest time to sleep, in nanoseconds; 0 if there is work already.
/// farjump_target_disarm() follows in any case, and then farjump_target_poll().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_target_arm(
    target: *mut farjump_target_t,
    longest_ns: *mut u64,
) -> farjump_status_t {
    guarded(|| {
        // SAFETY: the header requires a target that only this thread uses, and for a place for a number.
        let (mut target, longest) = unsafe { (usable(target)?, place(longest_ns, "longest_ns")?.write(0)) };
        if let Some(sleep) = target.arm()? {
            *longest = u64::try_from(sleep.as_nanos()).unwrap_or(u64::MAX);
        }
        Ok(FARJUMP_OK)
    })
}

/// Ends the sleep: sources that call need not wake the target any more, and the next farjump_target_poll()
/// reads the event that woke it from the system. Of more than four sources over `shm`, those that have
/// brought nothing stay armed: farjump_target_fd() may become readable by their first frame.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_target_disarm(target: *mut farjump_target_t) -> farjump_status_t {
    guarded(|| {
        // SAFETY: the header requires a target that only this thread uses.
        unsafe { usable(target)? }.disarm();
        Ok(FARJUMP_OK)
    })
}

/// Returns whether a source that brought frames lately may be waiting for the processor that this thread runs
/// on. Polling would keep it from running: yield (sched_yield()). A loop around farjump_target_poll() calls
/// this about every 64 polls without result. farjump_target_run() does it itself.
///
/// Where memory is mapped (`shm`, and `ucx-put` on one machine) source and target exchange the numbers of
/// their processors by this. Over other transports the result is true for every source on this machine. False
/// if `target` cannot be used.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_target_may_share_processor(target: *mut farjump_target_t) -> bool {
    // SAFETY: the header requires a target that only this thread uses.
    value(false, || Ok(unsafe { usable(target)? }.may_share_processor()))
}

/// Returns the descriptor that becomes readable when there is work while the target is armed. It belongs to
/// the library: watch it, and neither read nor close it. -1 if `target` cannot be used.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_target_fd(target: *mut farjump_target_t) -> c_int {
    // SAFETY: the header requires a target that only this thread uses.
    value(-1, || Ok(unsafe { usable(target)? }.as_fd().as_raw_fd()))
}

/// Returns the address that the target listens at: as given, and with the port that the system chose for port
/// 0. The text belongs to the library, and is valid until the target is closed. NULL if `target` is.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_target_address(target: *const farjump_target_t) -> *const c_char {
    // SAFETY: the header requires a target that only this thread uses.
    value(std::ptr::null(), || Ok(unsafe { object(target, "target")? }.address.as_ptr()))
}

/// Gives the value of the option `name` that the target was made with, as farjump_target_config_get() does.
/// The text belongs to the target, and is valid until the next call of this function for it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_target_option(
    target: *mut farjump_target_t,
    name: *const c_char,
    value: *mut *const c_char,
) -> farjump_status_t {
    guarded(|| {
        // SAFETY: the header requires a target that only this thread uses.
        let target = unsafe { object(target.cast_const(), "target")? };
        // SAFETY: the header requires a text, and a variable for a pointer.
        unsafe { show(target.usable()?.config(), name, &mut target.shown.borrow_mut(), value) }
    })
}

/// Returns this target's epoch: another one each time a target is made. 0 if `target` cannot be used.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_target_epoch(target: *mut farjump_target_t) -> u64 {
    // SAFETY: the header requires a target that only this thread uses.
    value(0, || Ok(unsafe { usable(target)? }.epoch()))
}

/// Reads the statistics of the target. `size` is `sizeof *stats`: fields beyond it are not written, and
/// fields that the library does not know become 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_target_stats(
    target: *mut farjump_target_t,
    stats: *mut farjump_target_stats_t,
    size: usize,
) -> farjump_status_t {
    guarded(|| {
        // SAFETY: the header requires a target that only this thread uses.
        let target = unsafe { usable(target)? };
        let counted = farjump_target_stats_t::of(&target.stats(), target.sources());
        // SAFETY: the header requires so many bytes; the structure is of numbers of one size.
        unsafe { fill(stats, size, size_of::<farjump_target_stats_t>(), "stats", counted)? };
        Ok(FARJUMP_OK)
    })
}

/// Writes the number of calls that the target refused for `cause`, one of FARJUMP_CAUSE_BAD_FRAME and its
/// kin, to `count`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_target_refused(
    target: *mut farjump_target_t,
    cause: c_int,
    count: *mut u64,
) -> farjump_status_t {
    guarded(|| {
        // SAFETY: the header requires a target that only this thread uses, and for a place for a number.
        let (target, count) = unsafe { (usable(target)?, place(count, "count")?.write(0)) };
        let none = || {
            Failure::argument(format!("{cause} is no cause: there are 0 to {}", RefusalCause::count() - 1))
        };
        *count = target.stats().refused(cause_of(cause).ok_or_else(none)?);
        Ok(FARJUMP_OK)
    })
}

/// Runs `callback`, with `user`, for each image in the target's store. The callback cannot use the target.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_target_images(
    target: *mut farjump_target_t,
    callback: farjump_image_fn,
    user: *mut std::ffi::c_void,
) -> farjump_status_t {
    guarded(|| {
        let callback = callback.ok_or_else(|| Failure::null("callback"))?;
        // SAFETY: the header requires a target that only this thread uses.
        let target = unsafe { usable(target)? };
        let images = target.images();
        // SAFETY: the header requires a function of this type, which takes this pointer.
        each_image(images.iter().map(Into::into), |image: &farjump_image_t| unsafe { callback(user, image) });
        Ok(FARJUMP_OK)
    })
}

/// Adds the function of `library` to the target, in place of one of the same name; see
/// farjump_target_config_add_local().
///
/// FARJUMP_ERROR_REFUSED when it cannot be linked with the exports; the old function stays then.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_target_set_local(
    target: *mut farjump_target_t,
    library: *const farjump_library_t,
) -> farjump_status_t {
    guarded(|| {
        // SAFETY: the header requires a target that only this thread uses, and for an open library.
        let (mut target, library) = unsafe { (usable(target)?, object(library, "library")?) };
        target.set_local(library.rust())?;
        Ok(FARJUMP_OK)
    })
}

/// Removes the function of this name from the target's own. FARJUMP_NOT_YET if there was none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_target_remove_local(
    target: *mut farjump_target_t,
    name: *const c_char,
) -> farjump_status_t {
    guarded(|| {
        // SAFETY: the header requires a target that only this thread uses, and for a text.
        let (mut target, name) = unsafe { (usable(target)?, text(name, "name")?) };
        Ok(if target.remove_local(name) { FARJUMP_OK } else { FARJUMP_NOT_YET })
    })
}

/// Names the target at `address` as destination `name` from now on, as the option `destination` does before.
/// Calls under way to another address of that name fail.
///
/// FARJUMP_ERROR_CONNECT when the address is malformed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_target_set_destination(
    target: *mut farjump_target_t,
    name: *const c_char,
    address: *const c_char,
) -> farjump_status_t {
    guarded(|| {
        // SAFETY: the header requires a target that only this thread uses, and for texts.
        let (mut target, name, address) =
            unsafe { (usable(target)?, text(name, "name")?, text(address, "address")?) };
        if name.is_empty() {
            return Err(Failure::argument(
                "a destination without a name cannot be forwarded to: give it one",
            ));
        }
        target.set_destination(name, address)?;
        Ok(FARJUMP_OK)
    })
}

/// Drops code from the store, with its statics. FARJUMP_NOT_YET if it is not there. The target requests the
/// code from a source that calls it again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_target_drop_code(
    target: *mut farjump_target_t,
    id: *const farjump_code_id_t,
) -> farjump_status_t {
    guarded(|| {
        // SAFETY: the header requires a target that only this thread uses, and for an id.
        let (mut target, id) = unsafe { (usable(target)?, object(id, "id")?) };
        Ok(if target.drop_code(&CodeId(id.bytes)) { FARJUMP_OK } else { FARJUMP_NOT_YET })
    })
}

/// Ends all links, and gives sources the reason. The target continues, and takes new ones.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_target_end_links(
    target: *mut farjump_target_t,
    why: *const c_char,
) -> farjump_status_t {
    guarded(|| {
        // SAFETY: the header requires a target that only this thread uses, and for a text.
        let (mut target, why) = unsafe { (usable(target)?, text(why, "why")?) };
        target.end_links(why);
        Ok(FARJUMP_OK)
    })
}
