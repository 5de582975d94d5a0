//! `verbs-write`: frames are written into registered memory of the peer's, and it does nothing for them.
//!
//! A put that starts behind the first word of a line leaves room for a signal there: it is held until the word comes, and both
//! are posted as one list, in which a queue pair keeps the order. Any other put is posted at once. Which arrival rules are
//! listed, how the receives of writes with immediate data are accounted for, and when a sleeper sleeps soundly is in
//! `docs/decisions/verbs.md`.

use std::os::fd::{FromRawFd, OwnedFd};
use std::ptr::{self, NonNull};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use farjump_core::frame::{LINE, MAX_FRAME};
use farjump_core::transport::{
    Address, ArrivalRules, Capabilities, Cause, Descriptor, Endpoint, FaultsNoticed, InboxKind, LocalMemory,
    OpenRequest, Opening, Operation, RemoteMemory, Route, Threading, Transport, TransportError, WakeSource,
};
use farjump_rdma_sys::{IBV_WR_RDMA_WRITE, IBV_WR_RDMA_WRITE_WITH_IMM};

use super::Chosen;
use super::address::{Backend, Place, Told};
use super::device::Device;
use super::memory::{Memory, PAGE, Registration, Written};
use super::options::Options;
use super::queue::{CHAIN, DEPTH, Queue, Receives, Request};
use super::receives::{FRAME, RING, Window};
use crate::twin::Twin;

/// The backend's name.
pub const NAME: &str = "verbs-write";

/// Receives that are kept posted, for writes with immediate data and for doorbells.
const RECEIVES: u32 = 256;

/// The backend: frames over one port of a device.
#[derive(Default)]
pub struct Write {
    chosen: Chosen,
}

impl Write {
    /// A backend that uses the device which [`Options::of_process`] says.
    pub fn new() -> Write {
        Write::default()
    }

    /// One that uses this device.
    pub fn with_options(options: Options) -> Write {
        Write { chosen: Chosen::by(Some(options)) }
    }

    /// Whether it works on this machine: what it can do, or why it cannot and the mend.
    ///
    /// # Errors
    /// A sentence for people.
    pub fn usable() -> Result<Capabilities, String> {
        Chosen::default().device().map(|device| capabilities(Some(&device)))
    }
}

/// Half of the longest ring: a frame of half a ring always finds room in it, whatever lies before. And as many operations as a
/// quarter of a send queue, so that it always finds room there.
fn max_frame(device: Option<&Device>) -> usize {
    let posted = device
        .map_or(usize::MAX, |device| device.max_message().saturating_mul(device.depth(DEPTH) as usize / 4));
    posted.min(MAX_FRAME / 2)
}

fn capabilities(device: Option<&Device>) -> Capabilities {
    let mut arrival = ArrivalRules::FENCED | ArrivalRules::WRITE_IMM | ArrivalRules::CHECKED;
    arrival.set(ArrivalRules::IN_ORDER, device.is_some_and(|device| device.in_order));
    let mut capabilities = Capabilities::new(InboxKind::OneSided, arrival, max_frame(device));
    capabilities.max_inline = device.map_or(0, |device| device.max_inline as usize);
    capabilities.alignment = PAGE;
    // That a peer died shows only at the next write to it.
    capabilities.faults = FaultsNoticed::LINK_DOWN | FaultsNoticed::REMOTE_ACCESS;
    capabilities.wake = WakeSource::Descriptor;
    capabilities.threading = Threading::PerEndpoint;
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

    fn open(&mut self, request: &OpenRequest) -> Result<Box<dyn Opening>, TransportError> {
        let failed = |cause| error(Operation::Open, cause);
        let device = self.chosen.device().map_err(|why| failed(Cause::System(why)))?;
        let max = max_frame(Some(&device));
        if request.max_frame > max {
            return Err(failed(Cause::TooLarge { len: request.max_frame, max }));
        }
        Ok(Box::new(WriteOpening::open(&device, request.region_len).map_err(failed)?))
    }
}

/// One end before the peer's address is known.
struct WriteOpening {
    // The queue pair before the region that it is written into through.
    queue: Queue,
    region: Memory,
    window: Window,
    address: Vec<u8>,
}

impl WriteOpening {
    fn open(device: &Arc<Device>, len: usize) -> Result<WriteOpening, Cause> {
        let region = Memory::create(device, len, Written::ByPeer)?;
        let receives = device.depth(RECEIVES);
        let queue = Queue::create(device, Receives::Own(receives))?;
        let window = Window::of(receives);
        window.post(&queue, receives)?;
        let mut told = queue.told(receives);
        told.region = Place {
            address: region.start().addr().get() as u64,
            len: region.len() as u64,
            key: region.remote_key(),
        };
        let address = told.to_bytes(Backend::Write)?;
        Ok(WriteOpening { queue, region, window, address })
    }
}

impl Opening for WriteOpening {
    fn address(&self) -> Address {
        Address { bytes: self.address.clone(), descriptors: Vec::new() }
    }

    fn arrival_with(&mut self, peer: &[u8]) -> Result<ArrivalRules, TransportError> {
        let told =
            Told::from_bytes(peer, Backend::Write).map_err(|cause| error(Operation::Connect, cause))?;
        let mut rules = ArrivalRules::all();
        // The receiver's device promises it, and there is a receiver on each side.
        rules.set(ArrivalRules::IN_ORDER, told.in_order && self.queue.device.in_order);
        Ok(rules)
    }

    fn connect(mut self: Box<Self>, peer: Address, _deadline_ms: u32) -> Result<Endpoint, TransportError> {
        let failed = |cause| error(Operation::Connect, cause);
        for descriptor in &peer.descriptors {
            // SAFETY: the descriptors of an address that is given to `connect` are the backend's to close.
            drop(unsafe { OwnedFd::from_raw_fd(descriptor.0) });
        }
        if !peer.descriptors.is_empty() {
            return Err(failed(Cause::Address("descriptors came with it, and it has none".to_owned())));
        }
        let told = Told::from_bytes(&peer.bytes, Backend::Write).map_err(failed)?;
        self.queue.connect(&told).map_err(failed)?;
        let WriteOpening { queue, region, mut window, .. } = *self;
        window.open(told.receives);
        let descriptor = queue.received.descriptor();
        // Checked when the address was read.
        let len = told.region.len as usize;
        let works = Works {
            queue,
            window,
            region: told.region,
            held: None,
            lent: Vec::new(),
            ring_due: false,
            staging: None,
        };
        let works = Arc::new(Mutex::new(works));
        Ok(Endpoint::OneSided {
            local: Box::new(WriteLocal {
                twin: None,
                works: Arc::clone(&works),
                region,
                descriptor,
                counts: false,
            }),
            remote: Box::new(WriteRemote { works, len }),
        })
    }
}

/// Memory that was registered for one put.
struct Lent {
    /// The request that reads it last.
    until: u64,
    _registration: Registration,
}

/// What both halves of an end need.
struct Works {
    // Dropped in this order: the queue pair before what it reads.
    queue: Queue,
    window: Window,
    /// The peer's region.
    region: Place,
    /// A put that waits for the word that goes before it.
    held: Option<Request>,
    /// Oldest first.
    lent: Vec<Lent>,
    /// A ring that found no room.
    ring_due: bool,
    /// Where core lays out frames.
    staging: Option<Memory>,
}

// SAFETY: the pointers of what is held are to bytes that core keeps; all else is its own.
unsafe impl Send for Works {}

/// Why a call came to nothing, and the frame that it concerns.
type Failed = (Cause, Option<u64>);

fn full() -> Failed {
    (Cause::Full, None)
}

impl Works {
    /// A write of `len` bytes at `from` to `offset` of the peer's region.
    fn request(&self, offset: usize, from: *const u8, len: usize, frame: u64) -> Request {
        Request {
            operation: IBV_WR_RDMA_WRITE,
            word: None,
            from,
            len,
            key: 0,
            to: self.region.address + offset as u64,
            remote_key: self.region.key,
            told: 0,
            solicited: false,
            tells: false,
            frame,
        }
    }

    /// Has the device know the memory that `request` is of.
    fn register(&mut self, request: &mut Request) -> Result<(), Failed> {
        if request.len <= self.queue.device.max_inline as usize {
            return Ok(());
        }
        if let Some(staging) = &self.staging
            && staging.holds(request.from, request.len)
        {
            request.key = staging.local_key();
            return Ok(());
        }
        // Whoever puts from elsewhere pays for it: middleware that holds frames back.
        // SAFETY: core keeps the bytes until the peer returned credit for them, which is after the put, or until this value is
        // dropped. They are only read.
        let lent = unsafe { Registration::of(&self.queue.device, request.from, request.len, None) };
        let lent = lent.map_err(|cause| (cause, Some(request.frame)))?;
        request.key = lent.local_key();
        request.tells = true;
        self.lent.push(Lent { until: u64::MAX, _registration: lent });
        Ok(())
    }

    /// Whether so many requests can be posted, behind what is held.
    fn has_room(&mut self, many: usize) -> Result<bool, Failed> {
        if self.queue.room() < many {
            self.work()?;
        }
        Ok(self.queue.room() >= many)
    }

    /// Posts what is held. `false`: there is no room.
    fn release(&mut self) -> Result<bool, Failed> {
        let Some(held) = self.held else { return Ok(true) };
        if !self.has_room(1)? {
            return Ok(false);
        }
        self.held = None;
        self.post(&[held])?;
        self.lent();
        Ok(true)
    }

    fn post(&mut self, requests: &[Request]) -> Result<(), Failed> {
        // SAFETY: what they are of lies in staging memory, is core's to keep, or lies in the desk.
        unsafe { self.queue.post(requests) }
            .map_err(|cause| (cause, requests.first().map(|request| request.frame)))
    }

    /// What was lent is given back once all that was posted until now is done.
    fn lent(&mut self) {
        if let Some(last) = self.lent.last_mut()
            && last.until == u64::MAX
        {
            last.until = self.queue.next();
        }
    }

    /// Writes so many bytes, in as many operations as it takes, the last of them with what the peer is told.
    fn put(&mut self, mut request: Request, told: Option<u32>) -> Result<(), Failed> {
        let most = self.queue.device.max_message();
        let many = request.len.div_ceil(most).max(1);
        let max = max_frame(Some(&self.queue.device));
        if request.len > max {
            return Err((Cause::TooLarge { len: request.len, max }, Some(request.frame)));
        }
        if !self.release()? || !self.has_room(many)? {
            return Err(full());
        }
        let behind_word = !(request.to as usize).is_multiple_of(LINE);
        self.register(&mut request)?;
        if many == 1 && told.is_none() && behind_word {
            self.held = Some(request);
            return Ok(());
        }
        let mut parts = [request; CHAIN];
        let mut rest = request;
        loop {
            let mut filled = 0;
            while filled < CHAIN && (rest.len > 0 || filled == 0) {
                let len = rest.len.min(most);
                parts[filled] = Request { len, tells: false, ..rest };
                rest.from = rest.from.wrapping_add(len);
                (rest.to, rest.len) = (rest.to + len as u64, rest.len - len);
                filled += 1;
            }
            if rest.len == 0 {
                let last = &mut parts[filled - 1];
                last.tells = request.tells;
                if let Some(told) = told {
                    (last.operation, last.told) = (IBV_WR_RDMA_WRITE_WITH_IMM, told);
                    last.solicited = true;
                }
            }
            self.post(&parts[..filled])?;
            if rest.len == 0 {
                break;
            }
        }
        self.lent();
        Ok(())
    }

    /// Writes a word, together with the put that is held for it.
    fn put_word(&mut self, offset: usize, word: u64, frame: u64) -> Result<(), Failed> {
        let held = self.held;
        if !self.has_room(1 + usize::from(held.is_some()))? {
            return Err(full());
        }
        let request = Request::word(word, self.region.address + offset as u64, self.region.key, frame);
        match held {
            Some(held) => {
                self.held = None;
                self.post(&[held, request])?;
                self.lent();
                Ok(())
            }
            None => self.post(&[request]),
        }
    }

    /// Wakes the peer by a write of nothing, which takes a receive of its. Where it has none left it has enough to wake up to.
    fn ring(&mut self) -> Result<(), Failed> {
        self.ring_due = true;
        if !self.release()? || !self.has_room(1)? {
            return Ok(());
        }
        self.ring_due = false;
        if !self.window.take(self.queue.told_by_peer()) {
            return Ok(());
        }
        let ring = Request {
            operation: IBV_WR_RDMA_WRITE_WITH_IMM,
            told: RING,
            solicited: true,
            ..self.request(0, ptr::null(), 0, 0)
        };
        self.post(&[ring])
    }

    /// Takes what is done off the send queue.
    fn work(&mut self) -> Result<(), Failed> {
        self.queue.work()?;
        if !self.lent.is_empty() {
            let done = self.queue.done();
            self.lent.retain(|lent| lent.until > done);
        }
        Ok(())
    }

    /// Takes what was received, posts it again, and tells the peer so.
    fn receive(&mut self) -> Result<(), Failed> {
        if let Err(cause) = self.window.receive(&self.queue) {
            // Receives end with the queue pair; what was sent last says why it did.
            self.queue.work()?;
            return Err((cause, None));
        }
        if let Some(posted) = self.window.due()
            && self.has_room(1)?
        {
            self.post(&[self.queue.tell(posted)])?;
            self.window.told(posted);
        }
        Ok(())
    }

    fn progress(&mut self) -> Result<(), Failed> {
        self.work()?;
        self.release()?;
        if self.ring_due { self.ring() } else { Ok(()) }
    }
}

fn locked(works: &Mutex<Works>) -> MutexGuard<'_, Works> {
    // Nothing in it is left half done by a panic: there is none between two steps that belong together.
    works.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The peer's region.
struct WriteRemote {
    works: Arc<Mutex<Works>>,
    len: usize,
}

impl WriteRemote {
    /// Whether `len` bytes at `offset` lie in the region. The peer's device looks too, and shuts the link.
    fn check(&self, offset: usize, len: usize, frame: u64) -> Result<(), TransportError> {
        let region = self.len;
        match offset.checked_add(len) {
            Some(end) if end <= region => Ok(()),
            _ => Err(error(Operation::Put, Cause::OutOfRegion { offset, len, region }).with_frame(frame)),
        }
    }
}

// SAFETY: it is not mapped; staging memory is mapped, zero and on a page, and kept by `works`, which this value has.
unsafe impl RemoteMemory for WriteRemote {
    fn len(&self) -> usize {
        self.len
    }

    fn put(&mut self, offset: usize, bytes: &[u8], frame: u64) -> Result<(), TransportError> {
        self.check(offset, bytes.len(), frame)?;
        if bytes.is_empty() {
            return Ok(());
        }
        let mut works = locked(&self.works);
        let request = works.request(offset, bytes.as_ptr(), bytes.len(), frame);
        works.put(request, None).map_err(|failed| of_frame(Operation::Put, failed))
    }

    fn put_word(&mut self, offset: usize, word: u64, frame: u64) -> Result<(), TransportError> {
        if !offset.is_multiple_of(size_of::<u64>()) {
            let cause = Cause::Unsupported("a word that is not aligned");
            return Err(error(Operation::Put, cause).with_frame(frame));
        }
        self.check(offset, size_of::<u64>(), frame)?;
        locked(&self.works).put_word(offset, word, frame).map_err(|failed| of_frame(Operation::Put, failed))
    }

    fn fence(&mut self) -> Result<(), TransportError> {
        // A queue pair carries writes out in the order in which they were posted.
        Ok(())
    }

    fn put_with_completion(&mut self, offset: usize, bytes: &[u8], frame: u64) -> Result<(), TransportError> {
        self.check(offset, bytes.len(), frame)?;
        let mut works = locked(&self.works);
        let told = works.queue.told_by_peer();
        if !works.window.has_room(told) {
            return Err(error(Operation::Put, Cause::Full));
        }
        let request = works.request(offset, bytes.as_ptr(), bytes.len(), frame);
        works.put(request, Some(FRAME)).map_err(|failed| of_frame(Operation::Put, failed))?;
        works.window.take(told);
        Ok(())
    }

    fn progress(&mut self) -> Result<(), TransportError> {
        locked(&self.works).progress().map_err(|failed| of_frame(Operation::Progress, failed))
    }

    fn ring(&mut self) -> Result<(), TransportError> {
        locked(&self.works).ring().map_err(|failed| of_frame(Operation::Wake, failed))
    }

    fn route(&self) -> Route {
        let works = locked(&self.works);
        super::route(
            &works.queue.device,
            "frames are writes that the devices carry out; the peer's processor does nothing for them",
        )
    }

    fn staging(&mut self, len: usize) -> Result<Option<NonNull<u8>>, TransportError> {
        let mut works = locked(&self.works);
        let device = Arc::clone(&works.queue.device);
        let staging =
            Memory::create(&device, len, Written::Here).map_err(|cause| error(Operation::Connect, cause))?;
        Ok(Some(works.staging.insert(staging).start()))
    }
}

/// The region of this side.
struct WriteLocal {
    /// The same memory, executable, once that was asked for.
    twin: Option<Twin>,
    // The queue pair, if this is the last to have it, before the region.
    works: Arc<Mutex<Works>>,
    region: Memory,
    descriptor: Option<Descriptor>,
    /// Frames are counted by completions, each of which wakes a sleeper.
    counts: bool,
}

// SAFETY: the region keeps its memory, on a page and zero when it was made, until it is dropped; only the peer has its key, and no
// other queue pair of this device's domain is told of it.
unsafe impl LocalMemory for WriteLocal {
    fn base(&self) -> NonNull<u8> {
        self.region.start()
    }

    fn len(&self) -> usize {
        self.region.len()
    }

    fn executable(&mut self) -> Result<NonNull<u8>, TransportError> {
        let twin = match self.twin.take() {
            Some(twin) => twin,
            // SAFETY: registered memory is whole pages of one shared mapping.
            None => unsafe { Twin::of(self.region.start(), self.region.len()) }
                .map_err(|cause| error(Operation::Open, cause))?,
        };
        Ok(self.twin.insert(twin).start())
    }

    fn completions(&mut self) -> Result<u64, TransportError> {
        self.counts = true;
        let mut works = locked(&self.works);
        works.receive().map_err(|failed| of_frame(Operation::Receive, failed))?;
        Ok(works.window.frames())
    }

    fn descriptor(&self) -> Option<Descriptor> {
        self.descriptor
    }

    fn before_sleep(&mut self) -> Result<bool, TransportError> {
        let failed = |failed| of_frame(Operation::Wake, failed);
        let mut works = locked(&self.works);
        works.queue.check().map_err(|cause| error(Operation::Wake, cause))?;
        // A frame that is only written rings nobody, and one whose sender has not seen yet that this side sleeps may still be
        // under way: what is on its way to either side is ordered by nothing.
        if !self.counts {
            works.receive().map_err(failed)?;
            return Ok(false);
        }
        works.progress().map_err(failed)?;
        if works.held.is_some() || works.ring_due {
            return Ok(false);
        }
        works.queue.received.arm().map_err(|cause| error(Operation::Wake, cause))?;
        // What came before that tells nobody; core looks for its frames after this.
        works.receive().map_err(failed)?;
        Ok(true)
    }

    fn after_sleep(&mut self) -> Result<(), TransportError> {
        let mut works = locked(&self.works);
        works.queue.received.disarm();
        works.receive().map_err(|failed| of_frame(Operation::Wake, failed))
    }
}

fn error(operation: Operation, cause: Cause) -> TransportError {
    TransportError::new(NAME, operation, cause)
}

fn of_frame(operation: Operation, (cause, frame): Failed) -> TransportError {
    let error = error(operation, cause);
    match frame {
        Some(frame) => error.with_frame(frame),
        None => error,
    }
}

#[cfg(test)]
#[path = "write_tests.rs"]
mod tests;
