//! Whether frames wake the peer as they are sent, or once for several.

/// The two facts, in one byte: what each call touches has no space for two.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Wakes(u8);

/// Frames are sent that wake no peer.
const HELD: u8 = 1;
/// One was sent that a sleeping peer may have missed.
const OWED: u8 = 2;

impl Wakes {
    pub(super) fn hold(&mut self) {
        self.0 |= HELD;
    }

    pub(super) fn end_hold(&mut self) {
        self.0 &= !HELD;
    }

    #[inline(always)]
    pub(super) fn are_owed(self) -> bool {
        self.0 & OWED != 0
    }

    /// Bytes in flight for which a sleeping peer is to be woken now: none while wakes are held. `in_flight` says how many
    /// there are.
    pub(super) fn missed(&mut self, in_flight: impl FnOnce() -> u64) -> u64 {
        if self.0 & HELD != 0 {
            self.0 |= OWED;
            return 0;
        }
        self.0 = 0;
        in_flight()
    }
}
