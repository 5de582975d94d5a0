//! Detection of a peer that runs on the same processor.

use super::OneSided;
use crate::mailbox::PROCESSOR_AT;
use crate::memory::Memory;
use crate::sync::Ordering;

impl OneSided {
    /// See [`Channel::shares_processor`](super::super::Channel::shares_processor).
    pub(in crate::channel) fn shares_processor(&mut self, own: usize) -> Option<bool> {
        let peer = self.peer.as_ref()?;
        // Relaxed: the word orders nothing. It is a hint, and a wrong one costs its reader some time only.
        let own = (own as u64).saturating_add(1);
        // A store would take the line from the peer's cache, so it is made only after a migration.
        if peer.load(PROCESSOR_AT, Ordering::Relaxed) != own {
            peer.store(PROCESSOR_AT, own, Ordering::Relaxed);
        }
        Some(self.returns.load(PROCESSOR_AT, Ordering::Relaxed) == own)
    }
}
