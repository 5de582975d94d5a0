//! Parameters on which two peers may agree, and parameters of which no channel is made.

use std::sync::Arc;

use farjump_core::channel::{Channel, ChannelParams, Polled, SendError};
use farjump_core::frame::{Kind, Plan};
use farjump_core::mailbox::{CONTROL_LEN, MIN_RING, region_len, ring_len};
use farjump_core::transport::{ArrivalRules, Cause, TransportError};

use super::peers::{Bell, Direction, Pair, RULES, plan, region, terms};

fn channel(
    is_mapped: bool,
    local: usize,
    remote: usize,
    terms: ChannelParams,
) -> Result<Channel, TransportError> {
    let [out, back] = [remote, local]
        .map(|len| Direction::new(&region(len), &Arc::new(Bell::default()), terms.rule, terms.line_whole));
    Channel::new(out.endpoint(&back, is_mapped), terms)
}

const REGION: usize = CONTROL_LEN + MIN_RING;

#[test]
fn each_rule_works_on_the_memory_it_needs_and_on_no_other() {
    for bits in 0..=ArrivalRules::all().bits() {
        let rule = ArrivalRules::from_bits_retain(bits);
        for is_mapped in [false, true] {
            let possible = match rule {
                ArrivalRules::STORES => is_mapped,
                // The other peer cannot see a mapping that middleware hides, so it does not matter.
                ArrivalRules::FENCED
                | ArrivalRules::IN_ORDER
                | ArrivalRules::WRITE_IMM
                | ArrivalRules::CHECKED => true,
                _ => false,
            };
            let made = channel(is_mapped, REGION, REGION, terms(rule, false, REGION));
            assert_eq!(made.is_ok(), possible, "{rule:?}, mapped: {is_mapped}");
            if let Err(error) = made {
                assert!(matches!(error.cause(), Cause::Unsupported(_)), "{error}");
            }
        }
    }
}

#[test]
fn a_mapping_is_left_alone_under_a_rule_that_puts() {
    let yours = region(REGION);
    let [out, back] = [&yours, &region(REGION)]
        .map(|to| Direction::new(to, &Arc::new(Bell::default()), ArrivalRules::FENCED, false));
    let endpoint = out.endpoint(&back, true);
    let mut channel = Channel::new(endpoint, terms(ArrivalRules::FENCED, false, REGION)).unwrap();
    channel.send_bytes(&plan(Kind::Call, 0), &[1; 30]).unwrap();
    assert_eq!(yours.read(0, REGION), vec![0; REGION], "stored without a put");
    out.wire.lock().unwrap().deliver_all();
    assert_eq!(yours.read(CONTROL_LEN + 24, 30), [1; 30]);
}

#[test]
fn regions_that_hold_no_ring_or_are_shorter_than_stated_are_refused() {
    for stated in [0, 1, CONTROL_LEN, REGION - 1] {
        for (send_region, receive_region) in [(stated, REGION), (REGION, stated)] {
            let terms =
                ChannelParams { send_region, receive_region, ..terms(ArrivalRules::STORES, true, REGION) };
            let error = channel(true, REGION, REGION, terms).unwrap_err();
            assert!(matches!(error.cause(), Cause::Address(_)), "{error}");
        }
    }
    for (local, remote) in [(REGION, 2 * REGION), (2 * REGION, REGION)] {
        let error = channel(true, local, remote, terms(ArrivalRules::STORES, true, 2 * REGION)).unwrap_err();
        assert_eq!(*error.cause(), Cause::OutOfRegion { offset: 0, len: 2 * REGION, region: REGION });
    }
    let error = channel(true, REGION, REGION, terms(ArrivalRules::STORES, true, usize::MAX)).unwrap_err();
    assert!(matches!(error.cause(), Cause::Address(_)), "over 2^31: {error}");
}

#[test]
fn a_region_holds_the_largest_power_of_two_behind_its_control_page() {
    for (asked, ring) in [(0, 4096), (1, 4096), (4096, 4096), (4097, 8192), (1 << 20, 1 << 20)] {
        assert_eq!(ring_len(region_len(asked)), Some(ring), "{asked}");
        assert_eq!(ring_len(region_len(asked) + ring - 1), Some(ring), "{asked}");
        assert_eq!(ring_len(region_len(asked) + ring), Some(2 * ring), "{asked}");
    }
    assert_eq!(ring_len(REGION - 1), None);
    assert_eq!(region_len(usize::MAX), usize::MAX, "nothing wraps round to a small region");
}

#[test]
fn each_directions_ring_length_limits_its_own_frames() {
    let (small, large) = (region_len(4096), region_len(1 << 16));
    let [to_left, to_right] = [small, large]
        .map(|len| Direction::new(&region(len), &Arc::new(Bell::default()), ArrivalRules::STORES, true));
    let end = |out: &Direction, back: &Direction, terms: ChannelParams| {
        Channel::new(out.endpoint(back, true), terms).unwrap()
    };
    let base = terms(ArrivalRules::STORES, true, 0);
    let mut left =
        end(&to_right, &to_left, ChannelParams { send_region: large, receive_region: small, ..base });
    let swapped = ChannelParams { send_key: base.receive_key, receive_key: base.send_key, ..base };
    let mut right =
        end(&to_left, &to_right, ChannelParams { send_region: small, receive_region: large, ..swapped });
    assert_eq!((left.max_frame(), right.max_frame()), (1 << 16, 4096));
    for _ in 0..5 {
        left.send_bytes(&plan(Kind::Call, 0), &[3; 40_000]).unwrap();
        let Polled::Frame(frame) = right.poll().unwrap() else { panic!("a frame was sent") };
        let mut payload = Vec::new();
        frame.contents().copy_payload(&mut payload);
        assert_eq!(payload, [3; 40_000]);
        frame.release().unwrap();
        assert!(matches!(
            right.send_bytes(&plan(Kind::Reply, 0), &[3; 4_096]),
            Err(SendError::TooLarge { .. })
        ));
    }
}

#[test]
fn a_sender_keeps_to_what_the_peer_takes() {
    for (rule, line_whole) in RULES {
        let limited = ChannelParams { send_limit: 1024, ..terms(rule, line_whole, region_len(1 << 14)) };
        let len = region_len(1 << 14);
        let mut channel = channel(rule == ArrivalRules::STORES, len, len, limited).unwrap();
        assert_eq!(channel.max_frame(), 1024);
        let plan = plan(Kind::Call, 0);
        let fits = super::peers::largest(rule, 1024);
        assert!(channel.reserve(&plan, fits).is_ok());
        assert!(matches!(
            channel.reserve(&plan, fits + 1),
            Err(SendError::TooLarge { len: 1088, max: 1024 })
        ));
        for payload in [1025, 1 << 32, usize::MAX] {
            let error = channel.reserve(&plan, payload).unwrap_err();
            assert!(matches!(error, SendError::TooLarge { max: 1024, .. }), "{payload}: {error}");
        }
    }
}

#[test]
fn a_line_carries_any_payload_that_fits_it() {
    let mut pair = Pair::new(ArrivalRules::STORES, true, 4096);
    let bytes: [u8; 40] = std::array::from_fn(|index| index as u8 + 1);
    for (len, alone) in (0..=40).zip([true, false, true].into_iter().cycle()) {
        let line = pair.left.channel.line().unwrap();
        // SAFETY: the line lends 40 bytes.
        unsafe { line.payload().cast::<[u8; 40]>().write(bytes) };
        line.send(&Plan { alone, travelled: false, ..plan(Kind::Call, 9) }, len).unwrap();
        assert_eq!(pair.right.take(), Some((9, bytes[..len].to_vec())));
        pair.left
            .channel
            .send_bytes(&Plan { alone, travelled: false, ..plan(Kind::Call, 8) }, &bytes[..len])
            .unwrap();
        assert_eq!(pair.right.take(), Some((8, bytes[..len].to_vec())));
    }
}

#[test]
fn lines_carry_payloads_up_to_their_reserved_length() {
    let mut pair = Pair::new(ArrivalRules::STORES, true, 1 << 14);
    for (turn, space) in [1, 41, 64, 65, 128, 1000, 4096].into_iter().cycle().take(200).enumerate() {
        let alone = turn % 3 != 0;
        for len in [0, 1, space / 2, space] {
            let bytes: Vec<u8> = (0..len).map(|index| (index + turn) as u8 | 1).collect();
            if let Some(lines) = pair.left.channel.lines(space) {
                // SAFETY: the lines lend `space` bytes.
                unsafe { lines.payload().as_ptr().copy_from_nonoverlapping(bytes.as_ptr(), len) };
                lines.send(&Plan { alone, travelled: false, ..plan(Kind::Call, 9) }, len).unwrap();
            } else {
                // This happens only if the ring's end is too near.
                pair.left.send(9, &bytes).unwrap();
            }
            assert_eq!(pair.right.take(), Some((9, bytes)), "{len} of {space}");
        }
    }
}

#[test]
fn only_mapped_rings_lend_lines_within_credit_and_peer_limit() {
    assert!(Pair::new(ArrivalRules::FENCED, false, 4096).left.channel.lines(100).is_none());
    assert!(Pair::new(ArrivalRules::CHECKED, false, 4096).left.channel.lines(100).is_none());
    let mut channel = Pair::limited(ArrivalRules::STORES, true, 4096, 1024).left.channel;
    assert!(channel.lines(1024 - 64).is_some());
    for payload in [1024 - 63, 1024, usize::MAX] {
        assert!(channel.lines(payload).is_none(), "{payload}");
    }
    let mut pair = Pair::new(ArrivalRules::STORES, true, 4096);
    let mut sent = 0;
    while let Some(lines) = pair.left.channel.lines(64) {
        lines.send(&plan(Kind::Call, 9), 64).unwrap();
        sent += 128;
        assert!(sent <= 4096, "more lines than the ring has");
    }
    assert!(sent > 1024, "the ring has space for more than {sent} bytes");
}

#[test]
fn a_line_that_is_not_sent_leaves_nothing_behind() {
    let mut pair = Pair::new(ArrivalRules::STORES, true, 4096);
    // SAFETY: the line lends 40 bytes.
    unsafe { pair.left.channel.line().unwrap().payload().write_bytes(0xff, 40) };
    assert_eq!(pair.right.take(), None);
    pair.left.channel.send_bytes(&plan(Kind::Call, 9), b"then").unwrap();
    assert_eq!(pair.right.take(), Some((9, b"then".to_vec())));
}

#[test]
fn a_single_line_needs_a_mapped_ring_and_credit() {
    assert!(Pair::new(ArrivalRules::FENCED, false, 4096).left.channel.line().is_none());
    let mut pair = Pair::new(ArrivalRules::STORES, true, 4096);
    let mut sent = 0;
    while let Some(line) = pair.left.channel.line() {
        line.send(&plan(Kind::Call, 9), 0).unwrap();
        sent += 64;
        assert!(sent <= 4096, "more lines than the ring has");
    }
    assert!(pair.right.take().is_some());
}

#[test]
fn channels_can_move_between_threads() {
    fn can_move<T: Send>(_: &T) {}
    can_move(&Pair::new(ArrivalRules::STORES, true, 4096).left.channel);
}

/// Sends `count` frames one at a time, each after the receiver has taken the one before. Returns the offsets of their
/// payloads.
fn one_at_a_time(pair: &mut Pair, count: u32) -> Vec<usize> {
    (0..count)
        .map(|token| {
            let line = pair.left.channel.line().expect("the frames before it were consumed");
            let at = line.payload().as_ptr().addr();
            line.send(&Plan { alone: true, travelled: false, ..plan(Kind::Call, token) }, 0).unwrap();
            assert_eq!(pair.right.take(), Some((token, vec![])));
            at
        })
        .collect()
}

#[test]
fn lone_frames_stay_near_a_large_rings_start_and_apart() {
    let mut pair = Pair::new(ArrivalRules::STORES, true, 1 << 20);
    let places = one_at_a_time(&mut pair, 1_000);
    let first = places.iter().min().unwrap();
    assert!(places.iter().max().unwrap() - first < 10 << 10, "they all lie in some ten kibibytes");
    for pair in places.windows(2) {
        assert!(pair[0].abs_diff(pair[1]) >= 128, "no two in the same pair of lines one after another");
    }
}

#[test]
fn lone_frames_of_one_length_reuse_the_same_lines_each_round() {
    for len in [100, 256, 576, 2_000, 5_000, 9_000] {
        let mut pair = Pair::new(ArrivalRules::STORES, true, 1 << 20);
        let places: Vec<_> = (0..200)
            .map(|token| {
                let lines = pair.left.channel.lines(len).expect("the frames before it were consumed");
                let at = lines.payload().as_ptr().addr();
                // SAFETY: the lines lend `len` bytes.
                unsafe { lines.payload().write_bytes(7, len) };
                lines.send(&Plan { alone: true, travelled: false, ..plan(Kind::Call, token) }, len).unwrap();
                assert_eq!(pair.right.take(), Some((token, vec![7; len])));
                at
            })
            .collect();
        let round = 1 + places[1..].iter().position(|at| *at == places[0]).expect("it never turns back");
        assert!(places.iter().enumerate().all(|(index, at)| *at == places[index % round]), "{len}: {round}");
    }
}

#[test]
fn lone_frames_use_small_rings_and_rings_limited_to_short_frames() {
    one_at_a_time(&mut Pair::new(ArrivalRules::STORES, true, 4096), 500);
    let mut pair = Pair::limited(ArrivalRules::STORES, true, 1 << 16, 128);
    let places = one_at_a_time(&mut pair, 2_000);
    assert_eq!(places.windows(2).filter(|pair| pair[0] > pair[1]).count(), 2_000 * 96 / (1 << 16), "laps");
}

#[test]
fn lone_frames_use_the_available_credit_and_overwrite_nothing() {
    let mut pair = Pair::new(ArrivalRules::STORES, true, 4096);
    let mut sent = 0;
    while let Some(line) = pair.left.channel.line() {
        line.send(&Plan { alone: true, travelled: false, ..plan(Kind::Call, sent) }, 0).unwrap();
        sent += 1;
    }
    for token in 0..sent {
        assert_eq!(pair.right.take(), Some((token, vec![])));
    }
    assert_eq!(pair.right.take(), None);
    one_at_a_time(&mut pair, 100);
}
