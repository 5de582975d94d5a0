//! The executable alias: a second mapping of shared memory, which can be executed but not written.
//!
//! `mremap` with an old size of 0 maps the same memory once more, whatever its kind and without its descriptor. If that
//! is refused (valgrind knows no such size), the alias maps memory that has a descriptor by the descriptor. `mprotect`
//! then makes the copy executable. A memfd made with `MFD_NOEXEC_SEAL` can never be executed as a *file* but can be
//! mapped like this: the seal concerns the mode of the file (memfd_create(2)), and execve and mmap are different
//! rights. The two mappings have different addresses, so no page is writable and executable at one address.

use std::os::fd::BorrowedFd;
use std::ptr::{self, NonNull};

use farjump_core::transport::Cause;
use rustix::io::Errno;
use rustix::mm::{
    Advice, MapFlags, MprotectFlags, MremapFlags, ProtFlags, madvise, mmap, mprotect, mremap, munmap,
};

/// The alias; dropping it unmaps it.
pub(crate) struct ExecutableAlias {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: the mapping belongs only to this value, and the value only stores its address and length.
unsafe impl Send for ExecutableAlias {}

impl ExecutableAlias {
    /// Returns the start of the alias in `slot`. The first call maps the `len` bytes at `start`.
    ///
    /// # Safety
    /// The conditions of [`ExecutableAlias::of`], and the same bytes in each call for one slot.
    pub(crate) unsafe fn kept(
        slot: &mut Option<ExecutableAlias>,
        start: NonNull<u8>,
        len: usize,
        file: Option<BorrowedFd<'_>>,
    ) -> Result<NonNull<u8>, Cause> {
        let alias = match slot.take() {
            Some(alias) => alias,
            // SAFETY: the caller meets the conditions of `ExecutableAlias::of`, which this function's `#
            // Safety` demands.
            None => unsafe { ExecutableAlias::of(start, len, file) }?,
        };
        Ok(slot.insert(alias).start())
    }

    /// Maps the `len` bytes at `start` a second time.
    ///
    /// # Safety
    /// They are whole pages of one shared mapping, of the start of `file` if it is given.
    unsafe fn of(
        start: NonNull<u8>,
        len: usize,
        file: Option<BorrowedFd<'_>>,
    ) -> Result<ExecutableAlias, Cause> {
        let refused = |errno: Errno| {
            Cause::System(match errno {
                Errno::ACCESS | Errno::PERM => format!(
                    "this process may not execute memory that another one writes ({errno}): SELinux, a file system mounted \
                     noexec (/dev/shm, where UCX takes memory from it), systemd's MemoryDenyWriteExecute= or a seccomp filter \
                     forbids it; allow it for this program"
                ),
                _ => format!("mapping {len} bytes of shared memory a second time failed: {errno}"),
            })
        };
        // SAFETY: an old size of 0 leaves the mapping unchanged and maps the same memory at an unused address
        // (mremap(2)). The caller guarantees that the mapping is shared.
        let again = unsafe { mremap(start.as_ptr().cast(), 0, len, MremapFlags::MAYMOVE) };
        let start = match (again, file) {
            (Err(Errno::INVAL), Some(file)) => {
                // SAFETY: with a null address the kernel chooses an unused one.
                unsafe { mmap(ptr::null_mut(), len, ProtFlags::READ, MapFlags::SHARED, file, 0) }
            }
            (again, _) => again,
        };
        let start = start.map_err(refused)?;
        let start = NonNull::new(start.cast()).expect("the system maps nothing at address 0");
        let alias = ExecutableAlias { start, len };
        // SAFETY: `mremap` has just made the mapping, and nothing uses it yet.
        unsafe { mprotect(start.as_ptr().cast(), len, MprotectFlags::READ | MprotectFlags::EXEC) }
            .map_err(refused)?;
        // Spares the first call of code a page fault. Linux before 5.14 does not support it.
        // SAFETY: `madvise` with this advice changes no byte of the mapping.
        let _ = unsafe { madvise(start.as_ptr().cast(), len, Advice::LinuxPopulateRead) };
        Ok(alias)
    }

    /// Returns the start of the alias.
    fn start(&self) -> NonNull<u8> {
        self.start
    }
}

impl Drop for ExecutableAlias {
    fn drop(&mut self) {
        // SAFETY: the mapping belongs to this value alone. The call fails only for arguments that `mremap`
        // did not return.
        let _ = unsafe { munmap(self.start.as_ptr().cast(), self.len) };
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use rustix::mm::mmap_anonymous;

    use rustix::param::page_size;

    use super::*;

    /// Maps shared memory, for the lifetime of the process.
    fn shared(len: usize) -> NonNull<u8> {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: with a null address the kernel chooses an unused one.
        let start = unsafe { mmap_anonymous(std::ptr::null_mut(), len, protection, MapFlags::SHARED) };
        NonNull::new(start.unwrap().cast()).unwrap()
    }

    /// Returns the protection in `/proc/self/maps` of the mapping that contains `address`, for example
    /// `rw-s`.
    fn protection(address: NonNull<u8>) -> Option<String> {
        fs::read_to_string("/proc/self/maps").unwrap().lines().find_map(|line| {
            let (range, rest) = line.split_once(' ')?;
            let (from, to) = range.split_once('-')?;
            let [from, to] = [from, to].map(|text| usize::from_str_radix(text, 16).unwrap());
            (from..to).contains(&address.addr().get()).then(|| rest[..4].to_owned())
        })
    }

    /// `lea rax, [rdi + add]; ret`
    #[cfg(target_arch = "x86_64")]
    fn adding(add: u8) -> [u8; 5] {
        [0x48, 0x8d, 0x47, add, 0xc3]
    }

    /// `add x0, x0, #add; ret`
    #[cfg(target_arch = "aarch64")]
    fn adding(add: u8) -> [u8; 8] {
        let code = 0xd65f_03c0_9100_0000_u64 | u64::from(add) << 10;
        code.to_le_bytes()
    }

    /// `addi a0, a0, add; ret`
    #[cfg(target_arch = "riscv64")]
    fn adding(add: u8) -> [u8; 8] {
        let code = 0x0000_8067_0005_0513_u64 | u64::from(add) << 20;
        code.to_le_bytes()
    }

    #[test]
    fn code_runs_in_its_alias_and_no_mapping_is_writable_and_executable() {
        let region = shared(4 * page_size());
        // SAFETY: these are all pages of the mapping from `shared`.
        let alias = unsafe { ExecutableAlias::of(region, 4 * page_size(), None) }.unwrap();
        assert_eq!(protection(region).as_deref(), Some("rw-s"));
        assert_eq!(protection(alias.start()).as_deref(), Some("r-xs"));
        let at = 3 * page_size() + 64;
        for add in [1, 2] {
            let code = adding(add);
            // SAFETY: `at` is inside the region, which only this test uses, and a multiple of the length of an
            // instruction. The function has this signature.
            unsafe {
                std::ptr::copy_nonoverlapping(code.as_ptr(), region.add(at).as_ptr(), code.len());
                let [written, address] =
                    [region, alias.start()].map(|start| start.add(at).addr().get() as u64);
                farjump_core::icache::sync_foreign(written, address, code.len());
                let run: extern "C" fn(u64) -> u64 = std::mem::transmute(alias.start().add(at).as_ptr());
                assert_eq!(run(41), 41 + u64::from(add));
            }
        }
    }

    #[test]
    fn the_twin_goes_with_its_owner_and_leaves_the_memory() {
        let region = shared(page_size());
        // SAFETY: this is the only page of the mapping from `shared`.
        let alias = unsafe { ExecutableAlias::of(region, page_size(), None) }.unwrap();
        let start = alias.start();
        assert_eq!(protection(start).as_deref(), Some("r-xs"));
        drop(alias);
        assert_ne!(protection(start).as_deref(), Some("r-xs"));
        assert_eq!(protection(region).as_deref(), Some("rw-s"));
    }
}
