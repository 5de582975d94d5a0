//! The samples over vectors.

use std::cell::RefCell;
use std::process::{Command, Stdio};

use farjump_benches::rounds::{Group, Limit, Result};
use farjump_fixtures::process::Process;

use crate::client::request;
use crate::data::{self, VECTORS};
use crate::samples::{check, elements, number, parsed};
use crate::setup::Rig;

/// The distance of two vectors, with eight sums as in the sample.
fn distance(vector: &[u8], query: &[f32]) -> f32 {
    let mut sums = [0.0_f32; 8];
    for (values, wanted) in vector.chunks_exact(32).zip(query.chunks_exact(8)) {
        for lane in 0..8 {
            let bytes = [values[4 * lane], values[4 * lane + 1], values[4 * lane + 2], values[4 * lane + 3]];
            let difference = f32::from_le_bytes(bytes) - wanted[lane];
            sums[lane] += difference * difference;
        }
    }
    sums.iter().sum()
}

/// The query.
fn query() -> Vec<f32> {
    let bytes = data::query();
    let values = bytes.chunks_exact(4);
    values.map(|value| f32::from_le_bytes(value.try_into().expect("chunks have 4 bytes"))).collect()
}

/// The index of the nearest of these vectors.
fn nearest_of<'v>(vectors: impl Iterator<Item = &'v [u8]>, query: &[f32]) -> i64 {
    let mut best = (f32::INFINITY, 0);
    for (index, vector) in vectors.enumerate() {
        let distance = distance(vector, query);
        if distance < best.0 {
            best = (distance, index as i64);
        }
    }
    best.1
}

/// The nearest of 10,000 vectors.
///
/// # Errors
/// When a library cannot be opened.
pub(crate) fn nearest<'a>(rig: &'a Rig<'a>) -> Result<Group<'a>> {
    let library = rig.fixture.library("nearest")?;
    let (bytes, query) = (data::query(), query());
    // The key, and the query at a multiple of 4 bytes.
    let payload = [b"vectors\0", &bytes[..]].concat();
    let wanted = number(&rig.call(&library, &payload)?, 0)?;
    let mut group = Group::new();
    group.subject("farjump", move || {
        rig.time(10, || check(&number(&rig.call(&library, &payload)?, 0)?, &wanted))
    });
    let (plain, same) = (rig.fixture.library("nearest_plain")?, [b"vectors\0", &bytes[..]].concat());
    group.case("farjump, for any processor", move || {
        rig.time(10, || check(&number(&rig.call(&plain, &same)?, 0)?, &wanted))
    });
    let command = request(&[b"COMPARE.NEAREST", b"vectors", &bytes]);
    group.case("module in C", move || {
        rig.time(10, || {
            let client = &mut rig.client.borrow_mut();
            let reply = client.run(&command)?;
            check(&number(client.bytes(&reply), 0)?, &wanted)
        })
    });
    let fcall = request(&[b"FCALL", b"nearest", b"1", b"vectors", &bytes]);
    group.case("Lua", move || {
        rig.time(1, || {
            let client = &mut rig.client.borrow_mut();
            let reply = client.run(&fcall)?;
            check(&parsed(client.bytes(&reply))?, &wanted)
        })
    });
    let get = request(&[b"GET", b"vectors"]);
    let of_client = query.clone();
    let (of_hiredis, same) = (query.clone(), get.clone());
    group.case("GET and client, read as hiredis does", move || {
        rig.time(2, || {
            let reply = rig.client.borrow_mut().run_as_hiredis(&same)?;
            check(&nearest_of(reply.chunks_exact(4 * of_hiredis.len()), &of_hiredis), &wanted)
        })
    });
    group.case("GET and client, memory kept", move || {
        rig.time(2, || {
            let client = &mut rig.client.borrow_mut();
            let reply = client.run(&get)?;
            let vectors = client.bytes(&reply).chunks_exact(4 * of_client.len());
            check(&nearest_of(vectors, &of_client), &wanted)
        })
    });
    let gets = vector_gets();
    group.case("10,000 keys, GETs pipelined", move || {
        rig.time(1, || {
            let client = &mut rig.client.borrow_mut();
            let (mut index, mut best) = (0, (f32::INFINITY, 0));
            client.pipeline(&gets, VECTORS, |client, part| {
                let distance = distance(client.bytes(&part), &query);
                if distance < best.0 {
                    best = (distance, index);
                }
                index += 1;
            })?;
            check(&best.1, &wanted)
        })
    });
    group.bound("module in C", Limit::TimesAsLong(1.3));
    group.bound("GET and client, read as hiredis does", Limit::Sooner(20.0));
    group.bound("GET and client, memory kept", Limit::Sooner(20.0));
    group.bound("GET and NumPy", Limit::Sooner(50.0));
    group.bound("Lua", Limit::Sooner(230.0));
    match &rig.fixture.built.python {
        Some(python) => {
            let script = concat!(env!("CARGO_MANIFEST_DIR"), "/benches/compare/nearest.py");
            let mut command = Command::new(python);
            command.arg(script).arg(rig.fixture.server.path("s")).stdin(Stdio::piped());
            let process = RefCell::new(Process::start(&mut command));
            group.case("GET and NumPy", move || {
                let process = &mut process.borrow_mut();
                process.write_line("go");
                let line = process.line();
                let (time, index) =
                    line.split_once(' ').ok_or_else(|| format!("nearest.py printed {line:?}"))?;
                check(&index.parse()?, &wanted)?;
                Ok(time.parse()?)
            });
        }
        None => group.note(|| "NumPy was not measured: name a Python that has it with --python.".to_owned()),
    }
    Ok(group)
}

/// Number of vectors that the sample `topk` finds.
const NEAREST: usize = 10;

/// The ten nearest of 10,000 vectors.
///
/// # Errors
/// When a library cannot be opened.
pub(crate) fn topk<'a>(rig: &'a Rig<'a>) -> Result<Group<'a>> {
    let library = rig.fixture.library("topk")?;
    let (bytes, query) = (data::query(), query());
    let payload = [&(NEAREST as u32).to_le_bytes()[..], b"vectors\0", &bytes].concat();
    // Each entry has 8 bytes of index and 4 of distance.
    let indexes = move || -> Result<Vec<i64>> {
        let reply = rig.call(&library, &payload)?;
        (0..NEAREST).map(|at| number(&reply, 12 * at)).collect()
    };
    let wanted = indexes()?;
    let (of_lua, of_client, of_gets) = (wanted.clone(), wanted.clone(), wanted.clone());
    let mut group = Group::new();
    group.subject("farjump", move || rig.time(10, || check(&indexes()?, &wanted)));
    let count = NEAREST.to_string();
    let fcall = request(&[b"FCALL", b"topk", b"1", b"vectors", &bytes, count.as_bytes()]);
    group.case("Lua", move || {
        rig.time(1, || {
            let client = &mut rig.client.borrow_mut();
            let reply = client.run(&fcall)?;
            let found = elements(&reply)?.iter().map(|part| parsed(client.bytes(part)));
            check(&found.collect::<Result<Vec<_>>>()?, &of_lua)
        })
    });
    let get = request(&[b"GET", b"vectors"]);
    let values = query.clone();
    group.case("GET and client, memory kept", move || {
        rig.time(2, || {
            let client = &mut rig.client.borrow_mut();
            let reply = client.run(&get)?;
            let vectors = client.bytes(&reply).chunks_exact(4 * values.len());
            check(&nearest_few(vectors.map(|vector| distance(vector, &values)).collect()), &of_client)
        })
    });
    let gets = vector_gets();
    group.case("10,000 keys, GETs pipelined", move || {
        rig.time(1, || {
            let client = &mut rig.client.borrow_mut();
            let mut distances = Vec::with_capacity(VECTORS);
            client.pipeline(&gets, VECTORS, |client, part| {
                distances.push(distance(client.bytes(&part), &query))
            })?;
            check(&nearest_few(distances), &of_gets)
        })
    });
    Ok(group)
}

/// A GET for each key with one vector.
fn vector_gets() -> Vec<u8> {
    (0..VECTORS).flat_map(|index| request(&[b"GET", data::vector_key(index).as_bytes()])).collect()
}

/// The indexes of the least distances, the least first.
fn nearest_few(distances: Vec<f32>) -> Vec<i64> {
    let mut all: Vec<(f32, i64)> = distances.into_iter().zip(0..).collect();
    let (least, ..) = all.select_nth_unstable_by(NEAREST, |one, other| one.0.total_cmp(&other.0));
    least.sort_by(|one, other| one.0.total_cmp(&other.0));
    least.iter().map(|(_, index)| *index).collect()
}
