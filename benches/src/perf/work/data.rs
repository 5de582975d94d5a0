//! The target's data, in memory that the source may reach, and what injected code is told of it.
//!
//! ```text
//! 0     how many calls the source made without the target, if it works itself
//! 64    the table: for each key where its bytes go (from the start of the memory) and how many there is room for, 8 bytes each
//! 4096  what is worked on: rows of 8 bytes, data, or room for what is written
//! ```

use std::cell::Cell;
use std::ffi::{c_char, c_int, c_void};
use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering};

use super::functions::{Function, noise, slot_at};
use crate::program::failure::Failure;

/// Where the count of calls is.
pub(super) const CALLS: usize = 0;
/// Where the table is, in bytes from the start, how many keys it has, and how long an entry is.
pub(super) const TABLE: usize = 64;
const KEYS: u64 = 16;
pub(super) const ENTRY: usize = 16;
/// Where that is that is worked on.
pub(super) const AREA: usize = 4096;
const PAGE: usize = 4096;
/// How many rows there are.
pub(super) const ROWS: usize = 1 << 17;

/// Bytes of the memory, a multiple of 4096, where up to `longest` bytes are worked on.
pub(crate) fn store_len(longest: usize) -> usize {
    (slot_at(KEYS) + longest.max(ROWS * 8)).next_multiple_of(PAGE)
}

/// The row of a key.
pub(super) fn row(key: u64) -> u64 {
    key * key + 1
}

/// The data. It begins as `struct farjump_data` of `farjump_ifunc.h`, for functions that want one.
#[repr(C)]
pub(super) struct Store {
    size: u32,
    reserved: u32,
    bytes: Cell<*const u8>,
    len: Cell<usize>,
    path: *const c_char,
    start: *mut u8,
    room: usize,
    /// How many bytes were appended, and how many a call appends.
    appended: Cell<usize>,
    whole: Cell<usize>,
}

/// Bytes of the structure in C.
const DATA_SIZE: u32 = 32;

/// `struct store_slot` of `indirect_put.c`.
#[repr(C)]
pub(super) struct Slot {
    bytes: *mut u8,
    room: u64,
    offset: u64,
}

thread_local! {
    /// The store that functions append to: they have no pointer to it there.
    static CURRENT: Cell<*const Store> = const { Cell::new(ptr::null()) };
}

impl Store {
    /// Over `room` bytes at `start`, which stay to the end of the process, as the store does.
    ///
    /// # Safety
    /// They are as many as [`store_len`] said, writable, at a multiple of 64, and stay so to the end of the process or until the
    /// store is used no more. Nobody has references to them, and the other process writes there only while this one serves it.
    pub(super) unsafe fn new(start: *mut u8, room: usize) -> &'static Store {
        Box::leak(Box::new(Store {
            size: DATA_SIZE,
            reserved: 0,
            bytes: Cell::new(start.wrapping_add(AREA)),
            len: Cell::new(0),
            path: c"".as_ptr(),
            start,
            room,
            appended: Cell::new(0),
            whole: Cell::new(0),
        }))
    }

    /// In memory of this process's own.
    pub(super) fn own(longest: usize) -> &'static Store {
        let len = store_len(longest);
        // Of words, and from a line on.
        let words = vec![0_u64; len / 8 + 8].leak().as_mut_ptr().cast::<u8>();
        let start = words.wrapping_add(words.align_offset(64));
        // SAFETY: so many bytes lie behind the first line's beginning, and nobody else knows them.
        unsafe { Store::new(start, len) }
    }

    pub(super) fn as_args(&self) -> *mut c_void {
        ptr::from_ref(self).cast_mut().cast()
    }

    /// Lets functions that want data find the first `len` of these bytes, which have to stay while they are called.
    pub(super) fn show(&self, data: &[u8], len: usize) {
        self.bytes.set(data.as_ptr());
        self.len.set(len.min(data.len()));
    }

    fn write(&self, at: usize, bytes: &[u8]) {
        assert!(at + bytes.len() <= self.room);
        // SAFETY: in the memory by the assertion, and `bytes` are not, for nobody has references to it.
        unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), self.start.add(at), bytes.len()) };
    }

    fn read(&self, at: usize, len: usize) -> Vec<u8> {
        assert!(at + len <= self.room);
        let mut bytes = vec![0; len];
        // SAFETY: as in `write`.
        unsafe { ptr::copy_nonoverlapping(self.start.add(at), bytes.as_mut_ptr(), len) };
        bytes
    }

    /// Everything as it is before the first call: nothing of an earlier one is left that could pass for what comes of this.
    pub(super) fn prepare(&self, function: Function, size: usize) {
        self.write(CALLS, &[0; 8]);
        self.len.set(size);
        self.appended.set(0);
        self.whole.set(size);
        CURRENT.set(self);
        for key in 0..KEYS {
            let slot = slot_at(key);
            let entry = [slot as u64, (self.room - slot) as u64].map(u64::to_le_bytes);
            self.write(TABLE + key as usize * ENTRY, entry.as_flattened());
        }
        match function {
            Function::Sum => {
                for key in 0..ROWS {
                    self.write(AREA + key * 8, &row(key as u64).to_le_bytes());
                }
            }
            Function::Histogram => self.write(AREA, &noise(size)),
            Function::IndirectPut | Function::Codec => self.write(AREA, &vec![0; self.room - AREA]),
        }
    }

    /// Calls that the source has made by itself.
    pub(super) fn calls(&self) -> u64 {
        // SAFETY: the first word of the memory, aligned; both processes use it as a whole.
        unsafe { AtomicU64::from_ptr(self.start.add(CALLS).cast()) }.load(Ordering::Acquire)
    }

    /// # Errors
    /// When calls did not write what they had to.
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

/// The row of a key; 0 if there is none.
pub(super) extern "C" fn store_get(store: *const Store, key: u64) -> u64 {
    if key >= ROWS as u64 {
        return 0;
    }
    // SAFETY: injected code passes its target_args on, which is a store that stays; a row is 8 bytes of its memory.
    unsafe { (*store).start.add(AREA + key as usize * 8).cast::<u64>().read() }
}

/// Where the bytes of a key go. Nonzero if there is no such key.
pub(super) extern "C" fn store_slot(store: *const Store, key: u64, slot: *mut Slot) -> c_int {
    if key >= KEYS {
        return -1;
    }
    // SAFETY: as in `store_get`; the entry is in the memory, and `slot` is injected code's own.
    unsafe {
        let entry = (*store).start.add(TABLE + key as usize * ENTRY).cast::<[u64; 2]>();
        let [offset, room] = entry.read();
        slot.write(Slot { bytes: (*store).start.add(offset as usize), room, offset });
    }
    0
}

/// Appends what a call makes to what the present store holds; behind a whole one the next begins where that did. Nonzero if there
/// is no room.
pub(super) extern "C" fn store_append(bytes: *const u8, len: usize) -> c_int {
    // SAFETY: null, or a store that stays.
    let Some(store) = (unsafe { CURRENT.get().as_ref() }) else { return -1 };
    if store.appended.get() == store.whole.get() {
        store.appended.set(0);
    }
    let at = store.appended.get();
    if len > store.whole.get() - at {
        return -1;
    }
    // SAFETY: `bytes` are injected code's own, as many as it says; there is room for them.
    unsafe { ptr::copy_nonoverlapping(bytes, store.start.add(AREA + at), len) };
    store.appended.set(at + len);
    0
}
