//! A second mapping of a region, at which what is in it can be executed and not written.
//!
//! A memfd that was made with `MFD_NOEXEC_SEAL` can never be executed as a *file*, and can be mapped as here: the seal is
//! about the mode of the file (memfd_create(2)), and execve and mmap are different rights. The two mappings are at
//! different addresses, so no page is writable and executable at one.

use std::os::fd::BorrowedFd;
use std::ptr::{self, NonNull};

use farjump_core::transport::Cause;
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

/// The mapping, removed when this is dropped.
pub(super) struct Twin {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: the mapping belongs to this value alone, which only remembers where it is.
unsafe impl Send for Twin {}

impl Twin {
    /// Maps the first `len` bytes of `memfd`, all of whose memory is there.
    pub(super) fn of(memfd: BorrowedFd<'_>, len: usize) -> Result<Twin, Cause> {
        let protection = ProtFlags::READ | ProtFlags::EXEC;
        // Populated, so that the first call of code does not wait for a page.
        let flags = MapFlags::SHARED | MapFlags::POPULATE;
        // SAFETY: the system chooses an address at which nothing is.
        let start = unsafe { mmap(ptr::null_mut(), len, protection, flags, memfd, 0) }.map_err(|errno| {
            Cause::System(match errno {
                Errno::ACCESS | Errno::PERM => format!(
                    "this process may not execute memory that another one writes ({errno}): SELinux, a noexec policy, \
                     systemd's MemoryDenyWriteExecute= or a seccomp filter forbids it; allow it for this program"
                ),
                _ => format!("mapping {len} bytes of shared memory a second time failed: {errno}"),
            })
        })?;
        let start = NonNull::new(start.cast()).expect("the system maps nothing at address 0");
        Ok(Twin { start, len })
    }

    /// Where it begins.
    pub(super) fn start(&self) -> NonNull<u8> {
        self.start
    }
}

impl Drop for Twin {
    fn drop(&mut self) {
        // SAFETY: the mapping is this value's alone. The call fails only for arguments that `mmap` did not give.
        let _ = unsafe { munmap(self.start.as_ptr().cast(), self.len) };
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::super::PAGE;
    use super::super::region::Region;
    use super::*;

    /// What `/proc/self/maps` says of the mapping that holds `address`: `rw-s`.
    fn protection(address: NonNull<u8>) -> Option<String> {
        fs::read_to_string("/proc/self/maps").unwrap().lines().find_map(|line| {
            let (range, rest) = line.split_once(' ')?;
            let (from, to) = range.split_once('-')?;
            let [from, to] = [from, to].map(|text| usize::from_str_radix(text, 16).unwrap());
            (from..to).contains(&address.addr().get()).then(|| rest[..4].to_owned())
        })
    }

    #[test]
    fn what_is_written_to_a_region_runs_in_its_twin_and_neither_is_both() {
        let region = Region::create(4 * PAGE).unwrap();
        let twin = Twin::of(region.memfd(), region.len()).unwrap();
        assert_eq!(protection(region.base()).as_deref(), Some("rw-s"));
        assert_eq!(protection(twin.start()).as_deref(), Some("r-xs"));
        let at = 3 * PAGE + 64;
        // `lea rax, [rdi + 1]; ret`
        #[cfg(target_arch = "x86_64")]
        for (add, code) in [(1, [0x48_u8, 0x8d, 0x47, 0x01, 0xc3]), (2, [0x48, 0x8d, 0x47, 0x02, 0xc3])] {
            // SAFETY: inside the region, which nobody else uses; the function is those two instructions.
            unsafe {
                ptr::copy_nonoverlapping(code.as_ptr(), region.base().add(at).as_ptr(), code.len());
                farjump_core::icache::sync_foreign(twin.start().add(at).addr().get() as u64, code.len());
                let run: extern "C" fn(u64) -> u64 = std::mem::transmute(twin.start().add(at).as_ptr());
                assert_eq!(run(41), 41 + add);
            }
        }
    }

    #[test]
    fn the_twin_goes_with_its_owner_and_leaves_the_region() {
        let region = Region::create(PAGE).unwrap();
        let twin = Twin::of(region.memfd(), region.len()).unwrap();
        let start = twin.start();
        assert_eq!(protection(start).as_deref(), Some("r-xs"));
        drop(twin);
        assert_ne!(protection(start).as_deref(), Some("r-xs"));
        assert_eq!(protection(region.base()).as_deref(), Some("rw-s"));
    }
}
