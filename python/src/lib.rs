//! farjump for Python: the extension module `farjump._native`, over the Rust library.
//!
//! `calls::shared` is a link of threads and event loops; `pending`, `pendings`, `awaited`, `event_loop` and `methods`
//! take outcomes. `docs/design/hosts.md` has the reasons.

mod arguments;
mod calls;
mod errors;
mod library;
mod link;
mod lock;
mod objects;
mod options;
mod patience;
mod process;
mod target;

use pyo3::prelude::*;

#[pymodule(gil_used = true, name = "_native")]
fn native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add_class::<library::Library>()?;
    module.add_class::<link::Link>()?;
    module.add_class::<crate::calls::pending::Pending>()?;
    module.add_class::<crate::calls::pendings::Pendings>()?;
    module.add_class::<target::Target>()?;
    module.add_function(wrap_pyfunction!(crate::calls::methods::gather, module)?)?;
    module.add_class::<crate::objects::handle::Handle>()?;
    module.add_class::<crate::objects::store::Store>()?;
    module.add_class::<crate::objects::placement::Placement>()?;
    module.add_function(wrap_pyfunction!(library::link_library, module)?)?;
    module.add_class::<crate::objects::stream::Publisher>()?;
    module.add_class::<crate::objects::stream::Subscriber>()?;
    module.add_class::<crate::objects::stream::Item>()?;
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
