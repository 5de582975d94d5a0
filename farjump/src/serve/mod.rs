//! Targets: processes, or threads, that injected functions run in.

mod epoll;
mod forward;
mod handlers;
mod holds;
mod resources;
mod scratch;
mod session;
mod sessions;
mod settings;
mod target_args;
mod target;

pub use target::{Stopper, Target, TargetBuilder, TargetThread};
