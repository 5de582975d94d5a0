//! The function to inject: it sums the rows with the given keys.

#![no_std]

use farjump_ifunc::{ifunc, imports, target_args};

#[target_args]
struct Store; // the target's own, which this code only passes on

#[imports]
extern "C" {
    fn store_get(store: &Store, key: u64) -> u64; // the target has it
}

#[ifunc]
fn sum(keys: &[u64], store: &Store) -> u64 {
    keys.iter().map(|&key| store_get(store, key)).sum()
}
