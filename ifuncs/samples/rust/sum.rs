//! sum: adds up the payload, an array of 32-bit floats, in double precision. The reply is the same as that of
//! `samples/c/sum.c`: a 64-bit float, of additions in the same order.

#![no_std]

use farjump_ifunc::{Payload, fail, ifunc, reply_value};

ifunc! {
    name: sum,
    main: sum,
}

fn sum(payload: &Payload) {
    if payload.len() % size_of::<f32>() != 0 {
        fail("the payload is no array of 32-bit floats: its length is no multiple of 4 bytes")
    }
    // Four sums: in one, each addition would wait for the one before it.
    let mut sums = [0_f64; 4];
    let mut values = payload.chunks().map(f32::from_le_bytes);
    while values.len() >= sums.len() {
        for (sum, value) in sums.iter_mut().zip(&mut values) {
            *sum += f64::from(value);
        }
    }
    let [mut first, second, third, fourth] = sums;
    for value in values {
        first += f64::from(value);
    }
    // If the reply exceeds the target's limit, the source sees an empty one.
    let _ = reply_value(&((first + second) + (third + fourth)));
}
