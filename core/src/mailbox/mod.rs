//! The mailbox protocol: how frames move through a ring that the peer writes one-sided.
//!
//! A link has two regions, one on each side, each written by the other side only:
//!
//! | offset | bytes | what |
//! |---|---|---|
//! | 0 | 8 | return line: position up to which the writer of this region has consumed what the owner sent |
//! | 8 | 8 | return line: state of the writer: the low half counts falling asleep and waking up, odd while asleep; the high half counts calls to look at the control connection |
//! | 4096 | a power of two | the ring of frames from the writer to the owner |
//!
//! So everything a side polls is its own memory, and everything it tells is one write away; a stream costs one return line
//! for 64 KiB of frames. A *position* counts the bytes of all frames since the link was made; its offset in
//! the ring is the position modulo the ring's length. A frame never wraps: where one does not fit before the end, a frame
//! of kind [`Skip`](crate::frame::Kind::Skip) takes the rest.
//!
//! `Outbound` is the sending half of one ring, `Inbound` the receiving half, and `Waker` and `Sleeper` are the two
//! sides of going to sleep. All are generic over the memory so that loom can check the very code that runs.

#[cfg(all(test, loom))]
mod loom;
mod receiver;
mod sender;
mod sleep;
mod summing;

pub(crate) use receiver::{Glance, Inbound, Seen};
pub(crate) use sender::{Finished, NoRoom, Outbound};
pub(crate) use sleep::{Look, Sleep, Sleeper, State, Waker, fall_asleep};

/// Bytes at the start of a region that hold no ring.
pub const CONTROL_LEN: usize = SMALLEST;
/// Smallest ring, in bytes.
pub const MIN_RING: usize = SMALLEST;
/// A page; in models, which try every order, a line.
const SMALLEST: usize = if cfg!(loom) { crate::frame::LINE } else { 4096 };
/// Offset of the return line's position.
pub(crate) const CONSUMED_AT: usize = 0;
/// Offset of the return line's state.
pub(crate) const STATE_AT: usize = 8;

/// Length of the region that holds a ring of `ring_len` bytes, itself rounded up to a power of two; `usize::MAX`, which
/// nobody can allocate, where that is more than can be expressed.
pub const fn region_len(ring_len: usize) -> usize {
    let ring_len = if ring_len < MIN_RING { MIN_RING } else { ring_len };
    match ring_len.checked_next_power_of_two() {
        Some(ring) => CONTROL_LEN + ring,
        None => usize::MAX,
    }
}

/// Length of the ring in a region of `region_len` bytes: the largest power of two that fits behind the control page, or
/// `None` if that is less than [`MIN_RING`].
pub const fn ring_len(region_len: usize) -> Option<usize> {
    if region_len < CONTROL_LEN + MIN_RING {
        return None;
    }
    Some(1 << (region_len - CONTROL_LEN).ilog2())
}
