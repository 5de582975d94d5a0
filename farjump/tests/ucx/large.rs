//! Payloads longer than a target's budget for unread frames: each arrives alone, whole and in order.

use farjump::{Error, Link, RefusalCause};

use crate::helper::this_test;
use crate::paths::on_every_path;
use crate::support::chronicle::Chronicle;
use crate::support::{PATIENCE, Place, library, refused};

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
