//! `codec` against `lz4_flex`, which shares only the format with it.

use std::cell::RefCell;

use farjump::{Error, Library};
use lz4_flex::block;
use proptest::prelude::*;
use proptest::test_runner::TestRunner;

use crate::support::{Pair, Place, id_of, library};

/// The payload that the payload routines make of `args`.
fn compressed(codec: &Library, args: &[u8]) -> Vec<u8> {
    let mut space = vec![0xaa; codec.payload_max_size(args)];
    // SAFETY: the space has the given length.
    let used = unsafe { codec.payload_init(space.as_mut_ptr(), space.len(), args) }.unwrap();
    space.truncate(used);
    space
}

/// A payload whose `block` should decompress to `len` bytes.
fn payload(len: u64, block: &[u8]) -> Vec<u8> {
    [&len.to_ne_bytes(), block].concat()
}

/// The result of `lz4_flex` for a payload.
pub(crate) fn decompressed(payload: &[u8]) -> Option<Vec<u8>> {
    let (len, block) = payload.split_first_chunk()?;
    let len = usize::try_from(u64::from_ne_bytes(*len)).ok()?;
    // A byte of a block makes at most 255: longer lengths are false, and must not be allocated.
    let bytes = block::decompress(block, (len <= 255 * block.len()).then_some(len)?).ok()?;
    (bytes.len() == len).then_some(bytes)
}

/// Text with all features: copies near and far, runs, and noise. Their lengths include those where encodings change.
fn texts() -> impl Strategy<Value = Vec<u8>> {
    let piece =
        (0..4_u8, any::<u8>(), prop_oneof![0..40_usize, 240..300_usize, 0..70_000_usize], any::<u64>());
    proptest::collection::vec(piece, 0..12).prop_map(|pieces| {
        let mut text: Vec<u8> = Vec::new();
        for (kind, byte, len, mut noise) in pieces {
            match kind {
                0 => text.resize(text.len() + len, byte),
                1 => text.extend((0..len).map(|i| (i % (1 + usize::from(byte))) as u8)),
                2 => text.extend((0..len).map(|_| {
                    noise = noise.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                    (noise >> 56) as u8
                })),
                _ => {
                    let from = text.len().saturating_sub(noise as usize % 66_000);
                    text.extend_from_within(from..(from + len).min(text.len()));
                }
            }
        }
        text
    })
}

#[test]
fn the_codec_keeps_payloads_unchanged_and_lz4_flex_reads_its_blocks() {
    let place = Place::new();
    let pair = RefCell::new(Pair::new(&place));
    let codec = library("codec");
    let same = |text: Vec<u8>| {
        let on_the_way = compressed(&codec, &text);
        prop_assert!(decompressed(&on_the_way).as_deref() == Some(&*text), "lz4_flex reads something else");
        let before = pair.borrow().link.stats().payload_bytes;
        let reply = pair.borrow_mut().call(&codec, &text).unwrap();
        prop_assert!(*reply == *text, "something else comes out");
        prop_assert_eq!(pair.borrow().link.stats().payload_bytes - before, on_the_way.len() as u64);
        Ok(())
    };
    TestRunner::new(ProptestConfig::with_cases(200)).run(&texts(), same).unwrap();
    for len in 0..100 {
        same(vec![7; len]).unwrap();
        same((0..len as u8).collect()).unwrap();
    }
    // A match as far back as offsets reach, and one farther.
    for distance in 65_530..65_540 {
        let mut text = b"pattern.".to_vec();
        text.resize(distance, 0);
        text.extend(b"pattern.");
        text.resize(distance + 100, 1);
        same(text).unwrap();
    }
}

/// Start and end of a block's last match in its output, if there is one.
fn last_match(block: &[u8]) -> Option<(usize, usize)> {
    let mut bytes = block.iter().map(|byte| usize::from(*byte));
    let length = |bytes: &mut dyn Iterator<Item = usize>, half: usize| {
        let mut len = half;
        if half == 15 {
            loop {
                let more = bytes.next().unwrap();
                len += more;
                if more < 255 {
                    break;
                }
            }
        }
        len
    };
    let (mut made, mut last) = (0, None);
    loop {
        let token = bytes.next().unwrap();
        let literals = length(&mut bytes, token >> 4);
        bytes.by_ref().take(literals).for_each(drop);
        made += literals;
        // An offset has two bytes; the end has none.
        let Some(_) = bytes.nth(1) else { return last };
        let start = made;
        made += length(&mut bytes, token & 15) + 4;
        last = Some((start, made));
    }
}

/// "End of block restrictions" of LZ4's format, which faster decoders than this one rely on.
#[test]
fn blocks_end_as_the_lz4_format_requires() {
    let codec = library("codec");
    let ends = |text: Vec<u8>| {
        if let Some((start, end)) = last_match(&compressed(&codec, &text)[8..]) {
            prop_assert!(
                start + 12 <= text.len() && end + 5 <= text.len(),
                "{start}..{end} of {}",
                text.len()
            );
        }
        Ok(())
    };
    for len in 0..100 {
        ends(vec![7; len]).unwrap();
    }
    assert_eq!(last_match(&compressed(&codec, &[7; 100])[8..]), Some((1, 95)));
    TestRunner::new(ProptestConfig::with_cases(100)).run(&texts(), ends).unwrap();
}

#[test]
fn blocks_of_lz4_flex_decompress_unchanged() {
    let place = Place::new();
    let pair = RefCell::new(Pair::new(&place));
    let raw = library("codec_raw");
    assert_eq!(id_of(&raw), id_of(&library("codec")), "other code was tested");
    let same = |text: Vec<u8>| {
        let block = block::compress(&text);
        let reply = pair.borrow_mut().call(&raw, &payload(text.len() as u64, &block)).unwrap();
        prop_assert!(*reply == *text, "something else comes out");
        Ok(())
    };
    TestRunner::new(ProptestConfig::with_cases(200)).run(&texts(), same).unwrap();
}

#[test]
fn a_file_shrinks_about_as_much_as_with_lz4_flex() {
    let codec = library("codec");
    let source =
        std::fs::read(concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/reference/protocol.md")).unwrap();
    let (ours, theirs) = (compressed(&codec, &source).len(), block::compress(&source).len());
    println!("{} bytes: {ours} by codec, {theirs} by lz4_flex", source.len());
    assert!(ours < source.len() * 2 / 3 && ours < theirs * 11 / 10, "{ours} bytes, and {theirs}");
}

/// The message of the panic that ended a call.
fn words_of(answer: Result<impl Sized, Error>) -> String {
    answer.map(drop).unwrap_err().to_string()
}

#[test]
fn each_fault_of_a_block_is_named_in_its_panic() {
    let (_place, mut pair) = Pair::start();
    let raw = library("codec_raw");
    for (payload, expected) in [
        (vec![], "the payload is shorter than the 8 bytes of a length"),
        (vec![0; 7], "the payload is shorter than the 8 bytes of a length"),
        (payload(0, &[]), "the block ends in the middle of a sequence"),
        (payload(3, b"\x30ab"), "the block ends in the middle of its literals"),
        (payload(300, b"\xf0\xff"), "the block ends in the middle of a sequence"),
        (payload(300, b"\xf0\xff\xff\xff"), "the block ends in the middle of a sequence"),
        (payload(9, b"\x10a\x01"), "the block ends in the middle of a sequence"),
        (payload(5, b"\x10a\x01\x00"), "the block ends in the middle of a sequence"),
        (payload(9, b"\x10a\x00\x00"), "the block repeats bytes from before its beginning"),
        (payload(9, b"\x10a\x02\x00\x00"), "the block repeats bytes from before its beginning"),
        (payload(9, b"\x10a\xff\xff\x00"), "the block repeats bytes from before its beginning"),
        (payload(9, b"\x00\x01\x00\x00"), "the block repeats bytes from before its beginning"),
        (payload(2, b"\x30abc"), "the block makes more bytes than it says"),
        (payload(4, b"\x10a\x01\x00\x00"), "the block makes more bytes than it says"),
        (payload(9, b"\x1fa\x01\x00\xff\xff\xff\xff\x00\x00"), "the block makes more bytes than it says"),
        (payload(4, b"\x30abc"), "the block makes fewer bytes than it says"),
        (payload(6, b"\x10a\x01\x00\x00"), "the block makes fewer bytes than it says"),
        (payload(u64::MAX, b"\x30abc"), "the block makes fewer bytes than it says"),
    ] {
        let answer = words_of(pair.call(&raw, &payload));
        assert_eq!(answer, format!("`codec` panicked at the target: {expected}"), "{payload:?}");
    }
    // The least block with all features: a literal, a match that overlaps itself, and the empty sequence at
    // the end.
    assert_eq!(*pair.call(&raw, &payload(5, b"\x10a\x01\x00\x00")).unwrap(), *b"aaaaa");
}

/// Payloads that are mostly wrong somewhere: blocks cut off, changed and put together, false lengths, and
/// noise.
pub(crate) fn hostile() -> impl Strategy<Value = Vec<u8>> {
    let noise = proptest::collection::vec(any::<u8>(), 0..200);
    // Control bytes: short lengths, small offsets, and the ends of their ranges.
    let steering =
        proptest::collection::vec(prop_oneof![0..4_u8, 0x10..0x14_u8, Just(0xff), Just(0xf0)], 0..60);
    let changes = proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4);
    let changed = (texts(), changes, any::<prop::sample::Index>(), any::<bool>()).prop_map(
        |(text, changes, end, cut)| {
            let mut block = block::compress(&text);
            for (at, byte) in changes {
                let at = at.index(block.len());
                block[at] = byte;
            }
            if cut {
                block.truncate(end.index(block.len()));
            }
            (text.len() as u64, block)
        },
    );
    let block = prop_oneof![changed, (0..300_u64, noise), (0..300_u64, steering),];
    let lie = prop_oneof![4 => Just(0), 1 => -3..3_i64, 1 => any::<i64>()];
    (block, lie).prop_map(|((len, block), lie)| payload(len.wrapping_add_signed(lie), &block))
}

#[test]
fn no_payload_gives_anything_but_what_lz4_flex_gives_or_a_panic() {
    let place = Place::new();
    let pair = RefCell::new(Pair::new(&place));
    let raw = library("codec_raw");
    let (right, wrong) = (RefCell::new(0), RefCell::new(0));
    let same = |payload: Vec<u8>| {
        match (pair.borrow_mut().call(&raw, &payload), decompressed(&payload)) {
            (Ok(reply), Some(expected)) => {
                prop_assert!(*reply == *expected, "something else comes out");
                *right.borrow_mut() += 1;
            }
            (answer, None) => {
                let words = words_of(answer);
                prop_assert!(words.starts_with("`codec` panicked at the target: the "), "{}", words);
                *wrong.borrow_mut() += 1;
            }
            (Err(error), Some(expected)) => {
                prop_assert!(false, "{} instead of {} bytes", error, expected.len())
            }
        }
        Ok(())
    };
    TestRunner::new(ProptestConfig::with_cases(3000)).run(&hostile(), same).unwrap();
    let (right, wrong) = (right.into_inner(), wrong.into_inner());
    assert!(right > 100 && wrong > 1000, "{right} right and {wrong} wrong payloads prove little");
}

#[test]
fn a_small_block_with_an_overlong_reply_fails_only_its_call() {
    let (_place, mut pair) = Pair::start();
    let raw = library("codec_raw");
    // One byte, and a match that repeats it 128 MiB long. There is no empty sequence at the end: decoding stops
    // before.
    let longer = (128 << 20) / 255;
    let block = [&b"\x1fa\x01\x00"[..], &vec![0xff; longer], b"\x00"].concat();
    let error = words_of(pair.call(&raw, &payload(1 + 4 + 15 + 255 * longer as u64, &block)));
    assert!(!error.contains("panicked") && error.contains("reply"), "{error}");
    assert_eq!(*pair.call(&raw, &payload(3, b"\x30abc")).unwrap(), *b"abc");
}
