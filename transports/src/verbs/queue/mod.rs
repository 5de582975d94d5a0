//! A connected queue pair (RC), the accounts of its send queue, and the credit words beside it.
//!
//! The credit words are a little registered memory. It has a word in which the peer states the number of receives that
//! it has posted again. It also has space for words to send on devices without inline data.

mod outage;
mod posting;

use std::ptr::{self, NonNull};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use farjump_core::transport::{Cause, REGION_UNIT};
use farjump_rdma_sys::{IBV_WC_SUCCESS, IBV_WR_RDMA_WRITE, ibv_qp, ibv_wr_opcode};
use rustix::rand::{GetRandomFlags, getrandom};

use super::completions::{BATCH, Batch, Completions, failure};
use super::counters::Counter;
use super::device::Device;
use super::error::{exhausted, last_error};
use super::memory::{Memory, Use};
use super::send_slots::SendSlots;
use crate::verbs::device::address::{BITS, EndpointAddress, RemoteRegion};
use crate::verbs::device::domain::Domain;
use crate::verbs::device::events::Since;
use crate::verbs::device::pair::{self, Capacities, Change, DEPTH};
use outage::Outage;

/// Requests posted at a time.
pub(super) const CHAIN: usize = 4;
/// Rounds of progress between polls for unrequested completions, which only failed requests have. A power of two.
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
    /// True if it is solicited, which wakes a peer that waits.
    pub(super) solicited: bool,
    /// Whether it requests a completion.
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
    // Dropped after the queue pair that uses these completions, which `drop` destroys.
    sent: Completions,
    /// Completions of receives.
    pub(super) received: Completions,
    credit_memory: Memory,
    since: Since,
    outage: Outage,
    rounds: u32,
    /// Number of requested completions that have not arrived.
    awaited: u32,
    packet: u32,
    peer_credit_word: RemoteRegion,
    max_inline: usize,
    pub(super) device: Arc<Device>,
    // Dropped after everything made in the domain.
    pub(super) domain: Arc<Domain>,
}

// SAFETY: verbs objects may be used by any thread; the pointers are this value's own.
unsafe impl Send for Queue {}

impl Queue {
    /// Creates an unconnected queue pair, to which `receives` receives can be posted.
    pub(super) fn create(domain: &Arc<Domain>, receives: u32) -> Result<Queue, Cause> {
        let device = domain.device();
        let since = device.since();
        let depth = device.depth(DEPTH);
        if depth < 16 {
            return Err(Cause::System(format!("{} has send queues of only {depth} requests", device.name)));
        }
        let sent = Completions::create(device, depth, false)?;
        let received = Completions::create(device, receives, true)?;
        let words = (depth as usize * 8).next_multiple_of(REGION_UNIT);
        let credit_memory = Memory::create(domain, REGION_UNIT + words, Use::WrittenByPeer)?;
        let asked = Capacities { depth, receives, max_inline: device.max_inline };
        // SAFETY: the domain and both completion queues belong to this device.
        let created =
            unsafe { asked.create(device.verbs, domain.as_ptr(), [sent.as_ptr(), received.as_ptr()]) };
        let (qp, max_inline) =
            created.ok_or_else(|| Cause::System(exhausted(&device.name, "queue pair", &last_error())))?;
        let mut packet = [0; 4];
        // If the system has no randomness yet, the number is guessable, which has no other effect.
        let _ = getrandom(&mut packet[..], GetRandomFlags::NONBLOCK);
        let queue = Queue {
            qp,
            slots: SendSlots::new(depth),
            counter: Counter::new(),
            sent,
            received,
            credit_memory,
            since,
            outage: Outage::new(since),
            rounds: 0,
            awaited: 0,
            packet: u32::from_le_bytes(packet) >> (32 - BITS),
            peer_credit_word: RemoteRegion::default(),
            max_inline: max_inline as usize,
            device: Arc::clone(device),
            domain: Arc::clone(domain),
        };
        queue.modify("made ready", pair::ready(&device.port))?;
        Ok(queue)
    }

    /// The endpoint address; the backend fills in its own parts.
    pub(super) fn endpoint_address(&self, receives: u32) -> EndpointAddress {
        // SAFETY: the queue pair exists.
        let queue = unsafe { self.qp.as_ref() }.qp_num;
        EndpointAddress {
            in_order: self.device.in_order,
            receives,
            credit_word: RemoteRegion {
                address: self.credit_memory.start().addr().get() as u64,
                len: 8,
                key: self.credit_memory.remote_key(),
            },
            ..EndpointAddress::of(&self.device.port, queue, self.packet)
        }
    }

    /// Connects to the peer's queue pair. Does not wait.
    pub(super) fn connect(&mut self, peer: &EndpointAddress) -> Result<(), Cause> {
        peer.check_device(&self.device)?;
        let (port, options) = (&self.device.port, &self.device.options);
        self.modify("connected", pair::connected(port, options, peer)?)?;
        self.modify("made ready to send", pair::sending(options, self.packet))?;
        // SAFETY: the queue pair exists.
        if self.device.in_order && !unsafe { self.device.promises_order(self.qp) } {
            return Err(Cause::System(format!(
                "{} places the bytes of this link's writes out of order, though it promised otherwise of another queue pair: \
                 choose another device (FARJUMP_DEVICE), or verbs-send",
                self.device.name
            )));
        }
        self.peer_credit_word = peer.credit_word;
        Ok(())
    }

    fn modify(&self, what: &str, (mut to, fields): Change) -> Result<(), Cause> {
        let device = &self.device;
        // SAFETY: the queue pair exists, and the named fields are set.
        match unsafe { device.verbs.ibv_modify_qp(self.qp.as_ptr(), &mut to, fields) } {
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

    /// A request with the number of receives posted again.
    pub(super) fn return_credit(&self, posted: u64) -> Request {
        Request::word(posted, self.peer_credit_word.address, self.peer_credit_word.key, 0)
    }

    /// A request that writes nothing, with a completion: at that, all requests before it have arrived.
    pub(super) fn nothing(&self) -> Request {
        let RemoteRegion { address, key, .. } = self.peer_credit_word;
        Request { word: None, len: 0, has_completion: true, ..Request::word(0, address, key, 0) }
    }

    /// Takes completions off the send queue if there may be some: a requested one, or at intervals one of a failed
    /// request. An error includes its frame.
    #[inline]
    pub(super) fn work(&mut self) -> Result<(), (Cause, Option<u64>)> {
        self.rounds += 1;
        if self.awaited == 0 && !self.rounds.is_multiple_of(LOOK_EVERY) { Ok(()) } else { self.look() }
    }

    /// [`Queue::work`] without delay: before sleep, and to find the reason why receives ended.
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

    /// The fault as text.
    pub(super) fn fault(&self) -> Option<String> {
        let queues = [self.sent.as_ptr().addr(), self.received.as_ptr().addr()];
        self.device.fault(self.since, &[self.qp.as_ptr().addr(), queues[0], queues[1]])
    }

    /// The explanation beside a failed request: the device's event, or else the present fault of its port, or else an
    /// earlier one. A request may fail before the device reports the reason.
    #[cold]
    pub(super) fn beside(&self) -> Option<String> {
        let device = &self.device;
        self.fault().or_else(|| device.why_severed()).or_else(|| device.explanation(self.since))
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        if self.device.is_parents() {
            return;
        }
        // SAFETY: not used again; the objects that it uses are dropped after this. Requests under way end with it. An
        // error has no remedy.
        unsafe { self.device.verbs.ibv_destroy_qp(self.qp.as_ptr()) };
    }
}
