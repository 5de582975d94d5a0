//! Receive buffers of an endpoint of `verbs-send`: one for each message that its peer may have under way.
//!
//! The endpoint posts them again many at a time. Each endpoint has its own: a peer that sends more than its credit
//! finds none, and takes none from another link.

use std::ptr::{self, NonNull};
use std::sync::Arc;

use farjump_core::transport::Cause;
use farjump_rdma_sys::{ibv_post_recv, ibv_recv_wr, ibv_sge};

use crate::verbs::device::domain::Domain;
use crate::verbs::memory::{Memory, Use};
use crate::verbs::queue::Queue;

/// Length of a buffer in bytes: the longest message that travels in one piece.
pub(super) const PIECE: usize = 16 << 10;
/// Number of buffers.
pub(super) const WINDOW: u32 = 64;
/// Most buffers posted at a time.
const CHAIN: usize = 16;

/// The memory of all buffers.
pub(super) struct Buffers(Memory);

impl Buffers {
    /// Makes buffers for a queue pair in this domain.
    pub(super) fn create(domain: &Arc<Domain>) -> Result<Buffers, Cause> {
        Memory::create(domain, WINDOW as usize * PIECE, Use::Received).map(Buffers)
    }

    /// The numbers of all buffers.
    pub(super) fn all() -> Vec<u32> {
        (0..WINDOW).collect()
    }

    /// Start of a buffer.
    ///
    /// # Panics
    /// There is no buffer of this number.
    #[inline(always)]
    pub(super) fn start(&self, buffer: u32) -> NonNull<u8> {
        assert!(buffer < WINDOW, "there is no buffer {buffer}");
        // SAFETY: inside the memory.
        unsafe { self.0.start().add(buffer as usize * PIECE) }
    }

    /// Posts unposted buffers for receiving, by their numbers.
    pub(super) fn post(&self, queue: &Queue, buffers: &[u32]) -> Result<(), Cause> {
        for some in buffers.chunks(CHAIN) {
            // SAFETY: pointers and numbers, for which zero is valid.
            let (mut list, mut parts): ([ibv_recv_wr; CHAIN], [ibv_sge; CHAIN]) =
                unsafe { std::mem::zeroed() };
            let first = list.as_mut_ptr();
            for (index, buffer) in some.iter().enumerate() {
                let at = self.start(*buffer).addr().get() as u64;
                parts[index] = ibv_sge { addr: at, length: PIECE as u32, lkey: self.0.local_key() };
                let wr = &mut list[index];
                (wr.wr_id, wr.sg_list, wr.num_sge) = (u64::from(*buffer), &mut parts[index], 1);
                if index + 1 < some.len() {
                    // SAFETY: inside the list.
                    wr.next = unsafe { first.add(index + 1) };
                }
            }
            let mut bad = ptr::null_mut();
            // SAFETY: the queue pair exists, and the list is complete and terminated. The memory stays valid until the
            // queue pair is gone (`SendEndpoint`), and nothing reads a posted buffer.
            match unsafe { ibv_post_recv(queue.as_ptr(), first, &mut bad) } {
                0 => {}
                errno => {
                    return Err(Cause::System(format!(
                        "{} does not take a receive: {}",
                        queue.device.name,
                        std::io::Error::from_raw_os_error(errno)
                    )));
                }
            }
        }
        Ok(())
    }
}
