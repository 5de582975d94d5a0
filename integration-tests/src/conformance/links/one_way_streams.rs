//! Streams of one-way calls: in order, exactly once, each whole.

use crate::conformance::failure::{Counted, ensure};
use crate::conformance::host::{Args, Fixture, PATIENCE};
use crate::conformance::pattern;

/// Arguments of `witness`: number, seed and pattern, `len` bytes in total, at least 16.
pub(super) fn witness_args(seed: u64, number: u64, len: usize) -> Vec<u8> {
    let mut args = Vec::new();
    write_witness_args(&mut args, seed, number, len);
    args
}

fn write_witness_args(args: &mut Vec<u8>, seed: u64, number: u64, len: usize) {
    args.clear();
    args.extend_from_slice(&number.to_le_bytes());
    args.extend_from_slice(&seed.to_le_bytes());
    for index in 2.. {
        if args.len() >= len {
            break;
        }
        args.extend_from_slice(&pattern::word(seed, number, index).to_le_bytes());
    }
    args.truncate(len.max(16));
}

/// Checks that a flush waits for everything sent before it, also if nothing was sent.
pub(in crate::conformance) fn flush(fixture: &Fixture) -> Counted {
    let mut host = fixture.host(Args::Word)?;
    let link = host.link()?;
    link.flush(PATIENCE)?;
    let mut number = 0;
    for batch in [1, 2, 7, 30, 100, 300] {
        for _ in 0..batch {
            let len = [16, 40, 41, 700, 5000][number as usize % 5];
            link.send(&fixture.libraries.witness, &witness_args(41, number, len))?;
            number += 1;
        }
        link.flush(PATIENCE)?;
        let word = host.word()?;
        ensure!(word == number, "{number} calls were flushed and {word} have run");
        link.flush(PATIENCE)?;
    }
    Ok(number)
}

/// Sends small frames: the whole volume, or a tenth ([`Fixture::frames`]).
pub(in crate::conformance) fn volume(fixture: &Fixture) -> Counted {
    let mut host = fixture.host(Args::Word)?;
    let link = host.link()?;
    let frames = fixture.frames(1000, 1000);
    let mut args = Vec::new();
    for number in 0..frames {
        let len = [16, 24, 31, 32, 33, 40, 41, 64][number as usize % 8];
        write_witness_args(&mut args, 43, number, len);
        link.send(&fixture.libraries.witness, &args)?;
    }
    link.flush(PATIENCE)?;
    let word = host.word()?;
    ensure!(word == frames, "{frames} calls were sent and {word} have run");
    Ok(frames)
}
