//! Memory that UCX allocates and its peers write.

use std::mem::MaybeUninit;
use std::ptr::{self, NonNull};
use std::slice;

use farjump_core::transport::Cause;
use farjump_os::limits;
use farjump_ucx_sys::{
    UCP_MEM_ATTR_FIELD_ADDRESS, UCP_MEM_ATTR_FIELD_LENGTH, UCP_MEM_MAP_ALLOCATE,
    UCP_MEM_MAP_PARAM_FIELD_ADDRESS, UCP_MEM_MAP_PARAM_FIELD_FLAGS, UCP_MEM_MAP_PARAM_FIELD_LENGTH,
    UCS_ERR_NO_MEMORY, UCS_OK, ucp_mem_attr_t, ucp_mem_h, ucp_mem_map_params_t, ucs_status_t,
};
use rustix::param::page_size;

use crate::fork::{Inherited, Listed};
use crate::region_len;
use crate::ucx::context::Context;
use crate::ucx::words;

/// A region of this process, freed when it is dropped.
pub(super) struct Region {
    context: &'static Context,
    handle: ucp_mem_h,
    base: NonNull<u8>,
    len: usize,
    /// Set for a mailbox, for forked children.
    listed: Option<Listed>,
}

// SAFETY: the memory belongs only to this value; all threads may use its context, which is `Sync`.
unsafe impl Send for Region {}

impl Region {
    /// Makes a region of `len` bytes, a multiple of [`REGION_UNIT`](farjump_core::transport::REGION_UNIT): zeroed, with all of
    /// its memory present.
    pub(super) fn create(context: &'static Context, len: usize) -> Result<Region, Cause> {
        region_len::check(len)?;
        let ucx = context.ucx;
        let failed = |what: &str, status: ucs_status_t| {
            let shortage = limits::shortage().map(|limit| format!(": {limit}"));
            let hint = match status {
                _ if shortage.is_some() => shortage.as_deref().unwrap_or_default(),
                UCS_ERR_NO_MEMORY => {
                    ": is /dev/shm full, or a limit of shared memory (kernel.shmmax, kernel.shmall) reached?"
                }
                _ => "",
            };
            Cause::System(format!("UCX {what} {len} bytes of memory ({}){hint}", words(ucx, status)))
        };
        // SAFETY: zero is valid for all fields, numbers and pointers; UCX reads those that the mask names.
        let mut params: ucp_mem_map_params_t = unsafe { MaybeUninit::zeroed().assume_init() };
        params.field_mask = u64::from(UCP_MEM_MAP_PARAM_FIELD_LENGTH | UCP_MEM_MAP_PARAM_FIELD_FLAGS);
        params.length = len;
        params.flags = UCP_MEM_MAP_ALLOCATE;
        let mut handle = ptr::null_mut();
        // SAFETY: the context lives as long as the process, and `handle` is a local for the result.
        match unsafe { ucx.ucp_mem_map(context.handle, &params, &mut handle) } {
            UCS_OK => {}
            status => return Err(failed("does not allocate", status)),
        }
        // From here on, dropping `region` frees the memory in any case.
        let mut region = Region { context, handle, base: NonNull::dangling(), len, listed: None };
        // SAFETY: as above.
        let mut attributes: ucp_mem_attr_t = unsafe { MaybeUninit::zeroed().assume_init() };
        attributes.field_mask = u64::from(UCP_MEM_ATTR_FIELD_ADDRESS | UCP_MEM_ATTR_FIELD_LENGTH);
        // SAFETY: the memory was mapped above, and `attributes` is a local for the result.
        match unsafe { ucx.ucp_mem_query(handle, &mut attributes) } {
            UCS_OK => {}
            status => return Err(failed("does not say where it put", status)),
        }
        // On a page of the system: a fork maps the first one anew (`fork.rs`).
        let page = page_size();
        let base = NonNull::new(attributes.address.cast::<u8>());
        let Some(base) =
            base.filter(|base| base.addr().get().is_multiple_of(page) && attributes.length >= len)
        else {
            return Err(Cause::System(format!(
                "UCX put {len} bytes of memory at {:p}, which is no page of {page} bytes: see UCX_ALLOC_PRIO",
                attributes.address
            )));
        };
        region.base = base;
        // SAFETY: UCX allocated `len` bytes there, and no peer has its key yet.
        unsafe { base.write_bytes(0, len) };
        Ok(region)
    }

    /// Makes it a mailbox: a forked child then sends nothing that relies on the peer's state in its control page.
    pub(super) fn become_mailbox(&mut self) {
        let start = self.base.as_ptr().expose_provenance();
        self.listed = Some(Listed::new(Inherited::ControlPage { start }));
    }

    /// Returns its start, which is on a page of the system.
    pub(super) fn base(&self) -> NonNull<u8> {
        self.base
    }

    /// Returns its length in bytes.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Returns the key by which a peer's UCX reaches it.
    pub(super) fn key(&self) -> Result<Vec<u8>, Cause> {
        // SAFETY: `create` mapped the memory.
        unsafe { key_of(self.context, self.handle) }
    }
}

/// Returns the key by which a peer's UCX reaches the memory of `handle`.
///
/// # Safety
/// `handle` is memory that is mapped in this context.
unsafe fn key_of(context: &Context, handle: ucp_mem_h) -> Result<Vec<u8>, Cause> {
    let ucx = context.ucx;
    let (mut start, mut len) = (ptr::null_mut(), 0);
    // SAFETY: the memory is mapped (the caller's), and both pointers are to locals.
    match unsafe { ucx.ucp_rkey_pack(context.handle, handle, &mut start, &mut len) } {
        UCS_OK => {}
        status => {
            return Err(Cause::System(format!("UCX gives no key to memory: {}", words(ucx, status))));
        }
    }
    // SAFETY: UCX has just written `len` bytes there, and keeps them until they are released.
    let key = unsafe { slice::from_raw_parts(start.cast::<u8>(), len) }.to_vec();
    // SAFETY: from the call above, and not used again.
    unsafe { ucx.ucp_rkey_buffer_release(start) };
    Ok(key)
}

/// Other memory of this process that UCX's peers may read, until this is dropped.
pub(super) struct LentMemory {
    context: &'static Context,
    handle: ucp_mem_h,
}

// SAFETY: all threads may use the context, which is `Sync`; the registration belongs only to this value.
unsafe impl Send for LentMemory {}

impl LentMemory {
    /// Registers `len` bytes at `start`.
    ///
    /// # Safety
    /// The bytes stay mapped until this value is dropped.
    pub(super) unsafe fn register(
        context: &'static Context,
        start: NonNull<u8>,
        len: usize,
    ) -> Result<LentMemory, Cause> {
        let ucx = context.ucx;
        // SAFETY: zero is valid for all fields, numbers and pointers; UCX reads those that the mask names.
        let mut params: ucp_mem_map_params_t = unsafe { MaybeUninit::zeroed().assume_init() };
        params.field_mask = u64::from(UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH);
        (params.address, params.length) = (start.as_ptr().cast(), len);
        let mut handle = ptr::null_mut();
        // SAFETY: the context lives as long as the process, the caller keeps the memory mapped, and `handle` is a local
        // for the result.
        match unsafe { ucx.ucp_mem_map(context.handle, &params, &mut handle) } {
            UCS_OK => Ok(LentMemory { context, handle }),
            status => Err(Cause::System(format!(
                "UCX does not register {len} bytes of memory ({}): may this process lock so much? (ulimit -l)",
                words(ucx, status)
            ))),
        }
    }

    /// Returns the key by which a peer's UCX reaches it.
    pub(super) fn key(&self) -> Result<Vec<u8>, Cause> {
        // SAFETY: `register` mapped the memory.
        unsafe { key_of(self.context, self.handle) }
    }
}

impl Drop for LentMemory {
    fn drop(&mut self) {
        // SAFETY: mapped by `register`, and not used again. A failure has no remedy, and costs only memory.
        let _ = unsafe { self.context.ucx.ucp_mem_unmap(self.context.handle, self.handle) };
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        self.listed = None;
        // SAFETY: mapped by `create`, and not used again. A failure has no remedy, and costs only memory.
        let _ = unsafe { self.context.ucx.ucp_mem_unmap(self.context.handle, self.handle) };
    }
}
