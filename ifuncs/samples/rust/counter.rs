//! counter: adds one to the 64-bit word at `target_args`, as `samples/c/counter.c` does. The payload is not
//! read.

#![no_std]

use farjump_ifunc::{Payload, TargetArgs, ifunc};

ifunc! {
    name: counter,
    main: count,
    target: &mut Counter,
}

#[repr(transparent)]
struct Counter(u64);

// SAFETY: this function is for targets that pass a 64-bit word of their own, which only injected code
// touches.
unsafe impl TargetArgs for Counter {}

fn count(_payload: &Payload, counter: &mut Counter) {
    counter.0 = counter.0.wrapping_add(1);
}
