//! The mailbox protocol: frames in a ring that the peer writes one-sided. `docs/design/mailbox.md` has the reasons.
//!
//! | offset in the region | bytes | what |
//! |---|---|---|
//! | 0 | 8 | credit line: position up to which the writer of this region has consumed the owner's frames |
//! | 8 | 8 | credit line: state of the writer, asleep or awake, and its notices |
//! | 64 | 8 | processor that the writer runs on, plus one; 0 if unknown |
//! | 4096 | a power of two | the ring of frames from the writer to the owner |
//!
//! Each peer owns one region, which only the other peer writes. `Outbound` and `Inbound` are the halves of a
//! ring.

#[cfg(all(test, loom))]
mod loom;
mod receiver;
mod sender;
mod sleep;
mod summing;

pub(crate) use receiver::{FastPoll, Inbound, PlainPoll, Seen};
pub(crate) use sender::{Finished, NoSpace, Outbound};
pub(crate) use sleep::{Look, Sleep, Sleeper, State, Waker, fall_asleep};

/// Bytes at the start of a region before the ring.
pub const CONTROL_LEN: usize = SMALLEST;
/// Smallest ring, in bytes.
pub const MIN_RING: usize = SMALLEST;
/// The unit of regions. In models, which try every order, a line.
const SMALLEST: usize = if cfg!(loom) { crate::frame::LINE } else { crate::transport::REGION_UNIT };
/// Offset of the consumed position in the credit line.
///
/// A *position* counts the bytes of all frames since the link was made. Its offset in the ring is the
/// position modulo the ring's length. A frame never wraps: if it does not fit before the end, a frame of kind
/// [`Skip`](crate::frame::Kind::Skip) takes the rest. So a peer polls only its own memory and sends with one
/// write; a stream costs one credit line for 64 KiB of frames.
pub(crate) const CONSUMED_AT: usize = 0;
/// Offset of the state in the credit line. The low half counts falling asleep and waking up, odd while
/// asleep. The high half counts notices. `Waker` and `Sleeper` are the two roles in going to sleep.
pub(crate) const STATE_AT: usize = 8;
/// Offset in a region of the state of the peer, and a state that no peer writes: asleep, in its last sleep.
/// For the regions of a forked child, which are copies of its parent's. The first frame sent there makes the
/// sender request a wake-up from the transport, and the transport refuses that to a child.
pub const FORKED_STATE: (usize, u64) = (STATE_AT, u64::MAX);
/// Offset of the writer's processor in the control page, in a line of its own: the credit line is hot.
pub(crate) const PROCESSOR_AT: usize = 64;

/// Length of the region for a ring of `ring_len` bytes, rounded up to a power of two. `usize::MAX`, an
/// impossible allocation, if the length cannot be expressed.
pub const fn region_len(ring_len: usize) -> usize {
    let ring_len = if ring_len < MIN_RING { MIN_RING } else { ring_len };
    match ring_len.checked_next_power_of_two() {
        Some(ring) => CONTROL_LEN + ring,
        None => usize::MAX,
    }
}

/// Length of the ring in a region of `region_len` bytes: the largest power of two that fits behind the
/// control page. `None` if that is less than [`MIN_RING`].
pub const fn ring_len(region_len: usize) -> Option<usize> {
    if region_len < CONTROL_LEN + MIN_RING {
        return None;
    }
    Some(1 << (region_len - CONTROL_LEN).ilog2())
}
