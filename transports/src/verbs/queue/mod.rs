//! A connected queue pair (RC), the accounts of its send queue, and the credit words beside it.
//!
//! These are a little registered memory: a word in which the peer states how many receives it has posted
//! again, and space for words to send on devices without inline data.

mod posting;

use std::ffi::c_int;
use std::ptr::{self, NonNull};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use farjump_core::transport::Cause;
use farjump_rdma_sys::{
    IBV_ACCESS_REMOTE_READ, IBV_ACCESS_REMOTE_WRITE, IBV_QP_ACCESS_FLAGS, IBV_QP_AV, IBV_QP_DEST_QPN,
    IBV_QP_MAX_DEST_RD_ATOMIC, IBV_QP_MAX_QP_RD_ATOMIC, IBV_QP_MIN_RNR_TIMER, IBV_QP_PATH_MTU,
    IBV_QP_PKEY_INDEX, IBV_QP_PORT, IBV_QP_RETRY_CNT, IBV_QP_RNR_RETRY, IBV_QP_RQ_PSN, IBV_QP_SQ_PSN,
    IBV_QP_STATE, IBV_QP_TIMEOUT, IBV_QPS_ERR, IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS, IBV_QPT_RC,
    IBV_WC_SUCCESS, IBV_WR_RDMA_WRITE, ibv_ah_attr, ibv_qp, ibv_qp_attr, ibv_qp_init_attr, ibv_srq,
    ibv_wr_opcode,
};
use rustix::rand::{GetRandomFlags, getrandom};

use super::address::{BITS, EndpointAddress, RemoteRegion};
use super::completions::{BATCH, Batch, Completions, failure};
use super::counters::Counter;
use super::device::{Device, Since};
use super::error::{exhausted, last_error};
use super::memory::{Memory, PAGE, Use};
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
            Memory::create(device, PAGE + (depth as usize * 8).next_multiple_of(PAGE), Use::WrittenByPeer)?;
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
        to.qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
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
