//! Looks code up by its id, as a target does for a frame that names it, in a store of ten thousand images.

use std::hint::black_box;
use std::time::Instant;

use farjump::core::image::{CodeId, ImageParts, Machine};
use farjump_benches::rounds::{Group, Limit};
use farjump_loader::{Arena, Exports, Resolver, Store, code_id};

use crate::Failure;
use crate::report;

const MANY: u32 = 10_000;
const LOOK_UPS: usize = 1_000_000;
/// Capacity for code, in bytes.
const CAPACITY: usize = 16 << 20;

/// Returns a store of `images` images that return one number each, and their code ids.
fn filled(images: u32) -> Result<(Store, Vec<CodeId>), Failure> {
    let machine = Machine::native().ok_or("farjump does not know this machine")?;
    let resolver = Resolver::new(Exports::new());
    let mut store = Store::new(Arena::new(CAPACITY)?);
    let mut ids = Vec::new();
    for number in 0..images {
        // mov $number, %eax; ret
        let [a, b, c, d] = number.to_le_bytes();
        let image = ImageParts::text(machine, &[0xb8, a, b, c, d, 0xc3]).encode()?;
        let id = code_id(&image);
        store.insert(&image, id, "number", &resolver)?;
        ids.push(id);
    }
    Ok((store, ids))
}

/// Returns the nanoseconds of one look-up, over these ids in turn.
fn look_up(store: &Store, ids: &[CodeId]) -> f64 {
    let start = Instant::now();
    for turn in 0..LOOK_UPS {
        black_box(store.get(black_box(&ids[turn % ids.len()])));
    }
    start.elapsed().as_nanos() as f64 / LOOK_UPS as f64
}

pub(crate) fn run(rounds: usize) -> Result<(), Failure> {
    let (one, its) = filled(1)?;
    let (many, all) = filled(MANY)?;
    let middle = &all[all.len() / 2..][..1];
    let mut group = Group::new();
    group.subject("store of 1", || Ok(look_up(&one, &its)));
    group.case("the same of 10000 images", || Ok(look_up(&many, middle)));
    group.case("each of 10000 images in turn", || Ok(look_up(&many, &all)));
    group.bound_of("the same of 10000 images", "store of 1", Limit::TimesAsLong(1.1));
    report::run(group, "look-up".to_owned(), rounds)
}
