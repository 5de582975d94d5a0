//! Sources with an event loop of their own: over every path the link's descriptor wakes it for each event.

use std::thread;
use std::time::{Duration, Instant};

use farjump::{Error, InjectError, Link, RefusalCause, Reply, WaitError};
use rustix::process::Signal;

use crate::helper::{HelperProcess, this_test};
use crate::paths::on_every_path;
use crate::support::{PATIENCE, Place, library, readable, refused, sleep_for, sleep_until};

/// Puts a link to sleep whose target is stopped: then nothing wakes it. Returns whether events would wake it. They
/// would not as long as UCX has pending work for which the link has to call it.
fn put_to_sleep(link: &Link) -> bool {
    loop {
        let longest = link.arm().unwrap();
        // A worker that was used just before may have work of its own.
        if let Some(longest) = longest
            && !readable(link.as_fd().unwrap(), Duration::from_millis(1))
        {
            return longest == Duration::from_secs(1);
        }
        link.disarm();
    }
}

/// Returns whether the source is woken, or naps and need not be.
fn is_woken(link: &Link, soundly: bool) -> bool {
    let woken = !soundly || readable(link.as_fd().unwrap(), PATIENCE);
    link.disarm();
    woken
}

/// Outcome of a call whose source sleeps before the target runs it, and whether it was asleep rather than
/// napping.
fn call_asleep(target: &HelperProcess, link: &Link, payload: &[u8]) -> (Result<Reply, Error>, bool) {
    let echo = library("echo");
    let call = loop {
        target.signal(Signal::STOP);
        match link.try_inject(&echo, payload) {
            Ok(call) => break call,
            // The target was stopped before it returned the credit of the last call.
            Err(Error::Inject(InjectError::Full)) => target.signal(Signal::CONT),
            Err(error) => panic!("{error}"),
        }
        thread::sleep(Duration::from_millis(2));
    };
    let soundly = put_to_sleep(link);
    target.signal(Signal::CONT);
    assert!(is_woken(link, soundly), "nothing woke the source");
    (sleep_for(link, call), soundly)
}

#[test]
fn a_source_asleep_on_its_descriptor_wakes_for_replies_and_refusals() {
    on_every_path(this_test!(), |path| {
        let place = Place::new();
        let target = path.target(&place);
        let link = path.link(&place).connect().unwrap();
        let mut soundly = 0;
        for len in [1, 40, 4000, 300_000] {
            for _ in 0..3 {
                let (reply, slept) = call_asleep(&target, &link, &vec![5; len]);
                assert_eq!(*reply.unwrap(), vec![5; len]);
                soundly += u32::from(slept);
            }
        }
        // A link over UCX's TCP naps until UCX's sockets are closed to others, a while after the first
        // message of its peer.
        let deadline = Instant::now() + PATIENCE;
        while soundly == 0 {
            assert!(Instant::now() < deadline, "a descriptor announced none of the replies");
            soundly += u32::from(call_asleep(&target, &link, b"later").1);
        }
        let refusal = sleep_for(&link, link.inject(&library("lookup"), &[0; 8]).unwrap());
        refused(refusal, "lookup", RefusalCause::UnresolvedImport);
        assert_eq!(*call_asleep(&target, &link, b"and on").0.unwrap(), *b"and on");
    });
}

#[test]
fn a_source_asleep_on_its_descriptor_wakes_when_its_target_is_killed() {
    on_every_path(this_test!(), |path| {
        let place = Place::new();
        let mut target = path.target(&place);
        let mut link = path.link(&place).connect().unwrap();
        call_asleep(&target, &link, b"there").0.unwrap();
        target.signal(Signal::STOP);
        let mut call = link.inject(&library("echo"), b"and gone").unwrap();
        put_to_sleep(&link);
        target.kill();
        // The control connection wakes it, whatever the frames' path.
        assert!(is_woken(&link, true), "nothing woke the source");
        let error = sleep_until(&link, || call.poll().err());
        assert!(matches!(error, Error::Wait(WaitError::PeerGone { .. })), "{error}");
        assert!(link.arm().is_err(), "it never sleeps again");
        drop(call);
        let target = path.target(&place);
        link.reconnect().unwrap();
        assert_eq!(*call_asleep(&target, &link, b"again").0.unwrap(), *b"again");
    });
}
