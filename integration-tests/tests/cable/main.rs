//! Links over UCX and over `tcp` between two network namespaces. The cable is pulled out while calls are on their
//! way.
//!
//! Target and source are processes of their own, one in each namespace (`roles.rs`). The target is stopped
//! while the source injects, so that no reply comes before the cable is out.

mod roles;

use farjump_fixtures::helper_process::{HelperProcess, as_test};
use farjump_fixtures::namespaces::{DEVICE, Namespace, Namespaces};
use farjump_fixtures::this_test;
use rustix::process::Signal;
use tempfile::tempdir;

/// The only UCX transport that uses the cable.
const UCX_AM: &str = "ucx-am";
/// farjump's own transport, which takes the path of the control connection.
const TCP: &str = "tcp";
/// The namespaces of source and target.
const SOURCE: Namespace = Namespace::Left;
const TARGET: Namespace = Namespace::Right;

/// The kind of the control connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Reached {
    /// Over the cable, with a key.
    Tcp,
    /// In the file system, which both share despite their separate networks.
    Unix,
}

/// Pulls the cable at `side` between a connected source and target over `transport`, and plugs it in again.
/// `test` is the name of the calling test.
fn pull(test: &str, transport: &str, reached: Reached, side: Namespace) {
    if roles::plays(transport) {
        return;
    }
    let backend = farjump::transports::available().into_iter().find(|backend| backend.name == transport);
    let usable = backend.map_or_else(|| Err("it is not in this build".to_owned()), |found| found.usable);
    if let Err(why) = usable {
        return println!("skipped: {transport}: {why}");
    }
    let namespaces = match Namespaces::new() {
        Ok(namespaces) => namespaces,
        Err(why) => return println!("skipped: {transport} between network namespaces: {why}"),
    };
    let folder = tempdir().unwrap();
    let listen = match reached {
        Reached::Tcp => format!("tcp:{}:0", TARGET.address()),
        Reached::Unix => format!("unix:{}", folder.path().join("t.sock").display()),
    };
    let start = |side, role: &[&str]| {
        let mut command = as_test(namespaces.command(side, std::env::current_exe().unwrap()), test, role);
        // UCX would use shared memory between the namespaces, and takes all of a machine's networks for one.
        command.env("UCX_TLS", "tcp,self").env("UCX_NET_DEVICES", DEVICE);
        HelperProcess::start(command)
    };
    let target = start(TARGET, &["target", &listen]);
    let address = target.hear_after("ready ");
    let mut source = start(SOURCE, &["source", &address]);
    source.hear_after("connected");
    target.signal(Signal::STOP);
    source.order("inject");
    source.hear_after("under way");
    namespaces.pull(side).unwrap();
    target.signal(Signal::CONT);
    source.order("pulled");
    source.hear_after("noticed");
    if reached == Reached::Tcp {
        let gone = target.hear_after("gone ");
        assert!(gone.contains(SOURCE.address()) && gone.contains("did not answer for 1 s"), "{gone}");
    }
    namespaces.plug().unwrap();
    source.order("plugged");
    source.hear_after("done");
    source.end();
    target.end();
}

#[test]
fn calls_end_when_the_targets_cable_is_pulled_and_reconnecting_works() {
    pull(this_test!(), UCX_AM, Reached::Tcp, TARGET);
}

#[test]
fn calls_end_when_the_sources_cable_is_pulled_and_reconnecting_works() {
    pull(this_test!(), UCX_AM, Reached::Tcp, SOURCE);
}

#[test]
fn calls_end_by_deadline_when_only_frames_use_the_pulled_cable() {
    pull(this_test!(), UCX_AM, Reached::Unix, TARGET);
}

#[test]
fn stream_calls_end_when_the_targets_cable_is_pulled_and_reconnecting_works() {
    pull(this_test!(), TCP, Reached::Tcp, TARGET);
}

#[test]
fn stream_calls_end_when_the_sources_cable_is_pulled_and_reconnecting_works() {
    pull(this_test!(), TCP, Reached::Tcp, SOURCE);
}
