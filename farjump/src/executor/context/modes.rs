//! The modes of arithmetic behind calls: the program's, whatever calls leave.

use std::mem::offset_of;

use super::Context;
use crate::executor::enter::ControlWords;

/// Offset of the noted modes of arithmetic.
const MODES: usize = offset_of!(Context, modes);

impl Context {
    /// Notes the program's modes of arithmetic, before calls that [`Context::restore_modes`] follows.
    #[inline(always)]
    pub(in crate::executor) fn note_modes(&mut self) {
        // SAFETY: the offset is that of the field.
        unsafe { ControlWords::note_at::<MODES>((&raw mut *self).cast()) };
    }

    /// Restores the program's modes of arithmetic as they were noted last.
    #[inline(always)]
    pub(in crate::executor) fn restore_modes(&mut self) {
        // SAFETY: the offset is that of the field, which holds the default or what was noted.
        unsafe { ControlWords::set_at::<MODES>((&raw const *self).cast()) };
    }

    /// Whether the last call has returned with other modes of arithmetic than those that were noted last.
    pub(in crate::executor) fn has_strayed(&self) -> bool {
        let mut now = ControlWords::DEFAULT;
        // SAFETY: the words are those above.
        unsafe { ControlWords::note_at::<0>((&raw mut now).cast()) };
        !self.modes.is(now)
    }

    /// [`Context::note_modes`] for calls that may be made between that and [`Context::restore_modes`]. The result is for
    /// [`Context::end_calls`].
    pub(in crate::executor) fn begin_calls(&mut self) -> ControlWords {
        let outer = self.modes;
        self.note_modes();
        outer
    }

    /// Ends what [`Context::begin_calls`] has begun.
    pub(in crate::executor) fn end_calls(&mut self, outer: ControlWords) {
        self.restore_modes();
        self.modes = outer;
    }
}
