//! Peers that end, or fall silent, at every point of a handshake. A middleman between source and target passes only a
//! given part of the bytes of one of them.

use std::io::{ErrorKind, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::thread;
use std::time::Duration;

use farjump::{Error, Library, WaitError};

use crate::Done;
use crate::endpoints::says;
use crate::helper::library;
use crate::machine::Machine;
use crate::source::{FOREVER, check_replies, link};
use crate::target::Played;

/// Length of the preamble, and of a message's head (`docs/reference/protocol.md`).
const PREFIX: usize = 12;
const HEAD: usize = 8;
/// Time that a source waits for a silent target.
const SHORT: Duration = Duration::from_secs(1);

/// The process that fails.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Role {
    Source,
    Target,
}

/// The point at which it fails.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Point {
    role: Role,
    /// Number of its messages before the failure; 0 is before its preamble, 1 behind that.
    messages: usize,
    /// Whether it fails in the middle of the next one.
    inside: bool,
}

/// The kind of failure.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum How {
    /// The connection ends, as when a process dies.
    Leaves,
    /// The connection stays open, and nothing comes.
    Silent,
}

/// The number of messages of each process in a handshake: a source sends its preamble, Hello and Ready; a target its
/// preamble, Welcome, Rights and Go.
const SAID: [(Role, usize); 2] = [(Role::Source, 3), (Role::Target, 4)];

/// Every point of a handshake.
fn points() -> impl Iterator<Item = Point> {
    let of_side = |(role, said)| {
        (0..said).flat_map(move |messages| [false, true].map(|inside| Point { role, messages, inside }))
    };
    SAID.into_iter().flat_map(of_side)
}

pub(crate) fn left(backend: &str) -> Done {
    every_point(backend, How::Leaves, |point, error| {
        // A target that gets half a handshake sends the reason for its rejection; or the connection just ends.
        assert!(!matches!(error, Error::Wait(WaitError::TimedOut { .. })), "{point:?}: {error}");
        let text = error.to_string();
        let words = ["closed", "ended", "cut", "gone", "broke"];
        assert!(words.iter().any(|word| text.contains(word)), "{point:?}: {text}");
    })
}

pub(crate) fn silent(backend: &str) -> Done {
    every_point(backend, How::Silent, |point, error| {
        let text = error.to_string();
        let words = ["did not", "ran out", "deadline", "too late", "time"];
        assert!(words.iter().any(|word| text.contains(word)), "{point:?}: {text}");
    })
}

/// Ends a handshake at every point, and passes the source's error to `look`. The target serves another source all the
/// time, and at the end keeps nothing of the failed ones.
fn every_point(backend: &str, how: How, look: impl Fn(Point, &Error)) -> Done {
    let machine = Machine::breakable().ok();
    let counter = library("counter");
    let mut target = Played::start(backend);
    let faithful = link(backend, &target.address).connect().unwrap();
    check_replies(&faithful, &counter, 4);
    let before = machine.as_ref().map(|machine| machine.objects("qp"));
    for point in points() {
        let between = Between::new(&target.socket(), point, how);
        let patience = if how == How::Silent { SHORT } else { FOREVER };
        let handshake = link(backend, &between.address()).connect_timeout(patience).connect();
        let Err(error) = handshake else { panic!("{point:?}: they connected") };
        look(point, &error);
        check_replies(&faithful, &counter, 1);
    }
    after_handshake(backend, how, &target, &counter);
    check_replies(&faithful, &counter, 4);
    if let (Some(machine), Some(before)) = (machine, before) {
        machine.await_objects("qp", before);
    }
    while target.count().1 != 1 {}
    Ok(())
}

/// Does the same after the handshake: a target that ends fails all calls, and one that falls silent fails none.
fn after_handshake(backend: &str, how: How, target: &Played, counter: &Library) {
    let [_, (role, messages)] = SAID;
    let point = Point { role, messages, inside: false };
    let between = Between::new(&target.socket(), point, how);
    let link = link(backend, &between.address()).connect().unwrap();
    match how {
        // Calls that ran before the source notices the end get their replies.
        How::Leaves => loop {
            if let Err(error) = link.inject(counter, &[1]).and_then(|call| call.wait(FOREVER)) {
                assert!(matches!(error, Error::Wait(WaitError::PeerGone { .. })), "{error}");
                return says(&error, &["gone"]);
            }
        },
        // Frames do not pass through the middleman.
        How::Silent => check_replies(&link, counter, 4),
    }
}

/// A middleman with a socket of its own.
struct Between {
    folder: tempfile::TempDir,
}

impl Between {
    /// Makes a middleman through which one source reaches the target at `socket`, up to `point`.
    fn new(socket: &Path, point: Point, how: How) -> Between {
        let folder = tempfile::tempdir().unwrap();
        let listener = UnixListener::bind(folder.path().join("between.sock")).unwrap();
        let socket = socket.to_owned();
        // The thread ends with the connections, or with the case's process.
        thread::spawn(move || {
            let (near, _) = listener.accept().unwrap();
            let far = UnixStream::connect(socket).unwrap();
            let (near_too, far_too) = (near.try_clone().unwrap(), far.try_clone().unwrap());
            let limit = move |role| (role == point.role).then_some((point, how));
            let there = thread::spawn(move || pass(near, far, limit(Role::Source)));
            pass(far_too, near_too, limit(Role::Target));
            let _ = there.join();
        });
        Between { folder }
    }

    fn address(&self) -> String {
        format!("unix:{}", self.folder.path().join("between.sock").display())
    }
}

/// Passes one process's bytes on until it ends, or the point is reached.
fn pass(mut from: UnixStream, mut to: UnixStream, until: Option<(Point, How)>) {
    let mut messages = 0;
    loop {
        if let Some((point, how)) = until.filter(|(point, _)| point.messages == messages) {
            if point.inside {
                let Ok(message) = next(&mut from, messages == 0) else { break };
                // The other process may have ended; its connection is shut then.
                let _ = to.write_all(&message[..message.len() / 2]);
            }
            if how == How::Silent {
                // The other process continues, and its connection is shut when this one ends.
                let _ = from.read_to_end(&mut Vec::new());
            }
            break;
        }
        let Ok(message) = next(&mut from, messages == 0) else { break };
        if to.write_all(&message).is_err() {
            break;
        }
        messages += 1;
    }
    // Both calls fail if the other direction's thread has done it already.
    let _ = (from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both));
}

/// Reads the next message of a process, or its preamble.
fn next(from: &mut UnixStream, is_prefix: bool) -> std::io::Result<Vec<u8>> {
    if is_prefix {
        let mut prefix = vec![0; PREFIX];
        from.read_exact(&mut prefix)?;
        return Ok(prefix);
    }
    let mut message = vec![0; HEAD];
    from.read_exact(&mut message)?;
    let (len, descriptors) =
        (u32::from_le_bytes([message[0], message[1], message[2], message[3]]), message[4]);
    if descriptors != 0 {
        return Err(std::io::Error::new(ErrorKind::Unsupported, "descriptors do not pass here"));
    }
    message.resize(HEAD + len as usize, 0);
    from.read_exact(&mut message[HEAD..])?;
    Ok(message)
}
