//! Regions in forked children: a child gets private mappings, so nothing that it writes reaches a peer.
//!
//! A child has its parent's links, and must take no part in them. Their memory stays readable there, because a
//! function that forked may still read its payload.

use std::cell::RefCell;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::sync::{Mutex, Once, PoisonError, TryLockError};

use farjump_os::PerProcess;
use memmap2::MmapRaw;
use rustix::mm::{MapFlags, ProtFlags};

/// The mapped regions of this process.
static REGIONS: PerProcess<Mutex<Vec<Mapped>>> = PerProcess::new();
/// Times that the lock is tried before a fork. It is held for less than a microsecond at a time; but a signal
/// handler that forks may have interrupted its holder.
const TRIES: usize = 1000;

thread_local! {
    /// The regions at the fork that this thread makes.
    static AT_FORK: RefCell<Vec<Mapped>> = const { RefCell::new(Vec::new()) };
}

#[derive(Clone, Copy)]
struct Mapped {
    start: usize,
    len: usize,
    memfd: RawFd,
}

/// Keeps a region in the list. Dropped before the mapping and the descriptor.
pub(super) struct Listed(usize);

impl Listed {
    pub(super) fn new(map: &MmapRaw, memfd: BorrowedFd<'_>) -> Listed {
        static WATCH: Once = Once::new();
        // SAFETY: the functions stay as long as this library, which takes them off when it is unloaded. Without
        // memory for them, a child shares the regions, and must leave them alone.
        WATCH.call_once(|| unsafe {
            libc::pthread_atfork(Some(before), Some(after_in_parent), Some(after_in_child));
        });
        let start = map.as_ptr().expose_provenance();
        let mapped = Mapped { start, len: map.len(), memfd: memfd.as_fd().as_raw_fd() };
        REGIONS.get().lock().unwrap_or_else(PoisonError::into_inner).push(mapped);
        Listed(start)
    }
}

impl Drop for Listed {
    fn drop(&mut self) {
        // A child's list has only what it mapped itself.
        let mut regions = REGIONS.get().lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(index) = regions.iter().position(|region| region.start == self.0) {
            regions.swap_remove(index);
        }
    }
}

/// Notes the regions. Runs on the thread that forks, in the parent.
extern "C" fn before() {
    for _ in 0..TRIES {
        let regions = match REGIONS.get().try_lock() {
            Ok(regions) => regions.clone(),
            Err(TryLockError::Poisoned(error)) => error.into_inner().clone(),
            Err(TryLockError::WouldBlock) => {
                std::thread::yield_now();
                continue;
            }
        };
        // A thread that is ending has no thread-local variables any more.
        let _ = AT_FORK.try_with(|noted| noted.replace(regions));
        return;
    }
}

extern "C" fn after_in_parent() {
    drop(AT_FORK.try_with(RefCell::take));
}

/// Replaces each region by a private mapping of the same memory.
extern "C" fn after_in_child() {
    for Mapped { start, len, memfd } in AT_FORK.try_with(RefCell::take).unwrap_or_default() {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: the region was listed at the fork, so in this child its mapping and its descriptor are as they
        // were. The child has one thread, which is here. The new mapping has the same bytes, length and
        // protection, and ends with the region.
        let _ = unsafe {
            let memfd = BorrowedFd::borrow_raw(memfd);
            let flags = MapFlags::PRIVATE | MapFlags::FIXED;
            rustix::mm::mmap(std::ptr::with_exposed_provenance_mut(start), len, protection, flags, memfd, 0)
        };
    }
}
