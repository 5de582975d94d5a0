//! Checks that a pointer returned by `ucp_rkey_ptr` lies in memory that a frame can be stored in.
//!
//! `ucp_rkey_ptr` adds the program's address to the mapping of the target's memory without any check: past
//! the end of that memory a store would hit this process's own. So the mapping is read from the system, once
//! for each. A mapping that was unmapped, and whose addresses were reused, is still known here; for addresses
//! inside the target's memory, that does not matter.
//!
//! A peer's memory is shared memory. A process's own may be any: from 1.15 on, UCX returns the very address
//! that it was given where the endpoint leads to the process's own worker. Such a pointer may lie in private
//! memory.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use farjump_transports::ucx::mappings::Mappings;
use farjump_ucx_sys::{UCS_ERR_INVALID_ADDR, UCS_ERR_IO_ERROR};

use super::Refused;

/// Mappings known at a time.
const KNOWN: usize = 16;
/// log2 of the pages in which ranges are counted, in bytes; a longer page of a system is some of these.
const PAGE: u32 = 12;
/// Bits of a packed range that count its pages. The others are its first page: 2^36 of them are all that a
/// process can have.
const PAGES: u32 = 28;

/// Mappings of one kind.
struct Known {
    /// Ranges of pages in one word each, so that they are read whole.
    ranges: [AtomicU64; KNOWN],
    next: AtomicUsize,
}

impl Known {
    const fn none() -> Known {
        Known { ranges: [const { AtomicU64::new(0) }; KNOWN], next: AtomicUsize::new(0) }
    }

    #[inline(always)]
    fn holds(&self, address: usize, len: usize) -> bool {
        self.ranges.iter().any(|range| holds(range.load(Ordering::Relaxed), address, len))
    }

    fn add(&self, range: u64) {
        self.ranges[self.next.fetch_add(1, Ordering::Relaxed) % KNOWN].store(range, Ordering::Relaxed);
    }
}

static SHARED: Known = Known::none();
static PRIVATE: Known = Known::none();

/// Checks that `len` bytes at `pointer`, which UCX gave for the target's `address`, can be written, and are
/// shared memory or this process's own at that very address.
///
/// # Errors
/// [`UCS_ERR_INVALID_ADDR`] if they are not, [`UCS_ERR_IO_ERROR`] where the system does not say.
#[inline(always)]
pub(super) fn check(pointer: usize, address: u64, len: usize) -> Result<(), Refused> {
    if SHARED.holds(pointer, len) {
        return Ok(());
    }
    check_other(pointer, pointer as u64 == address, len)
}

/// Checks the same for memory that is not known to be shared.
#[inline(never)]
fn check_other(pointer: usize, may_be_private: bool, len: usize) -> Result<(), Refused> {
    if may_be_private && PRIVATE.holds(pointer, len) { Ok(()) } else { look(pointer, may_be_private, len) }
}

#[inline(always)]
fn holds(range: u64, address: usize, len: usize) -> bool {
    let start = ((range >> PAGES) << PAGE) as usize;
    let range_len = ((range & ((1 << PAGES) - 1)) << PAGE) as usize;
    let offset = address.wrapping_sub(start);
    offset < range_len && len <= range_len - offset
}

#[cold]
fn look(pointer: usize, may_be_private: bool, len: usize) -> Result<(), Refused> {
    let mappings = Mappings::now().map_err(|cause| Refused::new(UCS_ERR_IO_ERROR, cause.to_string()))?;
    for mapping in mappings.iter().filter(|mapping| mapping.is_writable) {
        let Some(range) = packed(&mapping.range) else { continue };
        if holds(range, pointer, len) && (mapping.is_shared || may_be_private) {
            if mapping.is_shared { &SHARED } else { &PRIVATE }.add(range);
            return Ok(());
        }
    }
    Err(outside(len))
}

/// Returns the error of a frame of this length outside its key's memory.
#[cold]
pub(super) fn outside(len: usize) -> Refused {
    let text = format!(
        "the frame of {len} bytes does not lie in the key's memory: check that the target mapped the remote address, \
         and enough bytes behind it"
    );
    Refused::new(UCS_ERR_INVALID_ADDR, text)
}

/// Returns a range of pages in one word; `None` if it starts where no process has memory.
fn packed(range: &Range<usize>) -> Option<u64> {
    let [start, end] = [range.start, range.end].map(|address| (address >> PAGE) as u64);
    let pages = (end - start).min((1 << PAGES) - 1);
    (start >> (64 - PAGES) == 0).then_some(start << PAGES | pages)
}

#[cfg(test)]
mod tests {
    use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};

    use super::*;

    #[test]
    fn only_writable_memory_is_accepted_and_private_only_at_its_own_address() {
        const LEN: usize = 1 << 16;
        let map = |protection, flags| {
            // SAFETY: a new mapping replaces nothing.
            unsafe { mmap_anonymous(std::ptr::null_mut(), LEN, protection, flags) }.unwrap()
        };
        let both = ProtFlags::READ | ProtFlags::WRITE;
        let all = [
            (map(both, MapFlags::SHARED), [true, true]),
            (map(both, MapFlags::PRIVATE), [false, true]),
            (map(ProtFlags::READ, MapFlags::SHARED), [false, false]),
            (map(ProtFlags::READ, MapFlags::PRIVATE), [false, false]),
        ];
        // Twice: the second time, accepted ranges are known. The private memory is known to be a process's
        // own by then.
        for _ in 0..2 {
            for (start, [as_peers, as_own]) in all {
                let start = start.addr();
                for (pointer, len) in [(start, LEN), (start + 64, 64), (start + LEN - 64, 64)] {
                    let address = pointer as u64;
                    assert_eq!(check(pointer, address + 4096, len).is_ok(), as_peers, "{pointer:#x}");
                    assert_eq!(check(pointer, address, len).is_ok(), as_own, "{pointer:#x}");
                }
            }
        }
        for (pointer, len) in [(8, 8), (all[1].0.addr(), usize::MAX)] {
            assert_eq!(check(pointer, pointer as u64, len).unwrap_err().status, UCS_ERR_INVALID_ADDR);
        }
        for (start, _) in all {
            // SAFETY: these are the mappings made above, and nothing uses them any more.
            unsafe { munmap(start, LEN) }.unwrap();
        }
    }

    #[test]
    fn a_range_holds_its_own_bytes_and_no_others() {
        let range = packed(&(0x7f00_0000_1000..0x7f00_0000_3000)).unwrap();
        let start = 0x7f00_0000_1000;
        assert!(holds(range, start, 0x2000) && holds(range, start + 0x1fff, 1));
        assert!(
            !holds(range, start - 1, 2)
                && !holds(range, start + 0x1fff, 2)
                && !holds(range, start + 0x2000, 0)
        );
        assert!(!holds(range, start + 8, usize::MAX) && !holds(0, 0, 0));
        assert_eq!(packed(&(usize::MAX - 1..usize::MAX)), None);
    }
}
