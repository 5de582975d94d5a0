//! The links of a parent in a forked child: no use of them reaches a peer.
//!
//! A child has its parent's memory and descriptors, and so its links. It must not use them, but the code that moves
//! frames does not check that. So a fork changes the child's memory and descriptors before the child runs: each item of
//! [`Inherited`] becomes one that belongs only to the child, and on which sending fails. `docs/design/store.md` has the
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
#[cfg(feature = "ucx")]
use rustix::mm::MremapFlags;
#[cfg(any(feature = "shm", feature = "ucx", feature = "verbs"))]
use rustix::mm::{MapFlags, ProtFlags};

/// The items of this process, by number.
static ITEMS: PerProcess<Mutex<Vec<(u64, Inherited)>>> = PerProcess::new();
/// Attempts to take the lock before a fork. A holder keeps it for less than a microsecond, but a signal handler that
/// forks may have interrupted the holder.
const TRIES: usize = 1000;

thread_local! {
    /// The items at the fork that this thread makes.
    static AT_FORK: RefCell<Vec<(u64, Inherited)>> = const { RefCell::new(Vec::new()) };
}

/// A resource of a link, and its replacement in a forked child.
#[derive(Clone, Copy)]
pub(crate) enum Inherited {
    /// A region of shared memory, mapped from a memfd: becomes a private mapping of the same bytes. A function that forked
    /// may still read its payload there. The state of the peer in this process's own region becomes [`FORKED_STATE`],
    /// so that sending the first frame in the child wakes the peer, which fails.
    #[cfg(feature = "shm")]
    Region { start: usize, len: usize, memfd: RawFd, is_own: bool },
    /// A region of this process without a descriptor, from the start of a page of the system: the page with its control page
    /// becomes a private copy, with [`FORKED_STATE`]. The ring behind stays shared memory, which only the peer writes.
    #[cfg(feature = "ucx")]
    ControlPage { start: usize },
    /// Memory that this process writes for its peers: becomes private zeroes.
    #[cfg(any(feature = "ucx", feature = "verbs"))]
    Written { start: usize, len: usize },
    /// Memory that children may lack (`MADV_DONTFORK`, by `ibv_fork_init`): becomes zeroes where it is missing.
    #[cfg(feature = "verbs")]
    PerhapsMissing { start: usize, len: usize },
    /// A stream socket: becomes one without a peer.
    #[cfg(feature = "tcp")]
    Stream { socket: RawFd },
    /// UCX, whose functions then do nothing.
    #[cfg(feature = "ucx")]
    Ucx(&'static farjump_ucx_sys::Ucx),
    /// An open RDMA device, whose queues then do nothing.
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
        // SAFETY: the functions exist as long as this library, whose unloading unregisters them. Without memory for
        // their registration, a child shares the items, and must not use them.
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
        // A child's list has only its own items.
        let mut items = ITEMS.get().lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(index) = items.iter().position(|(number, _)| *number == self.0) {
            items.swap_remove(index);
        }
    }
}

/// Records the items. Runs on the thread that forks, in the parent.
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
        // An ending thread may have dropped its thread-local variables.
        let _ = AT_FORK.try_with(|noted| noted.replace(items));
        return;
    }
}

extern "C" fn after_in_parent() {
    drop(AT_FORK.try_with(RefCell::take));
}

extern "C" fn after_in_child() {
    for (_, item) in AT_FORK.try_with(RefCell::take).unwrap_or_default() {
        // SAFETY: the item was listed at the fork, so all of it is unchanged in this child. The child has one thread,
        // which is here.
        unsafe { item.make_own() };
    }
}

impl Inherited {
    /// Gives this child its own copy of the item.
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
                    // SAFETY: the page is this child's: the mapping above replaced it.
                    unsafe { mark_forked(start) };
                }
            }
            #[cfg(feature = "ucx")]
            Inherited::ControlPage { start } => {
                let page = rustix::param::page_size();
                // SAFETY: the system chooses an unused address.
                let copy = unsafe {
                    rustix::mm::mmap_anonymous(std::ptr::null_mut(), page, READ_WRITE, MapFlags::PRIVATE)
                };
                let Ok(copy) = copy else { return };
                // SAFETY: both pages are mapped. The peer may write to its page at the same time, and nothing relies on
                // any byte. The copy then replaces the page, which the child's only thread does not use, and belongs to
                // this child.
                unsafe {
                    std::ptr::copy_nonoverlapping(address(start).cast::<u8>(), copy.cast(), page);
                    mark_forked(copy.expose_provenance());
                    let _ = rustix::mm::mremap_fixed(copy, page, page, MremapFlags::MAYMOVE, address(start));
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
                // If this fails, the child still sends nothing (`Outbound::is_copy`).
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

/// The cause of a failed use of a parent's link in a forked child.
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

/// Maps private zeroes. If the system has no memory, the earlier mapping stays.
///
/// # Safety
/// Nothing refers to memory that the flags make this call replace.
#[cfg(any(feature = "ucx", feature = "verbs"))]
unsafe fn zeros(start: usize, len: usize, flags: MapFlags) {
    // SAFETY: the caller's (see Safety).
    let _ = unsafe { rustix::mm::mmap_anonymous(address(start), len, READ_WRITE, MapFlags::PRIVATE | flags) };
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
