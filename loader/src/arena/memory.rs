//! The mappings of an arena.

use std::ffi::c_void;
use std::mem::ManuallyDrop;
use std::ops::Range;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use farjump_os::limits::address_space;
use rustix::fs::MemfdFlags;
use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, MprotectFlags, MremapFlags, ProtFlags};
use rustix::thread::{MembarrierCommand, membarrier};

use super::TRAP;
use super::free_list::{FreeList, LINE};
use super::need::Need;
use crate::arena::layout::{DISTANCE, GRANULE};
use crate::error::{ArenaStep, Error};

/// Value of the mark; in a forked child it reads 0, or [`COPIED`].
const OURS: u8 = 1;
/// Value of the mark in a forked child that has a copy of the code.
const COPIED: u8 = 2;
const WRITABLE: MprotectFlags = MprotectFlags::READ.union(MprotectFlags::WRITE);
const EXECUTABLE: MprotectFlags = MprotectFlags::READ.union(MprotectFlags::EXEC);
/// Protection of executable code that indirect branches enter only at landing pads.
#[cfg(target_arch = "aarch64")]
const GUARDED: MprotectFlags = EXECUTABLE.union(MprotectFlags::BTI);
#[cfg(not(target_arch = "aarch64"))]
const GUARDED: MprotectFlags = EXECUTABLE;

/// The mappings of an arena, and its gaps.
pub(super) struct Memory {
    pub(super) reservation: ManuallyDrop<Mapping>,
    /// The writable mapping of the code. `None` if the code is private memory, which is made writable page by
    /// page.
    pub(super) writable_alias: Option<ManuallyDrop<Mapping>>,
    pub(super) len: usize,
    /// Unit of protection, in bytes.
    page: usize,
    /// True if the processor checks landing pads and the system lets a process request that.
    checks_landing_pads: bool,
    pub(super) free: Mutex<FreeList>,
}

// SAFETY: the mappings belong to no particular thread. `free`, under its lock, and ownership of blocks
// decide which thread may touch which part.
unsafe impl Send for Memory {}
// SAFETY: the mappings belong to no particular thread; `free` is behind a lock, and blocks own their parts.
unsafe impl Sync for Memory {}

impl Memory {
    /// Reserves and maps `asked` bytes of code and of data. `private`: the code is private memory, see
    /// [`Arena::for_debuggers`](super::Arena::for_debuggers).
    pub(super) fn map(asked: usize, private: bool) -> Result<Memory, Error> {
        let length = Error::ArenaLength { len: asked, max: DISTANCE };
        if asked == 0 || asked > DISTANCE {
            return Err(length);
        }
        let len = asked.next_multiple_of(GRANULE);
        let failed = |step| move |errno: Errno| no_memory(len, step, errno);

        let reserve = MapFlags::PRIVATE | MapFlags::NORESERVE;
        let reservation = Mapping::new(DISTANCE + len + GRANULE, ProtFlags::empty(), reserve)
            .map_err(failed(ArenaStep::Reserve))?;
        let (code, data) = (reservation.start, reservation.at(DISTANCE));
        let mark = reservation.at(DISTANCE + len);
        let writable_alias = if private { None } else { Some(alias(code, len)?) };
        let writable = match &writable_alias {
            Some(alias) => alias.start,
            None => {
                // SAFETY: these `len` bytes belong to this function, and no reference into them exists.
                unsafe { protect(code, len, WRITABLE) }.map_err(failed(ArenaStep::MapCode))?;
                code
            }
        };
        // SAFETY: data and mark are `len` and `GRANULE` bytes at the end of the reservation, without
        // references.
        unsafe { protect(data, len + GRANULE, WRITABLE) }.map_err(failed(ArenaStep::MapData))?;
        // A child gets its own copy of private memory. The rest is kept from it, see `fork`.
        let kept = if private { len } else { 0 };
        advise(reservation.at(kept), DISTANCE - kept, Advice::LinuxDontFork)
            .and_then(|()| match &writable_alias {
                Some(alias) => advise(alias.start, len, Advice::LinuxDontFork),
                None => Ok(()),
            })
            .and_then(|()| advise(mark, GRANULE, Advice::LinuxWipeOnFork))
            .map_err(failed(ArenaStep::KeepFromChildren))?;

        // Populated before the first write: missing memory is an error here, and would be a fault later.
        populate(writable, len, Advice::LinuxPopulateWrite)
            .and_then(|()| populate(data, len, Advice::LinuxPopulateWrite))
            .map_err(failed(ArenaStep::Populate))?;
        // SAFETY: `writable` and the mark are mapped writable, and nothing else has their addresses yet.
        unsafe {
            writable.write_bytes(TRAP, len);
            mark.write(OURS);
        }
        // The code becomes executable in one step, whichever mapping it is. SAFETY: these `len` bytes belong
        // to this function, and no reference into them exists.
        unsafe { protect(code, len, EXECUTABLE) }.map_err(|errno| match errno {
            Errno::ACCESS | Errno::PERM => Error::ExecForbidden { source: errno.into() },
            _ => failed(ArenaStep::MakeExecutable)(errno),
        })?;
        populate(code, len, Advice::LinuxPopulateRead).map_err(failed(ArenaStep::Populate))?;

        // If the system refuses, reused space is published only to the placing thread, see `Block::publish`.
        let _ = membarrier(MembarrierCommand::RegisterPrivateExpeditedSyncCore);
        Ok(Memory {
            reservation: ManuallyDrop::new(reservation),
            writable_alias: writable_alias.map(ManuallyDrop::new),
            len,
            page: rustix::param::page_size(),
            checks_landing_pads: checks_landing_pads(),
            free: Mutex::new(FreeList::new(len)),
        })
    }

    /// The length and alignment to request from the list of gaps for an image. In private memory and for guarded code,
    /// the range is then whole pages, with the line behind it.
    pub(super) fn unit(&self, need: &Need) -> (usize, usize) {
        let Need { span, align, .. } = *need;
        if !self.is_private() && !self.guards(need) {
            return (span, align);
        }
        let whole =
            span.max(1).saturating_add(LINE).checked_next_multiple_of(self.page).unwrap_or(usize::MAX);
        (whole - LINE, align.max(self.page))
    }

    /// Returns whether the code of an image is guarded: indirect branches enter it only at landing pads.
    pub(super) fn guards(&self, need: &Need) -> bool {
        need.landing_pads && self.checks_landing_pads
    }

    /// Returns whether the code is private memory.
    pub(super) fn is_private(&self) -> bool {
        self.writable_alias.is_none()
    }

    /// Address of the code at `offset` where it is executed; its data lies [`DISTANCE`] above.
    pub(super) fn code(&self, offset: usize) -> NonNull<u8> {
        self.reservation.at(offset)
    }

    /// Address of the data at `offset`.
    pub(super) fn data(&self, offset: usize) -> NonNull<u8> {
        self.reservation.at(DISTANCE + offset)
    }

    /// Makes the code in `range` writable, and returns the address to write it at. In private memory it
    /// cannot be executed until [`Memory::make_executable`].
    ///
    /// # Errors
    /// The system's, only for private memory. The code is then unchanged.
    ///
    /// # Safety
    /// No code runs in `range`, which was taken from the list of gaps and not given back.
    pub(super) unsafe fn make_writable(&self, range: &Range<usize>) -> Result<NonNull<u8>, Error> {
        match &self.writable_alias {
            Some(alias) => Ok(alias.at(range.start)),
            None => {
                let start = self.code(range.start);
                // SAFETY: the range is whole pages, as ranges of private memory are, and belongs to the
                // caller, which runs no code there.
                unsafe { protect(start, range.len(), WRITABLE) }
                    .map_err(|errno| self.unprotected(ArenaStep::MapCode, errno))?;
                Ok(start)
            }
        }
    }

    /// The address at which the code at `at` was written. It can be read there.
    pub(super) fn written(&self, at: usize) -> NonNull<u8> {
        self.writable_alias.as_ref().map_or_else(|| self.code(at), |alias| alias.at(at))
    }

    /// Makes code executable again after [`Memory::make_writable`], with landing pads checked if `guarded`.
    ///
    /// # Errors
    /// The system's, only for private memory and guarded code. Private memory then stays writable and cannot run.
    ///
    /// # Safety
    /// As for [`Memory::make_writable`], and no reference into the range exists. The range is that of an image for
    /// which [`Memory::guards`] returned `guarded`.
    pub(super) unsafe fn make_executable(&self, range: &Range<usize>, guarded: bool) -> Result<(), Error> {
        let protection = if guarded { GUARDED } else { EXECUTABLE };
        // SAFETY: the caller guarantees the same.
        unsafe { self.protect_code(range, guarded, protection) }
    }

    /// Makes the pages of a dropped image executable again after [`Memory::make_writable`], unguarded: any other image
    /// may get them next.
    ///
    /// # Errors
    /// Those of [`Memory::make_executable`].
    ///
    /// # Safety
    /// As for [`Memory::make_executable`].
    pub(super) unsafe fn bury(&self, range: &Range<usize>, guarded: bool) -> Result<(), Error> {
        // SAFETY: the caller guarantees the same.
        unsafe { self.protect_code(range, guarded, EXECUTABLE) }
    }

    /// Protects code whose pages are protected one by one: in private memory, or guarded.
    ///
    /// # Safety
    /// As for [`Memory::make_executable`].
    unsafe fn protect_code(
        &self,
        range: &Range<usize>,
        guarded: bool,
        protection: MprotectFlags,
    ) -> Result<(), Error> {
        if !self.is_private() && !guarded {
            return Ok(());
        }
        // SAFETY: the range is whole pages of this arena's code, and the caller's, without references.
        unsafe { protect(self.code(range.start), range.len(), protection) }
            .map_err(|errno| self.unprotected(ArenaStep::MakeExecutable, errno))
    }

    fn unprotected(&self, step: ArenaStep, errno: Errno) -> Error {
        no_memory(self.len, step, errno)
    }

    pub(super) fn free(&self) -> MutexGuard<'_, FreeList> {
        // Nothing panics while it holds the lock, so the list is consistent even after a panic.
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn mark(&self) -> NonNull<u8> {
        self.reservation.at(DISTANCE + self.len)
    }

    /// Returns whether this is the process that mapped the arena.
    pub(super) fn is_ours(&self) -> bool {
        self.read_mark() == OURS
    }

    fn read_mark(&self) -> u8 {
        // SAFETY: the mark is mapped as long as `self`, in children too, and written after `map` only by
        // `has_copy`, before anything else of a child runs.
        unsafe { AtomicU8::from_ptr(self.mark().as_ptr()) }.load(Ordering::Relaxed)
    }

    /// Notes in a forked child that it has a copy of the code, for itself and its own children.
    pub(super) fn has_copy(&self) {
        // SAFETY: the mark is mapped as long as `self`, in children too.
        unsafe { AtomicU8::from_ptr(self.mark().as_ptr()) }.store(COPIED, Ordering::Relaxed);
        let _ = advise(self.mark(), GRANULE, Advice::LinuxKeepOnFork);
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        if self.is_ours() {
            // SAFETY: each is dropped once, here, and not used afterwards. No block is left: blocks hold the
            // memory.
            unsafe {
                ManuallyDrop::drop(&mut self.reservation);
                if let Some(alias) = &mut self.writable_alias {
                    ManuallyDrop::drop(alias);
                }
            }
        } else {
            // In a forked child other mappings may be at the addresses of the code, unless its copy is.
            if self.read_mark() == COPIED {
                drop(Mapping { start: self.code(0), len: self.len });
            }
            drop(Mapping { start: self.data(0), len: self.len + GRANULE });
        }
    }
}

/// Anonymous memory, unmapped when dropped.
pub(super) struct Mapping {
    pub(super) start: NonNull<u8>,
    pub(super) len: usize,
}

impl Mapping {
    pub(super) fn new(len: usize, protection: ProtFlags, flags: MapFlags) -> Result<Mapping, Errno> {
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

/// Maps `len` bytes of shared memory twice: as the result, and instead of what is mapped at `code`.
fn alias(code: NonNull<u8>, len: usize) -> Result<Mapping, Error> {
    let failed = |step| move |errno: Errno| no_memory(len, step, errno);
    let protection = ProtFlags::READ | ProtFlags::WRITE;
    let alias = Mapping::new(len, protection, MapFlags::SHARED).map_err(failed(ArenaStep::MapCode))?;
    // SAFETY: the alias is shared memory of `len` bytes, so an old size of 0 makes a second mapping of it
    // (mremap(2)). It replaces the start of the reservation of `Memory::map`, which nothing uses yet.
    let again = unsafe {
        rustix::mm::mremap_fixed(address(alias.start), 0, len, MremapFlags::MAYMOVE, address(code))
    };
    match again {
        Ok(_) => {}
        // Valgrind knows no old size of 0.
        Err(Errno::INVAL) => map_file(&alias, code).map_err(failed(ArenaStep::MapCodeAgain))?,
        Err(errno) => return Err(failed(ArenaStep::MapCodeAgain)(errno)),
    }
    Ok(alias)
}

/// Maps a new memfd in the place of `alias`, and instead of what is mapped at `code`.
fn map_file(alias: &Mapping, code: NonNull<u8>) -> Result<(), Errno> {
    let len = alias.len;
    let file = farjump_os::memfd(c"farjump-code", MemfdFlags::empty())?;
    rustix::fs::ftruncate(&file, len as u64)?;
    for start in [alias.start, code] {
        let (protection, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED | MapFlags::FIXED);
        // SAFETY: `alias` owns one range, and the other is the start of the reservation of `Memory::map`. Nothing uses
        // either yet.
        unsafe { rustix::mm::mmap(address(start), len, protection, flags, &file, 0) }?;
    }
    Ok(())
}

/// The error for an arena of `len` bytes that gets no memory.
fn no_memory(len: usize, step: ArenaStep, errno: Errno) -> Error {
    Error::ArenaMemory { len, step, addresses: address_space(), source: errno.into() }
}

/// Returns whether the processor checks landing pads of pages that request it (`PROT_BTI`, HWCAP2_BTI).
fn checks_landing_pads() -> bool {
    #[cfg(target_arch = "aarch64")]
    return std::arch::is_aarch64_feature_detected!("bti");
    #[cfg(not(target_arch = "aarch64"))]
    false
}

/// Sets the protection of whole pages.
///
/// # Safety
/// They belong to the caller, and nothing uses them in a way that `protection` forbids.
unsafe fn protect(start: NonNull<u8>, len: usize, protection: MprotectFlags) -> Result<(), Errno> {
    // SAFETY: this function's caller guarantees it.
    unsafe { rustix::mm::mprotect(address(start), len, protection) }
}

pub(super) fn address(start: NonNull<u8>) -> *mut c_void {
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
