//! The one seam for making placed code visible to the processor that will run it.
//!
//! Called once for each image placed, and before each call in mode in place; never for a message in the other modes.

use crate::image::Machine;

/// Makes `len` bytes of code at `address` (where it will *run*) fit to be executed by this and every other core.
///
/// **x86-64** does nothing here. Its instruction caches are coherent with stores, also with stores through another
/// linear address of the same memory, as long as the processor that runs the code executes a *serialising* instruction or
/// takes a control transfer that it could not have prefetched (AMD64 Architecture Programmer's Manual, volume 2, 7.6.1;
/// Intel SDM volume 3, 8.1.3 and 11.6). Code placed here is reached by an indirect call to an address at which this
/// processor has never executed before it was written. Another core that is handed the address learns of it by a load
/// that is ordered behind the stores, and its fetch cannot have gone ahead to an address that it did not know. Where code
/// runs at an address that held other code a moment ago, written by *another agent* (in place in the mailbox), that is
/// not enough: see [`sync_foreign`].
///
/// Other architectures are refused by [`supported`] until they are taught here.
#[inline]
pub fn publish(address: u64, len: usize) {
    let _ = (address, len);
}

/// Makes `len` bytes of code at `address` fit to be executed by this processor, which another agent (a core that runs the
/// source, a device) wrote a moment ago through another linear address, where other code may have run before. Called after
/// the signal that says that the code is there was loaded with acquire order, and after the last store of this side's own
/// into it.
///
/// **x86-64** keeps its instruction caches coherent with those stores by itself, at the price of a cleared pipeline
/// where a line that was executed is written again. What it does not promise is that instructions fetched ahead are thrown
/// away: for *cross-modifying code* the processor that executes has to serialise after it has seen that the code is there
/// (Intel SDM volume 3, 9.1.3 "Handling Self- and Cross-Modifying Code"; AMD64 manual volume 2, 7.6.1 "Cross-Modifying
/// Code"), and so has one that wrote through another linear address than the one it executes at (the same places).
#[inline]
pub fn sync_foreign(address: u64, len: usize) {
    let _ = (address, len);
    serialise();
}

/// Makes this processor forget instructions that it fetched ahead. On x86-64 by `iretq` to the next instruction, which
/// serialises (Intel SDM volume 3, 9.3; AMD64 manual volume 2, 7.6.4), some forty nanoseconds. `cpuid` does so too, and traps
/// under every hypervisor, which makes it take thousands; `serialize` is not to be had everywhere.
///
/// A program that asks for shadow stacks in user mode cannot return this way, nor in that of `farjump_panic`.
#[inline]
pub fn serialise() {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: the frame that `iretq` takes from the stack is the one pushed here: the present stack pointer, segments and
    // flags, and the address behind it. Without `nostack` the compiler keeps nothing below the stack pointer.
    unsafe {
        core::arch::asm!(
            "mov {scratch:e}, ss",
            "mov {stack}, rsp",
            "push {scratch}",
            "push {stack}",
            "pushfq",
            "mov {scratch:e}, cs",
            "push {scratch}",
            "lea {scratch}, [rip + 2f]",
            "push {scratch}",
            "iretq",
            "2:",
            scratch = out(reg) _,
            stack = out(reg) _,
        );
    }
}

/// Whether this build knows how to publish code on the machine it runs on.
///
/// # Errors
/// The machine that it does not know, for the message.
pub fn supported() -> Result<Machine, &'static str> {
    match Machine::native() {
        Some(Machine::X86_64) => Ok(Machine::X86_64),
        _ => Err(core::concat!(
            "farjump does not run injected code on this architecture yet: ",
            "its instruction cache needs maintenance that is not implemented"
        )),
    }
}
