//! The common part of both halves of a `verbs-write` endpoint: the queue pair, its held requests, and the memory that
//! it reads.

use std::ptr;

use farjump_core::frame::{LINE, MAX_FRAME};
use farjump_core::transport::Cause;
use farjump_rdma_sys::{IBV_WR_RDMA_WRITE, IBV_WR_RDMA_WRITE_WITH_IMM};

use super::receives::{DOORBELL, FRAME, Window};
use crate::verbs::device::Device;
use crate::verbs::device::address::RemoteRegion;
use crate::verbs::device::pair::DEPTH;
use crate::verbs::memory::{Memory, Registration, Use};
use crate::verbs::queue::{CHAIN, Queue, Request};
use crate::verbs::reads::QueueReads;

/// Longest frame, in bytes. At most half of the longest ring: a frame of half a ring always fits, whatever precedes it.
/// At most as many operations as half of a send queue: at most a quarter of the queue waits for an unrequested
/// completion, so half of it always becomes free.
pub(super) fn max_frame(device: Option<&Device>) -> usize {
    let posted = device
        .map_or(usize::MAX, |device| device.max_message().saturating_mul(device.depth(DEPTH) as usize / 2));
    posted.min(MAX_FRAME / 2)
}

/// Memory that was registered for one put.
struct TemporaryRegistration {
    /// The last request that reads it.
    until: u64,
    _registration: Registration,
}

/// The sending half, and the receives of wake-ups and completions.
pub(super) struct WriteQueue {
    // Dropped in this order: the queue pair before the memory that it reads.
    pub(super) queue: Queue,
    pub(super) window: Window,
    /// The peer's region.
    region: RemoteRegion,
    /// A put that waits for the word in front of it.
    held: Option<Request>,
    /// Oldest first.
    registrations: Vec<TemporaryRegistration>,
    /// True if a wake-up found no slot.
    owes_wake_up: bool,
    /// The memory in which core lays out frames.
    pub(super) staging: Option<Memory>,
    pub(super) reads: Box<QueueReads>,
}

// SAFETY: the pointers of held requests are to bytes that core keeps; this value owns everything else.
unsafe impl Send for WriteQueue {}

/// The cause of a failed call, and its frame.
pub(super) type Failed = (Cause, Option<u64>);

fn full() -> Failed {
    (Cause::Full, None)
}

/// A write with immediate data, if any.
#[inline]
fn with_immediate(mut request: Request, immediate: Option<u32>) -> Request {
    if let Some(immediate) = immediate {
        (request.operation, request.immediate) = (IBV_WR_RDMA_WRITE_WITH_IMM, immediate);
        request.solicited = true;
    }
    request
}

impl WriteQueue {
    /// Makes the sending half of a connected queue pair whose peer has this region.
    pub(super) fn new(queue: Queue, window: Window, region: RemoteRegion) -> WriteQueue {
        WriteQueue {
            queue,
            window,
            region,
            held: None,
            registrations: Vec::new(),
            owes_wake_up: false,
            staging: None,
            reads: Box::default(),
        }
    }

    /// Returns whether all requests are posted.
    pub(super) fn is_idle(&self) -> bool {
        self.held.is_none() && !self.owes_wake_up
    }

    /// Makes a write of `len` bytes at `from` to `offset` of the peer's region.
    #[inline]
    pub(super) fn request(&self, offset: usize, from: *const u8, len: usize, frame: u64) -> Request {
        Request {
            operation: IBV_WR_RDMA_WRITE,
            word: None,
            from,
            len,
            key: 0,
            to: self.region.address + offset as u64,
            remote_key: self.region.key,
            immediate: 0,
            solicited: false,
            has_completion: false,
            frame,
        }
    }

    /// Registers the memory of `request` with the device, if needed.
    fn register(&mut self, request: &mut Request) -> Result<(), Failed> {
        if self.queue.is_inline(request.len) {
            return Ok(());
        }
        if let Some(staging) = &self.staging
            && staging.holds(request.from, request.len)
        {
            request.key = staging.local_key();
            return Ok(());
        }
        // Only puts from other memory have this cost: those of middleware that delays frames. SAFETY: core keeps the
        // bytes until the peer has returned credit for them, which is after the put, or until this value is dropped.
        // The device only reads them.
        let registration =
            unsafe { Registration::of(&self.queue.domain, request.from, request.len, Use::Sent) };
        let registration = registration.map_err(|cause| (cause, Some(request.frame)))?;
        request.key = registration.local_key();
        request.has_completion = true;
        self.registrations.push(TemporaryRegistration { until: u64::MAX, _registration: registration });
        Ok(())
    }

    /// Returns whether `many` requests can be posted, behind the held one.
    fn has_slots(&mut self, many: usize) -> Result<bool, Failed> {
        if self.queue.free_slots() < many {
            self.work()?;
        }
        Ok(self.queue.free_slots() >= many)
    }

    /// Posts the held request. `false` if there is no slot.
    fn release(&mut self) -> Result<bool, Failed> {
        let Some(held) = self.held else { return Ok(true) };
        if !self.has_slots(1)? {
            return Ok(false);
        }
        self.held = None;
        self.post(&[held])?;
        self.date_registration();
        Ok(true)
    }

    fn post(&mut self, requests: &[Request]) -> Result<(), Failed> {
        // SAFETY: the requests' bytes lie in staging memory, are kept by core, or lie in the registered memory of the
        // queue.
        unsafe { self.queue.post(requests) }
            .map_err(|cause| (cause, requests.first().map(|request| request.frame)))
    }

    /// Makes the latest temporary registration end once all requests posted so far are done.
    fn date_registration(&mut self) {
        if let Some(last) = self.registrations.last_mut()
            && last.until == u64::MAX
        {
            last.until = self.queue.next();
        }
    }

    /// Writes a frame to `offset` of the peer's region, and adds one to the peer's count of them.
    #[inline]
    pub(super) fn put_frame(&mut self, offset: usize, bytes: &[u8], frame: u64) -> Result<(), Failed> {
        let returned = self.queue.returned_by_peer();
        if !self.window.has_credit(returned) {
            return Err(full());
        }
        if self.queue.is_inline(bytes.len()) && self.held.is_none() && self.queue.free_slots() != 0 {
            let to = (self.region.address + offset as u64, self.region.key);
            let operation = IBV_WR_RDMA_WRITE_WITH_IMM;
            let posted = self.queue.post_inline(operation, bytes, to, FRAME, frame);
            posted.map_err(|cause| (cause, Some(frame)))?;
        } else {
            self.put(self.request(offset, bytes.as_ptr(), bytes.len(), frame), Some(FRAME))?;
        }
        self.window.take(returned);
        Ok(())
    }

    /// Writes the bytes of `request`, in as many operations as needed. The last of them carries the immediate
    /// data.
    pub(super) fn put(&mut self, mut request: Request, immediate: Option<u32>) -> Result<(), Failed> {
        let most = self.queue.device.max_message();
        let many = request.len.div_ceil(most).max(1);
        let max = max_frame(Some(&self.queue.device));
        if request.len > max {
            return Err((Cause::TooLarge { len: request.len, max }, Some(request.frame)));
        }
        if !self.release()? || !self.has_slots(many)? {
            return Err(full());
        }
        let behind_word = !(request.to as usize).is_multiple_of(LINE);
        self.register(&mut request)?;
        if many == 1 {
            if immediate.is_none() && behind_word {
                self.held = Some(request);
                return Ok(());
            }
            self.post(&[with_immediate(request, immediate)])?;
            self.date_registration();
            return Ok(());
        }
        let mut parts = [request; CHAIN];
        let mut rest = request;
        loop {
            let mut filled = 0;
            while filled < CHAIN && (rest.len > 0 || filled == 0) {
                let len = rest.len.min(most);
                parts[filled] = Request { len, has_completion: false, ..rest };
                rest.from = rest.from.wrapping_add(len);
                (rest.to, rest.len) = (rest.to + len as u64, rest.len - len);
                filled += 1;
            }
            if rest.len == 0 {
                let last = &mut parts[filled - 1];
                *last =
                    with_immediate(Request { has_completion: request.has_completion, ..*last }, immediate);
            }
            self.post(&parts[..filled])?;
            if rest.len == 0 {
                break;
            }
        }
        self.date_registration();
        Ok(())
    }

    /// Writes a word, together with the put that is held for it.
    pub(super) fn put_word(&mut self, offset: usize, word: u64, frame: u64) -> Result<(), Failed> {
        let held = self.held;
        if !self.has_slots(1 + usize::from(held.is_some()))? {
            return Err(full());
        }
        let request = Request::word(word, self.region.address + offset as u64, self.region.key, frame);
        match held {
            Some(held) => {
                self.held = None;
                self.post(&[held, request])?;
                self.date_registration();
                Ok(())
            }
            None => self.post(&[request]),
        }
    }

    /// Wakes the peer by an empty write, which uses one of its receives. If the peer has none left, earlier writes
    /// suffice to wake it.
    pub(super) fn wake_peer(&mut self) -> Result<(), Failed> {
        self.owes_wake_up = true;
        if !self.release()? || !self.has_slots(1)? {
            return Ok(());
        }
        self.owes_wake_up = false;
        if !self.window.take(self.queue.returned_by_peer()) {
            return Ok(());
        }
        let ring = Request {
            operation: IBV_WR_RDMA_WRITE_WITH_IMM,
            immediate: DOORBELL,
            solicited: true,
            ..self.request(0, ptr::null(), 0, 0)
        };
        self.post(&[ring])
    }

    /// Takes completions off the send queue.
    fn work(&mut self) -> Result<(), Failed> {
        self.queue.work()?;
        if !self.registrations.is_empty() {
            let done = self.queue.done();
            self.registrations.retain(|registration| registration.until > done);
        }
        Ok(())
    }

    /// Takes completions of receives, posts receives again, and returns credit to the peer.
    #[inline(always)]
    pub(super) fn receive(&mut self) -> Result<(), Failed> {
        if let Err(cause) = self.window.receive(&self.queue) {
            return Err(self.why_receives_end(cause));
        }
        match self.window.due() {
            Some(posted) => self.return_credit(posted),
            None => Ok(()),
        }
    }

    /// The error after receives have ended with the queue pair. The last send has the reason.
    #[cold]
    fn why_receives_end(&mut self, cause: Cause) -> Failed {
        self.queue.look().err().unwrap_or((cause, None))
    }

    /// Sends the peer the number `posted` of receives posted again.
    #[cold]
    fn return_credit(&mut self, posted: u64) -> Result<(), Failed> {
        if self.has_slots(1)? {
            self.post(&[self.queue.return_credit(posted)])?;
            self.window.returned(posted);
        }
        Ok(())
    }

    /// All steps of progress.
    pub(super) fn progress(&mut self) -> Result<(), Failed> {
        self.work()?;
        self.release()?;
        if self.owes_wake_up { self.wake_peer() } else { Ok(()) }
    }
}
