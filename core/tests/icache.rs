//! Fresh code that was written through a second mapping, by this process or another one, thousands of times.

//!
//! QEMU translates code once, and keeps the translation until it is notified of fresh code, as a processor
//! may: on aarch64 by `ic ivau`. On riscv64 it ignores `fence.i` and `riscv_flush_icache`. There these tests
//! also protect the memory anew, after which any emulator translates again. Then they show that the code goes
//! the right way between mappings and processes, and that the system accepts the call, but not that the flush
//! has an effect.

#![cfg(all(
    target_os = "linux",
    any(target_arch = "x86_64", target_arch = "aarch64", target_arch = "riscv64")
))]

use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use farjump_core::icache;
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use rustix::mm::{MapFlags, MprotectFlags, ProtFlags, mmap, mprotect, munmap};
use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};
use rustix::thread::sched_yield;

/// The longest page of any system.
const PAGE: usize = 64 << 10;
/// Offset of the code: not at the start of a line of any length.
const AT: usize = 1000 / 8 * 8;
/// Offset of the word by which two processes take turns, in the second page.
const TURN: usize = PAGE;
const ROUNDS: u32 = 5000;
/// Longest turn of the other process.
const PATIENCE: Duration = Duration::from_secs(60);
/// Set if an emulator runs these tests that keeps stale code until it is notified.
#[cfg(not(target_arch = "x86_64"))]
const KEEPS_STALE_CODE: &str = "FARJUMP_TEST_KEEPS_STALE_CODE";
/// Set if an emulator is notified of fresh code by a new protection of its memory, and by nothing else.
const PROTECTED_ANEW: &str = "FARJUMP_TEST_PROTECTED_ANEW";

/// The same two pages, writable and executable.
struct Twice {
    writable: NonNull<u8>,
    executable: NonNull<u8>,
    protected_anew: bool,
}

impl Twice {
    fn map() -> Twice {
        let file = memfd_create("fresh code", MemfdFlags::CLOEXEC).unwrap();
        ftruncate(&file, 2 * PAGE as u64).unwrap();
        let map = |protection| {
            // SAFETY: with a null address the kernel chooses an unused one.
            let start = unsafe { mmap(ptr::null_mut(), 2 * PAGE, protection, MapFlags::SHARED, &file, 0) };
            NonNull::new(start.unwrap().cast::<u8>()).unwrap()
        };
        Twice {
            writable: map(ProtFlags::READ | ProtFlags::WRITE),
            executable: map(ProtFlags::READ | ProtFlags::EXEC),
            protected_anew: std::env::var_os(PROTECTED_ANEW).is_some(),
        }
    }

    /// Writes a function that returns `value`.
    fn write(&self, value: u16) {
        let code = returning(value);
        // SAFETY: the code fits behind `AT` in the first page, and nothing runs there now.
        unsafe { self.writable.add(AT).copy_from_nonoverlapping(NonNull::from(&code).cast(), code.len()) };
    }

    fn sync(&self) {
        let [written, address] =
            [self.writable, self.executable].map(|start| (start.addr().get() + AT) as u64);
        icache::sync_foreign(written, address, returning(0).len());
        if self.protected_anew {
            self.protect_anew();
        }
    }

    /// Takes the right to run the code away and gives it back.
    fn protect_anew(&self) {
        for rights in [MprotectFlags::READ, MprotectFlags::READ | MprotectFlags::EXEC] {
            // SAFETY: the page was mapped by `map`, and no code runs there now.
            unsafe { mprotect(self.executable.as_ptr().cast(), PAGE, rights).unwrap() };
        }
    }

    /// Runs the function.
    fn run(&self) -> u16 {
        // SAFETY: the function has this signature, whichever value is there, and nothing writes to it now.
        unsafe {
            let function: extern "C" fn() -> u32 = std::mem::transmute(self.executable.add(AT));
            function() as u16
        }
    }

    fn turn(&self) -> &AtomicU32 {
        // SAFETY: an aligned word of the second page, which is mapped as long as `self` and used in this way alone.
        unsafe { self.writable.add(TURN).cast().as_ref() }
    }

    /// Waits until the turn is `turn`.
    fn wait_for(&self, turn: u32) -> bool {
        let since = Instant::now();
        while self.turn().load(Ordering::Acquire) != turn {
            if since.elapsed() > PATIENCE {
                return false;
            }
            sched_yield();
        }
        true
    }
}

impl Drop for Twice {
    fn drop(&mut self) {
        for start in [self.writable, self.executable] {
            // SAFETY: mapped by `map`, and not used any more.
            unsafe { munmap(start.as_ptr().cast(), 2 * PAGE).unwrap() };
        }
    }
}

/// `mov eax, value; ret`
#[cfg(target_arch = "x86_64")]
fn returning(value: u16) -> [u8; 6] {
    let [low, high] = value.to_le_bytes();
    [0xb8, low, high, 0, 0, 0xc3]
}

/// `mov w0, value; ret`
#[cfg(target_arch = "aarch64")]
fn returning(value: u16) -> [u8; 8] {
    in_bytes([0x5280_0000 | u32::from(value) << 5, 0xd65f_03c0])
}

/// `lui a0, value's upper bits; addi a0, a0, the lower ones; ret`
#[cfg(target_arch = "riscv64")]
fn returning(value: u16) -> [u8; 12] {
    let value = u32::from(value);
    // The lower bits are a signed number.
    let upper = value.wrapping_add(0x800) >> 12;
    in_bytes([0x0000_0537 | upper << 12, 0x0005_0513 | (value & 0xfff) << 20, 0x0000_8067])
}

/// Instructions of one word each.
#[cfg(not(target_arch = "x86_64"))]
fn in_bytes<const WORDS: usize, const BYTES: usize>(words: [u32; WORDS]) -> [u8; BYTES] {
    let mut code = [0; BYTES];
    for (place, word) in code.chunks_exact_mut(4).zip(words) {
        place.copy_from_slice(&word.to_le_bytes());
    }
    code
}

#[test]
fn code_that_this_process_wrote_through_another_mapping_runs() {
    let twice = Twice::map();
    for round in 0..ROUNDS {
        twice.write(round as u16);
        twice.sync();
        assert_eq!(twice.run(), round as u16, "stale code ran in round {round}");
    }
}

#[test]
fn code_that_another_process_wrote_runs() {
    let twice = Twice::map();
    // SAFETY: the child uses nothing but memory that was mapped before, the clock and the scheduler, and ends.
    let child = unsafe { libc::fork() };
    assert!(child >= 0);
    if child == 0 {
        for round in 0..ROUNDS {
            if !twice.wait_for(2 * round) {
                break;
            }
            twice.write(round as u16);
            twice.turn().store(2 * round + 1, Ordering::Release);
        }
        // SAFETY: it ends the child without running the parent's exit handlers.
        unsafe { libc::_exit(0) };
    }
    let mut stale = Vec::new();
    for round in 0..ROUNDS {
        if !twice.wait_for(2 * round + 1) {
            break;
        }
        twice.sync();
        stale.extend((twice.run() != round as u16).then_some(round));
        twice.turn().store(2 * round + 2, Ordering::Release);
    }
    let ended = twice.turn().load(Ordering::Relaxed) == 2 * ROUNDS;
    let child = Pid::from_raw(child).unwrap();
    if !ended {
        kill_process(child, Signal::KILL).unwrap();
    }
    waitpid(Some(child), WaitOptions::empty()).unwrap();
    assert!(ended, "the other process did not take its turns");
    assert!(stale.is_empty(), "stale code ran in rounds {stale:?}");
}

#[test]
fn every_value_is_returned() {
    let twice = Twice::map();
    for value in [0, 1, 0x7ff, 0x800, 0xfff, 0x1000, 0x7fff, 0x8000, 0xf800, u16::MAX] {
        twice.write(value);
        twice.sync();
        assert_eq!(twice.run(), value);
    }
}

/// Without it the tests above would show nothing.
#[cfg(not(target_arch = "x86_64"))]
#[test]
fn stale_code_runs_where_the_caches_are_not_made_to_agree() {
    if std::env::var_os(KEEPS_STALE_CODE).is_none() {
        return println!("skipped: {KEEPS_STALE_CODE} is not set: on a processor chance decides");
    }
    let twice = Twice::map();
    twice.write(0);
    twice.sync();
    assert_eq!(twice.run(), 0);
    for round in 1..100 {
        twice.write(round);
        assert_eq!(twice.run(), 0, "fresh code ran in round {round}, and nothing was told of it");
    }
    twice.sync();
    assert_eq!(twice.run(), 99);
}
