//! A target: it has rows, and exports one function to injected code.

use farjump::{Target, export};

struct Store {
    rows: Vec<u64>,
}

unsafe extern "C" fn store_get(store: *const Store, key: u64) -> u64 {
    // SAFETY: injected code passes its target_args on, which is the store below.
    let store = unsafe { &*store };
    store.rows.get(key as usize).copied().unwrap_or(0)
}

fn main() -> Result<(), farjump::Error> {
    let store = Store { rows: (0..1_000_000).map(|key| key * key).collect() };
    let mut target = Target::listen("unix:store.sock")
        .args_owned(store) // what NAME_main gets as target_args
        .exports([export!(store_get(_, _))]) // what it may call
        .build()?;
    println!("ready");
    target.run() // or poll() in a loop of your own, or spawn() for a thread
}
