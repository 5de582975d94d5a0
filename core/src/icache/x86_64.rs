//! x86-64: instruction caches are coherent with stores, and only prefetched instructions have to be discarded.

/// Discards prefetched instructions, by `iretq` to the next instruction, which serialises (Intel SDM volume 3,
/// 9.3; AMD64 manual volume 2, 7.6.4) and takes some forty nanoseconds. `cpuid` serialises too, but traps under
/// every hypervisor, which takes thousands. Not every processor has `serialize`.
#[inline]
pub(super) fn serialise() {
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
