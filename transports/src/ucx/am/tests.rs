//! Two endpoints in one process, honest and dishonest.

mod dropped;
mod ports;
mod reset;

use std::ffi::c_uint;
use std::fs;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;

use farjump_core::frame::{LINE, TRANSPORT_WORD_LEN};
use farjump_fixtures::helper_process::{in_roles, role};
use farjump_fixtures::this_test;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::credit::MAX_FRAMES;
use super::inbox::FRAME;
use super::*;

/// Longest message in the tests, in bytes.
const LONG: usize = (64 << 20) + LINE;
/// Number of polls after which a message counts as lost.
const LOOKS: u32 = 50_000_000;

/// Runs `body` in one process for each of these roles, whose UCX has only TCP.
pub(super) fn in_roles_over_tcp(test: &str, roles: &[&str], body: impl FnOnce(&str)) {
    if role().is_empty()
        && let Err(why) = Am::with_tcp().usable()
    {
        return println!("skipped: {why}");
    }
    let over_tcp = |command: &mut Command, _: &str| {
        command.env("UCX_TLS", "tcp,self");
    };
    if let Some(own) = in_roles(test, roles, over_tcp) {
        body(&own);
    }
}

/// Two connected endpoints that accept frames of up to `max_frame` bytes and keep `window`; without UCX, prints a note
/// and returns `None`.
fn pair(window: usize, max_frame: usize) -> Option<(AmMessages, AmMessages)> {
    pair_of(Am::new(), window, max_frame, || {})
}

/// Like [`pair`], with endpoints of `am`; `meanwhile` runs on another thread while they are made.
fn pair_of(
    am: Am,
    window: usize,
    max_frame: usize,
    meanwhile: impl FnMut() + Send,
) -> Option<(AmMessages, AmMessages)> {
    if let Err(why) = am.usable() {
        println!("skipped: {why}");
        return None;
    }
    let open = || UnconnectedAm::open(&OpenRequest::new(window, max_frame), am.tcp).unwrap();
    let (left, right) = beside(meanwhile, || (open(), open()));
    let (to_left, to_right) =
        (left.address().try_to_owned().unwrap(), right.address().try_to_owned().unwrap());
    Some((left.join(to_right).unwrap(), right.join(to_left).unwrap()))
}

/// Returns the result of `body`, while `meanwhile` runs repeatedly on another thread.
fn beside<T>(mut meanwhile: impl FnMut() + Send, body: impl FnOnce() -> T) -> T {
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Relaxed) {
                meanwhile();
            }
        });
        let made = body();
        over.store(true, Relaxed);
        made
    })
}

fn send(post: &mut AmMessages, len: usize, fill: u8) -> Result<(), TransportError> {
    let space = post.reserve(len)?;
    // SAFETY: `reserve` lends `len` bytes.
    unsafe { space.write_bytes(fill, len) };
    post.commit(len, 7)
}

/// Drives both until `post` has a message or its peer has gone.
fn next(post: &mut AmMessages, other: &mut AmMessages) -> Result<Vec<u8>, TransportError> {
    for _ in 0..LOOKS {
        other.progress()?;
        if let Some(message) = post.poll()? {
            let (start, len) = (message.start(), message.len());
            assert!(start.addr().get().is_multiple_of(LINE));
            let header = message.header().cast::<[u8; DELIVERED_HEADER_LEN]>();
            // SAFETY: `poll` lends the message and its header until `release`.
            let (body, header) = unsafe {
                (std::slice::from_raw_parts(start.as_ptr(), len - DELIVERED_HEADER_LEN), header.read())
            };
            let mut bytes = [body, &header].concat();
            post.release();
            // The word of the transport.
            bytes[len - TRANSPORT_WORD_LEN..].fill(header[0]);
            return Ok(bytes);
        }
    }
    panic!("nothing comes");
}

/// Sends a message that no honest endpoint sends, and returns the other endpoint's error.
fn lie(window: usize, header: &[u8], word: [u8; 4], len: usize) -> Option<String> {
    let mut data = vec![0u8; len];
    data.iter_mut().rev().zip(word.into_iter().rev()).for_each(|(to, from)| *to = from);
    lie_as(FRAME, window, header, &data)
}

/// [`lie`] in the layout with the header in front.
fn lie_fronted(window: usize, header: &[u8], word: [u8; 4], len: usize) -> Option<String> {
    let mut data = vec![0u8; len];
    data.iter_mut().skip(DELIVERED_HEADER_LEN - word.len()).zip(word).for_each(|(to, from)| *to = from);
    lie_as(FRONTED, window, header, &data)
}

fn lie_as(id: c_uint, window: usize, header: &[u8], data: &[u8]) -> Option<String> {
    let (mut left, mut right) = pair(window, 4096)?;
    let protocol = if data.len() <= EAGER { Protocol::Eager } else { Protocol::Rendezvous };
    // SAFETY: header and data outlive the endpoints.
    let sent = unsafe { left.pass(id, protocol, header, data.as_ptr().cast(), data.len()) };
    assert!(!farjump_ucx_sys::UCS_PTR_IS_ERR(sent));
    let error = next(&mut right, &mut left).expect_err("it was taken");
    assert_eq!(right.poll().unwrap_err(), error.clone(), "the end does not stay at its end");
    drop((left, right));
    Some(error.to_string())
}

#[test]
fn lengths_from_a_header_to_the_longest_arrive_whole_and_in_order() {
    let Some((mut left, mut right)) = pair(2 * LONG, LONG) else { return };
    let lengths = [16, 92, 93, 8128, 8192, 8257, 64, 20_480, 65_536, 65_537, 24, 1 << 20, 64, LONG, 64];
    for (fill, len) in (1..).zip(lengths) {
        send(&mut left, len, fill).unwrap();
    }
    for (fill, len) in (1..).zip(lengths) {
        let bytes = next(&mut right, &mut left).unwrap();
        assert_eq!(bytes.len(), len);
        assert!(bytes.iter().all(|byte| *byte == fill), "{len}");
    }
}

#[test]
fn a_message_beyond_the_window_waits_and_blocks_the_next() {
    let Some((mut left, mut right)) = pair(65_536, 1 << 20) else { return };
    for round in 0..20 {
        send(&mut left, 64, round).unwrap();
        assert_eq!(send(&mut left, 1 << 20, round).unwrap_err().cause(), &Cause::Full);
        assert_eq!(next(&mut right, &mut left).unwrap(), [round; 64]);
        send_with_credit(&mut left, &mut right, 1 << 20, round);
        assert_eq!(send(&mut left, 64, round).unwrap_err().cause(), &Cause::Full);
        assert_eq!(next(&mut right, &mut left).unwrap().len(), 1 << 20);
        send_with_credit(&mut left, &mut right, 64, round);
        assert_eq!(next(&mut right, &mut left).unwrap(), [round; 64]);
        while !left.inbox().send_credit.has_credit(65_536) {
            assert!(left.full().unwrap().is_full());
            right.progress().unwrap();
            left.progress().unwrap();
        }
    }
    let beyond = left.reserve((1 << 20) + 64).unwrap_err();
    assert_eq!(beyond.cause(), &Cause::TooLarge { len: (1 << 20) + 64, max: 1 << 20 });
}

/// Sends as soon as there is credit.
fn send_with_credit(from: &mut AmMessages, to: &mut AmMessages, len: usize, fill: u8) {
    for _ in 0..LOOKS {
        match send(from, len, fill) {
            Ok(()) => return,
            Err(error) => assert!(error.is_full(), "{error}"),
        }
        to.progress().unwrap();
        from.progress().unwrap();
    }
    panic!("there is never credit");
}

#[test]
fn a_receiver_that_does_not_look_stops_the_sender_and_loses_nothing() {
    let Some((mut left, mut right)) = pair(1 << 20, 4096) else { return };
    let mut sent = 0u64;
    let full = loop {
        match send(&mut left, 64, sent as u8) {
            Ok(()) => sent += 1,
            Err(error) => break error,
        }
    };
    assert_eq!((full.cause(), sent), (&Cause::Full, MAX_FRAMES as u64));
    for number in 0..sent {
        assert_eq!(next(&mut right, &mut left).unwrap(), [number as u8; 64]);
    }
    send_with_credit(&mut left, &mut right, 64, 0);
}

#[test]
fn a_sleeper_is_not_woken_by_nothing_and_is_by_a_frame() {
    let Some((mut left, mut right)) = pair(1 << 20, 4096) else { return };
    // The first exchange sets up the paths, which causes wake-ups.
    send(&mut left, 64, 1).unwrap();
    next(&mut right, &mut left).unwrap();
    send(&mut right, 64, 2).unwrap();
    next(&mut left, &mut right).unwrap();
    let readable = |post: &AmMessages, seconds| {
        let descriptor = post.descriptor().unwrap();
        let timeout = Timespec { tv_sec: seconds, tv_nsec: 200_000_000 };
        poll(&mut [PollFd::from_borrowed_fd(descriptor, PollFlags::IN)], Some(&timeout)).unwrap() == 1
    };
    let mut quiet = 0;
    for _ in 0..100 {
        left.progress().unwrap();
        if right.arm().unwrap() && !readable(&right, 0) {
            quiet += 1;
        }
        if quiet == 3 {
            break;
        }
    }
    assert_eq!(quiet, 3, "it never sleeps");
    send(&mut left, 64, 3).unwrap();
    assert!(readable(&right, 60), "it was not woken");
    assert_eq!(next(&mut right, &mut left).unwrap(), [3; 64]);
}

#[test]
fn a_message_without_its_number_ends_the_link() {
    for (header, len) in [(&[][..], 0), (&[], 15), (&[1, 2, 3], 15), (&[], EAGER + 1)] {
        let Some(text) = lie(1 << 20, header, [0; 4], len) else { return };
        assert!(text.contains("ucx-am") && text.contains("without its number"), "{text}");
    }
}

#[test]
fn a_message_out_of_its_turn_or_empty_ends_the_link() {
    let header = word_of(0, 0);
    for (number, header, len) in
        [(MAX_FRAMES as u16, &[][..], 64), (u16::MAX, &[], 64), (0, &header, 0), (1, &header, 0)]
    {
        let Some(text) = lie(65_536, header, word_of(number, 0), len) else { return };
        assert!(text.contains("out of its turn"), "{text}");
    }
}

#[test]
fn a_message_longer_than_agreed_ends_the_link_before_it_is_fetched() {
    for len in [4160, 1 << 20] {
        let Some(text) = lie(1 << 22, &word_of(0, 0), word_of(0, 0), len) else { return };
        assert!(text.contains("overlong") && text.contains(&len.to_string()), "{text}");
    }
}

#[test]
fn credit_for_what_was_not_sent_ends_the_link() {
    let Some(text) = lie(65_536, &[], word_of(0, 1), 64) else { return };
    assert!(text.contains("were not sent"), "{text}");
}

#[test]
fn lies_in_messages_with_the_header_in_front_end_the_link() {
    let number = word_of(0, 0);
    for (header, word, len, expected) in [
        (&[][..], number, 0, "without its number"),
        (&[], number, 15, "without its number"),
        // UCX's header does not replace that of the frame.
        (&number, number, 15, "without its number"),
        // Such a frame never stays with its sender.
        (&number, number, EAGER + 1, "without its number"),
        (&[], word_of(MAX_FRAMES as u16, 0), 64, "out of its turn"),
        (&[], word_of(u16::MAX, 0), 200, "out of its turn"),
        (&[], word_of(0, 1), 64, "were not sent"),
        (&[], word_of(0, 1), 200, "were not sent"),
        (&[], number, 4096 + 49, "overlong"),
    ] {
        let Some(text) = lie_fronted(1 << 20, header, word, len) else { return };
        assert!(text.contains("ucx-am") && text.contains(expected), "{len}: {text}");
    }
}

#[test]
fn a_short_frame_with_its_header_in_a_separate_line_is_accepted() {
    for len in [LINE + 29, LINE + 76] {
        let Some((mut left, mut right)) = pair(1 << 20, 4096) else { return };
        let mut data = vec![0u8; len];
        data[LINE..].fill(7);
        // SAFETY: the data outlive the endpoints.
        let sent = unsafe { left.pass(FRONTED, Protocol::Eager, &[], data.as_ptr().cast(), data.len()) };
        assert!(!farjump_ucx_sys::UCS_PTR_IS_ERR(sent));
        let bytes = next(&mut right, &mut left).unwrap();
        assert_eq!(bytes[..len - LINE], data[LINE..], "{len}");
    }
}

#[test]
fn an_endpoint_to_a_gone_peers_address_can_be_dropped() {
    if let Err(why) = Am::new().usable() {
        return println!("skipped: {why}");
    }
    let open = || UnconnectedAm::open(&OpenRequest::new(65_536, 4096), false).unwrap();
    let gone = open();
    let address = gone.address().try_to_owned().unwrap();
    drop(gone);
    if let Ok(mut post) = open().join(address) {
        for _ in 0..1000 {
            if send(&mut post, 64, 1).and_then(|()| post.progress()).is_err() {
                break;
            }
        }
    }
}

/// Bytes of this process's memory that UCX shares with others.
fn shared_by_ucx() -> usize {
    let smaps = fs::read_to_string("/proc/self/smaps").unwrap();
    let mut is_shared = false;
    let mut bytes = 0;
    for line in smaps.lines() {
        match line.strip_prefix("Rss:") {
            Some(rss) if is_shared => {
                bytes += rss.trim().trim_end_matches(" kB").parse::<usize>().unwrap() * 1024;
            }
            None if line.contains(" rw-s ") => {
                is_shared = line.contains("/ucx_shm_posix_") || line.contains("/SYSV");
            }
            None if line.contains("-p ") => is_shared = false,
            _ => {}
        }
    }
    bytes
}

#[test]
fn an_endpoint_takes_little_of_the_memory_that_ucx_shares() {
    const ENDPOINTS: usize = 8;
    /// UCX's own sizes take 4.1 MiB. UCX touches the head of each of its buffers, which lie 8 KiB apart: with pages of
    /// that length or longer, all of their memory is taken.
    const MOST: [(usize, usize); 2] = [(4096, 3 << 19), (usize::MAX, 2 << 20)];
    if let Err(why) = Am::new().usable() {
        return println!("skipped: {why}");
    }
    // In its own process, which has no other workers.
    let plain = |command: &mut Command, _: &str| {
        for variable in ["UCX_TLS", "UCX_MM_FIFO_SIZE", "UCX_MM_RX_BUFS_GROW"] {
            command.env_remove(variable);
        }
    };
    if in_roles(this_test!(), &["alone"], plain).is_none() {
        return;
    }
    let before = shared_by_ucx();
    let mut pairs: Vec<_> = (0..ENDPOINTS / 2).filter_map(|_| pair(1 << 20, 1 << 16)).collect();
    for (left, right) in &mut pairs {
        send(left, 64, 1).unwrap();
        assert_eq!(next(right, left).unwrap(), [1; 64]);
    }
    let each = (shared_by_ucx() - before) / ENDPOINTS;
    println!("{each} bytes for each endpoint");
    // A machine without memory that UCX shares has nothing to count.
    let most = MOST.iter().find(|(page, _)| rustix::param::page_size() <= *page).unwrap().1;
    assert!(each <= most, "{each} bytes for each endpoint");
}
