//! A mapped file that another process cuts: the pages behind its new end are gone, and reading one is a fault (mmap(2),
//! SIGBUS). So is reading a page that the system cannot read. The handler here puts zeros there, so that the reader
//! continues. It records the fault, so that the reader does not trust the bytes.

use std::ffi::{c_int, c_void};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::NonNull;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicUsize, Ordering};

/// The mapping of this process, of which there is one: start, length, file, and the length of a page.
static START: AtomicUsize = AtomicUsize::new(0);
static LEN: AtomicUsize = AtomicUsize::new(0);
static FILE: AtomicI32 = AtomicI32::new(-1);
static PAGE: AtomicUsize = AtomicUsize::new(0);
static IS_TAKEN: AtomicBool = AtomicBool::new(false);
/// True if bytes of it were missing, behind the file's end or elsewhere.
static WAS_MISSING: AtomicBool = AtomicBool::new(false);
/// The process's action for the signal before the first mapping.
static BEFORE: OnceLock<libc::sigaction> = OnceLock::new();

/// Watches the mapping, until it is dropped.
#[derive(Debug)]
pub(crate) struct Watch(());

impl Watch {
    /// Watches `len` bytes at `start`, a mapping of `file` from its start on.
    ///
    /// # Errors
    /// Another one is watched in this process, or the system takes no handler.
    ///
    /// # Safety
    /// The mapping and the file stay until this is dropped. Nothing writes the mapping or relies on its bytes: a page that is missing
    /// is replaced by zeros.
    pub(crate) unsafe fn begin(start: NonNull<u8>, len: usize, file: BorrowedFd<'_>) -> io::Result<Watch> {
        if IS_TAKEN.swap(true, Ordering::AcqRel) {
            return Err(io::Error::other("this process has mapped a table already"));
        }
        let watch = Watch(());
        WAS_MISSING.store(false, Ordering::Relaxed);
        LEN.store(len, Ordering::Relaxed);
        FILE.store(file.as_raw_fd(), Ordering::Relaxed);
        PAGE.store(rustix::param::page_size(), Ordering::Relaxed);
        START.store(start.as_ptr().expose_provenance(), Ordering::Release);
        let mut action = default_action();
        action.sa_sigaction = handle as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
        let mut before = default_action();
        // SAFETY: both are locals. The handler touches this module's statics alone, and makes system calls that take no lock of this
        // process (fstat, mmap, sigaction, raise).
        if unsafe { libc::sigaction(libc::SIGBUS, &raw const action, &raw mut before) } != 0 {
            return Err(io::Error::last_os_error());
        }
        if before.sa_sigaction != action.sa_sigaction {
            // An action recorded for an earlier mapping stays: the process's own cannot be distinguished from another
            // one's.
            let _ = BEFORE.set(before);
        }
        Ok(watch)
    }

    /// Returns whether bytes were missing so far, and were read as zeros.
    pub(crate) fn were_missing(&self) -> bool {
        WAS_MISSING.load(Ordering::Acquire)
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        START.store(0, Ordering::Release);
        IS_TAKEN.store(false, Ordering::Release);
    }
}

/// Returns the action of a process that has set none: the process ends.
fn default_action() -> libc::sigaction {
    // SAFETY: zero is valid for all fields, an empty mask and `SIG_DFL` among them.
    unsafe { MaybeUninit::zeroed().assume_init() }
}

extern "C" fn handle(_signal: c_int, info: *const libc::siginfo_t, _context: *const c_void) {
    // SAFETY: the system passes the information of a signal with SA_SIGINFO.
    let (address, is_fault) = unsafe { ((*info).si_addr().addr(), (*info).si_code > 0) };
    let start = START.load(Ordering::Acquire);
    let end = start.saturating_add(LEN.load(Ordering::Relaxed));
    if start == 0 || !is_fault || !(start..end).contains(&address) {
        // The earlier action gets the signal: a fault at the next try, another process's signal when this has returned.
        let before = BEFORE.get().copied().unwrap_or_else(default_action);
        // SAFETY: the action is a local, and one that was in force or the default one.
        unsafe {
            libc::sigaction(libc::SIGBUS, &raw const before, std::ptr::null_mut());
            if !is_fault {
                libc::raise(libc::SIGBUS);
            }
        }
        return;
    }
    WAS_MISSING.store(true, Ordering::Release);
    let page_len = PAGE.load(Ordering::Relaxed);
    let page = address & !(page_len - 1);
    let mut status = MaybeUninit::<libc::stat>::uninit();
    // SAFETY: the file stays open while it is watched, and `status` is a local for the result.
    let is_behind = unsafe {
        libc::fstat(FILE.load(Ordering::Relaxed), status.as_mut_ptr()) == 0
            && usize::try_from(status.assume_init().st_size).is_ok_and(|size| page - start >= size)
    };
    // All that is behind the file's end is missing; elsewhere one page.
    let len = if is_behind { end - page } else { page_len };
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
    let at = std::ptr::with_exposed_provenance_mut(page);
    // SAFETY: pages of the watched mapping, which nothing writes and whose bytes nothing relies on (`Watch::begin`).
    if unsafe { libc::mmap(at, len, libc::PROT_READ, flags, -1, 0) } == libc::MAP_FAILED {
        // The reader cannot continue.
        // SAFETY: it may be called in a handler.
        unsafe { libc::abort() };
    }
}
