//! Posting requests.

use std::ffi::c_int;
use std::ptr::{self, NonNull};

use farjump_core::transport::{Cause, REGION_UNIT};
use farjump_rdma_sys::{
    IBV_SEND_INLINE, IBV_SEND_SIGNALED, IBV_SEND_SOLICITED, IBV_WR_RDMA_READ, ibv_post_send, ibv_send_wr,
    ibv_sge, ibv_wr_opcode,
};

use super::{CHAIN, Queue, Request};

impl Queue {
    /// Posts one request.
    ///
    /// # Safety
    /// As [`Queue::post`]. The queue must have a free slot.
    #[inline]
    unsafe fn post_one(&mut self, request: &Request) -> Result<(), Cause> {
        debug_assert!(self.free_slots() > 0);
        // SAFETY: pointers, numbers and unions of them, for which zero is valid.
        let (mut wr, mut part): (ibv_send_wr, ibv_sge) = unsafe { std::mem::zeroed() };
        self.fill(request, &mut wr, &mut part);
        self.counter.posted(1, request.len);
        // SAFETY: the request is complete and the only one, its part exists, and the caller keeps the bytes (see
        // Safety).
        unsafe { self.give(&mut wr) }
    }

    /// Posts a solicited operation with immediate data, of bytes that travel inside the request ([`Queue::is_inline`]).
    /// A write goes to this address of the peer, by this key. The queue must have a free slot.
    #[inline(always)]
    pub(in crate::verbs) fn post_inline(
        &mut self,
        operation: ibv_wr_opcode,
        bytes: &[u8],
        (to, remote_key): (u64, u32),
        immediate: u32,
        frame: u64,
    ) -> Result<(), Cause> {
        debug_assert!(self.free_slots() > 0 && self.is_inline(bytes.len()));
        // SAFETY: pointers, numbers and unions of them, for which zero is valid.
        let mut wr: ibv_send_wr = unsafe { std::mem::zeroed() };
        let mut part = ibv_sge { addr: bytes.as_ptr().addr() as u64, length: bytes.len() as u32, lkey: 0 };
        let slot = self.slots.take(frame);
        wr.send_flags = IBV_SEND_INLINE | IBV_SEND_SOLICITED;
        if slot.has_completion {
            wr.send_flags |= IBV_SEND_SIGNALED;
            self.awaited += 1;
        }
        wr.wr_id = slot.number;
        wr.sg_list = &mut part;
        wr.num_sge = 1;
        wr.opcode = operation;
        wr.__bindgen_anon_1.imm_data = immediate.to_be();
        wr.wr.rdma.remote_addr = to;
        wr.wr.rdma.rkey = remote_key;
        self.counter.posted(1, bytes.len());
        // SAFETY: the request is complete and the only one, and its bytes are copied into it.
        unsafe { self.give(&mut wr) }
    }

    /// Posts a read of `len` bytes at the peer's address `from`, by this key, into the device's memory at `into`, with
    /// a completion. Returns the request's number. The queue must have a free slot.
    ///
    /// # Safety
    /// `into` has `len` bytes of memory registered by `local_key` for receiving, which nothing else uses until the
    /// request is done or the queue pair is gone.
    pub(in crate::verbs) unsafe fn post_read(
        &mut self,
        (into, local_key): (NonNull<u8>, u32),
        len: u32,
        (from, remote_key): (u64, u32),
    ) -> Result<u64, Cause> {
        debug_assert!(self.free_slots() > 0);
        // SAFETY: pointers, numbers and unions of them, for which zero is valid.
        let mut wr: ibv_send_wr = unsafe { std::mem::zeroed() };
        let mut part = ibv_sge { addr: into.addr().get() as u64, length: len, lkey: local_key };
        let slot = self.slots.take(0);
        self.awaited += 1;
        wr.wr_id = slot.number;
        wr.sg_list = &mut part;
        wr.num_sge = 1;
        wr.opcode = IBV_WR_RDMA_READ;
        wr.send_flags = IBV_SEND_SIGNALED;
        wr.wr.rdma.remote_addr = from;
        wr.wr.rdma.rkey = remote_key;
        // SAFETY: the request is complete and the only one, and the caller keeps the memory (see Safety).
        unsafe { self.give(&mut wr) }?;
        Ok(slot.number)
    }

    /// Posts requests in one list, at most [`CHAIN`] and at most as many as there are slots.
    ///
    /// # Safety
    /// The bytes at `from` of each request must stay unchanged until it is done, or until this returns if
    /// they fit inside the request.
    pub(in crate::verbs) unsafe fn post(&mut self, requests: &[Request]) -> Result<(), Cause> {
        debug_assert!(requests.len() <= CHAIN && requests.len() <= self.free_slots());
        if let [request] = requests {
            // SAFETY: the caller's (see Safety).
            return unsafe { self.post_one(request) };
        }
        // SAFETY: pointers, numbers and unions of them, for which zero is valid.
        let (mut list, mut parts): ([ibv_send_wr; CHAIN], [ibv_sge; CHAIN]) = unsafe { std::mem::zeroed() };
        let first = list.as_mut_ptr();
        for (index, request) in requests.iter().enumerate() {
            let wr = &mut list[index];
            self.fill(request, wr, &mut parts[index]);
            if index + 1 < requests.len() {
                // SAFETY: inside the list.
                wr.next = unsafe { first.add(index + 1) };
            }
        }
        self.counter.posted(requests.len(), requests.iter().map(|request| request.len).sum());
        // SAFETY: the list is complete and terminated, its parts exist, and the caller keeps the bytes (see
        // Safety).
        unsafe { self.give(first) }
    }

    /// Takes a slot for a request, and writes the request into zeroed `wr`, and the location of its bytes into `part`.
    #[inline(always)]
    fn fill(&mut self, request: &Request, wr: &mut ibv_send_wr, part: &mut ibv_sge) {
        let slot = self.slots.take(request.frame);
        let (from, key) = match &request.word {
            None => (request.from, request.key),
            Some(word) if request.len <= self.max_inline => (ptr::from_ref(word).cast(), 0),
            Some(word) => (self.lay_down(slot.number, *word), self.credit_memory.local_key()),
        };
        *part = ibv_sge { addr: from.addr() as u64, length: request.len as u32, lkey: key };
        let mut flags = 0;
        if slot.has_completion || request.has_completion {
            flags |= IBV_SEND_SIGNALED;
            self.awaited += 1;
        }
        if request.len <= self.max_inline {
            flags |= IBV_SEND_INLINE;
        }
        if request.solicited {
            flags |= IBV_SEND_SOLICITED;
        }
        wr.wr_id = slot.number;
        wr.sg_list = part;
        wr.num_sge = c_int::from(request.len != 0);
        wr.opcode = request.operation;
        wr.send_flags = flags;
        wr.__bindgen_anon_1.imm_data = request.immediate.to_be();
        wr.wr.rdma.remote_addr = request.to;
        wr.wr.rdma.rkey = request.remote_key;
    }

    /// Passes a list of requests to the device.
    ///
    /// # Safety
    /// As `ibv_post_send`, for the list at `first`.
    #[inline(always)]
    unsafe fn give(&mut self, first: *mut ibv_send_wr) -> Result<(), Cause> {
        let mut bad = ptr::null_mut();
        // SAFETY: the queue pair exists, and the list is the caller's (see Safety).
        match unsafe { ibv_post_send(self.qp.as_ptr(), first, &mut bad) } {
            0 => Ok(()),
            errno => Err(self.not_taken(errno)),
        }
    }

    #[cold]
    fn not_taken(&self, errno: c_int) -> Cause {
        Cause::System(format!(
            "{} does not take a request: {}",
            self.device.name,
            std::io::Error::from_raw_os_error(errno)
        ))
    }

    /// Returns whether the bytes of a request of `len` bytes travel inside it: then they need no registration, and need
    /// not stay valid after the post.
    #[inline(always)]
    pub(in crate::verbs) fn is_inline(&self, len: usize) -> bool {
        len <= self.max_inline
    }

    /// Stores a word in registered memory, from which the request with this number sends it.
    fn lay_down(&self, number: u64, word: u64) -> *const u8 {
        let places = (self.credit_memory.len() - REGION_UNIT) / size_of::<u64>();
        let at = REGION_UNIT / size_of::<u64>() + number as usize % places;
        // SAFETY: a slot behind the first unit of the registered memory. It is reused after as many requests as fit the
        // queue.
        unsafe {
            let place = self.credit_memory.start().cast::<u64>().add(at);
            place.write(word);
            place.as_ptr().cast()
        }
    }
}
