//! GDB's JIT interface ("JIT Compilation Interface" in its manual): a list of ELF files in memory, and a
//! function in which debuggers keep a breakpoint, called after each change of the list.
//!
//! Debuggers find both by their names in the symbol table of the program or library that contains this crate. The names
//! are weak: a program with its own definitions still links, and keeps them. farjump reaches the list by its own names,
//! so that no two owners ever change one list.

use std::arch::global_asm;
use std::hint::black_box;
use std::ptr::{self, NonNull};
use std::sync::{Mutex, PoisonError};

use farjump_os::PerProcess;

global_asm!(
    ".pushsection .text.farjump_jit_changed,\"ax\",@progbits",
    ".globl farjump_jit_changed",
    ".hidden farjump_jit_changed",
    ".type farjump_jit_changed,@function",
    ".weak __jit_debug_register_code",
    ".hidden __jit_debug_register_code",
    ".type __jit_debug_register_code,@function",
    "farjump_jit_changed:",
    "__jit_debug_register_code:",
    "ret",
    ".size farjump_jit_changed,.-farjump_jit_changed",
    ".size __jit_debug_register_code,.-__jit_debug_register_code",
    ".popsection",
    ".pushsection .data.farjump_jit_list,\"aw\",@progbits",
    ".balign 8",
    ".globl farjump_jit_list",
    ".hidden farjump_jit_list",
    ".type farjump_jit_list,@object",
    ".weak __jit_debug_descriptor",
    ".hidden __jit_debug_descriptor",
    ".type __jit_debug_descriptor,@object",
    "farjump_jit_list:",
    "__jit_debug_descriptor:",
    // Version 1, no action, no entries.
    ".long 1, 0",
    ".quad 0, 0",
    ".size farjump_jit_list,.-farjump_jit_list",
    ".size __jit_debug_descriptor,.-__jit_debug_descriptor",
    ".popsection",
);

unsafe extern "C" {
    fn farjump_jit_changed();
    static mut farjump_jit_list: List;
    static mut __jit_debug_descriptor: List;
}

/// `struct jit_descriptor`.
#[repr(C)]
struct List {
    version: u32,
    action: u32,
    changed: *mut Entry,
    first: *mut Entry,
}

/// `struct jit_code_entry`.
#[repr(C)]
struct Entry {
    next: *mut Entry,
    previous: *mut Entry,
    file: *const u8,
    file_len: u64,
}

/// `JIT_REGISTER_FN` and `JIT_UNREGISTER_FN`.
const REGISTER: u32 = 1;
const UNREGISTER: u32 = 2;

/// Guards the list: its head, its entries, and the announcement.
static LOCK: PerProcess<Mutex<()>> = PerProcess::new();

/// Keeps one ELF file in the list.
pub(super) struct Registration {
    entry: NonNull<Entry>,
    _file: Box<[u8]>,
}

// SAFETY: all access to the entry is under the lock, and no thread owns it.
unsafe impl Send for Registration {}
// SAFETY: a shared registration does nothing.
unsafe impl Sync for Registration {}

impl Registration {
    /// Adds `file`, and notifies an attached debugger.
    pub(super) fn new(file: Box<[u8]>) -> Registration {
        let entry = Box::new(Entry {
            next: ptr::null_mut(),
            previous: ptr::null_mut(),
            file: file.as_ptr(),
            file_len: file.len() as u64,
        });
        let entry = NonNull::from(Box::leak(entry));
        let _lock = LOCK.get().lock().unwrap_or_else(PoisonError::into_inner);
        let list = &raw mut farjump_jit_list;
        // SAFETY: the lock is held, and every use of the list and of its entries takes it. Entries in the list are
        // alive: `drop` removes them before it frees them.
        unsafe {
            let first = (*list).first;
            (*entry.as_ptr()).next = first;
            if let Some(first) = first.as_mut() {
                first.previous = entry.as_ptr();
            }
            (*list).first = entry.as_ptr();
            announce(REGISTER, entry);
        }
        Registration { entry, _file: file }
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        let _lock = LOCK.get().lock().unwrap_or_else(PoisonError::into_inner);
        let list = &raw mut farjump_jit_list;
        // SAFETY: the lock is held, as in `new`. This entry is in the list, and came from a box in `new`; it is freed
        // once, after the debugger has released it and the file.
        unsafe {
            let Entry { next, previous, .. } = *self.entry.as_ptr();
            match previous.as_mut() {
                Some(previous) => previous.next = next,
                None => (*list).first = next,
            }
            if let Some(next) = next.as_mut() {
                next.previous = previous;
            }
            announce(UNREGISTER, self.entry);
            drop(Box::from_raw(self.entry.as_ptr()));
        }
    }
}

/// Notifies a debugger of the change of `entry`: the debugger stops this process in the function and reads the list.
///
/// # Safety
/// [`LOCK`] is held.
unsafe fn announce(action: u32, entry: NonNull<Entry>) {
    let list = &raw mut farjump_jit_list;
    // SAFETY: the caller holds the lock. Volatile, because only another process reads these words. The
    // function returns and does nothing else.
    unsafe {
        (&raw mut (*list).action).write_volatile(action);
        (&raw mut (*list).changed).write_volatile(entry.as_ptr());
        farjump_jit_changed();
        (&raw mut (*list).action).write_volatile(0);
        (&raw mut (*list).changed).write_volatile(ptr::null_mut());
    }
}

/// Returns whether the list that debuggers find is the one that [`Registration`] changes.
pub(super) fn is_ours() -> bool {
    // Two names of one address, which the compiler regards as two objects.
    let list = black_box(&raw const farjump_jit_list);
    ptr::eq(list, black_box(&raw const __jit_debug_descriptor))
}
