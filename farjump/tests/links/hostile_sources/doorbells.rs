//! Hostile use of doorbells: no use of the descriptors that both processes have blocks the peer.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use farjump::WaitPolicy;
use farjump::core::transport::Transport;
use farjump_fixtures::altered::Altered;
use farjump_fixtures::by_hand::{send_with, slow_to_close};
use farjump_fixtures::raw_source::{RawSource, call};
use farjump_fixtures::raw_target::RawTarget;
use farjump_transports::shm::Shm;
use rustix::fs::{OFlags, fcntl_setfl};
use rustix::net::{SendFlags, Shutdown, send, shutdown};

use super::Fixture;
use crate::support::{Place, Seen, library, timed_out};

/// Copies of all descriptors that pass: region and doorbell of both processes, its own first.
#[derive(Clone, Default)]
struct Kept(Arc<Mutex<Vec<OwnedFd>>>);

impl Kept {
    /// `shm` that keeps these copies.
    fn transport(&self) -> Box<dyn Transport> {
        let kept = self.clone();
        let keeping = Altered::new(Shm::new()).connecting(move |endpoint, peer, deadline_ms| {
            let own = endpoint.address().try_to_owned().unwrap().descriptors;
            let peers = peer.descriptors.iter().map(|descriptor| descriptor.try_clone().unwrap());
            kept.0.lock().unwrap().extend(own.into_iter().chain(peers));
            endpoint.connect(peer, deadline_ms)
        });
        keeping.boxed()
    }

    /// Makes every one of them blocking: the peer shares their open file descriptions.
    fn make_blocking(&self) {
        for descriptor in &*self.0.lock().unwrap() {
            fcntl_setfl(descriptor, OFlags::empty()).unwrap();
        }
    }

    /// The socket that signals this process's own doorbell, and that of the peer's.
    fn doorbells(&self) -> [OwnedFd; 2] {
        let kept = self.0.lock().unwrap();
        assert_eq!(kept.len(), 4, "not all descriptors have passed");
        [1, 3].map(|number| kept[number].try_clone().unwrap())
    }

    /// Signals both doorbells until they take no more.
    fn fill(&self) {
        for doorbell in self.doorbells() {
            for _ in 0..1 << 16 {
                match send(&doorbell, &[], SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
                    Ok(_) => {}
                    Err(rustix::io::Errno::AGAIN) => break,
                    // Descriptors that are no sockets are filled by writing to them.
                    Err(_) => drop(rustix::io::write(&doorbell, &(u64::MAX - 1).to_ne_bytes())),
                }
            }
        }
    }

    /// The peer's doorbell, for tests that signal it by hand.
    fn button(&self) -> OwnedFd {
        let [_, theirs] = self.doorbells();
        theirs
    }
}

/// The value for "asleep" in a credit line (`core/src/mailbox/sleep.rs`), different for each number of sleeps.
fn asleep(sleeps: u64) -> u64 {
    2 * sleeps + 1
}

/// A source of the fixture's target that has called honest code, at index 0.
fn hostile(fixture: &Fixture) -> (RawSource, Kept) {
    let kept = Kept::default();
    (fixture.hostile_by(kept.transport()), kept)
}

#[test]
fn a_source_with_blocked_doorbells_hangs_no_target() {
    let mut fixture = Fixture::new();
    let (mut hostile, kept) = hostile(&fixture);
    kept.make_blocking();
    for sleeps in 0..50 {
        kept.fill();
        // The target has to wake a receiver that claims to sleep, though the doorbell takes no signals.
        hostile.write_credit_line(0, asleep(sleeps));
        hostile.send_plan(&call(), b"knock");
        assert_eq!(hostile.reply(), b"knock");
        // The target falls asleep itself, which silences its own doorbell.
        std::thread::sleep(Duration::from_millis(5));
        fixture.serves_on();
    }
    // A target whose thread is blocked does not end.
    assert_eq!(fixture.end().refusals(), 0);
}

#[test]
fn a_source_that_shuts_or_closes_its_doorbells_ends_nobodys_link() {
    let mut fixture = Fixture::new();
    for how in [Shutdown::Read, Shutdown::Write, Shutdown::Both] {
        let (mut hostile, kept) = hostile(&fixture);
        shutdown(kept.button(), how).unwrap();
        for sleeps in 0..5 {
            hostile.write_credit_line(0, asleep(sleeps));
            fixture.serves_on();
        }
    }
    assert_eq!(fixture.end().refusals(), 0);
}

#[test]
fn descriptors_sent_over_a_doorbell_cut_their_source_and_hang_no_target() {
    let mut fixture = Fixture::new();
    let (hostile, kept) = hostile(&fixture);
    let (slow, receiver) = slow_to_close(Duration::from_secs(3600)).unwrap();
    send_with(kept.button(), &[], &[slow.as_fd()], SendFlags::empty()).unwrap();
    drop(slow);
    fixture.cuts(hostile, "file descriptors with a ring", "rings with descriptors");
    fixture.serves_on();
    fixture.end();
    drop(receiver);
}

#[test]
fn a_target_with_blocked_doorbells_hangs_no_source_beyond_its_deadline() {
    let place = Place::new();
    let kept = Kept::default();
    let (ready, note_ready) = Seen::new();
    let (over, kept_there) = (std::sync::mpsc::channel::<()>(), kept.clone());
    let target = RawTarget::start_by(&place.address(), kept.transport(), move |mut target| {
        kept_there.make_blocking();
        kept_there.fill();
        // The target announces sleep and never wakes, so that each frame of the source's signals its doorbell.
        target.channel.arm().unwrap();
        note_ready(());
        let _ = over.1.recv();
    });
    let link = place.link().wait_policy(WaitPolicy::sleep_only()).connect().unwrap();
    while ready.all().is_empty() {
        std::thread::yield_now();
    }
    let echo = library("echo");
    for _ in 0..5 {
        link.send(&echo, b"ring").unwrap();
        let begun = Instant::now();
        timed_out(link.flush(Duration::from_millis(200)));
        assert!(begun.elapsed() < Duration::from_secs(60), "{:?}", begun.elapsed());
    }
    drop(over.0);
    target.join().unwrap();
}
