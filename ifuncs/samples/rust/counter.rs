//! counter: adds one to the 64-bit word at `target_args`, as `samples/c/counter.c` does. The payload is not
//! read.

#![no_std]

use farjump_ifunc::{Payload, ifunc, target_args};

/// This function is for targets that pass a 64-bit word of their own, which only injected code touches.
#[target_args]
struct Counter(u64);

#[ifunc(name = "counter")]
fn count(_payload: &Payload, counter: &mut Counter) {
    counter.0 = counter.0.wrapping_add(1);
}
