//! Payloads longer than a target's budget for unread frames: they come alone, whole and in order.

use farjump::{CallError, Error, InjectError, Link, RefusalCause};

use crate::helper::this_test;
use crate::paths::{Path, on_every_path, on_every_path_of_messages};
use crate::support::{PATIENCE, Place, library, to_words, words};

/// Default limit of payloads at a target, in bytes.
const LIMIT: usize = 64 << 20;

/// Bytes without a period.
fn pattern(len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    fastrand::Rng::with_seed(len as u64).fill(&mut bytes);
    bytes
}

/// The state of `chronicle` after a payload, from the state before.
fn add(hash: u64, payload: &[u8]) -> u64 {
    let mix = |hash: u64, value: u64| (hash ^ value).wrapping_mul(0x100_0000_01b3);
    let hash = payload.iter().fold(hash, |hash, byte| mix(hash, u64::from(*byte)));
    mix(hash, payload.len() as u64)
}

#[test]
fn payloads_up_to_64_mib_arrive_whole_though_nobody_sets_anything() {
    on_every_path(this_test!(), |path: &Path, test| {
        let place = Place::new();
        let _target = path.target(test, &place);
        let link = path.link(&place).connect().unwrap();
        let (chronicle, mut hash) = (library("chronicle"), 0xcbf2_9ce4_8422_2325);
        let mailbox = 4 << 20;
        let lengths = [
            1,
            40,
            41,
            8192,
            8193,
            1 << 20,
            mailbox - 64,
            mailbox,
            mailbox + 1,
            7,
            9 << 20,
            LIMIT - 1,
            LIMIT,
        ];
        for (calls, len) in (1..).zip(lengths) {
            let payload = pattern(len);
            hash = add(hash, &payload);
            let reply = link.inject(&chronicle, &payload).unwrap().wait(PATIENCE).unwrap();
            assert_eq!(
                to_words(&reply),
                [calls, hash],
                "a payload of {len} bytes came out of order, or damaged"
            );
        }
    });
}

#[test]
fn long_frames_and_short_ones_run_in_the_order_of_their_calls() {
    on_every_path(this_test!(), |path, _| {
        let place = Place::new();
        let target = path.listen(&place).mailbox_size(1 << 14);
        let target = target.build().unwrap();
        let (address, target) = (target.address(), target.spawn().unwrap());
        let link = path.link_to(&address).connect().unwrap();
        let sequence = library("sequence");
        let mut random = fastrand::Rng::with_seed(7);
        // A long one waits until all before it have run, and costs a busy machine some turns of both sides:
        // few are enough for each to stand between two of the other kind.
        let mut payload = vec![0; 60_000];
        for number in 0..100_u64 {
            payload[..8].copy_from_slice(&number.to_ne_bytes());
            let len = match random.u8(..8) {
                0..3 => random.usize(8..=40),
                3..6 => random.usize(8..16_000),
                _ => random.usize(17_000..60_000),
            };
            link.send(&sequence, &payload[..len]).unwrap();
        }
        let seen = link.inject(&sequence, b"").unwrap().wait(PATIENCE).unwrap();
        assert_eq!(to_words(&seen), [100, 0]);
        target.stop().unwrap();
    });
}

/// Injects and waits.
fn call(link: &Link, payload: &[u8]) -> Result<usize, Error> {
    link.inject(&library("echo"), payload)?.wait(PATIENCE).map(|reply| reply.len())
}

#[test]
fn a_payload_over_a_limit_is_refused_with_what_to_do_and_the_link_goes_on() {
    on_every_path(this_test!(), |path, _| {
        let place = Place::new();
        let target = path.listen(&place).build().unwrap();
        let (address, target) = (target.address(), target.spawn().unwrap());
        let link = path.link_to(&address).connect().unwrap();
        match call(&link, &vec![0; LIMIT + 1]) {
            Err(Error::Call(CallError::Refused { cause: RefusalCause::TooLarge, text, .. })) => {
                assert!(text.contains("67108865") && text.contains("TargetBuilder::max_payload"), "{text}");
            }
            other => panic!("{other:?}"),
        }
        assert_eq!(call(&link, b"and on").unwrap(), 6);
        // Replies are bounded by the reply ring, whatever their calls needed.
        match call(&link, &vec![0; 2 << 20]) {
            Err(Error::Call(CallError::Refused { cause: RefusalCause::ReplyTooLarge, .. })) => {}
            other => panic!("{other:?}"),
        }
        let roomy = path.link_to(&address).reply_mailbox_size(4 << 20).connect().unwrap();
        assert_eq!(call(&roomy, &vec![0; 2 << 20]).unwrap(), 2 << 20);
        target.stop().unwrap();
    });
}

#[test]
fn what_one_source_can_have_held_is_bounded_by_the_targets_limits_and_told() {
    // Where mailboxes are written, large mailboxes are made instead (`behaviour`).
    on_every_path_of_messages(this_test!(), |path, _| {
        let mailbox = 1 << 16;
        for (limit, memory) in [(1 << 20, usize::MAX), (usize::MAX, 6 << 20)] {
            let place = Place::new();
            let target = path.listen(&place).mailbox_size(mailbox);
            let target = target.max_frame(limit).max_source_memory(memory);
            let target = target.build().unwrap();
            let (address, target) = (target.address(), target.spawn().unwrap());
            let link = path.link_to(&address).reply_mailbox_size(8 << 20).connect().unwrap();
            let most = link.max_frame();
            assert_eq!(most, limit.min((memory - mailbox - 4096) / 2), "half of what the mailbox leaves");
            assert_eq!(call(&link, &vec![0; most / 64 * 64 - 512]).unwrap(), most / 64 * 64 - 512);
            let error = call(&link, &vec![0; most]).unwrap_err();
            assert!(
                matches!(error, Error::Inject(InjectError::TooLarge { max, .. }) if max == most),
                "{error}"
            );
            let text = error.to_string();
            assert!(
                text.contains("TargetBuilder::max_frame")
                    && text.contains("TargetBuilder::max_source_memory"),
                "{text}"
            );
            link.send(&library("echo"), &words(&[1])).unwrap();
            link.flush(PATIENCE).unwrap();
            target.stop().unwrap();
        }
    });
}
