//! The server's event loop.

use std::ffi::{c_char, c_int, c_void};
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::panic::{AssertUnwindSafe, catch_unwind};

use super::context::Context;
use super::functions::functions;
use super::strings::bytes_of;
use super::types::{
    AFTER_SLEEP, ASYNC_LOADING, ASYNC_LOADING_COMPLETED, BEFORE_SLEEP, EVENT_LOOP, FLUSH_DB, FLUSH_DB_END,
    LOADING, LOADING_ENDED, NOTIFY_GENERIC, NOTIFY_HASH, OK, READABLE, RawContext, RawEvent, RawString,
    SWAP_DB, SwapInfo,
};

/// The module's reactions to events in the server. The turns of the loop do not include those while a script is busy,
/// another module yields, or data load.
pub(crate) trait Hooks {
    /// Before the loop sleeps: replies of clients are written after it.
    fn before_sleep(context: &Context<'_>);
    /// After the loop has slept, before commands are read.
    fn after_sleep(context: &Context<'_>);
    /// When the server has loaded data: when it starts, and when a replica gets all of its primary's.
    fn loaded(context: &Context<'_>);
    /// When any command has written a hash. In a cluster, also when any key was added, removed or renamed.
    fn key_changed(context: &Context<'_>, key: &[u8]);
    /// When a database was emptied, or all were. Hooks may not write yet: the write would reach replicas first.
    fn emptied();
    /// When two databases have changed places. Hooks may not write yet.
    fn swapped(first: i32, second: i32);
}

/// Makes the server call `H` in each turn, until the module is unloaded. Returns whether it will.
pub(crate) fn subscribe<H: Hooks>(context: &Context<'_>) -> bool {
    // SAFETY: the context is valid, and the callback has the type that the server calls.
    let subscribe =
        |event| unsafe { functions().subscribe_to_server_event()(context.raw(), event, happened::<H>) == OK };
    [EVENT_LOOP, LOADING, ASYNC_LOADING].into_iter().all(subscribe)
}

/// Makes the server call [`Hooks::key_changed`], [`Hooks::emptied`] and [`Hooks::swapped`], until the module is
/// unloaded. Returns whether it will.
pub(crate) fn watch_keys<H: Hooks>(context: &Context<'_>) -> bool {
    let kinds = if context.in_cluster() { NOTIFY_HASH | NOTIFY_GENERIC } else { NOTIFY_HASH };
    // SAFETY: the context is valid, and the callback has the type that the server calls.
    let subscribe =
        |event| unsafe { functions().subscribe_to_server_event()(context.raw(), event, happened::<H>) == OK };
    // SAFETY: as before.
    let watches =
        unsafe { functions().subscribe_to_keyspace_events()(context.raw(), kinds, key_changed::<H>) == OK };
    watches && [FLUSH_DB, SWAP_DB].into_iter().all(subscribe)
}

unsafe extern "C" fn happened<H: Hooks>(
    context: *mut RawContext,
    event: RawEvent,
    part: u64,
    data: *mut c_void,
) {
    // SAFETY: the server passes a context that is valid until this returns.
    let Some(context) = (unsafe { Context::new(context) }) else { return };
    const TURN: u64 = EVENT_LOOP.id;
    const LOAD: u64 = LOADING.id;
    const ASYNC_LOAD: u64 = ASYNC_LOADING.id;
    const FLUSH: u64 = FLUSH_DB.id;
    const SWAP: u64 = SWAP_DB.id;
    // A panic has reported itself on standard error, and the server continues.
    let _ = catch_unwind(AssertUnwindSafe(|| match (event.id, part) {
        (TURN, BEFORE_SLEEP) => H::before_sleep(&context),
        (TURN, AFTER_SLEEP) => H::after_sleep(&context),
        (LOAD, LOADING_ENDED) | (ASYNC_LOAD, ASYNC_LOADING_COMPLETED) => H::loaded(&context),
        (FLUSH, FLUSH_DB_END) => H::emptied(),
        (SWAP, _) if !data.is_null() => {
            // SAFETY: the server passes such a structure with this event, of the version that was subscribed to.
            let info = unsafe { data.cast::<SwapInfo>().read() };
            H::swapped(info.first, info.second);
        }
        _ => {}
    }));
}

unsafe extern "C" fn key_changed<H: Hooks>(
    context: *mut RawContext,
    _: c_int,
    _: *const c_char,
    key: *mut RawString,
) -> c_int {
    // SAFETY: the server passes a context that is valid until this returns.
    let Some(context) = (unsafe { Context::new(context) }) else { return OK };
    // SAFETY: the server lends the key's name until this returns.
    let key = unsafe { bytes_of(key) };
    let _ = catch_unwind(AssertUnwindSafe(|| H::key_changed(&context, key)));
    OK
}

/// A descriptor that the loop watches. The loop calls the function whenever the descriptor is readable, even inside
/// busy scripts, so the function may use nothing of the server's.
#[derive(Debug)]
pub(crate) struct Watched(RawFd);

impl Watched {
    /// Watches a descriptor, which has to stay open for as long as the result lives.
    ///
    /// # Errors
    /// The reason why the server does not watch it.
    pub(crate) fn new(descriptor: BorrowedFd<'_>, work: fn()) -> Result<Watched, String> {
        let fd = descriptor.as_raw_fd();
        // SAFETY: the descriptor is open. The callback has the type that the server calls, and gets a function's address.
        let added = unsafe { functions().event_loop_add()(fd, READABLE, readable, work as *mut c_void) };
        match added {
            OK => Ok(Watched(fd)),
            _ => Err(format!(
                "the server's event loop takes no descriptor {fd}: raise its maxclients, or close files"
            )),
        }
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        // SAFETY: the descriptor was added, and is still open.
        unsafe { functions().event_loop_del()(self.0, READABLE) };
    }
}

unsafe extern "C" fn readable(_: c_int, work: *mut c_void, _: c_int) {
    // SAFETY: `Watched::new` has passed the address of such a function.
    let work = unsafe { std::mem::transmute::<*mut c_void, fn()>(work) };
    let _ = catch_unwind(work);
}

/// Calls `work` once, after `milliseconds`. The loop has to turn once more to notice the timer.
pub(crate) fn set_timer(context: &Context<'_>, milliseconds: u32, work: fn()) {
    // SAFETY: the context is valid. The callback has the type that the server calls, and gets a function's address.
    unsafe { functions().create_timer()(context.raw(), milliseconds.into(), elapsed, work as *mut c_void) };
}

unsafe extern "C" fn elapsed(_: *mut RawContext, work: *mut c_void) {
    // SAFETY: `set_timer` has passed the address of such a function.
    let work = unsafe { std::mem::transmute::<*mut c_void, fn()>(work) };
    let _ = catch_unwind(work);
}

const _: () = assert!(size_of::<fn()>() == size_of::<*mut c_void>());
