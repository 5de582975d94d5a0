//! The modes of arithmetic after calls: the program's, whichever modes a call leaves.

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
        // SAFETY: the offset is that of the field, which holds the default or the noted modes.
        unsafe { ControlWords::set_at::<MODES>((&raw const *self).cast()) };
    }

    /// Returns whether the last call returned with other modes of arithmetic than those noted last.
    pub(in crate::executor) fn has_strayed(&self) -> bool {
        let mut now = ControlWords::DEFAULT;
        // SAFETY: the words are those above.
        unsafe { ControlWords::note_at::<0>((&raw mut now).cast()) };
        !self.modes.is(now)
    }

    /// As [`Context::note_modes`], for calls between that and [`Context::restore_modes`]. Returns the modes noted
    /// before, for [`Context::end_calls`].
    pub(in crate::executor) fn begin_calls(&mut self) -> ControlWords {
        let outer = self.modes;
        self.note_modes();
        outer
    }

    /// Restores the program's modes after the calls that [`Context::begin_calls`] began. `outer` is its result.
    pub(in crate::executor) fn end_calls(&mut self, outer: ControlWords) {
        self.restore_modes();
        self.modes = outer;
    }
}
