#![doc = include_str!("../README.md")]
//!
//! # Modules
//! Start with [`channel`], then [`frame`], [`mailbox`] and [`transport`]. Only `memory`, `shared` and `channel`
//! touch memory that a peer writes.

#![no_std]
#![deny(missing_docs)]

#[cfg(not(all(target_pointer_width = "64", target_has_atomic = "64")))]
compile_error!(
    "farjump-core runs where pointers and atomic operations have 64 bits: two processes share words of 64 bits, and lengths are \
     `usize`. Build it for a 64-bit target"
);

extern crate alloc;
#[cfg(any(test, loom, feature = "std"))]
extern crate std;

pub mod channel;
mod counted;
mod descriptor;
pub mod icache;
pub mod mailbox;
mod memory;
pub mod shared;
mod sync;
pub mod transport;
pub mod wait;
mod wire;
mod worded;

pub use counted::counted;
pub use wire::{bitcode, code, cpu, frame, image, signal};

/// Planted races, for the tests which show that races are found.
#[cfg(farjump_planted)]
#[doc(hidden)]
pub mod planted {
    use crate::sync::{Handover, planted};

    /// Hands over `what` (`frame`, `credit` or `notice`) by relaxed stores from now on. `false` for an
    /// unknown name.
    pub fn plant(what: &str) -> bool {
        let what = match what {
            "frame" => Handover::Frame,
            "credit" => Handover::Credit,
            "notice" => Handover::Notice,
            _ => return false,
        };
        planted::plant(Some(what));
        true
    }
}
