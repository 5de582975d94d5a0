//! Regions: memfds mapped here, this process's own and the peer's.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::ptr::NonNull;
use std::sync::OnceLock;

use farjump_core::transport::Cause;
use farjump_os::deferred_close::DeferredFd;
use farjump_os::{has_ordinary_pages, limits};
use memmap2::{Advice, MmapOptions, MmapRaw};
use rustix::fs::{
    FallocateFlags, MemfdFlags, SealFlags, fallocate, fcntl_add_seals, fcntl_get_seals, fstat, ftruncate,
};
use rustix::io::Errno;

use super::MAX_REGION;
use crate::fork::{Inherited, Listed};
use crate::region_len;

/// Length in bytes from which huge pages pay for a region.
const HUGE: usize = 2 * 1024 * 1024;
/// Contains `2` if the system does not overcommit memory (proc_sys_vm(5)).
const OVERCOMMIT: &str = "/proc/sys/vm/overcommit_memory";
/// Unit of `st_blocks`, in bytes (stat(3type)).
const BLOCK: u64 = 512;
/// Maximum length of a region that is mapped page by page during a handshake, in bytes: this takes well under a
/// millisecond. The pages behind are mapped at first use.
const POPULATED: usize = 8 << 20;
/// Bytes at the start of a region that have memory before the peer gets it.
pub(super) const ALLOCATED: usize = 64 << 10;

/// The pages of a region, where the system permits the choice.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Pages {
    /// Ordinary pages: the region takes memory as it is used.
    Ordinary,
    /// Huge pages where they pay: the region is used as a whole.
    Huge,
}

/// Returns whether the first use of a page may find no memory, which ends the process by a signal. That is so if the
/// system does not overcommit memory. Otherwise it takes memory from another process, as for any allocation.
fn may_lack_pages() -> bool {
    static STRICT: OnceLock<bool> = OnceLock::new();
    *STRICT.get_or_init(|| std::fs::read(OVERCOMMIT).is_ok_and(|policy| policy.first() == Some(&b'2')))
}

/// Shared memory mapped here for reading and writing. It cannot shrink, so no access to it lies behind its
/// end. A forked child has private copies of the pages that it writes.
pub(super) struct Region {
    /// Before the mapping and its descriptor, so that it is dropped first.
    _listed: Listed,
    map: MmapRaw,
    memfd: DeferredFd,
}

impl Region {
    /// Makes a zeroed region of `len` bytes, with memory for the first `at_once` bytes: a lack of memory is then an
    /// error here, not a signal at the first write, which kills the process. The rest gets memory as it is used.
    /// Ordinary pages all get memory at once if the system may have none left for a later use.
    pub(super) fn create(len: usize, at_once: usize, pages: Pages) -> Result<Region, Cause> {
        check_len(len)?;
        let grows = pages == Pages::Huge || !may_lack_pages();
        let at_once = if grows { at_once.max(ALLOCATED).min(len) } else { len };
        let failed =
            |what: &str, call, errno| system(&format!("{what} shared memory of {len} bytes"), call, errno);
        // Setting the length would end this process (SIGXFSZ).
        if let Some(advice) = limits::too_long(len as u64) {
            return Err(Cause::System(format!("shared memory of {len} bytes is not allowed: {advice}")));
        }
        let memfd = farjump_os::memfd(c"farjump", MemfdFlags::ALLOW_SEALING)
            .map_err(|errno| failed("making", "memfd_create", errno))?;
        ftruncate(&memfd, len as u64).map_err(|errno| failed("sizing", "ftruncate", errno))?;
        let map = map(memfd.as_fd(), len)?;
        // Before the allocation, so that it can use huge pages.
        advise(&map, at_once, Advice::PopulateWrite, pages);
        fallocate(&memfd, FallocateFlags::empty(), 0, at_once as u64)
            .map_err(|errno| failed("allocating", "fallocate", errno))?;
        fcntl_add_seals(&memfd, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)
            .map_err(|errno| failed("sealing", "fcntl", errno))?;
        Ok(Region { _listed: listed(&map, memfd.as_fd(), true), map, memfd: memfd.into() })
    }

    /// Maps a peer's region, with the claimed length of `len` bytes. Trusts nothing about it.
    pub(super) fn of_peer(memfd: DeferredFd, len: usize, pages: Pages) -> Result<Region, Cause> {
        let allocated = check_peers(memfd.as_fd(), len, || ())?;
        let map = map(memfd.as_fd(), len)?;
        advise(&map, allocated, Advice::PopulateRead, pages);
        Ok(Region { _listed: listed(&map, memfd.as_fd(), false), map, memfd })
    }

    /// Start of the region.
    pub(super) fn base(&self) -> NonNull<u8> {
        NonNull::new(self.map.as_mut_ptr()).expect("the system maps nothing at address 0")
    }

    /// Its length in bytes.
    pub(super) fn len(&self) -> usize {
        self.map.len()
    }

    /// The descriptor for the peer.
    pub(super) fn memfd(&self) -> BorrowedFd<'_> {
        self.memfd.as_fd()
    }
}

/// Lists a region, the process's own or a peer's, for forked children.
fn listed(map: &MmapRaw, memfd: BorrowedFd<'_>, is_own: bool) -> Listed {
    let (start, len) = (map.as_ptr().expose_provenance(), map.len());
    Listed::new(Inherited::Region { start, len, memfd: memfd.as_raw_fd(), is_own })
}

/// Checks that a region can have this length.
pub(super) fn check_len(len: usize) -> Result<(), Cause> {
    if len > MAX_REGION {
        return Err(Cause::TooLarge { len, max: MAX_REGION });
    }
    region_len::check(len)
}

/// Checks that `memfd` is a memfd, has `len` bytes and keeps them. Returns the number of bytes that have memory. The
/// owner may change the memfd at the same time; tests use `between` at the places where that matters.
fn check_peers(memfd: BorrowedFd<'_>, len: usize, mut between: impl FnMut()) -> Result<usize, Cause> {
    let wrong = |what: String| Cause::Address(format!("its region {what}"));
    check_len(len).map_err(|cause| wrong(format!("has an impossible length: {cause}")))?;
    between();
    // Seals first. Only a memfd has them, and querying them blocks on no descriptor, unlike querying the length of a
    // network or FUSE file. After the seal against shrinking, the checked facts stay true.
    let seals = match fcntl_get_seals(memfd) {
        Ok(seals) => seals,
        Err(Errno::INVAL | Errno::BADF) => return Err(wrong("is no memfd".to_owned())),
        Err(errno) => return Err(system("asking for the peer's seals", "fcntl", errno)),
    };
    if !seals.contains(SealFlags::SHRINK) {
        let what = "is not sealed against shrinking: reading it could fault at any time";
        return Err(wrong(what.to_owned()));
    }
    if seals.intersects(SealFlags::WRITE | SealFlags::FUTURE_WRITE) {
        return Err(wrong("is sealed against writing: nothing could be put there".to_owned()));
    }
    between();
    if !has_ordinary_pages(memfd).map_err(|errno| system("looking at the peer's region", "fstatfs", errno))? {
        return Err(wrong("is no memfd of ordinary pages".to_owned()));
    }
    between();
    let stat = fstat(memfd).map_err(|errno| system("looking at the peer's region", "fstat", errno))?;
    if u64::try_from(stat.st_size) != Ok(len as u64) {
        return Err(wrong(format!("is stated to be {len} bytes long and is {}", stat.st_size)));
    }
    // This finds honest mistakes. A peer can give pages back later (fallocate, punching holes): they then read as
    // zeroes, in memory that the system provides at the next access.
    let allocated = u64::try_from(stat.st_blocks).unwrap_or(0) * BLOCK;
    let needed = len.min(ALLOCATED) as u64;
    if allocated < needed {
        return Err(wrong(format!("has memory for only {allocated} of its first {needed} bytes")));
    }
    between();
    Ok(usize::try_from(allocated).unwrap_or(usize::MAX).min(len))
}

fn map(memfd: BorrowedFd<'_>, len: usize) -> Result<MmapRaw, Cause> {
    MmapOptions::new().len(len).map_raw(&memfd).map_err(|error| {
        Cause::System(format!(
            "mapping {len} bytes of shared memory failed: {error}{}",
            limits::behind_call("mmap", &error)
        ))
    })
}

/// Maps the pages of the first `len` bytes at once instead of at first touch, [`POPULATED`] at most; huge pages if they
/// pay. If the system supports neither (Linux before 5.14), only the first lap is slower, so errors are ignored.
fn advise(map: &MmapRaw, len: usize, populate: Advice, pages: Pages) {
    if map.len() >= HUGE && pages == Pages::Huge {
        let _ = map.advise(Advice::HugePage);
    }
    let _ = map.advise_range(populate, 0, len.min(POPULATED));
}

fn system(doing: &str, call: &str, errno: Errno) -> Cause {
    Cause::System(format!("{doing} failed: {errno}{}", limits::behind_call(call, &errno.into())))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::fd::OwnedFd;
    use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};

    use farjump_core::transport::REGION_UNIT;
    use rustix::param::page_size;

    use super::*;

    /// A region of this length with memory for all of it.
    fn create(len: usize) -> Region {
        Region::create(len, len, Pages::Huge).unwrap()
    }

    fn bytes_allocated(region: &Region) -> usize {
        fstat(region.memfd()).unwrap().st_blocks as usize * BLOCK as usize
    }

    /// Bytes of the region's mapping that have a page, by the system's account (proc_pid_smaps(5)).
    fn bytes_mapped(region: &Region) -> usize {
        let from = format!("{:x}-", region.base().addr());
        let smaps = fs::read_to_string("/proc/self/smaps").unwrap();
        let mut lines = smaps.lines().skip_while(|line| !line.starts_with(&from));
        let rss = lines.find_map(|line| line.strip_prefix("Rss:")).expect("the region is mapped");
        rss.trim().trim_end_matches(" kB").parse::<usize>().unwrap() * 1024
    }

    /// A memfd of `len` bytes, allocated and sealed as requested.
    fn memfd(len: usize, allocated: bool, seals: SealFlags) -> OwnedFd {
        let memfd = farjump_os::memfd(c"test", MemfdFlags::ALLOW_SEALING).unwrap();
        ftruncate(&memfd, len as u64).unwrap();
        if allocated {
            fallocate(&memfd, FallocateFlags::empty(), 0, len as u64).unwrap();
        }
        fcntl_add_seals(&memfd, seals).unwrap();
        memfd
    }

    fn refused(memfd: impl Into<OwnedFd>, len: usize) -> String {
        match Region::of_peer(memfd.into().into(), len, Pages::Huge) {
            Err(Cause::Address(what)) => what,
            Err(other) => panic!("refused for another reason: {other}"),
            Ok(_) => panic!("taken"),
        }
    }

    #[test]
    fn a_region_cannot_change_its_length_and_has_all_its_memory() {
        let region = create(16 * page_size());
        assert_eq!(region.len(), 16 * page_size());
        assert_eq!(region.base().as_ptr() as usize % page_size(), 0);
        for len in [0, 15 * page_size(), 17 * page_size()] {
            assert_eq!(ftruncate(region.memfd(), len as u64), Err(Errno::PERM));
        }
        assert_eq!(fcntl_add_seals(region.memfd(), SealFlags::WRITE), Err(Errno::PERM));
        assert_eq!(bytes_allocated(&region), 16 * page_size());
    }

    #[test]
    fn two_mappings_of_a_region_show_the_same_bytes() {
        let ours = create(page_size());
        let theirs =
            Region::of_peer(ours.memfd().try_clone_to_owned().unwrap().into(), page_size(), Pages::Huge)
                .unwrap();
        assert_ne!(ours.base(), theirs.base());
        // SAFETY: both mappings are a page long, and only this thread uses them.
        unsafe {
            assert_eq!(ours.base().add(page_size() - 1).read(), 0);
            theirs.base().add(page_size() - 1).write(7);
            assert_eq!(ours.base().add(page_size() - 1).read_volatile(), 7);
        }
    }

    #[test]
    fn a_region_of_another_length_than_stated_is_refused() {
        let stated_longer = refused(memfd(page_size(), true, SealFlags::SHRINK), 2 * page_size());
        assert!(
            [page_size(), 2 * page_size()].iter().all(|len| stated_longer.contains(&len.to_string())),
            "{stated_longer}"
        );
        refused(memfd(2 * page_size(), true, SealFlags::SHRINK), page_size());
    }

    #[test]
    fn a_region_that_could_shrink_is_refused() {
        let what = refused(memfd(page_size(), true, SealFlags::GROW), page_size());
        assert!(what.contains("shrinking"), "{what}");
    }

    #[test]
    fn a_region_without_memory_behind_it_is_refused() {
        let what = refused(memfd(1 << 30, false, SealFlags::SHRINK), 1 << 30);
        assert!(what.contains("0 of its first 65536"), "{what}");
    }

    #[test]
    fn a_region_that_is_no_memfd_is_refused() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(page_size() as u64).unwrap();
        refused(file, page_size());
        let (reader, writer) = rustix::pipe::pipe().unwrap();
        assert_eq!(refused(reader, page_size()), "its region is no memfd");
        refused(writer, page_size());
        refused(rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC).unwrap(), page_size());
        refused(std::os::unix::net::UnixStream::pair().unwrap().0, page_size());
        refused(std::fs::File::open("/dev/zero").unwrap(), page_size());
    }

    #[test]
    fn a_region_that_may_not_be_written_is_refused_in_words() {
        for seal in [SealFlags::WRITE, SealFlags::FUTURE_WRITE] {
            let what = refused(memfd(page_size(), true, SealFlags::SHRINK | seal), page_size());
            assert!(what.contains("sealed against writing"), "{what}");
        }
    }

    /// Such a region is refused because of its type: its memory comes from a pool that may be empty at the next touch
    /// of a page.
    #[test]
    fn a_region_in_pages_of_hugetlbfs_is_refused() {
        let flags = MemfdFlags::ALLOW_SEALING | MemfdFlags::HUGETLB;
        let memfd = match farjump_os::memfd(c"test", flags) {
            Ok(memfd) => memfd,
            Err(errno) => return println!("skipped: this system makes no memfd in huge pages: {errno}"),
        };
        // The length of one of its pages (hugetlbfs's `st_blksize`), which differs among systems.
        let page = rustix::fs::fstat(&memfd).unwrap().st_blksize as usize;
        ftruncate(&memfd, page as u64).unwrap();
        fcntl_add_seals(&memfd, SealFlags::SHRINK).unwrap();
        assert_eq!(refused(memfd, page), "its region is no memfd of ordinary pages");
    }

    #[test]
    fn a_file_of_a_tmpfs_is_no_memfd() {
        let Ok(file) = tempfile::tempfile_in("/dev/shm") else {
            return println!("skipped: no file can be made in /dev/shm");
        };
        file.set_len(page_size() as u64).unwrap();
        assert!(refused(file, page_size()).contains("not sealed against shrinking"));
    }

    /// An accepted memfd has the stated length, whenever its owner shortens and then seals it.
    #[test]
    fn a_length_that_changes_between_two_looks_is_never_taken() {
        const LOOKS: usize = 4;
        for before in 0..LOOKS {
            let shrinking = memfd(page_size(), true, SealFlags::empty());
            let mut look = 0;
            let checked = check_peers(shrinking.as_fd(), page_size(), || {
                if look == before {
                    ftruncate(&shrinking, 0).unwrap();
                    fcntl_add_seals(&shrinking, SealFlags::SHRINK).unwrap();
                }
                look += 1;
            });
            assert!(checked.is_err(), "shortened before look {before}, and taken");
            // The reverse: once it is sealed, nothing makes it shorter between checks.
            let sealed = memfd(page_size(), true, SealFlags::SHRINK);
            let shorten = || assert_eq!(ftruncate(&sealed, 0), Err(Errno::PERM));
            check_peers(sealed.as_fd(), page_size(), shorten).unwrap();
        }
    }

    /// The same at random times, as a peer would try.
    #[test]
    fn a_region_shortened_at_random_times_is_never_accepted_short() {
        const ROUNDS: usize = 30;
        // One descriptor is open for each try of a round.
        const TRIES: usize = 100;
        for _ in 0..ROUNDS {
            let turn = AtomicUsize::new(0);
            let memfds: [OwnedFd; TRIES] =
                std::array::from_fn(|_| memfd(page_size(), true, SealFlags::empty()));
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    for (number, memfd) in memfds.iter().enumerate() {
                        while turn.load(Ordering::Acquire) < number {
                            std::hint::spin_loop();
                        }
                        // The delay grows from try to try, to reach each point between the checks.
                        for _ in 0..2 * number {
                            std::hint::spin_loop();
                        }
                        ftruncate(memfd, 0).unwrap();
                        fcntl_add_seals(memfd, SealFlags::SHRINK).unwrap();
                    }
                });
                for (number, memfd) in memfds.iter().enumerate() {
                    turn.store(number, Ordering::Release);
                    let taken = check_peers(memfd.as_fd(), page_size(), || ());
                    let len = fstat(memfd).unwrap().st_size;
                    assert!(
                        taken.is_err() || len == page_size() as i64,
                        "taken with {len} bytes at try {number}"
                    );
                }
                turn.store(TRIES, Ordering::Release);
            });
        }
    }

    /// A page that its owner gives back reads as zero, and can be written.
    #[test]
    fn a_hole_that_the_peer_makes_later_reads_as_zeros() {
        let ours = create(4 * page_size());
        let theirs =
            Region::of_peer(ours.memfd().try_clone_to_owned().unwrap().into(), 4 * page_size(), Pages::Huge)
                .unwrap();
        let last = 4 * page_size() - 1;
        // SAFETY: inside both mappings, which only this thread uses.
        unsafe { theirs.base().add(last).write_volatile(7) };
        let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        fallocate(ours.memfd(), hole, 0, 4 * page_size() as u64).unwrap();
        assert_eq!(bytes_allocated(&ours), 0);
        // SAFETY: inside both mappings, which only this thread uses.
        unsafe {
            assert_eq!(theirs.base().add(last).read_volatile(), 0);
            theirs.base().add(last).write_volatile(8);
            assert_eq!(ours.base().add(last).read_volatile(), 8);
        }
    }

    #[test]
    fn connecting_populates_at_most_a_bounded_part_of_a_peers_region() {
        for len in [page_size(), 4 << 20, POPULATED, 256 << 20] {
            let memfd = memfd(len, true, SealFlags::SHRINK);
            let region = Region::of_peer(memfd.into(), len, Pages::Huge).unwrap();
            let mapped = bytes_mapped(&region);
            assert!(mapped <= POPULATED, "{mapped} of {len} bytes were mapped");
            // An ordinary mailbox is populated completely, if the system can do that.
            let whole = len.min(POPULATED);
            assert!(mapped == whole || mapped == 0, "{mapped} of {whole} bytes were mapped");
        }
    }

    #[test]
    fn a_region_of_huge_pages_takes_memory_only_when_used() {
        const LEN: usize = 256 << 20;
        let region = Region::create(LEN, 0, Pages::Huge).unwrap();
        // A huge page is the minimum where they are used.
        assert_eq!(region.len(), LEN);
        assert!((ALLOCATED..=HUGE).contains(&bytes_allocated(&region)), "{}", bytes_allocated(&region));
        let theirs =
            Region::of_peer(region.memfd().try_clone_to_owned().unwrap().into(), LEN, Pages::Huge).unwrap();
        // SAFETY: inside both mappings, which only this thread uses.
        unsafe {
            theirs.base().add(LEN - 1).write_volatile(7);
            assert_eq!(region.base().add(LEN - 1).read_volatile(), 7);
        }
        assert!(bytes_allocated(&region) <= 2 * HUGE, "{}", bytes_allocated(&region));
        // A region that requests all memory gets it, and no more of it is mapped than of a peer's.
        let whole = create(64 << 20);
        assert_eq!(bytes_allocated(&whole), 64 << 20);
        assert!(bytes_mapped(&whole) <= POPULATED, "{}", bytes_mapped(&whole));
    }

    #[test]
    fn a_region_of_ordinary_pages_allocates_each_page_at_first_use() {
        if may_lack_pages() {
            return println!("skipped: vm.overcommit_memory is 2 here");
        }
        let len = 4 << 20;
        let region = Region::create(len, 2 * ALLOCATED, Pages::Ordinary).unwrap();
        let memfd = region.memfd().try_clone_to_owned().unwrap();
        let theirs = Region::of_peer(memfd.into(), len, Pages::Ordinary).unwrap();
        assert_eq!(bytes_allocated(&region), 2 * ALLOCATED);
        for used in [2 * ALLOCATED, len - 1] {
            // SAFETY: inside the mapping, which only this thread uses.
            unsafe { theirs.base().add(used).write_volatile(7) };
        }
        // The pages are larger if the system gives huge pages to all memory that can have them.
        let most = 2 * ALLOCATED + 2 * HUGE;
        assert!((2 * ALLOCATED + 2 * page_size()..=most).contains(&bytes_allocated(&region)));
    }

    #[test]
    fn lengths_that_no_region_can_have_are_refused() {
        for len in [0, 1, REGION_UNIT - 1, REGION_UNIT + 1] {
            assert!(matches!(Region::create(len, len, Pages::Huge), Err(Cause::System(_))), "{len}");
        }
        assert!(matches!(
            Region::create(MAX_REGION + REGION_UNIT, 0, Pages::Huge),
            Err(Cause::TooLarge { max: MAX_REGION, .. })
        ));
    }

    #[test]
    fn writes_of_a_forked_child_reach_no_peer() {
        let region = create(2 * page_size());
        let peers = Region::of_peer(
            region.memfd().try_clone_to_owned().unwrap().into(),
            2 * page_size(),
            Pages::Huge,
        )
        .unwrap();
        let byte = |region: &Region| {
            // SAFETY: the region is mapped; nothing else uses it.
            unsafe { AtomicU8::from_ptr(region.base().as_ptr()) }.load(Ordering::SeqCst)
        };
        let write = |value| {
            // SAFETY: the region is mapped; nothing else uses it.
            unsafe { AtomicU8::from_ptr(region.base().as_ptr()) }.store(value, Ordering::SeqCst);
        };
        write(1);
        // SAFETY: the child writes to memory and ends.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let before = byte(&region);
            write(2);
            // SAFETY: it ends the child without the test program's exit code.
            unsafe { libc::_exit(i32::from((before, byte(&region)) != (1, 2))) };
        }
        let mut status = 0;
        // SAFETY: `status` is valid to be written.
        assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
        assert_eq!((status, byte(&region), byte(&peers)), (0, 1, 1));
        write(3);
        assert_eq!(byte(&peers), 3, "the parent's region is shared as before");
    }
}
