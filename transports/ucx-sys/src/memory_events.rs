//! UCX's hooks in functions of the C library, and how loading does without them.
//!
//! While it loads, UCX writes jumps over the first instructions of `mmap`, `munmap`, `shmat` and others (bistro, in
//! `libucm`), to hear of memory that the program unmaps. A thread that runs one of these functions meanwhile executes a
//! part of old and a part of new instructions. On aarch64 a jump has four, and the thread calls an address that is none.
//! UCX reads `UCX_MEM_EVENTS` while it loads and from nowhere else, so the environment has it for that time, if there are
//! other threads. Without the hooks UCX keeps no registrations of memory that it has sent from.

use std::ffi::{CStr, c_char};
use std::sync::atomic::{AtomicPtr, Ordering};
use std::{env, fs, ptr};

/// The variable, and the entry that turns the hooks off.
const VARIABLE: &CStr = c"UCX_MEM_EVENTS";
const OFF: &CStr = c"UCX_MEM_EVENTS=n";

unsafe extern "C" {
    static mut environ: *mut *mut c_char;
}

/// Calls `load` while the environment turns UCX's hooks off, unless it has the variable already, or this is the only
/// thread.
pub(crate) fn without<R>(load: impl FnOnce() -> R) -> R {
    let is_set = VARIABLE.to_str().is_ok_and(|name| env::var_os(name).is_some());
    if is_set || is_only_thread() { load() } else { with_entry(load) }
}

/// Returns whether the process has one thread. `false` if the system does not show it.
fn is_only_thread() -> bool {
    fs::read_dir("/proc/self/task").is_ok_and(|tasks| tasks.count() == 1)
}

/// Calls `load` while the environment has the entry.
///
/// setenv(3) may free the list of variables while another thread reads it. So the list gets a successor by one store,
/// and both stay for the life of the process. A variable that another thread changes during that store may be lost.
fn with_entry<R>(load: impl FnOnce() -> R) -> R {
    // SAFETY: an aligned static of this type. The C library writes it by plain stores of a pointer, under its own lock,
    // as it does for programs whose threads read variables.
    let list = unsafe { AtomicPtr::from_ptr(&raw mut environ) };
    loop {
        let before = list.load(Ordering::Acquire);
        let mut entries = Vec::new();
        // SAFETY: the environment is null or a list that ends with a null pointer, and the entries read so far are not null.
        while let Some(entry) = unsafe { entry(before, entries.len()) } {
            entries.push(entry);
        }
        // Nothing writes to the text of an entry.
        entries.extend([OFF.as_ptr().cast_mut(), ptr::null_mut()]);
        let after = Box::leak(entries.into_boxed_slice()).as_mut_ptr();
        if list.compare_exchange(before, after, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
            break;
        }
    }
    let loaded = load();
    // Removes the entry in place, also from a list that another thread has made since.
    // SAFETY: the name ends with a zero.
    unsafe { libc::unsetenv(VARIABLE.as_ptr()) };
    loaded
}

/// The entry of `list` at `index`, if the list is that long.
///
/// # Safety
/// The list is null, or ends with a null pointer at `index` or later.
unsafe fn entry(list: *mut *mut c_char, index: usize) -> Option<*mut c_char> {
    if list.is_null() {
        return None;
    }
    // SAFETY: the caller guarantees it.
    let entry = unsafe { *list.add(index) };
    (!entry.is_null()).then_some(entry)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt;
    use std::sync::mpsc;
    use std::thread;

    use super::*;
    use crate::Ucx;
    use crate::open::tests::alone;

    /// The first instructions of a function, in memory and in the file that is mapped there. Another test may have loaded
    /// UCX before, so those in memory are compared with nothing else.
    fn beginnings(name: &CStr) -> [[u8; 16]; 2] {
        // SAFETY: the name ends with a zero.
        let function = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
        assert!(!function.is_null(), "{name:?}");
        // SAFETY: each function of the C library has this number of bytes, which nothing changes meanwhile.
        let in_memory = unsafe { function.cast::<[u8; 16]>().read_unaligned() };
        let (maps, mut in_file) = (fs::read_to_string("/proc/self/maps").unwrap(), [0; 16]);
        for line in maps.lines() {
            let words: Vec<_> = line.split_ascii_whitespace().collect();
            let (from, to) = words[0].split_once('-').unwrap();
            let [from, to, offset] = [from, to, words[2]].map(|text| u64::from_str_radix(text, 16).unwrap());
            if (from..to).contains(&(function.addr() as u64)) {
                let at = offset + function.addr() as u64 - from;
                fs::File::open(words[5]).unwrap().read_exact_at(&mut in_file, at).unwrap();
            }
        }
        [in_memory, in_file]
    }

    /// Starts a thread, which ends when the result is dropped.
    fn other_thread() -> mpsc::Sender<()> {
        let (sender, receiver) = mpsc::channel();
        let _running = thread::spawn(move || receiver.recv());
        sender
    }

    #[test]
    fn loading_changes_no_function_of_the_c_library() {
        let _alone = alone();
        let _other = other_thread();
        if let Err(error) = Ucx::open() {
            return println!("skipped: {error}");
        }
        for name in [c"mmap", c"munmap", c"mremap", c"shmat", c"shmdt", c"brk", c"madvise"] {
            let [in_memory, in_file] = beginnings(name);
            assert_eq!(in_memory, in_file, "{name:?}");
        }
        assert_eq!(env::var_os("UCX_MEM_EVENTS"), None);
    }

    #[test]
    fn the_variable_is_there_for_the_time_of_loading_alone() {
        let _alone = alone();
        let all = || env::vars_os().collect::<Vec<_>>();
        let before = all();
        let _other = other_thread();
        // The second one leaves the variable alone.
        let during = without(|| without(all));
        assert_eq!(during.len(), before.len() + 1);
        assert!(during.contains(&("UCX_MEM_EVENTS".into(), "n".into())));
        assert_eq!(all(), before);
    }
}
