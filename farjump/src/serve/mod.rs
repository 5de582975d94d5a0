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
mod target;
mod target_args;

pub use target::{Stopper, Target, TargetBuilder, TargetThread};
