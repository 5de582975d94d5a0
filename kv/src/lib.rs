//! `farjump-kv.so`, a module for Redis and Valkey: it opens a farjump target in the server. Sources inject functions, which
//! read and write the server's data, and clients call loaded ones by commands. `kv/README.md` is for users.
//!
//! | module | about |
//! |---|---|
//! | `api` | bindings to the server; all unsafe code but that of the next |
//! | `functions` | what injected functions may call |
//! | `host`, `hooks` | the target, and its turns in the server's event loop |
//! | `ran` | names of functions that ran, for the server's lists of slow commands |
//! | `commands`, `code`, `code_key` | the commands of clients, and the code that they load |
//! | `options`, `settings` | the arguments of `loadmodule`, and what `CONFIG SET` changes |

#![deny(missing_docs)]

mod api;
mod causes;
mod code;
mod code_key;
mod commands;
mod functions;
mod hooks;
mod host;
mod info;
mod logger;
mod options;
mod own_calls;
mod ran;
mod settings;
mod watcher;

use api::{Level, Loading};
use host::Host;

/// Loads the module into the server.
fn load(loading: Loading<'_>) {
    let Loading { context, args, missing } = loading;
    api::stay_loaded();
    logger::install();
    let host = Host::new(&args, &missing);
    if let Some(problem) = host.problem() {
        api::log(Level::Warning, &format!("no target: {problem}"));
    }
    host::set(Some(host));
    let mut added = info::provide(&context) & commands::register(&context);
    if missing.is_empty() {
        added &= hooks::subscribe(&context) & settings::register(&context);
    }
    if !added {
        api::log(Level::Warning, "the server did not take all of the module's commands and events");
    }
}

/// Ends the target. Returns whether the server may unload the module, which it may not while functions run.
fn unload() -> bool {
    if functions::are_running() {
        return false;
    }
    host::set(None);
    true
}
