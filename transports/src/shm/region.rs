//! Regions: memfds mapped here, one's own and the peer's.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;

use farjump_core::transport::Cause;
use memmap2::{Advice, MmapOptions, MmapRaw};
use rustix::fs::{
    FallocateFlags, FileType, MemfdFlags, SealFlags, fallocate, fcntl_add_seals, fcntl_get_seals, fstat,
    fstatfs, ftruncate, memfd_create,
};
use rustix::io::Errno;

use super::{MAX_REGION, PAGE};

/// What `fstatfs` says of memory that is not made of huge pages (`TMPFS_MAGIC`, statfs(2)).
const TMPFS: i64 = 0x0102_1994;
/// From this length on a region is worth huge pages, in bytes.
const HUGE: usize = 2 * 1024 * 1024;
/// Unit of `st_blocks`, in bytes (stat(3type)).
const BLOCK: u64 = 512;

/// Shared memory mapped here for reading and writing. It cannot shrink, so no access to it ever faults.
pub(super) struct Region {
    map: MmapRaw,
    memfd: OwnedFd,
}

impl Region {
    /// Makes a region of `len` bytes, zero and with all of its memory there: what is short is found out now, and not by a
    /// signal that kills the process at the first write.
    pub(super) fn create(len: usize) -> Result<Region, Cause> {
        check_len(len)?;
        let failed =
            |what: &str, errno: Errno| system(&format!("{what} shared memory of {len} bytes"), errno);
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let memfd = match memfd_create("farjump", flags | MemfdFlags::NOEXEC_SEAL) {
            // Linux before 6.3 does not know the flag.
            Err(Errno::INVAL) => memfd_create("farjump", flags),
            made => made,
        }
        .map_err(|errno| failed("making", errno))?;
        ftruncate(&memfd, len as u64).map_err(|errno| failed("sizing", errno))?;
        let map = map(&memfd, len)?;
        // Before the memory is allocated, so that it can be in huge pages.
        advise(&map, len, Advice::PopulateWrite);
        fallocate(&memfd, FallocateFlags::empty(), 0, len as u64)
            .map_err(|errno| failed("allocating", errno))?;
        fcntl_add_seals(&memfd, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)
            .map_err(|errno| failed("sealing", errno))?;
        Ok(Region { map, memfd })
    }

    /// Maps a region of a peer, who says that it is `len` bytes long. Nothing that it says is believed.
    pub(super) fn of_peer(memfd: OwnedFd, len: usize) -> Result<Region, Cause> {
        let wrong = |what: String| Cause::Address(format!("its region {what}"));
        let stat = fstat(&memfd).map_err(|errno| system("looking at the peer's region", errno))?;
        let system_type = fstatfs(&memfd).map_err(|errno| system("looking at the peer's region", errno))?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile || system_type.f_type != TMPFS {
            return Err(wrong("is no memfd".to_owned()));
        }
        // Only a memfd can have this seal: files of a mounted tmpfs take none.
        let seals = fcntl_get_seals(&memfd).map_err(|errno| system("asking for the peer's seals", errno))?;
        if !seals.contains(SealFlags::SHRINK) {
            return Err(wrong(
                "is not sealed against shrinking: reading it could fault at any time".to_owned(),
            ));
        }
        // Looked at after the seal, which keeps it.
        if u64::try_from(stat.st_size) != Ok(len as u64) {
            return Err(wrong(format!("is stated to be {len} bytes long and is {}", stat.st_size)));
        }
        // A peer that gives pages back later (fallocate, punching holes) finds zeros in them and makes nobody fault.
        if u64::try_from(stat.st_blocks).unwrap_or(0) < len as u64 / BLOCK {
            return Err(wrong(format!(
                "has memory for only {} of its {len} bytes",
                stat.st_blocks as u64 * BLOCK
            )));
        }
        let map = map(&memfd, len)?;
        advise(&map, len, Advice::PopulateRead);
        Ok(Region { map, memfd })
    }

    /// Where it begins.
    pub(super) fn base(&self) -> NonNull<u8> {
        NonNull::new(self.map.as_mut_ptr()).expect("the system maps nothing at address 0")
    }

    /// Its length in bytes.
    pub(super) fn len(&self) -> usize {
        self.map.len()
    }

    /// What the peer is handed.
    pub(super) fn memfd(&self) -> BorrowedFd<'_> {
        self.memfd.as_fd()
    }
}

/// Whether a region can be of this length.
pub(super) fn check_len(len: usize) -> Result<(), Cause> {
    if len > MAX_REGION {
        return Err(Cause::TooLarge { len, max: MAX_REGION });
    }
    if len == 0 || !len.is_multiple_of(PAGE) {
        let what = format!("a region of {len} bytes is not a positive number of pages of {PAGE} bytes");
        return Err(Cause::System(what));
    }
    Ok(())
}

fn map(memfd: &OwnedFd, len: usize) -> Result<MmapRaw, Cause> {
    MmapOptions::new()
        .len(len)
        .map_raw(memfd)
        .map_err(|error| Cause::System(format!("mapping {len} bytes of shared memory failed: {error}")))
}

/// Has the pages mapped now rather than at first touch, large where that pays. Where the system knows neither (Linux before
/// 5.14) the first lap is slower and nothing else is different, so failures are of no interest.
fn advise(map: &MmapRaw, len: usize, populate: Advice) {
    if len >= HUGE {
        let _ = map.advise(Advice::HugePage);
    }
    let _ = map.advise(populate);
}

fn system(doing: &str, errno: Errno) -> Cause {
    Cause::System(format!("{doing} failed: {errno}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::ftruncate;

    /// A memfd of `len` bytes, allocated and sealed as asked.
    fn memfd(len: usize, allocated: bool, seals: SealFlags) -> OwnedFd {
        let memfd = memfd_create("test", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
        ftruncate(&memfd, len as u64).unwrap();
        if allocated {
            fallocate(&memfd, FallocateFlags::empty(), 0, len as u64).unwrap();
        }
        fcntl_add_seals(&memfd, seals).unwrap();
        memfd
    }

    fn refused(memfd: impl Into<OwnedFd>, len: usize) -> String {
        match Region::of_peer(memfd.into(), len) {
            Err(Cause::Address(what)) => what,
            Err(other) => panic!("refused for another reason: {other}"),
            Ok(_) => panic!("taken"),
        }
    }

    #[test]
    fn a_region_cannot_change_its_length_and_has_all_its_memory() {
        let region = Region::create(16 * PAGE).unwrap();
        assert_eq!(region.len(), 16 * PAGE);
        assert_eq!(region.base().as_ptr() as usize % PAGE, 0);
        for len in [0, 15 * PAGE, 17 * PAGE] {
            assert_eq!(ftruncate(region.memfd(), len as u64), Err(Errno::PERM));
        }
        assert_eq!(fcntl_add_seals(region.memfd(), SealFlags::WRITE), Err(Errno::PERM));
        assert_eq!(fstat(region.memfd()).unwrap().st_blocks as u64 * BLOCK, 16 * PAGE as u64);
    }

    #[test]
    fn two_mappings_of_a_region_show_the_same_bytes() {
        let ours = Region::create(PAGE).unwrap();
        let theirs = Region::of_peer(ours.memfd().try_clone_to_owned().unwrap(), PAGE).unwrap();
        assert_ne!(ours.base(), theirs.base());
        // SAFETY: both mappings are a page long, and only this thread uses them.
        unsafe {
            assert_eq!(ours.base().add(PAGE - 1).read(), 0);
            theirs.base().add(PAGE - 1).write(7);
            assert_eq!(ours.base().add(PAGE - 1).read_volatile(), 7);
        }
    }

    #[test]
    fn a_region_of_another_length_than_stated_is_refused() {
        let stated_longer = refused(memfd(PAGE, true, SealFlags::SHRINK), 2 * PAGE);
        assert!(stated_longer.contains("8192") && stated_longer.contains("4096"), "{stated_longer}");
        refused(memfd(2 * PAGE, true, SealFlags::SHRINK), PAGE);
    }

    #[test]
    fn a_region_that_could_shrink_is_refused() {
        let what = refused(memfd(PAGE, true, SealFlags::GROW), PAGE);
        assert!(what.contains("shrinking"), "{what}");
    }

    #[test]
    fn a_region_without_memory_behind_it_is_refused() {
        let what = refused(memfd(1 << 30, false, SealFlags::SHRINK), 1 << 30);
        assert!(what.contains("0 of its 1073741824"), "{what}");
    }

    #[test]
    fn what_is_no_memfd_is_refused_as_such() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(PAGE as u64).unwrap();
        refused(file, PAGE);
        let (reader, writer) = rustix::pipe::pipe().unwrap();
        assert_eq!(refused(reader, PAGE), "its region is no memfd");
        refused(writer, PAGE);
        refused(rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC).unwrap(), PAGE);
        refused(std::os::unix::net::UnixStream::pair().unwrap().0, PAGE);
        refused(std::fs::File::open("/dev/zero").unwrap(), PAGE);
    }

    #[test]
    fn a_region_that_may_not_be_written_is_refused() {
        let memfd = memfd(PAGE, true, SealFlags::SHRINK | SealFlags::FUTURE_WRITE);
        assert!(matches!(Region::of_peer(memfd, PAGE), Err(Cause::System(_))));
    }

    #[test]
    fn lengths_that_no_region_can_have_are_refused() {
        for len in [0, 1, PAGE - 1, PAGE + 1] {
            assert!(matches!(Region::create(len), Err(Cause::System(_))), "{len}");
        }
        assert!(matches!(Region::create(MAX_REGION + PAGE), Err(Cause::TooLarge { max: MAX_REGION, .. })));
    }
}
