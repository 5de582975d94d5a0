//! A source: it sums rows of the store without fetching them.

use std::time::Duration;

use farjump::{Library, Link};

fn main() -> Result<(), farjump::Error> {
    let sum = Library::open("libsum.so")?;
    let link = Link::connect("unix:store.sock")?;

    let keys: Vec<u8> = [3_u64, 4, 5].into_iter().flat_map(u64::to_ne_bytes).collect();
    let reply = link.inject(&sum, &keys)?.wait(Duration::from_secs(1))?;

    let total = reply.first_chunk().map(|bytes| u64::from_ne_bytes(*bytes));
    println!("rows 3, 4 and 5 sum up to {}", total.unwrap_or(0));
    Ok(())
}
