//! The mapped data file at an address, for callers that may neither wait nor allocate: signal handlers.
//!
//! The process shares one list of entries, which only grows, like that of [`farjump_loader::address_map`]. An entry
//! belongs to one mapping at a time, and is vacant (length 0) in between. Writers take a lock; readers read only
//! atomics. A reader sees an entry change only if its address lies in a mapping that is being dropped.

use std::path::Path;
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU8, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use std::os::unix::ffi::OsStrExt;

use farjump_os::PerProcess;

/// Most bytes of a path in an entry: of a longer path, the end.
const KEPT: usize = 256;

/// The entry made last.
static LAST: AtomicPtr<Entry> = AtomicPtr::new(ptr::null_mut());
/// Entries without a mapping.
static VACANT: PerProcess<Mutex<Vec<&'static Entry>>> = PerProcess::new();

struct Entry {
    start: AtomicUsize,
    len: AtomicUsize,
    /// Ends with the first zero.
    path: [AtomicU8; KEPT],
    /// The entry made before this one. Never changes once the entry is in the list.
    before: Option<&'static Entry>,
}

/// A byte of a mapped data file.
pub(crate) struct DataByte {
    /// Its position in the file.
    pub(crate) offset: usize,
    path: [u8; KEPT],
}

impl DataByte {
    /// The path of the file, or the end of a long one.
    pub(crate) fn path(&self) -> &str {
        let len = self.path.iter().position(|&byte| byte == 0).unwrap_or(KEPT);
        self.path[..len].utf8_chunks().next().map_or("?", |chunk| chunk.valid())
    }
}

/// The byte of a data file at `address`.
///
/// Takes no lock, allocates nothing and changes nothing: a signal handler may call it (signal-safety(7)).
pub(crate) fn find(address: usize) -> Option<DataByte> {
    // Pairs with the release in `Entry::make` that added the entry.
    let mut next = last(Ordering::Acquire);
    while let Some(entry) = next {
        // Pairs with the release after the entry was filled.
        let len = entry.len.load(Ordering::Acquire);
        let offset = address.wrapping_sub(entry.start.load(Ordering::Relaxed));
        if offset < len {
            let path = std::array::from_fn(|at| entry.path[at].load(Ordering::Relaxed));
            return Some(DataByte { offset, path });
        }
        next = entry.before;
    }
    None
}

/// The entry made last.
fn last(order: Ordering) -> Option<&'static Entry> {
    // SAFETY: the pointer is null or that of a leaked box (`Entry::make`), which is valid for ever and never
    // mutably borrowed.
    unsafe { LAST.load(order).as_ref() }
}

/// Keeps one mapping in the list.
pub(crate) struct Listed(&'static Entry);

impl Listed {
    /// Lists the `len` bytes of the file at `path`, mapped at `start`.
    pub(crate) fn new(start: *const u8, len: usize, path: &Path) -> Listed {
        let vacant = VACANT.get().lock().unwrap_or_else(PoisonError::into_inner).pop();
        let entry = vacant.unwrap_or_else(Entry::make);
        entry.start.store(start.addr(), Ordering::Relaxed);
        let path = path.as_os_str().as_bytes();
        let cut = path.len() > KEPT;
        let dots = if cut { &b"..."[..] } else { b"" };
        let end = &path[path.len() - path.len().min(KEPT - dots.len())..];
        // The rest of a character whose start was cut off.
        let end = &end[end.iter().take_while(|byte| cut && **byte & 0xc0 == 0x80).count()..];
        let bytes = dots.iter().chain(end).copied().chain(std::iter::repeat(0));
        for (to, from) in entry.path.iter().zip(bytes) {
            to.store(from, Ordering::Relaxed);
        }
        // Pairs with the acquire in `find`: a reader that sees the length sees the rest.
        entry.len.store(len, Ordering::Release);
        Listed(entry)
    }
}

impl Drop for Listed {
    fn drop(&mut self) {
        self.0.len.store(0, Ordering::Release);
        VACANT.get().lock().unwrap_or_else(PoisonError::into_inner).push(self.0);
    }
}

impl Entry {
    /// Makes an entry, and adds it to the list.
    fn make() -> &'static Entry {
        let vacant = VACANT.get().lock().unwrap_or_else(PoisonError::into_inner);
        let entry: &'static Entry = Box::leak(Box::new(Entry {
            start: AtomicUsize::new(0),
            len: AtomicUsize::new(0),
            path: [const { AtomicU8::new(0) }; KEPT],
            before: last(Ordering::Relaxed),
        }));
        LAST.store(ptr::from_ref(entry).cast_mut(), Ordering::Release);
        drop(vacant);
        entry
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listed_byte_is_found_and_a_long_path_keeps_its_end() {
        let bytes = [0; 10];
        let long = format!("/{}/name", "\u{e9}".repeat(300));
        for path in ["/a/data", &long] {
            let listed = Listed::new(bytes.as_ptr(), bytes.len(), Path::new(path));
            let found = find(bytes.as_ptr().addr() + 9).unwrap();
            assert_eq!(found.offset, 9);
            match path.len() > KEPT {
                false => assert_eq!(found.path(), path),
                true => assert!(found.path().starts_with("...\u{e9}") && found.path().ends_with("/name")),
            }
            assert!(find(bytes.as_ptr().addr() + 10).is_none());
            drop(listed);
            assert!(find(bytes.as_ptr().addr()).is_none());
        }
    }
}
