//! UCX in a forked child: a child whose parent has used UCX must not use it.

use std::mem;
use std::process;
use std::sync::atomic::{AtomicU32, Ordering};

use farjump_ucx_sys::Ucx;

use crate::fork::{Inherited, Listed};

/// The process that first made a context of UCX, in itself and in its children; 0 before the first context.
static USER: AtomicU32 = AtomicU32::new(0);

/// Checks that no process that forked this one has used UCX. Must precede any access to UCX: the parent's state is here
/// too, and may be half changed.
///
/// # Errors
/// A sentence for display, with the remedy.
pub(super) fn check() -> Result<(), String> {
    match USER.load(Ordering::Relaxed) {
        0 => Ok(()),
        pid if pid == process::id() => Ok(()),
        pid => Err(format!(
            "UCX was used by the process with pid {pid}, which forked this one, and does not work in a forked child: use transport shm or \
             tcp, fork before the first link over UCX, or execute a program after the fork"
        )),
    }
}

/// Makes UCX end in children that are forked from now on.
pub(super) fn watch(ucx: &'static Ucx) {
    if USER.compare_exchange(0, process::id(), Ordering::Relaxed, Ordering::Relaxed).is_ok() {
        mem::forget(Listed::new(Inherited::Ucx(ucx)));
    }
}
