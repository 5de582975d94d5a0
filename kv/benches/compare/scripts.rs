//! Jobs that people script, by the command FJ.CALL and by a link, beside the same script in Lua.

use std::fs;
use std::path::Path;

use farjump_benches::rounds::{Group, Result};

use crate::client::{Client, Part, request};
use crate::data::{self, SPAN};
use crate::setup::Rig;

/// Adds up a hash.
const HASH_SUM: &str = "local all, sum = redis.call('HGETALL', KEYS[1]), 0
for i = 2, #all, 2 do sum = sum + (tonumber(all[i]) or 0) end
return sum";

/// Collects the numbers in a reply, in order. A text that is no number counts by its length.
fn numbers(client: &Client, part: &Part, into: &mut Vec<f64>) {
    match part {
        Part::Array(elements) => elements.iter().for_each(|element| numbers(client, element, into)),
        part => {
            let text = String::from_utf8_lossy(client.bytes(part));
            into.push(text.parse().unwrap_or(text.len() as f64));
        }
    }
}

/// Runs a command. Returns the numbers in its reply.
fn run(rig: &Rig<'_>, request: &[u8]) -> Result<Vec<f64>> {
    let client = &mut rig.client.borrow_mut();
    let (reply, mut found) = (client.run(request)?, Vec::new());
    numbers(client, &reply, &mut found);
    Ok(found)
}

/// A job, with the same words for each way to run it.
fn job<'a>(
    rig: &'a Rig<'a>,
    name: &'static str,
    script: &str,
    words: &[&[u8]],
    count: usize,
) -> Result<Group<'a>> {
    let code = fs::read(rig.fixture.built.library_file(name))?;
    let library = rig.fixture.library(name)?;
    let sha = {
        let client = &mut rig.client.borrow_mut();
        client.run(&request(&[b"FJ.LOAD", name.as_bytes(), &code]))?;
        let sha = client.run(&request(&[b"SCRIPT", b"LOAD", script.as_bytes()]))?;
        client.bytes(&sha).to_vec()
    };
    let by_command = request(&[&[b"FJ.CALL", name.as_bytes()], words].concat());
    let in_lua = request(&[&[b"EVALSHA", &sha[..]], words].concat());
    let payload = request(words);
    if name != "token_bucket" && run(rig, &by_command)? != run(rig, &in_lua)? {
        return Err(format!("{name} and its script do not find the same").into());
    }
    let mut group = Group::new();
    group.subject("FJ.CALL", move || rig.time(count, || run(rig, &by_command).map(drop)));
    group.case("link", move || rig.time(count, || rig.call(&library, &payload).map(drop)));
    group.case("Lua", move || rig.time(count, || run(rig, &in_lua).map(drop)));
    Ok(group)
}

/// The script of a sample.
fn script(name: &str) -> Result<String> {
    Ok(fs::read_to_string(
        Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../ifuncs/samples/kv/{name}.lua")),
    )?)
}

/// A token bucket from which each call takes one token.
///
/// # Errors
/// When a file is missing, and of the server.
pub(crate) fn token_bucket<'a>(rig: &'a Rig<'a>) -> Result<Group<'a>> {
    let words: &[&[u8]] = &[b"1", b"bucket", b"1000000", b"1000", b"1"];
    job(rig, "token_bucket", &script("token_bucket")?, words, 200)
}

/// The leaders of one team in ten.
///
/// # Errors
/// As [`token_bucket`].
pub(crate) fn leaders<'a>(rig: &'a Rig<'a>) -> Result<Group<'a>> {
    job(rig, "leaders", &script("leaders")?, &[b"2", b"scores", b"teams", b"10", b"red"], 50)
}

/// A stream in 100 spans.
///
/// # Errors
/// As [`token_bucket`].
pub(crate) fn downsample<'a>(rig: &'a Rig<'a>) -> Result<Group<'a>> {
    let span = SPAN.to_string();
    job(rig, "downsample", &script("downsample")?, &[b"1", b"measured", b"value", span.as_bytes()], 3)
}

/// A field of 1,000 messages.
///
/// # Errors
/// As [`token_bucket`].
pub(crate) fn protobuf_sum<'a>(rig: &'a Rig<'a>) -> Result<Group<'a>> {
    let words: &[&[u8]] = &[b"1", b"messages", data::SUMMED];
    job(rig, "protobuf_sum", &script("protobuf_sum")?, words, 20)
}

/// A hash whose fields are added up.
///
/// # Errors
/// As [`token_bucket`].
pub(crate) fn hash_sum<'a>(rig: &'a Rig<'a>) -> Result<Group<'a>> {
    job(rig, "hash_sum", HASH_SUM, &[b"1", b"numbers"], 5)
}
