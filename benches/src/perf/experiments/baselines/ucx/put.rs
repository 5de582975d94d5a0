//! A ring in memory that the peer writes: by plain stores where UCX gives a pointer to it, or by puts.

use std::ptr;
use std::rc::Rc;

use farjump_ucx_sys::ucp_ep_h;

use super::Opening;
use super::context::{Worker, check};
use super::memory::{Key, Region, RemoteMemory};
use super::requests::Requests;
use crate::perf::experiments::baselines::ring::{Layout, Owner, Ring, Writer};
use crate::perf::experiments::baselines::stores::Stores;
use crate::perf::process::child_protocol::Offer;
use crate::perf::process::liveness::Watch;
use crate::program::failure::Failure;

/// The parts of UCX that a ring needs, besides those of its writer.
struct Held {
    // Dropped in this order: each needs those behind it.
    _key: Option<Key>,
    _region: Region,
    endpoint: ucp_ep_h,
    worker: Rc<Worker>,
}

impl Owner for Held {
    fn lanes(&self) -> Option<String> {
        self.worker.lanes(self.endpoint)
    }
}

/// Connects to the peer, whose region is as long as this one. `writer` makes a writer into it, and the key
/// that the writer needs.
fn ring<W: Writer>(
    opening: Opening,
    offer: &Offer,
    layout: &Layout,
    writer: impl FnOnce(&Rc<Worker>, ucp_ep_h) -> Result<(W, Option<Key>), Failure>,
) -> Result<Ring<W>, Failure> {
    let Opening { worker, region } = opening;
    let region = region.ok_or_else(|| Failure::new("there is no memory to be written"))?;
    let endpoint = worker.connect(&offer.worker)?;
    let by_memory =
        worker.lanes(endpoint).is_some_and(|lanes| ["posix", "sysv"].iter().any(|name| lanes.contains(name)));
    if by_memory && !region.is_shared() {
        return Err(Failure::new(format!(
            "UCX cannot allocate a ring of {} B in shared memory (see df /dev/shm): choose a smaller --ring",
            region.len
        )));
    }
    let (writer, key) = writer(&worker, endpoint)?;
    let (layout, start) = (Layout { region: region.len, ..*layout }, region.start);
    let held = Held { _key: key, _region: region, endpoint, worker };
    // SAFETY: the region is held as long as the ring, has the same layout in both processes, and starts at a
    // page like all memory that UCX shares. Only the peer's writer knows it.
    Ok(unsafe { Ring::new(writer, start, layout) }.with_owner(held))
}

pub(crate) fn ring_by_stores(
    opening: Opening,
    offer: &Offer,
    layout: &Layout,
) -> Result<Ring<Stores>, Failure> {
    ring(opening, offer, layout, |worker, endpoint| {
        let key = Key::unpack(worker, endpoint, offer)?;
        let mut local = ptr::null_mut();
        // SAFETY: the key belongs to that memory, and `local` has space for the pointer.
        let status = unsafe { worker.ucx.ucp_rkey_ptr(key.handle, offer.start, &mut local) };
        check(worker.ucx, "gives no pointer to the peer's memory", status)?;
        // SAFETY: UCX has mapped the peer's region there, which is as long, until the key is destroyed, after
        // the writer is dropped.
        Ok((unsafe { Stores::new(local.cast(), layout) }, Some(key)))
    })
}

pub(crate) fn ring_by_puts(opening: Opening, offer: &Offer, layout: &Layout) -> Result<Ring<Puts>, Failure> {
    ring(opening, offer, layout, |worker, endpoint| {
        let puts = Puts {
            memory: RemoteMemory::new(worker.clone(), endpoint, offer, layout.region)?,
            credits: Requests::new(worker.ucx),
            payload: vec![7; layout.longest].leak(),
            signals: vec![0; SIGNALS].leak(),
            next: 0,
            credit: Box::leak(Box::new(0)),
        };
        Ok((puts, None))
    })
}

/// Capacity for signals that UCX has not sent yet.
const SIGNALS: usize = 1024;

/// Writes by a put, a fence, and a put of the signal.
pub(crate) struct Puts {
    /// Requests of returned credit: one at a time.
    credits: Requests,
    memory: RemoteMemory,
    // Leaked buffers that UCX reads: a put that timed out may finish at any later time.
    payload: &'static [u8],
    signals: &'static mut [u64],
    credit: &'static mut u64,
    next: usize,
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
            // SAFETY: the payload is static and never changes.
            unsafe { self.memory.put(self.payload[..len].as_ptr(), len, at, watch) }?;
            self.memory.fence()?;
        }
        if self.next == SIGNALS {
            self.memory.wait(watch)?;
            self.next = 0;
        }
        self.signals[self.next] = signal;
        let from: *const u64 = &self.signals[self.next];
        self.next += 1;
        // SAFETY: the word is written again only after all requests have completed.
        unsafe { self.memory.put(from.cast(), 8, signal_at, watch) }
    }

    fn return_credit(&mut self, at: usize, word: u64) -> Result<bool, Failure> {
        self.credits.retire()?;
        if !self.credits.is_empty() {
            return Ok(false);
        }
        *self.credit = word;
        // SAFETY: the word is written again only after its request has completed.
        let returned = unsafe { self.memory.begin_put(ptr::from_ref::<u64>(self.credit).cast(), 8, at) };
        self.credits.hold(returned)?;
        Ok(true)
    }

    #[inline]
    fn fetch(&mut self, _at: usize) {}

    #[inline]
    fn work(&mut self) -> Result<(), Failure> {
        self.memory.progress();
        Ok(())
    }

    fn settle(&mut self, watch: &Watch) -> Result<(), Failure> {
        self.memory.flush(watch)
    }
}
