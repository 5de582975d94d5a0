//! Memory that another process writes at the same time: with [`crate::shared`], the only place in core that
//! touches raw bytes.
//!
//! The protocol reads everything once through here into a value of its own. Words that both peers touch are
//! atomic. The signal of a frame orders its other bytes. If the peer lies they may be any bytes: nothing read
//! this way is trusted before it is checked.

use core::ptr::NonNull;

use crate::shared;
use crate::sync::{AtomicU64, Handover, Ordering, release};
use crate::wait::AwaitedWord;

#[cfg(loom)]
pub(crate) mod mapping;

/// A range of bytes shared with another process, addressed by offset. Every access is bounds-checked: an
/// offset outside is a bug in farjump and panics.
pub(crate) trait Memory {
    /// Length in bytes.
    fn len(&self) -> usize;
    /// Loads one aligned word in one piece.
    fn load(&self, at: usize, order: Ordering) -> u64;
    /// Stores one aligned word in one piece.
    fn store(&self, at: usize, word: u64, order: Ordering);
    /// Copies `from` to the bytes at `at`.
    fn write(&self, at: usize, from: &[u8]);
    /// Prefetches the line at `at` for writing.
    fn prefetch_write(&self, at: usize);

    /// Offset of the frame at `position` in a ring, whose length is a power of two. Frames start on a line.
    #[inline(always)]
    fn offset_of(&self, position: u64) -> usize {
        position as usize & (self.len() - 1)
    }

    /// Loads the word at `at` of the first line, which all memory has, in one piece.
    #[inline(always)]
    fn load_first(&self, at: usize, order: Ordering) -> u64 {
        self.load(at, order)
    }

    /// Returns the two words behind the first word of the line at `at` if that word is `signal`, read with
    /// acquire order.
    #[inline(always)]
    fn signalled(&self, at: usize, signal: u64) -> Option<[u64; 2]> {
        (self.load(at, Ordering::Acquire) == signal)
            .then(|| [self.load(at + 8, Ordering::Relaxed), self.load(at + 16, Ordering::Relaxed)])
    }

    /// Writes the three words at the start of a line: the last two, then `signal` with release order.
    #[inline(always)]
    fn signal_line(&self, at: usize, signal: u64, [lengths, rest]: [u64; 2]) {
        self.store(at + 8, lengths, Ordering::Relaxed);
        self.store(at + 16, rest, Ordering::Relaxed);
        self.store(at, signal, release(Handover::Frame));
    }
}

/// Mapped memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Region {
    base: NonNull<u8>,
    len: usize,
}

// SAFETY: a `Region` is an address range. `Region::new` requires that any thread may use it, and `Memory`
// accesses shared words atomically.
unsafe impl Send for Region {}

impl Region {
    /// # Safety
    /// `base` must be aligned to 64 bytes and valid for reads and writes of `len` bytes, which are at least 64,
    /// while the value or a copy of it is used, from every thread that uses it. Other processes may write the bytes. In this
    /// process only this module and the running injected function reach them.
    pub(crate) unsafe fn new(base: NonNull<u8>, len: usize) -> Self {
        Region { base, len }
    }

    /// The address of `len` bytes at `at`.
    #[inline(always)]
    pub(crate) fn pointer(&self, at: usize, len: usize) -> NonNull<u8> {
        assert!(at <= self.len && len <= self.len - at, "offset outside the region");
        // SAFETY: `at` is within the range that the caller of `new` guarantees.
        unsafe { self.base.add(at) }
    }

    /// Returns a part of the region.
    pub(crate) fn part(&self, at: usize, len: usize) -> Region {
        assert!(len >= 64, "a region without a line");
        Region { base: self.pointer(at, len), len }
    }

    #[inline(always)]
    fn word(&self, at: usize) -> &AtomicU64 {
        assert!(at.is_multiple_of(8), "unaligned word");
        #[cfg(loom)]
        return mapping::word(self.pointer(at, 8));
        #[cfg(not(loom))]
        // SAFETY: in range by `pointer`; aligned, because the base is and `at` is a multiple of 8. The
        // reference lives for one access. The other accesses to these bytes are atomic or made by another
        // process.
        unsafe {
            self.pointer(at, 8).cast::<AtomicU64>().as_ref()
        }
    }
}

impl Memory for Region {
    #[inline(always)]
    fn len(&self) -> usize {
        self.len
    }

    #[inline(always)]
    fn load(&self, at: usize, order: Ordering) -> u64 {
        u64::from_le(self.word(at).load(order))
    }

    #[inline(always)]
    fn store(&self, at: usize, word: u64, order: Ordering) {
        self.word(at).store(word.to_le(), order);
    }

    #[inline(always)]
    fn load_first(&self, at: usize, order: Ordering) -> u64 {
        // SAFETY: the region has at least 64 bytes (`new`, `part`).
        let line = unsafe { line(self.base) };
        u64::from_le(line[at / 8 % 8].load(order))
    }

    fn write(&self, at: usize, from: &[u8]) {
        let to = self.pointer(at, from.len());
        #[cfg(loom)]
        mapping::writes(to, from.len());
        // SAFETY: in range by `pointer`. `from` is a live slice elsewhere. In this process nothing else uses
        // these bytes, because a ring has one sender, the caller. `copy_in` allows writes by the peer.
        unsafe { shared::copy_in(from.as_ptr(), to.as_ptr(), from.len()) }
    }

    #[inline(always)]
    fn prefetch_write(&self, at: usize) {
        #[cfg(target_arch = "x86_64")]
        {
            let line = self.base.as_ptr().wrapping_add(at);
            // SAFETY: a prefetch never faults, whatever the address, and changes no register. Processors
            // without PREFETCHW execute it as a no-operation (AMD64 manual volume 3; Intel SDM volume 2).
            unsafe {
                core::arch::asm!("prefetchw [{}]", in(reg) line, options(nostack, preserves_flags, readonly));
            }
        }
        #[cfg(not(target_arch = "x86_64"))]
        let _ = at;
    }
}

/// Mapped memory whose length is a power of two: a ring, whose frames start on lines.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ring {
    base: NonNull<u8>,
    /// The length without the last line: a multiple of 64. Offsets masked by it are those of lines in the ring.
    line_mask: usize,
}

// SAFETY: as for `Region`: a ring is one.
unsafe impl Send for Ring {}

impl Ring {
    /// Makes a ring of a region.
    ///
    /// # Panics
    /// If its length is no power of two, or less than a line.
    pub(crate) fn of(region: Region) -> Self {
        assert!(region.len.is_power_of_two() && region.len >= 64, "a region that is no ring");
        Ring { base: region.base, line_mask: region.len - 64 }
    }

    #[inline(always)]
    fn region(&self) -> Region {
        Region { base: self.base, len: self.line_mask + 64 }
    }

    /// As [`Region::pointer`].
    #[inline(always)]
    pub(crate) fn pointer(&self, at: usize, len: usize) -> NonNull<u8> {
        self.region().pointer(at, len)
    }

    /// Returns the bytes at `at` as a slice.
    ///
    /// # Safety
    /// Nothing, in this process or another, may write the bytes while the slice lives. They are private
    /// memory, such as a shadow ring.
    pub(crate) unsafe fn slice(&self, at: usize, len: usize) -> &[u8] {
        let start = self.pointer(at, len);
        // SAFETY: in range by `pointer`; the caller guarantees that nothing writes the bytes (see Safety).
        unsafe { core::slice::from_raw_parts(start.as_ptr(), len) }
    }

    /// The address of the line at `at`. Every frame needs this. Instead of a check, a mask turns every offset
    /// into that of a line in the ring.
    #[inline(always)]
    pub(crate) fn line_pointer(&self, at: usize) -> NonNull<u8> {
        debug_assert!(at.is_multiple_of(64) && at <= self.line_mask);
        let at = at & self.line_mask;
        // SAFETY: the ring has 64 bytes more than `line_mask` (`of`), and a masked number is at most that: 64
        // bytes from there on are within the range that the caller of `Region::new` guarantees.
        unsafe { self.base.add(at) }
    }

    /// Returns the line at `at`.
    #[inline(always)]
    fn line(&self, at: usize) -> &[AtomicU64; 8] {
        // SAFETY: in range by `line_pointer`.
        unsafe { line(self.line_pointer(at)) }
    }

    /// The wait for the first word of the line at `at` to be `signal`.
    pub(crate) fn awaited(&self, at: usize, signal: u64) -> AwaitedWord<'_> {
        AwaitedWord::new(&self.line(at)[0], signal.to_le())
    }
}

/// Returns the line at `start`.
///
/// # Safety
/// `start` must be the start of a line of a [`Region`].
#[inline(always)]
unsafe fn line<'r>(start: NonNull<u8>) -> &'r [AtomicU64; 8] {
    #[cfg(loom)]
    return mapping::line(start);
    #[cfg(not(loom))]
    // SAFETY: in range by the caller, and aligned, as regions are. While the reference lives, this process and
    // others reach the words only as atomics.
    unsafe {
        start.cast::<[AtomicU64; 8]>().as_ref()
    }
}

impl Memory for Ring {
    #[inline(always)]
    fn len(&self) -> usize {
        self.line_mask + 64
    }

    #[inline(always)]
    fn load(&self, at: usize, order: Ordering) -> u64 {
        self.region().load(at, order)
    }

    #[inline(always)]
    fn store(&self, at: usize, word: u64, order: Ordering) {
        self.region().store(at, word, order);
    }

    fn write(&self, at: usize, from: &[u8]) {
        self.region().write(at, from);
    }

    #[inline(always)]
    fn prefetch_write(&self, at: usize) {
        self.region().prefetch_write(at);
    }

    // Every frame uses the methods below: one mask for the line instead of a bounds check for each word.

    #[inline(always)]
    fn offset_of(&self, position: u64) -> usize {
        position as usize & self.line_mask
    }

    #[inline(always)]
    fn signalled(&self, at: usize, signal: u64) -> Option<[u64; 2]> {
        let line = self.line(at);
        if u64::from_le(line[0].load(Ordering::Acquire)) != signal {
            return None;
        }
        Some([&line[1], &line[2]].map(|word| u64::from_le(word.load(Ordering::Relaxed))))
    }

    #[inline(always)]
    fn signal_line(&self, at: usize, signal: u64, [lengths, rest]: [u64; 2]) {
        let line = self.line(at);
        line[1].store(lengths.to_le(), Ordering::Relaxed);
        line[2].store(rest.to_le(), Ordering::Relaxed);
        line[0].store(signal.to_le(), release(Handover::Frame));
    }
}
