//! The end of a link: sends committed bytes, reads the peer's last bytes, and then closes the socket.
//!
//! Closing a socket with unread bytes resets the connection, and the peer loses bytes that it has not received yet. So
//! this module shuts the stream down for writing, reads it to its end, and then closes it. It closes an endpoint at
//! once if its last bytes have reached the peer's system. A thread of the process, which exists only while needed,
//! closes the others. The thread takes [`MOST`] endpoints, each for [`PATIENCE`]; beyond that, endpoints are closed
//! immediately.

use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use farjump_os::PerProcess;
use farjump_os::deferred_close;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{Shutdown, shutdown};

use super::Parts;
use crate::tcp::socket::{Got, Socket};

/// Most endpoints that the thread works on at a time.
const MOST: usize = 256;
/// Time that it spends on one.
const PATIENCE: Duration = Duration::from_secs(10);
/// Interval of checks on endpoints whose last bytes are under way: no event reports their arrival.
const LOOK: Duration = Duration::from_millis(20);
/// Time that it waits for work before it ends.
const IDLE: Duration = Duration::from_secs(1);
/// Most bytes that are read and discarded at a time.
const SINK: usize = 16 << 10;

/// Ends a link.
pub(super) fn part(mut parts: Parts) {
    parts.inbound.clear();
    if parts.outbound.is_copy() {
        // The socket is a forked child's, which replaced its parent's.
        return;
    }
    let mut closing = Closing { parts, shut: false, deadline: None };
    if closing.is_over() {
        return close(closing.parts.socket);
    }
    closing.deadline = Some(Instant::now() + PATIENCE);
    keep(closing);
}

/// Closes a socket. A peer on the same machine may have passed descriptors on it, whose close may block.
fn close(socket: Socket) {
    let is_unix = socket.is_unix();
    let descriptor = socket.into_descriptor();
    if is_unix && rustix::io::ioctl_fionread(&descriptor) != Ok(0) {
        return deferred_close::close(descriptor);
    }
    drop(descriptor);
}

/// A link that is closing.
struct Closing {
    parts: Parts,
    shut: bool,
    deadline: Option<Instant>,
}

impl Closing {
    /// Does everything possible now. Returns whether the socket can be closed.
    fn is_over(&mut self) -> bool {
        let Parts { socket, outbound, windows, .. } = &mut self.parts;
        if !outbound.flush(socket, &mut windows.recv_credit).unwrap_or(true) {
            // A peer that sends without reading must be read from before it reads.
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

    /// The events to wait for.
    fn flags(&self) -> PollFlags {
        match self.parts.outbound.is_waiting() {
            true => PollFlags::IN | PollFlags::OUT,
            false => PollFlags::IN,
        }
    }
}

/// Discards the peer's bytes. Returns whether it sends no more.
fn is_at_end(socket: &Socket) -> bool {
    let mut sink = [0; SINK];
    // The bytes discarded in one turn are bounded, for the sake of the other endpoints.
    for _ in 0..64 {
        match socket.receive(&mut sink) {
            Ok(Got::Bytes(_)) => {}
            Ok(Got::Nothing) => return false,
            Ok(Got::End) | Err(_) => return true,
        }
    }
    false
}

/// Returns whether everything sent has reached the peer's system. On the same machine, that is so as soon as it is
/// sent.
fn has_arrived(socket: &Socket) -> bool {
    if socket.is_unix() {
        return true;
    }
    let mut left = MaybeUninit::<libc::c_int>::uninit();
    // SAFETY: the call writes an `int` there.
    let asked = unsafe { libc::ioctl(socket.as_fd().as_raw_fd(), libc::TIOCOUTQ, left.as_mut_ptr()) };
    // SAFETY: the call has succeeded, so it wrote `left`.
    asked == 0 && unsafe { left.assume_init() } == 0
}

/// The closing endpoints of one process, and whether there is a thread for them.
#[derive(Default)]
struct ClosingThread {
    state: Mutex<State>,
    work: Condvar,
}

#[derive(Default)]
struct State {
    new: Vec<Closing>,
    /// Includes those of the thread.
    count: usize,
    thread: bool,
    /// True if the process exits: then the thread ends when it has no work.
    ending: bool,
}

static THREAD: PerProcess<ClosingThread> = PerProcess::new();

/// Makes the thread end if it has no work.
fn end() {
    let thread = THREAD.get();
    thread.lock().ending = true;
    thread.work.notify_one();
}

/// Passes `closing` on to the thread.
fn keep(closing: Closing) {
    let thread = THREAD.get();
    let mut state = thread.lock();
    if state.count >= MOST {
        drop(state);
        return close(closing.parts.socket);
    }
    if !state.thread {
        let started = deferred_close::spawn_until_exit("farjump-closing", end, || thread.run());
        if let Err(error) = started {
            drop(state);
            log::warn!("no thread to end a link, whose last frames may be lost: {error}");
            return close(closing.parts.socket);
        }
        state.thread = true;
    }
    state.count += 1;
    state.new.push(closing);
    drop(state);
    thread.work.notify_one();
}

impl ClosingThread {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The thread's work.
    fn run(&self) {
        let mut all: Vec<Closing> = Vec::new();
        loop {
            let mut state = self.lock();
            if all.is_empty() && state.new.is_empty() {
                let idle = if state.ending { Duration::ZERO } else { IDLE };
                let waited = self.work.wait_timeout(state, idle).unwrap_or_else(PoisonError::into_inner);
                state = waited.0;
                if (waited.1.timed_out() || state.ending) && state.new.is_empty() {
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

/// Waits a short time until there is work for one of `all`.
fn wait(all: &[Closing]) {
    if all.is_empty() {
        return;
    }
    let mut sockets: Vec<_> =
        all.iter().map(|closing| PollFd::new(&closing.parts.socket, closing.flags())).collect();
    let _ = poll(&mut sockets, Timespec::try_from(LOOK).ok().as_ref());
}
