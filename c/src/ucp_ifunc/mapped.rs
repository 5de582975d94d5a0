//! That an address which UCX worked out is shared memory.
//!
//! `ucp_rkey_ptr` adds what the program says to where the target's memory is mapped, and compares it with nothing: past the end
//! of that memory a store would hit this process's own. So the system is asked what is there, once for each mapping. A mapping that
//! went, and whose addresses went to other memory, is still known here; for addresses inside the target's memory, that does not
//! matter.

use std::fs;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use farjump_ucx_sys::{UCS_ERR_INVALID_ADDR, UCS_ERR_IO_ERROR};

use super::Refused;

/// Mappings known at a time.
const KNOWN: usize = 16;
const PAGE: u32 = 12;
/// Bits of a packed range that count its pages. The others are its first page: 2^36 of them are all that a process can have.
const PAGES: u32 = 28;

/// Ranges of pages in one word each, so that they are read whole.
static RANGES: [AtomicU64; KNOWN] = [const { AtomicU64::new(0) }; KNOWN];
static NEXT: AtomicUsize = AtomicUsize::new(0);

/// Whether `len` bytes at `address` are in a mapping of shared memory that can be written.
///
/// # Errors
/// [`UCS_ERR_INVALID_ADDR`] if they are not, [`UCS_ERR_IO_ERROR`] where the system does not say.
#[inline(always)]
pub(super) fn check(address: usize, len: usize) -> Result<(), Refused> {
    let known = RANGES.iter().any(|range| holds(range.load(Ordering::Relaxed), address, len));
    if known { Ok(()) } else { look(address, len) }
}

#[inline(always)]
fn holds(range: u64, address: usize, len: usize) -> bool {
    let start = ((range >> PAGES) << PAGE) as usize;
    let room = ((range & ((1 << PAGES) - 1)) << PAGE) as usize;
    let offset = address.wrapping_sub(start);
    offset < room && len <= room - offset
}

#[cold]
fn look(address: usize, len: usize) -> Result<(), Refused> {
    let maps = fs::read_to_string("/proc/self/maps")
        .map_err(|error| Refused::new(UCS_ERR_IO_ERROR, format!("reading /proc/self/maps: {error}")))?;
    for range in maps.lines().filter_map(shared) {
        if holds(range, address, len) {
            RANGES[NEXT.fetch_add(1, Ordering::Relaxed) % KNOWN].store(range, Ordering::Relaxed);
            return Ok(());
        }
    }
    Err(outside(len))
}

/// A frame of so many bytes that does not lie where its key says.
#[cold]
pub(super) fn outside(len: usize) -> Refused {
    let text = format!(
        "the frame of {len} bytes does not lie in the memory that the key is for: compare the remote address, and what is left \
         behind it, with what the target mapped"
    );
    Refused::new(UCS_ERR_INVALID_ADDR, text)
}

/// The range of a line of `/proc/PID/maps` (proc(5)), if it is shared and can be written.
fn shared(line: &str) -> Option<u64> {
    let (range, rest) = line.split_once(' ')?;
    let (start, end) = range.split_once('-')?;
    let page = |text| u64::from_str_radix(text, 16).ok().map(|address| address >> PAGE);
    let (start, end) = (page(start)?, page(end)?);
    let pages = (end - start).min((1 << PAGES) - 1);
    let permissions = rest.as_bytes().first_chunk::<4>()?;
    (permissions[1] == b'w' && permissions[3] == b's' && start >> (64 - PAGES) == 0)
        .then_some(start << PAGES | pages)
}

#[cfg(test)]
mod tests {
    use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};

    use super::*;

    #[test]
    fn only_what_lies_wholly_in_shared_memory_that_can_be_written_is_taken() {
        const LEN: usize = 1 << 16;
        let map = |protection, flags| {
            // SAFETY: a new mapping replaces nothing.
            unsafe { mmap_anonymous(std::ptr::null_mut(), LEN, protection, flags) }.unwrap()
        };
        let both = ProtFlags::READ | ProtFlags::WRITE;
        let all = [
            (map(both, MapFlags::SHARED), true),
            (map(both, MapFlags::PRIVATE), false),
            (map(ProtFlags::READ, MapFlags::SHARED), false),
        ];
        for (start, taken) in all {
            let start = start.addr();
            for (address, len) in [(start, LEN), (start + 64, 64), (start + LEN - 64, 64)] {
                assert_eq!(check(address, len).is_ok(), taken, "{address:#x}");
            }
        }
        for (address, len) in [(8, 8), (all[1].0.addr(), usize::MAX), ((&raw const RANGES).addr(), 8)] {
            assert_eq!(check(address, len).unwrap_err().status, UCS_ERR_INVALID_ADDR);
        }
        for (start, _) in all {
            // SAFETY: these are the mappings made above, and nobody uses them any more.
            unsafe { munmap(start, LEN) }.unwrap();
        }
    }

    #[test]
    fn a_range_holds_its_own_bytes_and_no_others() {
        let range = shared("7f0000001000-7f0000003000 rw-s 00000000 00:01 7 /x").unwrap();
        let start = 0x7f00_0000_1000;
        assert!(holds(range, start, 0x2000) && holds(range, start + 0x1fff, 1));
        assert!(
            !holds(range, start - 1, 2)
                && !holds(range, start + 0x1fff, 2)
                && !holds(range, start + 0x2000, 0)
        );
        assert!(!holds(range, start + 8, usize::MAX) && !holds(0, 0, 0));
        for other in ["7f0000001000-7f0000003000 rw-p", "7f0000001000-7f0000003000 r--s", "vsyscall", ""] {
            assert_eq!(shared(other), None);
        }
    }
}
