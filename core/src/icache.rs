//! The one seam for making placed code visible to the processor that will run it.
//!
//! Called once for each image placed, never for a message in cached mode.

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
/// not enough: [`serialise`] goes between seeing the frame and calling it.
///
/// Other architectures are refused by [`supported`] until they are taught here.
#[inline]
pub fn publish(address: u64, len: usize) {
    let _ = (address, len);
}

/// Makes this processor forget instructions that it fetched ahead: `cpuid` on x86-64, which serialises (Intel SDM volume
/// 3, 9.3). Tens of nanoseconds, hundreds to thousands under a hypervisor that intercepts it.
#[inline]
pub fn serialise() {
    #[cfg(target_arch = "x86_64")]
    let _ = core::arch::x86_64::__cpuid(0);
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
