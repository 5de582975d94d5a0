//! The core of farjump: frames, signals, mailboxes, images and the transport contract.
//!
//! It is `no_std` with `alloc`, knows no operating system and allocates nothing for a message. Embed it in a runtime of
//! your own, or write a transport against it; programs that just inject functions want the `farjump` crate. The feature
//! `std` makes the file descriptors of the transport contract those of the standard library; a transport that has any, or
//! something to sleep on, asks for it.
//!
//! | module | about |
//! |---|---|
//! | [`channel`] | one end of a link: frames in, frames out, whatever moves them |
//! | [`frame`] | one message, to the bit |
//! | [`signal`] | the words that say "here, whole, and of this lap" |
//! | [`image`] | code that travels: parsing, placing, patching its GOT |
//! | [`icache`] | making placed code visible to the processor |
//! | [`mailbox`] | the rings that one-sided transports write into |
//! | [`transport`] | the contract that backends implement |
//! | [`wait`] | how long to spin, pause and yield before sleeping |
//!
//! # Unsafe
//! Memory that a peer writes is touched in `memory`, `shared` and `channel` alone.

#![no_std]
#![deny(missing_docs)]

extern crate alloc;
#[cfg(any(test, loom, feature = "std"))]
extern crate std;

pub mod channel;
mod descriptor;
pub mod icache;
pub mod mailbox;
mod memory;
mod passed_over;
pub mod shared;
mod stream;
mod sync;
pub mod transport;
pub mod wait;
mod wire;

pub use wire::{frame, image, signal};

/// Planting races, for the tests that show that races are found.
#[cfg(farjump_planted)]
#[doc(hidden)]
pub mod planted {
    use crate::sync::{Handover, planted};

    /// From now on what `what` names (`frame`, `room` or `attention`) is handed over by relaxed stores. `false` if it names nothing.
    pub fn plant(what: &str) -> bool {
        let what = match what {
            "frame" => Handover::Frame,
            "room" => Handover::Room,
            "attention" => Handover::Attention,
            _ => return false,
        };
        planted::plant(Some(what));
        true
    }
}
