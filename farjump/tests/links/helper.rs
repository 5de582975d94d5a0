//! Helper processes that play a target or a source.

#![allow(dead_code, unused_imports, reason = "each test binary uses its part")]

use std::process::Command;
use std::thread;

use farjump::{Data, Key, Link, LinkBuilder, Mode, Target, TargetBuilder, WaitPolicy};
use farjump_fixtures::helper_process::commands;
pub(crate) use farjump_fixtures::helper_process::{HelperProcess, role, say, test_in_role};
pub(crate) use farjump_fixtures::this_test;

use crate::support::{FOREVER, PATIENCE, library, words};

/// The test that helper processes run.
pub(crate) const ENTRY: &str = "helper::a_process_plays_the_role_that_it_was_started_for";
/// The key of processes on TCP.
const KEY: [u8; Key::LEN] = [7; Key::LEN];

/// Returns whether this process was started for a path over UCX's TCP, which its settings have to allow.
pub(crate) fn has_ucx_tcp() -> bool {
    std::env::var("UCX_TLS").is_ok_and(|transports| transports.contains("tcp"))
}

/// A target to listen at `address`, over `transport`.
pub(crate) fn listen<'a>(address: &str, transport: &str) -> TargetBuilder<'a> {
    let target = Target::listen(address).key(Key::from_bytes(KEY)).transport(transport);
    // On a busy machine a source that loads UCX can take more than two seconds.
    target.ucx_tcp(has_ucx_tcp()).handshake_timeout(PATIENCE)
}

/// A link to be made to it.
pub(crate) fn link_to(address: &str, transport: &str) -> LinkBuilder {
    Link::builder(address)
        .key(Key::from_bytes(KEY))
        .transport(transport)
        .ucx_tcp(has_ucx_tcp())
        .connect_timeout(PATIENCE)
        .send_timeout(PATIENCE)
}

/// Starts a target over shared memory, with this package's manifest as its functions' data.
pub(crate) fn start_target(address: &str) -> HelperProcess {
    start_target_over(address, "shm").0
}

/// Starts a target over `transport`, and returns its address, too.
pub(crate) fn start_target_over(address: &str, transport: &str) -> (HelperProcess, String) {
    let data = concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml");
    start_target_in(address, transport, data, |_| {})
}

/// Starts a target with other data, in an environment that `change` prepares.
pub(crate) fn start_target_in(
    address: &str,
    transport: &str,
    data: &str,
    change: impl FnOnce(&mut Command),
) -> (HelperProcess, String) {
    let mut command = test_in_role(ENTRY, &["target", address, transport, data]);
    change(&mut command);
    let target = HelperProcess::start(command);
    let address = target.hear_after("ready ");
    (target, address)
}

/// Starts a target at `address` that prints its statistics when its parent ends it, see [`statistics`].
pub(crate) fn start_counting_target(address: &str) -> HelperProcess {
    let target = HelperProcess::of_test(ENTRY, &["counting-target", address]);
    assert_eq!(target.hear(), "ready");
    target
}

/// Ends a counting target, and returns its statistics.
pub(crate) fn statistics(mut target: HelperProcess) -> String {
    target.order("stop");
    let statistics = target.hear();
    target.end();
    statistics
}

/// Starts a source that is connected to `address` over `transport`.
pub(crate) fn start_source(address: &str, transport: &str) -> HelperProcess {
    let source = HelperProcess::of_test(ENTRY, &["source", address, transport]);
    assert_eq!(source.hear(), "connected");
    source
}

/// The entry of helper processes; without a role it does nothing.
#[test]
fn a_process_plays_the_role_that_it_was_started_for() {
    let role = role();
    let args: Vec<&str> = role.iter().map(String::as_str).collect();
    match args[..] {
        [] => {}
        ["target", address, transport, data] => play_target(address, transport, data),
        ["counting-target", address] => play_counting_target(address),
        ["forwarding-target", address, transport, next] => play_forwarding_target(address, transport, next),
        ["source", address, transport] => play_source(address, transport),
        _ => panic!("no such role: {args:?}"),
    }
}

fn play_target(address: &str, transport: &str, data: &str) {
    let mut data = Data::open(data).unwrap();
    // SAFETY: it is the system's C library, which this program has loaded.
    let mut target =
        unsafe { listen(address, transport).args(&mut data).export_library("libc.so.6") }.build().unwrap();
    let stopper = target.stopper();
    thread::spawn(move || {
        for order in commands() {
            match order.split_once(' ') {
                // Only an empty folder remains of the file system.
                Some(("shut-in", folder)) => {
                    std::env::set_current_dir(folder).unwrap();
                    rustix::process::chroot(".").unwrap();
                }
                _ => panic!("no such order: {order}"),
            }
            say("done");
        }
        stopper.stop();
    });
    say(&format!("ready {}", target.address()));
    target.run().unwrap();
}

/// A target with the destination `next` at that address, until its parent ends it.
fn play_forwarding_target(address: &str, transport: &str, next: &str) {
    let target = Target::listen(address).transport(transport).destination("next", next);
    serve_until_ended(target.handshake_timeout(PATIENCE).build().unwrap());
}

/// Reports that `target` is ready, and runs it until the parent of this process ends it.
pub(crate) fn serve_until_ended(mut target: Target<'_>) {
    let stopper = target.stopper();
    thread::spawn(move || {
        commands().for_each(drop);
        stopper.stop();
    });
    say("ready");
    target.run().unwrap();
}

fn play_counting_target(address: &str) {
    let mut target = Target::listen(address).mailbox_size(1 << 16).modes(Mode::ALL).build().unwrap();
    let stopper = target.stopper();
    let stopped = thread::spawn(move || {
        // An end without a command means that the parent is gone.
        let ordered = commands().any(|order| order == "stop");
        stopper.stop();
        ordered
    });
    say("ready");
    target.run().unwrap();
    if stopped.join().unwrap() {
        let stats = target.stats();
        let (calls, images, links) = (stats.calls, stats.images_linked, stats.links);
        say(&format!("{calls} calls, {} refusals, {images} images, {links} links", stats.refusals()));
    }
}

/// Plays a source that numbers its one-way calls, and takes no replies.
fn play_source(address: &str, transport: &str) {
    let (sequence, echo) = (library("sequence"), library("echo"));
    let link = link_to(address, transport).reply_mailbox_size(4096).connect().unwrap();
    say("connected");
    let mut sent = 0_u64;
    let mut send = |len: usize| {
        let mut payload = words(&[sent]);
        payload.resize(len.max(8), 1);
        link.send(&sequence, &payload).unwrap();
        sent += 1;
    };
    for order in commands() {
        match order.split_once(' ') {
            Some(("send", count)) => (0..count.parse().unwrap()).for_each(|_| send(8)),
            // A single one of this length.
            Some(("post", len)) => send(len.parse().unwrap()),
            // Until it is killed.
            Some(("stream", len)) => loop {
                send(len.parse().unwrap());
            },
            // The source takes none of these replies.
            Some(("call", count)) => {
                for _ in 0..count.parse().unwrap() {
                    std::mem::forget(link.inject(&echo, &[7; 1000]).unwrap());
                }
            }
            None if order == "flush" => link.flush(PATIENCE).unwrap(),
            None if order == "wait" => {
                assert_eq!(*link.inject(&echo, b"at last").unwrap().wait(FOREVER).unwrap(), *b"at last");
            }
            _ => panic!("no such order: {order}"),
        }
        say("done");
    }
}
