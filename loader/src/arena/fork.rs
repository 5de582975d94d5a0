//! Arenas in forked children: a child keeps the code and statics as they were at the fork, in its own memory.
//!
//! The code of an arena is shared memory, and would stay shared with the child: the parent places other code
//! there, and turns dropped code into traps. So no mapping of it reaches a child. Handlers of fork(3) copy the
//! used part before the fork, and move the copy to the address of the code in the child. Statics are private
//! memory, which a child has anyway; so is the code of an arena for debuggers.

use std::cell::RefCell;
use std::sync::{Arc, Mutex, MutexGuard, Once, TryLockError, Weak};

use farjump_os::PerProcess;
use rustix::mm::{MapFlags, MprotectFlags, MremapFlags, ProtFlags};

use super::memory::{Mapping, Memory, address};
use crate::arena::layout::GRANULE;

/// The arenas that this process made.
static ARENAS: PerProcess<Mutex<Vec<Weak<Memory>>>> = PerProcess::new();

/// Attempts to take a lock before a fork. A holder keeps it for less than a microsecond, but a signal handler that
/// forks may have interrupted the holder.
const TRIES: usize = 1000;

thread_local! {
    /// Copies for the child of the fork that this thread makes.
    static COPIES: RefCell<Vec<Copied>> = const { RefCell::new(Vec::new()) };
}

struct Copied {
    memory: Arc<Memory>,
    /// Readable and executable; `None` if the child has the code itself.
    code: Option<Mapping>,
}

/// Makes forked children keep the code of this arena.
pub(super) fn keep(memory: &Arc<Memory>) {
    static WATCH: Once = Once::new();
    // SAFETY: the functions exist as long as this library, whose unloading unregisters them. They do only what fork
    // handlers may do, see each. Without memory for them, children have no code.
    WATCH.call_once(|| unsafe {
        libc::pthread_atfork(Some(before), Some(after_in_parent), Some(after_in_child));
    });
    let mut arenas = ARENAS.get().lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    arenas.retain(|arena| arena.strong_count() > 0);
    arenas.push(Arc::downgrade(memory));
}

/// Copies the used code of each arena. Runs on the thread that forks, in the parent.
extern "C" fn before() {
    let Some(arenas) = lock(ARENAS.get()) else { return };
    let copies = arenas.iter().filter_map(Weak::upgrade).filter_map(copy).collect();
    drop(arenas);
    // An ending thread may have dropped its thread-local variables.
    let _ = COPIES.try_with(|place| place.replace(copies));
}

extern "C" fn after_in_parent() {
    let copies = COPIES.try_with(RefCell::take);
    drop(copies);
}

/// Moves the copies to the addresses of the code. Takes no lock: another thread may have held it at the fork.
extern "C" fn after_in_child() {
    for copied in COPIES.try_with(RefCell::take).unwrap_or_default() {
        place(copied);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> Option<MutexGuard<'_, T>> {
    (0..TRIES).find_map(|_| match mutex.try_lock() {
        Ok(guard) => Some(guard),
        Err(TryLockError::Poisoned(error)) => Some(error.into_inner()),
        Err(TryLockError::WouldBlock) => {
            std::thread::yield_now();
            None
        }
    })
}

/// A copy of all code ever used. `None` if there is none, or no memory for the copy.
fn copy(memory: Arc<Memory>) -> Option<Copied> {
    if !memory.is_ours() {
        return None;
    }
    let Some(alias) = memory.writable_alias.as_ref().map(|alias| alias.start) else {
        return Some(Copied { memory, code: None });
    };
    let used = lock(&memory.free)?.high_water().next_multiple_of(GRANULE).min(memory.len);
    if used == 0 {
        return None;
    }
    let code = Mapping::new(used, ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE).ok()?;
    // SAFETY: both are mapped for `used` bytes, and only the copy is written. Another thread may be placing code at the
    // same time; then the copy has arbitrary bytes there, which nothing in the child calls: that thread is not in it.
    unsafe { alias.copy_to_nonoverlapping(code.start, used) };
    // SAFETY: the copy belongs to this function, and no reference into it exists.
    unsafe { rustix::mm::mprotect(address(code.start), used, MprotectFlags::READ | MprotectFlags::EXEC) }
        .ok()?;
    Some(Copied { memory, code: Some(code) })
}

/// Puts the copy where the code was, if the child has nothing else there yet.
fn place(copied: Copied) {
    let Copied { memory, code } = copied;
    let Some(code) = code else { return memory.has_copy() };
    let at = address(memory.reservation.start);
    // SAFETY: the flag keeps existing mappings, and a child has none of this arena's code.
    let free = unsafe {
        let reserve = MapFlags::PRIVATE | MapFlags::NORESERVE | MapFlags::FIXED_NOREPLACE;
        rustix::mm::mmap_anonymous(at, memory.len, ProtFlags::empty(), reserve)
    };
    // Kernels before 4.17 do not know the flag, and map elsewhere.
    if free.is_ok_and(|start| start == at) {
        // SAFETY: the copy belongs to this function, and replaces the start of the reservation `free`, made just above.
        let moved = unsafe {
            rustix::mm::mremap_fixed(address(code.start), code.len, code.len, MremapFlags::MAYMOVE, at)
        };
        if moved.is_ok() {
            std::mem::forget(code);
            memory.has_copy();
        }
    }
}
