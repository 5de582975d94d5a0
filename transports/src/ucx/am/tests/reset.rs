//! Peers that end while frames to them are under way over TCP.

use std::io;

use farjump_core::transport::{Address, UnconnectedEndpoint};
use farjump_fixtures::helper_process::{HelperProcess, say, test_in_role};
use rustix::process::{Signal, getpid, kill_process};

use super::*;

/// The roles of the peer, and of the process that sends to it.
const PEER: &str = "peer";
const SENDER: &str = "sender";
/// Lengths of frames that UCX by default sends without a copy: at once, and when the receiver fetches them.
const LENGTHS: [usize; 2] = [20_000, 1 << 20];
const LONGEST: usize = LENGTHS[1];

fn to_hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn from_hex(text: &str) -> Vec<u8> {
    let digits = |at: usize| u8::from_str_radix(&text[at..at + 2], 16).unwrap();
    (0..text.len()).step_by(2).map(digits).collect()
}

fn connect(exchange: impl FnOnce(String) -> String) -> AmMessages {
    let own = UnconnectedAm::open(&OpenRequest::new(64 << 20, LONGEST), true).unwrap();
    let bytes = from_hex(exchange(to_hex(&own.address().bytes)).trim());
    own.join(Address { bytes, descriptors: Vec::new(), stream: None }).unwrap()
}

fn line() -> String {
    io::stdin().lines().next().unwrap().unwrap()
}

/// Replies to one frame and reads no further. When the parent requests it, sends another frame and is killed: the
/// system resets its connections, because they have unread bytes.
fn be_a_peer() {
    let mut post = connect(|own| {
        say(&own);
        line()
    });
    while post.poll().unwrap().is_none() {}
    post.release();
    send(&mut post, 64, 2).unwrap();
    say("done");
    line();
    send(&mut post, 64, 3).unwrap();
    kill_process(getpid(), Signal::KILL).unwrap();
}

/// Sends half a frame before the peer ends. Then reads the peer's last frame, and the end after it.
fn send_to_a_peer_that_ends(test: &str, len: usize) {
    let mut peer = HelperProcess::start(test_in_role(test, &[PEER]));
    let mut post = connect(|own| {
        peer.order(&own);
        peer.hear()
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
    match role().first().map(String::as_str) {
        Some(PEER) => be_a_peer(),
        Some(_) => {
            LENGTHS.iter().for_each(|len| send_to_a_peer_that_ends(test, *len));
            exit(DONE);
        }
        None => {}
    }
    if let Err(why) = Am::with_tcp().usable() {
        return println!("skipped: {why}");
    }
    let mut sender = test_in_role(test, &[SENDER]);
    let small = [("UCX_TLS", "tcp,self"), ("UCX_TCP_SNDBUF", "16k"), ("UCX_TCP_RCVBUF", "16k")];
    assert_eq!(sender.envs(small).status().unwrap().code(), Some(DONE));
}
