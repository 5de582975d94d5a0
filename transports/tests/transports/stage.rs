//! What the tests play on: a place to meet, a target and a source with plain options, and a watchdog.

use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::mpsc::{self, Sender};
use std::thread;
use std::time::{Duration, Instant};

use farjump_core::transport::{OpenRequest, Transport};
use farjump_transports::Error;
use farjump_transports::meet::{
    Arrival, ArrivalOptions, Control, Listener, Message, Met, PeerAddress, Progress, Rights, SourceOptions,
    meet_target,
};
use farjump_transports::shm::Shm;
use rustix::event::{PollFd, PollFlags, poll};
use tempfile::TempDir;

/// Length of the regions that are asked for, the source's and the target's, in bytes.
pub(crate) const SOURCE_REGION: usize = 4096 + 8192;
/// See [`SOURCE_REGION`].
pub(crate) const TARGET_REGION: usize = 4096 + 65536;
/// The target's epoch.
pub(crate) const EPOCH: u64 = 0x1234_5678_9abc_def0;

/// Ends the process if it is not dropped in time: a test that hangs fails.
pub(crate) struct Watchdog(#[allow(dead_code, reason = "its end is what is waited for")] Sender<()>);

impl Watchdog {
    pub(crate) fn new() -> Watchdog {
        let (sender, receiver) = mpsc::channel();
        let name = thread::current().name().unwrap_or("a test").to_owned();
        thread::spawn(move || {
            if receiver.recv_timeout(Duration::from_secs(120)) == Err(mpsc::RecvTimeoutError::Timeout) {
                eprintln!("{name} hangs");
                std::process::abort();
            }
        });
        Watchdog(sender)
    }
}

/// A folder of its own for a socket, gone at the end of the test.
pub(crate) struct Place {
    pub(crate) folder: TempDir,
    _watchdog: Watchdog,
}

impl Place {
    pub(crate) fn new() -> Place {
        Place { folder: TempDir::new().unwrap(), _watchdog: Watchdog::new() }
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.folder.path().join("t.sock")
    }

    pub(crate) fn address(&self) -> PeerAddress {
        PeerAddress::unix(self.path()).unwrap()
    }

    pub(crate) fn listener(&self) -> Listener {
        Listener::bind(&self.address()).unwrap()
    }
}

/// A deadline that no honest meeting reaches.
pub(crate) fn far() -> Instant {
    Instant::now() + Duration::from_secs(100)
}

pub(crate) fn shm() -> Vec<Box<dyn Transport>> {
    vec![Box::new(Shm::new())]
}

pub(crate) fn source_options() -> SourceOptions {
    SourceOptions::new("source program", OpenRequest::new(SOURCE_REGION, 4096))
}

pub(crate) fn target_options() -> ArrivalOptions {
    let mut options = ArrivalOptions::new("target program", EPOCH, OpenRequest::new(TARGET_REGION, 32768));
    options.patience = Duration::from_secs(100);
    options.rights |= Rights::DROP;
    options
}

/// Meets a target as an honest source does.
pub(crate) fn meet(address: &PeerAddress) -> Result<Met, Error> {
    meet_target(address, &mut shm(), &source_options(), far())
}

/// The next process that connects.
pub(crate) fn accept(listener: &Listener) -> Result<Control, Error> {
    loop {
        if let Some(control) = listener.accept()? {
            return Ok(control);
        }
        poll(&mut [PollFd::new(listener, PollFlags::IN)], None).unwrap();
    }
}

/// Drives an arrival to its end.
pub(crate) fn drive(arrival: &mut Arrival, transports: &mut [Box<dyn Transport>]) -> Result<Met, Error> {
    loop {
        if let Progress::Met(met) = arrival.advance(transports)? {
            return Ok(*met);
        }
        let mut events = PollFlags::IN;
        events.set(PollFlags::OUT, arrival.wants_write());
        poll(&mut [PollFd::from_borrowed_fd(arrival.as_fd().unwrap(), events)], None).unwrap();
    }
}

/// Meets the next process that connects, as an honest target does.
pub(crate) fn arrive(listener: &Listener) -> Result<Met, Error> {
    drive(&mut Arrival::new(accept(listener)?, target_options()), &mut shm())
}

/// A source and a target that have met: (source's side, target's side).
pub(crate) fn met_pair(place: &Place) -> (Met, Met) {
    let listener = place.listener();
    met_over(place, &listener)
}

/// The same over a listener that is there already.
pub(crate) fn met_over(place: &Place, listener: &Listener) -> (Met, Met) {
    let address = place.address();
    let source = thread::spawn(move || meet(&address));
    let target = arrive(listener).unwrap();
    (source.join().unwrap().unwrap(), target)
}

/// Two control connections, connected to each other.
pub(crate) fn controls() -> (Control, Control) {
    let (one, other) = UnixStream::pair().unwrap();
    (Control::from_stream(one).unwrap(), Control::from_stream(other).unwrap())
}

/// Waits for a message.
pub(crate) fn next(control: &mut Control) -> Result<Message, Error> {
    loop {
        if let Some((message, _)) = control.recv()? {
            return Ok(message);
        }
        poll(&mut [PollFd::new(control, PollFlags::IN)], None).unwrap();
    }
}

/// Whether the last writer of the pipe behind `reader` is gone, or goes soon: what a peer passed is closed by another thread.
pub(crate) fn is_closed(reader: impl AsFd) -> bool {
    let soon = rustix::event::Timespec { tv_sec: 60, tv_nsec: 0 };
    let mut look = [PollFd::new(&reader, PollFlags::IN)];
    poll(&mut look, Some(&soon)).unwrap() == 1 && look[0].revents().contains(PollFlags::HUP)
}
