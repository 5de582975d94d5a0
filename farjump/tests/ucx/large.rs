//! Payloads longer than a target's budget for unread frames: each arrives alone, whole and in order.

use farjump::{Error, InjectError, Link, RefusalCause};

use crate::helper::this_test;
use crate::paths::{on_every_path, on_every_path_of_messages};
use crate::support::chronicle::Chronicle;
use crate::support::{PATIENCE, Place, library, ran, refused, words};

/// Default limit of payloads at a target, in bytes.
const LIMIT: usize = 64 << 20;

#[test]
fn payloads_up_to_64_mib_arrive_whole_by_default() {
    on_every_path(this_test!(), |path| {
        let place = Place::new();
        let _target = path.target(&place);
        let link = path.link(&place).connect().unwrap();
        let mailbox = 4 << 20;
        let lengths = [1, 40, 41, 8192, 8193, 1 << 20, mailbox - 64, mailbox, mailbox + 1, 7, 9 << 20, LIMIT];
        Chronicle::new().arrives(&link, lengths);
    });
}

#[test]
fn long_frames_and_short_ones_run_in_the_order_of_their_calls() {
    on_every_path(this_test!(), |path| {
        let place = Place::new();
        let target = path.listen(&place).mailbox_size(1 << 14);
        let target = target.build().unwrap();
        let (address, target) = (target.address(), target.spawn().unwrap());
        let link = path.link_to(&address).connect().unwrap();
        let sequence = library("sequence");
        let mut random = fastrand::Rng::with_seed(7);
        // Over messages and streams a long frame waits until all before it have run, and costs a busy machine some
        // turns of both processes. A few are enough for each to stand between two of the other kind.
        let (frames, longest) = if path.transport == "shm" { (5000_u64, 300_000) } else { (100, 60_000) };
        let mut payload = vec![0; longest];
        for number in 0..frames {
            payload[..8].copy_from_slice(&number.to_ne_bytes());
            let len = match random.u8(..8) {
                0..3 => random.usize(8..=40),
                3..6 => random.usize(8..16_000),
                _ => random.usize(17_000..longest),
            };
            link.send(&sequence, &payload[..len]).unwrap();
            if random.u8(..) == 0 {
                link.flush(PATIENCE).unwrap();
            }
        }
        assert_eq!(ran(&link), frames);
        target.stop().unwrap();
    });
}

/// Injects and waits.
fn call(link: &Link, payload: &[u8]) -> Result<usize, Error> {
    link.inject(&library("echo"), payload)?.wait(PATIENCE).map(|reply| reply.len())
}

#[test]
fn a_link_continues_after_refused_payloads_and_replies_over_a_limit() {
    on_every_path(this_test!(), |path| {
        let place = Place::new();
        let target = path.listen(&place).build().unwrap();
        let (address, target) = (target.address(), target.spawn().unwrap());
        let link = path.link_to(&address).connect().unwrap();
        let text = refused(call(&link, &vec![0; LIMIT + 1]), "echo", RefusalCause::TooLarge);
        assert!(text.contains("67108865") && text.contains("TargetBuilder::max_payload"), "{text}");
        assert_eq!(call(&link, b"and on").unwrap(), 6);
        // The reply ring limits replies, whatever the length of their calls.
        refused(call(&link, &vec![0; 2 << 20]), "echo", RefusalCause::ReplyTooLarge);
        let roomy = path.link_to(&address).reply_mailbox_size(4 << 20).connect().unwrap();
        assert_eq!(call(&roomy, &vec![0; 2 << 20]).unwrap(), 2 << 20);
        target.stop().unwrap();
    });
}

#[test]
fn frame_and_memory_limits_of_a_target_bound_its_sources_frames() {
    // Over transports with mailboxes the source gets a large mailbox instead.
    on_every_path_of_messages(this_test!(), |path| {
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
