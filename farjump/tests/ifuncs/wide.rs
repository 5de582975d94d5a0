//! Replies the largest of values that need more alignment than a payload has, and its address modulo that alignment.

#![no_std]

use farjump_ifunc::ifunc;

#[ifunc]
fn wide(values: &[u128]) -> [u128; 2] {
    let misplaced = values.as_ptr().addr() % align_of::<u128>();
    [values.iter().copied().max().unwrap_or(0), misplaced as u128]
}
