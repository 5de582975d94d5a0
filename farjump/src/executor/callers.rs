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
    /// The process that called it; `None` for the program itself, and in targets that do not distinguish callers.
    pub caller: Option<Arc<PeerIdentity>>,
}

impl Executor {
    /// Distinguishes calls by their sources.
    pub(crate) fn expose_callers(&mut self) {
        self.context.exposes_callers = true;
    }

    /// Sets the principal for which calls of frames run from now on, if callers are distinguished. Returns the earlier
    /// one, if it was another, for [`Executor::restore_principal`].
    #[inline]
    pub(crate) fn set_principal(&mut self, principal: &Arc<Principal>) -> Option<Option<Arc<Principal>>> {
        let is_same = self.context.principal().is_some_and(|before| Arc::ptr_eq(before, principal));
        if is_same || !self.context.exposes_callers {
            return None;
        }
        Some(self.context.set_principal(Some(Arc::clone(principal))))
    }

    /// Restores the principal before [`Executor::set_principal`], because nothing ran.
    #[inline]
    pub(crate) fn restore_principal(&mut self, before: Option<Option<Arc<Principal>>>) {
        if let Some(before) = before {
            self.context.set_principal(before);
        }
    }

    /// Sets the principal of the next call. For a source's principal this applies only if callers are distinguished;
    /// the program's own always applies.
    pub(crate) fn begin_for(&mut self, principal: &Arc<Principal>) {
        if self.context.exposes_callers || principal.link().is_none() {
            self.context.set_principal(Some(Arc::clone(principal)));
        }
    }

    /// Ends the call of [`Executor::begin_for`]. If callers are not distinguished, later calls have no principal.
    pub(crate) fn end_for(&mut self) {
        if !self.context.exposes_callers {
            self.context.set_principal(None);
        }
    }

    /// Returns the function that was called last, and the process that called it.
    pub(crate) fn last_call(&self) -> Option<LastCall> {
        let found = address_map::find(self.context.main())?;
        Some(LastCall {
            function: found.name().to_owned(),
            caller: self.context.principal().and_then(|principal| principal.peer()).cloned(),
        })
    }
}
