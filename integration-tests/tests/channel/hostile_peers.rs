//! Lying peers and suppliers of payload: bytes that are no frame of this position never pass for one.

use farjump_core::channel::{Armed, FastPoll, Polled};
use farjump_core::frame::{Flags, FrameError, Header, Kind};
use farjump_core::mailbox::CONTROL_LEN;
use farjump_core::transport::{ArrivalRules, Cause};

use super::peers::{Pair, RULES, pattern};

const RING: usize = 4096;

/// A line that looks like a call of one line, with `signal`, and with `trailer` at its end.
fn forged(signal: u64, trailer: u64, flags: u8) -> [u8; 64] {
    let flags = Flags::from_bits(flags).unwrap();
    let header = Header { frame_len: 64, payload_len: 8, kind: Kind::Call, flags, index: 0, token: 0xbad };
    let [lengths, rest] = header.to_words();
    let mut line = [0; 64];
    for (at, word) in [(0, signal), (8, lengths), (16, rest), (56, trailer)] {
        line[at..at + 8].copy_from_slice(&word.to_le_bytes());
    }
    line
}

/// Every line of every payload imitates a frame, with each signal seen so far. Then the ring wraps, and the
/// next frames start on those lines.
#[test]
fn payload_that_imitates_frames_with_all_seen_signals_never_passes() {
    for (rule, line_whole) in RULES {
        let mut pair = Pair::new(rule, line_whole, RING);
        let flags = if rule == ArrivalRules::CHECKED || (rule == ArrivalRules::IN_ORDER && !line_whole) {
            0x23
        } else {
            3
        };
        let mut seen = Vec::new();
        for round in 0..200_u32 {
            let payload: Vec<u8> = (0..28)
                .flat_map(|line| {
                    let back = |by: usize| seen.len().checked_sub(by).map_or(0, |at| seen[at]);
                    let signal: u64 = match line % 4 {
                        0 => back(1),
                        1 => back(1 + line),
                        2 => back(1).wrapping_add(64 * line as u64),
                        _ => back(2) ^ back(1) ^ back(3),
                    };
                    forged(signal, back(2), flags)
                })
                .collect();
            pair.left.send(round, &payload).unwrap();
            pair.settle();
            // The supplier sees the whole ring.
            let ring = pair.right.pages.read(CONTROL_LEN, RING);
            seen.extend(ring.chunks(8).map(|word| u64::from_le_bytes(word.try_into().unwrap())).take(8));
            seen.push(pair.right.word(CONTROL_LEN + (round as usize * 1856) % RING));
            assert_eq!(pair.right.take(), Some((round, payload)), "{rule:?}");
            assert_eq!(pair.right.take(), None, "{rule:?}: a forged frame behind frame {round}");
            // Then passes many lines of forged ones, line by line.
            for line in 0..round % 7 {
                pair.left.send(line, &[1; 8]).unwrap();
                pair.settle();
                assert_eq!(pair.right.take(), Some((line, vec![1; 8])), "{rule:?}");
                assert_eq!(pair.right.take(), None, "{rule:?}");
            }
            pair.right.channel.progress(true).unwrap();
            pair.settle();
        }
    }
}

/// The tests above could pass because their forgeries are no frames at all. This one shows that they are frames,
/// except for the key.
#[test]
fn a_forged_frame_passes_when_made_with_the_key() {
    for (rule, line_whole) in [(ArrivalRules::STORES, true), (ArrivalRules::FENCED, false)] {
        let mut pair = Pair::new(rule, line_whole, RING);
        let mut payload = forged(pair.right.key.header(RING as u64 + 64), 0, 3).to_vec();
        // Shorter frames start at other places; these two are as long as the ring.
        payload.resize(256, 0);
        pair.left.send_packed(0, &payload).unwrap();
        pair.left.send_packed(1, &pattern(1, RING - 384)).unwrap();
        pair.settle();
        assert!(pair.right.take().is_some() && pair.right.take().is_some());
        assert_eq!(pair.right.take(), None);
        pair.right.channel.progress(true).unwrap();
        pair.settle();
        pair.left.send_packed(2, &[]).unwrap();
        pair.settle();
        assert_eq!(pair.right.take().map(|(token, _)| token), Some(2));
        assert_eq!(pair.right.take().map(|(token, _)| token), Some(0xbad), "{rule:?}");
    }
}

#[test]
fn the_whole_ring_of_any_earlier_lap_holds_no_frame() {
    for (rule, line_whole) in RULES {
        let mut pair = Pair::new(rule, line_whole, RING);
        let mut laps: Vec<Vec<u8>> = Vec::new();
        for lap in 0..6_u32 {
            for token in 0..8 {
                pair.left.send(lap * 8 + token, &pattern(token, 430)).unwrap();
                pair.settle();
                assert!(pair.right.take().is_some());
                pair.right.channel.progress(true).unwrap();
                pair.settle();
                let now = pair.right.pages.read(CONTROL_LEN, RING);
                for old in &laps {
                    pair.right.scribble(0, old);
                    assert_eq!(pair.right.look(), None, "{rule:?}: a frame of an earlier lap");
                    assert!(!pair.right.is_partial(), "{rule:?}: a signal of an earlier lap");
                }
                pair.right.scribble(0, &now);
            }
            laps.push(pair.right.pages.read(CONTROL_LEN, RING));
        }
    }
}

/// The trailer of an earlier lap at this place, under the right header signal.
#[test]
fn a_frame_with_this_positions_signal_and_an_earlier_trailer_is_partial() {
    let mut pair = Pair::new(ArrivalRules::IN_ORDER, true, RING);
    let key = pair.right.key;
    let round = |pair: &mut Pair, token| {
        pair.left.send(token, &pattern(token, RING - 72)).unwrap();
        pair.settle();
    };
    round(&mut pair, 0);
    assert!(pair.right.take().is_some());
    pair.right.channel.progress(true).unwrap();
    pair.settle();
    // Header and body of lap 1, with the trailer of lap 0.
    let trailer = pair.right.word(CONTROL_LEN + RING - 8);
    assert_eq!(trailer, key.trailer(0));
    round(&mut pair, 1);
    pair.right.scribble(RING - 8, &trailer.to_le_bytes());
    assert!(pair.right.is_partial());
    // The header's signal is no trailer either.
    pair.right.scribble(RING - 8, &key.header(RING as u64).to_le_bytes());
    assert!(pair.right.is_partial());
    pair.right.scribble(RING - 8, &key.trailer(RING as u64).to_le_bytes());
    assert_eq!(pair.right.take(), Some((1, pattern(1, RING - 72))));
}

/// Without whole lines, a header may still be the old contents: payload of an earlier lap that imitates a header.
#[test]
fn payload_of_an_earlier_lap_under_this_positions_signal_is_no_header() {
    for (rule, line_whole) in RULES {
        if rule != ArrivalRules::CHECKED && (rule != ArrivalRules::IN_ORDER || line_whole) {
            continue;
        }
        for flags in [0x03, 0x23] {
            let mut pair = Pair::new(rule, line_whole, RING);
            let settle = |pair: &mut Pair| {
                pair.right.channel.progress(true).unwrap();
                pair.settle();
            };
            let payload: Vec<u8> = (0..60).flat_map(|_| forged(0, 0, flags)).collect();
            pair.left.send(0, &payload).unwrap();
            pair.settle();
            assert!(pair.right.take().is_some());
            settle(&mut pair);
            // Advances to the next lap, and past its first line.
            for _ in 0..2 {
                pair.left.send(1, &[]).unwrap();
                pair.settle();
                assert_eq!(pair.right.take(), Some((1, vec![])));
                settle(&mut pair);
            }
            let mut partial = 0;
            for token in 2..40 {
                pair.left.send(token, &[token as u8; 30]).unwrap();
                while !pair.left.wire.lock().unwrap().is_idle() {
                    // A byte at a time, from the front.
                    pair.left.wire.lock().unwrap().deliver(&mut |_| 0);
                    partial += u32::from(pair.right.is_partial());
                    if let Some(frame) = pair.right.look() {
                        assert_eq!(frame, (token, vec![token as u8; 30]), "{rule:?}, flags {flags:#x}");
                    }
                }
                assert!(pair.right.take().is_some());
                settle(&mut pair);
            }
            assert!(partial > 38, "{rule:?}: the signal never came before the header");
        }
    }
}

#[test]
fn a_false_credit_line_neither_grants_nor_takes_credit() {
    for (rule, line_whole) in RULES {
        let mut pair = Pair::new(rule, line_whole, RING);
        for token in 0..20 {
            pair.left.send_packed(token, &pattern(token, 30)).unwrap();
        }
        pair.settle();
        for token in 0..5 {
            assert_eq!(pair.right.take(), Some((token, pattern(token, 30))));
        }
        pair.right.channel.progress(true).unwrap();
        pair.settle();
        let line = if pair.left.channel.in_flight() == Some(15 * 64) { 64 } else { 128 };
        assert_eq!(pair.left.channel.in_flight(), Some(15 * line), "{rule:?}");
        // Beyond the sent bytes, backwards, and nonsense.
        for reported in [20 * line + 1, 20 * line + 4096, u64::MAX, 1 << 63, 4 * line, 1, 0] {
            pair.left.pages.write(0, &reported.to_le_bytes());
            assert_eq!(pair.left.channel.in_flight(), Some(15 * line), "{rule:?}: {reported} was believed");
        }
        let mut sent = 20;
        while pair.left.send_packed(sent, &pattern(sent, 30)).is_ok() {
            pair.settle();
            sent += 1;
            assert!(sent < 100, "{rule:?}: the ring is never full");
        }
        assert_eq!(u64::from(sent - 5), RING as u64 / line, "{rule:?}");
        for token in 5..sent {
            assert_eq!(
                pair.right.take(),
                Some((token, pattern(token, 30))),
                "{rule:?}: a frame was overwritten"
            );
        }
    }
}

#[test]
fn a_peer_that_breaks_the_protocol_gets_an_error_that_says_how() {
    let signal = |pair: &Pair| pair.right.key.header(0);
    let header = |change: fn(&mut Header)| {
        let flags = Flags::from_bits(3).unwrap();
        let mut header =
            Header { frame_len: 64, payload_len: 8, kind: Kind::Call, flags, index: 0, token: 0 };
        change(&mut header);
        header
    };
    let cases: [(Header, FrameError); 7] = [
        (header(|header| header.frame_len = 0), FrameError::Length { len: 0, least: 64 }),
        (header(|header| header.frame_len = 96), FrameError::Length { len: 96, least: 64 }),
        (header(|header| header.frame_len = 4160), FrameError::PastEnd { len: 4160, left: 4096 }),
        (
            header(|header| header.frame_len = u32::MAX - 63),
            FrameError::PastEnd { len: u32::MAX - 63, left: 4096 },
        ),
        (header(|header| header.payload_len = 41), FrameError::Payload { offset: 24, len: 41, frame: 64 }),
        (header(|header| header.flags |= Flags::TRAILER), FrameError::Flags(0x23)),
        (header(|header| header.kind = Kind::Skip), FrameError::Length { len: 64, least: 4096 }),
    ];
    for (rule, line_whole) in [(ArrivalRules::STORES, true), (ArrivalRules::FENCED, false)] {
        for (header, expected) in &cases {
            let mut pair = Pair::new(rule, line_whole, RING);
            let mut line = [0; 64];
            let [lengths, rest] = header.to_words();
            for (at, word) in [(0, signal(&pair)), (8, lengths), (16, rest)] {
                line[at..at + 8].copy_from_slice(&word.to_le_bytes());
            }
            pair.right.scribble(0, &line);
            let error = pair.right.channel.poll().unwrap_err();
            assert_eq!(*error.cause(), Cause::Protocol(expected.clone()), "{rule:?} {header:?}");
            assert!(error.to_string().contains("broke the protocol"), "{error}");
        }
    }
}

#[test]
fn a_frame_changed_after_its_check_keeps_its_checked_lengths() {
    let mut pair = Pair::new(ArrivalRules::STORES, true, RING);
    pair.left.send(0, &pattern(0, 200)).unwrap();
    pair.left.send(1, &pattern(1, 10)).unwrap();
    assert!(pair.right.look().is_some());
    // Lengths up to the end of memory and beyond.
    pair.right.scribble(8, &u64::MAX.to_le_bytes());
    assert_eq!(pair.right.take(), Some((0, pattern(0, 200))));
    assert_eq!(pair.right.take(), Some((1, pattern(1, 10))));
}

#[test]
fn no_line_is_written_over_a_kept_frame() {
    use super::peers::plan;
    for (rule, line_whole) in RULES {
        let mut pair = Pair::new(rule, line_whole, RING);
        let plan = plan(Kind::Call, 0);
        let is_mapped = pair.left.channel.line().is_some();
        let space = pair.left.channel.reserve(&plan, 100).unwrap();
        // SAFETY: `reserve` lends 100 bytes.
        unsafe { space.payload().write_bytes(0x55, 100) };
        space.keep();
        assert!(pair.left.channel.line().is_none() && pair.left.channel.lines(100).is_none(), "{rule:?}");
        pair.left.channel.kept().unwrap().commit(&plan, 100).unwrap();
        assert!(pair.left.channel.kept().is_none());
        assert_eq!(pair.left.channel.line().is_some(), is_mapped, "{rule:?}");
        pair.settle();
        assert_eq!(pair.right.take(), Some((0, vec![0x55; 100])), "{rule:?}");
        // The frame is not kept after another reservation either.
        pair.left.channel.reserve(&plan, 100).unwrap().keep();
        let _ = pair.left.channel.reserve(&plan, 3_000).unwrap();
        assert!(pair.left.channel.kept().is_none(), "{rule:?}");
        assert_eq!(pair.left.channel.line().is_some(), is_mapped, "{rule:?}");
        pair.settle();
        assert_eq!(pair.right.take(), None, "{rule:?}");
    }
}

/// A held frame stays in the mailbox, where its sender can overwrite it.
#[test]
fn a_found_frame_stays_as_first_read_even_if_overwritten() {
    for (rule, line_whole) in RULES {
        let mut pair = Pair::new(rule, line_whole, RING);
        let payload = pattern(1, 100);
        pair.left.send(7, &payload).unwrap();
        pair.settle();
        let Polled::Frame(found) = pair.right.channel.poll().unwrap() else { panic!("{rule:?}") };
        let (header, payload_at) = (found.header(), found.payload());
        let over = |kind, frame_len, payload_len, index| {
            let flags = Flags::from_bits(3).unwrap();
            Header { frame_len, payload_len, kind, flags, index, token: 0xbad }
        };
        for over in [
            over(Kind::Call, 64, 8, 9),
            over(Kind::CallBatch, 1024, 900, 9),
            over(Kind::Large, 64, 0, 0),
            // Falling asleep passes skips.
            over(Kind::Skip, RING as u32, 0, 0),
            over(Kind::Reply, u32::MAX, u32::MAX, u16::MAX),
        ] {
            for (at, word) in [8, 16].into_iter().zip(over.to_words()) {
                pair.right.scribble(at, &word.to_le_bytes());
            }
            let channel = &mut pair.right.channel;
            assert!(matches!(channel.poll_fast(), FastPoll::Other), "{rule:?}: {over:?}");
            let Ok(Polled::Frame(again)) = channel.poll() else { panic!("{rule:?}: {over:?}") };
            assert_eq!((again.header(), again.payload()), (header, payload_at), "{rule:?}");
            assert_eq!(again.contents().payload_len(), 100, "{rule:?}");
            assert_eq!(channel.arm().unwrap(), Armed::Ready, "{rule:?}");
            assert_eq!(channel.received(), 0, "{rule:?}");
        }
        assert_eq!(pair.right.take(), Some((7, payload)), "{rule:?}");
        assert_eq!(pair.right.channel.received(), u64::from(header.frame_len), "{rule:?}");
    }
}

#[test]
fn no_poll_finds_a_taken_frame_and_only_its_channel_releases_it() {
    for (rule, line_whole) in RULES {
        let mut pair = Pair::new(rule, line_whole, RING);
        let mut other = Pair::new(rule, line_whole, RING);
        for pair in [&mut pair, &mut other] {
            pair.left.send(1, &pattern(1, 100)).unwrap();
            pair.left.send(2, &[]).unwrap();
            pair.settle();
        }
        let take = |pair: &mut Pair| match pair.right.channel.poll().unwrap() {
            Polled::Frame(frame) => frame.take(),
            polled => panic!("{rule:?}: {polled:?}"),
        };
        let (own, foreign) = (take(&mut pair), take(&mut other));
        assert!(matches!(pair.right.channel.poll().unwrap(), Polled::Nothing), "{rule:?}");
        assert!(matches!(pair.right.channel.poll_fast(), FastPoll::Other), "{rule:?}");
        assert_eq!(pair.right.channel.arm().unwrap(), Armed::Ready, "{rule:?}");
        pair.right.channel.disarm().unwrap();
        let mut payload = Vec::new();
        pair.right.channel.contents(&foreign).copy_payload(&mut payload);
        assert!(payload.is_empty(), "{rule:?}");
        let error = pair.right.channel.release(foreign).unwrap_err();
        assert!(error.to_string().contains("of another channel"), "{error}");
        // The receiver can send replies meanwhile.
        pair.right.send(3, &pattern(3, 10)).unwrap();
        pair.right.channel.contents(&own).copy_payload(&mut payload);
        assert_eq!(payload, pattern(1, 100), "{rule:?}");
        pair.right.channel.release(own).unwrap();
        assert_eq!(pair.right.take(), Some((2, vec![])), "{rule:?}");
        pair.settle();
        assert_eq!(pair.left.take(), Some((3, pattern(3, 10))), "{rule:?}");
    }
}
