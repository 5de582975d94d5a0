//! Queries of single mappings of this process (`PROCMAP_QUERY`, from Linux 6.11 on): reading the list of all takes a
//! millisecond in a process with hundreds of mappings.

use std::fs::File;
use std::ops::Range;
use std::os::fd::AsRawFd;

/// The requests of `/proc/PID/maps` (linux/fs.h): `_IOWR('f', 17, struct procmap_query)`.
const PROCMAP_QUERY: u32 = 0xC068_6611;
/// Readable, writable and shared.
const SHARED: u64 = 1 | 2 | 8;
/// The result may be the next mapping above the address.
const COVERING_OR_NEXT: u64 = 0x10;

/// `struct procmap_query`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct ProcmapQuery {
    size: u64,
    query_flags: u64,
    query_addr: u64,
    vma_start: u64,
    vma_end: u64,
    vma_flags: u64,
    vma_page_size: u64,
    vma_offset: u64,
    inode: u64,
    dev_major: u32,
    dev_minor: u32,
    vma_name_size: u32,
    build_id_size: u32,
    vma_name_addr: u64,
    build_id_addr: u64,
}

const _: () = assert!(size_of::<ProcmapQuery>() == 0x68);

/// The mappings of this process, one at a time.
pub(super) struct MappingQuery(File);

impl MappingQuery {
    /// Opens the mappings. `None` without /proc or descriptors; an older kernel fails each query.
    pub(super) fn open() -> Option<MappingQuery> {
        File::open("/proc/self/maps").ok().map(MappingQuery)
    }

    /// Returns whether nothing is mapped in `range`. `None` if the query fails.
    pub(super) fn is_free(&self, range: &Range<usize>) -> Option<bool> {
        match self.query_mapping(range.start, COVERING_OR_NEXT)? {
            Some(next) => Some(next.vma_start >= range.end as u64),
            None => Some(true),
        }
    }

    /// Returns whether all of `range` lies in one piece of one shared segment. `None` if the query fails.
    pub(super) fn is_of_one_segment(&self, range: &Range<usize>) -> Option<bool> {
        let Some(mut last) = self.query_mapping(range.start, 0)? else { return Some(false) };
        while last.vma_end < range.end as u64 {
            let Some(next) = self.query_mapping(last.vma_end as usize, 0)? else { return Some(false) };
            if !last.is_shared() || !last.is_contiguous_with(&next) {
                return Some(false);
            }
            last = next;
        }
        Some(last.is_shared())
    }

    /// Queries the mapping at an address. `None` if the query fails; `Some(None)` if there is no mapping.
    fn query_mapping(&self, address: usize, flags: u64) -> Option<Option<ProcmapQuery>> {
        let mut query = ProcmapQuery {
            size: size_of::<ProcmapQuery>() as u64,
            query_flags: flags,
            query_addr: address as u64,
            ..ProcmapQuery::default()
        };
        // SAFETY: the request reads and writes only the structure, whose two pointers are null with lengths of 0.
        let answered = unsafe { libc::ioctl(self.0.as_raw_fd(), PROCMAP_QUERY as _, &raw mut query) };
        match answered {
            0 => Some(Some(query)),
            _ if std::io::Error::last_os_error().raw_os_error() == Some(libc::ENOENT) => Some(None),
            _ => None,
        }
    }
}

impl ProcmapQuery {
    fn is_shared(&self) -> bool {
        self.vma_flags & SHARED == SHARED
    }

    /// Returns whether `next` begins at the end of this mapping, in memory and in the file.
    fn is_contiguous_with(&self, next: &ProcmapQuery) -> bool {
        let file = |one: &ProcmapQuery| (one.dev_major, one.dev_minor, one.inode);
        let len = self.vma_end - self.vma_start;
        self.vma_end == next.vma_start && file(self) == file(next) && self.vma_offset + len == next.vma_offset
    }
}

#[cfg(test)]
mod tests {
    use std::ptr;

    use rustix::mm::{MapFlags, ProtFlags, mmap, mmap_anonymous, munmap};

    use rustix::param::page_size;

    use super::*;

    #[test]
    fn ranges_are_free_or_of_one_shared_segment_or_neither() {
        let query = MappingQuery::open().unwrap();
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: the system chooses an unused address.
        let start =
            unsafe { mmap_anonymous(ptr::null_mut(), 4 * page_size(), protection, MapFlags::PRIVATE) };
        let start = start.unwrap().addr();
        let space = start..start + 4 * page_size();
        let file = tempfile::tempfile().unwrap();
        file.set_len(4 * page_size() as u64).unwrap();
        let place = |at: usize, offset: usize, protection: ProtFlags| {
            let (flags, at) = (MapFlags::SHARED | MapFlags::FIXED, ptr::without_provenance_mut(at));
            // SAFETY: in `space`, which belongs to this test.
            unsafe { mmap(at, 2 * page_size(), protection, flags, &file, offset as u64) }.unwrap();
        };
        let middle = start + 2 * page_size();
        let Some(of_private) = query.is_of_one_segment(&space) else {
            // Linux before 6.11.
            return println!("skipped: this kernel does not answer");
        };
        assert!(!of_private, "not what is private");
        assert_eq!(query.is_free(&space), Some(false));
        place(start, 0, protection);
        let is_one = |range: Range<usize>| query.is_of_one_segment(&range).unwrap();
        assert!(is_one(start..middle) && is_one(start + page_size()..middle));
        assert!(!is_one(space.clone()), "it goes on as private memory");
        place(middle, 0, protection);
        assert!(!is_one(space.clone()), "it begins anew in the middle");
        place(middle, 2 * page_size(), protection | ProtFlags::EXEC);
        assert!(is_one(space.clone()), "it goes on, with other rights");
        place(middle, 2 * page_size(), ProtFlags::READ);
        assert!(!is_one(space.clone()), "it cannot be written there");
        // SAFETY: in `space`, which belongs to this test.
        unsafe { munmap(ptr::without_provenance_mut(middle), 2 * page_size()) }.unwrap();
        // Another thread may map something there at once.
        if query.is_free(&(middle..space.end)) == Some(true) {
            assert!(!is_one(space.clone()), "not what is not mapped");
        }
        assert_eq!(query.is_free(&(middle - page_size()..space.end)), Some(false), "its start is mapped");
        assert_eq!(query.is_free(&(0..page_size())), Some(true), "nothing is mapped at 0");
    }
}
