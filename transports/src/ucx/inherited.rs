//! UCX in a forked child: one whose parent has used it uses none.

use std::mem;
use std::process;
use std::sync::atomic::{AtomicU32, Ordering};

use farjump_ucx_sys::Ucx;

use crate::fork::{Inherited, Listed};

/// The process that first made a context of UCX, in itself and in its children; 0 if none has.
static USER: AtomicU32 = AtomicU32::new(0);

/// Checks that no process has used UCX that forked this one. Before anything of UCX's is looked at: what the parent
/// did is here too, and may be half done.
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

/// Has UCX end in children that are forked from now on.
pub(super) fn watch(ucx: &'static Ucx) {
    if USER.compare_exchange(0, process::id(), Ordering::Relaxed, Ordering::Relaxed).is_ok() {
        mem::forget(Listed::new(Inherited::Ucx(ucx)));
    }
}
