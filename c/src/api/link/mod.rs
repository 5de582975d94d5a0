//! Links: connections to targets.

pub mod config;
pub mod group;
pub mod pending;

use std::cell::RefCell;
use std::ffi::{CString, c_char, c_int, c_void};
use std::mem::MaybeUninit;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicU32, Ordering};

#[cfg(feature = "build")]
use farjump::CompiledImage;
use farjump::{Library, Link, LinkStats};

use crate::api::bytes::farjump_bytes_t;
use crate::api::c_text::c_text;
use crate::api::catch::{
    bytes, duration, fill, give, guarded, object, object_mut, place, take, text, value, variable,
};
use crate::api::config::show;
use crate::api::last_error::Failure;
use crate::api::library::{farjump_code_id_t, farjump_library_t};
use crate::api::link::config::farjump_link_config_t;
use crate::api::link::pending::farjump_pending_t;
use crate::api::shared::{Peer, farjump_mode_t, farjump_peer_t, rights_bits};
use crate::api::status::farjump_status_t::{self, *};

/// A connection to a target. One thread uses it at a time; it may move between threads. Several calls may be
/// in flight. Functions run at the target in injection order.
///
/// A forked child cannot use its parent's links: calls fail with FARJUMP_ERROR_ARGUMENT, and closing one
/// there ends nothing. The child makes a connection of its own.
#[derive(Debug)]
pub struct farjump_link_t {
    link: Link,
    /// Distinguishes the numbers of this link's calls from those of others.
    serial: u32,
    peer: Peer,
    transport: CString,
    /// The value of an option that C has read last.
    shown: RefCell<CString>,
}

/// Links made so far.
static SERIAL: AtomicU32 = AtomicU32::new(0);

impl farjump_link_t {
    fn new(link: Link) -> farjump_link_t {
        let (peer, transport) = (Peer::of(&link.peer()), c_text(&link.transport()));
        // Skips 0, so that no call has the number 0.
        let serial = SERIAL.fetch_add(1, Ordering::Relaxed) % u32::MAX + 1;
        farjump_link_t { link, serial, peer, transport, shown: RefCell::default() }
    }

    pub(crate) fn rust(&self) -> &Link {
        &self.link
    }

    /// Returns the number in C of the call with this number on the link.
    #[inline(always)]
    pub(crate) fn number(&self, call: u32) -> farjump_pending_t {
        u64::from(self.serial) << 32 | u64::from(call)
    }

    /// Returns the call with this number, if it is one of this link's.
    #[inline(always)]
    pub(crate) fn pending(&self, number: farjump_pending_t) -> Result<farjump::Pending<'_>, Failure> {
        let own = number >> 32 == u64::from(self.serial);
        own.then(|| self.link.pending_from_raw(number as u32)).flatten().ok_or_else(no_call)
    }
}

#[cold]
fn no_call() -> Failure {
    let text = "no such call is in flight on this link: its outcome was taken, it was cancelled, or it belongs to another link";
    Failure::new(FARJUMP_ERROR_NO_CALL, text)
}

#[cold]
fn busy() -> Failure {
    let text = "the link is in use by the call that this one came from: a callback and a payload routine cannot use the link \
                that runs them";
    Failure::new(FARJUMP_ERROR_BUSY, text)
}

/// Returns the link behind a pointer, if it can be used now.
///
/// # Safety
/// Unless it is NULL, `link` must come from `farjump_link_connect`, and only this thread may use it.
#[inline(always)]
pub(crate) unsafe fn usable<'a>(link: *mut farjump_link_t) -> Result<&'a farjump_link_t, Failure> {
    // SAFETY: this function's caller guarantees it. A call on the same link that runs this one shares it.
    let link = unsafe { object(link.cast_const(), "link")? };
    if link.link.is_busy() { Err(busy()) } else { Ok(link) }
}

/// Statistics of a link. It may grow at its end.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct farjump_link_stats_t {
    /// Frames sent that run a function.
    pub frames: u64,
    /// Of those, frames that carried code.
    pub frames_with_code: u64,
    /// Bytes of images sent, in frames and on request.
    pub code_bytes: u64,
    /// Bytes of payload sent.
    pub payload_bytes: u64,
}

impl From<LinkStats> for farjump_link_stats_t {
    fn from(stats: LinkStats) -> farjump_link_stats_t {
        farjump_link_stats_t {
            frames: stats.frames,
            frames_with_code: stats.frames_with_code,
            code_bytes: stats.code_bytes,
            payload_bytes: stats.payload_bytes,
        }
    }
}

/// Connects to the target at `address` (`unix:PATH`, `unix:@NAME`, `tcp:HOST:PORT`). `config` may be NULL
/// for the defaults. farjump_link_close() ends it.
///
/// FARJUMP_ERROR_CONNECT when no process listens there, the target rejects the link, or the two have no
/// transport in common. Also for a key file, which is read at a `tcp:` address alone, that holds no key or
/// that other users may read or write. FARJUMP_ERROR_ARGUMENT for options that contradict or lack each other,
/// or for which this libfarjump was not built.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_link_connect(
    address: *const c_char,
    config: *const farjump_link_config_t,
    link: *mut *mut farjump_link_t,
) -> farjump_status_t {
    guarded(|| {
        // SAFETY: the header requires a variable for a pointer, a text, and NULL or a configuration that nothing
        // changes.
        let (made, address, config) =
            unsafe { (variable(link, "link")?, text(address, "address")?, config.as_ref()) };
        let builder = config.map_or_else(|| Link::builder(address), |config| config.builder(address));
        *made = give(farjump_link_t::new(builder.connect()?));
        Ok(FARJUMP_OK)
    })
}

/// Closes it, and sets the variable to NULL. Does nothing if it is NULL already. Pending calls are cancelled;
/// frames that were sent still run.
///
/// FARJUMP_ERROR_BUSY from a callback of the link: it then stays open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_link_close(link: *mut *mut farjump_link_t) -> farjump_status_t {
    guarded(|| {
        let may = |link: &farjump_link_t| if link.link.is_busy() { Err(busy()) } else { Ok(()) };
        // SAFETY: the header requires a variable with a result of `farjump_link_connect`, which nothing else
        // uses.
        drop(unsafe { take(link, "link", may)? });
        Ok(FARJUMP_OK)
    })
}

/// Injects the function of `library`: runs its payload routines on the `args_size` bytes at `args` here,
/// sends the frame, and returns without waiting for it to run. The code itself travels the first time only.
/// `args` is read during the call only. `pending` receives the call's number: farjump_pending_wait(),
/// farjump_pending_poll() and farjump_pending_cancel() take it.
///
/// Without credit it waits, up to the option `send-timeout`; farjump_link_try_inject() does not. For a frame
/// larger than the mailbox it also waits until the target has made a large mailbox.
///
/// On failure nothing was sent, and `pending` is 0, which is no call's number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_link_inject(
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
        *number = link.number(link.link.inject(library.rust(), args)?.into_raw());
        Ok(FARJUMP_OK)
    })
}

/// Injects as farjump_link_inject() does, but returns FARJUMP_ERROR_FULL instead of waiting for credit.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_link_try_inject(
    link: *mut farjump_link_t,
    library: *const farjump_library_t,
    args: *const c_void,
    args_size: usize,
    pending: *mut farjump_pending_t,
) -> farjump_status_t {
    guarded(|| {
        // SAFETY: as in `farjump_link_inject`.
        let number = unsafe { place(pending, "pending")? }.write(0);
        // SAFETY: as in `farjump_link_inject`.
        let (link, library, args) =
            unsafe { (usable(link)?, object(library, "library")?, bytes(args, args_size, "args")?) };
        *number = link.number(link.link.try_inject(library.rust(), args)?.into_raw());
        Ok(FARJUMP_OK)
    })
}

/// Injects without requesting a reply: the cheapest kind of call. The next farjump_link_flush() shows whether
/// it ran. Refusals go to the callback of farjump_link_config_on_refused(). Otherwise it does the same as
/// farjump_link_inject().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_link_send(
    link: *mut farjump_link_t,
    library: *const farjump_library_t,
    args: *const c_void,
    args_size: usize,
) -> farjump_status_t {
    guarded(|| {
        // SAFETY: as in `farjump_link_inject`.
        let (link, library, args) =
            unsafe { (usable(link)?, object(library, "library")?, bytes(args, args_size, "args")?) };
        link.link.send(library.rust(), args)?;
        Ok(FARJUMP_OK)
    })
}

/// Sends as farjump_link_send() does, but returns FARJUMP_ERROR_FULL instead of waiting for credit.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_link_try_send(
    link: *mut farjump_link_t,
    library: *const farjump_library_t,
    args: *const c_void,
    args_size: usize,
) -> farjump_status_t {
    guarded(|| {
        // SAFETY: as in `farjump_link_inject`.
        let (link, library, args) =
            unsafe { (usable(link)?, object(library, "library")?, bytes(args, args_size, "args")?) };
        link.link.try_send(library.rust(), args)?;
        Ok(FARJUMP_OK)
    })
}

/// Sends as farjump_link_send() does, and in the same order, but the call may wait for others to share its
/// frame. Many small calls then cost little more than a few large ones. Calls share a frame if they are of
/// the same function, cached, and of one length. A frame in a mailbox takes up to 1 KiB of calls, each of up
/// to 256 bytes. A frame that is delivered as a message takes up to 8 KiB of calls, each of up to 4 KiB. No
/// frame takes more than 128. A frame is sent when it is full or the next call does not fit it, before
/// anything else is sent on the link, and by farjump_batch_finish().
///
/// Calls before one that fails are not lost: the next attempt sends those that wait.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_batch_send(
    link: *mut farjump_link_t,
    library: *const farjump_library_t,
    args: *const c_void,
    args_size: usize,
) -> farjump_status_t {
    guarded(|| {
        // SAFETY: as in `farjump_link_inject`.
        let (link, library, args) =
            unsafe { (usable(link)?, object(library, "library")?, bytes(args, args_size, "args")?) };
        // farjump_batch_finish() ends the batch; its calls wait in the link.
        std::mem::ManuallyDrop::new(link.link.batch()).send(library.rust(), args)?;
        Ok(FARJUMP_OK)
    })
}

/// Sends the waiting calls of farjump_batch_send().
///
/// FARJUMP_ERROR_TIMEOUT when the target returns no credit within the option `send-timeout`: the link then
/// sends the calls before its next frame.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_batch_finish(link: *mut farjump_link_t) -> farjump_status_t {
    guarded(|| {
        // SAFETY: the header requires a link that only this thread uses.
        unsafe { usable(link)? }.link.batch().finish()?;
        Ok(FARJUMP_OK)
    })
}

/// Injects, and waits for the reply, which becomes the content of `reply`; NULL for a reply that is not
/// needed. Otherwise it does the same as farjump_link_inject() and farjump_pending_wait().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_link_call(
    link: *mut farjump_link_t,
    library: *const farjump_library_t,
    args: *const c_void,
    args_size: usize,
    timeout_ns: u64,
    reply: *mut farjump_bytes_t,
) -> farjump_status_t {
    guarded(|| {
        // SAFETY: as in `farjump_link_inject`.
        let (link, library, args) =
            unsafe { (usable(link)?, object(library, "library")?, bytes(args, args_size, "args")?) };
        let timeout = duration(timeout_ns);
        // SAFETY: the header requires NULL or bytes that nothing else uses.
        match unsafe { reply.as_mut() } {
            Some(reply) => {
                reply.fill(|content| {
                    let called = link.link.call_into(library.rust(), args, timeout, content);
                    called.map_err(|error| Failure::of_call(error, content))
                })?;
            }
            None => drop(link.link.inject(library.rust(), args)?.wait(timeout)?),
        }
        Ok(FARJUMP_OK)
    })
}

/// Sets the mode of later calls: one of FARJUMP_MODE_CACHED and its kin.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_link_set_mode(link: *mut farjump_link_t, mode: c_int) -> farjump_status_t {
    guarded(|| {
        // SAFETY: the header requires a link that only this thread uses.
        unsafe { usable(link)? }.link.set_mode(farjump_mode_t::one(mode)?);
        Ok(FARJUMP_OK)
    })
}

/// Gives the state of the image that is compiled for the target's CPU in place of the one that `library`
/// carries (the option `compile-for-peer`). Takes results that have come, without waiting.
/// Calls of the library send the image.
///
/// FARJUMP_OK once calls run it: `id` is then its code id. FARJUMP_NOT_YET until then. FARJUMP_ERROR_LIBRARY
/// if calls keep the carried image: farjump_last_error() returns the reason. FARJUMP_ERROR_ARGUMENT if
/// nothing is compiled: the link was not made for it, or has not called the library in mode cached.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_link_compiled_image(
    link: *mut farjump_link_t,
    library: *const farjump_library_t,
    id: *mut farjump_code_id_t,
) -> farjump_status_t {
    guarded(|| {
        // SAFETY: the header requires a link that only this thread uses, a library, and a place for an id.
        let (link, library, id) = unsafe { (usable(link)?, object(library, "library")?, place(id, "id")?) };
        compiled_image(&link.link, library.rust(), id)
    })
}

#[cfg(feature = "build")]
fn compiled_image(
    link: &Link,
    library: &Library,
    id: &mut MaybeUninit<farjump_code_id_t>,
) -> Result<farjump_status_t, Failure> {
    match link.compiled_image(library) {
        CompiledImage::InUse(used) => {
            id.write(farjump_code_id_t { bytes: used.0 });
            Ok(FARJUMP_OK)
        }
        CompiledImage::Kept(cause) => Err(Failure::new(FARJUMP_ERROR_LIBRARY, cause.to_string())),
        CompiledImage::NotRequested => Err(nothing_compiled()),
        _ => Ok(FARJUMP_NOT_YET),
    }
}

#[cfg(not(feature = "build"))]
fn compiled_image(
    _: &Link,
    _: &Library,
    _: &mut MaybeUninit<farjump_code_id_t>,
) -> Result<farjump_status_t, Failure> {
    Err(nothing_compiled())
}

fn nothing_compiled() -> Failure {
    Failure::argument(
        "nothing is compiled for the target's CPU: set the option `compile-for-peer`, and call the library in mode \
         cached",
    )
}

/// Waits until everything sent before has run, `timeout_ns` nanoseconds at most.
///
/// Fails with the error of the first one-way call that the target has refused since the last flush, with
/// FARJUMP_ERROR_TIMEOUT, or with FARJUMP_ERROR_PEER_GONE. After the last some calls may not have run.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_link_flush(link: *mut farjump_link_t, timeout_ns: u64) -> farjump_status_t {
    guarded(|| {
        // SAFETY: the header requires a link that only this thread uses.
        unsafe { usable(link)? }.link.flush(duration(timeout_ns))?;
        Ok(FARJUMP_OK)
    })
}

/// Polls once for outcomes and control messages, without waiting: for programs with a loop of their own.
///
/// FARJUMP_ERROR_PEER_GONE when the target is gone.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_link_progress(link: *mut farjump_link_t) -> farjump_status_t {
    guarded(|| {
        // SAFETY: the header requires a link that only this thread uses.
        unsafe { usable(link)? }.link.progress()?;
        Ok(FARJUMP_OK)
    })
}

/// Returns whether the target may be waiting for the processor that this thread runs on. Polling would keep
/// it from replying: yield (sched_yield()). A loop that polls for outcomes calls this about every 64 polls
/// without result. Functions that wait do it themselves.
///
/// Where the target's memory is mapped (`shm`, and `ucx-put` on one machine), the two exchange the numbers of
/// their processors. A target in farjump_target_run() does so, and one that calls
/// farjump_target_may_share_processor(). Over other transports the result is true for every target on this
/// machine. False if `link` cannot be used.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_link_may_share_processor(link: *mut farjump_link_t) -> bool {
    // SAFETY: the header requires a link that only this thread uses.
    value(false, || Ok(unsafe { usable(link)? }.link.may_share_processor()))
}

/// Returns the descriptor that becomes readable on an event while the link is armed: a reply, a refusal, the
/// target's end. The first call creates it. It stays the same when the link is made anew, and ends with the
/// link. It belongs to the library: watch it, and neither read nor close it. -1 if `link` cannot be used, or
/// the system has no descriptor left.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_link_fd(link: *mut farjump_link_t) -> c_int {
    // SAFETY: the header requires a link that only this thread uses.
    value(-1, || Ok(unsafe { usable(link)? }.link.as_fd()?.as_raw_fd()))
}

/// Prepares to sleep in an event loop of the caller's until farjump_link_fd() becomes readable. `longest_ns`
/// becomes the longest time to sleep, in nanoseconds. It becomes 0 if an event has come since the last time:
/// an outcome for farjump_pending_poll(), or credit after FARJUMP_ERROR_FULL. It polls everything itself:
/// farjump_link_progress() need not be called. farjump_link_disarm() follows in any case.
///
/// FARJUMP_ERROR_PEER_GONE when the target is gone. Outcomes that came before can still be taken.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_link_arm(
    link: *mut farjump_link_t,
    longest_ns: *mut u64,
) -> farjump_status_t {
    guarded(|| {
        // SAFETY: the header requires a link that only this thread uses, and for a place for a number.
        let (link, longest) = unsafe { (usable(link)?, place(longest_ns, "longest_ns")?.write(0)) };
        if let Some(sleep) = link.link.arm()? {
            *longest = u64::try_from(sleep.as_nanos()).unwrap_or(u64::MAX);
        }
        Ok(FARJUMP_OK)
    })
}

/// Ends the sleep: the target need not wake this process any more. Does nothing on a link that is not armed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_link_disarm(link: *mut farjump_link_t) -> farjump_status_t {
    guarded(|| {
        // SAFETY: the header requires a link that only this thread uses.
        unsafe { usable(link)? }.link.disarm();
        Ok(FARJUMP_OK)
    })
}

/// Connects to the same address again, after the target ended or restarted. Pending calls fail with
/// FARJUMP_ERROR_PEER_GONE. Code is offered by its id: a target that no longer has it requests it. Earlier
/// results of farjump_link_peer() and farjump_link_transport() are no longer valid.
///
/// Fails as farjump_link_connect(); the link is then unchanged.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_link_reconnect(link: *mut farjump_link_t) -> farjump_status_t {
    guarded(|| {
        // SAFETY: the header requires a link that only this thread uses.
        unsafe { usable(link)? };
        // SAFETY: `usable` has checked it; no call on the link is under way and this one runs no callback, so
        // nothing else refers to it.
        let link = unsafe { object_mut(link, "link")? };
        link.link.reconnect()?;
        (link.peer, link.transport) = (Peer::of(&link.link.peer()), c_text(&link.link.transport()));
        Ok(FARJUMP_OK)
    })
}

/// Writes the time that the target took to place the code of `library`, as it reported, to `link_ns`, in
/// nanoseconds.
///
/// FARJUMP_NOT_YET if the target did not place it for this link (it had the code already), or no report came
/// within `timeout_ns` nanoseconds.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_link_link_time(
    link: *mut farjump_link_t,
    library: *const farjump_library_t,
    timeout_ns: u64,
    link_ns: *mut u64,
) -> farjump_status_t {
    guarded(|| {
        // SAFETY: the header requires a link that only this thread uses, an open library and a place for a
        // number.
        let (link, library, time) =
            unsafe { (usable(link)?, object(library, "library")?, place(link_ns, "link_ns")?.write(0)) };
        let Some(reported) = link.link.link_time(library.rust(), duration(timeout_ns))? else {
            return Ok(FARJUMP_NOT_YET);
        };
        *time = u64::try_from(reported.as_nanos()).unwrap_or(u64::MAX);
        Ok(FARJUMP_OK)
    })
}

/// Gives the value of the option `name` that the link was made with, as farjump_link_config_get() does. The
/// value of `mode` is the mode of later calls. The text belongs to the link, and is valid until the next call
/// of this function for it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_link_option(
    link: *mut farjump_link_t,
    name: *const c_char,
    value: *mut *const c_char,
) -> farjump_status_t {
    guarded(|| {
        // SAFETY: the header requires a link that only this thread uses.
        let link = unsafe { usable(link)? };
        // SAFETY: the header requires a text, and a variable for a pointer.
        unsafe { show(&link.link.config(), name, &mut link.shown.borrow_mut(), value) }
    })
}

/// Reads the statistics of this link. `size` is `sizeof *stats`: fields beyond it are not written, and fields
/// that the library does not know become 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_link_stats(
    link: *mut farjump_link_t,
    stats: *mut farjump_link_stats_t,
    size: usize,
) -> farjump_status_t {
    guarded(|| {
        // SAFETY: the header requires a link that only this thread uses.
        let counted = unsafe { usable(link)? }.link.stats().into();
        // SAFETY: the header requires so many bytes; the structure is of numbers of one size.
        unsafe { fill(stats, size, size_of::<farjump_link_stats_t>(), "stats", counted)? };
        Ok(FARJUMP_OK)
    })
}

/// Returns the name of the transport in use. The text belongs to the library, and is valid until the link is
/// made anew or closed. NULL if `link` is.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_link_transport(link: *const farjump_link_t) -> *const c_char {
    // SAFETY: the header requires a link that only this thread uses.
    value(std::ptr::null(), || Ok(unsafe { object(link, "link")? }.transport.as_ptr()))
}

/// Returns the target's process. The structure belongs to the library, and is valid until the link is made
/// anew or closed. NULL if `link` is.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_link_peer(link: *const farjump_link_t) -> *const farjump_peer_t {
    // SAFETY: the header requires a link that only this thread uses.
    value(std::ptr::null(), || Ok(&raw const *unsafe { object(link, "link")? }.peer.as_c()))
}

/// Writes the path of the link's frames to `path`, in words for people: the transport, the arrival rule, the
/// medium, and the reasons against other transports. May take long.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_link_path(
    link: *mut farjump_link_t,
    path: *mut farjump_bytes_t,
) -> farjump_status_t {
    guarded(|| {
        // SAFETY: the header requires a link that only this thread uses, and for bytes that nothing else
        // uses.
        let (link, words) = unsafe { (usable(link)?, object_mut(path, "path")?) };
        let path = link.link.path();
        let mut text = format!("{}, arrives by {}", path.transport, path.rule.describe());
        if !path.route.over.is_empty() {
            text += &format!(", over {}", path.route.over);
        }
        for note in &path.route.notes {
            text += &format!("\n{note}");
        }
        for other in &path.passed_over {
            text += &format!("\nnot {}: {}", other.transport, other.why);
        }
        words.set_text(&text);
        Ok(FARJUMP_OK)
    })
}

/// Returns the target's epoch: another one after a restart. 0 if `link` cannot be used.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_link_epoch(link: *mut farjump_link_t) -> u64 {
    // SAFETY: the header requires a link that only this thread uses.
    value(0, || Ok(unsafe { usable(link)? }.link.epoch()))
}

/// Returns the largest frame that the link's own mailbox takes, in bytes, with header and code. For larger
/// ones the target makes a large mailbox on demand. 0 if `link` cannot be used.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_link_max_frame(link: *mut farjump_link_t) -> usize {
    // SAFETY: the header requires a link that only this thread uses.
    value(0, || Ok(unsafe { usable(link)? }.link.max_frame()))
}

/// Returns the rights of this process at the target, as the target announced them: some of
/// FARJUMP_RIGHT_OBSERVE and its kin, or-ed together. 0 if `link` cannot be used.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_link_rights(link: *mut farjump_link_t) -> c_int {
    // SAFETY: the header requires a link that only this thread uses.
    value(0, || Ok(rights_bits(unsafe { usable(link)? }.link.rights())))
}
