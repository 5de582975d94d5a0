//! chain: goes from target to target, each of which knows the one after it as `next`, and collects how many bytes of data
//! each has. Arguments and reply are the same as those of `samples/c/chain.c`.

#![no_std]

use farjump_ifunc::{Data, NotForwarded, fail, forward, ifunc, reply};

ifunc! {
    name: chain,
    main: visit,
    target: &Data,
    payload: { max_size: room, init: begin },
}

const MOST: usize = 256;
const WORD: usize = size_of::<u64>();

/// How many targets the arguments ask for; `None` if they make no sense.
fn targets(digits: &[u8]) -> Option<usize> {
    let count = digits.iter().try_fold(0, |count, digit| match digit {
        b'0'..=b'9' => Some(10 * count + usize::from(digit - b'0')).filter(|count| *count <= MOST),
        _ => None,
    });
    count.filter(|count| *count != 0)
}

/// The payload: how many targets have been visited, and a place for what each of them says, of 64 bits each.
fn room(args: &[u8]) -> usize {
    WORD + targets(args).unwrap_or(0) * WORD
}

fn begin(room: &mut [u8], args: &[u8]) -> Result<usize, i32> {
    targets(args).ok_or(1)?;
    room.fill(0);
    Ok(room.len())
}

fn visit(payload: &mut [u8], data: &Data) {
    let len = (data.len() as u64).to_le_bytes();
    let (words, []) = payload.as_chunks_mut::<WORD>() else {
        fail("the payload is no journey: it is not a row of 64-bit numbers")
    };
    let Some((visited, places)) = words.split_first_mut() else {
        fail("the payload is no journey: it is not a row of 64-bit numbers")
    };
    let before = u64::from_le_bytes(*visited) as usize;
    let Some(place) = places.get_mut(before) else { fail("the journey was over before") };
    *place = len;
    *visited = (before as u64 + 1).to_le_bytes();
    if before + 1 == places.len() {
        // One that is too long for the target is none: the source sees an empty reply.
        let _ = reply(places.as_flattened());
        return;
    }
    match forward("next", payload) {
        Ok(()) => {}
        Err(NotForwarded::UnknownPeer) => fail("this target has no peer `next`, and there are more to visit"),
        Err(_) => fail("the peer `next` has too much to do: try again later"),
    }
}
