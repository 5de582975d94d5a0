//! Memory for injected code: mapped twice, so that no address is ever writable and executable.
//!
//! ```text
//! reservation:  | code, executable | no access ...          | data, writable   | mark |
//!               base               base + len               base + 1 GiB
//! alias:        | the same code, writable: for the loader alone |
//! ```
//!
//! Every byte of code outside an image is a trap: a call through an address that outlived its code ends the
//! program at once, and never runs other code.

mod free_list;
mod need;

use std::ffi::c_void;
use std::fmt;
use std::mem::ManuallyDrop;
use std::ops::Range;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use farjump_core::icache;
use farjump_core::image::{ImageView, Import, SPAN_DISTANCE, Space};
use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, MprotectFlags, MremapFlags, ProtFlags};
use rustix::thread::{MembarrierCommand, membarrier};

use self::free_list::FreeList;
pub use self::need::Need;
use crate::error::{ArenaStep, Error};

/// Lengths are multiples of this many bytes: the largest Linux page on the machines that farjump supports.
const GRANULE: usize = 64 * 1024;
const DISTANCE: usize = SPAN_DISTANCE as usize;
/// `int3` on x86-64.
const TRAP: u8 = 0xcc;
/// Value of the mark; in a forked child it reads 0.
const OURS: u8 = 1;

/// Memory in which images are placed. A clone is another handle on the same memory, which lasts until the
/// last handle and the last [`Block`] are gone. Threads can share it; placing and freeing take a lock,
/// running does not.
///
/// A forked child has none of it: there, placing fails with [`Error::ArenaForked`], calling code faults, and
/// dropping handles and blocks does nothing.
///
/// The code span is anonymous shared memory, mapped a second time by `mremap` with an old size of 0.
/// `mprotect` then makes one of the two mappings executable. A memfd would do the same, but needs no less
/// privilege, is subject to the policies on memfds, and perf does not attribute samples in it. Data lies
/// [`SPAN_DISTANCE`] above the code that uses it, so an image has the same offset in both, and no page of
/// code is ever written by the code in it.
#[derive(Clone)]
pub struct Arena(Arc<Memory>);

impl Arena {
    /// Reserves 1 GiB of addresses and `len` bytes more, and maps `len` bytes (rounded up to 64 KiB) of code
    /// and as many of data. Both get memory at once, so an arena takes twice `len`, and placing an image
    /// never waits for a page. Kernels before 5.14 provide each page of data at its first use.
    ///
    /// # Errors
    /// [`Error::ArenaLength`] at 0 and above [`SPAN_DISTANCE`] bytes, [`Error::ArenaMemory`] if the system
    /// has too little memory, [`Error::ExecForbidden`] if this process may not run code from memory that it
    /// wrote.
    pub fn new(len: usize) -> Result<Arena, Error> {
        Memory::map(len).map(|memory| Arena(Arc::new(memory)))
    }

    /// Length of the code span in bytes, and of the data span.
    pub fn capacity(&self) -> usize {
        self.0.len
    }

    /// Bytes in use: images, rounded up to lines, and the free line behind each.
    pub fn used(&self) -> usize {
        self.0.free().used()
    }

    /// Whether [`Arena::place`] would find space for an image now.
    pub(crate) fn fits(&self, need: &Need) -> bool {
        self.0.free().fits(need.span, need.align)
    }

    /// Whether an image would fit into the empty arena.
    pub(crate) fn ever_fits(&self, need: &Need) -> bool {
        FreeList::new(self.0.len).fits(need.span, need.align)
    }

    /// Places an image in the first gap that fits both its spans, patches its sites by `resolve`, and makes
    /// the code executable.
    ///
    /// # Errors
    /// [`Error::ArenaFull`], [`Error::ArenaForked`], or [`Error::Place`] with the import that `resolve` did
    /// not find. The space is free again then.
    pub fn place(
        &self,
        image: &ImageView<'_>,
        resolve: impl FnMut(&Import<'_>) -> Option<u64>,
    ) -> Result<Block, Error> {
        let mut block = self.allocate(image)?;
        block.entry = image.place(block.space(), resolve)?;
        block.publish();
        Ok(block)
    }

    fn allocate(&self, image: &ImageView<'_>) -> Result<Block, Error> {
        let memory = &self.0;
        if !memory.is_ours() {
            return Err(Error::ArenaForked);
        }
        let (span1, span2) = (image.span1().len(), image.span2_len());
        let needed = span1.max(span2);
        let mut free = memory.free();
        let taken = free.take(needed, 1 << image.align_log2()).ok_or_else(|| Error::ArenaFull {
            needed,
            largest: free.largest(),
            used: free.used(),
            capacity: memory.len,
        })?;
        drop(free);
        Ok(Block {
            memory: Arc::clone(memory),
            range: taken.range,
            reused: taken.reused,
            span1,
            span2,
            entry: 0,
        })
    }
}

impl fmt::Debug for Arena {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Arena").field("capacity", &self.capacity()).field("used", &self.used()).finish()
    }
}

/// The space of one placed image. Dropping it ends the code: its bytes become traps and the space is free
/// again. A caller of the code must hold the block meanwhile.
pub struct Block {
    memory: Arc<Memory>,
    range: Range<usize>,
    reused: bool,
    span1: usize,
    span2: usize,
    entry: u64,
}

impl Block {
    /// Address to call.
    pub fn entry(&self) -> u64 {
        self.entry
    }

    /// Address of span 1 where it is executed; span 2 is [`SPAN_DISTANCE`] above it.
    pub fn address(&self) -> u64 {
        (self.memory.reservation.start.addr().get() + self.range.start) as u64
    }

    /// Length of span 1 in bytes.
    pub fn code_len(&self) -> usize {
        self.span1
    }

    /// Length of span 2 in bytes.
    pub fn data_len(&self) -> usize {
        self.span2
    }

    /// Writable views of both spans.
    fn space(&mut self) -> Space<'_> {
        let start = self.range.start;
        // SAFETY: the range lies inside both spans and belongs to this block alone until it is dropped. The
        // alias and the data stay mapped writable as long as the arena's memory, which the block
        // holds. No code runs there yet: callers get the block from `Arena::place`, which calls this before
        // it returns.
        let (span1, span2) = unsafe {
            (
                std::slice::from_raw_parts_mut(
                    self.memory.writable_alias.start.add(start).as_ptr(),
                    self.span1,
                ),
                std::slice::from_raw_parts_mut(
                    self.memory.reservation.start.add(DISTANCE + start).as_ptr(),
                    self.span2,
                ),
            )
        };
        Space { span1, span2, address: self.address() }
    }

    /// Makes the code executable on every core.
    ///
    /// In reused space a processor may still have parts of the earlier code decoded. x86-64 guarantees the
    /// new code only after a serialising instruction (Intel SDM volume 3, 9.1.3), and any thread of this
    /// process may run it. `membarrier` makes each of them execute one (membarrier(2), "sync core").
    fn publish(&self) {
        icache::publish(self.address(), self.span1);
        if self.reused && membarrier(MembarrierCommand::PrivateExpeditedSyncCore).is_err() {
            icache::serialise();
        }
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        if !self.memory.is_ours() {
            return;
        }
        // SAFETY: the range belongs to this block alone, inside the writable alias, which stays mapped
        // writable as long as the memory that the block still holds. Every caller of the code holds the
        // block, so none is left.
        unsafe { self.memory.writable_alias.start.add(self.range.start).write_bytes(TRAP, self.range.len()) };
        self.memory.free().give_back(self.range.clone());
    }
}

impl fmt::Debug for Block {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Block")
            .field("address", &format_args!("{:#x}", self.address()))
            .field("code_len", &self.span1)
            .field("data_len", &self.span2)
            .finish_non_exhaustive()
    }
}

struct Memory {
    reservation: ManuallyDrop<Mapping>,
    writable_alias: ManuallyDrop<Mapping>,
    len: usize,
    free: Mutex<FreeList>,
}

// SAFETY: the mappings belong to no particular thread. `free`, under its lock, and ownership of blocks
// decide which thread may touch which part.
unsafe impl Send for Memory {}
// SAFETY: the mappings belong to no particular thread; `free` is behind a lock, and blocks own their parts.
unsafe impl Sync for Memory {}

impl Memory {
    fn map(asked: usize) -> Result<Memory, Error> {
        let length = Error::ArenaLength { len: asked, max: DISTANCE };
        if asked == 0 || asked > DISTANCE {
            return Err(length);
        }
        let len = asked.next_multiple_of(GRANULE);
        let failed = |step| move |errno: Errno| Error::ArenaMemory { len, step, source: errno.into() };

        let reserve = MapFlags::PRIVATE | MapFlags::NORESERVE;
        let reservation = Mapping::new(DISTANCE + len + GRANULE, ProtFlags::empty(), reserve)
            .map_err(failed(ArenaStep::Reserve))?;
        let writable = ProtFlags::READ | ProtFlags::WRITE;
        let writable_alias =
            Mapping::new(len, writable, MapFlags::SHARED).map_err(failed(ArenaStep::MapCode))?;
        let (code, data) = (reservation.start, reservation.at(DISTANCE));
        let mark = reservation.at(DISTANCE + len);
        // SAFETY: the writable alias is shared memory of `len` bytes, so an old size of 0 makes a second
        // mapping of it (mremap(2)). It replaces the start of the reservation, which is this function's and
        // unused.
        unsafe {
            rustix::mm::mremap_fixed(
                address(writable_alias.start),
                0,
                len,
                MremapFlags::MAYMOVE,
                address(code),
            )
        }
        .map_err(failed(ArenaStep::MapCodeAgain))?;
        // The second mapping is writable like the first, and becomes executable in one step. SAFETY: these
        // `len` bytes belong to this function, and no reference into them exists.
        unsafe { rustix::mm::mprotect(address(code), len, MprotectFlags::READ | MprotectFlags::EXEC) }
            .map_err(|errno| match errno {
                Errno::ACCESS | Errno::PERM => Error::ExecForbidden { source: errno.into() },
                _ => failed(ArenaStep::MakeExecutable)(errno),
            })?;
        // SAFETY: data and mark are `len` and `GRANULE` bytes at the end of the reservation, without
        // references.
        unsafe {
            let protection = MprotectFlags::READ | MprotectFlags::WRITE;
            rustix::mm::mprotect(address(data), len + GRANULE, protection)
                .map_err(failed(ArenaStep::MapData))?;
        }
        advise(reservation.start, DISTANCE + len, Advice::LinuxDontFork)
            .and_then(|()| advise(writable_alias.start, len, Advice::LinuxDontFork))
            .and_then(|()| advise(mark, GRANULE, Advice::LinuxWipeOnFork))
            .map_err(failed(ArenaStep::KeepFromChildren))?;

        // Populated before the first write: missing memory is an error here, and would be a fault later.
        populate(writable_alias.start, len, Advice::LinuxPopulateWrite)
            .and_then(|()| populate(data, len, Advice::LinuxPopulateWrite))
            .map_err(failed(ArenaStep::Populate))?;
        // SAFETY: the writable alias and the mark are mapped writable, and nothing else has their addresses
        // yet.
        unsafe {
            writable_alias.start.write_bytes(TRAP, len);
            mark.write(OURS);
        }
        populate(code, len, Advice::LinuxPopulateRead).map_err(failed(ArenaStep::Populate))?;

        // If the system refuses, reused space is published only to the placing thread, see `Block::publish`.
        let _ = membarrier(MembarrierCommand::RegisterPrivateExpeditedSyncCore);
        Ok(Memory {
            reservation: ManuallyDrop::new(reservation),
            writable_alias: ManuallyDrop::new(writable_alias),
            len,
            free: Mutex::new(FreeList::new(len)),
        })
    }

    fn free(&self) -> MutexGuard<'_, FreeList> {
        // Nothing panics while it holds the lock, so the list is consistent even after a panic.
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn mark(&self) -> NonNull<u8> {
        self.reservation.at(DISTANCE + self.len)
    }

    /// Whether this is the process that mapped the arena. A forked child has only the mark, and finds it
    /// zero.
    fn is_ours(&self) -> bool {
        // SAFETY: the mark is mapped as long as `self`, in children too, and never written after `map`.
        unsafe { AtomicU8::from_ptr(self.mark().as_ptr()) }.load(Ordering::Relaxed) == OURS
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        if self.is_ours() {
            // SAFETY: each is dropped once, here, and not used afterwards. No block is left: blocks hold the
            // memory.
            unsafe {
                ManuallyDrop::drop(&mut self.reservation);
                ManuallyDrop::drop(&mut self.writable_alias);
            }
        } else {
            // In a forked child other mappings may be at these addresses.
            drop(Mapping { start: self.mark(), len: GRANULE });
        }
    }
}

/// Anonymous memory, unmapped when dropped.
struct Mapping {
    start: NonNull<u8>,
    len: usize,
}

impl Mapping {
    fn new(len: usize, protection: ProtFlags, flags: MapFlags) -> Result<Mapping, Errno> {
        // SAFETY: the system chooses an unused address.
        let start = unsafe { rustix::mm::mmap_anonymous(ptr::null_mut(), len, protection, flags) }?;
        let start = NonNull::new(start.cast()).ok_or(Errno::NOMEM)?;
        Ok(Mapping { start, len })
    }

    fn at(&self, offset: usize) -> NonNull<u8> {
        debug_assert!(offset < self.len);
        // SAFETY: `offset` lies inside the mapping, which every caller ensures.
        unsafe { self.start.add(offset) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: this value owns the mapping. The call fails only for arguments that `mmap` did not return.
        let _ = unsafe { rustix::mm::munmap(address(self.start), self.len) };
    }
}

fn address(start: NonNull<u8>) -> *mut c_void {
    start.as_ptr().cast()
}

fn advise(start: NonNull<u8>, len: usize, advice: Advice) -> Result<(), Errno> {
    // SAFETY: none of the advice in this file changes the memory's contents for this process.
    unsafe { rustix::mm::madvise(address(start), len, advice) }
}

/// Populates `len` bytes now, if the system can (Linux 5.14).
fn populate(start: NonNull<u8>, len: usize, how: Advice) -> Result<(), Errno> {
    match advise(start, len, how) {
        Err(Errno::INVAL) => Ok(()),
        other => other,
    }
}
