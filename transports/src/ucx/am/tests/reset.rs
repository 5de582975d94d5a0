//! Peers that end while frames to them are under way over TCP.

use farjump_core::transport::{Address, UnconnectedEndpoint};
use farjump_fixtures::helper_process::{HelperProcess, command_value, commands, say, say_value};
use rustix::process::{Signal, getpid, kill_process};

use super::*;

/// The role of the peer.
const PEER: &str = "peer";
/// Lengths of frames that UCX by default sends without a copy: at once, and when the receiver fetches them.
const LENGTHS: [usize; 2] = [20_000, 1 << 20];
const LONGEST: usize = LENGTHS[1];

fn connect(exchange: impl FnOnce(&[u8]) -> Vec<u8>) -> AmMessages {
    let own = UnconnectedAm::open(&OpenRequest::new(64 << 20, LONGEST), true).unwrap();
    let bytes = exchange(&own.address().bytes);
    own.join(Address { bytes, descriptors: Vec::new(), stream: None }).unwrap()
}

/// Replies to one frame and reads no further. When the parent requests it, sends another frame and is killed: the
/// system resets its connections, because they have unread bytes.
fn be_a_peer() {
    let mut post = connect(|own| {
        say_value(own);
        command_value()
    });
    while post.poll().unwrap().is_none() {}
    post.release();
    send(&mut post, 64, 2).unwrap();
    // UCX may still be connecting, and nothing else makes it work.
    while !post.sending.is_empty() {
        post.progress().unwrap();
    }
    say("done");
    commands().next();
    send(&mut post, 64, 3).unwrap();
    kill_process(getpid(), Signal::KILL).unwrap();
}

/// Sends half a frame before the peer ends. Then reads the peer's last frame, and the end after it.
fn send_to_a_peer_that_ends(test: &str, len: usize) {
    let mut peer = HelperProcess::of_test(test, &[PEER]);
    let mut post = connect(|own| {
        peer.order_value(own);
        peer.hear_value()
    });
    assert_eq!(post.eager, Some(usize::MAX), "long frames would be fetched");
    send(&mut post, 64, 1).unwrap();
    while post.poll().unwrap().is_none() {}
    post.release();
    assert_eq!(peer.hear(), "done");
    // More than fits all buffers under way.
    let sent = (0..1000).find(|_| {
        send(&mut post, len, 4).unwrap();
        !post.sending.is_empty()
    });
    assert!(sent.is_some(), "UCX has sent all");
    peer.order("end");
    peer.wait();
    let error = (0..LOOKS).find_map(|_| post.poll().err());
    assert_eq!(error.expect("it does not notice").cause(), &Cause::PeerGone);
}

#[test]
fn the_sender_gets_an_error_if_a_tcp_peer_dies_mid_frame() {
    let test = this_test!();
    if role().first().is_some_and(|role| role == PEER) {
        return be_a_peer();
    }
    if role().is_empty()
        && let Err(why) = Am::with_tcp().usable()
    {
        return println!("skipped: {why}");
    }
    // The system charges a page at least for each packet: in less than a few of them none travels.
    let buffer = (4 * rustix::param::page_size()).to_string();
    let small = [("UCX_TLS", "tcp,self"), ("UCX_TCP_SNDBUF", &buffer), ("UCX_TCP_RCVBUF", &buffer)];
    let with_small_buffers = |command: &mut Command, _: &str| {
        command.envs(small);
    };
    if in_roles(test, &["sender"], with_small_buffers).is_some() {
        LENGTHS.iter().for_each(|len| send_to_a_peer_that_ends(test, *len));
    }
}
