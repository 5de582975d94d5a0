//! Deferred close: threads of this module close descriptors whose close(2) may block.
//!
//! The last close of a file blocks on three kinds: a TCP socket with `SO_LINGER` and unacknowledged data, a
//! FUSE file with an unresponsive server, and a Unix socket with such a descriptor in its queue. A peer can
//! pass any of these. So this module closes descriptors from peers, and Unix sockets over which a peer could
//! pass some.
//!
//! At most [`THREADS`] closes are under way; further descriptors queue. The system has no nonblocking close,
//! so a stuck descriptor keeps its thread. A thread ends after one second without work, or when the process exits. A forked
//! child starts with an empty queue: the parent closes the descriptors in its own, and the child's copies stay open.

use std::collections::VecDeque;
use std::mem::{ManuallyDrop, MaybeUninit};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::thread::JoinHandleExt;
use std::ptr;
use std::sync::{Condvar, Mutex, MutexGuard, Once, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::PerProcess;

/// Limit of closes under way at a time.
pub const THREADS: usize = 8;
/// Number of waiting descriptors at which a stall of all closes counts as clogged.
pub const MOST_STUCK: usize = 64;
/// Number of waiting descriptors that counts as clogged in any case.
pub const MOST_PENDING: usize = 512;
/// Limit of descriptors that the system delivers at once (`SCM_MAX_FD` of unix(7)). Receivers have space for
/// all, though no message may have so many: the system closes excess ones in the receiving thread, which can
/// block.
pub const MOST_DELIVERED: usize = 253;
/// Time without a returning close after which the waiting descriptors count as stuck.
const STALL: Duration = Duration::from_millis(50);
/// Time for which a thread waits for work before it ends.
const IDLE: Duration = Duration::from_secs(1);
/// Time for which the exit of the process waits for threads without work. One with a stuck close stays.
const EXIT: Duration = Duration::from_millis(100);
/// Bytes of a thread's stack. The thread calls close(2) alone.
const STACK: usize = 256 * 1024;

/// A descriptor whose close is deferred: dropping it does not block.
#[derive(Debug)]
pub struct DeferredFd(ManuallyDrop<OwnedFd>);

impl DeferredFd {
    /// Returns the descriptor itself. Dropping that waits for its close.
    pub fn into_owned_fd(self) -> OwnedFd {
        let mut this = ManuallyDrop::new(self);
        // SAFETY: the only take: `ManuallyDrop` keeps `this` from being dropped, and it is not used again.
        unsafe { ManuallyDrop::take(&mut this.0) }
    }
}

impl From<OwnedFd> for DeferredFd {
    fn from(descriptor: OwnedFd) -> DeferredFd {
        DeferredFd(ManuallyDrop::new(descriptor))
    }
}

impl AsFd for DeferredFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl Drop for DeferredFd {
    fn drop(&mut self) {
        // SAFETY: `drop` runs once, and never for a value that `into_owned_fd` took the descriptor from.
        close(unsafe { ManuallyDrop::take(&mut self.0) });
    }
}

/// Hands `descriptor` to a closing thread. Does not wait.
pub fn close(descriptor: OwnedFd) {
    let closer = CLOSER.get();
    let mut state = closer.lock();
    state.queue.push_back(descriptor);
    state.pending += 1;
    if state.pending == 1 {
        state.progress = Some(Instant::now());
    }
    if state.queue.len() > state.idle && state.threads < THREADS {
        match spawn_until_exit("farjump-closer", end, || closer.run()) {
            // The thread counts as idle from now on, although it has not started yet.
            Ok(()) => (state.threads, state.idle) = (state.threads + 1, state.idle + 1),
            // The next descriptor tries again. Without any thread it stays open, like one with a stuck close.
            Err(error) => log::warn!("no thread to close a descriptor: {error}"),
        }
    }
    drop(state);
    closer.work.notify_one();
}

/// Returns whether [`MOST_PENDING`] descriptors wait, or [`MOST_STUCK`] wait and no close has returned for 50
/// ms. Then no connection is accepted on a Unix socket, so a process that was not admitted cannot use up our
/// descriptors. Descriptors of admitted peers are always taken; the number of connections bounds theirs.
pub fn is_clogged() -> bool {
    let state = CLOSER.get().lock();
    let stuck = || state.progress.is_none_or(|last| last.elapsed() >= STALL);
    state.pending >= MOST_PENDING || state.pending >= MOST_STUCK && stuck()
}

static CLOSER: PerProcess<Closer> = PerProcess::new();

/// The queue of one process, and its threads.
#[derive(Default)]
struct Closer {
    state: Mutex<State>,
    work: Condvar,
}

#[derive(Default)]
struct State {
    queue: VecDeque<OwnedFd>,
    /// Descriptors in `queue` or being closed.
    pending: usize,
    /// Time of the last close that returned, or of the first descriptor in an empty queue.
    progress: Option<Instant>,
    threads: usize,
    /// Threads that wait for work, or have just been started.
    idle: usize,
    /// True if the process exits. Then a thread without work ends.
    ending: bool,
}

/// Ends the threads without work.
fn end() {
    let closer = CLOSER.get();
    closer.lock().ending = true;
    closer.work.notify_all();
}

impl Closer {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Closes descriptors in a thread, until none has come for [`IDLE`].
    fn run(&self) {
        let mut state = self.lock();
        loop {
            if let Some(descriptor) = state.queue.pop_front() {
                state.idle -= 1;
                drop(state);
                drop(descriptor);
                state = self.lock();
                (state.pending, state.idle) = (state.pending - 1, state.idle + 1);
                state.progress = Some(Instant::now());
                continue;
            }
            let idle = if state.ending { Duration::ZERO } else { IDLE };
            let waited = self.work.wait_timeout(state, idle).unwrap_or_else(PoisonError::into_inner);
            state = waited.0;
            if (waited.1.timed_out() || state.ending) && state.queue.is_empty() {
                (state.threads, state.idle) = (state.threads - 1, state.idle - 1);
                return;
            }
        }
    }
}

/// A thread that waits for work, and the function that makes it end if it has none.
type Waiting = (fn(), JoinHandle<()>);

/// Starts a thread that waits for work, as [`spawn`] does. When the process exits, or the library with this
/// code is unloaded, calls `end`, which makes the thread end if it has no work, and joins the thread if it
/// ends soon. Without the join, a memory checker would report the thread's memory as perhaps lost.
///
/// # Errors
/// The system's.
pub fn spawn_until_exit(name: &str, end: fn(), work: impl FnOnce() + Send + 'static) -> std::io::Result<()> {
    static THREADS: PerProcess<Mutex<Vec<Waiting>>> = PerProcess::new();
    static WATCH: Once = Once::new();
    extern "C" fn join() {
        let threads = std::mem::take(&mut *THREADS.get().lock().unwrap_or_else(PoisonError::into_inner));
        threads.iter().for_each(|(end, _)| end());
        let deadline = Instant::now() + EXIT;
        for (_, thread) in threads {
            let thread = thread.into_pthread_t();
            // SAFETY: the thread is neither joined nor detached before the loop ends. The call does not wait.
            // Waiting would need a system call that may be denied here, and then the C library aborts.
            while unsafe { libc::pthread_tryjoin_np(thread, ptr::null_mut()) } == libc::EBUSY {
                if Instant::now() >= deadline {
                    // SAFETY: as above, and the thread is not used again.
                    unsafe { libc::pthread_detach(thread) };
                    break;
                }
                thread::yield_now();
            }
        }
    }
    let thread = spawn(name, work)?;
    WATCH.call_once(|| {
        // SAFETY: the function stays as long as this library, whose unloading calls it. Without memory for it nothing is joined.
        unsafe { libc::atexit(join) };
    });
    let mut threads = THREADS.get().lock().unwrap_or_else(PoisonError::into_inner);
    threads.retain(|(_, thread)| !thread.is_finished());
    threads.push((end, thread));
    Ok(())
}

/// Starts a thread that takes no signals: the program's handlers run in the program's threads.
///
/// # Errors
/// The system's.
pub fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> std::io::Result<JoinHandle<()>> {
    let (mut all, mut before) = (MaybeUninit::uninit(), MaybeUninit::uninit());
    // SAFETY: both sets are locals that outlive the block; `sigfillset` fills in `all` before it is read.
    let blocked = unsafe {
        libc::sigfillset(all.as_mut_ptr());
        libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr()) == 0
    };
    let spawned = thread::Builder::new().name(name.to_owned()).stack_size(STACK).spawn(work);
    if blocked {
        // SAFETY: the call above succeeded, so it has filled in `before`.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, before.as_ptr(), ptr::null_mut()) };
    }
    spawned
}

/// Returns the lock of tests that start programs, and of the test whose descriptors block as they are closed.
#[cfg(test)]
pub(crate) fn no_stuck_descriptors() -> MutexGuard<'static, ()> {
    static STUCK: Mutex<()> = Mutex::new(());
    STUCK.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};
    use std::os::unix::net::UnixStream;

    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    use rustix::net::sockopt::set_socket_linger;

    /// Descriptors that were handed over and are not closed yet.
    fn pending() -> usize {
        CLOSER.get().lock().pending
    }

    const PATIENCE: Duration = Duration::from_secs(100);

    /// A socket whose close blocks as long as the other end is open and reads nothing.
    fn stuck() -> (OwnedFd, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let ours = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (theirs, _) = listener.accept().unwrap();
        set_socket_linger(&ours, Some(Duration::from_secs(10_000))).unwrap();
        ours.set_nonblocking(true).unwrap();
        while std::io::Write::write(&mut &ours, &[0; 1 << 16]).is_ok() {}
        (ours.into(), theirs)
    }

    /// Waits until the other end of `socket` is closed.
    fn is_closed(socket: &UnixStream) -> bool {
        let patience = Timespec::try_from(PATIENCE).unwrap();
        poll(&mut [PollFd::new(socket, PollFlags::IN)], Some(&patience)).unwrap() == 1
    }

    /// One test for all, as they share the process's threads.
    #[test]
    fn closes_wait_only_if_every_thread_is_stuck_and_not_after_fork() {
        let _alone = no_stuck_descriptors();
        let mut held = Vec::new();
        for threads in 1..THREADS {
            let (descriptor, other) = stuck();
            drop(DeferredFd::from(descriptor));
            held.push(other);
            let (ours, theirs) = UnixStream::pair().unwrap();
            drop(DeferredFd::from(OwnedFd::from(ours)));
            assert!(is_closed(&theirs), "{threads} are stuck, and an honest one waits for them");
        }
        assert!(!is_clogged());

        // SAFETY: the child only closes, waits and ends; none of that needs another thread of its parent.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let (ours, theirs) = UnixStream::pair().unwrap();
            drop(DeferredFd::from(OwnedFd::from(ours)));
            let closed = is_closed(&theirs);
            // SAFETY: `_exit` ends the child without running the test program's exit handlers.
            unsafe { libc::_exit(if closed { 0 } else { 1 }) };
        }
        let mut status = 0;
        // SAFETY: `status` is a local, valid for writes.
        assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
        assert_eq!(status, 0, "the forked child closed nothing");

        let waits_already = pending();
        for _ in waits_already..MOST_STUCK {
            let (descriptor, other) = stuck();
            close(descriptor);
            held.push(other);
        }
        thread::sleep(2 * STALL);
        assert!(is_clogged() && CLOSER.get().lock().threads == THREADS);
        held.clear();
        let deadline = Instant::now() + PATIENCE;
        while pending() != 0 || CLOSER.get().lock().threads != 0 {
            assert!(Instant::now() < deadline, "{} are open still", pending());
            thread::sleep(Duration::from_millis(10));
        }
    }
}
