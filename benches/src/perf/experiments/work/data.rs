//! The target's data, in memory that the source may reach, and its description for injected code.
//!
//! ```text
//! 0     how many calls the source made without the target, if it works itself
//! 64    the table: for each key where its bytes go (from the start of the memory) and how many there is space for, 8 bytes each
//! 4096  what is worked on: rows of 8 bytes, data, or space for what is written
//! ```

use std::cell::Cell;
use std::ffi::{c_char, c_int, c_void};
use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering};

use super::functions::{AREA, Function, ROWS, noise, row, slot_at};
use super::resident::Query;
use crate::program::failure::Failure;

/// Offset of the count of calls.
pub(super) const CALLS: usize = 0;
/// Offset of the table, number of keys, and length of an entry.
pub(super) const TABLE: usize = 64;
const KEYS: u64 = 16;
pub(super) const ENTRY: usize = 16;
const PAGE: usize = 4096;

/// Returns the bytes of the memory, a multiple of 4096, for work on up to `longest` bytes.
pub(crate) fn store_len(longest: usize) -> usize {
    (slot_at(KEYS) + longest.max(ROWS * 8)).next_multiple_of(PAGE)
}

/// The data. It begins as `struct farjump_data` of `farjump_ifunc.h`, for functions that take one.
#[repr(C)]
pub(crate) struct Store {
    size: u32,
    reserved: u32,
    bytes: Cell<*const u8>,
    len: Cell<usize>,
    path: *const c_char,
    start: *mut u8,
    capacity: usize,
    /// Bytes appended, and bytes that a call appends.
    appended: Cell<usize>,
    whole: Cell<usize>,
}

/// Bytes of the structure in C.
const DATA_SIZE: u32 = 32;

/// `struct store_slot` of `indirect_put.c`.
#[repr(C)]
pub(super) struct Slot {
    bytes: *mut u8,
    space: u64,
    offset: u64,
}

thread_local! {
    /// The store for functions that append, as they have no pointer to it.
    static CURRENT: Cell<*const Store> = const { Cell::new(ptr::null()) };
}

impl Store {
    /// Makes a store over `capacity` bytes at `start`, leaked until the end of the process.
    ///
    /// # Safety
    /// - The memory has as many bytes as [`store_len`] returns, is writable, and starts at a multiple of 64.
    /// - It stays so to the end of the process, or until the last use of the store.
    /// - There are no references to it, and the other process writes there only while this one serves it.
    pub(crate) unsafe fn new(start: *mut u8, capacity: usize) -> &'static Store {
        Box::leak(Box::new(Store {
            size: DATA_SIZE,
            reserved: 0,
            bytes: Cell::new(start.wrapping_add(AREA)),
            len: Cell::new(0),
            path: c"".as_ptr(),
            start,
            capacity,
            appended: Cell::new(0),
            whole: Cell::new(0),
        }))
    }

    /// Returns a store in private memory of this process.
    pub(super) fn own(longest: usize) -> &'static Store {
        let len = store_len(longest);
        // Allocated as words, and aligned to a line.
        let words = vec![0_u64; len / 8 + 8].leak().as_mut_ptr().cast::<u8>();
        let start = words.wrapping_add(words.align_offset(64));
        // SAFETY: `words` has 8 words more than `len` bytes, so `len` bytes lie behind the aligned start;
        // only this function knows them.
        unsafe { Store::new(start, len) }
    }

    /// Fills the data with `size` bytes of resident data, and resets the number of calls.
    pub(super) fn hold(&self, query: Query, size: usize) {
        assert!(AREA + size <= self.capacity);
        self.write(CALLS, &[0; 8]);
        self.set_len(size);
        // SAFETY: the assertion keeps the bytes in the memory, which is aligned to 64 and has no references
        // to it.
        unsafe { query.fill(self.area(), size) };
    }

    /// Offers the first `len` bytes of the data to functions.
    pub(super) fn set_len(&self, len: usize) {
        assert!(AREA + len <= self.capacity);
        self.bytes.set(self.area());
        self.len.set(len);
    }

    /// Returns the start of the data.
    pub(super) fn area(&self) -> *mut u8 {
        self.start.wrapping_add(AREA)
    }

    /// Reports calls that the source has made by itself.
    pub(super) fn report(&self, calls: u64) {
        // SAFETY: as in `calls`.
        unsafe { AtomicU64::from_ptr(self.start.add(CALLS).cast()) }.store(calls, Ordering::Release);
    }

    pub(super) fn as_args(&self) -> *mut c_void {
        ptr::from_ref(self).cast_mut().cast()
    }

    /// Offers the first `len` of these bytes to functions that take data. They must stay during the calls.
    pub(super) fn show(&self, data: &[u8], len: usize) {
        self.bytes.set(data.as_ptr());
        self.len.set(len.min(data.len()));
    }

    fn write(&self, at: usize, bytes: &[u8]) {
        assert!(at + bytes.len() <= self.capacity);
        // SAFETY: the assertion keeps the destination in the memory. `bytes` are elsewhere, as there are no
        // references to the memory.
        unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), self.start.add(at), bytes.len()) };
    }

    fn read(&self, at: usize, len: usize) -> Vec<u8> {
        assert!(at + len <= self.capacity);
        let mut bytes = vec![0; len];
        // SAFETY: as in `write`.
        unsafe { ptr::copy_nonoverlapping(self.start.add(at), bytes.as_mut_ptr(), len) };
        bytes
    }

    /// Resets the data for the first call: no trace of an earlier one can pass for a result of this one.
    pub(super) fn prepare(&self, function: Function, size: usize) {
        self.write(CALLS, &[0; 8]);
        self.len.set(size);
        self.appended.set(0);
        self.whole.set(size);
        CURRENT.set(self);
        for key in 0..KEYS {
            let slot = slot_at(key);
            let entry = [slot as u64, (self.capacity - slot) as u64].map(u64::to_le_bytes);
            self.write(TABLE + key as usize * ENTRY, entry.as_flattened());
        }
        match function {
            Function::Sum => {
                for key in 0..ROWS {
                    self.write(AREA + key * 8, &row(key as u64).to_le_bytes());
                }
            }
            Function::Histogram => self.write(AREA, &noise(size)),
            Function::IndirectPut | Function::Codec => self.write(AREA, &vec![0; self.capacity - AREA]),
        }
    }

    /// Returns the number of calls that the source has made by itself.
    pub(super) fn calls(&self) -> u64 {
        // SAFETY: this is the first word of the memory, aligned; both processes access it as a whole.
        unsafe { AtomicU64::from_ptr(self.start.add(CALLS).cast()) }.load(Ordering::Acquire)
    }

    /// # Errors
    /// Calls did not write the expected bytes.
    pub(super) fn check(&self, function: Function, size: usize) -> Result<(), Failure> {
        let Some((at, right)) = function.written(size) else { return Ok(()) };
        match self.read(at, right.len()).iter().zip(&right).position(|(is, should)| is != should) {
            None => Ok(()),
            Some(at) => Err(Failure::new(format!(
                "`{function}` wrote something wrong to the target's memory: of {size} B, byte {at} is another"
            ))),
        }
    }
}

/// Returns the row of a key; 0 if there is none.
pub(super) extern "C" fn store_get(store: *const Store, key: u64) -> u64 {
    if key >= ROWS as u64 {
        return 0;
    }
    // SAFETY: injected code passes its target_args, a leaked store; the check above keeps the row in its
    // memory.
    unsafe { (*store).start.add(AREA + key as usize * 8).cast::<u64>().read() }
}

/// Writes the place for the bytes of a key to `slot`. Nonzero if there is no such key.
pub(super) extern "C" fn store_slot(store: *const Store, key: u64, slot: *mut Slot) -> c_int {
    if key >= KEYS {
        return -1;
    }
    // SAFETY: as in `store_get`; the entry is in the memory, and `slot` belongs to the injected code.
    unsafe {
        let entry = (*store).start.add(TABLE + key as usize * ENTRY).cast::<[u64; 2]>();
        let [offset, space] = entry.read();
        slot.write(Slot { bytes: (*store).start.add(offset as usize), space, offset });
    }
    0
}

/// Appends a call's output to the present store; after a complete one the next starts at the same offset.
/// Nonzero if there is no space.
pub(super) extern "C" fn store_append(bytes: *const u8, len: usize) -> c_int {
    // SAFETY: the pointer is null, or to a leaked store.
    let Some(store) = (unsafe { CURRENT.get().as_ref() }) else { return -1 };
    if store.appended.get() == store.whole.get() {
        store.appended.set(0);
    }
    let at = store.appended.get();
    if len > store.whole.get() - at {
        return -1;
    }
    // SAFETY: `bytes` has `len` bytes by the injected code's word; the check above has found space for them.
    unsafe { ptr::copy_nonoverlapping(bytes, store.start.add(AREA + at), len) };
    store.appended.set(at + len);
    0
}
