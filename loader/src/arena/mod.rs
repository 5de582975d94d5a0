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

mod fork;
mod free_list;
pub(crate) mod layout;
mod memory;
mod need;

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use farjump_core::icache;
use farjump_core::image::{ImageView, Import, Space};
use rustix::thread::{MembarrierCommand, membarrier};

use self::free_list::FreeList;
use self::memory::Memory;
pub use self::need::Need;
use crate::error::Error;

/// Fills space without code. x86-64: `int3`. Elsewhere zeroes, which are no instruction: on aarch64 `udf #0`.
const TRAP: u8 = if cfg!(target_arch = "x86_64") { 0xcc } else { 0 };

/// Memory in which images are placed. A clone is another handle on the same memory, which lasts until the
/// last handle and the last [`Block`] are gone. Threads can share it; placing and freeing take a lock,
/// running does not.
///
/// A forked child has a copy of code and statics as they were at the fork, and can call the code. Nothing can
/// be placed or freed there: placing fails with [`Error::ArenaForked`], and dropping blocks does nothing. A
/// child made without the handlers of fork(3) (`_Fork`, clone(2)), or without memory for the copy, has no
/// code, and calling it faults.
///
/// The code span is anonymous shared memory, mapped a second time by `mremap` with an old size of 0.
/// `mprotect` then makes one of the two mappings executable. A memfd would do the same, but needs no less
/// privilege, is subject to the policies on memfds, and perf does not attribute samples in it. Data lies
/// [`SPAN_DISTANCE`](farjump_core::image::SPAN_DISTANCE) above the code that uses it, so an image has the same offset
/// in both. Code never writes to its own pages.
#[derive(Clone)]
pub struct Arena(Arc<Memory>);

impl Arena {
    /// Reserves 1 GiB of addresses and `len` bytes more, and maps `len` bytes (rounded up to 64 KiB) of code
    /// and as many of data. Both get memory at once, so an arena takes twice `len`, and placing an image
    /// never waits for a page. Kernels before 5.14 provide each page of data at its first use.
    ///
    /// # Errors
    /// [`Error::ArenaLength`] at 0 and above [`SPAN_DISTANCE`](farjump_core::image::SPAN_DISTANCE) bytes,
    /// [`Error::ArenaMemory`] if the system has too little memory, [`Error::ExecForbidden`] if this process
    /// may not run code from memory that it wrote.
    pub fn new(len: usize) -> Result<Arena, Error> {
        Ok(Arena::of(Memory::map(len, false)?))
    }

    /// As [`Arena::new`], for code in which a debugger sets breakpoints: ptrace(2) writes to private memory, and not to
    /// shared memory that is mapped without the right to write. The code has one private mapping. Each image has its
    /// own pages, 4 KiB at least. They are first writable, then executable: no address is ever both. Placing and
    /// freeing cost two system calls each.
    ///
    /// # Errors
    /// Those of [`Arena::new`].
    pub fn for_debuggers(len: usize) -> Result<Arena, Error> {
        Ok(Arena::of(Memory::map(len, true)?))
    }

    fn of(memory: Memory) -> Arena {
        let memory = Arc::new(memory);
        fork::keep(&memory);
        Arena(memory)
    }

    /// Length of the code span in bytes, and of the data span.
    pub fn capacity(&self) -> usize {
        self.0.len
    }

    /// Bytes in use: images, rounded up to lines, and the free line behind each.
    pub fn used(&self) -> usize {
        self.0.free().used()
    }

    /// Returns whether [`Arena::place`] would find space for an image now.
    pub(crate) fn fits(&self, need: &Need) -> bool {
        let (span, align) = self.0.unit(need);
        self.0.free().fits(span, align)
    }

    /// Returns whether an image would fit into the empty arena.
    pub(crate) fn ever_fits(&self, need: &Need) -> bool {
        let (span, align) = self.0.unit(need);
        FreeList::new(self.0.len).fits(span, align)
    }

    /// Places an image in the first gap that fits both its spans, patches its sites by `resolve`, and makes
    /// the code executable.
    ///
    /// Code with landing pads has its own pages where the processor checks them (BTI of aarch64). They are *guarded*:
    /// an indirect branch to anything but a landing pad faults. It costs two system calls and a page at least. A forked
    /// child's copy is not guarded.
    ///
    /// # Errors
    /// [`Error::ArenaFull`], [`Error::ArenaForked`], or [`Error::Place`] with the import that `resolve` did
    /// not find; [`Error::ArenaMemory`] in an arena for debuggers, and for code that is guarded. The space is free
    /// again then.
    pub fn place(
        &self,
        image: &ImageView<'_>,
        resolve: impl FnMut(&Import<'_>) -> Option<u64>,
    ) -> Result<Block, Error> {
        let mut block = self.allocate(image)?;
        let space = block.space()?;
        block.entry = image.place(space, resolve)?;
        block.publish()?;
        Ok(block)
    }

    fn allocate(&self, image: &ImageView<'_>) -> Result<Block, Error> {
        let memory = &self.0;
        if !memory.is_ours() {
            return Err(Error::ArenaForked);
        }
        let (span1, span2) = (image.span1().len(), image.span2_len());
        let need = Need::of_view(image.as_bytes().len(), image);
        let (span, align) = memory.unit(&need);
        let mut free = memory.free();
        let taken = free.take(span, align).ok_or_else(|| Error::ArenaFull {
            needed: need.span,
            largest: free.largest(),
            used: free.used(),
            capacity: memory.len,
        })?;
        drop(free);
        Ok(Block {
            memory: Arc::clone(memory),
            range: taken.range,
            reused: taken.reused,
            guarded: memory.guards(&need),
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

/// The space of one placed image. Dropping it ends the code: its bytes become traps and the space is free again. A
/// caller of the code must hold the block during the call.
pub struct Block {
    memory: Arc<Memory>,
    range: Range<usize>,
    reused: bool,
    /// Whether indirect branches reach landing pads alone.
    guarded: bool,
    span1: usize,
    span2: usize,
    entry: u64,
}

impl Block {
    /// Address to call.
    pub fn entry(&self) -> u64 {
        self.entry
    }

    /// Address of span 1 where it is executed; span 2 is
    /// [`SPAN_DISTANCE`](farjump_core::image::SPAN_DISTANCE) above it.
    pub fn address(&self) -> u64 {
        self.memory.code(self.range.start).addr().get() as u64
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
    ///
    /// # Errors
    /// [`Error::ArenaMemory`] in an arena for debuggers.
    fn space(&mut self) -> Result<Space<'_>, Error> {
        // SAFETY: the range belongs to this block alone until it is dropped, and no code runs there yet:
        // callers get the block from `Arena::place`, which calls this before it returns.
        let code = unsafe { self.memory.make_writable(&self.range) }?;
        let data = self.memory.data(self.range.start);
        // SAFETY: both spans lie inside the range, which belongs to this block alone. They stay mapped
        // writable as long as the views: `publish` takes the block.
        let (span1, span2) = unsafe {
            (
                std::slice::from_raw_parts_mut(code.as_ptr(), self.span1),
                std::slice::from_raw_parts_mut(data.as_ptr(), self.span2),
            )
        };
        Ok(Space { span1, span2, address: self.address() })
    }

    /// Makes the code executable on every core.
    ///
    /// In reused space a processor may still have parts of the earlier code decoded. x86-64 guarantees the
    /// new code only after a serialising instruction (Intel SDM volume 3, 9.1.3), and any thread of this
    /// process may run it. `membarrier` makes each of them execute one (membarrier(2), "sync core"). On aarch64 a core
    /// may have fetched from fresh space, too.
    ///
    /// # Errors
    /// [`Error::ArenaMemory`] in an arena for debuggers, and for guarded code.
    fn publish(&mut self) -> Result<(), Error> {
        // SAFETY: the range is this block's, no code runs there yet, and the views of `space` are gone: they
        // borrowed the block.
        unsafe { self.memory.make_executable(&self.range, self.guarded) }?;
        self.sync(self.span1);
        if (self.reused || icache::OTHERS_MUST_SYNCHRONISE)
            && membarrier(MembarrierCommand::PrivateExpeditedSyncCore).is_err()
        {
            icache::serialise();
        }
        Ok(())
    }

    /// Makes processors run the first `len` bytes as they were written.
    fn sync(&self, len: usize) {
        let written = self.memory.written(self.range.start).addr().get() as u64;
        icache::publish(written, self.address(), len);
    }

    /// Turns the code into traps.
    fn bury(&mut self) -> Result<(), Error> {
        // SAFETY: the range belongs to this block alone. Every caller of the code holds the block, so none is
        // left. `make_writable` returns an address at which all of the range is writable.
        unsafe {
            let code = self.memory.make_writable(&self.range)?;
            code.write_bytes(TRAP, self.range.len());
            self.memory.bury(&self.range, self.guarded)?;
        }
        self.sync(self.range.len());
        Ok(())
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        // Space that the system does not protect again is never reused.
        if self.memory.is_ours() && self.bury().is_ok() {
            self.memory.free().give_back(self.range.clone());
        }
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
