//! Running injected code: what a frame names is looked up, placed if it is new, and called.
//!
//! [`Executor`] is what all targets share, whatever brings their frames. A [`CodeTable`] belongs to one source.

mod call;
mod context;
mod executor;
mod forwarding;
mod perf_map;
mod services;

pub(crate) use context::{Context, Ended, running};
pub(crate) use executor::{Callable, Named, Ready};
pub use executor::{CodeTable, Executor, ExecutorBuilder, ExportFn};
pub(crate) use forwarding::{Forwarding, Gate};
