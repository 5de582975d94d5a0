//! Memory that a device reads and writes.
//!
//! It is mapped shared, so that it can have an executable alias (`executable_alias.rs`), and so that a fork leaves it
//! at the pages that the device knows. It is registered once, with all of its pages, which uses only abilities of every
//! device.

use std::ffi::{c_int, c_void};
use std::ptr::{self, NonNull};
use std::sync::Arc;

use farjump_core::transport::Cause;
use farjump_os::resources::memlock;
use farjump_rdma_sys::{IBV_ACCESS_LOCAL_WRITE, IBV_ACCESS_REMOTE_READ, IBV_ACCESS_REMOTE_WRITE, ibv_mr};
use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};
use rustix::param::page_size;

use super::error::{exhausted, last_error};
use crate::fork::{self, Inherited, Listed};
use crate::region_len;
use crate::verbs::device::domain::Domain;

/// Length in bytes from which huge pages pay for memory.
const HUGE: usize = 2 << 20;

/// The user of memory besides this process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Use {
    /// The device, which reads the bytes that it sends.
    Sent,
    /// The device, which also writes the bytes that it receives.
    Received,
    /// Peers with the key, which write it.
    WrittenByPeer,
    /// Peers with the key, which read it.
    ReadByPeer,
}

/// Zeroed pages.
pub(super) struct Pages {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: the value owns the mapping.
unsafe impl Send for Pages {}

impl Pages {
    /// Maps at least `len` bytes: whole pages.
    pub(super) fn map(len: usize) -> Result<Pages, Cause> {
        let len = len.checked_next_multiple_of(page_size()).ok_or(Cause::Unsupported("so long a mapping"))?;
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: the system chooses an unused address.
        let start = unsafe { mmap_anonymous(ptr::null_mut(), len, protection, MapFlags::SHARED) };
        let start =
            start.map_err(|errno| Cause::System(format!("mapping {len} bytes of memory failed: {errno}")))?;
        if len >= HUGE {
            // If the system has no huge pages for shared memory, small ones suffice. SAFETY: the call changes no byte
            // of the mapping, which is new.
            let _ = unsafe { madvise(start, len, Advice::LinuxHugepage) };
        }
        Ok(Pages { start: NonNull::new(start.cast()).expect("the system maps nothing at address 0"), len })
    }

    /// Start of the pages.
    pub(super) fn start(&self) -> NonNull<u8> {
        self.start
    }

    /// Their length in bytes.
    pub(super) fn len(&self) -> usize {
        self.len
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: mapped by `map`, and not used again. The call fails only for arguments that are no mapping.
        let _ = unsafe { munmap(self.start.as_ptr().cast(), self.len) };
    }
}

/// A registration: a device may use the memory until this is dropped.
pub(super) struct Registration {
    mr: NonNull<ibv_mr>,
    domain: Arc<Domain>,
}

// SAFETY: verbs objects may be used by any thread.
unsafe impl Send for Registration {}
// SAFETY: verbs objects may be used by any thread; this one is only read.
unsafe impl Sync for Registration {}

impl Registration {
    /// Registers `len` bytes at `start`.
    ///
    /// # Safety
    /// The bytes must stay mapped until this is dropped. Unless `used` is only for reads, nothing in this process may
    /// rely on their contents.
    pub(super) unsafe fn of(
        domain: &Arc<Domain>,
        start: *const u8,
        len: usize,
        used: Use,
    ) -> Result<Registration, Cause> {
        let access = match used {
            Use::Sent => 0,
            Use::Received => IBV_ACCESS_LOCAL_WRITE,
            Use::WrittenByPeer => IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE,
            Use::ReadByPeer => IBV_ACCESS_REMOTE_READ,
        };
        let device = domain.device();
        if device.is_parents() {
            return Err(fork::refused());
        }
        // SAFETY: the domain is the device's, and the caller keeps the memory mapped (see Safety).
        let mr = unsafe {
            device.verbs.ibv_reg_mr(domain.as_ptr(), start.cast_mut().cast::<c_void>(), len, access as c_int)
        };
        match NonNull::new(mr) {
            Some(mr) => Ok(Registration { mr, domain: Arc::clone(domain) }),
            None => Err(Cause::System(refused(&device.name, len, Errno::from_io_error(&last_error())))),
        }
    }

    /// The key for this process's requests.
    #[inline]
    pub(super) fn local_key(&self) -> u32 {
        // SAFETY: registered until the value is dropped.
        unsafe { self.mr.as_ref().lkey }
    }

    /// The key for peers.
    pub(super) fn remote_key(&self) -> u32 {
        // SAFETY: registered until the value is dropped.
        unsafe { self.mr.as_ref().rkey }
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        if self.domain.device().is_parents() {
            return;
        }
        // SAFETY: registered by `of`, and not used again. An error has no remedy, and costs only memory.
        let _ = unsafe { self.domain.device().verbs.ibv_dereg_mr(self.mr.as_ptr()) };
    }
}

/// Memory with its registration, zeroed at first.
pub(super) struct Memory {
    // Dropped before its pages.
    _listed: Listed,
    registration: Registration,
    pages: Pages,
}

impl Memory {
    /// Maps and registers at least `len` bytes, a positive multiple of
    /// [`REGION_UNIT`](farjump_core::transport::REGION_UNIT): whole pages.
    pub(super) fn create(domain: &Arc<Domain>, len: usize, used: Use) -> Result<Memory, Cause> {
        region_len::check(len)?;
        let pages = Pages::map(len)?;
        // SAFETY: the pages stay mapped until after the registration is dropped, and nothing trusts their contents.
        let registration = unsafe { Registration::of(domain, pages.start.as_ptr(), pages.len, used)? };
        let (start, len) = (pages.start.as_ptr().expose_provenance(), pages.len);
        // A child's writes would change the bytes that the device sends.
        let item = match used {
            Use::Sent => Inherited::Written { start, len },
            _ => Inherited::PerhapsMissing { start, len },
        };
        Ok(Memory { _listed: Listed::new(item), registration, pages })
    }

    /// Start of the memory, aligned to a page of the system.
    #[inline]
    pub(super) fn start(&self) -> NonNull<u8> {
        self.pages.start
    }

    /// Its length in bytes.
    #[inline]
    pub(super) fn len(&self) -> usize {
        self.pages.len
    }

    /// See [`Registration::local_key`].
    #[inline]
    pub(super) fn local_key(&self) -> u32 {
        self.registration.local_key()
    }

    /// See [`Registration::remote_key`].
    pub(super) fn remote_key(&self) -> u32 {
        self.registration.remote_key()
    }

    /// Returns whether all of `bytes` lies in the memory.
    #[inline]
    pub(super) fn holds(&self, bytes: *const u8, len: usize) -> bool {
        let start = self.pages.start.addr().get();
        bytes.addr().checked_sub(start).is_some_and(|at| at <= self.pages.len && len <= self.pages.len - at)
    }
}

/// The reason why memory was not registered, and a remedy.
fn refused(device: &str, len: usize, errno: Option<Errno>) -> String {
    let limit = memlock::limit();
    match (errno, limit) {
        (Some(Errno::NOMEM), Some(limit)) => {
            let kib = len.div_ceil(1024).next_power_of_two().max(64 << 10);
            format!(
                "{device} was not given {len} bytes of memory: this process may lock {limit} bytes (RLIMIT_MEMLOCK), which is too \
                 little with what it has locked already: raise it with `ulimit -l {kib}` (or unlimited) as root, in \
                 /etc/security/limits.conf or by LimitMEMLOCK= of systemd, or give the program CAP_IPC_LOCK"
            )
        }
        (Some(Errno::NOMEM), None) => {
            format!("{device} was not given {len} bytes of memory: there is not so much that can be locked")
        }
        (Some(Errno::AGAIN), _) => exhausted(device, "registration of memory", &Errno::AGAIN.into()),
        (Some(errno), _) => format!("{device} does not take {len} bytes of memory: {errno}"),
        (None, _) => format!("{device} does not take {len} bytes of memory"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_too_low_memlock_limit_is_reported_with_bytes_and_ulimit_command() {
        let text = refused("rxe0", 4 << 20, Some(Errno::NOMEM));
        match memlock::limit() {
            Some(limit) => {
                assert!(text.contains(&format!("{limit} bytes (RLIMIT_MEMLOCK)")), "{text}");
                assert!(text.contains("4194304 bytes") && text.contains("ulimit -l 65536"), "{text}");
            }
            None => assert!(text.contains("4194304 bytes") && !text.contains("ulimit"), "{text}"),
        }
        assert!(refused("rxe0", 1, Some(Errno::FAULT)).contains("rxe0 does not take 1 bytes of memory: "));
    }

    #[test]
    fn a_control_group_limit_is_reported_as_rdma_max_not_memlock() {
        let text = refused("rxe0", 4096, Some(Errno::AGAIN));
        assert!(text.contains("rdma.max") && !text.contains("MEMLOCK"), "{text}");
    }

    #[test]
    fn pages_are_zero() {
        let pages = Pages::map(2 * rustix::param::page_size()).unwrap();
        // SAFETY: mapped, and used by nothing else.
        let bytes = unsafe { std::slice::from_raw_parts(pages.start().as_ptr(), pages.len()) };
        assert!(bytes.iter().all(|byte| *byte == 0));
    }
}
