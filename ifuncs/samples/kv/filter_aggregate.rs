//! filter_aggregate: counts the hashes whose names begin with a prefix and in which a field lies between two numbers, and
//! adds up another of their fields.
//!
//! The payload has five words, each with a zero behind it: the prefix, the field to filter by, the least and the greatest
//! number, and the field to add up. The reply is two 64-bit numbers: the number of hashes, and the sum. A hash is left
//! out if a field is missing or no whole number.
//!
//! `farjump build` compiles a crate with this file that depends on `farjump-ifunc` and `farjump-kv-ifunc`.

#![no_std]
#![forbid(unsafe_code)]

use farjump_ifunc::{fail, ifunc};
use farjump_kv_ifunc::{Fault, Kv};

/// Number of keys of the database to look at before the call checks others of its bounds.
const STEP: usize = 1000;

#[ifunc(name = "filter_aggregate")]
fn aggregate(payload: &[u8], kv: &mut Kv) -> [i64; 2] {
    let mut words = payload.split(|&byte| byte == 0);
    let mut word = || words.next().unwrap_or_default();
    let (prefix, field, least, greatest, summed) = (word(), word(), word(), word(), word());
    let (Some(least), Some(greatest)) = (kv.integer(least), kv.integer(greatest)) else {
        fail("the payload has no two whole numbers: PREFIX, FIELD, LEAST, GREATEST, SUMMED, each with a zero behind it")
    };
    match sum(kv, prefix, (field, least, greatest), summed) {
        Ok(sums) => sums,
        Err(fault) => kv.fail(fault),
    }
}

fn sum(kv: &Kv, prefix: &[u8], filter: (&[u8], i64, i64), summed: &[u8]) -> Result<[i64; 2], Fault> {
    let (mut count, mut sum, mut position) = (0_i64, 0_i64, 0);
    let (field, least, greatest) = filter;
    loop {
        let (names, next) = kv.scan(prefix, STEP, position)?;
        for name in names {
            let name = name?;
            let found = match kv.hget(name, field) {
                Err(Fault::WrongType) => continue,
                found => found?,
            };
            let Some(value) = found.and_then(|text| kv.integer(text)) else { continue };
            if value < least || value > greatest {
                continue;
            }
            let Some(value) = kv.hget(name, summed)?.and_then(|text| kv.integer(text)) else { continue };
            (count, sum) = (count.wrapping_add(1), sum.wrapping_add(value));
        }
        position = next;
        if position == 0 {
            return Ok([count, sum]);
        }
    }
}
