//! `ucx-put`: frames are written into the peer's memory that UCX allocated.
//!
//! Where UCX maps that memory here, on one machine, core writes it by plain stores and UCX is not called for
//! frames at all. Elsewhere frames are puts, then a fence, then a put of the signal, and only over lanes that
//! put natively, which both processes prove while they connect (`proof.rs`). Doorbells are active messages
//! without content. The reasons for rejections are in `docs/decisions/ucx-put.md`; the address is in
//! `address.rs`.

mod fence;
mod mappings;
mod probe;
mod proof;
mod query;
mod region;
mod remote_region;

use std::cell::Cell;
use std::collections::VecDeque;
use std::ffi::{c_uint, c_void};
use std::mem::MaybeUninit;
use std::os::fd::RawFd;
use std::ptr::{self, NonNull};
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use farjump_core::frame::MAX_FRAME;
use farjump_core::transport::{
    Address, ArrivalRules, BorrowedFd, Capabilities, Cause, Endpoint, InboxKind, LocalAddress, LocalMemory,
    OpenRequest, Opening, Operation, RemoteMemory, Route, Transport, TransportError, WakeSource,
};
use farjump_ucx_sys::{
    UCS_INPROGRESS, UCS_OK, UCS_PTR_IS_PTR, Ucx, ucp_am_recv_param_t, ucp_ep_h, ucp_request_param_t,
    ucs_status_ptr_t, ucs_status_t,
};

use crate::executable_alias::Twin;
use crate::membarrier::{self, Barriers};
use crate::ucx::address::{Mailbox, Told};
use crate::ucx::context::Context;
use crate::ucx::locality::Place;
use crate::ucx::moving;
use crate::ucx::worker::{TURNS, Worker, status_of};
use fence::{Fence, Flushes};
use proof::{LONGEST, Post, Proof};
use region::Region;
use remote_region::Peer;

/// The backend's name.
pub const NAME: &str = "ucx-put";

/// The active message that is a doorbell.
const RING: c_uint = 1;
/// Limit of puts under way.
const QUEUE: usize = 128;

/// The backend. It is stateless: the process has one context of UCX for it, and its endpoints have the rest.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Put;

impl Put {
    /// Makes a backend.
    pub const fn new() -> Put {
        Put
    }

    /// Returns its capabilities on this machine, or why it cannot be used and the remedy.
    ///
    /// # Errors
    /// A sentence for display.
    pub fn usable() -> Result<Capabilities, String> {
        probe::ways().map(|_| Put.capabilities())
    }
}

impl Transport for Put {
    fn name(&self) -> &str {
        NAME
    }

    fn capabilities(&self) -> Capabilities {
        let mut arrival = ArrivalRules::FENCED | ArrivalRules::CHECKED;
        let maps = probe::ways().is_ok_and(|ways| ways.map);
        arrival.set(ArrivalRules::STORES, maps);
        // Half of the longest ring: a frame of half a ring always fits, whatever lies before.
        let mut capabilities = Capabilities::new(InboxKind::OneSided, arrival, MAX_FRAME / 2);
        capabilities.wake = WakeSource::Descriptor;
        capabilities.in_place = maps;
        capabilities
    }

    fn open(&mut self, request: &OpenRequest) -> Result<Box<dyn Opening>, TransportError> {
        let failed = |cause| error(Operation::Open, cause);
        let max_frame = MAX_FRAME / 2;
        if request.max_frame > max_frame {
            return Err(failed(Cause::TooLarge { len: request.max_frame, max: max_frame }));
        }
        Ok(Box::new(PutOpening::open(request).map_err(failed)?))
    }
}

/// An unconnected endpoint.
struct PutOpening {
    // The peer before the worker that reaches it, and the worker before the region.
    reached: Option<(Vec<u8>, Peer)>,
    worker: Worker,
    /// Data of the worker's callbacks.
    post: Post,
    region: Region,
    /// The worker's, which is open as long as it.
    descriptor: RawFd,
    barriers: Barriers,
    address: Vec<u8>,
    /// A second endpoint of a link, whose first endpoints have proven that puts are native.
    is_proven: bool,
}

// SAFETY: the peer belongs to the worker, which is `Send`; both are owned here.
unsafe impl Send for PutOpening {}

impl PutOpening {
    fn open(request: &OpenRequest) -> Result<PutOpening, Cause> {
        let context = Context::for_memory().map_err(Cause::System)?;
        // Declared before the worker, which is dropped first if anything fails.
        let post = Post::new();
        let worker = Worker::create(context)?;
        // SAFETY: the callback uses no argument.
        unsafe { worker.handle(RING, Some(rung), ptr::null_mut())? };
        // SAFETY: the worker is dropped before it in here, in `PutOpening` and in `Works`.
        unsafe { post.listen(&worker)? };
        let len = request.region_len;
        let region = Region::create(context, len)?;
        let barriers = Barriers::of_this_process();
        let told = Mailbox {
            address: region.base().addr().get() as u64,
            len: len as u64,
            barriers: barriers.bits(),
            key: region.key()?,
            place: Place::own(),
            worker: worker.address()?,
        };
        let address = told.to_bytes(context.ucx.version())?;
        let descriptor = worker.descriptor()?;
        let is_proven = request.is_second;
        Ok(PutOpening { reached: None, worker, post, region, descriptor, barriers, address, is_proven })
    }

    /// Makes both processes prove within `deadline_ms` that any puts of this link are native.
    fn prove(&mut self, reached: Peer, theirs: &[u8], deadline_ms: u32) -> Result<Peer, TransportError> {
        let puts = reached.mapped.is_none();
        // The peer decides the same, by its own values.
        let has_part = puts || !probe::ways().is_ok_and(|ways| ways.map);
        if self.is_proven || !has_part {
            return Ok(reached);
        }
        let within = Duration::from_millis(u64::from(deadline_ms));
        // SAFETY: this endpoint's region starts on a page and has one or more; only the peer writes it now.
        let own = unsafe { AtomicU64::from_ptr(self.region.base().cast().as_ptr()) };
        let mut proof = Proof {
            worker: &self.worker,
            peer: &reached,
            post: &mut self.post,
            own,
            is_first: *self.address < *theirs,
            asks: puts,
            shows: puts,
            until: Instant::now() + within,
            idle: Cell::new(0),
        };
        match proof.run() {
            Ok(()) => Ok(reached),
            Err(unproven) => {
                let cause = unproven.cause(&reached, within);
                // SAFETY: the UCX endpoint is connected, and not used again.
                unsafe { self.worker.close(reached.end) };
                Err(error(Operation::Connect, cause))
            }
        }
    }

    /// Returns the peer whose address has these bytes.
    fn reach(&mut self, bytes: &[u8]) -> Result<Peer, TransportError> {
        if let Some((_, peer)) = self.reached.take_if(|(known, _)| known == bytes) {
            return Ok(peer);
        }
        let failed = |cause| error(Operation::Connect, cause);
        let told = Mailbox::from_bytes(bytes, self.worker.ucx.version()).map_err(failed)?;
        Peer::reach(&self.worker, &told).map_err(failed)
    }
}

impl Opening for PutOpening {
    fn address(&self) -> LocalAddress<'_> {
        LocalAddress { bytes: self.address.clone(), descriptors: Vec::new() }
    }

    fn arrival_with(&mut self, peer: &[u8]) -> Result<ArrivalRules, TransportError> {
        let reached = self.reach(peer)?;
        let mut rules = ArrivalRules::all();
        rules.set(ArrivalRules::STORES, reached.mapped.is_some());
        self.reached = Some((peer.to_vec(), reached));
        Ok(rules)
    }

    fn connect(mut self: Box<Self>, peer: Address, deadline_ms: u32) -> Result<Endpoint, TransportError> {
        if !peer.descriptors.is_empty() {
            let what = "descriptors came with it, and it has none".to_owned();
            return Err(error(Operation::Connect, Cause::Address(what)));
        }
        let reached = self.reach(&peer.bytes)?;
        let reached = self.prove(reached, &peer.bytes, deadline_ms)?;
        let PutOpening { worker, post, region, descriptor, barriers: ours, .. } = *self;
        let theirs = Barriers::from_bits_truncate(reached.barriers);
        let (len, mapped) = (reached.len, reached.mapped);
        let works = Works {
            ucx: worker.ucx,
            sending: VecDeque::new(),
            owes_ring: false,
            ringing: ptr::null_mut(),
            fence: Fence::new(),
            next_word: 0,
            peer: reached,
            worker,
            _post: post,
            words: None,
        };
        let works = Arc::new(Mutex::new(works));
        Ok(Endpoint::OneSided {
            local: Box::new(PutLocal {
                twin: None,
                region,
                descriptor,
                works: Arc::clone(&works),
                is_mapped: mapped.is_some(),
                // The peer decides by the same two flags whether it omits its fence.
                peer_has_no_fence: membarrier::spares_fence(theirs, ours),
            }),
            remote: Box::new(PutRemote {
                works,
                mapped,
                len,
                no_fence: mapped.is_some() && membarrier::spares_fence(ours, theirs),
            }),
        })
    }
}

/// A put that UCX has taken and not yet done.
struct Sending {
    request: *mut c_void,
    frame: u64,
}

/// Shared state of an endpoint's halves: UCX permits one caller at a time, and either may be dropped first.
struct Works {
    ucx: &'static Ucx,
    /// Oldest first.
    sending: VecDeque<Sending>,
    /// A doorbell is to be sent once all in `sending` are done.
    owes_ring: bool,
    /// The request of the last doorbell.
    ringing: *mut c_void,
    /// The fence, if it is a flush.
    fence: Fence,
    next_word: usize,
    // Dropped in this order.
    peer: Peer,
    worker: Worker,
    /// Data of the worker's callbacks.
    _post: Post,
    /// Words of puts, allocated at the first. One is used again after `QUEUE` others, when its put is done;
    /// unfinished puts go on until the worker is gone.
    words: Option<Box<[u64; QUEUE]>>,
}

// SAFETY: requests, peer and words belong to the worker, which is `Send` and owned here.
unsafe impl Send for Works {}

impl Works {
    /// Starts to write `len` bytes at `from` to `offset` of the peer's region.
    ///
    /// # Safety
    /// They stay unchanged until the put is done.
    unsafe fn put(&mut self, offset: usize, from: *const u8, len: usize, frame: u64) -> Result<(), Cause> {
        // SAFETY: zero is valid for all fields, numbers and pointers; the empty mask names none to read.
        let params: ucp_request_param_t = unsafe { MaybeUninit::zeroed().assume_init() };
        let Peer { end, key, address, .. } = self.peer;
        self.fence.note_put();
        // For longer ones no query has shown whether UCX emulates them.
        for piece in (0..len).step_by(LONGEST) {
            let (at, rest) = (address + (offset + piece) as u64, LONGEST.min(len - piece));
            // SAFETY: the UCX endpoint is connected; the caller has checked the range, and keeps the bytes.
            let sent = unsafe { self.ucx.ucp_put_nbx(end, from.add(piece).cast(), rest, at, key, &params) };
            self.sent(sent, frame)?;
        }
        Ok(())
    }

    fn sent(&mut self, sent: ucs_status_ptr_t, frame: u64) -> Result<(), Cause> {
        if UCS_PTR_IS_PTR(sent) {
            self.sending.push_back(Sending { request: sent, frame });
            return Ok(());
        }
        match status_of(self.ucx, sent) {
            UCS_OK => Ok(()),
            status => Err(moving(self.ucx, status)),
        }
    }

    /// Returns whether UCX takes one more put now.
    fn has_room(&mut self) -> Result<bool, TransportError> {
        if self.sending.len() >= QUEUE {
            self.work()?;
        }
        Ok(self.sending.len() < QUEUE)
    }

    /// Progresses UCX, and drops finished puts.
    fn work(&mut self) -> Result<bool, TransportError> {
        let moved = self.worker.progress();
        while let Some(oldest) = self.sending.front() {
            let status = status_of(self.ucx, oldest.request);
            if status == UCS_INPROGRESS {
                break;
            }
            let Some(Sending { request, frame }) = self.sending.pop_front() else { break };
            // SAFETY: the request was not freed before, and is dropped here.
            unsafe { self.ucx.ucp_request_free(request) };
            if status != UCS_OK {
                return Err(error(Operation::Put, moving(self.ucx, status)).with_frame(frame));
            }
        }
        if self.owes_ring && self.sending.is_empty() {
            self.owes_ring = false;
            self.send_ring().map_err(|cause| error(Operation::Wake, cause))?;
        }
        Ok(moved)
    }

    /// Orders later puts behind earlier ones. `false`: not yet, call again.
    fn pass_fence(&mut self) -> Result<bool, Cause> {
        if fence::waits(self.ucx.version()) {
            let mut flushes = EndFlushes { worker: &self.worker, end: self.peer.end };
            return self.fence.is_passed(&mut flushes, TURNS);
        }
        // SAFETY: `self.worker` owns the handle.
        match unsafe { self.ucx.ucp_worker_fence(self.worker.handle) } {
            UCS_OK => Ok(true),
            status => Err(moving(self.ucx, status)),
        }
    }

    /// Returns whether the last doorbell is still on its way.
    fn is_ringing(&mut self) -> Result<bool, Cause> {
        if self.ringing.is_null() {
            return Ok(false);
        }
        let status = status_of(self.ucx, self.ringing);
        if status == UCS_INPROGRESS {
            return Ok(true);
        }
        // SAFETY: the request was not freed before, and is cleared here.
        unsafe { self.ucx.ucp_request_free(self.ringing) };
        self.ringing = ptr::null_mut();
        if status == UCS_OK { Ok(false) } else { Err(moving(self.ucx, status)) }
    }

    /// Sends a doorbell behind the puts under way, so that the peer finds them; [`Works::work`] sends it
    /// later.
    fn ring(&mut self) -> Result<(), Cause> {
        self.owes_ring = !self.sending.is_empty();
        if self.owes_ring { Ok(()) } else { self.send_ring() }
    }

    /// Sends a doorbell, unless the last one is still on its way: one is as good as many.
    fn send_ring(&mut self) -> Result<(), Cause> {
        if !self.ringing.is_null() {
            self.worker.progress();
            if self.is_ringing()? {
                return Ok(());
            }
        }
        // SAFETY: zero is valid for all fields, numbers and pointers; the empty mask names none to read.
        let params: ucp_request_param_t = unsafe { MaybeUninit::zeroed().assume_init() };
        // SAFETY: the UCX endpoint is connected; there is neither header nor data.
        let sent =
            unsafe { self.ucx.ucp_am_send_nbx(self.peer.end, RING, ptr::null(), 0, ptr::null(), 0, &params) };
        if UCS_PTR_IS_PTR(sent) {
            self.ringing = sent;
            return Ok(());
        }
        match status_of(self.ucx, sent) {
            UCS_OK => Ok(()),
            status => Err(moving(self.ucx, status)),
        }
    }
}

impl Drop for Works {
    fn drop(&mut self) {
        // SAFETY: the UCX endpoint is connected, and not used again. Data of its unfinished puts lies in
        // memory that core keeps until both halves are dropped, or in `words`.
        unsafe { self.worker.close(self.peer.end) };
        let requests =
            self.sending.iter().map(|sending| sending.request).chain([self.ringing, self.fence.request()]);
        for request in requests.filter(|request| UCS_PTR_IS_PTR(*request)) {
            // SAFETY: the request was not freed before.
            unsafe { self.ucx.ucp_request_free(request) };
        }
    }
}

/// Flushes of the UCX endpoint to the peer.
struct EndFlushes<'a> {
    worker: &'a Worker,
    end: ucp_ep_h,
}

impl Flushes for EndFlushes<'_> {
    fn begin(&mut self) -> ucs_status_ptr_t {
        // SAFETY: zero is valid for all fields, numbers and pointers; the empty mask names none to read.
        let params: ucp_request_param_t = unsafe { MaybeUninit::zeroed().assume_init() };
        // SAFETY: `Works` keeps the UCX endpoint connected.
        unsafe { self.worker.ucx.ucp_ep_flush_nbx(self.end, &params) }
    }

    fn look(&mut self, flush: ucs_status_ptr_t) -> ucs_status_t {
        self.worker.progress();
        status_of(self.worker.ucx, flush)
    }

    fn free(&mut self, flush: ucs_status_ptr_t) {
        if UCS_PTR_IS_PTR(flush) {
            // SAFETY: a request from `begin`, which `Fence` frees once.
            unsafe { self.worker.ucx.ucp_request_free(flush) };
        }
    }

    fn cause(&self, status: ucs_status_t) -> Cause {
        moving(self.worker.ucx, status)
    }
}

/// UCX's callback for [`RING`]: its arrival is all.
unsafe extern "C" fn rung(
    _argument: *mut c_void,
    _header: *const c_void,
    _header_len: usize,
    _data: *mut c_void,
    _len: usize,
    _params: *const ucp_am_recv_param_t,
) -> ucs_status_t {
    UCS_OK
}

fn locked(works: &Mutex<Works>) -> MutexGuard<'_, Works> {
    // A panic leaves nothing inconsistent: none can occur between two steps that belong together.
    works.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The peer's region.
struct PutRemote {
    works: Arc<Mutex<Works>>,
    mapped: Option<NonNull<u8>>,
    len: usize,
    no_fence: bool,
}

// SAFETY: the pointer is into a mapping that `works` keeps.
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
// which stay mapped as long as the key in `works`. That memory does not vanish: System V memory, which UCX
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
        let mut works = locked(&self.works);
        if !works.has_room()? {
            return Err(error(Operation::Put, Cause::Full));
        }
        // SAFETY: core keeps the bytes until the peer has returned credit for them or this value is dropped.
        unsafe { works.put(offset, bytes.as_ptr(), bytes.len(), frame) }
            .map_err(|cause| error(Operation::Put, cause).with_frame(frame))
    }

    fn put_word(&mut self, offset: usize, word: u64, frame: u64) -> Result<(), TransportError> {
        if !offset.is_multiple_of(size_of::<u64>()) {
            let cause = Cause::Unsupported("a word that is not aligned");
            return Err(error(Operation::Put, cause).with_frame(frame));
        }
        self.check(offset, size_of::<u64>(), frame)?;
        let mut works = locked(&self.works);
        if !works.has_room()? {
            return Err(error(Operation::Put, Cause::Full));
        }
        let slot = works.next_word;
        works.next_word = (slot + 1) % QUEUE;
        let words = works.words.get_or_insert_with(|| Box::new([0; QUEUE]));
        words[slot] = word.to_le();
        let from = words[slot..].as_ptr().cast();
        // SAFETY: the word is used again after `QUEUE` puts, of which fewer are under way at a time.
        unsafe { works.put(offset, from, size_of::<u64>(), frame) }
            .map_err(|cause| error(Operation::Put, cause).with_frame(frame))
    }

    fn fence(&mut self) -> Result<(), TransportError> {
        match locked(&self.works).pass_fence() {
            Ok(true) => Ok(()),
            Ok(false) => Err(error(Operation::Fence, Cause::Full)),
            Err(cause) => Err(error(Operation::Fence, cause)),
        }
    }

    fn progress(&mut self) -> Result<(), TransportError> {
        locked(&self.works).work().map(|_| ())
    }

    fn ring(&mut self) -> Result<(), TransportError> {
        locked(&self.works).ring().map_err(|cause| error(Operation::Wake, cause))
    }

    fn store_load_ordered(&self) -> bool {
        self.no_fence
    }

    fn route(&self) -> Route {
        let lanes = locked(&self.works).peer.lanes();
        let note = match self.mapped {
            Some(_) => {
                "the peer's mailbox is mapped in this process: frames are plain stores, UCX carries doorbells alone"
            }
            None => {
                "frames are puts that the device carries out, and a fence before each signal; the peer does nothing for them"
            }
        };
        Route::new(lanes.in_words(), vec![note.to_owned()])
    }
}

/// The region of this process.
struct PutLocal {
    /// The executable alias of that memory, once requested.
    twin: Option<Twin>,
    region: Region,
    /// The worker's, which is open as long as it.
    descriptor: RawFd,
    works: Arc<Mutex<Works>>,
    /// The two processes map each other's memory, so each sees the other's stores in order.
    is_mapped: bool,
    /// The peer has no fence between storing a frame and checking whether this process sleeps.
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
        // Where UCX shares no memory it takes private memory of the system, which has no second mapping.
        if !probe::ways().is_ok_and(|ways| ways.map) {
            return Err(error(
                Operation::Open,
                Cause::Unsupported("a second mapping of memory that is not shared"),
            ));
        }
        // SAFETY: a region is whole pages of one mapping; `ways.map` above makes it a shared one.
        unsafe { Twin::kept(&mut self.twin, self.region.base(), self.region.len()) }
            .map_err(|cause| error(Operation::Open, cause))
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        // SAFETY: the worker keeps it open (`Worker::descriptor`), and `works` keeps the worker.
        Some(unsafe { BorrowedFd::borrow_raw(self.descriptor) })
    }

    fn before_sleep(&mut self) -> Result<bool, TransportError> {
        // A put of "asleep" on its way could be overtaken by a frame whose sender then sends no doorbell.
        if !self.is_mapped {
            return Ok(false);
        }
        let mut works = locked(&self.works);
        for _ in 0..TURNS {
            // UCX sends pending puts only when it is called. Read before that, too: the peer may have fallen
            // asleep before a put was done, and core has not polled since.
            let was_sending = !works.sending.is_empty();
            while works.work()? {}
            let is_ringing = works.is_ringing().map_err(|cause| error(Operation::Wake, cause))?;
            if was_sending || is_ringing || !works.sending.is_empty() {
                return Ok(false);
            }
            // Armed before core polls for a frame: a doorbell after that poll is heard.
            let armed = works.worker.arm().map_err(|cause| error(Operation::Wake, cause))?;
            // An armed RDMA device signals later events, but not those since the last poll.
            if armed && !works.work()? {
                drop(works);
                return Ok(membarrier::between_sleeping_and_looking(self.peer_has_no_fence));
            }
        }
        Ok(false)
    }

    fn after_sleep(&mut self) -> Result<(), TransportError> {
        let mut works = locked(&self.works);
        // As many doorbells as one poll finds: a peer that sends them without end cannot hold us here.
        for _ in 0..TURNS {
            if !works.work()? {
                break;
            }
        }
        Ok(())
    }
}

fn error(operation: Operation, cause: Cause) -> TransportError {
    TransportError::new(NAME, operation, cause)
}

#[cfg(test)]
mod tests;
