//! Replaces the payload's values with their prefix sums, and replies them from the payload.

#![no_std]

use farjump_ifunc::{ifunc, reply_value};

#[ifunc]
fn prefixes(values: &mut [u64]) {
    let mut sum = 0;
    for value in &mut *values {
        sum += *value;
        *value = sum;
    }
    let _ = reply_value(values);
}
