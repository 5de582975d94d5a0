//! The message of a chase, and the arguments of `chase` at each place: both as in `chase.c`.

use std::cell::RefCell;
use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::atomic::{AtomicI32, Ordering};

use super::table::{Chase, Table};
use super::wire;
use crate::program::failure::Failure;

/// A message.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(super) struct Message {
    /// Its stamp, see [`wire`].
    sent: u64,
    /// The next word, or after the last one the result.
    pub(super) index: u32,
    pub(super) left: u32,
    pub(super) slot: u32,
    /// Messages so far.
    pub(super) messages: u32,
}

/// Bytes of a message.
pub(super) const LEN: usize = size_of::<Message>();

impl Message {
    /// Returns the first message of a chase, sent now.
    pub(super) fn first(chase: &Chase, slot: u32) -> Message {
        Message { sent: wire::stamp(), index: chase.start, left: chase.depth, slot, messages: 1 }
    }

    pub(super) fn to_bytes(self) -> [u8; LEN] {
        // SAFETY: a message has no padding: 8 bytes and four times 4.
        unsafe { std::mem::transmute(self) }
    }
}

/// A chase that has ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Ended {
    pub(super) slot: u32,
    pub(super) index: u32,
    pub(super) messages: u32,
}

/// The arguments of `chase` at a shard or at the client. Of one thread.
#[repr(C)]
pub(super) struct Place {
    /// The shard's part of the table; null at the client.
    words: *const u64,
    first: u32,
    log2: u32,
    client: u32,
    // The fields below are this program's alone.
    ended: RefCell<Vec<Ended>>,
}

impl Place {
    /// Returns the place of a shard. The table must outlive it.
    pub(super) fn of_shard(table: &Table, shard: usize) -> Place {
        Place::over(table.part(shard), shard, table.shards())
    }

    /// Returns the place of one of so many shards, whose part of the table must outlive it.
    pub(super) fn over(part: &[u64], shard: usize, shards: usize) -> Place {
        let log2 = part.len().ilog2();
        Place { words: part.as_ptr(), first: (shard << log2) as u32, ..Place::without_words(log2, shards) }
    }

    pub(super) fn of_client(table: &Table) -> Place {
        Place::without_words(table.log2(), table.shards())
    }

    fn without_words(log2: u32, shards: usize) -> Place {
        Place { words: ptr::null(), first: 0, log2, client: shards as u32, ended: RefCell::default() }
    }

    /// Returns the address for `chase`.
    pub(super) fn as_args(&self) -> *mut c_void {
        ptr::from_ref(self).cast_mut().cast()
    }

    /// Moves the chases that have ended here to `ended`.
    #[inline]
    pub(super) fn take_ended(&self, ended: &mut Vec<Ended>) {
        ended.append(&mut self.ended.borrow_mut());
    }
}

/// Number of digits in the name of a destination.
const DIGITS: usize = 2;
/// Most shards: each, and the client, has a name of two digits.
pub(super) const MOST_SHARDS: usize = 64;

/// Returns the name of a destination: that of the client follows those of the shards.
pub(super) fn name(place: usize) -> String {
    format!("{place:0DIGITS$}")
}

/// Reads the name of a destination.
#[cfg(feature = "ucx")]
#[inline]
pub(super) fn place_of(name: [u8; DIGITS]) -> usize {
    usize::from(name[0] - b'0') * 10 + usize::from(name[1] - b'0')
}

/// The reason why a chase was lost: a result of `farjump_forward`, or 0.
static LOST: AtomicI32 = AtomicI32::new(0);

/// # Errors
/// A chase was lost since the last call.
pub(super) fn check_lost() -> Result<(), Failure> {
    match LOST.swap(0, Ordering::Relaxed) {
        0 => Ok(()),
        why => Err(Failure::new(format!("a chase did not go on: farjump_forward returned {why}"))),
    }
}

/// The call of `chase` at the client when a chase has ended.
pub(super) unsafe extern "C" fn perf_chase_ended(message: *const Message, place: *const Place) {
    // SAFETY: `chase` passes its message and its place, which is of this thread.
    let (message, place) = unsafe { (&*message, &*place) };
    let Message { slot, index, messages, .. } = *message;
    place.ended.borrow_mut().push(Ended { slot, index, messages });
}

/// The call of `chase` when it cannot continue.
pub(super) extern "C" fn perf_chase_lost(why: c_int) {
    LOST.store(why, Ordering::Relaxed);
}
