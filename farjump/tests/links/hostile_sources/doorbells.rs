//! Hostile use of doorbells: no use of the descriptors that both processes have blocks the peer.

use std::io::{IoSlice, Write};
use std::mem::MaybeUninit;
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::time::{Duration, Instant};

use farjump::{Error, WaitError, WaitPolicy};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, Shutdown, sendmsg, shutdown};

use super::Scene;
use crate::hostile_sources::raw::{RawSource, call};
use crate::hostile_targets::raw::RawTarget;
use crate::kept_descriptors::{Kept, Spoilt};
use crate::support::{Place, Seen, library};

/// "Asleep" in a credit line (`core/src/mailbox/sleep.rs`): another sleep each time.
fn asleep(sleeps: u64) -> u64 {
    2 * sleeps + 1
}

/// A source of the fixture's target that has called honest code, at index 0.
fn liar(scene: &Scene) -> (RawSource, Kept) {
    let kept = Kept::default();
    let transport = Box::new(Spoilt { kept: kept.clone() });
    let mut liar = RawSource::connect_by(&scene.place.address(), transport);
    let echo = library("echo");
    assert_eq!(liar.call_new("echo", echo.images()[0].bytes(), b"honest so far"), b"honest so far");
    (liar, kept)
}

#[test]
fn a_source_that_has_its_doorbells_block_and_never_empties_them_hangs_no_target() {
    let mut scene = Scene::new();
    let (mut liar, kept) = liar(&scene);
    kept.make_blocking();
    for sleeps in 0..50 {
        kept.fill();
        // The target has to wake a receiver that claims to sleep, though nothing takes signals there.
        liar.write_return_line(0, asleep(sleeps));
        liar.send_plan(&call(), b"knock");
        assert_eq!(liar.reply(), b"knock");
        // And falls asleep itself, which silences its own doorbell.
        std::thread::sleep(Duration::from_millis(5));
        scene.serves_on();
    }
    // A target whose thread is blocked does not end.
    assert_eq!(scene.end().refusals(), 0);
}

#[test]
fn a_source_that_shuts_or_closes_its_doorbells_ends_nobodys_link() {
    let mut scene = Scene::new();
    for how in [Shutdown::Read, Shutdown::Write, Shutdown::Both] {
        let (mut liar, kept) = liar(&scene);
        shutdown(kept.button(), how).unwrap();
        for sleeps in 0..5 {
            liar.write_return_line(0, asleep(sleeps));
            scene.serves_on();
        }
    }
    assert_eq!(scene.end().refusals(), 0);
}

/// A connection whose closing waits for a peer that reads nothing.
fn slow_to_close() -> (OwnedFd, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let sender = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (receiver, _) = listener.accept().unwrap();
    sender.set_nonblocking(true).unwrap();
    while (&sender).write(&[0; 1 << 16]).is_ok() {}
    rustix::net::sockopt::set_socket_linger(&sender, Some(Duration::from_secs(3600))).unwrap();
    // Behind the other end: a process that another test starts gets copies of both, and closes them by number
    // before it runs its own program. In the other order it would wait for itself.
    let behind = rustix::io::fcntl_dupfd_cloexec(&sender, receiver.as_raw_fd() + 1).unwrap();
    (behind, receiver)
}

#[test]
fn a_source_that_rings_with_descriptors_whose_closing_blocks_is_cut_and_hangs_no_target() {
    let mut scene = Scene::new();
    let (liar, kept) = liar(&scene);
    let (slow, receiver) = slow_to_close();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut rights = SendAncillaryBuffer::new(&mut space);
    let descriptors = [slow.as_fd()];
    rights.push(SendAncillaryMessage::ScmRights(&descriptors));
    sendmsg(kept.button(), &[IoSlice::new(&[])], &mut rights, SendFlags::empty()).unwrap();
    drop(slow);
    scene.cuts(liar, "file descriptors with a ring", "rings with descriptors");
    scene.serves_on();
    scene.end();
    drop(receiver);
}

#[test]
fn a_target_that_has_its_doorbells_block_hangs_no_source_beyond_its_deadline() {
    let place = Place::new();
    let kept = Kept::default();
    let (ready, over) = (Seen::default(), std::sync::mpsc::channel::<()>());
    let (ready_to, kept_there) = (ready.clone(), kept.clone());
    let target =
        RawTarget::start_by(&place.address(), Box::new(Spoilt { kept: kept.clone() }), move |mut target| {
            kept_there.make_blocking();
            kept_there.fill();
            // It sleeps for ever, so that each frame of the source's wakes it.
            target.channel.arm().unwrap();
            ready_to.push(());
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
        let error = link.flush(Duration::from_millis(200)).unwrap_err();
        assert!(matches!(error, Error::Wait(WaitError::TimedOut { .. })), "{error}");
        assert!(begun.elapsed() < Duration::from_secs(60), "{:?}", begun.elapsed());
    }
    drop(over.0);
    target.join().unwrap();
}
