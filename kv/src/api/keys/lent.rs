//! A context that is lent to the functions that run inside a command.

use std::cell::{Cell, RefCell};
use std::ptr::NonNull;

use super::cursors::Cursor;
use crate::api::context::Context;
use crate::api::types::RawContext;

/// The context of the command inside which injected functions run, and the keys that they have open in it.
#[derive(Debug)]
pub(crate) struct Lent {
    context: Cell<Option<NonNull<RawContext>>>,
    /// Cursors, each under its number. Empty whenever there is no context.
    cursors: RefCell<Vec<(u64, Cursor<'static>)>>,
}

/// Most cursors that are open at a time.
pub(crate) const MAX_CURSORS: usize = 64;

impl Lent {
    pub(crate) const fn new() -> Lent {
        Lent { context: Cell::new(None), cursors: RefCell::new(Vec::new()) }
    }

    /// Lends `context` while `work` runs. Closes the cursors that `work` leaves open.
    pub(crate) fn during<T>(&self, context: &Context<'_>, work: impl FnOnce() -> T) -> T {
        /// Takes the context back, even if a panic unwinds.
        struct Back<'l>(&'l Lent);
        impl Drop for Back<'_> {
            fn drop(&mut self) {
                self.0.close_cursors();
                self.0.context.set(None);
            }
        }
        self.context.set(NonNull::new(context.raw()));
        let back = Back(self);
        let result = work();
        drop(back);
        result
    }

    /// Uses the context; `None` if none is lent.
    #[inline]
    pub(crate) fn with<T>(&self, work: impl FnOnce(&Context<'_>) -> T) -> Option<T> {
        let raw = self.context.get()?;
        // SAFETY: `during` sets the context inside the callback to which the server has passed it, and takes it back
        // before that callback returns.
        let context = unsafe { Context::new(raw.as_ptr()) }?;
        Some(work(&context))
    }

    /// Keeps a cursor that `open` makes, under `number`. `None` if no context is lent, `open` makes no cursor, or too
    /// many are open.
    pub(crate) fn open(
        &self,
        number: u64,
        open: impl for<'c> FnOnce(&'c Context<'c>) -> Option<Cursor<'c>>,
    ) -> Option<()> {
        if self.cursors.borrow().len() >= MAX_CURSORS {
            return None;
        }
        let raw = self.context.get()?;
        // SAFETY: as in `with`.
        let context: Context<'static> = unsafe { Context::new(raw.as_ptr()) }?;
        let cursor = open(&context)?;
        // SAFETY: only the lifetime changes. The cursor's key is open in a context that stays valid until `during` ends, which
        // closes all cursors first.
        let cursor = unsafe { std::mem::transmute::<Cursor<'_>, Cursor<'static>>(cursor) };
        self.cursors.borrow_mut().push((number, cursor));
        Some(())
    }

    /// Uses the cursor with this number; `None` if it is not open.
    pub(crate) fn with_cursor<T>(&self, number: u64, work: impl FnOnce(&mut Cursor<'_>) -> T) -> Option<T> {
        let mut cursors = self.cursors.borrow_mut();
        let (_, cursor) = cursors.iter_mut().find(|(open, _)| *open == number)?;
        Some(work(cursor))
    }

    /// Closes the cursor with this number. Returns `false` if it is not open.
    pub(crate) fn close(&self, number: u64) -> bool {
        let mut cursors = self.cursors.borrow_mut();
        let found = cursors.iter().position(|(open, _)| *open == number);
        found.map(|at| cursors.swap_remove(at)).is_some()
    }

    /// Returns whether the maximum number of cursors is open.
    pub(crate) fn are_too_many(&self) -> bool {
        self.cursors.borrow().len() >= MAX_CURSORS
    }

    /// Closes all cursors, before a command that may write: an open key has no reference to its value.
    pub(crate) fn close_cursors(&self) {
        self.cursors.borrow_mut().clear();
    }
}
