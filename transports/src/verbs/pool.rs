//! Buffers that all ends of `verbs-send` on one port receive into: a shared receive queue, and the memory behind it.
//!
//! Each end brings as many buffers as its peer may have messages under way, so together they never run short while each peer
//! keeps to that. Buffers are posted again many at a time. They belong to no end: whoever takes one gives back that one.

use std::ptr::{self, NonNull};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use farjump_core::transport::Cause;
use farjump_rdma_sys::{ibv_post_srq_recv, ibv_recv_wr, ibv_sge, ibv_srq, ibv_srq_init_attr};

use super::device::Device;
use super::memory::{Memory, Written, exhausted, last_error};

/// Length of a buffer in bytes: the longest message that travels in one piece.
pub(super) const PIECE: usize = 16 << 10;
/// Buffers that an end brings.
pub(super) const WINDOW: u32 = 64;
/// Buffers of all ends at most, if the device can.
const MOST: u32 = 1 << 16;
/// Buffers that are posted at a time at most.
const CHAIN: usize = 16;

/// The queue and its buffers, as long as there are ends.
pub(super) struct Pool {
    srq: NonNull<ibv_srq>,
    inner: Mutex<Inner>,
    most: u32,
    device: Arc<Device>,
}

struct Inner {
    /// Each has [`WINDOW`] buffers. None goes before the pool does.
    slabs: Vec<Memory>,
    /// Ends that there are.
    ends: u32,
}

// SAFETY: objects of verbs may be used by any thread; all else is behind the mutex.
unsafe impl Send for Pool {}
// SAFETY: as above.
unsafe impl Sync for Pool {}

impl Pool {
    /// One without buffers.
    pub(super) fn create(device: &Arc<Device>) -> Result<Pool, Cause> {
        let most = device.max_shared().min(MOST);
        // SAFETY: pointers and numbers, for which zero will do.
        let mut asked: ibv_srq_init_attr = unsafe { std::mem::zeroed() };
        (asked.attr.max_wr, asked.attr.max_sge) = (most, 1);
        // SAFETY: the domain is the device's.
        let srq = unsafe { device.verbs.ibv_create_srq(device.domain(), &mut asked) };
        let Some(srq) = NonNull::new(srq) else {
            let what = exhausted(&device.name, "shared receive queue", &last_error());
            return Err(Cause::System(format!("{what}, or use verbs-write")));
        };
        Ok(Pool {
            srq,
            inner: Mutex::new(Inner { slabs: Vec::new(), ends: 0 }),
            most,
            device: Arc::clone(device),
        })
    }

    pub(super) fn as_ptr(&self) -> *mut ibv_srq {
        self.srq.as_ptr()
    }

    /// An end comes, which may receive [`WINDOW`] messages before it gives a buffer back.
    pub(super) fn join(&self) -> Result<(), Cause> {
        let mut inner = self.locked();
        if (inner.slabs.len() as u32) <= inner.ends {
            let first = inner.slabs.len() as u32 * WINDOW;
            if first + WINDOW > self.most {
                return Err(Cause::System(format!(
                    "{} receives for {} links at most: fewer links, or verbs-write",
                    self.device.name,
                    self.most / WINDOW
                )));
            }
            let slab = Memory::create(&self.device, WINDOW as usize * PIECE, Written::Here)?;
            inner.slabs.push(slab);
            let all: Vec<u32> = (first..first + WINDOW).collect();
            self.post(&inner, &all)?;
        }
        inner.ends += 1;
        Ok(())
    }

    /// An end goes, which has given back what it took.
    pub(super) fn leave(&self) {
        self.locked().ends -= 1;
    }

    /// Gives buffers back.
    pub(super) fn give(&self, buffers: &[u32]) -> Result<(), Cause> {
        self.post(&self.locked(), buffers)
    }

    /// Where each slab begins: buffer `n` is the `n % WINDOW`th of slab `n / WINDOW`. They stay as long as the pool.
    pub(super) fn slabs(&self) -> Vec<NonNull<u8>> {
        self.locked().slabs.iter().map(Memory::start).collect()
    }

    fn locked(&self) -> MutexGuard<'_, Inner> {
        // Nothing in it is left half done by a panic: there is none between two steps that belong together.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn post(&self, inner: &Inner, buffers: &[u32]) -> Result<(), Cause> {
        for some in buffers.chunks(CHAIN) {
            // SAFETY: pointers and numbers, for which zero will do.
            let (mut list, mut parts): ([ibv_recv_wr; CHAIN], [ibv_sge; CHAIN]) =
                unsafe { std::mem::zeroed() };
            let first = list.as_mut_ptr();
            for (index, buffer) in some.iter().enumerate() {
                let slab = &inner.slabs[(buffer / WINDOW) as usize];
                let at = slab.start().addr().get() + (buffer % WINDOW) as usize * PIECE;
                parts[index] = ibv_sge { addr: at as u64, length: PIECE as u32, lkey: slab.local_key() };
                let wr = &mut list[index];
                (wr.wr_id, wr.sg_list, wr.num_sge) = (u64::from(*buffer), &mut parts[index], 1);
                if index + 1 < some.len() {
                    // SAFETY: inside the list.
                    wr.next = unsafe { first.add(index + 1) };
                }
            }
            let mut bad = ptr::null_mut();
            // SAFETY: the queue is there, the list is whole and ends, and the slabs stay as long as the queue. Nobody looks at a
            // buffer that is posted.
            match unsafe { ibv_post_srq_recv(self.srq.as_ptr(), first, &mut bad) } {
                0 => {}
                errno => {
                    return Err(Cause::System(format!(
                        "{} does not take a receive: {}",
                        self.device.name,
                        std::io::Error::from_raw_os_error(errno)
                    )));
                }
            }
        }
        Ok(())
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        // SAFETY: no queue pair uses it: each end has the pool and drops its queue pair first. That it fails cannot be mended.
        unsafe { self.device.verbs.ibv_destroy_srq(self.srq.as_ptr()) };
    }
}
