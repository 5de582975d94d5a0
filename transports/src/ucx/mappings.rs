//! Memory mappings of this process, to check a pointer that UCX computed from data of the peer.

use std::fs;
use std::ops::Range;
use std::ptr::NonNull;

use farjump_core::transport::Cause;
use rustix::io::Errno;
use rustix::mm::{Advice, madvise};

use super::mapping_query::MappingQuery;

/// The mappings of this process at one moment.
pub struct Mappings(Vec<Mapping>);

/// A mapping of this process.
pub struct Mapping {
    /// Its addresses.
    pub range: Range<usize>,
    /// Whether it can be written.
    pub is_writable: bool,
    /// Whether it is shared, readable and writable.
    pub is_shared: bool,
    /// Device and inode of the file or segment, as the system writes them: for System V its id is the inode.
    file: (String, u64),
    /// Offset in that file.
    offset: u64,
}

impl Mappings {
    /// Reads the current mappings.
    ///
    /// # Errors
    /// The system does not show them.
    pub fn now() -> Result<Mappings, Cause> {
        let text = fs::read_to_string("/proc/self/maps").map_err(|error| {
            Cause::System(format!("reading /proc/self/maps failed: {error}; is /proc mounted?"))
        })?;
        Ok(Mappings(text.lines().filter_map(Mapping::read).collect()))
    }

    /// Returns them in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = &Mapping> {
        self.0.iter()
    }

    /// Returns whether all of `range` lies in memory that other processes can map, too.
    pub fn share(&self, range: &Range<usize>) -> bool {
        let mut at = range.start;
        for mapping in self.0.iter().filter(|mapping| mapping.is_shared) {
            if mapping.range.contains(&at) {
                at = mapping.range.end;
            }
        }
        at >= range.end
    }

    /// Returns the mappings that `range` touches.
    fn overlapping(&self, range: &Range<usize>) -> impl Iterator<Item = &Mapping> {
        self.0.iter().filter(|mapping| mapping.range.start < range.end && range.start < mapping.range.end)
    }

    /// Returns whether all of `range` lies in one piece of one shared segment.
    fn are_one_segment_in(&self, range: &Range<usize>) -> bool {
        // The system lists them in ascending order.
        let mut pieces = self.overlapping(range).filter(|mapping| mapping.is_shared);
        let Some(mut last) = pieces.next().filter(|first| first.range.start <= range.start) else {
            return false;
        };
        for piece in pieces {
            if !last.is_contiguous_with(piece) {
                return false;
            }
            last = piece;
        }
        last.range.end >= range.end
    }
}

/// The mappings of this process now: by queries of single ones where the kernel answers, else by the list of all.
pub(super) struct CurrentMappings(Option<MappingQuery>);

impl CurrentMappings {
    pub(super) fn open() -> CurrentMappings {
        CurrentMappings(MappingQuery::open())
    }

    /// Returns whether nothing is mapped in `range`.
    pub(super) fn are_none_in(&self, range: &Range<usize>) -> Result<bool, Cause> {
        match self.0.as_ref().and_then(|query| query.is_free(range)) {
            Some(is_free) => Ok(is_free),
            None => Ok(Mappings::now()?.overlapping(range).next().is_none()),
        }
    }

    /// Returns whether all of `range` lies in one piece of one shared segment.
    pub(super) fn are_one_segment_in(&self, range: &Range<usize>) -> Result<bool, Cause> {
        match self.0.as_ref().and_then(|query| query.is_of_one_segment(range)) {
            Some(is_one) => Ok(is_one),
            None => Ok(Mappings::now()?.are_one_segment_in(range)),
        }
    }
}

impl Mapping {
    /// Parses a line of `/proc/self/maps` (proc_pid_maps(5)).
    fn read(line: &str) -> Option<Mapping> {
        let mut words = line.split_ascii_whitespace();
        let (from, to) = words.next()?.split_once('-')?;
        let [from, to] = [from, to].map(|text| usize::from_str_radix(text, 16).ok());
        let rights = words.next()?;
        let offset = u64::from_str_radix(words.next()?, 16).ok()?;
        let (device, inode) = (words.next()?.to_owned(), words.next()?.parse().ok()?);
        let is_writable = rights.as_bytes().get(1) == Some(&b'w');
        let is_shared = rights.starts_with("rw") && rights.ends_with('s');
        Some(Mapping { range: from?..to?, is_writable, is_shared, file: (device, inode), offset })
    }

    /// Returns whether `next` begins at the end of this mapping, in memory and in the file.
    fn is_contiguous_with(&self, next: &Mapping) -> bool {
        let len = self.range.len() as u64;
        self.range.end == next.range.start && self.file == next.file && self.offset + len == next.offset
    }
}

/// Maps the `len` bytes at `start` now rather than at first touch, and checks that memory backs all of them: a write to
/// missing memory ends the process. On Linux before 5.14, which cannot do it, checks nothing.
///
/// # Safety
/// The bytes are mapped, and shared.
pub(super) unsafe fn populate(start: NonNull<u8>, len: usize) -> Result<(), Cause> {
    // SAFETY: the call changes no byte of the range, which the caller guarantees to be mapped.
    match unsafe { madvise(start.as_ptr().cast(), len, Advice::LinuxPopulateWrite) } {
        Ok(()) | Err(Errno::INVAL) => Ok(()),
        Err(Errno::FAULT) => {
            Err(Cause::Address(format!("its region has no memory for some of its {len} bytes")))
        }
        Err(errno) => Err(Cause::System(format!("mapping {len} bytes of the peer's memory failed: {errno}"))),
    }
}

#[cfg(test)]
mod tests {
    use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous};

    use rustix::param::page_size;

    use super::*;

    /// Maps memory for as long as the process.
    fn map(len: usize, flags: MapFlags) -> Range<usize> {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: the system chooses an unused address.
        let start = unsafe { mmap_anonymous(std::ptr::null_mut(), len, protection, flags) };
        let start = start.unwrap().addr();
        start..start + len
    }

    /// By the kernel's answers, and by the list alone.
    fn views() -> [CurrentMappings; 2] {
        [CurrentMappings::open(), CurrentMappings(None)]
    }

    #[test]
    fn memory_is_one_segment_only_where_it_is_shared_and_mapped() {
        let [shared, private] =
            [MapFlags::SHARED, MapFlags::PRIVATE].map(|flags| map(4 * page_size(), flags));
        for view in views() {
            let is_one = |range: Range<usize>| view.are_one_segment_in(&range).unwrap();
            assert!(is_one(shared.clone()) && is_one(shared.start + page_size()..shared.end));
            assert!(!is_one(private.clone()), "not what is private");
            assert!(!is_one(shared.start..usize::MAX), "not what goes on behind it");
            let nothing = page_size()..2 * page_size();
            assert!(!is_one(nothing.clone()), "not what is not mapped");
            assert!(view.are_none_in(&nothing).unwrap());
            for mapped in [&shared, &private] {
                assert!(!view.are_none_in(&(mapped.start..mapped.start + 1)).unwrap());
                assert!(!view.are_none_in(&(page_size()..mapped.end)).unwrap());
            }
        }
    }

    #[test]
    fn memory_is_shared_only_where_all_of_it_is() {
        let space = map(4 * page_size(), MapFlags::PRIVATE);
        let middle = space.start + 2 * page_size();
        let now = || Mappings::now().unwrap();
        assert!(!now().share(&space));
        let flags = MapFlags::SHARED | MapFlags::FIXED;
        for start in [space.start, middle] {
            let protection = ProtFlags::READ | ProtFlags::WRITE;
            // SAFETY: in `space`, which belongs to this test.
            unsafe {
                mmap_anonymous(std::ptr::without_provenance_mut(start), 2 * page_size(), protection, flags)
            }
            .unwrap();
            assert_eq!(now().share(&space), start == middle);
        }
        assert!(now().share(&(middle - page_size()..middle + page_size())));
        assert!(!now().share(&(page_size()..2 * page_size())), "nothing is mapped there");
    }

    #[test]
    fn adjacent_mappings_count_as_one_only_if_the_file_continues() {
        let space = map(4 * page_size(), MapFlags::PRIVATE);
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        let middle = space.start + 2 * page_size();
        for start in [space.start, middle] {
            let flags = MapFlags::SHARED | MapFlags::FIXED;
            // SAFETY: in `space`, which belongs to this test.
            let got = unsafe {
                mmap_anonymous(std::ptr::without_provenance_mut(start), 2 * page_size(), protection, flags)
            };
            assert_eq!(got.unwrap().addr(), start);
        }
        let is_one = |range: Range<usize>| {
            let [one, other] = views().map(|view| view.are_one_segment_in(&range).unwrap());
            assert_eq!(one, other);
            one
        };
        assert!(is_one(space.start..middle) && is_one(middle..space.end));
        assert!(!is_one(space.clone()) && !is_one(middle - page_size()..middle + page_size()));
        // The same segment twice, and then a piece of a segment that its rights cut in two.
        let file = tempfile::tempfile().unwrap();
        file.set_len(4 * page_size() as u64).unwrap();
        let place = |start: usize, len: usize, offset: usize, protection: ProtFlags| {
            let (flags, start) =
                (MapFlags::SHARED | MapFlags::FIXED, std::ptr::without_provenance_mut(start));
            // SAFETY: in `space`, which belongs to this test.
            unsafe { rustix::mm::mmap(start, len, protection, flags, &file, offset as u64) }.unwrap();
        };
        place(space.start, 2 * page_size(), 0, protection);
        place(middle, 2 * page_size(), 0, protection);
        assert!(!is_one(space.clone()), "it begins anew in the middle");
        place(middle, 2 * page_size(), 2 * page_size(), protection | ProtFlags::EXEC);
        assert!(is_one(space.clone()), "it goes on");
    }

    #[test]
    fn memory_behind_the_end_of_a_file_is_found_missing() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(page_size() as u64).unwrap();
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: the system chooses an unused address.
        let start = unsafe {
            rustix::mm::mmap(std::ptr::null_mut(), 2 * page_size(), protection, MapFlags::SHARED, &file, 0)
        };
        let start = NonNull::new(start.unwrap().cast::<u8>()).unwrap();
        // SAFETY: mapped above.
        let outcomes = unsafe { [populate(start, page_size()), populate(start, 2 * page_size())] };
        assert_eq!(outcomes[0], Ok(()));
        match &outcomes[1] {
            Err(Cause::Address(what)) => assert!(what.contains(&(2 * page_size()).to_string()), "{what}"),
            // Before Linux 5.14.
            Ok(()) => println!("skipped: this kernel does not say"),
            Err(other) => panic!("{other}"),
        }
    }
}
