//! The end of a link: by dropped endpoints, gone peers, refused descriptors and in forked children.

use farjump_fixtures::by_hand::send_with;

use super::*;

/// Length of a message, in bytes.
const LONG: usize = 16 << 20;

#[test]
fn committed_messages_arrive_though_their_sender_is_dropped_with_unread_bytes() {
    for seal in SEALS {
        for sockets in [tcp(), unix()] {
            let (mut left, mut right) = pair_on(sockets, Terms { seal, window: 64 << 20, ..TERMS });
            // The dropped endpoint does not read this frame.
            send(&mut right, 64, 9).unwrap();
            for fill in 0..10 {
                send(&mut left, 64, fill).unwrap();
            }
            // More than the sockets take while nothing is read, and little enough to arrive within the patience for a
            // dropped endpoint on an emulated processor.
            send(&mut left, LONG, 10).unwrap();
            assert!(left.wants_write());
            drop(left);
            for fill in 0..10 {
                while right.poll().unwrap().is_none() {}
                assert!(take(&mut right).unwrap().unwrap().into_iter().eq(bytes_of(64, fill)));
            }
            let bytes = loop {
                if let Some(bytes) = take(&mut right).unwrap() {
                    break bytes;
                }
            };
            assert!(bytes.into_iter().eq(bytes_of(LONG, 10)));
            assert_eq!(*end_of(&mut right).cause(), Cause::PeerGone);
        }
    }
}

#[test]
fn a_gone_peer_shows_after_its_messages_and_sends_are_harmless() {
    for sockets in [tcp(), unix()] {
        let (mut left, mut right) = pair_on(sockets, TERMS);
        (0..10).for_each(|fill| send(&mut left, 64, fill).unwrap());
        drop(left);
        // The first resets the connection; the next ones find it reset.
        for fill in 0..10 {
            match send(&mut right, 64, fill) {
                Ok(()) => {}
                Err(error) => assert!(error.is_full(), "{error}"),
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        for fill in 0..10 {
            assert!(take(&mut right).unwrap().unwrap().into_iter().eq(bytes_of(64, fill)), "{fill}");
        }
        assert_eq!(*end_of(&mut right).cause(), Cause::PeerGone);
        assert_eq!(*right.reserve(64).unwrap_err().cause(), Cause::PeerGone);
    }
}

#[test]
fn descriptors_that_a_peer_passes_end_the_link_and_are_closed_elsewhere() {
    let [ours, theirs] = unix();
    let mut own = endpoint(ours, StreamRole::Source, TERMS);
    let (reader, writer) = rustix::pipe::pipe().unwrap();
    send_with(&theirs, &[0], &[writer.as_fd()], rustix::net::SendFlags::empty()).unwrap();
    drop(writer);
    let error = own.poll().unwrap_err().to_string();
    assert!(error.contains("passed 1 descriptors"), "{error}");
    // The pipe ends once no copy of the passed descriptor is left.
    assert_eq!(rustix::io::read(&reader, &mut [0]).unwrap(), 0);
}

#[test]
fn a_forked_child_sends_nothing_by_its_parents_keys_and_ends_nothing() {
    let (mut left, mut right) = pair(TERMS);
    send(&mut left, 64, 1).unwrap();
    // SAFETY: the child only tries to send, closes and ends, which needs no other thread of its parent.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let refused = left.reserve(64).is_ok() && left.commit(64, 0).is_err();
        drop(left);
        // SAFETY: ends the child without the exit handlers of the test program.
        unsafe { libc::_exit(if refused { 0 } else { 1 }) };
    }
    let mut status = 0;
    // SAFETY: `status` is valid for writes.
    assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
    assert_eq!(status, 0, "the child could send");
    send(&mut left, 64, 2).unwrap();
    for fill in 1..3 {
        assert!(next(&mut right, &mut left).unwrap().into_iter().eq(bytes_of(64, fill)));
    }
}
