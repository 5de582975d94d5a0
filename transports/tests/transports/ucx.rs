//! Killed peers over UCX, in separate processes with the transports of UCX under test.

use std::env;
use std::path::Path;
use std::process::{Child, Command, Stdio, exit};

use farjump_control::{Arrival, Handshake, HandshakeError, Listener, PeerAddress, connect_target};
use farjump_core::transport::{Cause, Endpoint, Messages, Transport};
use farjump_transports::ucx::Am;

use farjump_fixtures::control::{Place, accept, drive, far, next, source_options, target_options};
use farjump_fixtures::helper_process::{DONE, ROLE, path_of_helper};

/// The variable whose presence makes a process the target.
const TARGET: &str = "TRANSPORTS_TEST_TARGET";
/// Values of UCX's setting, one after the other.
const TRANSPORTS: [&str; 3] = ["posix,self", "sysv,self", "tcp,self"];
/// Frames that a source sends before it is killed in traffic.
const TAKEN: u32 = 1000;
/// Number of sends to a peer that is gone.
const TRIES: u32 = 20_000;

fn am() -> Vec<Box<dyn Transport>> {
    let has_tcp = env::var("UCX_TLS").is_ok_and(|transports| transports.contains("tcp"));
    vec![Box::new(if has_tcp { Am::with_tcp() } else { Am::new() })]
}

fn arrive(listener: &Listener) -> Handshake {
    drive(&mut Arrival::new(accept(listener).unwrap(), target_options()), &mut am()).unwrap()
}

fn two_sided(endpoint: Endpoint) -> Box<dyn Messages> {
    match endpoint {
        Endpoint::TwoSided(messages) => messages,
        Endpoint::OneSided { .. } => panic!("ucx-am is two-sided"),
    }
}

fn again(name: &str) -> Command {
    let mut command = farjump_fixtures::helper_process::again();
    command.args(["--exact", name, "--nocapture", "--test-threads=1"]).stdout(Stdio::null());
    command
}

/// Runs the test `name` again, as a target over each of UCX's transports; prints a note without UCX.
fn over_each(name: &str) {
    if let Err(why) = Am::new().usable() {
        return println!("skipped: {why}");
    }
    for transports in TRANSPORTS {
        let status = again(name).env(TARGET, "yes").env("UCX_TLS", transports).status().unwrap();
        assert_eq!(status.code(), Some(DONE), "over {transports}: {status}");
    }
}

/// A source that does not outlive the target.
struct Source(Child);

impl Source {
    fn start(name: &str, path: &Path) -> Source {
        Source(again(name).env_remove(TARGET).env(ROLE, path).spawn().unwrap())
    }

    fn kill(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

impl Drop for Source {
    fn drop(&mut self) {
        // Both calls fail if the source has ended, as intended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Sends a line, or returns the reason why it could not.
fn send(messages: &mut dyn Messages) -> Result<(), Cause> {
    let cause = |error: farjump_core::transport::TransportError| error.cause().clone();
    let space = messages.reserve(64).map_err(cause)?;
    // SAFETY: `reserve` lends 64 bytes.
    unsafe { space.write_bytes(1, 64) };
    messages.commit(64, 0).map_err(cause)
}

/// Uses an endpoint with a dead peer in every way: errors name the peer, nothing waits, and the endpoint can be
/// dropped.
fn use_up(mut messages: Box<dyn Messages>) {
    for _ in 0..TRIES {
        let outcome = send(&mut *messages).and_then(|()| {
            messages
                .progress()
                .and_then(|()| messages.poll().map(drop))
                .map_err(|error| error.cause().clone())
        });
        messages.release();
        match outcome {
            Ok(()) | Err(Cause::Full) => {}
            Err(cause) => {
                assert_eq!(cause, Cause::PeerGone);
                break;
            }
        }
    }
}

/// Connects a new source, over the remaining transports.
fn connect_new_source(name: &str, place: &Place, listener: &Listener) {
    let source = Source::start(name, &place.path());
    let Handshake { endpoint, control, .. } = arrive(listener);
    let mut messages = two_sided(endpoint);
    while messages.poll().unwrap().is_none() {
        messages.progress().unwrap();
    }
    drop((source, control));
}

fn source(path: std::path::PathBuf) -> ! {
    let address = PeerAddress::unix(path).unwrap();
    let mut handshake = connect_target(&address, &mut am(), &source_options(), far()).unwrap();
    let mut messages = two_sided(handshake.endpoint);
    for _ in 0..TAKEN + 1 {
        while let Err(cause) = send(&mut *messages) {
            assert_eq!(cause, Cause::Full);
            messages.progress().unwrap();
        }
    }
    // Runs until it is killed. If the target ends first, the control connection shows that.
    while !matches!(handshake.control.recv(), Err(HandshakeError::PeerGone { .. })) {
        messages.progress().unwrap();
    }
    exit(DONE)
}

/// Runs the test `name`: kills a source once `take` has taken some of its messages. The source is gone at once, the
/// rest of the link can be used and dropped, and another source connects.
fn killed(name: &str, take: impl Fn(&mut dyn Messages)) {
    if let Some((path, _watchdog)) = path_of_helper() {
        source(path);
    }
    if env::var_os(TARGET).is_none() {
        return over_each(name);
    }
    let place = Place::new();
    let listener = place.listener();
    let mut child = Source::start(name, &place.path());
    let mut handshake = arrive(&listener);
    let mut messages = two_sided(handshake.endpoint);
    take(&mut *messages);
    child.kill();
    assert!(matches!(next(&mut handshake.control), Err(HandshakeError::PeerGone { .. })));
    use_up(messages);
    connect_new_source(name, &place, &listener);
    exit(DONE);
}

/// Takes the next message.
fn take_one(messages: &mut dyn Messages) {
    while messages.poll().unwrap().is_none() {
        messages.progress().unwrap();
    }
    messages.release();
}

#[test]
fn a_source_killed_idle_is_gone_at_once_and_another_connects() {
    const NAME: &str = "ucx::a_source_killed_idle_is_gone_at_once_and_another_connects";
    killed(NAME, |messages| (0..=TAKEN).for_each(|_| take_one(messages)));
}

#[test]
fn a_source_killed_in_traffic_is_gone_at_once_and_another_connects() {
    const NAME: &str = "ucx::a_source_killed_in_traffic_is_gone_at_once_and_another_connects";
    killed(NAME, |messages| {
        for _ in 0..TAKEN / 2 {
            take_one(messages);
            // The source does not receive these lines, so its window fills up.
            match send(messages) {
                Ok(()) | Err(Cause::Full) => {}
                Err(cause) => panic!("{cause}"),
            }
        }
    });
}
