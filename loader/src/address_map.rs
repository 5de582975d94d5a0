//! The code at an address, for callers that may neither wait nor allocate: signal handlers.
//!
//! A list of entries that only grows and is shared by the process. An entry belongs to the listing of one
//! image at a time, and is vacant (length 0) in between. Writers take a lock; readers read only atomics.
//!
//! An entry does not change while a reader finds it by an address in code that is kept alive, as running code
//! is ([`crate::store::LinkedImage`]). An address left over from dropped code may hit an entry that is being
//! filled. The result may then mix two images, and nothing worse.

use std::fmt;
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU8, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use farjump_core::image::CodeId;
use farjump_os::PerProcess;

use crate::library::bundle::MAX_NAME;

/// The entry made last.
static LAST: AtomicPtr<Entry> = AtomicPtr::new(ptr::null_mut());
/// Entries without a listing.
static VACANT: PerProcess<Mutex<Vec<&'static Entry>>> = PerProcess::new();

struct Entry {
    start: AtomicU64,
    len: AtomicU64,
    id: [AtomicU8; 16],
    /// Ends with the first zero.
    name: [AtomicU8; MAX_NAME],
    /// The entry made before this one. Never changes once the entry is in the list.
    before: AtomicPtr<Entry>,
}

/// The code at an address.
#[derive(Clone)]
pub struct Found {
    /// Start address of span 1.
    pub start: u64,
    /// Length of span 1 in bytes.
    pub len: u64,
    /// Code id.
    pub id: CodeId,
    name: [u8; MAX_NAME],
}

impl Found {
    /// The name under which the image first arrived.
    pub fn name(&self) -> &str {
        let len = self.name.iter().position(|&byte| byte == 0).unwrap_or(MAX_NAME);
        // Names are ASCII.
        std::str::from_utf8(&self.name[..len]).unwrap_or("?")
    }
}

impl fmt::Debug for Found {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Found")
            .field("name", &self.name())
            .field("id", &self.id)
            .field("start", &format_args!("{:#x}", self.start))
            .field("len", &self.len)
            .finish()
    }
}

/// The listed code whose span 1 contains `address`.
///
/// Takes no lock, allocates nothing and changes nothing: a signal handler may call it (signal-safety(7)).
pub fn find(address: u64) -> Option<Found> {
    // Pairs with the release in `Listing::new` that added the entry.
    let mut next = LAST.load(Ordering::Acquire);
    // SAFETY: entries are leaked boxes, so the list's pointers are valid for ever and never mutably borrowed.
    while let Some(entry) = unsafe { next.as_ref() } {
        // Pairs with the release after the entry was filled.
        let len = entry.len.load(Ordering::Acquire);
        let start = entry.start.load(Ordering::Relaxed);
        if address.wrapping_sub(start) < len {
            return Some(Found {
                start,
                len,
                id: CodeId(std::array::from_fn(|at| entry.id[at].load(Ordering::Relaxed))),
                name: std::array::from_fn(|at| entry.name[at].load(Ordering::Relaxed)),
            });
        }
        next = entry.before.load(Ordering::Relaxed);
    }
    None
}

/// Keeps one image in the directory. Its owner keeps the code alive at least as long.
pub(crate) struct Listing(&'static Entry);

impl Listing {
    /// Lists `len` bytes of code at `start`. `name` has at most [`MAX_NAME`] bytes, none of them zero.
    pub(crate) fn new(start: u64, len: u64, id: CodeId, name: &str) -> Listing {
        let vacant = VACANT.get().lock().unwrap_or_else(PoisonError::into_inner).pop();
        let entry = vacant.unwrap_or_else(Entry::make);
        entry.start.store(start, Ordering::Relaxed);
        for (to, from) in entry.id.iter().zip(id.0) {
            to.store(from, Ordering::Relaxed);
        }
        for (to, from) in entry.name.iter().zip(name.bytes().chain(std::iter::repeat(0))) {
            to.store(from, Ordering::Relaxed);
        }
        // Pairs with the acquire in `find`: a reader that sees the length sees the rest.
        entry.len.store(len, Ordering::Release);
        Listing(entry)
    }

    /// Lists `len` bytes at `start` in place of the previous ones; nothing if `len` is 0. For the one thread
    /// that runs this code: another thread may find the old start with the new length.
    pub(crate) fn move_to(&self, start: u64, len: u64) {
        self.0.len.store(0, Ordering::Release);
        self.0.start.store(start, Ordering::Release);
        self.0.len.store(len, Ordering::Release);
    }
}

impl Drop for Listing {
    fn drop(&mut self) {
        self.0.len.store(0, Ordering::Release);
        VACANT.get().lock().unwrap_or_else(PoisonError::into_inner).push(self.0);
    }
}

impl fmt::Debug for Listing {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("Listing")
    }
}

impl Entry {
    /// Adds a vacant entry to the list.
    fn make() -> &'static Entry {
        let entry: &'static Entry = Box::leak(Box::new(Entry {
            start: AtomicU64::new(0),
            len: AtomicU64::new(0),
            id: [const { AtomicU8::new(0) }; 16],
            name: [const { AtomicU8::new(0) }; MAX_NAME],
            before: AtomicPtr::new(ptr::null_mut()),
        }));
        let this = ptr::from_ref(entry).cast_mut();
        let mut before = LAST.load(Ordering::Relaxed);
        loop {
            entry.before.store(before, Ordering::Relaxed);
            // Release, paired with the acquire in `find`: a reader that sees the entry sees its initial
            // contents.
            match LAST.compare_exchange_weak(before, this, Ordering::Release, Ordering::Relaxed) {
                Ok(_) => return entry,
                Err(other) => before = other,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Addresses used only by these tests: the directory is shared by the process, and tests run in parallel.
    const HERE: u64 = 0x10_0000;

    #[test]
    fn listed_code_is_found_by_exactly_its_own_addresses() {
        let listing = Listing::new(HERE, 64, CodeId([7; 16]), "first");
        let found = find(HERE).unwrap();
        assert_eq!((found.name(), found.id, found.start, found.len), ("first", CodeId([7; 16]), HERE, 64));
        assert_eq!(find(HERE + 63).unwrap().name(), "first");
        assert!(find(HERE + 64).is_none() && find(HERE - 1).is_none() && find(0).is_none());
        drop(listing);
        assert!(find(HERE).is_none());
    }

    #[test]
    fn an_entry_is_used_again_and_keeps_nothing_of_the_last_name() {
        let at = HERE * 2;
        drop(Listing::new(at, 8, CodeId([1; 16]), &"x".repeat(MAX_NAME)));
        for round in 0..1000_u64 {
            let listing = Listing::new(at + round, 1, CodeId([2; 16]), "y");
            assert_eq!(find(at + round).unwrap().name(), "y");
            drop(listing);
        }
        let long = "z".repeat(MAX_NAME);
        let listing = Listing::new(at, 8, CodeId([1; 16]), &long);
        assert_eq!(find(at).unwrap().name(), long);
        drop(listing);
        let mut entries = 0;
        let mut next = LAST.load(Ordering::Acquire);
        // SAFETY: entries are leaked boxes, so the list's pointers are valid for ever and never mutably
        // borrowed.
        while let Some(entry) = unsafe { next.as_ref() } {
            entries += 1;
            next = entry.before.load(Ordering::Relaxed);
        }
        assert!(entries < 200, "{entries} entries for a few at a time");
    }

    #[test]
    fn moved_code_is_found_at_its_new_address_alone() {
        let at = HERE * 3;
        let listing = Listing::new(0, 0, CodeId([5; 16]), "moving");
        assert!(find(0).is_none());
        for start in [at, at + 64, at + 1024] {
            listing.move_to(start, 32);
            assert_eq!((find(start + 31).unwrap().name(), find(start).unwrap().start), ("moving", start));
            assert!(find(start + 32).is_none() && find(start - 1).is_none());
        }
        listing.move_to(0, 0);
        assert!(find(at + 1024).is_none() && find(0).is_none());
    }

    #[test]
    fn many_threads_find_their_own() {
        std::thread::scope(|scope| {
            for thread in 0..4_u64 {
                scope.spawn(move || {
                    let (at, name) = (HERE * (10 + thread), format!("thread{thread}"));
                    for _ in 0..1000 {
                        let listings =
                            [0, 64, 128].map(|offset| Listing::new(at + offset, 64, CodeId([3; 16]), &name));
                        assert_eq!(find(at + 100).unwrap().name(), name);
                        drop(listings);
                        assert!(find(at + 100).is_none());
                    }
                });
            }
        });
    }
}
