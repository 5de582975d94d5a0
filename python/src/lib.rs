//! farjump for Python: the extension module `farjump._native`, over the Rust library.
//!
//! `shared` holds a link under a lock and lets threads and event loops sleep on it together; `pending`, `pendings`,
//! `awaited` and `event_loop` take outcomes. `docs/design/hosts.md` has the reasons.

mod arguments;
mod awaited;
mod call;
mod errors;
mod event_loop;
mod handle;
mod library;
mod link;
mod lock;
mod pending;
mod pendings;
mod placement;
mod process;
mod ready;
mod sending;
mod shared;
mod store;
mod stream;
mod target;
mod target_options;

use pyo3::prelude::*;

#[pymodule(gil_used = true, name = "_native")]
fn native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add_class::<library::Library>()?;
    module.add_class::<link::Link>()?;
    module.add_class::<pending::Pending>()?;
    module.add_class::<pendings::Pendings>()?;
    module.add_class::<target::Target>()?;
    module.add_function(wrap_pyfunction!(pendings::gather, module)?)?;
    module.add_class::<handle::Handle>()?;
    module.add_class::<store::Store>()?;
    module.add_class::<placement::Placement>()?;
    module.add_function(wrap_pyfunction!(library::link_library, module)?)?;
    module.add_class::<stream::Publisher>()?;
    module.add_class::<stream::Subscriber>()?;
    module.add_class::<stream::Item>()?;
    module.add_function(wrap_pyfunction!(target::close_targets, module)?)?;
    module.add_function(wrap_pyfunction!(usable_memory, module)?)?;
    Ok(())
}

/// Returns the number of bytes of memory that this process may use: the machine's memory, within the limits of control
/// groups and of the process.
#[pyfunction]
fn usable_memory() -> u64 {
    farjump_os::resources::memory()
}
