//! Dead stack, cleared of keys.

use zeroize::Zeroize;

/// Bytes of dead stack that are overwritten behind what has worked with a key: a multiple of what it reaches down.
const SCRUBBED: usize = 64 << 10;

/// Does what works with keys, and then overwrites the stack below this function's caller: whatever was put there meanwhile is gone.
pub fn scrubbed<T>(work: impl FnOnce() -> T) -> T {
    let done = apart(work);
    scrub();
    done
}

/// Keeps all that `work` puts on the stack below the caller.
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
