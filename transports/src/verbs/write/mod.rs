//! `verbs-write`: writes frames into registered memory of the peer, without any action of the peer.
//!
//! A put that starts behind the first word of a line leaves space for a signal there. The endpoint holds it until the
//! word arrives, and posts both as one list, which a queue pair executes in order. It posts any other put at once.
//! `docs/design/verbs.md` has the listed arrival rules, the accounting of receives for writes with immediate data, and
//! the conditions for a sound sleep.

mod queue;
mod receives;

use std::os::fd::{AsRawFd, RawFd};
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use farjump_core::transport::{
    Address, ArrivalRules, BorrowedFd, Capabilities, Cause, Endpoint, InboxKind, Lender, LocalAddress,
    LocalMemory, OpenRequest, Operation, PathInfo, ReadBytes, Reads, RemoteMemory, Transport, TransportError,
    UnconnectedEndpoint,
};

use crate::executable_alias::ExecutableAlias;
use crate::verbs::Chosen;
use crate::verbs::device::Device;
use crate::verbs::device::address::{Backend, EndpointAddress, RemoteRegion};
use crate::verbs::device::domain::Domain;
use crate::verbs::endpoints::{OfferedEndpoints, PortEndpoint};
use crate::verbs::memory::{Memory, Use};
use crate::verbs::options::Options;
use crate::verbs::queue::Queue;
use crate::verbs::reads::DeviceLender;
use queue::{Failed, WriteQueue, max_frame};
use receives::Window;

/// The backend's name.
pub const NAME: &str = "verbs-write";

/// Receives kept posted, for writes with immediate data and for wake-ups.
const RECEIVES: u32 = 256;

/// The backend: frames over one port of a device.
#[derive(Default)]
pub struct Write {
    chosen: Chosen,
}

impl Write {
    /// Makes a backend for the device of [`Options::of_process`].
    pub fn new() -> Write {
        Write::default()
    }

    /// Makes a backend for this device.
    pub fn with_options(options: Options) -> Write {
        Write { chosen: Chosen::by(Some(options)) }
    }

    /// The backend's capabilities on this machine.
    ///
    /// # Errors
    /// A sentence with the reason why it does not work, and a remedy.
    pub fn usable() -> Result<Capabilities, String> {
        Chosen::default().device().map(|device| capabilities(Some(&device)))
    }
}

fn capabilities(device: Option<&Device>) -> Capabilities {
    let mut arrival = ArrivalRules::FENCED | ArrivalRules::WRITE_IMM | ArrivalRules::CHECKED;
    arrival.set(ArrivalRules::IN_ORDER, device.is_some_and(|device| device.in_order));
    let mut capabilities = Capabilities::new(InboxKind::OneSided, arrival, max_frame(device));
    capabilities.in_place = true;
    capabilities
}

impl Transport for Write {
    fn name(&self) -> &str {
        NAME
    }

    fn capabilities(&self) -> Capabilities {
        capabilities(self.chosen.known().as_deref())
    }

    fn open(&mut self, request: &OpenRequest) -> Result<Box<dyn UnconnectedEndpoint>, TransportError> {
        let failed = |cause| error(Operation::Open, cause);
        let device = self.chosen.device().map_err(|why| failed(Cause::System(why)))?;
        let max = max_frame(Some(&device));
        if request.max_frame > max {
            return Err(failed(Cause::TooLarge { len: request.max_frame, max }));
        }
        let wished = self.chosen.wished().map_err(|why| failed(Cause::System(why)))?;
        let end = UnconnectedWrite::open(&device, request.region_len).map_err(failed)?;
        Ok(Box::new(OfferedEndpoints::new(end, wished)))
    }
}

/// An unconnected endpoint on one port.
struct UnconnectedWrite {
    // Dropped in this order: the queue pair before the region that it writes.
    queue: Queue,
    region: Memory,
    window: Window,
    address: EndpointAddress,
}

impl UnconnectedWrite {
    fn open(device: &Arc<Device>, len: usize) -> Result<UnconnectedWrite, Cause> {
        let domain = Domain::create(device)?;
        let region = Memory::create(&domain, len, Use::WrittenByPeer)?;
        let receives = device.depth(RECEIVES);
        let queue = Queue::create(&domain, receives)?;
        let window = Window::of(receives);
        window.post(&queue, receives)?;
        let mut address = queue.endpoint_address(receives);
        address.region = RemoteRegion {
            address: region.start().addr().get() as u64,
            len: region.len() as u64,
            key: region.remote_key(),
        };
        Ok(UnconnectedWrite { queue, region, window, address })
    }
}

impl PortEndpoint for UnconnectedWrite {
    const BACKEND: Backend = Backend::Write;

    fn on(&self, device: &Arc<Device>) -> Result<Self, Cause> {
        UnconnectedWrite::open(device, self.region.len())
    }

    fn queue(&self) -> &Queue {
        &self.queue
    }

    fn address(&self) -> EndpointAddress {
        self.address.clone()
    }
}

impl UnconnectedEndpoint for OfferedEndpoints<UnconnectedWrite> {
    fn address(&self) -> LocalAddress<'_> {
        LocalAddress { bytes: self.describe(), descriptors: Vec::new() }
    }

    fn arrival_with(&mut self, peer: &[u8]) -> Result<ArrivalRules, TransportError> {
        let peer_address = self.adapt_to(peer).map_err(|(operation, cause)| error(operation, cause))?;
        let mut rules = ArrivalRules::all();
        // The receiver's device guarantees the order, and each peer receives.
        rules.set(ArrivalRules::IN_ORDER, peer_address.in_order && self.first().queue.device.in_order);
        Ok(rules)
    }

    fn connect(self: Box<Self>, peer: Address, _deadline_ms: u32) -> Result<Endpoint, TransportError> {
        let failed = |cause| error(Operation::Connect, cause);
        if !peer.descriptors.is_empty() {
            return Err(failed(Cause::Address("descriptors came with it, and it has none".to_owned())));
        }
        let (own, peer_address) = self.pair_with(&peer.bytes).map_err(failed)?;
        let UnconnectedWrite { mut queue, region, mut window, .. } = own;
        queue.connect(&peer_address).map_err(failed)?;
        window.open(peer_address.receives);
        let descriptor = queue.received.descriptor().map(|descriptor| descriptor.as_raw_fd());
        // Decoding the address has checked the length.
        let len = peer_address.region.len as usize;
        let writes = WriteQueue::new(queue, window, peer_address.region);
        let writes = Arc::new(Mutex::new(writes));
        Ok(Endpoint::OneSided {
            local: Box::new(WriteLocal {
                alias: None,
                writes: Arc::clone(&writes),
                region,
                descriptor,
                counts: false,
            }),
            remote: Box::new(WriteRemote { writes, len }),
        })
    }
}

fn locked(writes: &Mutex<WriteQueue>) -> MutexGuard<'_, WriteQueue> {
    // A panic leaves nothing inconsistent: none occurs between two steps that belong together.
    writes.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The peer's region.
struct WriteRemote {
    writes: Arc<Mutex<WriteQueue>>,
    len: usize,
}

impl WriteRemote {
    /// Checks that `len` bytes at `offset` lie in the region. The peer's device checks too, and shuts the
    /// link.
    fn check(&self, offset: usize, len: usize, frame: u64) -> Result<(), TransportError> {
        let region = self.len;
        match offset.checked_add(len) {
            Some(end) if end <= region => Ok(()),
            _ => Err(error(Operation::Put, Cause::OutOfRegion { offset, len, region }).with_frame(frame)),
        }
    }
}

// SAFETY: the region is not mapped. Staging memory is mapped, zero and page-aligned, and kept by `writes`, which this
// value keeps.
unsafe impl RemoteMemory for WriteRemote {
    fn len(&self) -> usize {
        self.len
    }

    fn put(&mut self, offset: usize, bytes: &[u8], frame: u64) -> Result<(), TransportError> {
        self.check(offset, bytes.len(), frame)?;
        if bytes.is_empty() {
            return Ok(());
        }
        let mut writes = locked(&self.writes);
        let request = writes.request(offset, bytes.as_ptr(), bytes.len(), frame);
        writes.put(request, None).map_err(|failed| of_frame(Operation::Put, failed))
    }

    fn put_word(&mut self, offset: usize, word: u64, frame: u64) -> Result<(), TransportError> {
        if !offset.is_multiple_of(size_of::<u64>()) {
            let cause = Cause::Unsupported("a word that is not aligned");
            return Err(error(Operation::Put, cause).with_frame(frame));
        }
        self.check(offset, size_of::<u64>(), frame)?;
        locked(&self.writes).put_word(offset, word, frame).map_err(|failed| of_frame(Operation::Put, failed))
    }

    fn fence(&mut self) -> Result<(), TransportError> {
        // A queue pair executes writes in the order of their posts.
        Ok(())
    }

    fn put_with_completion(&mut self, offset: usize, bytes: &[u8], frame: u64) -> Result<(), TransportError> {
        self.check(offset, bytes.len(), frame)?;
        let put = locked(&self.writes).put_frame(offset, bytes, frame);
        put.map_err(|failed| of_frame(Operation::Put, failed))
    }

    fn progress(&mut self) -> Result<(), TransportError> {
        locked(&self.writes).progress().map_err(|failed| of_frame(Operation::Progress, failed))
    }

    fn wake_peer(&mut self) -> Result<(), TransportError> {
        locked(&self.writes).wake_peer().map_err(|failed| of_frame(Operation::Wake, failed))
    }

    fn path_info(&self) -> PathInfo {
        let writes = locked(&self.writes);
        crate::verbs::path_info(
            &writes.queue.device,
            "frames are writes that the devices carry out; the peer's processor does nothing for them",
        )
    }

    fn staging(&mut self, len: usize) -> Result<Option<NonNull<u8>>, TransportError> {
        let mut writes = locked(&self.writes);
        let domain = Arc::clone(&writes.queue.domain);
        let staging =
            Memory::create(&domain, len, Use::Received).map_err(|cause| error(Operation::Connect, cause))?;
        Ok(Some(writes.staging.insert(staging).start()))
    }

    fn reads(&mut self) -> Option<&mut dyn Reads> {
        Some(self)
    }
}

impl Reads for WriteRemote {
    fn start(&mut self, key: &[u8], len: usize) -> Result<(), TransportError> {
        let WriteQueue { queue, reads, .. } = &mut *locked(&self.writes);
        reads.start(queue, key, len).map_err(|cause| error(Operation::Read, cause))
    }

    fn poll(&mut self) -> Result<Option<ReadBytes>, TransportError> {
        let WriteQueue { queue, reads, .. } = &mut *locked(&self.writes);
        reads.poll(queue).map_err(|cause| error(Operation::Read, cause))
    }
}

/// This process's region.
struct WriteLocal {
    /// The executable alias, once requested.
    alias: Option<ExecutableAlias>,
    // Dropped before the region, because this may be the last owner of the queue pair.
    writes: Arc<Mutex<WriteQueue>>,
    region: Memory,
    /// The descriptor of the queue pair's completions, open as long as they exist.
    descriptor: Option<RawFd>,
    /// True if completions count frames, each of which wakes a sleeper.
    counts: bool,
}

// SAFETY: the region keeps its memory, page-aligned and zero at first, until it is dropped. Only the peer has its key,
// and no other queue pair of this device's domain gets it.
unsafe impl LocalMemory for WriteLocal {
    fn base(&self) -> NonNull<u8> {
        self.region.start()
    }

    fn len(&self) -> usize {
        self.region.len()
    }

    fn executable(&mut self) -> Result<NonNull<u8>, TransportError> {
        // SAFETY: registered memory is whole pages of one shared mapping.
        unsafe { ExecutableAlias::kept(&mut self.alias, self.region.start(), self.region.len(), None) }
            .map_err(|cause| error(Operation::Open, cause))
    }

    fn completions(&mut self) -> Result<u64, TransportError> {
        self.counts = true;
        let mut writes = locked(&self.writes);
        writes.receive().map_err(|failed| of_frame(Operation::Receive, failed))?;
        Ok(writes.window.frames())
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        // SAFETY: the completions keep it open, and `writes` keeps them.
        self.descriptor.map(|descriptor| unsafe { BorrowedFd::borrow_raw(descriptor) })
    }

    fn before_sleep(&mut self) -> Result<bool, TransportError> {
        let failed = |failed| of_frame(Operation::Wake, failed);
        let mut writes = locked(&self.writes);
        writes.queue.check().map_err(|cause| error(Operation::Wake, cause))?;
        writes.queue.look().map_err(failed)?;
        // A plain write of a frame wakes no peer. A frame whose sender has not yet seen that this process sleeps may
        // still be under way, because nothing orders the two directions.
        if !self.counts {
            writes.receive().map_err(failed)?;
            return Ok(false);
        }
        writes.progress().map_err(failed)?;
        if !writes.is_idle() {
            return Ok(false);
        }
        writes.queue.received.arm().map_err(|cause| error(Operation::Wake, cause))?;
        // No event reports earlier completions; core polls for their frames after this.
        writes.receive().map_err(failed)?;
        // A peer without the number of returned receives could wait for it.
        Ok(writes.window.due().is_none())
    }

    fn after_sleep(&mut self) -> Result<(), TransportError> {
        let mut writes = locked(&self.writes);
        writes.queue.received.disarm();
        writes.receive().map_err(|failed| of_frame(Operation::Wake, failed))
    }

    fn lender(&self) -> Option<Box<dyn Lender>> {
        Some(DeviceLender::boxed(&locked(&self.writes).queue.domain, NAME))
    }
}

fn error(operation: Operation, cause: Cause) -> TransportError {
    TransportError::new(NAME, operation, cause)
}

#[cold]
fn of_frame(operation: Operation, (cause, frame): Failed) -> TransportError {
    let error = error(operation, cause);
    match frame {
        Some(frame) => error.with_frame(frame),
        None => error,
    }
}

#[cfg(test)]
mod tests;
