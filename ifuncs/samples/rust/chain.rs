//! chain: forwards itself from target to target, and collects the length of each one's data. Each target knows the one
//! after it as `next`. Arguments and reply are the same as those of `samples/c/chain.c`.

#![no_std]

use farjump_ifunc::{Data, NotForwarded, Payload, fail, ifunc};

const MOST: usize = 256;
const WORD: usize = size_of::<u64>();

/// Returns the number of targets in the arguments; `None` if they are malformed.
fn targets(digits: &[u8]) -> Option<usize> {
    let count = digits.iter().try_fold(0, |count, digit| match digit {
        b'0'..=b'9' => Some(10 * count + usize::from(digit - b'0')).filter(|count| *count <= MOST),
        _ => None,
    });
    count.filter(|count| *count != 0)
}

/// Returns the length of the payload: the number of targets visited and the length of each one's data, of 64 bits
/// each.
fn space(args: &[u8]) -> usize {
    WORD + targets(args).unwrap_or(0) * WORD
}

fn begin(space: &mut Payload, args: &[u8]) -> Result<usize, i32> {
    targets(args).ok_or(1)?;
    space.fill(0);
    Ok(space.len())
}

#[ifunc(name = "chain", payload(max_size = space, init = begin))]
fn visit(payload: &mut Payload, data: &Data) {
    let Some(visited) = payload.array_at(0).filter(|_| payload.len() % WORD == 0) else {
        fail("the payload is no journey: it is not a row of 64-bit numbers")
    };
    let before = u64::from_le_bytes(visited);
    let places = (payload.len() / WORD - 1) as u64;
    if before >= places {
        fail("the journey was over before")
    }
    payload.write_at((before as usize + 1) * WORD, &(data.len() as u64).to_le_bytes());
    payload.write_at(0, &(before + 1).to_le_bytes());
    if before + 1 == places {
        // If the reply exceeds the target's limit, the source sees an empty one.
        let _ = payload.reply_from(WORD);
        return;
    }
    match payload.forward("next") {
        Ok(()) => {}
        Err(NotForwarded::UnknownPeer) => fail("this target has no destination `next`, and there are more to visit"),
        Err(_) => fail("the destination `next` has too much to do: try again later"),
    }
}
