//! The sources of calls, and a target's last call.

use std::sync::Arc;

use farjump_control::PeerIdentity;
use farjump_loader::address_map;

use super::Executor;
use crate::principals::Principal;

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

    /// Has calls of frames run for this principal from now on, where they are told apart. Returns the one before, if it was
    /// another, for [`Executor::restore_principal`].
    #[inline]
    pub(crate) fn set_principal(&mut self, principal: &Arc<Principal>) -> Option<Option<Arc<Principal>>> {
        let is_same = self.context.principal().is_some_and(|before| Arc::ptr_eq(before, principal));
        if is_same || !self.context.tells_callers {
            return None;
        }
        Some(self.context.set_principal(Some(Arc::clone(principal))))
    }

    /// Takes back what [`Executor::set_principal`] has set: nothing ran.
    #[inline]
    pub(crate) fn restore_principal(&mut self, before: Option<Option<Arc<Principal>>>) {
        if let Some(before) = before {
            self.context.set_principal(before);
        }
    }

    /// Has the next call run for this principal, if it is told: the program's own always is.
    pub(crate) fn begin_for(&mut self, principal: &Arc<Principal>) {
        if self.context.tells_callers || principal.link().is_none() {
            self.context.set_principal(Some(Arc::clone(principal)));
        }
    }

    /// Ends what [`Executor::begin_for`] has begun. Where the principals of frames are not told, later calls have none.
    pub(crate) fn end_for(&mut self) {
        if !self.context.tells_callers {
            self.context.set_principal(None);
        }
    }

    /// The function that was called last, and the process that has called it.
    pub(crate) fn last_call(&self) -> Option<LastCall> {
        let found = address_map::find(self.context.main())?;
        Some(LastCall {
            function: found.name().to_owned(),
            caller: self.context.principal().and_then(|principal| principal.peer()).cloned(),
        })
    }
}
