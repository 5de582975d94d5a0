//! Running injected code: what a frame names is looked up, placed if it is new, and called.
//!
//! [`Executor`] is what all targets share, whatever brings their frames. A [`CodeTable`] belongs to one source.

mod call;
mod caller;
mod clock;
mod code_table;
mod context;
mod executor;
mod export;
mod forwarding;
mod lent;
mod perf_map;
mod services;

pub use caller::{Called, Caller};
pub use code_table::CodeTable;
pub(crate) use code_table::{Callable, Named, Ready};
pub(crate) use context::{Context, Ended, running};
pub use executor::{Executor, ExecutorBuilder};
pub use export::ExportFn;
pub(crate) use forwarding::{Forwarding, Gate};
