//! The sources of calls, and a target's last call.

use std::sync::Arc;

use farjump_control::PeerIdentity;
use farjump_loader::address_map;

use super::Executor;

/// A target's last call.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct LastCall {
    /// The function's name: letters, digits and other printable ASCII. Its author chose it.
    pub function: String,
    /// The process that has called it; `None` for the program itself, and where that is not told.
    pub caller: Option<Arc<PeerIdentity>>,
}

impl Executor {
    /// Has calls be told apart by their sources.
    pub(crate) fn tell_callers(&mut self) {
        self.context.tells_callers = true;
    }

    /// Has calls count as this source's, or the target's own, from now on, where they are told apart. Returns the source
    /// before.
    #[inline]
    pub(crate) fn set_caller(&mut self, source: u64) -> u64 {
        self.context.set_caller(source)
    }

    /// Makes the process behind a source known to the functions that it calls.
    pub(crate) fn add_caller(&mut self, source: u64, peer: &PeerIdentity) {
        self.context.add_caller(source, Arc::new(peer.clone()));
    }

    /// Forgets a source that has ended.
    pub(crate) fn remove_caller(&mut self, source: u64) {
        self.context.remove_caller(source);
    }

    /// The function that was called last, and the process that has called it.
    pub(crate) fn last_call(&self) -> Option<LastCall> {
        let found = address_map::find(self.context.main())?;
        Some(LastCall { function: found.name().to_owned(), caller: self.context.last_caller().cloned() })
    }
}
