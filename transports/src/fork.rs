//! What a forked child has of its parent's links: nothing that it does with them reaches a peer.
//!
//! A child has its parent's memory and descriptors, and so its links. It must take no part in them, and no check of that
//! kind is made where frames move. So a fork changes what the child has, before the child runs: each item of
//! [`Inherited`] becomes one that is the child's alone, and on which sending fails. `docs/decisions/forks.md` has the
//! reasons.

use std::cell::RefCell;
#[cfg(feature = "tcp")]
use std::mem::ManuallyDrop;
#[cfg(feature = "shm")]
use std::os::fd::BorrowedFd;
#[cfg(any(feature = "shm", feature = "tcp"))]
use std::os::fd::RawFd;
#[cfg(feature = "tcp")]
use std::os::fd::{FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, Once, PoisonError, TryLockError};

#[cfg(any(feature = "shm", feature = "ucx"))]
use farjump_core::mailbox::FORKED_STATE;
#[cfg(any(feature = "shm", feature = "tcp", feature = "verbs"))]
use farjump_core::transport::Cause;
use farjump_os::PerProcess;
#[cfg(any(feature = "shm", feature = "ucx", feature = "verbs"))]
use rustix::mm::{MapFlags, ProtFlags};

/// The items of this process, by number.
static ITEMS: PerProcess<Mutex<Vec<(u64, Inherited)>>> = PerProcess::new();
/// Times that the lock is tried before a fork. It is held for less than a microsecond at a time; but a signal
/// handler that forks may have interrupted its holder.
const TRIES: usize = 1000;
/// Length of a page, in bytes: the control page of a mailbox.
#[cfg(feature = "ucx")]
const PAGE: usize = 4096;

thread_local! {
    /// The items at the fork that this thread makes.
    static AT_FORK: RefCell<Vec<(u64, Inherited)>> = const { RefCell::new(Vec::new()) };
}

/// Something of a link, and what a fork makes of it in the child.
#[derive(Clone, Copy)]
pub(crate) enum Inherited {
    /// A region of shared memory, mapped from a memfd: becomes a private mapping of the same bytes. A function that forked
    /// may still read its payload there. The state of the peer in this process's own region becomes
    /// [`FORKED_STATE`], so that the first frame that is sent in the child asks to wake the peer, which fails.
    #[cfg(feature = "shm")]
    Region { start: usize, len: usize, memfd: RawFd, is_own: bool },
    /// A region of this process without a descriptor: its control page becomes a private copy, with
    /// [`FORKED_STATE`]. The ring stays shared memory, which only the peer writes.
    #[cfg(feature = "ucx")]
    ControlPage { start: usize },
    /// Memory that this process writes for its peers: becomes private zeros.
    #[cfg(any(feature = "ucx", feature = "verbs"))]
    Written { start: usize, len: usize },
    /// Memory that may be kept from children (`MADV_DONTFORK`, by `ibv_fork_init`): zeros where there is none.
    #[cfg(feature = "verbs")]
    PerhapsMissing { start: usize, len: usize },
    /// A stream socket: becomes one without a peer.
    #[cfg(feature = "tcp")]
    Stream { socket: RawFd },
    /// UCX, whose functions do nothing from then on.
    #[cfg(feature = "ucx")]
    Ucx(&'static farjump_ucx_sys::Ucx),
    /// An open RDMA device, whose queues do nothing from then on.
    #[cfg(feature = "verbs")]
    Device { context: usize },
}

/// Keeps an item in the list. Dropped before the item ends.
#[derive(Debug)]
pub(crate) struct Listed(u64);

impl Listed {
    pub(crate) fn new(item: Inherited) -> Listed {
        static WATCH: Once = Once::new();
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        // SAFETY: the functions stay as long as this library, which takes them off when it is unloaded. Without
        // memory for them, a child shares the items, and must leave them alone.
        WATCH.call_once(|| unsafe {
            libc::pthread_atfork(Some(before), Some(after_in_parent), Some(after_in_child));
        });
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        ITEMS.get().lock().unwrap_or_else(PoisonError::into_inner).push((number, item));
        Listed(number)
    }
}

impl Drop for Listed {
    fn drop(&mut self) {
        // A child's list has only what it made itself.
        let mut items = ITEMS.get().lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(index) = items.iter().position(|(number, _)| *number == self.0) {
            items.swap_remove(index);
        }
    }
}

/// Notes the items. Runs on the thread that forks, in the parent.
extern "C" fn before() {
    for _ in 0..TRIES {
        let items = match ITEMS.get().try_lock() {
            Ok(items) => items.clone(),
            Err(TryLockError::Poisoned(error)) => error.into_inner().clone(),
            Err(TryLockError::WouldBlock) => {
                std::thread::yield_now();
                continue;
            }
        };
        // A thread that is ending has no thread-local variables any more.
        let _ = AT_FORK.try_with(|noted| noted.replace(items));
        return;
    }
}

extern "C" fn after_in_parent() {
    drop(AT_FORK.try_with(RefCell::take));
}

extern "C" fn after_in_child() {
    for (_, item) in AT_FORK.try_with(RefCell::take).unwrap_or_default() {
        // SAFETY: the item was listed at the fork, so in this child all of it is as it was. The child has one thread,
        // which is here.
        unsafe { item.make_own() };
    }
}

impl Inherited {
    /// Makes it this child's own.
    ///
    /// # Safety
    /// It is inherited as it was at the fork, and this is the child's only thread.
    unsafe fn make_own(self) {
        match self {
            #[cfg(feature = "shm")]
            Inherited::Region { start, len, memfd, is_own } => {
                let flags = MapFlags::PRIVATE | MapFlags::FIXED;
                // SAFETY: the mapping and its descriptor are inherited. The new mapping has the same bytes, length and
                // protection, and ends with the region.
                let mapped = unsafe {
                    let memfd = BorrowedFd::borrow_raw(memfd);
                    rustix::mm::mmap(address(start), len, READ_WRITE, flags, memfd, 0)
                };
                if is_own && mapped.is_ok() {
                    // SAFETY: the page is this child's now.
                    unsafe { mark_forked(start) };
                }
            }
            #[cfg(feature = "ucx")]
            Inherited::ControlPage { start } => {
                let mut copy = [0_u8; PAGE];
                // SAFETY: the page is mapped. The peer may write at the same time, and no byte is relied on.
                unsafe { std::ptr::copy_nonoverlapping(address(start).cast(), copy.as_mut_ptr(), PAGE) };
                // SAFETY: the page is mapped, and the child's only thread uses nothing in it.
                if unsafe { zeros(start, PAGE, MapFlags::FIXED) } {
                    // SAFETY: the page is this child's now.
                    unsafe {
                        std::ptr::copy_nonoverlapping(copy.as_ptr(), address(start).cast(), PAGE);
                        mark_forked(start);
                    }
                }
            }
            #[cfg(any(feature = "ucx", feature = "verbs"))]
            Inherited::Written { start, len } => {
                // SAFETY: the pages are inherited, or kept from children. Nothing refers to bytes in them.
                unsafe { zeros(start, len, MapFlags::FIXED) };
            }
            #[cfg(feature = "verbs")]
            Inherited::PerhapsMissing { start, len } => {
                // SAFETY: no mapping is replaced.
                unsafe { zeros(start, len, MapFlags::FIXED_NOREPLACE) };
            }
            #[cfg(feature = "tcp")]
            Inherited::Stream { socket } => {
                let (family, kind) = (rustix::net::AddressFamily::UNIX, rustix::net::SocketType::STREAM);
                let Ok(dead) = rustix::net::socket(family, kind, None) else { return };
                // SAFETY: the number is that of the inherited socket, whose owner keeps it: it is not closed here, and stays
                // open, as another one.
                let mut socket = ManuallyDrop::new(unsafe { OwnedFd::from_raw_fd(socket) });
                // Without it the child still sends nothing (`Outbound::is_copy`).
                let _ = rustix::io::dup3(&dead, &mut socket, rustix::io::DupFlags::CLOEXEC);
            }
            #[cfg(feature = "ucx")]
            Inherited::Ucx(ucx) => {
                // SAFETY: this is the only thread, and it forked outside UCX's functions: callbacks of this crate do not
                // fork.
                unsafe { ucx.end_in_child() };
            }
            #[cfg(feature = "verbs")]
            Inherited::Device { context } => {
                // SAFETY: the context is listed while it is open.
                unsafe {
                    farjump_rdma_sys::end_in_child(std::ptr::with_exposed_provenance_mut(context));
                }
            }
        }
    }
}

/// The cause for refusing a forked child the use of its parent's link.
#[cfg(any(feature = "shm", feature = "tcp", feature = "verbs"))]
#[cold]
pub(crate) fn refused() -> Cause {
    Cause::Unsupported("using a link of the process that this one was forked from")
}

#[cfg(any(feature = "shm", feature = "ucx", feature = "verbs"))]
const READ_WRITE: ProtFlags = ProtFlags::READ.union(ProtFlags::WRITE);

#[cfg(any(feature = "shm", feature = "ucx", feature = "verbs"))]
fn address(start: usize) -> *mut std::ffi::c_void {
    std::ptr::with_exposed_provenance_mut(start)
}

/// Maps private zeros, and returns whether it has.
///
/// # Safety
/// Nothing refers to memory that the flags have it replace.
#[cfg(any(feature = "ucx", feature = "verbs"))]
unsafe fn zeros(start: usize, len: usize, flags: MapFlags) -> bool {
    // SAFETY: the caller's (see Safety).
    unsafe { rustix::mm::mmap_anonymous(address(start), len, READ_WRITE, MapFlags::PRIVATE | flags) }.is_ok()
}

/// Writes [`FORKED_STATE`] into the control page at `start`.
///
/// # Safety
/// The page is mapped, and this process's alone.
#[cfg(any(feature = "shm", feature = "ucx"))]
unsafe fn mark_forked(start: usize) {
    let (at, state) = FORKED_STATE;
    // SAFETY: the state is a word of the page (see Safety), aligned because its offset is.
    unsafe { AtomicU64::from_ptr(address(start + at).cast()) }.store(state, Ordering::Relaxed);
}
