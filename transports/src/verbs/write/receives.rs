//! Receives for writes with immediate data: this process keeps them posted and counts them, and the sender never
//! exceeds them.
//!
//! Neither peer ever waits for the other's device to retry. The sender knows the number of posted receives,
//! first from the address and then from a word that the receiver writes.

use std::ptr;

use farjump_core::transport::Cause;
use farjump_rdma_sys::{IBV_WC_RECV_RDMA_WITH_IMM, IBV_WC_SUCCESS, ibv_post_recv, ibv_recv_wr, ibv_wc};

use crate::verbs::completions::{BATCH, Batch, failure};
use crate::verbs::queue::Queue;

/// Immediate data of a frame's write.
pub(super) const FRAME: u32 = 0;
/// Immediate data of a wake-up.
pub(super) const DOORBELL: u32 = 1;

/// Both directions of one link.
#[derive(Debug)]
pub(super) struct Window {
    /// Receives of this endpoint.
    receives: u32,
    /// Receives to post again.
    used: u32,
    /// Receives posted again since the start, and the number that the peer knows.
    posted: u64,
    returned: u64,
    /// Frames received.
    frames: u64,
    /// Number of the peer's receives, and the number used since the start.
    theirs: u64,
    taken: u64,
}

impl Window {
    /// Makes the window of an endpoint with this many receives.
    pub(super) fn of(receives: u32) -> Window {
        Window { receives, used: 0, posted: 0, returned: 0, frames: 0, theirs: 0, taken: 0 }
    }

    /// Sets the number of the peer's receives.
    pub(super) fn open(&mut self, theirs: u32) {
        self.theirs = u64::from(theirs);
    }

    /// Returns whether the peer has a receive left, by its claim to have posted `posted` again. The peer may lie, so
    /// this counts no more returned receives than were used.
    #[inline]
    pub(super) fn has_credit(&self, posted: u64) -> bool {
        self.taken - posted.min(self.taken) < self.theirs
    }

    /// Uses one of the peer's receives. `false` if there is none.
    #[inline]
    pub(super) fn take(&mut self, posted: u64) -> bool {
        let has_credit = self.has_credit(posted);
        self.taken += u64::from(has_credit);
        has_credit
    }

    /// Frames received since the start.
    pub(super) fn frames(&self) -> u64 {
        self.frames
    }

    /// The number of receives posted again, if the peer should get it now: after a quarter of them, so that the peer
    /// need not wait.
    pub(super) fn due(&self) -> Option<u64> {
        (self.posted - self.returned >= u64::from(self.receives / 4)).then_some(self.posted)
    }

    /// Records that the peer knows of `posted` receives.
    pub(super) fn returned(&mut self, posted: u64) {
        self.returned = posted;
    }

    /// Posts `many` receives without memory: written data goes elsewhere.
    pub(super) fn post(&self, queue: &Queue, many: u32) -> Result<(), Cause> {
        let mut left = many as usize;
        while left > 0 {
            let now = left.min(BATCH);
            // SAFETY: pointers and numbers, for which zero is valid.
            let mut list: [ibv_recv_wr; BATCH] = unsafe { std::mem::zeroed() };
            let first = list.as_mut_ptr();
            for (index, wr) in list[..now - 1].iter_mut().enumerate() {
                // SAFETY: inside the list.
                wr.next = unsafe { first.add(index + 1) };
            }
            let mut bad = ptr::null_mut();
            // SAFETY: the queue pair exists, and the list is complete and terminated.
            match unsafe { ibv_post_recv(queue.as_ptr(), first, &mut bad) } {
                0 => left -= now,
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

    /// Takes completions of receives, counts them, and posts receives again, many at a time.
    #[inline(always)]
    pub(super) fn receive(&mut self, queue: &Queue) -> Result<(), Cause> {
        let mut batch: Batch = [const { std::mem::MaybeUninit::uninit() }; BATCH];
        loop {
            let done = queue.received.take(&mut batch)?;
            for done in done {
                if done.status != IBV_WC_SUCCESS || done.opcode != IBV_WC_RECV_RDMA_WITH_IMM {
                    return Err(unexpected(queue, done));
                }
                // SAFETY: the operation has immediate data.
                let immediate = u32::from_be(unsafe { done.__bindgen_anon_1.imm_data });
                self.frames += u64::from(immediate == FRAME);
            }
            self.used += done.len() as u32;
            if self.used >= self.receives / 8 {
                self.post_used(queue)?;
            }
            if done.len() < BATCH {
                return Ok(());
            }
        }
    }

    /// Posts the used receives again.
    #[cold]
    fn post_used(&mut self, queue: &Queue) -> Result<(), Cause> {
        self.post(queue, self.used)?;
        self.posted += u64::from(self.used);
        self.used = 0;
        Ok(())
    }
}

/// The cause of a completion that is not that of a write with immediate data.
#[cold]
fn unexpected(queue: &Queue, done: &ibv_wc) -> Cause {
    if done.status != IBV_WC_SUCCESS {
        return failure(&queue.device, done, queue.beside());
    }
    Cause::System("the peer sent a message into a mailbox that is only written".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sender_takes_no_more_receives_than_its_peer_has_posted() {
        let mut window = Window::of(16);
        assert!(!window.take(0), "before the peer is known it has none");
        window.open(4);
        assert!((0..4).all(|_| window.take(0)) && !window.take(0));
        assert!(window.take(2) && window.take(2) && !window.take(2));
        // Six receives were used, so a claim of more returns six.
        assert!((0..4).all(|_| window.take(u64::MAX)));
        assert!(window.has_credit(u64::MAX) && !window.has_credit(6));
    }

    #[test]
    fn credit_is_returned_once_per_quarter_of_the_receives() {
        let mut window = Window::of(16);
        window.posted = 3;
        assert_eq!(window.due(), None);
        window.posted = 4;
        assert_eq!(window.due(), Some(4));
        window.returned(4);
        assert_eq!(window.due(), None);
    }
}
