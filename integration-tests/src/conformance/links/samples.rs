//! farjump's samples, each compared with a result that is computed here by other means.

use std::collections::BTreeMap;

use farjump::{Error, InjectError, Library, Link, Mode};

use super::code::travelled;
use crate::conformance::failure::{Counted, Failure, ensure};
use crate::conformance::host::{Args, Fixture, PATIENCE};

/// Bytes of this program that serve as the file.
const FILE: usize = 200_001;

pub(in crate::conformance) fn samples(fixture: &Fixture) -> Counted {
    let program = std::fs::read(std::env::current_exe()?)?;
    let contents: [&[u8]; 3] = [b"", &[b'a'; 1000], &program[..program.len().min(FILE)]];
    // The functions compute the same in each mode: one file shows that their code arrived.
    let skipped = if fixture.mode() == Mode::Cached { 0 } else { contents.len() - 1 };
    let folder = tempfile::tempdir()?;
    let mut right = counter(fixture)? + hello(fixture)?;
    for (index, contents) in contents.into_iter().enumerate().skip(skipped) {
        let path = folder.path().join(index.to_string());
        std::fs::write(&path, contents)?;
        let host = fixture.host(Args::File(path))?;
        right += of_file(&host.link()?, fixture, contents)
            .map_err(|failure| failure.at(format!("on {} bytes", contents.len())))?;
    }
    Ok(right)
}

fn call(link: &Link, library: &Library, args: &[u8]) -> Result<Vec<u8>, Failure> {
    Ok(link.inject(library, args)?.wait(PATIENCE)?.into_vec())
}

fn counter(fixture: &Fixture) -> Counted {
    let mut host = fixture.host(Args::Word)?;
    let link = host.link()?;
    let counter = &fixture.libraries.counter;
    for payload in 0..100 {
        link.send(counter, &vec![7; payload])?;
    }
    let reply = call(&link, counter, b"and one that is waited for")?;
    ensure!(reply.is_empty(), "counter replied {reply:?}");
    link.flush(PATIENCE)?;
    let word = host.word()?;
    ensure!(word == 101, "counter was called 101 times and counted {word}");
    travelled(&link, 1, fixture.mode())?;
    let (stats, counts) = (link.stats(), host.counts()?);
    ensure!((stats.frames, counts.calls) == (101, 101), "101 calls: {stats:?}, {counts:?}");
    let due = match fixture.mode() {
        // A target that has the functions itself has placed them all before.
        Mode::Local => counts.images,
        Mode::InPlace => 0,
        _ => 1,
    };
    ensure!(counts.images == due, "code was to be placed {due} times: {counts:?}");
    Ok(1)
}

fn hello(fixture: &Fixture) -> Counted {
    let mut host = fixture.host(Args::Word)?;
    if fixture.mode() == Mode::InPlace {
        // The function has statics, which do not fit in a mailbox.
        let refused = host.link()?.inject(&fixture.libraries.hello, b"world").map(drop);
        ensure!(
            matches!(refused, Err(Error::Inject(InjectError::NotInPlace { .. }))),
            "hello in place gives {refused:?}"
        );
        return Ok(1);
    }
    let (one, other) = (host.link()?, host.link()?);
    // The statics are the target's: both links continue the same count.
    for (link, name, call_number) in [(&one, "world", 1_u64), (&other, "", 2), (&one, "again", 3)] {
        let reply = call(link, &fixture.libraries.hello, name.as_bytes())?;
        ensure!(reply == call_number.to_le_bytes(), "call {call_number} of hello replied {reply:?}");
    }
    let printed = host.printed()?;
    let expected = [
        "hello world, for the first time; the answer is 42",
        "hello , again; the answer is 42",
        "hello again, a third time; the answer is 42",
    ];
    ensure!(printed == expected, "hello printed {printed:?}");
    Ok(3)
}

fn of_file(link: &Link, fixture: &Fixture, contents: &[u8]) -> Counted {
    let libraries = fixture.libraries;
    let mut counts: BTreeMap<u8, u64> = (0..=255).map(|value| (value, 0)).collect();
    contents.iter().for_each(|byte| *counts.entry(*byte).or_default() += 1);
    let expected: Vec<u8> = std::iter::once(contents.len() as u64)
        .chain(counts.into_values())
        .flat_map(u64::to_le_bytes)
        .collect();
    ensure!(call(link, &libraries.histogram, b"")? == expected, "histogram replied something else");

    let mut right = 1;
    for literal in [&b""[..], b"a", b"aa", b"panic", &[0, 0], &[b'a'; 300]] {
        let occurs = match literal.len() {
            0 => 0,
            len => contents.windows(len).filter(|window| *window == literal).count() as u64,
        };
        let found = call(link, &libraries.grep, literal)?;
        ensure!(found == occurs.to_le_bytes(), "grep found {literal:?} {found:?} times, and not {occurs}");
        right += 1;
    }
    let crc = call(link, &libraries.crc32, b"")?;
    ensure!(crc == crc32_by_definition(contents).to_le_bytes(), "crc32 replied {crc:02x?}");
    Ok(right + 1)
}

/// Bit by bit, most significant power first, as in the polynomial's definition.
fn crc32_by_definition(bytes: &[u8]) -> u32 {
    let mut rest = !0_u32;
    for byte in bytes {
        rest ^= u32::from(byte.reverse_bits()) << 24;
        for _ in 0..8 {
            rest = if rest >> 31 == 1 { rest << 1 ^ 0x04c1_1db7 } else { rest << 1 };
        }
    }
    !rest.reverse_bits()
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_crc_to_compare_with_is_that_of_ieee_802_3() {
        // The check value in catalogues of CRCs.
        assert_eq!(super::crc32_by_definition(b"123456789"), 0xcbf4_3926);
    }
}
