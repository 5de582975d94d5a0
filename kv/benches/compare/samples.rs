//! The samples, beside the same in Lua, in pipelined commands and in client code. All of them have to find the same.

use farjump_benches::rounds::{Group, Limit, Result};

use crate::client::{Client, Part, request};
use crate::data::{self, FILTER, FIRST, LINKS, VECTORS};
use crate::setup::{Place, Rig};

/// Checks that the found result is the wanted one.
pub(crate) fn check<T: PartialEq + std::fmt::Debug + ?Sized>(found: &T, wanted: &T) -> Result<()> {
    match found == wanted {
        true => Ok(()),
        false => Err(format!("it found {found:?}, where {wanted:?} is right").into()),
    }
}

/// A number of 64 bits in a function's reply.
pub(crate) fn number(reply: &[u8], at: usize) -> Result<i64> {
    let bytes = reply.get(at..at + 8).and_then(|bytes| bytes.try_into().ok());
    Ok(i64::from_le_bytes(bytes.ok_or("the function's reply is too short")?))
}

/// A whole number as text.
pub(crate) fn parsed(text: &[u8]) -> Result<i64> {
    Ok(std::str::from_utf8(text)?.parse()?)
}

/// The elements of an array.
pub(crate) fn elements(part: &Part) -> Result<&[Part]> {
    match part {
        Part::Array(elements) => Ok(elements),
        other => Err(format!("{other:?} is no array").into()),
    }
}

/// A chase of 1,000 keys.
///
/// # Errors
/// When a library cannot be opened.
pub(crate) fn chase<'a>(rig: &'a Rig<'a>) -> Result<Group<'a>> {
    let library = rig.fixture.library("chase")?;
    let mut group = Group::new();
    group.subject("farjump", move || {
        rig.time(10, || check(&number(&rig.call(&library, FIRST)?, 0)?, &(LINKS as i64)))
    });
    let fcall = request(&[b"FCALL", b"chase", b"1", FIRST]);
    group.case("Lua", move || {
        rig.time(10, || {
            let client = &mut rig.client.borrow_mut();
            let reply = client.run(&fcall)?;
            check(&parsed(client.bytes(&elements(&reply)?[0]))?, &(LINKS as i64))
        })
    });
    group.case("client, GET by GET", move || {
        rig.time(1, || {
            let client = &mut rig.client.borrow_mut();
            let (mut key, mut count) = (FIRST.to_vec(), 0);
            loop {
                let reply = client.run(&request(&[b"GET", &key]))?;
                if reply == Part::Nil {
                    return check(&count, &LINKS);
                }
                key = client.bytes(&reply).to_vec();
                count += 1;
            }
        })
    });
    group.bound("Lua", Limit::Sooner(2.5));
    // The module rewrites one name for all keys of a length.
    group.bound("Lua", Limit::Sooner(3.0));
    if rig.place == Place::Apart {
        group.bound("client, GET by GET", Limit::Sooner(300.0));
    }
    group.note(|| {
        "Pipelined commands cannot do it: each key is known by the value of the one before.".to_owned()
    });
    group.note(|| "The module reuses the name of look-ups, so that the bound for reused names is that of each chase.".to_owned());
    Ok(group)
}

/// Adds up hashes by prefix.
///
/// # Errors
/// When a library cannot be opened.
pub(crate) fn aggregate<'a>(rig: &'a Rig<'a>) -> Result<Group<'a>> {
    let wanted = (100, (100..200).sum::<i64>() * 2);
    let library = rig.fixture.library("filter_aggregate")?;
    let mut group = Group::new();
    let payload: Vec<u8> = FILTER.iter().flat_map(|word| [*word, b"\0"].concat()).collect();
    group.subject("farjump", move || {
        rig.time(5, || {
            let reply = rig.call(&library, &payload)?;
            check(&(number(&reply, 0)?, number(&reply, 8)?), &wanted)
        })
    });
    let fcall = request(&[&[b"FCALL", &b"filter_aggregate"[..], b"0"][..], &FILTER[..]].concat());
    group.case("Lua", move || {
        rig.time(5, || {
            let client = &mut rig.client.borrow_mut();
            let reply = client.run(&fcall)?;
            let [count, sum] = elements(&reply)? else { return Err("Lua replied no two numbers".into()) };
            check(&(parsed(client.bytes(count))?, parsed(client.bytes(sum))?), &wanted)
        })
    });
    group.case("SCAN, HMGETs pipelined", move || {
        rig.time(1, || check(&filter(&mut rig.client.borrow_mut(), 1000)?, &wanted))
    });
    group.case("client, HMGET by HMGET", move || {
        rig.time(1, || check(&filter(&mut rig.client.borrow_mut(), 1)?, &wanted))
    });
    group.note(|| format!("The database has {} keys more, which each way passes over.", VECTORS + LINKS + 4));
    Ok(group)
}

/// The sample in a client, which requests `together` hashes at a time.
fn filter(client: &mut Client, together: usize) -> Result<(i64, i64)> {
    let [prefix, field, least, greatest, summed] = FILTER;
    let (least, greatest) = (parsed(least)?, parsed(greatest)?);
    let pattern = [prefix, b"*"].concat();
    let (mut position, mut count, mut sum) = (b"0".to_vec(), 0, 0);
    loop {
        let found = client.run(&request(&[b"SCAN", &position, b"MATCH", &pattern, b"COUNT", b"1000"]))?;
        let [next, names] = elements(&found)? else { return Err("SCAN replied no two parts".into()) };
        position = client.bytes(next).to_vec();
        let names: Vec<Vec<u8>> = elements(names)?.iter().map(|name| client.bytes(name).to_vec()).collect();
        for names in names.chunks(together) {
            let requests: Vec<u8> =
                names.iter().flat_map(|name| request(&[b"HMGET", name, field, summed])).collect();
            client.pipeline(&requests, names.len(), |client, part| {
                let Part::Array(fields) = &part else { return };
                let [value, other] = &fields[..] else { return };
                let number = |part| parsed(client.bytes(part)).ok();
                let (Some(value), Some(other)) = (number(value), number(other)) else { return };
                if (least..=greatest).contains(&value) {
                    count += 1;
                    sum += other;
                }
            })?;
        }
        if position == b"0" {
            return Ok((count, sum));
        }
    }
}

/// Looks for an item in a Bloom filter.
///
/// # Errors
/// When a library cannot be opened.
pub(crate) fn bloom<'a>(rig: &'a Rig<'a>) -> Result<Group<'a>> {
    let library = rig.fixture.library("bloom")?;
    let mut group = Group::new();
    let payload = [b"?", data::ITEM].concat();
    group.subject("farjump", move || rig.time(50, || check(&rig.call(&library, &payload)?[..], &[1][..])));
    let bits = data::bloom_bits(data::ITEM).map(|bit| bit.to_string());
    let mut words: Vec<&[u8]> = vec![b"FCALL", b"bloom", b"1", b"bloom"];
    words.extend(bits.iter().map(|bit| bit.as_bytes()));
    let fcall = request(&words);
    group.case("Lua, GETBITs", move || {
        rig.time(50, || {
            let client = &mut rig.client.borrow_mut();
            let reply = client.run(&fcall)?;
            check(&parsed(client.bytes(&reply))?, &1)
        })
    });
    let getbits: Vec<u8> =
        bits.iter().flat_map(|bit| request(&[b"GETBIT", b"bloom", bit.as_bytes()])).collect();
    let count = bits.len();
    group.case("GETBITs pipelined", move || {
        rig.time(50, || {
            let client = &mut rig.client.borrow_mut();
            let mut set = 0;
            client
                .pipeline(&getbits, count, |client, part| set += usize::from(client.bytes(&part) == b"1"))?;
            check(&set, &count)
        })
    });
    let get = request(&[b"GET", b"bloom"]);
    group.case("GET and client", move || {
        rig.time(50, || {
            let client = &mut rig.client.borrow_mut();
            let reply = client.run(&get)?;
            let filter = client.bytes(&reply);
            let is_set =
                |bit: u32| filter.get(bit as usize / 8).is_some_and(|byte| byte & (0x80 >> (bit % 8)) != 0);
            check(&data::bloom_bits(data::ITEM).into_iter().all(is_set), &true)
        })
    });
    group.note(|| {
        "Clients compute the bits for Lua and GETBIT: Lua has no whole numbers of 64 bits.".to_owned()
    });
    Ok(group)
}

/// A value in a JSON text.
///
/// # Errors
/// When a library cannot be opened.
pub(crate) fn json_path<'a>(rig: &'a Rig<'a>) -> Result<Group<'a>> {
    let library = rig.fixture.library("json_path")?;
    let mut group = Group::new();
    let payload = b"document\0users\x0050\0name\0";
    group.subject("farjump", move || {
        rig.time(20, || check(&rig.call(&library, payload)?[..], &b"\"user 50\""[..]))
    });
    let fcall = request(&[b"FCALL", b"json_path", b"1", b"document", b"users", b"50", b"name"]);
    group.case("Lua, cjson", move || {
        rig.time(20, || {
            let client = &mut rig.client.borrow_mut();
            let reply = client.run(&fcall)?;
            check(client.bytes(&reply), &b"user 50"[..])
        })
    });
    let get = request(&[b"GET", b"document"]);
    group.case("GET and client", move || {
        rig.time(20, || {
            let client = &mut rig.client.borrow_mut();
            let reply = client.run(&get)?;
            let document: serde_json::Value = serde_json::from_slice(client.bytes(&reply))?;
            check(&document["users"][50]["name"].as_str(), &Some("user 50"))
        })
    });
    group.note(|| "Commands of the server alone cannot do it, pipelined or not.".to_owned());
    Ok(group)
}
