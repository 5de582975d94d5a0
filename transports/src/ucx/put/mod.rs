//! `ucx-put`: writes frames into memory of the peer that UCX allocated.
//!
//! If UCX maps that memory here, on one machine, core writes it by plain stores and calls no UCX for frames. Otherwise
//! a frame is puts, then a fence, then a put of the signal. This uses only lanes that put natively, which both
//! processes prove while they connect (`proof/mod.rs`). Doorbells are active messages without content. The reasons for
//! rejections are in `docs/design/ucx.md`; the address is in `address.rs`.

mod fence;
mod probe;
mod proof;
mod query;
mod reads;
mod region;
mod remote_region;
mod unconnected;
mod write_queue;

use std::os::fd::RawFd;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex};

use farjump_core::frame::MAX_FRAME;
use farjump_core::transport::{
    ArrivalRules, BorrowedFd, Capabilities, Cause, InboxKind, Lender, LocalMemory, OpenRequest, Operation,
    PathInfo, ReadBytes, Reads, RemoteMemory, Transport, TransportError, UnconnectedEndpoint,
};

use crate::executable_alias::ExecutableAlias;
use crate::membarrier;
use crate::ucx::context::Context;
use crate::ucx::worker::TURNS;
use reads::PutLender;
use region::Region;
use unconnected::UnconnectedPut;
use write_queue::{WriteQueue, locked};

/// The backend's name.
pub const NAME: &str = "ucx-put";

/// The backend. It is stateless: the process has one context of UCX for it, and its endpoints have the rest.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Put;

impl Put {
    /// Makes a backend.
    pub const fn new() -> Put {
        Put
    }

    /// Returns its capabilities on this machine.
    ///
    /// # Errors
    /// A sentence for display: the reason why it cannot be used, and the remedy.
    pub fn usable() -> Result<Capabilities, String> {
        probe::write_methods().map(|_| Put.capabilities())
    }
}

impl Transport for Put {
    fn name(&self) -> &str {
        NAME
    }

    fn capabilities(&self) -> Capabilities {
        let mut arrival = ArrivalRules::FENCED | ArrivalRules::CHECKED;
        let maps = probe::write_methods().is_ok_and(|write_methods| write_methods.map);
        arrival.set(ArrivalRules::STORES, maps);
        // Half of the longest ring: a frame of half a ring always fits, whatever precedes it.
        let mut capabilities = Capabilities::new(InboxKind::OneSided, arrival, MAX_FRAME / 2);
        capabilities.in_place = maps;
        capabilities
    }

    fn open(&mut self, request: &OpenRequest) -> Result<Box<dyn UnconnectedEndpoint>, TransportError> {
        let failed = |cause| error(Operation::Open, cause);
        let max_frame = MAX_FRAME / 2;
        if request.max_frame > max_frame {
            return Err(failed(Cause::TooLarge { len: request.max_frame, max: max_frame }));
        }
        Ok(Box::new(UnconnectedPut::open(request).map_err(failed)?))
    }
}

/// The peer's region.
struct PutRemote {
    queue: Arc<Mutex<WriteQueue>>,
    mapped: Option<NonNull<u8>>,
    len: usize,
    no_fence: bool,
}

// SAFETY: the pointer is into a mapping that `queue` keeps.
unsafe impl Send for PutRemote {}

impl PutRemote {
    /// Checks that `len` bytes at `offset` lie in the region. UCX does not: over shared memory it would write
    /// to this process's own memory behind it.
    fn check(&self, offset: usize, len: usize, frame: u64) -> Result<(), TransportError> {
        let region = self.len;
        match offset.checked_add(len) {
            Some(end) if end <= region => Ok(()),
            _ => Err(error(Operation::Put, Cause::OutOfRegion { offset, len, region }).with_frame(frame)),
        }
    }
}

// SAFETY: `Peer::reach` has checked that the pointer is the start of `len` bytes of shared memory, on a page,
// which stay mapped as long as the key in `queue`. That memory does not vanish: System V memory, which UCX
// takes where it can, has one length for its life; docs/security.md covers a peer that shortens a POSIX file.
unsafe impl RemoteMemory for PutRemote {
    fn len(&self) -> usize {
        self.len
    }

    fn mapped(&self) -> Option<NonNull<u8>> {
        self.mapped
    }

    fn put(&mut self, offset: usize, bytes: &[u8], frame: u64) -> Result<(), TransportError> {
        self.check(offset, bytes.len(), frame)?;
        if bytes.is_empty() {
            return Ok(());
        }
        let mut queue = locked(&self.queue);
        if !queue.has_space()? {
            return Err(error(Operation::Put, Cause::Full));
        }
        // SAFETY: `check` has found the range in the region. Core keeps the bytes until the peer has returned
        // credit for them or this value is dropped.
        unsafe { queue.put(offset, bytes.as_ptr(), bytes.len(), frame) }
            .map_err(|cause| error(Operation::Put, cause).with_frame(frame))
    }

    fn put_word(&mut self, offset: usize, word: u64, frame: u64) -> Result<(), TransportError> {
        if !offset.is_multiple_of(size_of::<u64>()) {
            let cause = Cause::Unsupported("a word that is not aligned");
            return Err(error(Operation::Put, cause).with_frame(frame));
        }
        self.check(offset, size_of::<u64>(), frame)?;
        let mut queue = locked(&self.queue);
        if !queue.has_space()? {
            return Err(error(Operation::Put, Cause::Full));
        }
        // SAFETY: `check` has found the word in the region, and `has_space` has returned true just above.
        unsafe { queue.put_word(offset, word, frame) }
            .map_err(|cause| error(Operation::Put, cause).with_frame(frame))
    }

    fn fence(&mut self) -> Result<(), TransportError> {
        match locked(&self.queue).pass_fence() {
            Ok(true) => Ok(()),
            Ok(false) => Err(error(Operation::Fence, Cause::Full)),
            Err(cause) => Err(error(Operation::Fence, cause)),
        }
    }

    fn progress(&mut self) -> Result<(), TransportError> {
        locked(&self.queue).work().map(|_| ())
    }

    fn wake_peer(&mut self) -> Result<(), TransportError> {
        locked(&self.queue).wake_peer().map_err(|cause| error(Operation::Wake, cause))
    }

    fn store_load_ordered(&self) -> bool {
        self.no_fence
    }

    fn path_info(&self) -> PathInfo {
        let lanes = locked(&self.queue).lanes();
        let note = match self.mapped {
            Some(_) => {
                "the peer's mailbox is mapped in this process: frames are plain stores, UCX carries doorbells alone"
            }
            None => {
                "frames are puts that the device carries out, and a fence before each signal; the peer does nothing for them"
            }
        };
        PathInfo::new(lanes.in_words(), vec![note.to_owned()])
    }

    fn reads(&mut self) -> Option<&mut dyn Reads> {
        // Memory of the same machine is mapped, and UCX would reach other memory by a copy that the peer makes.
        if self.mapped.is_some() { None } else { Some(self) }
    }
}

impl Reads for PutRemote {
    fn start(&mut self, key: &[u8], len: usize) -> Result<(), TransportError> {
        locked(&self.queue).start_read(key, len).map_err(|cause| error(Operation::Read, cause))
    }

    fn poll(&mut self) -> Result<Option<ReadBytes>, TransportError> {
        locked(&self.queue).poll_read().map_err(|cause| error(Operation::Read, cause))
    }
}

/// The region of this process.
struct PutLocal {
    /// The executable alias of that memory, once requested.
    alias: Option<ExecutableAlias>,
    region: Region,
    /// The worker's descriptor, open as long as the worker.
    descriptor: RawFd,
    queue: Arc<Mutex<WriteQueue>>,
    /// True if the two processes map each other's memory, so that each sees the other's stores in order.
    is_mapped: bool,
    /// True if the peer has no fence between storing a frame and checking whether this process sleeps.
    peer_has_no_fence: bool,
}

// SAFETY: the region keeps its memory, on a page and zero at first, until dropped; UCX admits key holders
// only.
unsafe impl LocalMemory for PutLocal {
    fn base(&self) -> NonNull<u8> {
        self.region.base()
    }

    fn len(&self) -> usize {
        self.region.len()
    }

    fn executable(&mut self) -> Result<NonNull<u8>, TransportError> {
        // If UCX shares no memory, it takes private memory of the system, which has no second mapping.
        if !probe::write_methods().is_ok_and(|write_methods| write_methods.map) {
            return Err(error(
                Operation::Open,
                Cause::Unsupported("a second mapping of memory that is not shared"),
            ));
        }
        // SAFETY: a region is whole pages of one mapping; `ways.map` above makes it a shared one.
        unsafe { ExecutableAlias::kept(&mut self.alias, self.region.base(), self.region.len(), None) }
            .map_err(|cause| error(Operation::Open, cause))
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        // SAFETY: the worker keeps it open (`Worker::descriptor`), and `queue` keeps the worker.
        Some(unsafe { BorrowedFd::borrow_raw(self.descriptor) })
    }

    fn before_sleep(&mut self) -> Result<bool, TransportError> {
        // A frame could overtake a put of "asleep" under way, and its sender would then send no doorbell.
        if !self.is_mapped {
            return Ok(false);
        }
        let mut queue = locked(&self.queue);
        for _ in 0..TURNS {
            // UCX sends pending puts only when it is called. Read also before that call: the peer may have fallen
            // asleep before a put was done, and core has not polled since.
            let was_sending = queue.is_sending();
            while queue.work()? {}
            let is_doorbell_pending =
                queue.is_doorbell_pending().map_err(|cause| error(Operation::Wake, cause))?;
            if was_sending || is_doorbell_pending || queue.is_sending() {
                return Ok(false);
            }
            // Armed before core polls for a frame, so a doorbell after that poll wakes this process.
            let armed = queue.arm().map_err(|cause| error(Operation::Wake, cause))?;
            // An armed RDMA device signals later events, but not those since the last poll.
            if armed && !queue.work()? {
                drop(queue);
                return Ok(membarrier::between_sleeping_and_looking(self.peer_has_no_fence));
            }
        }
        Ok(false)
    }

    fn after_sleep(&mut self) -> Result<(), TransportError> {
        let mut queue = locked(&self.queue);
        // At most as many doorbells as one poll finds: a peer that sends them without end cannot keep this process
        // here.
        for _ in 0..TURNS {
            if !queue.work()? {
                break;
            }
        }
        Ok(())
    }

    fn lender(&self) -> Option<Box<dyn Lender>> {
        let context = Context::for_memory().ok().filter(|_| !self.is_mapped)?;
        Some(Box::new(PutLender { context }))
    }
}

fn error(operation: Operation, cause: Cause) -> TransportError {
    TransportError::new(NAME, operation, cause)
}

#[cfg(test)]
mod tests;
