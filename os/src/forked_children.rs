//! Children that this process forked and that live: they have its mappings, and may read them for longer than it does.
//!
//! At a fork parent and child get one end each of a pipe. The child's end is closed when the child, and all
//! that it forked, have ended or executed another program. Children of `vfork` and `posix_spawn` share the
//! parent's memory until they execute, and those of `_Fork` and clone(2) run no handlers: neither is counted.

use std::cell::Cell;
use std::os::fd::{BorrowedFd, IntoRawFd};
use std::sync::Once;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering::SeqCst};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::pipe::{PipeFlags, pipe_with};

/// Most living children that are distinguished. Each further one counts as living for as long as this
/// process.
const CHILDREN: usize = 256;
/// A slot without a child.
const FREE: i32 = -1;
/// A slot that is being filled.
const BUSY: i32 = -2;

/// The parent's end of the pipe to a child.
struct Slot {
    descriptor: AtomicI32,
    /// The number of the fork.
    fork: AtomicU64,
}

static SLOTS: [Slot; CHILDREN] =
    [const { Slot { descriptor: AtomicI32::new(FREE), fork: AtomicU64::new(0) } }; CHILDREN];
/// Forks of this process that have ended.
static DONE: AtomicU64 = AtomicU64::new(0);
/// Forks that have begun and not ended.
static ACTIVE_FORKS: AtomicU64 = AtomicU64::new(0);
/// The number of the last fork whose child has no slot.
static LAST_UNTRACKED: AtomicU64 = AtomicU64::new(0);
/// Whether a thread checks the slots. Only that thread frees them.
static LOOKING: AtomicBool = AtomicBool::new(false);

thread_local! {
    /// The pipe of the fork of this thread: its reading and writing end, or nothing if it could not be made.
    static PIPE: Cell<Option<(i32, i32)>> = const { Cell::new(None) };
}

/// Closes a descriptor of a pipe of this module.
fn close(descriptor: i32) {
    // SAFETY: `prepare` made the descriptor, whose copy in this process is closed once.
    unsafe { libc::close(descriptor) };
}

extern "C" fn prepare() {
    ACTIVE_FORKS.fetch_add(1, SeqCst);
    let ends = pipe_with(PipeFlags::CLOEXEC).ok();
    PIPE.set(ends.map(|(reading, writing)| (reading.into_raw_fd(), writing.into_raw_fd())));
}

extern "C" fn in_parent() {
    let slot = PIPE.take().and_then(|(reading, writing)| {
        close(writing);
        let take = |slot: &&Slot| slot.descriptor.compare_exchange(FREE, BUSY, SeqCst, SeqCst).is_ok();
        let slot = SLOTS.iter().find(take);
        if slot.is_none() {
            close(reading);
        }
        Some((slot?, reading))
    });
    // The fork gets its number when it has ended: the child may share work that began before.
    let fork = DONE.fetch_add(1, SeqCst) + 1;
    match slot {
        Some((slot, reading)) => {
            slot.fork.store(fork, SeqCst);
            slot.descriptor.store(reading, SeqCst);
        }
        None => _ = LAST_UNTRACKED.fetch_max(fork, SeqCst),
    }
    ACTIVE_FORKS.fetch_sub(1, SeqCst);
}

extern "C" fn in_child() {
    // The writing end stays open as long as this process.
    if let Some((reading, _)) = PIPE.take() {
        close(reading);
    }
    for slot in &SLOTS {
        let descriptor = slot.descriptor.swap(FREE, SeqCst);
        if descriptor >= 0 {
            close(descriptor);
        }
    }
    ACTIVE_FORKS.store(0, SeqCst);
    LAST_UNTRACKED.store(0, SeqCst);
    LOOKING.store(false, SeqCst);
}

/// Records forks from now on, in this process and its children.
pub fn watch() {
    static WATCH: Once = Once::new();
    WATCH.call_once(|| {
        // SAFETY: the functions make system calls and change numbers, and stay as long as this library.
        let failed = unsafe { libc::pthread_atfork(Some(prepare), Some(in_parent), Some(in_child)) };
        if failed != 0 {
            log::warn!(
                "no memory for a fork handler: views end for forked children when they do for their parent"
            );
        }
    });
}

/// Number of forks that have ended. A child of a later fork has what this thread has now.
#[inline]
pub fn forks() -> u64 {
    DONE.load(SeqCst)
}

/// Returns whether a child of a fork after the first `forks` may live.
#[inline]
pub fn may_live_since(forks: u64) -> bool {
    (DONE.load(SeqCst) != forks || ACTIVE_FORKS.load(SeqCst) != 0) && last_living() > forks
}

/// The number of the last fork whose child may live; 0 if none does.
#[cold]
pub fn last_living() -> u64 {
    if ACTIVE_FORKS.load(SeqCst) != 0 || LOOKING.swap(true, SeqCst) {
        return u64::MAX;
    }
    let mut last = LAST_UNTRACKED.load(SeqCst);
    for slot in &SLOTS {
        let descriptor = slot.descriptor.load(SeqCst);
        if descriptor < 0 || slot.fork.load(SeqCst) <= last {
            continue;
        }
        if has_ended(descriptor) {
            slot.descriptor.store(FREE, SeqCst);
            close(descriptor);
        } else {
            last = slot.fork.load(SeqCst);
        }
    }
    LOOKING.store(false, SeqCst);
    last
}

fn has_ended(descriptor: i32) -> bool {
    // SAFETY: the caller alone checks the slots (`LOOKING`), so nothing closes the descriptor of a slot.
    let descriptor = unsafe { BorrowedFd::borrow_raw(descriptor) };
    let mut polled = [PollFd::from_borrowed_fd(descriptor, PollFlags::IN)];
    matches!(poll(&mut polled, Some(&Timespec::default())), Ok(1..))
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream;
    use std::time::{Duration, Instant};

    use super::*;

    /// Forks a child that forks a child of its own and ends. The second child ends when the stream does.
    fn family() -> UnixStream {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        // SAFETY: the children only make system calls.
        unsafe {
            match libc::fork() {
                0 => {
                    drop(ours);
                    if libc::fork() == 0 {
                        let _ = theirs.write(b"x");
                        let _ = theirs.read(&mut [0]);
                    }
                    libc::_exit(0);
                }
                child => assert_eq!(libc::waitpid(child, std::ptr::null_mut(), 0), child),
            }
        }
        drop(theirs);
        let mut ours = ours;
        ours.read_exact(&mut [0]).unwrap();
        ours
    }

    #[test]
    fn a_child_lives_as_long_as_the_last_that_it_forked() {
        watch();
        let before = forks();
        let family = family();
        assert!(may_live_since(before));
        let after = forks();
        assert!(after > before);
        drop(family);
        // Children of other tests may live for a moment.
        let until = Instant::now() + Duration::from_secs(60);
        while may_live_since(before) || may_live_since(after) {
            assert!(Instant::now() < until);
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}
