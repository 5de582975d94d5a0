//! The one place that makes placed code visible to the processor that will run it.
//!
//! Called once for each image placed, and before each call in mode in place. Never called for a frame in the
//! other modes.

use crate::image::Machine;

/// Makes `len` bytes of code at `address` (where it will *run*) executable by this and every other core.
///
/// **x86-64**: does nothing. Its instruction caches are coherent with stores, also with stores through
/// another linear address of the same memory. The processor that runs the code must execute a *serialising*
/// instruction, or take a control transfer that it could not have prefetched (AMD64 Architecture Programmer's
/// Manual, volume 2, 7.6.1; Intel SDM volume 3, 8.1.3 and 11.6). Placed code is reached by an indirect call
/// to an address at which this processor has not executed before the code was written. Another core learns
/// the address by a load that is ordered behind the stores, and its fetch cannot have run ahead to an unknown
/// address. This is not enough where *another agent* replaces code at the same address (in place in the
/// mailbox): see [`sync_foreign`].
///
/// [`supported`] refuses other architectures until they are implemented here.
#[inline]
pub fn publish(address: u64, len: usize) {
    let _ = (address, len);
}

/// Makes `len` bytes of code at `address` executable by this processor, after another agent (a core that runs
/// the source, a device) wrote them through another linear address. Other code may have run there before.
/// Call it after the acquire load of the signal for the code, and after this process's last store into the
/// code.
///
/// **x86-64** keeps its instruction caches coherent with those stores, at the price of a cleared pipeline
/// when an executed line is written again. It does not promise to discard prefetched instructions. For
/// *cross-modifying code* the executing processor must serialise after it has seen that the code is there
/// (Intel SDM volume 3, 9.1.3 "Handling Self- and Cross-Modifying Code"; AMD64 manual volume 2, 7.6.1
/// "Cross-Modifying Code"). The same holds for a processor that wrote through another linear address than the
/// one it executes at (the same places).
#[inline]
pub fn sync_foreign(address: u64, len: usize) {
    let _ = (address, len);
    serialise();
}

/// Makes this processor discard prefetched instructions. On x86-64 by `iretq` to the next instruction, which
/// serialises (Intel SDM volume 3, 9.3; AMD64 manual volume 2, 7.6.4) and takes some forty nanoseconds.
/// `cpuid` serialises too, but traps under every hypervisor, which takes thousands. Not every processor has
/// `serialize`.
///
/// A program with shadow stacks in user mode cannot return this way, nor in that of `farjump_panic`.
#[inline]
pub fn serialise() {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: `iretq` takes from the stack the frame pushed here: the present stack pointer, segments and
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

/// Whether this build can publish code on the machine it runs on.
///
/// # Errors
/// The unsupported machine, for the message.
pub fn supported() -> Result<Machine, &'static str> {
    match Machine::native() {
        Some(Machine::X86_64) => Ok(Machine::X86_64),
        _ => Err(core::concat!(
            "farjump does not run injected code on this architecture yet: ",
            "its instruction cache needs maintenance that is not implemented"
        )),
    }
}
