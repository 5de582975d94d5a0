//! Clearing of dead stack that held keys.

use zeroize::Zeroize;

/// Bytes of dead stack overwritten after work with a key: a multiple of the depth that such work reaches.
const SCRUBBED: usize = 64 << 10;

/// Runs `work`, which handles keys, and then overwrites the stack that it has used below the caller.
pub fn scrubbed<T>(work: impl FnOnce() -> T) -> T {
    let done = apart(work);
    scrub();
    done
}

/// Runs `work` in a frame of its own, so that all it puts on the stack lies below the caller.
#[inline(never)]
fn apart<T>(work: impl FnOnce() -> T) -> T {
    work()
}

/// Overwrites [`SCRUBBED`] bytes of stack below the caller.
#[inline(never)]
fn scrub() {
    let mut dead = [0_u64; SCRUBBED / size_of::<u64>()];
    dead.zeroize();
    std::hint::black_box(&mut dead);
}
