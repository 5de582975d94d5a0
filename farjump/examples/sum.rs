//! A source: it sums rows of the store without fetching them.

use std::time::Duration;

use farjump::{Library, Link};

fn main() -> Result<(), farjump::Error> {
    let sum = Library::open("libsum.so")?.typed::<[u64], u64>()?;
    let link = Link::connect("unix:store.sock")?;

    let total = link.call(&sum, &[3, 4, 5])?.wait(Duration::from_secs(1))?;
    println!("rows 3, 4 and 5 sum up to {total}");
    Ok(())
}
