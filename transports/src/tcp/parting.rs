//! The end of a link: what was committed is sent, what the peer still sends is read, and then the socket is closed.
//!
//! A socket that is closed with bytes unread resets the connection, and what the peer has not received yet is lost. So the stream is
//! shut down for writing, read to its end, and closed then. An end that has sent all and whose bytes the peer's system has is closed
//! at once; for others a thread of the process does it, which there is only meanwhile. It takes [`MOST`] ends, each for [`PATIENCE`];
//! beyond that ends are closed as they are.

use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use farjump_os::PerProcess;
use farjump_os::deferred_close;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{Shutdown, shutdown};

use super::post::Parts;
use super::socket::{Got, Socket};

/// Ends that the thread works on at a time.
const MOST: usize = 256;
/// How long it works on one.
const PATIENCE: Duration = Duration::from_secs(10);
/// How often it looks at ends whose last bytes are under way, which nothing tells.
const LOOK: Duration = Duration::from_millis(20);
/// How long it waits for work before it ends.
const IDLE: Duration = Duration::from_secs(1);
/// Most bytes that are read and thrown away at a time.
const SINK: usize = 16 << 10;

/// Ends a link.
pub(super) fn part(mut parts: Parts) {
    parts.inbound.clear();
    if parts.outbound.is_copy() {
        return close(parts.socket);
    }
    let mut parting = Parting { parts, shut: false, deadline: None };
    if parting.is_over() {
        return close(parting.parts.socket);
    }
    parting.deadline = Some(Instant::now() + PATIENCE);
    keep(parting);
}

/// Closes a socket. A peer on the same machine can have passed descriptors on it, whose close waits for what it likes.
fn close(socket: Socket) {
    let is_unix = socket.is_unix();
    let descriptor = socket.into_descriptor();
    if is_unix && rustix::io::ioctl_fionread(&descriptor) != Ok(0) {
        return deferred_close::close(descriptor);
    }
    drop(descriptor);
}

/// A link that ends.
struct Parting {
    parts: Parts,
    shut: bool,
    deadline: Option<Instant>,
}

impl Parting {
    /// Does what can be done now. Returns whether the socket can be closed.
    fn is_over(&mut self) -> bool {
        let Parts { socket, outbound, windows, .. } = &mut self.parts;
        if !outbound.flush(socket, &mut windows.inward).unwrap_or(true) {
            // A peer that sends and does not read has to be read, so that it reads.
            return is_at_end(socket);
        }
        if outbound.broken().is_some() {
            return true;
        }
        if !self.shut {
            self.shut = true;
            if shutdown(&*socket, Shutdown::Write).is_err() {
                return true;
            }
        }
        is_at_end(socket) || has_arrived(socket)
    }

    /// What to wait for.
    fn flags(&self) -> PollFlags {
        match self.parts.outbound.is_waiting() {
            true => PollFlags::IN | PollFlags::OUT,
            false => PollFlags::IN,
        }
    }
}

/// Throws away what the peer has sent. Returns whether it sends no more.
fn is_at_end(socket: &Socket) -> bool {
    let mut sink = [0; SINK];
    // What one turn throws away is bounded, for the other ends' sake.
    for _ in 0..64 {
        match socket.receive(&mut sink) {
            Ok(Got::Bytes(_)) => {}
            Ok(Got::Nothing) => return false,
            Ok(Got::End) | Err(_) => return true,
        }
    }
    false
}

/// Whether the peer's system has all that was sent. A peer on the same machine has it as soon as it is sent.
fn has_arrived(socket: &Socket) -> bool {
    if socket.is_unix() {
        return true;
    }
    let mut left = MaybeUninit::<libc::c_int>::uninit();
    // SAFETY: the call writes an `int` there.
    let asked = unsafe { libc::ioctl(socket.as_fd().as_raw_fd(), libc::TIOCOUTQ, left.as_mut_ptr()) };
    // SAFETY: the call has succeeded, so it was written.
    asked == 0 && unsafe { left.assume_init() } == 0
}

/// The ends of one process that are not over, and whether there is a thread for them.
#[derive(Default)]
struct Partings {
    state: Mutex<State>,
    work: Condvar,
}

#[derive(Default)]
struct State {
    new: Vec<Parting>,
    /// With those that the thread has.
    count: usize,
    thread: bool,
}

static PARTINGS: PerProcess<Partings> = PerProcess::new();

/// Has the thread go on with `parting`.
fn keep(parting: Parting) {
    let partings = PARTINGS.get();
    let mut state = partings.lock();
    if state.count >= MOST {
        drop(state);
        return close(parting.parts.socket);
    }
    if !state.thread {
        if let Err(error) = deferred_close::spawn("farjump-parting", || partings.run()) {
            drop(state);
            log::warn!("no thread to end a link, whose last frames may be lost: {error}");
            return close(parting.parts.socket);
        }
        state.thread = true;
    }
    state.count += 1;
    state.new.push(parting);
    drop(state);
    partings.work.notify_one();
}

impl Partings {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The thread's work.
    fn run(&self) {
        let mut all: Vec<Parting> = Vec::new();
        loop {
            let mut state = self.lock();
            if all.is_empty() && state.new.is_empty() {
                let waited = self.work.wait_timeout(state, IDLE).unwrap_or_else(PoisonError::into_inner);
                state = waited.0;
                if waited.1.timed_out() && state.new.is_empty() {
                    state.thread = false;
                    return;
                }
            }
            all.append(&mut state.new);
            drop(state);
            let before = all.len();
            let now = Instant::now();
            let mut at = 0;
            while at < all.len() {
                let late = all[at].deadline.is_some_and(|deadline| deadline <= now);
                if all[at].is_over() || late {
                    close(all.swap_remove(at).parts.socket);
                } else {
                    at += 1;
                }
            }
            self.lock().count -= before - all.len();
            wait(&all);
        }
    }
}

/// Waits until something can be done for one of `all`, for a short time.
fn wait(all: &[Parting]) {
    if all.is_empty() {
        return;
    }
    let mut sockets: Vec<_> =
        all.iter().map(|parting| PollFd::new(&parting.parts.socket, parting.flags())).collect();
    let _ = poll(&mut sockets, Timespec::try_from(LOOK).ok().as_ref());
}
