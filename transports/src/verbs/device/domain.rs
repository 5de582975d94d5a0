//! The protection domain of an endpoint.
//!
//! A device lets a queue pair use only the memory of its own domain. Each endpoint has a domain, so the device rejects
//! a peer that guesses the key of another source's memory. `docs/design/verbs.md` has the cost.

use std::ptr::NonNull;
use std::sync::Arc;

use farjump_core::transport::Cause;
use farjump_rdma_sys::ibv_pd;

use crate::verbs::device::Device;
use crate::verbs::error::{exhausted, last_error};

/// A protection domain. Freed when the last object made in it is gone.
pub(in crate::verbs) struct Domain {
    pd: NonNull<ibv_pd>,
    device: Arc<Device>,
}

// SAFETY: verbs objects may be used by any thread at any time, and this one is only read.
unsafe impl Send for Domain {}
// SAFETY: verbs objects may be used by any thread at any time, and this one is only read.
unsafe impl Sync for Domain {}

impl Domain {
    /// Makes a domain.
    pub(in crate::verbs) fn create(device: &Arc<Device>) -> Result<Arc<Domain>, Cause> {
        // SAFETY: the context is open.
        let pd = unsafe { device.verbs.ibv_alloc_pd(device.context()) };
        let pd = NonNull::new(pd)
            .ok_or_else(|| Cause::System(exhausted(&device.name, "protection domain", &last_error())))?;
        Ok(Arc::new(Domain { pd, device: Arc::clone(device) }))
    }

    pub(in crate::verbs) fn as_ptr(&self) -> *mut ibv_pd {
        self.pd.as_ptr()
    }

    /// Its device.
    pub(in crate::verbs) fn device(&self) -> &Arc<Device> {
        &self.device
    }
}

impl Drop for Domain {
    fn drop(&mut self) {
        if self.device.is_parents() {
            return;
        }
        // SAFETY: all objects made in the domain keep it, and are gone. An error has no remedy.
        unsafe { self.device.verbs.ibv_dealloc_pd(self.pd.as_ptr()) };
    }
}
