//! Bindings to the module interface of Redis and Valkey: the functions that this module uses, found through
//! `RM_GetApi`, behind types that keep its rules. This is the only part of the module that calls the server.
//!
//! The server calls modules only on its main thread, and a context is valid until its callback returns. So a
//! [`Context`] exists only as a reference inside callbacks. Everything opened in one is closed before it ends
//! ([`Lent`]).

mod client;
mod commands;
mod context;
mod entry;
mod events;
mod functions;
mod info;
mod keys;
mod replies;
mod settings;
mod strings;
mod types;
mod users;

pub(crate) use crate::api::keys::cursors::{Cursor, Item};
pub(crate) use crate::api::keys::eviction::{Rank, used_memory};
pub(crate) use crate::api::keys::lent::{Lent, MAX_CURSORS};
pub(crate) use client::Whereabouts;
pub(crate) use commands::{Args, Command, KeysOf, register};
pub(crate) use context::{CallFlags, Context};
pub(crate) use entry::{Loading, stay_loaded};
pub(crate) use events::{Hooks, Watched, set_timer, subscribe, watch_keys};
pub(crate) use info::{Info, InfoSource, provide};
pub(crate) use keys::Key;
pub(crate) use replies::{Reply, ReplyRef};
pub(crate) use settings::{TextSetting, add_text, set_from_file};
pub(crate) use strings::Str;
pub(crate) use types::{StreamId, context_flags, key_flags, key_type, reply_type};
pub(crate) use users::User;

use functions::functions;

/// The level of a line in the server's log.
#[derive(Clone, Copy)]
pub(crate) enum Level {
    Warning,
    Notice,
    Verbose,
    Debug,
}

/// Writes a line into the server's log. May be called on any thread.
pub(crate) fn log(level: Level, text: &str) {
    let level = match level {
        Level::Warning => c"warning",
        Level::Notice => c"notice",
        Level::Verbose => c"verbose",
        Level::Debug => c"debug",
    };
    let text = strings::c_text(text);
    // SAFETY: both texts and the format are zero-terminated, and the format takes one text. Without a context the server
    // logs for no particular module, which any thread may do.
    unsafe {
        functions().log()(std::ptr::null_mut(), level.as_ptr(), c"<farjump> %s".as_ptr(), text.as_ptr())
    };
}

/// The server's monotonic clock in microseconds.
pub(crate) fn now() -> u64 {
    // SAFETY: the function takes no arguments.
    unsafe { functions().monotonic_microseconds()() }
}

/// Adds a time to those of an event in LATENCY, unless it is below the server's threshold. Only for the server's
/// thread.
pub(crate) fn add_latency(event: &str, milliseconds: i64) {
    let event = strings::c_text(event);
    // SAFETY: the name is zero-terminated, and the server copies it.
    unsafe { functions().latency_add_sample()(event.as_ptr(), milliseconds) };
}

/// Returns whether the server can run commands as users for modules ([`Context::call_as`]). Redis 7.0 crashes in a hook
/// when a rule forbids such a command.
pub(crate) fn runs_as_users() -> bool {
    /// The first version without that crash: 7.2.0. Valkey's versions begin later.
    const FIRST: std::ffi::c_int = 0x0007_0200;
    // SAFETY: the function takes no arguments.
    unsafe { functions().get_server_version()() >= FIRST }
}

/// Returns whether writes would not reach replicas and the append-only file: during CLIENT PAUSE and a failover.
pub(crate) fn must_not_write() -> bool {
    // SAFETY: the function takes no arguments. It is called on the server's thread, because contexts exist only there.
    unsafe { functions().avoid_replica_traffic()() != 0 }
}
