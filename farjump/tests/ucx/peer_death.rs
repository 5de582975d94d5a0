//! Peers that are killed and stopped in the middle of traffic. UCX does not notice it; farjump does, over every
//! path.

use std::time::{Duration, Instant};

use farjump::{Error, InjectError, Link};
use rustix::process::Signal;

use crate::helper::this_test;
use crate::paths::{on_every_path, on_every_path_at_once};
use crate::support::{
    FOREVER, PATIENCE, Place, eventually, library, peer_gone, ran, sequence, timed_out, words,
};

/// Deadline of calls without a reply.
const SHORT: Duration = Duration::from_millis(200);

fn call(link: &Link, payload: &[u8]) -> Result<Vec<u8>, Error> {
    link.inject(&library("echo"), payload)?.wait(PATIENCE).map(|reply| reply.to_vec())
}

#[test]
fn a_target_that_is_killed_under_calls_fails_all_of_them() {
    on_every_path(this_test!(), |path| {
        for len in [40, 4000, 5 << 20] {
            let place = Place::new();
            let mut target = path.target(&place);
            let address = path.address(&place);
            let link = path.link(&place).reply_mailbox_size(1 << 24).send_timeout(FOREVER).connect().unwrap();
            call(&link, &vec![1; len]).unwrap();
            let (echo, payload) = (library("echo"), vec![2; len]);
            let mut calls = Vec::new();
            eventually(|| {
                // While the target does not run, the calls stay on their way. The rest of a long one has not left
                // this process.
                target.signal(Signal::STOP);
                while calls.len() < 100 {
                    match link.try_inject(&echo, &payload) {
                        Ok(call) => calls.push(call),
                        Err(Error::Inject(InjectError::Full)) => break,
                        Err(error) => panic!("{error}"),
                    }
                }
                // The target was stopped before it returned the credit of the first call: there is none for another.
                if calls.is_empty() {
                    target.signal(Signal::CONT);
                }
                !calls.is_empty()
            });
            target.kill();
            for call in calls {
                let error = peer_gone(call.wait(FOREVER));
                assert!(error.contains(&*address), "{error}");
            }
        }
    });
}

#[test]
fn a_source_killed_while_it_streams_frames_costs_the_others_nothing() {
    on_every_path(this_test!(), |path| {
        for len in ["8", "4000", "5000000"] {
            let place = Place::new();
            let target = path.target(&place);
            let link = path.link(&place).connect().unwrap();
            let before = ran(&link);
            let left = || (target.descriptors(), target.regions());
            let at_first = left();
            for round in 1..=2 {
                let mut source = path.source(&place);
                source.order(&format!("stream {len}"));
                // Each source counts from its own start, which this test does not know.
                eventually(|| sequence(&link)[0] >= before + 5 * round);
                source.kill();
                assert_eq!(call(&link, b"unmoved").unwrap(), b"unmoved");
            }
            eventually(|| left() == at_first);
        }
    });
}

#[test]
fn a_link_ended_within_a_long_frame_costs_the_others_nothing() {
    on_every_path(this_test!(), |path| {
        let place = Place::new();
        let target = path.target(&place);
        let link = path.link(&place).connect().unwrap();
        call(&link, b"there").unwrap();
        // A payload that exceeds a mailbox waits until the target has made a large one. A stopped target does not
        // make one.
        let len = if path.transport == "ucx-am" { 32 << 20 } else { 3 << 20 };
        for _ in 0..5 {
            let other = path.link(&place).connect().unwrap();
            target.signal(Signal::STOP);
            other.send(&library("echo"), &vec![1; len]).unwrap();
            // The link's memory is freed while this process lives.
            drop(other);
            target.signal(Signal::CONT);
            assert_eq!(call(&link, b"unmoved").unwrap(), b"unmoved");
        }
    });
}

#[test]
fn waits_for_a_stopped_target_time_out_until_it_continues() {
    on_every_path_at_once(this_test!(), |path| {
        let place = Place::new();
        let target = path.target(&place);
        let address = path.address(&place);
        let link = path.link(&place).send_timeout(SHORT).connect().unwrap();
        call(&link, b"there").unwrap();
        target.signal(Signal::STOP);
        let late = link.inject(&library("echo"), b"late").unwrap();
        let began = Instant::now();
        let text = timed_out(link.inject(&library("echo"), b"waits").unwrap().wait(SHORT));
        assert!(began.elapsed() >= SHORT && text.contains(&*address), "{text}");
        timed_out(link.flush(SHORT));
        // Credit runs out at some point.
        let full = loop {
            let sent = link.send(&library("sequence"), &words(&[0; 500]));
            if sent.is_err() {
                break timed_out(sent);
            }
        };
        assert!(full.contains(&*address), "{full}");
        let error = path.link(&place).connect_timeout(SHORT).connect().map(drop).unwrap_err();
        assert!(error.to_string().contains("too long"), "{error}");
        target.signal(Signal::CONT);
        assert_eq!(*late.wait(PATIENCE).unwrap(), *b"late");
        link.flush(PATIENCE).unwrap();
        let other = path.link(&place).connect().unwrap();
        assert_eq!(call(&other, b"new").unwrap(), b"new");
    });
}
