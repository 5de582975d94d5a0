//! Memory of UCX: a region of this process, and the peer's, which this process reads and writes.

use std::mem::MaybeUninit;
use std::ptr;
use std::rc::Rc;
use std::slice;

use farjump_transports::ucx::mappings::Mappings;
use farjump_ucx_sys::{
    UCP_MEM_ATTR_FIELD_ADDRESS, UCP_MEM_MAP_ALLOCATE, UCP_MEM_MAP_PARAM_FIELD_FLAGS,
    UCP_MEM_MAP_PARAM_FIELD_LENGTH, Ucx, ucp_context_h, ucp_ep_h, ucp_mem_attr_t, ucp_mem_h,
    ucp_mem_map_params_t, ucp_request_param_t, ucp_rkey_h, ucs_status_ptr_t,
};

use super::context::{Worker, check, no_fields};
use super::requests::Requests;
use crate::perf::process::child_protocol::Offer;
use crate::perf::process::liveness::Watch;
use crate::program::failure::Failure;

/// Memory that UCX has allocated for a peer to write to.
pub(crate) struct Region {
    ucx: &'static Ucx,
    context: ucp_context_h,
    handle: ucp_mem_h,
    pub(crate) start: *mut u8,
    pub(crate) len: usize,
}

impl Region {
    /// Allocates `len` zeroed bytes. Must be dropped before `worker`.
    pub(crate) fn allocate(worker: &Worker, len: usize) -> Result<Region, Failure> {
        let (ucx, context) = (worker.ucx, worker.context);
        // SAFETY: UCX reads only the fields of the mask; all others are numbers and pointers, for which 0 is
        // valid.
        let mut params: ucp_mem_map_params_t = unsafe { MaybeUninit::zeroed().assume_init() };
        params.field_mask = u64::from(UCP_MEM_MAP_PARAM_FIELD_LENGTH | UCP_MEM_MAP_PARAM_FIELD_FLAGS);
        params.length = len;
        params.flags = UCP_MEM_MAP_ALLOCATE;
        let mut handle = ptr::null_mut();
        // SAFETY: `worker` keeps the context alive, and `handle` has space for the result.
        let status = unsafe { ucx.ucp_mem_map(context, &params, &mut handle) };
        check(ucx, "allocates no memory", status)?;
        let mut region = Region { ucx, context, handle, start: ptr::null_mut(), len };
        // SAFETY: integers and pointers, for which zero is valid; UCX uses only the fields of the mask.
        let mut attributes: ucp_mem_attr_t = unsafe { MaybeUninit::zeroed().assume_init() };
        attributes.field_mask = u64::from(UCP_MEM_ATTR_FIELD_ADDRESS);
        // SAFETY: `handle` was made above.
        let status = unsafe { ucx.ucp_mem_query(handle, &mut attributes) };
        check(ucx, "does not say where memory is", status)?;
        region.start = attributes.address.cast();
        // SAFETY: UCX has allocated `len` bytes there, and only this function knows them.
        unsafe { region.start.write_bytes(0, len) };
        Ok(region)
    }

    /// Returns the address in this process, as the peer needs it.
    pub(crate) fn start(&self) -> u64 {
        self.start.addr() as u64
    }

    /// Returns whether other processes can map the memory. Without space for shared memory UCX takes other
    /// memory, and puts to it are messages.
    pub(crate) fn is_shared(&self) -> bool {
        let start = self.start.addr();
        Mappings::now().is_ok_and(|mappings| mappings.share(&(start..start + self.len)))
    }

    /// Returns the key by which the peer reaches it.
    pub(crate) fn key(&self) -> Result<Vec<u8>, Failure> {
        let (mut start, mut len) = (ptr::null_mut(), 0);
        // SAFETY: context and memory are alive, and both variables have space for the result.
        let status = unsafe { self.ucx.ucp_rkey_pack(self.context, self.handle, &mut start, &mut len) };
        check(self.ucx, "gives no key", status)?;
        // SAFETY: UCX has just written `len` bytes there, and keeps them until they are released.
        let bytes = unsafe { slice::from_raw_parts(start.cast::<u8>(), len) }.to_vec();
        // SAFETY: `start` comes from the call above, and is not used again.
        unsafe { self.ucx.ucp_rkey_buffer_release(start) };
        Ok(bytes)
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: `allocate` made the handle in this context, which lives until the worker is dropped.
        unsafe { self.ucx.ucp_mem_unmap(self.context, self.handle) };
    }
}

/// A key to the peer's region. Must be dropped before the worker.
pub(crate) struct Key {
    ucx: &'static Ucx,
    pub(crate) handle: ucp_rkey_h,
}

impl Key {
    /// Unpacks the key in the peer's offer, for a UCX endpoint of this worker.
    pub(crate) fn unpack(worker: &Worker, endpoint: ucp_ep_h, offer: &Offer) -> Result<Key, Failure> {
        let mut handle = ptr::null_mut();
        // SAFETY: the UCX endpoint is alive, and the same UCX made the key in the other process.
        let status =
            unsafe { worker.ucx.ucp_ep_rkey_unpack(endpoint, offer.key.as_ptr().cast(), &mut handle) };
        check(worker.ucx, "does not accept the peer's key", status)?;
        Ok(Key { ucx: worker.ucx, handle })
    }
}

impl Drop for Key {
    fn drop(&mut self) {
        // SAFETY: `unpack` made the handle. Its UCX endpoint lives as long as the worker, which is dropped
        // later.
        unsafe { self.ucx.ucp_rkey_destroy(self.handle) };
    }
}

/// The peer's memory, which is reached through a UCX endpoint, and the pending requests for it.
pub(crate) struct RemoteMemory {
    requests: Requests,
    endpoint: ucp_ep_h,
    params: ucp_request_param_t,
    /// Its start in the peer's address space.
    start: u64,
    len: usize,
    // Dropped in this order: each needs those behind it.
    key: Key,
    worker: Rc<Worker>,
}

impl RemoteMemory {
    /// Reaches the `len` bytes of memory in the peer's offer.
    pub(crate) fn new(
        worker: Rc<Worker>,
        endpoint: ucp_ep_h,
        offer: &Offer,
        len: usize,
    ) -> Result<RemoteMemory, Failure> {
        let key = Key::unpack(&worker, endpoint, offer)?;
        let requests = Requests::new(worker.ucx);
        Ok(RemoteMemory { requests, endpoint, params: no_fields(), start: offer.start, len, key, worker })
    }

    pub(crate) fn lanes(&self) -> Option<String> {
        self.worker.lanes(self.endpoint)
    }

    /// Begins to write `len` bytes at offset `at`.
    ///
    /// # Safety
    /// `from` has `len` bytes that stay unchanged until UCX has sent them.
    #[inline]
    pub(crate) unsafe fn begin_put(&self, from: *const u8, len: usize, at: usize) -> ucs_status_ptr_t {
        assert!(at + len <= self.len);
        let to = self.start + at as u64;
        // SAFETY: endpoint and key belong to the live worker; the assertion keeps the bytes in the peer's
        // memory.
        unsafe {
            self.worker.ucx.ucp_put_nbx(self.endpoint, from.cast(), len, to, self.key.handle, &self.params)
        }
    }

    /// Writes `len` bytes at offset `at`.
    ///
    /// # Safety
    /// The condition of [`RemoteMemory::begin_put`].
    #[inline]
    pub(crate) unsafe fn put(
        &mut self,
        from: *const u8,
        len: usize,
        at: usize,
        watch: &Watch,
    ) -> Result<(), Failure> {
        // SAFETY: the caller keeps the condition.
        let returned = unsafe { self.begin_put(from, len, at) };
        self.requests.take(returned, &self.worker, watch)
    }

    /// Reads `len` bytes at offset `at`.
    ///
    /// # Safety
    /// `into` has space for `len` bytes, which nothing else uses until the request has completed.
    #[inline]
    pub(crate) unsafe fn get(
        &mut self,
        into: *mut u8,
        len: usize,
        at: usize,
        watch: &Watch,
    ) -> Result<(), Failure> {
        assert!(at + len <= self.len);
        let from = self.start + at as u64;
        // SAFETY: as in `begin_put`; the caller vouches for the space.
        let returned = unsafe {
            let (ucx, key) = (self.worker.ucx, self.key.handle);
            ucx.ucp_get_nbx(self.endpoint, into.cast(), len, from, key, &self.params)
        };
        self.requests.take(returned, &self.worker, watch)
    }

    /// Keeps later puts behind earlier ones.
    #[inline]
    pub(crate) fn fence(&self) -> Result<(), Failure> {
        // SAFETY: `self` keeps the worker alive.
        let status = unsafe { self.worker.ucx.ucp_worker_fence(self.worker.handle) };
        check(self.worker.ucx, "does not keep puts in order", status)
    }

    /// Waits until all requests have completed.
    #[inline]
    pub(crate) fn wait(&mut self, watch: &Watch) -> Result<(), Failure> {
        self.requests.wait(0, &self.worker, watch)
    }

    /// Waits until all writes have arrived.
    #[inline]
    pub(crate) fn flush(&mut self, watch: &Watch) -> Result<(), Failure> {
        // SAFETY: the UCX endpoint is alive, and the parameters name no field.
        let returned = unsafe { self.worker.ucx.ucp_ep_flush_nbx(self.endpoint, &self.params) };
        self.requests.take(returned, &self.worker, watch)?;
        self.wait(watch)
    }

    #[inline]
    pub(crate) fn progress(&self) {
        self.worker.progress();
    }
}
