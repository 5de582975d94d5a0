//! The one place that makes placed code visible to the processor that will run it.
//!
//! Called once for each image placed, and before each call in mode in place. Never called for a frame in the
//! other modes.

use crate::image::Machine;

#[cfg(target_arch = "aarch64")]
mod aarch64;
#[cfg(all(target_arch = "riscv64", target_os = "linux"))]
mod riscv64;
#[cfg(target_arch = "x86_64")]
mod x86_64;

/// Makes `len` bytes of code at `address` (where it will *run*) executable by this and every other core. The
/// bytes were written at `written`: the same memory, mapped for reading.
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
/// **aarch64**: cleans the data cache and invalidates the instruction caches of all cores, as far as the
/// processor says that it needs either. A core that has run other code at `address` must also synchronise.
///
/// **riscv64**: makes Linux flush the instruction caches of all harts that run threads of this process. That
/// also synchronises these harts. Every call interrupts them.
///
/// [`supported`] refuses architectures on which injected code cannot run.
#[inline]
pub fn publish(written: u64, address: u64, len: usize) {
    #[cfg(target_arch = "aarch64")]
    aarch64::publish(written, address, len);
    #[cfg(all(target_arch = "riscv64", target_os = "linux"))]
    riscv64::publish(address, len);
    #[cfg(not(target_arch = "aarch64"))]
    let _ = (written, address, len);
}

/// True if a core that runs code after [`publish`] must synchronise even if it never ran other code at that
/// address. This holds on aarch64, where a core may have fetched from there before the code was written,
/// however unlikely that is (Arm Architecture Reference Manual for A-profile, B2.2.5). On x86-64 no core
/// needs to, see [`publish`], and on riscv64 Linux makes the cores synchronise.
pub const OTHERS_MUST_SYNCHRONISE: bool = cfg!(target_arch = "aarch64");

/// Makes `len` bytes of code at `address` executable by this processor, after another agent (a core that runs
/// the source, a device) wrote them through another linear address. Other code may have run there before. `written`
/// is an address of the same memory, mapped for reading: that of this process's own stores, if it made any.
/// Call it after the acquire load of the signal for the code, and after this process's last store into the
/// code.
///
/// **x86-64** keeps its instruction caches coherent with those stores, at the price of a cleared pipeline
/// when an executed line is written again. It does not promise to discard prefetched instructions. For
/// *cross-modifying code* the executing processor must serialise after it has seen that the code is there
/// (Intel SDM volume 3, 9.1.3 "Handling Self- and Cross-Modifying Code"; AMD64 manual volume 2, 7.6.1
/// "Cross-Modifying Code"). The same holds for a processor that wrote through another linear address than the
/// one it executes at (the same sections).
///
/// **aarch64** needs all that [`publish`] does, by the process that runs the code. The writer may be a device, and its
/// maintenance, if any, may not have reached this process's addresses.
///
/// **riscv64** needs all that [`publish`] does, too: a flush in the writer's process serves the writer's
/// threads alone.
#[inline]
pub fn sync_foreign(written: u64, address: u64, len: usize) {
    publish(written, address, len);
    serialise();
}

/// Makes this processor discard prefetched instructions.
///
/// On x86-64 a program with shadow stacks in user mode cannot return this way, nor in the way of
/// `farjump_panic`.
#[inline]
pub fn serialise() {
    #[cfg(target_arch = "aarch64")]
    aarch64::serialise();
    #[cfg(all(target_arch = "riscv64", target_os = "linux"))]
    riscv64::serialise();
    #[cfg(target_arch = "x86_64")]
    x86_64::serialise();
}

/// Returns the machine that this build runs on, if it can run injected code there.
///
/// # Errors
/// The unsupported machine, or the system's refusal, as text for the message.
pub fn supported() -> Result<Machine, &'static str> {
    #[cfg(all(target_arch = "riscv64", target_os = "linux"))]
    riscv64::available()?;
    match Machine::native() {
        Some(machine @ (Machine::X86_64 | Machine::AARCH64)) => Ok(machine),
        Some(Machine::RISCV) if cfg!(target_os = "linux") => Ok(Machine::RISCV),
        _ => Err("farjump does not run injected code on this architecture yet"),
    }
}
