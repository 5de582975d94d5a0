//! histogram: counts each byte value in the target's data. The payload is not read. The reply is the same as
//! that of `samples/c/histogram.c`: 257 words of 64 bits, the length and then the count of each value.

#![no_std]

use farjump_ifunc::{Data, Payload, ifunc, reply_value};

#[ifunc(name = "histogram")]
fn count(_payload: &Payload, data: &Data) {
    // Four tables: in one, equal bytes in a row would wait for the store of each other's count.
    let mut counts = [[0_u64; 256]; 4];
    let [first, second, third, fourth] = &mut counts;
    for [a, b, c, d] in data.chunks::<4>() {
        first[usize::from(a)] += 1;
        second[usize::from(b)] += 1;
        third[usize::from(c)] += 1;
        fourth[usize::from(d)] += 1;
    }
    for byte in data.rest::<4>() {
        first[usize::from(byte)] += 1;
    }
    for (((sum, b), c), d) in first.iter_mut().zip(second).zip(third).zip(fourth) {
        *sum += *b + *c + *d;
    }
    let len = data.len() as u64;
    // If the reply exceeds the target's limit, the source sees an empty one.
    let _ = reply_value(&len).and_then(|()| reply_value(first));
}
