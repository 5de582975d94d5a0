//! The floor: what two processes can do with a piece of shared memory and nothing else.
//!
//! The same memory carries the commands of the measuring process to the other one.

use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicU64, Ordering};

use memmap2::MmapRaw;
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};

/// Lines of the raw ring.
const RING_LINES: u64 = 4096;
/// Lines after which the consumer gives them back.
const CREDIT_LINES: u64 = 512;
/// How many lines ahead the producer fetches for writing: the same as farjump's mailbox.
const PREFETCH_LINES: u64 = 12;

const COMMAND: usize = 0;
const DONE: usize = 64;
const PING: usize = 128;
const PONG: usize = 192;
const CREDIT: usize = 256;
const VALUES: usize = 320;
const RING: usize = 4096;
const LEN: usize = RING + RING_LINES as usize * 64;

/// What the other process is to do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u64)]
pub(crate) enum Command {
    /// Wait for the next command.
    Idle = 0,
    /// Answer that many words, each in a line of its own.
    PingPong = 1,
    /// Take that many lines from the raw ring.
    Ring = 2,
    /// Poll the target until the next command.
    Serve = 3,
    /// Poll the target, timing each call of code that was never seen.
    ServeFirst = 4,
    /// End.
    Exit = 5,
}

/// Shared memory between the measuring process and the other.
pub(crate) struct Floor {
    map: MmapRaw,
    file: OwnedFd,
}

impl Floor {
    /// New shared memory, zeroed.
    pub(crate) fn create() -> std::io::Result<Floor> {
        let file = memfd_create("farjump-bench", MemfdFlags::empty())?;
        ftruncate(&file, LEN as u64)?;
        Floor::map(file)
    }

    /// The memory whose descriptor the other process inherited.
    pub(crate) fn inherit(descriptor: RawFd) -> std::io::Result<Floor> {
        // SAFETY: the number was given by the parent, which left the descriptor open for us, and nobody else owns it here.
        Floor::map(unsafe { OwnedFd::from_raw_fd(descriptor) })
    }

    fn map(file: OwnedFd) -> std::io::Result<Floor> {
        let map = MmapRaw::map_raw(&File::from(file.try_clone()?))?;
        Ok(Floor { map, file })
    }

    /// The descriptor, to be inherited.
    pub(crate) fn descriptor(&self) -> RawFd {
        self.file.as_fd().as_raw_fd()
    }

    fn word(&self, at: usize) -> &AtomicU64 {
        assert!(at + 8 <= LEN && at.is_multiple_of(8));
        // SAFETY: in range and aligned by the assertion; the mapping lives as long as `self`, and all words in it are only
        // ever used atomically.
        unsafe { &*self.map.as_mut_ptr().add(at).cast::<AtomicU64>() }
    }

    /// What the other process does next is not done yet.
    pub(crate) fn expect_done(&self) {
        self.word(DONE).store(0, Ordering::Relaxed);
    }

    /// Gives a command with its number and waits for nothing.
    pub(crate) fn command(&self, command: Command, count: u64) {
        self.expect_done();
        self.word(COMMAND + 8).store(count, Ordering::Relaxed);
        self.word(COMMAND).store(command as u64, Ordering::Release);
    }

    /// The command in force.
    pub(crate) fn commanded(&self) -> (Command, u64) {
        let command = match self.word(COMMAND).load(Ordering::Acquire) {
            1 => Command::PingPong,
            2 => Command::Ring,
            3 => Command::Serve,
            4 => Command::ServeFirst,
            5 => Command::Exit,
            _ => Command::Idle,
        };
        (command, self.word(COMMAND + 8).load(Ordering::Relaxed))
    }

    /// The other process has done what was commanded.
    pub(crate) fn done(&self) {
        self.word(COMMAND).store(Command::Idle as u64, Ordering::Relaxed);
        self.word(DONE).store(1, Ordering::Release);
    }

    /// Waits until the other process is done. It is a child that is killed with us, so this ends.
    pub(crate) fn wait_done(&self) {
        while self.word(DONE).load(Ordering::Acquire) == 0 {
            std::hint::spin_loop();
        }
    }

    /// Two numbers that the other process tells.
    pub(crate) fn values(&self) -> (u64, u64) {
        (self.word(VALUES).load(Ordering::Acquire), self.word(VALUES + 8).load(Ordering::Acquire))
    }

    /// Tells two numbers.
    pub(crate) fn set_values(&self, first: u64, second: u64) {
        self.word(VALUES).store(first, Ordering::Release);
        self.word(VALUES + 8).store(second, Ordering::Release);
    }

    /// Round trips of one word, from the `first` to before the `last`.
    pub(crate) fn ping(&self, first: u64, last: u64) {
        for turn in first..last {
            self.word(PING).store(turn, Ordering::Release);
            while self.word(PONG).load(Ordering::Acquire) != turn {}
        }
    }

    /// Ready for the next [`Floor::ping`], once the other side is done.
    pub(crate) fn end_ping(&self) {
        self.word(PING).store(0, Ordering::Relaxed);
        self.word(PONG).store(0, Ordering::Relaxed);
    }

    /// The other side of [`Floor::ping`].
    pub(crate) fn pong(&self, count: u64) {
        for turn in 1..=count {
            while self.word(PING).load(Ordering::Acquire) != turn {}
            self.word(PONG).store(turn, Ordering::Release);
        }
    }

    /// Sends lines: header of three words and 32 bytes of payload, the signal last.
    pub(crate) fn produce(&self, count: u64) {
        let mut credit = 0;
        for turn in 0..count {
            while turn - credit >= RING_LINES {
                credit = self.word(CREDIT).load(Ordering::Acquire);
            }
            let line = RING + (turn % RING_LINES) as usize * 64;
            self.prefetch(RING + ((turn + PREFETCH_LINES) % RING_LINES) as usize * 64);
            for word in 1..7 {
                self.word(line + word * 8).store(turn, Ordering::Relaxed);
            }
            self.word(line).store(turn + 1, Ordering::Release);
        }
        while credit < count {
            credit = self.word(CREDIT).load(Ordering::Acquire);
        }
        self.word(CREDIT).store(0, Ordering::Relaxed);
    }

    /// The other side of [`Floor::produce`].
    pub(crate) fn consume(&self, count: u64) {
        for turn in 0..count {
            let line = RING + (turn % RING_LINES) as usize * 64;
            while self.word(line).load(Ordering::Acquire) != turn + 1 {}
            if (turn + 1) % CREDIT_LINES == 0 || turn + 1 == count {
                self.word(CREDIT).store(turn + 1, Ordering::Release);
            }
        }
        for line in 0..RING_LINES as usize {
            self.word(RING + line * 64).store(0, Ordering::Relaxed);
        }
    }

    fn prefetch(&self, at: usize) {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: a prefetch faults nowhere and changes no register.
        unsafe {
            core::arch::asm!("prefetchw [{}]", in(reg) self.word(at), options(nostack, preserves_flags, readonly));
        }
        #[cfg(not(target_arch = "x86_64"))]
        let _ = at;
    }
}

/// Pins this thread to one processor.
pub(crate) fn pin(cpu: usize) -> std::io::Result<()> {
    let mut set = rustix::thread::CpuSet::new();
    set.set(cpu);
    Ok(rustix::thread::sched_setaffinity(None, &set)?)
}
