//! Wakes of the peer: one for each frame as it is sent, or one for several frames.

/// Two flags in one byte: the lines that each call touches have no space for two bytes.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Wakes(u8);

/// Frames sent now wake no peer.
const HELD: u8 = 1;
/// A frame was sent that a sleeping peer may have missed.
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

    /// Returns the bytes in flight for which a sleeping peer needs a wake-up now: 0 while wakes are held.
    /// `in_flight` returns the bytes in flight.
    pub(super) fn missed(&mut self, in_flight: impl FnOnce() -> u64) -> u64 {
        if self.0 & HELD != 0 {
            self.0 |= OWED;
            return 0;
        }
        self.0 = 0;
        in_flight()
    }
}
