//! A stack for the handler, so that code that has exhausted its own stack is reported too.

use std::ffi::c_void;
use std::mem::MaybeUninit;
use std::ptr::{self, NonNull};

use rustix::io::Errno;
use rustix::mm::{MapFlags, MprotectFlags, ProtFlags, mmap_anonymous, mprotect, munmap};

/// Space for our handler, the one behind it, and the registers that the system saves.
const LEN: usize = 64 * 1024;
/// Guard below the stack, never mapped: at least a page everywhere.
const GUARD: usize = 64 * 1024;

thread_local! {
    static STACK: Option<AlternateStack> = AlternateStack::for_this_thread();
}

/// Gives this thread an alternate stack unless it has one of this length. Those of Rust's standard library have a few
/// pages, which is too little for a handler that was compiled without optimisation.
pub(super) fn prepare_thread() {
    // A thread that is ending needs none.
    let _ = STACK.try_with(|_| ());
}

/// An alternate stack. Unmapped, and taken from its thread, when dropped on that thread.
struct AlternateStack(NonNull<c_void>);

impl AlternateStack {
    fn for_this_thread() -> Option<AlternateStack> {
        let own = current()?;
        let runs_on_it = own.ss_flags & libc::SS_ONSTACK != 0;
        if runs_on_it || own.ss_flags & libc::SS_DISABLE == 0 && own.ss_size >= LEN {
            return None;
        }
        match AlternateStack::new() {
            Ok(stack) => Some(stack),
            Err(error) => {
                log::debug!("a stack overflow of injected code would not be reported: {error}");
                None
            }
        }
    }

    fn new() -> Result<AlternateStack, Errno> {
        // SAFETY: the system chooses an unused address.
        let start =
            unsafe { mmap_anonymous(ptr::null_mut(), GUARD + LEN, ProtFlags::empty(), MapFlags::PRIVATE) }?;
        let stack = AlternateStack(NonNull::new(start).ok_or(Errno::NOMEM)?);
        let top = stack.top();
        // SAFETY: these `LEN` bytes are the end of the mapping just made, which nothing uses yet.
        unsafe { mprotect(top, LEN, MprotectFlags::READ | MprotectFlags::WRITE) }?;
        let asked = libc::stack_t { ss_sp: top, ss_flags: 0, ss_size: LEN };
        // SAFETY: the memory stays mapped and unused by others until the value is dropped, which first takes
        // it from the thread.
        match unsafe { libc::sigaltstack(&raw const asked, ptr::null_mut()) } {
            0 => Ok(stack),
            _ => Err(Errno::INVAL),
        }
    }

    /// Start of the usable part.
    fn top(&self) -> *mut c_void {
        self.0.as_ptr().wrapping_byte_add(GUARD)
    }
}

impl Drop for AlternateStack {
    fn drop(&mut self) {
        if current().is_some_and(|stack| stack.ss_sp == self.top()) {
            let none = libc::stack_t { ss_sp: ptr::null_mut(), ss_flags: libc::SS_DISABLE, ss_size: LEN };
            // SAFETY: the thread, which is this one, ends, and uses no alternate stack from now on. Its earlier one may
            // be gone, so this does not restore it.
            unsafe { libc::sigaltstack(&raw const none, ptr::null_mut()) };
        }
        // SAFETY: the mapping is this value's alone, and no thread runs on it: `sigaltstack` has just
        // disabled it.
        let _ = unsafe { munmap(self.0.as_ptr(), GUARD + LEN) };
    }
}

/// The alternate stack of this thread, which may be none.
fn current() -> Option<libc::stack_t> {
    let mut found = MaybeUninit::uninit();
    // SAFETY: without a new stack the call only writes the present one, which is all of it when it returns 0.
    unsafe { (libc::sigaltstack(ptr::null(), found.as_mut_ptr()) == 0).then(|| found.assume_init()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_without_an_adequate_alternate_stack_gets_one_until_drop() {
        let short: fn() = || {
            let before = current().unwrap();
            assert!(
                before.ss_flags & libc::SS_DISABLE == 0 && before.ss_size < LEN,
                "the standard library made it"
            );
        };
        let missing = || {
            let none = libc::stack_t { ss_sp: ptr::null_mut(), ss_flags: libc::SS_DISABLE, ss_size: 0 };
            // SAFETY: no handler runs on it now, and none needs it until the thread ends.
            assert_eq!(unsafe { libc::sigaltstack(&raw const none, ptr::null_mut()) }, 0);
        };
        for prepare in [short, missing] {
            std::thread::spawn(move || {
                prepare();
                let stack = AlternateStack::for_this_thread().unwrap();
                let ours = current().unwrap();
                assert_eq!((ours.ss_flags, ours.ss_size, ours.ss_sp), (0, LEN, stack.top()));
                assert!(AlternateStack::for_this_thread().is_none(), "it has one");
                drop(stack);
                assert_ne!(current().unwrap().ss_flags & libc::SS_DISABLE, 0);
            })
            .join()
            .unwrap();
        }
    }
}
