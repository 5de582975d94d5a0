//! aarch64: data and instruction caches are apart, and software makes them agree (Arm Architecture Reference
//! Manual for A-profile, B2.7.4 "Caches and memory hierarchy", and its example in K13.5.3).
//!
//! 0. A barrier puts the cleaning behind the load by which this core learned of the code, if another core or a device
//!    wrote it. Cache maintenance is ordered with accesses to the same line, and with others by barriers alone: not by
//!    the acquire load of a signal in another line.
//! 1. The written lines are cleaned to the point where both caches look, unless the processor says that it
//!    does not need this (`CTR_EL0.IDC`). This works by physical address: any mapping will do.
//! 2. A barrier makes this visible to all observers.
//! 3. The lines of the addresses at which the code *runs* are invalidated in the instruction caches of all
//!    cores, unless the processor says that it does not need this (`CTR_EL0.DIC`). The addresses matter,
//!    because an instruction cache may be indexed by virtual address.
//! 4. A barrier waits until that is done, on all cores.
//! 5. This core discards what it has fetched. Another core does so when it learns of the code by an exception's
//!    return, or by `membarrier` (its "sync core" command).

use core::arch::asm;

/// Bits of `CTR_EL0`: no cleaning is needed; no invalidating is needed.
const IDC: u64 = 1 << 28;
const DIC: u64 = 1 << 29;

/// Makes code that was written at `written` run at `address`, on all cores that synchronise after it.
pub(super) fn publish(written: u64, address: u64, len: usize) {
    let kind = cache_type();
    // Lengths of lines in words. They are never assumed. On machines whose cores differ in them, the system
    // shows the least.
    let (data, code) = (4 << (kind >> 16 & 0xf), 4 << (kind & 0xf));
    if kind & IDC == 0 {
        barrier();
        for line in lines(written, len, data) {
            // SAFETY: the line is the caller's, mapped for reading. Cleaning changes no byte.
            unsafe { asm!("dc cvau, {}", in(reg) line, options(nostack, preserves_flags)) };
        }
    }
    barrier();
    if kind & DIC == 0 {
        for line in lines(address, len, code) {
            // SAFETY: the line is the caller's, mapped. Invalidating changes no byte.
            unsafe { asm!("ic ivau, {}", in(reg) line, options(nostack, preserves_flags)) };
        }
        barrier();
    }
    serialise();
}

/// Discards prefetched instructions.
#[inline]
pub(super) fn serialise() {
    // SAFETY: it changes no register and no memory.
    unsafe { asm!("isb", options(nostack, preserves_flags)) };
}

/// Waits until earlier stores and cache maintenance are done for all cores.
#[inline]
fn barrier() {
    // SAFETY: it changes no register and no memory.
    unsafe { asm!("dsb ish", options(nostack, preserves_flags)) };
}

/// The kinds and lengths of the caches.
fn cache_type() -> u64 {
    let kind: u64;
    // SAFETY: Linux lets processes read this register, or reads it for them.
    unsafe { asm!("mrs {}, ctr_el0", out(reg) kind, options(nomem, nostack, preserves_flags)) };
    kind
}

/// Addresses of the lines of `len` bytes at `address`.
fn lines(address: u64, len: usize, line: u64) -> impl Iterator<Item = u64> {
    let end = address.saturating_add(len as u64);
    (address & !(line - 1)..end).step_by(line as usize)
}
