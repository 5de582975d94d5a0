//! sum: adds up the payload, an array of 32-bit floats, in double precision. The reply is the same as that of
//! `samples/c/sum.c`: a 64-bit float, of additions in the same order.

#![no_std]

use farjump_ifunc::{fail, ifunc, reply_value};

ifunc! {
    name: sum,
    main: sum,
}

fn sum(payload: &[u8]) {
    let (values, []) = payload.as_chunks::<4>() else {
        fail("the payload is no array of 32-bit floats: its length is no multiple of 4 bytes")
    };
    // Four sums, as each addition would otherwise wait for the one before it.
    let mut sums = [0_f64; 4];
    let (quads, rest) = values.as_chunks::<4>();
    for quad in quads {
        for (sum, value) in sums.iter_mut().zip(quad) {
            *sum += f64::from(f32::from_le_bytes(*value));
        }
    }
    let [mut first, second, third, fourth] = sums;
    for value in rest {
        first += f64::from(f32::from_le_bytes(*value));
    }
    // One that is too long for the target is none: the source sees an empty reply.
    let _ = reply_value(&((first + second) + (third + fourth)));
}
