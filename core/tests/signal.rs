//! Signals: no two positions share one, and none can be computed without the key.
#![cfg(not(loom))]

use std::collections::HashSet;

use farjump_core::signal::LinkKey;
use proptest::prelude::*;

/// Inverts one step `word ^ (word >> shift)`.
fn unshift(word: u64, shift: u32) -> u64 {
    let mut found = word;
    for _ in 0..64 / shift {
        found = word ^ (found >> shift);
    }
    found
}

/// The inverse of an odd factor modulo 2^64, by Newton's iteration.
fn inverse(factor: u64) -> u64 {
    let mut found = factor;
    for _ in 0..6 {
        found = found.wrapping_mul(2_u64.wrapping_sub(factor.wrapping_mul(found)));
    }
    found
}

/// The position that has `signal`, computed from both halves of the key.
fn position_of(signal: u64, inner: u64, outer: u64) -> u64 {
    let word = unshift(signal ^ outer, 31).wrapping_mul(inverse(0x94d0_49bb_1331_11eb));
    let word = unshift(word, 27).wrapping_mul(inverse(0xbf58_476d_1ce4_e5b9));
    unshift(word, 30) ^ inner
}

fn halves(key: LinkKey) -> (u64, u64) {
    let bytes = u128::from_le_bytes(key.to_bytes());
    (bytes as u64, (bytes >> 64) as u64)
}

prop_compose! {
    fn key()(bytes: [u8; 16]) -> LinkKey {
        LinkKey::from_bytes(bytes)
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn each_signal_is_invertible_to_its_one_position(key in key(), position: u64) {
        let (header, trailer) = halves(key);
        prop_assert_eq!(position_of(key.header(position), header, trailer), position);
        prop_assert_eq!(position_of(key.trailer(position), trailer, header), position);
    }

    #[test]
    fn every_bit_of_the_key_counts(bytes: [u8; 16], bit in 0_usize..128, position: u64) {
        let key = LinkKey::from_bytes(bytes);
        let mut other = bytes;
        other[bit / 8] ^= 1 << (bit % 8);
        let other = LinkKey::from_bytes(other);
        prop_assert_ne!(key.header(position), other.header(position));
        prop_assert_ne!(key.trailer(position), other.trailer(position));
    }

    #[test]
    fn every_bit_of_a_frame_counts_in_its_checksum(
        key in key(),
        position: u64,
        words in prop::collection::vec(any::<u64>(), 1..64),
        at: prop::sample::Index,
        bit in 0_u32..64,
    ) {
        let mut other = words.clone();
        other[at.index(words.len())] ^= 1 << bit;
        prop_assert_ne!(
            key.checksum(position, words.into_iter()),
            key.checksum(position, other.into_iter())
        );
    }

    #[test]
    fn order_length_and_position_count_in_a_checksum(
        key in key(),
        position: u64,
        words in prop::collection::vec(any::<u64>(), 2..64),
        first: prop::sample::Index,
        second: prop::sample::Index,
    ) {
        let sum = |position, words: &[u64]| key.checksum(position, words.iter().copied());
        let mut swapped = words.clone();
        swapped.swap(first.index(words.len()), second.index(words.len()));
        prop_assert_eq!(swapped == words, sum(position, &swapped) == sum(position, &words));
        let mut longer = words.clone();
        longer.push(0);
        prop_assert_ne!(sum(position, &longer), sum(position, &words));
        prop_assert_ne!(sum(position.wrapping_add(64), &words), sum(position, &words));
    }

    #[test]
    fn a_link_key_made_from_bytes_returns_them_unchanged(bytes: [u8; 16]) {
        prop_assert_eq!(LinkKey::from_bytes(bytes).to_bytes(), bytes);
    }
}

#[test]
fn no_header_or_trailer_signal_occurs_twice_on_a_link() {
    for seed in 0..8_u8 {
        let key = LinkKey::from_bytes([seed.wrapping_mul(37); 16].map(|byte| byte ^ seed));
        // Equal halves are the worst key: then header and trailer are one function.
        let key = if seed == 0 { LinkKey::from_bytes(*b"0123456789abcdef") } else { key };
        let (header, trailer) = halves(key);
        let mut seen = HashSet::new();
        for line in 0..50_000_u64 {
            assert!(seen.insert(key.header(line * 64)), "header signal at line {line} occurred before");
            if header != trailer {
                assert!(seen.insert(key.trailer(line * 64)), "trailer signal at line {line} occurred before");
            }
        }
    }
}

#[test]
fn trailers_are_not_what_headers_are() {
    let key = LinkKey::from_bytes(*b"0123456789abcdef");
    let headers: HashSet<_> = (0..100_000).map(|line| key.header(line * 64)).collect();
    assert!((0..100_000).all(|line| !headers.contains(&key.trailer(line * 64))));
}

/// Guesses of an attacker that has seen all earlier signals and can write any payload, but does not know the
/// key.
#[test]
fn future_signals_are_neither_seen_signals_nor_one_step_from_them() {
    let key = LinkKey::from_bytes(*b"0123456789abcdef");
    let seen: Vec<u64> =
        (0..2_000).flat_map(|line| [key.header(line * 64), key.trailer(line * 64)]).collect();
    let mut tried: HashSet<u64> = seen.iter().copied().collect();
    for pair in seen.windows(3) {
        tried.extend([
            pair[0].wrapping_add(64),
            pair[0] ^ 64,
            pair[2].wrapping_add(pair[2].wrapping_sub(pair[0])),
            pair[0] ^ pair[1] ^ pair[2],
            pair[2] ^ pair[0],
        ]);
    }
    for line in 2_000..4_000 {
        assert!(!tried.contains(&key.header(line * 64)), "header at line {line}");
        assert!(!tried.contains(&key.trailer(line * 64)), "trailer at line {line}");
    }
}

#[test]
fn a_key_does_not_show_in_debug_output() {
    assert_eq!(format!("{:?}", LinkKey::from_bytes([7; 16])), "LinkKey(..)");
}
