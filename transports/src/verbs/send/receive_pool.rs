//! Receive buffers of all endpoints of `verbs-send` on one port: a shared receive queue, and its memory.
//!
//! Each endpoint contributes as many buffers as its peer may have messages under way, so the buffers suffice
//! while each peer keeps to that. Buffers are posted again many at a time. They belong to no endpoint: an
//! endpoint returns the ones that it took.

use std::ptr::{self, NonNull};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use farjump_core::transport::Cause;
use farjump_rdma_sys::{ibv_post_srq_recv, ibv_recv_wr, ibv_sge, ibv_srq, ibv_srq_init_attr};

use crate::verbs::device::Device;
use crate::verbs::error::{exhausted, last_error};
use crate::verbs::memory::{Memory, Use};

/// Length of a buffer in bytes: the longest message that travels in one piece.
pub(super) const PIECE: usize = 16 << 10;
/// Buffers that an endpoint contributes.
pub(super) const WINDOW: u32 = 64;
/// Most buffers of all endpoints, if the device supports as many.
const MOST: u32 = 1 << 16;
/// Most buffers posted at a time.
const CHAIN: usize = 16;

/// The queue and its buffers, as long as there are endpoints.
pub(super) struct Pool {
    srq: NonNull<ibv_srq>,
    inner: Mutex<Inner>,
    most: u32,
    device: Arc<Device>,
}

struct Inner {
    /// Each has [`WINDOW`] buffers. They stay as long as the pool.
    slabs: Vec<Memory>,
    /// Number of endpoints.
    ends: u32,
}

// SAFETY: verbs objects may be used by any thread; everything else is behind the mutex.
unsafe impl Send for Pool {}
// SAFETY: verbs objects may be used by any thread; everything else is behind the mutex.
unsafe impl Sync for Pool {}

impl Pool {
    /// Returns the pool that all endpoints on a device share. The first call makes it.
    pub(super) fn of(device: &Arc<Device>) -> Result<Arc<Pool>, Cause> {
        static POOLS: Mutex<Vec<Weak<Pool>>> = Mutex::new(Vec::new());
        // A panic leaves nothing inconsistent: the list has no state that spans two steps.
        let mut pools = POOLS.lock().unwrap_or_else(PoisonError::into_inner);
        pools.retain(|pool| pool.strong_count() > 0);
        let known = pools.iter().filter_map(Weak::upgrade).find(|pool| Arc::ptr_eq(&pool.device, device));
        if let Some(pool) = known {
            return Ok(pool);
        }
        let pool = Arc::new(Pool::create(device)?);
        pools.push(Arc::downgrade(&pool));
        Ok(pool)
    }

    /// Makes a pool without buffers.
    fn create(device: &Arc<Device>) -> Result<Pool, Cause> {
        let most = device.max_shared().min(MOST);
        // SAFETY: pointers and numbers, for which zero is valid.
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

    /// Adds an endpoint, which may receive [`WINDOW`] messages before it returns a buffer.
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
            let slab = Memory::create(&self.device, WINDOW as usize * PIECE, Use::Received)?;
            inner.slabs.push(slab);
            let all: Vec<u32> = (first..first + WINDOW).collect();
            self.post(&inner, &all)?;
        }
        inner.ends += 1;
        Ok(())
    }

    /// Removes an endpoint, which has returned its buffers.
    pub(super) fn leave(&self) {
        self.locked().ends -= 1;
    }

    /// Returns buffers.
    pub(super) fn give(&self, buffers: &[u32]) -> Result<(), Cause> {
        self.post(&self.locked(), buffers)
    }

    /// Starts of the slabs: buffer `n` is the `n % WINDOW`th of slab `n / WINDOW`. They stay as long as the
    /// pool.
    pub(super) fn slabs(&self) -> Vec<NonNull<u8>> {
        self.locked().slabs.iter().map(Memory::start).collect()
    }

    fn locked(&self) -> MutexGuard<'_, Inner> {
        // A panic leaves nothing inconsistent: none happens between two steps that belong together.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn post(&self, inner: &Inner, buffers: &[u32]) -> Result<(), Cause> {
        for some in buffers.chunks(CHAIN) {
            // SAFETY: pointers and numbers, for which zero is valid.
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
            // SAFETY: the queue exists, the list is complete and terminated, and the slabs stay as long as
            // the queue. Nothing reads a posted buffer.
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
        // SAFETY: no queue pair uses it: each endpoint holds the pool and drops its queue pair first. An
        // error has no remedy.
        unsafe { self.device.verbs.ibv_destroy_srq(self.srq.as_ptr()) };
    }
}
