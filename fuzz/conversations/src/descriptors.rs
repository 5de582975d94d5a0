//! Descriptors of every kind, to pass in place of others.

use std::ffi::CString;
use std::fs::File;
use std::io::Write;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use farjump_fixtures::by_hand::slow_to_close;
use fastrand::Rng;
use rustix::event::{EventfdFlags, epoll, eventfd};
use rustix::fs::{
    FallocateFlags, MemfdFlags, SealFlags, fallocate, fcntl_add_seals, ftruncate, memfd_create,
};

/// Descriptors to pass, and those that must stay open with them.
#[derive(Debug, Default)]
pub struct Odd {
    /// Descriptors to pass.
    pub passed: Vec<OwnedFd>,
    /// Other ends of the passed ones, which stay here.
    pub kept: Vec<OwnedFd>,
}

impl Odd {
    /// Makes some by the seed, in place of those of an address with a region of `len` bytes.
    pub fn some(seed: u64, len: u64) -> Odd {
        let mut rng = Rng::with_seed(seed);
        let mut odd = Odd::default();
        let count = [0, 1, 2, 2, 2, 2, 3, 8][rng.usize(..8)];
        for _ in 0..count {
            odd.add(&mut rng, len);
        }
        odd
    }

    /// The descriptors to pass, borrowed.
    pub fn borrowed(&self) -> Vec<BorrowedFd<'_>> {
        self.passed.iter().map(AsFd::as_fd).collect()
    }

    fn add(&mut self, rng: &mut Rng, len: u64) {
        let descriptor = match rng.u8(..16) {
            0 => memory(len, true, SealFlags::SHRINK),
            1 => memory(len, true, SealFlags::empty()),
            2 => memory(len, false, SealFlags::SHRINK),
            3 => memory(len / 2, true, SealFlags::SHRINK),
            4 => memory(0, true, SealFlags::SHRINK),
            5 => memory(len, true, SealFlags::SHRINK | SealFlags::WRITE),
            6 => memory(len + 4096, true, SealFlags::SHRINK | SealFlags::GROW),
            7 => eventfd(rng.u32(..3), EventfdFlags::NONBLOCK).ok(),
            8 => eventfd(0, if MAY_BLOCK { EventfdFlags::empty() } else { EventfdFlags::NONBLOCK }).ok(),
            9 => self.pair(rng.bool()),
            // Seldom: if the peer closes it first, this process waits.
            10 if rng.u8(..4) == 0 => self.lingering(),
            11 => File::open("/dev/null").ok().map(OwnedFd::from),
            12 => File::open("/proc/self").ok().map(OwnedFd::from),
            13 => epoll::create(epoll::CreateFlags::CLOEXEC).ok(),
            14 => rustix::pipe::pipe().ok().map(|(reader, writer)| {
                self.kept.push(reader);
                writer
            }),
            _ => File::open("/proc/self/exe").ok().map(OwnedFd::from),
        };
        self.passed.extend(descriptor);
    }

    /// A socket with a full or an empty queue.
    fn pair(&mut self, full: bool) -> Option<OwnedFd> {
        let (one, other) = UnixStream::pair().ok()?;
        one.set_nonblocking(true).ok()?;
        if full {
            while (&one).write(&[0; 4096]).is_ok() {}
        }
        if MAY_BLOCK {
            one.set_nonblocking(false).ok()?;
        }
        self.kept.push(other.into());
        Some(one.into())
    }

    /// A socket whose close waits until its bytes are read, which never happens.
    fn lingering(&mut self) -> Option<OwnedFd> {
        let (slow, reader) = slow_to_close(Duration::from_secs(LINGER)).ok()?;
        if !MAY_LINGER {
            rustix::net::sockopt::set_socket_linger(&slow, None).ok()?;
        }
        self.kept.push(reader.into());
        Some(slow)
    }
}

/// Time that closing may take, in seconds.
const LINGER: u64 = 20;

/// True if descriptors whose reads or writes block are passed, also ones that are made blocking during use.
pub const MAY_BLOCK: bool = true;
/// Whether descriptors whose close blocks are passed.
pub const MAY_LINGER: bool = true;

fn memory(len: u64, allocated: bool, seals: SealFlags) -> Option<OwnedFd> {
    let name = CString::new("farjump").ok()?;
    let file = memfd_create(name, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).ok()?;
    // Lengths claimed by peers must not fill this machine's memory.
    let len = len.min(1 << 24);
    ftruncate(&file, len).ok()?;
    if allocated && len > 0 {
        fallocate(&file, FallocateFlags::empty(), 0, len).ok()?;
    }
    fcntl_add_seals(&file, seals).ok()?;
    Some(file)
}
