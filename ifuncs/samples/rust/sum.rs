//! sum: adds up the payload, an array of 32-bit floats, in double precision. The reply is the same as that of
//! `samples/c/sum.c`: a 64-bit float, of additions in the same order.

#![no_std]

use farjump_ifunc::ifunc;

#[ifunc]
fn sum(values: &[f32]) -> f64 {
    // Four sums: in one, each addition would wait for the one before it.
    let mut sums = [0_f64; 4];
    let (fours, rest) = values.as_chunks::<4>();
    for four in fours {
        for (sum, value) in sums.iter_mut().zip(four) {
            *sum += f64::from(*value);
        }
    }
    let [mut first, second, third, fourth] = sums;
    for value in rest {
        first += f64::from(*value);
    }
    (first + second) + (third + fourth)
}
