//! Memory that the peer writes: by plain stores where UCX gives a pointer to it, and by puts.

use std::fs;
use std::mem::MaybeUninit;
use std::ptr;
use std::rc::Rc;
use std::slice;

use farjump_ucx_sys::{
    UCP_MEM_ATTR_FIELD_ADDRESS, UCP_MEM_MAP_ALLOCATE, UCP_MEM_MAP_PARAM_FIELD_FLAGS,
    UCP_MEM_MAP_PARAM_FIELD_LENGTH, Ucx, ucp_context_h, ucp_ep_h, ucp_mem_attr_t, ucp_mem_h,
    ucp_mem_map_params_t, ucp_request_param_t, ucp_rkey_h,
};

use super::Opening;
use super::context::{Worker, check};
use super::lanes::lanes;
use super::requests::Requests;
use crate::perf::baselines::ring::{Layout, Ring, Writer};
use crate::perf::baselines::stores::Stores;
use crate::perf::child_protocol::Offer;
use crate::perf::liveness::Watch;
use crate::perf::role::Peer;
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
    fn is_shared(&self) -> bool {
        let maps = fs::read_to_string("/proc/self/maps").unwrap_or_default();
        is_shared(&maps, self.start.addr())
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

/// Returns whether the mapping that contains `address` is shared, by /proc/PID/maps (proc(5)).
fn is_shared(maps: &str, address: usize) -> bool {
    maps.lines().any(|line| {
        let mut fields = line.split_whitespace();
        let (Some(range), Some(rights)) = (fields.next(), fields.next()) else { return false };
        let bound = |text: &str| usize::from_str_radix(text, 16).ok();
        let bounds = range.split_once('-').and_then(|(low, high)| Some((bound(low)?, bound(high)?)));
        bounds.is_some_and(|(low, high)| (low..high).contains(&address)) && rights.ends_with('s')
    })
}

/// A key to the peer's region. Must be dropped before the worker.
pub(crate) struct Key {
    ucx: &'static Ucx,
    pub(crate) handle: ucp_rkey_h,
}

impl Key {
    /// Unpacks the key in the peer's offer, for a UCX endpoint of this worker.
    pub(crate) fn unpack(worker: &Worker, end: ucp_ep_h, offer: &Offer) -> Result<Key, Failure> {
        let mut handle = ptr::null_mut();
        // SAFETY: the UCX endpoint is alive, and the same UCX made the key in the other process.
        let status = unsafe { worker.ucx.ucp_ep_rkey_unpack(end, offer.key.as_ptr().cast(), &mut handle) };
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

/// An endpoint of a ring in such memory.
pub(crate) struct Written<W> {
    // Dropped in this order: each needs those behind it.
    ring: Ring<W>,
    _key: Key,
    _region: Region,
    end: ucp_ep_h,
    worker: Rc<Worker>,
}

impl<W: Writer> Written<W> {
    /// Connects to the peer, whose region is as long as this one.
    fn join(
        opening: Opening,
        offer: &Offer,
        layout: &Layout,
        writer: impl FnOnce(&Rc<Worker>, ucp_ep_h, ucp_rkey_h, u64) -> Result<W, Failure>,
    ) -> Result<Written<W>, Failure> {
        let Opening { worker, region } = opening;
        let region = region.ok_or_else(|| Failure::new("there is no memory to be written"))?;
        let end = worker.connect(&offer.worker)?;
        let by_memory = lanes(&worker, end)
            .is_some_and(|lanes| ["posix", "sysv"].iter().any(|name| lanes.contains(name)));
        if by_memory && !region.is_shared() {
            return Err(Failure::new(format!(
                "UCX cannot allocate a ring of {} B in shared memory (see df /dev/shm): choose a smaller --ring",
                region.len
            )));
        }
        let key = Key::unpack(&worker, end, offer)?;
        let writer = writer(&worker, end, key.handle, offer.start)?;
        let layout = Layout { region: region.len, ..*layout };
        // SAFETY: the region outlives the ring, has the same layout in both processes, and starts at a page
        // like all memory that UCX shares. Only the peer's writer knows it.
        let ring = unsafe { Ring::new(writer, region.start, layout) };
        Ok(Written { ring, _key: key, _region: region, end, worker })
    }

    pub(crate) fn lanes(&self) -> Option<String> {
        lanes(&self.worker, self.end)
    }
}

impl Written<Stores> {
    pub(crate) fn by_stores(opening: Opening, offer: &Offer, layout: &Layout) -> Result<Self, Failure> {
        Written::join(opening, offer, layout, |worker, _, key, start| {
            let mut local = ptr::null_mut();
            // SAFETY: the key belongs to that memory, and `local` has space for the pointer.
            let status = unsafe { worker.ucx.ucp_rkey_ptr(key, start, &mut local) };
            check(worker.ucx, "gives no pointer to the peer's memory", status)?;
            // SAFETY: UCX has mapped the peer's region there, which is as long, until the key is destroyed,
            // after the ring is dropped.
            Ok(unsafe { Stores::new(local.cast(), layout) })
        })
    }
}

impl Written<Puts> {
    pub(crate) fn by_puts(opening: Opening, offer: &Offer, layout: &Layout) -> Result<Self, Failure> {
        Written::join(opening, offer, layout, |worker, end, key, start| {
            // SAFETY: UCX reads only the fields of the mask: none.
            let params = unsafe { MaybeUninit::zeroed().assume_init() };
            Ok(Puts {
                requests: Requests::new(worker.ucx),
                tellings: Requests::new(worker.ucx),
                end,
                key,
                start,
                len: layout.region,
                params,
                payload: vec![7; layout.longest].leak(),
                signals: vec![0; SIGNALS].leak(),
                next: 0,
                telling: Box::leak(Box::new(0)),
                worker: worker.clone(),
            })
        })
    }
}

impl<W: Writer> Peer for Written<W> {
    fn prepare(&mut self, sent: usize, taken: usize, streams: bool) {
        Peer::prepare(&mut self.ring, sent, taken, streams);
    }

    #[inline]
    fn send(&mut self, watch: &Watch) -> Result<(), Failure> {
        Peer::send(&mut self.ring, watch)
    }

    #[inline]
    fn look(&mut self) -> Result<u64, Failure> {
        Peer::look(&mut self.ring)
    }

    #[inline]
    fn came(&self) -> u64 {
        self.ring.came()
    }

    fn settle(&mut self, watch: &Watch) -> Result<(), Failure> {
        Peer::settle(&mut self.ring, watch)
    }
}

/// Capacity for signals that UCX has not sent yet.
const SIGNALS: usize = 1024;

/// Writes by a put, a fence, and a put of the signal.
pub(crate) struct Puts {
    requests: Requests,
    /// Requests of returned credit: one at a time.
    tellings: Requests,
    end: ucp_ep_h,
    key: ucp_rkey_h,
    /// The peer's region, in its own address space.
    start: u64,
    len: usize,
    params: ucp_request_param_t,
    // Leaked buffers that UCX reads: a put that timed out may finish at any later time.
    payload: &'static [u8],
    signals: &'static mut [u64],
    telling: &'static mut u64,
    next: usize,
    worker: Rc<Worker>,
}

impl Puts {
    /// # Safety
    /// `from` has `len` bytes that stay unchanged until UCX has sent them.
    #[inline]
    unsafe fn put(&self, from: *const u8, len: usize, at: usize) -> farjump_ucx_sys::ucs_status_ptr_t {
        assert!(at + len <= self.len);
        let to = self.start + at as u64;
        // SAFETY: endpoint and key belong to the live worker; the assertion keeps the bytes in the peer's
        // region.
        unsafe { self.worker.ucx.ucp_put_nbx(self.end, from.cast(), len, to, self.key, &self.params) }
    }
}

impl Writer for Puts {
    #[inline]
    fn write(
        &mut self,
        at: usize,
        len: usize,
        signal_at: usize,
        signal: u64,
        watch: &Watch,
    ) -> Result<(), Failure> {
        if len > 0 {
            let payload = &self.payload[..len];
            // SAFETY: the payload is static and never changes.
            let returned = unsafe { self.put(payload.as_ptr(), len, at) };
            self.requests.take(returned, &self.worker, watch)?;
            // SAFETY: `self` keeps the worker alive.
            let status = unsafe { self.worker.ucx.ucp_worker_fence(self.worker.handle) };
            check(self.worker.ucx, "does not keep puts in order", status)?;
        }
        if self.next == SIGNALS {
            self.requests.wait(0, &self.worker, watch)?;
            self.next = 0;
        }
        self.signals[self.next] = signal;
        let from: *const u64 = &self.signals[self.next];
        // SAFETY: the word is written again only after all requests have completed.
        let returned = unsafe { self.put(from.cast(), 8, signal_at) };
        self.next += 1;
        self.requests.take(returned, &self.worker, watch)
    }

    fn tell(&mut self, at: usize, word: u64) -> Result<bool, Failure> {
        self.tellings.retire()?;
        if !self.tellings.is_empty() {
            return Ok(false);
        }
        *self.telling = word;
        // SAFETY: the word is written again only after its request has completed.
        let returned = unsafe { self.put(ptr::from_ref::<u64>(self.telling).cast(), 8, at) };
        self.tellings.hold(returned)?;
        Ok(true)
    }

    #[inline]
    fn fetch(&mut self, _at: usize) {}

    #[inline]
    fn work(&mut self) -> Result<(), Failure> {
        self.worker.progress();
        Ok(())
    }

    fn settle(&mut self, watch: &Watch) -> Result<(), Failure> {
        // SAFETY: the UCX endpoint is alive, and the parameters name no field.
        let returned = unsafe { self.worker.ucx.ucp_ep_flush_nbx(self.end, &self.params) };
        self.requests.hold(returned)?;
        self.requests.wait(0, &self.worker, watch)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_of_both_is_told_from_memory_of_one_by_its_mapping() {
        let maps = "7f0000000000-7f0000001000 rw-s 00000000 00:01 5  /dev/shm/x (deleted)\n\
                    7f0000001000-7f0000002000 rw-p 00000000 00:00 0\n";
        let shared =
            [0x7eff_ffff_ffff, 0x7f00_0000_0000, 0x7f00_0000_0fff, 0x7f00_0000_1000, 0x7f00_0000_2000]
                .map(|address| is_shared(maps, address));
        assert_eq!(shared, [false, true, true, false, false]);
    }
}
