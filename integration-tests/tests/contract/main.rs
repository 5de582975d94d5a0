//! The fakes and the middleware against the transport contract itself, mostly without a channel above.

mod fault_injector;
mod groups;
mod idle_links;
mod metered;
mod notices;
mod one_sided;
mod trace;
mod two_sided;

use std::path::Path;
use std::sync::atomic::{AtomicU8, Ordering};
use std::thread;
use std::time::Duration;

use farjump::build::{Options, build};
use farjump::{Library, Target};
use farjump_core::transport::{
    Endpoint, LocalMemory, Messages, OpenRequest, RemoteMemory, Transport, TransportError,
};
use farjump_integration_tests::connect;

/// Length of the regions of these tests.
const REGION: usize = 8192;

const PATIENCE: Duration = Duration::from_secs(30);

fn echo(folder: &Path) -> Library {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("ifuncs/echo.c");
    let output = folder.join("libecho.so");
    build(&Options { inputs: vec![source], output: output.clone(), ..Options::default() }).unwrap();
    Library::open(output).unwrap()
}

/// Polls `target` until `act` is over on another thread.
fn alongside<T: Send>(target: &mut Target<'_>, act: impl FnOnce() -> T + Send) -> T {
    thread::scope(|scope| {
        let other = scope.spawn(act);
        while !other.is_finished() {
            target.wait(Duration::from_millis(1)).unwrap();
            target.poll().unwrap();
        }
        other.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

fn request() -> OpenRequest {
    OpenRequest::new(REGION, 4096)
}

fn connect(left: &mut dyn Transport, right: &mut dyn Transport) -> (Endpoint, Endpoint) {
    connect::connect(left, right, &request()).unwrap()
}

/// One direction of a one-sided link. The other endpoints stay alive beside it.
struct Direction {
    remote: Box<dyn RemoteMemory>,
    local: Box<dyn LocalMemory>,
    _senders_local: Box<dyn LocalMemory>,
    _receivers_remote: Box<dyn RemoteMemory>,
}

/// From `sender` to `receiver`.
fn direction(sender: &mut dyn Transport, receiver: &mut dyn Transport) -> Direction {
    let (left, right) = connect(sender, receiver);
    let (
        Endpoint::OneSided { local: senders_local, remote },
        Endpoint::OneSided { local, remote: receivers_remote },
    ) = (left, right)
    else {
        panic!("expected a one-sided transport")
    };
    Direction { remote, local, _senders_local: senders_local, _receivers_remote: receivers_remote }
}

impl Direction {
    /// The receiver's bytes at `at`.
    fn see(&self, at: usize, len: usize) -> Vec<u8> {
        assert!(at + len <= self.local.len());
        // SAFETY: `LocalMemory` guarantees these bytes, checked to lie inside, and they are read atomically
        // here.
        let byte = |at| unsafe { AtomicU8::from_ptr(self.local.base().add(at).as_ptr()) };
        (at..at + len).map(|at| byte(at).load(Ordering::Acquire)).collect()
    }

    fn word(&self, at: usize) -> u64 {
        u64::from_le_bytes(self.see(at, 8).try_into().unwrap())
    }
}

/// Puts, making progress while the queue is full.
fn put(remote: &mut dyn RemoteMemory, offset: usize, bytes: &[u8], frame: u64) {
    patiently(remote, |remote| remote.put(offset, bytes, frame));
}

fn patiently(
    remote: &mut dyn RemoteMemory,
    mut operation: impl FnMut(&mut dyn RemoteMemory) -> Result<(), TransportError>,
) {
    for _ in 0..100_000 {
        match operation(remote) {
            Err(error) if error.is_full() => remote.progress().unwrap(),
            result => return result.unwrap(),
        }
    }
    panic!("there was never space");
}

/// Bytes without zeros that differ for each `frame`, to show missing ones.
fn pattern(len: usize, frame: u64) -> Vec<u8> {
    (0..len).map(|at| ((at as u64 * 7 + frame * 31) % 251) as u8 + 1).collect()
}

fn two_sided(left: &mut dyn Transport, right: &mut dyn Transport) -> (Box<dyn Messages>, Box<dyn Messages>) {
    match connect(left, right) {
        (Endpoint::TwoSided(left), Endpoint::TwoSided(right)) => (left, right),
        _ => panic!("expected a two-sided transport"),
    }
}

/// Sends one message, making progress while the queue is full.
fn send(messages: &mut dyn Messages, bytes: &[u8], frame: u64) {
    try_send(messages, bytes, frame).unwrap();
}

fn try_send(messages: &mut dyn Messages, bytes: &[u8], frame: u64) -> Result<(), TransportError> {
    let mut space = messages.reserve(bytes.len());
    for _ in 0..100_000 {
        match space {
            Err(error) if error.is_full() => messages.progress()?,
            result => {
                let space = result?;
                // SAFETY: the backend lends as many bytes as were reserved until the commit.
                unsafe { space.copy_from_nonoverlapping(std::ptr::NonNull::from(bytes).cast(), bytes.len()) };
                return commit(messages, bytes.len(), frame);
            }
        }
        space = messages.reserve(bytes.len());
    }
    panic!("there was never space");
}

fn commit(messages: &mut dyn Messages, len: usize, frame: u64) -> Result<(), TransportError> {
    for _ in 0..100_000 {
        match messages.commit(len, frame) {
            Err(error) if error.is_full() => messages.progress()?,
            result => return result,
        }
    }
    panic!("the commit was never taken");
}

/// Returns the next message, which it releases at once. Returns `None` if none came within many polls.
fn receive(messages: &mut dyn Messages) -> Result<Option<Vec<u8>>, TransportError> {
    for _ in 0..1000 {
        if let Some(message) = messages.poll()? {
            // SAFETY: the fakes lend these bytes, header last, until `release`, and the peer can no longer change
            // them.
            let bytes =
                unsafe { std::slice::from_raw_parts(message.start().as_ptr(), message.len()) }.to_vec();
            messages.release();
            return Ok(Some(bytes));
        }
    }
    Ok(None)
}
