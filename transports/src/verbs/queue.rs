//! A connected queue pair (RC), the accounts of its send queue, and the credit words beside it.
//!
//! These are a little registered memory: a word in which the peer states how many receives it has posted
//! again, and space for words to send on devices without inline data.

use std::ffi::c_int;
use std::ptr::{self, NonNull};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use farjump_core::transport::Cause;
use farjump_rdma_sys::{
    IBV_ACCESS_REMOTE_WRITE, IBV_QP_ACCESS_FLAGS, IBV_QP_AV, IBV_QP_DEST_QPN, IBV_QP_MAX_DEST_RD_ATOMIC,
    IBV_QP_MAX_QP_RD_ATOMIC, IBV_QP_MIN_RNR_TIMER, IBV_QP_PATH_MTU, IBV_QP_PKEY_INDEX, IBV_QP_PORT,
    IBV_QP_RETRY_CNT, IBV_QP_RNR_RETRY, IBV_QP_RQ_PSN, IBV_QP_SQ_PSN, IBV_QP_STATE, IBV_QP_TIMEOUT,
    IBV_QPS_ERR, IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS, IBV_QPT_RC, IBV_SEND_INLINE, IBV_SEND_SIGNALED,
    IBV_SEND_SOLICITED, IBV_WC_SUCCESS, IBV_WR_RDMA_WRITE, ibv_ah_attr, ibv_post_send, ibv_qp, ibv_qp_attr,
    ibv_qp_init_attr, ibv_send_wr, ibv_sge, ibv_srq, ibv_wr_opcode,
};
use rustix::rand::{GetRandomFlags, getrandom};

use super::address::{BITS, EndpointAddress, RemoteRegion};
use super::completions::{BATCH, Batch, Completions, failure};
use super::counters::Counter;
use super::device::{Device, Since};
use super::error::{exhausted, last_error};
use super::memory::{Memory, PAGE, Written};
use super::send_slots::SendSlots;

/// Work requests of a send queue, if the device supports as many.
pub(super) const DEPTH: u32 = 512;
/// The pause after a peer had nothing posted to receive into: 0.64 ms (InfiniBand Architecture Specification,
/// 9.7.5.2.8). Credit avoids this in the steady state.
const RNR_TIMER: u8 = 12;
/// Number of attempts after such a pause.
const RNR_RETRIES: u8 = 6;
/// Hop limit, at which stray packets end.
const HOPS: u8 = 64;
/// Requests posted at a time.
pub(super) const CHAIN: usize = 4;
/// Rounds of progress between polls for completions that were not requested: those of failed requests. A
/// power of two.
const LOOK_EVERY: u32 = 64;
/// Rounds of progress between reads of the device's events.
const ROUNDS: u32 = 4096;

/// One work request.
#[derive(Clone, Copy)]
pub(super) struct Request {
    pub(super) operation: ibv_wr_opcode,
    /// A word to send, instead of the bytes at `from`.
    pub(super) word: Option<u64>,
    pub(super) from: *const u8,
    pub(super) len: usize,
    /// Key of the memory at `from`; unused for bytes inside a request.
    pub(super) key: u32,
    /// Address in the peer's memory, and its key; for writes only.
    pub(super) to: u64,
    pub(super) remote_key: u32,
    /// Immediate data for the peer; for operations that have it only.
    pub(super) immediate: u32,
    /// Whether it is solicited: wakes a peer that waits.
    pub(super) solicited: bool,
    /// Whether it asks for a completion.
    pub(super) has_completion: bool,
    /// Its frame.
    pub(super) frame: u64,
}

impl Request {
    /// Makes a request that writes a word, in memory order, to the peer's address `to`.
    #[inline]
    pub(super) fn word(word: u64, to: u64, remote_key: u32, frame: u64) -> Request {
        Request {
            operation: IBV_WR_RDMA_WRITE,
            word: Some(word.to_le()),
            from: ptr::null(),
            len: size_of::<u64>(),
            key: 0,
            to,
            remote_key,
            immediate: 0,
            solicited: false,
            has_completion: false,
            frame,
        }
    }
}

/// A queue pair and its objects.
pub(super) struct Queue {
    qp: NonNull<ibv_qp>,
    slots: SendSlots,
    counter: Counter,
    // Dropped after the queue pair that uses them, which `drop` destroys.
    sent: Completions,
    /// Completions of receives.
    pub(super) received: Completions,
    credit_memory: Memory,
    since: Since,
    rounds: u32,
    /// Requested completions that have not come yet.
    awaited: u32,
    packet: u32,
    peer_credit_word: RemoteRegion,
    max_inline: usize,
    pub(super) device: Arc<Device>,
}

// SAFETY: verbs objects may be used by any thread; the pointers are this value's own.
unsafe impl Send for Queue {}

/// The source of a queue pair's receives.
#[derive(Clone, Copy)]
pub(super) enum Receives {
    /// A queue of its own, for this many requests.
    Own(u32),
    /// A shared one; this queue pair may use at most so many.
    Shared(*mut ibv_srq, u32),
}

impl Queue {
    /// Creates a queue pair that is not connected; receives can be posted.
    pub(super) fn create(device: &Arc<Device>, receives: Receives) -> Result<Queue, Cause> {
        let since = device.since();
        let depth = device.depth(DEPTH);
        let (own, most, srq) = match receives {
            Receives::Own(count) => (count, count, ptr::null_mut()),
            // Space for those of a peer that exceeds its window: it harms only itself.
            Receives::Shared(srq, count) => (0, count * 4, srq),
        };
        if depth < 16 {
            return Err(Cause::System(format!("{} has send queues of only {depth} requests", device.name)));
        }
        let sent = Completions::create(device, depth, false)?;
        let received = Completions::create(device, most, true)?;
        let credit_memory =
            Memory::create(device, PAGE + (depth as usize * 8).next_multiple_of(PAGE), Written::ByPeer)?;
        // SAFETY: pointers and numbers, for which zero is valid.
        let mut asked: ibv_qp_init_attr = unsafe { std::mem::zeroed() };
        (asked.send_cq, asked.recv_cq, asked.srq) = (sent.as_ptr(), received.as_ptr(), srq);
        asked.qp_type = IBV_QPT_RC;
        (asked.cap.max_send_wr, asked.cap.max_send_sge, asked.cap.max_inline_data) =
            (depth, 1, device.max_inline);
        (asked.cap.max_recv_wr, asked.cap.max_recv_sge) = (own, u32::from(own != 0));
        // SAFETY: all of it belongs to this device.
        let qp = unsafe { device.verbs.ibv_create_qp(device.domain(), &mut asked) };
        let Some(qp) = NonNull::new(qp) else {
            return Err(Cause::System(exhausted(&device.name, "queue pair", &last_error())));
        };
        let mut packet = [0; 4];
        // Without randomness of the system yet, the number is guessable, which has no other effect.
        let _ = getrandom(&mut packet[..], GetRandomFlags::NONBLOCK);
        let queue = Queue {
            qp,
            slots: SendSlots::new(depth),
            counter: Counter::new(),
            sent,
            received,
            credit_memory,
            since,
            rounds: 0,
            awaited: 0,
            packet: u32::from_le_bytes(packet) >> (32 - BITS),
            peer_credit_word: RemoteRegion::default(),
            max_inline: device.max_inline as usize,
            device: Arc::clone(device),
        };
        // SAFETY: numbers and optional ones, for which zero is valid.
        let mut to: ibv_qp_attr = unsafe { std::mem::zeroed() };
        (to.qp_state, to.port_num, to.pkey_index) =
            (IBV_QPS_INIT, device.port.number, device.port.partition.0);
        to.qp_access_flags = IBV_ACCESS_REMOTE_WRITE;
        queue.modify(
            "made ready",
            &mut to,
            IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS,
        )?;
        Ok(queue)
    }

    /// The endpoint address; the backend fills in its own parts.
    pub(super) fn endpoint_address(&self, receives: u32) -> EndpointAddress {
        let port = &self.device.port;
        EndpointAddress {
            // SAFETY: the queue pair exists.
            queue: unsafe { self.qp.as_ref() }.qp_num,
            packet: self.packet,
            is_ethernet: port.is_ethernet,
            lid: port.lid,
            gid: port.gid.raw,
            is_global: port.is_global,
            mtu: port.mtu,
            partition: port.partition.1,
            in_order: self.device.in_order,
            receives,
            max_frame: 0,
            credit_word: RemoteRegion {
                address: self.credit_memory.start().addr().get() as u64,
                len: 8,
                key: self.credit_memory.remote_key(),
            },
            region: RemoteRegion::default(),
        }
    }

    /// Connects to the peer's queue pair. Does not wait.
    pub(super) fn connect(&mut self, peer: &EndpointAddress) -> Result<(), Cause> {
        peer.meets(&self.device)?;
        let (port, options) = (&self.device.port, &self.device.options);
        // SAFETY: numbers and optional ones, for which zero is valid.
        let mut to: ibv_qp_attr = unsafe { std::mem::zeroed() };
        to.qp_state = IBV_QPS_RTR;
        to.path_mtu = peer.mtu_with(port.mtu);
        (to.dest_qp_num, to.rq_psn) = (peer.queue, peer.packet);
        (to.max_dest_rd_atomic, to.min_rnr_timer) = (1, RNR_TIMER);
        // SAFETY: numbers, for which zero is valid.
        let mut path: ibv_ah_attr = unsafe { std::mem::zeroed() };
        (path.dlid, path.sl, path.port_num) = (peer.lid, options.service_level, port.number);
        // Routers reach a peer in another InfiniBand subnet (the first half of the GID).
        let is_apart = peer.gid[..8] != port.gid.raw[..8];
        if port.is_global || peer.is_global || is_apart {
            path.is_global = 1;
            path.grh.dgid.raw = peer.gid;
            (path.grh.sgid_index, path.grh.hop_limit, path.grh.traffic_class) =
                (port.gid.index, HOPS, options.traffic_class);
        }
        to.ah_attr = path;
        let to_receive = IBV_QP_STATE
            | IBV_QP_AV
            | IBV_QP_PATH_MTU
            | IBV_QP_DEST_QPN
            | IBV_QP_RQ_PSN
            | IBV_QP_MAX_DEST_RD_ATOMIC
            | IBV_QP_MIN_RNR_TIMER;
        self.modify("connected", &mut to, to_receive)?;
        to.qp_state = IBV_QPS_RTS;
        (to.timeout, to.retry_cnt, to.rnr_retry) = (options.timeout, options.retries, RNR_RETRIES);
        (to.sq_psn, to.max_rd_atomic) = (self.packet, 1);
        let to_send = IBV_QP_STATE
            | IBV_QP_TIMEOUT
            | IBV_QP_RETRY_CNT
            | IBV_QP_RNR_RETRY
            | IBV_QP_SQ_PSN
            | IBV_QP_MAX_QP_RD_ATOMIC;
        self.modify("made ready to send", &mut to, to_send)?;
        self.peer_credit_word = peer.credit_word;
        Ok(())
    }

    /// Stops all sending and receiving.
    pub(super) fn shut(&self) {
        // SAFETY: numbers and optional ones, for which zero is valid.
        let mut to: ibv_qp_attr = unsafe { std::mem::zeroed() };
        to.qp_state = IBV_QPS_ERR;
        // The call fails if the device is gone, which has no effect.
        let _ = self.modify("shut", &mut to, IBV_QP_STATE);
    }

    fn modify(&self, what: &str, to: &mut ibv_qp_attr, fields: u32) -> Result<(), Cause> {
        let device = &self.device;
        // SAFETY: the queue pair exists, and the named fields are set.
        match unsafe { device.verbs.ibv_modify_qp(self.qp.as_ptr(), to, fields as c_int) } {
            0 => Ok(()),
            errno => Err(Cause::System(format!(
                "a queue pair of {}:{} ({}) is not {what}: {}: do the GIDs of both ports reach each other? (gid= in FARJUMP_VERBS)",
                device.name,
                device.port.number,
                device.port.gid,
                std::io::Error::from_raw_os_error(errno)
            ))),
        }
    }

    pub(super) fn as_ptr(&self) -> *mut ibv_qp {
        self.qp.as_ptr()
    }

    /// Number of requests that can be posted now.
    #[inline]
    pub(super) fn free_slots(&self) -> usize {
        self.slots.free()
    }

    /// The number of the next request.
    #[inline]
    pub(super) fn next(&self) -> u64 {
        self.slots.next()
    }

    /// All requests below this number are done.
    pub(super) fn done(&self) -> u64 {
        self.slots.done()
    }

    /// The peer's value in the credit word.
    #[inline]
    pub(super) fn returned_by_peer(&self) -> u64 {
        // SAFETY: the first word of registered memory, aligned; the device writes it in one piece.
        let word = unsafe { AtomicU64::from_ptr(self.credit_memory.start().as_ptr().cast()) };
        // Acquire: the peer's actions before its write are visible.
        u64::from_le(word.load(Ordering::Acquire))
    }

    /// A request with the number of receives that were posted again.
    pub(super) fn return_credit(&self, posted: u64) -> Request {
        Request::word(posted, self.peer_credit_word.address, self.peer_credit_word.key, 0)
    }

    /// Posts a request.
    ///
    /// # Safety
    /// As [`Queue::post`]. There is a slot.
    #[inline]
    pub(super) unsafe fn post_one(&mut self, request: &Request) -> Result<(), Cause> {
        debug_assert!(self.free_slots() > 0);
        // SAFETY: pointers, numbers and unions of them, for which zero is valid.
        let (mut wr, mut part): (ibv_send_wr, ibv_sge) = unsafe { std::mem::zeroed() };
        self.fill(request, &mut wr, &mut part);
        self.counter.posted(1, request.len);
        // SAFETY: the request is complete and the only one, its part exists, and the caller keeps the bytes (see
        // Safety).
        unsafe { self.give(&mut wr) }
    }

    /// Posts an operation with immediate data that is solicited, of bytes that travel inside the request
    /// ([`Queue::is_inline`]); a write goes to this address of the peer's, by this key. There is a slot.
    #[inline(always)]
    pub(super) fn post_inline(
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

    /// Posts requests in one list, at most [`CHAIN`] and at most as many as there are slots.
    ///
    /// # Safety
    /// The bytes at `from` of each request must stay unchanged until it is done, or until this returns if
    /// they fit inside the request.
    pub(super) unsafe fn post(&mut self, requests: &[Request]) -> Result<(), Cause> {
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

    /// Takes a slot for a request, and writes it into zeroed `wr` and its bytes' place into `part`.
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

    /// Gives a list of requests to the device.
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

    /// Whether the bytes of a request of `len` bytes travel inside it: then they need no registration, and no
    /// keeping.
    #[inline(always)]
    pub(super) fn is_inline(&self, len: usize) -> bool {
        len <= self.max_inline
    }

    /// Stores a word in registered memory, from which the request with this number sends it.
    fn lay_down(&self, number: u64, word: u64) -> *const u8 {
        let places = (self.credit_memory.len() - PAGE) / size_of::<u64>();
        let at = PAGE / size_of::<u64>() + number as usize % places;
        // SAFETY: a slot behind the first page of the registered memory. It is reused after as many requests
        // as the queue holds.
        unsafe {
            let place = self.credit_memory.start().cast::<u64>().add(at);
            place.write(word);
            place.as_ptr().cast()
        }
    }

    /// Takes completions off the send queue if there may be some: a requested one, or now and then one of a
    /// failed request. An error comes with its frame.
    #[inline]
    pub(super) fn work(&mut self) -> Result<(), (Cause, Option<u64>)> {
        self.rounds += 1;
        if self.awaited == 0 && !self.rounds.is_multiple_of(LOOK_EVERY) { Ok(()) } else { self.look() }
    }

    /// [`Queue::work`] without delay: before sleep, and to learn why receives ended.
    pub(super) fn look(&mut self) -> Result<(), (Cause, Option<u64>)> {
        let mut batch: Batch = [const { std::mem::MaybeUninit::uninit() }; BATCH];
        let taken = self.sent.take(&mut batch).map_err(|cause| (cause, None))?;
        self.counter.completed(taken.len());
        self.awaited = self.awaited.saturating_sub(taken.len() as u32);
        for done in taken {
            if done.status != IBV_WC_SUCCESS {
                let frame = self.slots.frame(done.wr_id);
                return Err((failure(&self.device, done, self.beside()), frame));
            }
            if !self.slots.complete(done.wr_id) {
                let what =
                    format!("{} completed request {}, which is not under way", self.device.name, done.wr_id);
                return Err((Cause::System(what), None));
            }
        }
        if self.rounds >= ROUNDS {
            self.rounds = 0;
            self.check().map_err(|cause| (cause, None))?;
        }
        Ok(())
    }

    /// Checks that the device has reported no fault of itself, its port or this queue pair.
    #[cold]
    pub(super) fn check(&self) -> Result<(), Cause> {
        self.fault().map_or(Ok(()), |what| Err(Cause::System(what)))
    }

    /// The fault in words.
    pub(super) fn fault(&self) -> Option<String> {
        let queues = [self.sent.as_ptr().addr(), self.received.as_ptr().addr()];
        self.device.fault(self.since, &[self.qp.as_ptr().addr(), queues[0], queues[1]])
    }

    /// The explanation beside a failed request: the device's event, or else the present fault of its port. A
    /// request may fail before the device reports why.
    #[cold]
    pub(super) fn beside(&self) -> Option<String> {
        self.fault().or_else(|| self.device.check().err())
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        // SAFETY: not used any more; the objects that it uses are dropped after this. Requests under way end
        // with it. An error has no remedy.
        unsafe { self.device.verbs.ibv_destroy_qp(self.qp.as_ptr()) };
    }
}
