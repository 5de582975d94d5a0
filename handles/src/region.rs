//! The memory of a store: a memfd that its owner makes, and that readers on the same machine map once.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;

use farjump_os::{has_ordinary_pages, limits};
use memmap2::{MmapOptions, MmapRaw};
use rustix::fs::{
    MemfdFlags, Mode, OFlags, SealFlags, fchmod, fcntl_add_seals, fcntl_get_seals, fstat, ftruncate,
    memfd_create, open,
};
use rustix::io::Errno;

use crate::error::Error;

/// Length of a page of the system, in bytes: both processes of a region have pages of the same length.
fn page() -> u64 {
    rustix::param::page_size() as u64
}

/// Most bytes of a region.
pub(crate) const MAX_LEN: u64 = 1 << 46;

/// Memory mapped here. It cannot shrink, so no access to it lies behind its end.
#[derive(Debug)]
pub(crate) struct Region {
    map: MmapRaw,
    is_writable: bool,
}

/// A region that this process owns, with its descriptors.
#[derive(Debug)]
pub(crate) struct OwnRegion {
    pub(crate) region: Region,
    memfd: OwnedFd,
    /// The same memfd, open for reading alone. `None` where the system has no `/proc`.
    read_only: Option<OwnedFd>,
}

impl OwnRegion {
    /// Makes a region of at least `len` bytes. Its pages get memory as they are first written.
    pub(crate) fn create(len: u64) -> Result<OwnRegion, Error> {
        let failed = |doing: &'static str, call, errno: Errno| Error::Memory {
            doing,
            len,
            source: io::Error::from(errno),
            advice: limits::behind_call(call, &errno.into()),
        };
        if len > MAX_LEN {
            return Err(failed("sizing", "ftruncate", Errno::FBIG));
        }
        let len = len.max(1).next_multiple_of(page());
        // Sizing it would end this process (SIGXFSZ).
        if let Some(advice) = limits::too_long(len) {
            return Err(Error::Memory {
                doing: "sizing",
                len,
                source: Errno::FBIG.into(),
                advice: format!(": {advice}"),
            });
        }
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let memfd = match memfd_create("farjump-objects", flags | MemfdFlags::NOEXEC_SEAL) {
            // Linux before 6.3 does not support the flag.
            Err(Errno::INVAL) => memfd_create("farjump-objects", flags),
            made => made,
        }
        .map_err(|errno| failed("making", "memfd_create", errno))?;
        // Another user's process that gets the memfd for reading cannot open it for writing by its link in /proc.
        fchmod(&memfd, Mode::RUSR | Mode::WUSR).map_err(|errno| failed("restricting", "fchmod", errno))?;
        ftruncate(&memfd, len).map_err(|errno| failed("sizing", "ftruncate", errno))?;
        fcntl_add_seals(&memfd, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)
            .map_err(|errno| failed("sealing", "fcntl", errno))?;
        let region =
            Region::map(memfd.as_fd(), len, true).map_err(|errno| failed("mapping", "mmap", errno))?;
        let path = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&memfd));
        let read_only = open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).ok();
        Ok(OwnRegion { region, memfd, read_only })
    }

    /// The descriptor for another process.
    pub(crate) fn descriptor(&self, may_write: bool) -> Option<BorrowedFd<'_>> {
        if may_write { Some(self.memfd.as_fd()) } else { self.read_only.as_ref().map(|fd| fd.as_fd()) }
    }
}

impl Region {
    fn map(memfd: BorrowedFd<'_>, len: u64, is_writable: bool) -> Result<Region, Errno> {
        let mut options = MmapOptions::new();
        options.len(usize::try_from(len).map_err(|_| Errno::OVERFLOW)?);
        let map = if is_writable { options.map_raw(&memfd) } else { options.map_raw_read_only(&memfd) };
        let map = map.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::INVAL))?;
        Ok(Region { map, is_writable })
    }

    /// Maps the region of an owner, which states a length of `len` bytes. Trusts nothing about the region.
    ///
    /// # Errors
    /// A message with the reason.
    pub(crate) fn of_owner(memfd: BorrowedFd<'_>, len: u64, may_write: bool) -> Result<Region, String> {
        if len == 0 || len > MAX_LEN || !len.is_multiple_of(page()) {
            return Err(format!("the owner's memory has an impossible length of {len} bytes"));
        }
        // The seals first: only a memfd has them, and the query blocks on no descriptor. Behind the seal against
        // shrinking the length stays true.
        let seals = match fcntl_get_seals(memfd) {
            Ok(seals) => seals,
            Err(Errno::INVAL | Errno::BADF) => return Err("the owner's memory is no memfd".to_owned()),
            Err(errno) => return Err(format!("asking for the seals of the owner's memory failed: {errno}")),
        };
        if !seals.contains(SealFlags::SHRINK) {
            return Err("the owner's memory could shrink, and reading it could fault at any time".to_owned());
        }
        let failed = |errno| format!("looking at the owner's memory failed: {errno}");
        if !has_ordinary_pages(memfd).map_err(failed)? {
            return Err("the owner's memory is in huge pages of hugetlbfs: where its owner gives one back, reading it could fault"
                .to_owned());
        }
        let stat = fstat(memfd).map_err(failed)?;
        if u64::try_from(stat.st_size) != Ok(len) {
            return Err(format!("the owner's memory is stated to have {len} bytes and has {}", stat.st_size));
        }
        let mapped = match Region::map(memfd, len, may_write) {
            // The owner sent it for reading alone.
            Err(Errno::ACCESS | Errno::PERM) if may_write => Region::map(memfd, len, false),
            mapped => mapped,
        };
        mapped.map_err(|errno| {
            format!(
                "mapping the owner's memory of {len} bytes failed: {errno}{}",
                limits::behind_call("mmap", &errno.into())
            )
        })
    }

    /// Returns whether this process may write to the region.
    pub(crate) fn is_writable(&self) -> bool {
        self.is_writable
    }

    /// Length in bytes.
    pub(crate) fn len(&self) -> u64 {
        self.map.len() as u64
    }

    /// The `len` bytes from `offset` on. `None` if not all of them lie inside the region.
    pub(crate) fn at(&self, offset: u64, len: u64) -> Option<NonNull<u8>> {
        if offset.checked_add(len)? > self.len() {
            return None;
        }
        NonNull::new(self.map.as_mut_ptr().wrapping_add(usize::try_from(offset).ok()?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn memfd(len: u64, seals: SealFlags) -> OwnedFd {
        let memfd = memfd_create("test", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
        ftruncate(&memfd, len).unwrap();
        fcntl_add_seals(&memfd, seals).unwrap();
        memfd
    }

    #[test]
    fn a_region_is_seen_by_its_readers_and_written_by_no_reader() {
        let own = OwnRegion::create(page()).unwrap();
        let bytes = own.region.at(64, 5).unwrap();
        // SAFETY: the region has a page, and only this thread writes it.
        unsafe { bytes.copy_from_nonoverlapping(NonNull::from(b"bytes").cast(), 5) };
        let reader = Region::of_owner(own.descriptor(false).unwrap(), page(), true).unwrap();
        assert!(!reader.is_writable());
        // SAFETY: as above.
        let seen = unsafe { std::slice::from_raw_parts(reader.at(64, 5).unwrap().as_ptr(), 5) };
        assert_eq!(seen, b"bytes");
        assert!(Region::of_owner(own.descriptor(true).unwrap(), page(), true).unwrap().is_writable());
        assert_eq!(ftruncate(&own.memfd, 0), Err(Errno::PERM));
        assert!(
            reader.at(page(), 1).is_none()
                && reader.at(1, page()).is_none()
                && reader.at(u64::MAX, 2).is_none()
        );
        assert!(reader.at(page(), 0).is_some());
    }

    #[test]
    fn unsealed_or_wrongly_sized_memory_is_refused_with_the_reason() {
        let refused = |fd: &OwnedFd, len| Region::of_owner(fd.as_fd(), len, false).unwrap_err();
        assert!(refused(&memfd(page(), SealFlags::GROW), page()).contains("shrink"));
        assert!(refused(&memfd(page(), SealFlags::SHRINK), 2 * page()).contains(&format!(
            "{} bytes and has {}",
            2 * page(),
            page()
        )));
        for len in [0, 1, MAX_LEN + page()] {
            assert!(refused(&memfd(page(), SealFlags::SHRINK), len).contains("impossible"), "{len}");
        }
        let (reader, _writer) = rustix::pipe::pipe().unwrap();
        assert!(refused(&reader, page()).contains("no memfd"));
    }

    /// Refused because of its type: the pool of such memory may be empty when a page is read that was given back.
    #[test]
    fn memory_in_pages_of_hugetlbfs_is_refused() {
        let meminfo = std::fs::read_to_string("/proc/meminfo").unwrap();
        let kib =
            meminfo.lines().find_map(|line| line.strip_prefix("Hugepagesize:")?.trim().strip_suffix(" kB"));
        let Some(kib) = kib else { return println!("skipped: this system has no huge pages") };
        let huge = kib.parse::<u64>().unwrap() << 10;
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING | MemfdFlags::HUGETLB;
        let memfd = match memfd_create("test", flags) {
            Ok(memfd) => memfd,
            Err(errno) => return println!("skipped: this system makes no memfd in huge pages: {errno}"),
        };
        ftruncate(&memfd, huge).unwrap();
        fcntl_add_seals(&memfd, SealFlags::SHRINK).unwrap();
        let why = Region::of_owner(memfd.as_fd(), huge, false).unwrap_err();
        assert!(why.contains("huge pages of hugetlbfs"), "{why}");
    }
}
