//! riscv64: instruction fetches are not ordered with stores, not even with this hart's own (RISC-V Unprivileged ISA,
//! "Zifencei").
//!
//! `fence.i` orders them for the hart that executes it. A process cannot use it: the system may move the
//! thread to another hart right after it, and other threads run on harts of their own. So Linux flushes for a
//! process: `riscv_flush_icache(start, end, flags)`. With no flags it returns when each hart that runs a
//! thread of this process has executed `fence.i`; the others do so before they run such a thread again. It
//! ignores the range, and orders this hart's earlier stores before that. The same call serves code that
//! another process or a device wrote, once this hart has seen that the code is there.
//!
//! The call is made here though core knows no operating system (`docs/design/frames.md`).

use core::arch::asm;

/// The call's number.
const FLUSH: usize = 259;
/// Flags: one for all threads of this process, and one that does not exist.
const ALL_THREADS: usize = 0;
const UNKNOWN: usize = usize::MAX;
/// Linux's error for flags that it does not know.
const EINVAL: isize = -22;

/// Makes code that was written run at `address`, on all harts that run threads of this process.
pub(super) fn publish(address: u64, len: usize) {
    let address = address as usize;
    if flush(address, address.saturating_add(len), ALL_THREADS) != 0 {
        // The system refuses a call that it allowed in `available`. All that is left is to synchronise this
        // hart.
        serialise();
    }
}

/// Checks that the system lets this process flush.
///
/// # Errors
/// The reason of the refusal.
pub(super) fn available() -> Result<(), &'static str> {
    // Flags that Linux refuses interrupt no hart. QEMU ignores the flags.
    match flush(0, 0, UNKNOWN) {
        0 | EINVAL => Ok(()),
        _ => Err("the system refuses riscv_flush_icache, without which fresh code does not run: \
                  allow it in the process's seccomp filter"),
    }
}

/// Discards prefetched instructions of this hart.
#[inline]
pub(super) fn serialise() {
    // SAFETY: it changes no register and no memory.
    unsafe { asm!("fence.i", options(nostack, preserves_flags)) };
}

/// `riscv_flush_icache`; its result is zero, or an error below zero.
fn flush(start: usize, end: usize, flags: usize) -> isize {
    let result: isize;
    // SAFETY: the call reads and writes no memory of the process. Linux keeps all registers but that of the result.
    unsafe {
        asm!(
            "ecall",
            in("a7") FLUSH,
            inlateout("a0") start => result,
            in("a1") end,
            in("a2") flags,
            options(nostack, preserves_flags),
        );
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_system_flushes_for_this_process() {
        assert_eq!(available(), Ok(()));
        assert_eq!(flush(0, 4096, ALL_THREADS), 0);
    }
}
