//! Text of a crash report.

use std::ffi::c_int;
use std::fmt::{self, Write};

use farjump_loader::address_map::{self, Found};

use super::SIGNALS;
use crate::executor::running;

/// Capacity of the line: the longest name and everything else.
const LINE: usize = 640;
/// `si_code` of faults for which the processor gives no address (sigaction(2)).
const SI_KERNEL: c_int = 0x80;

/// Writes a line to standard error if the signal comes from listed code, or from a function that such code
/// called. Writes nothing otherwise: then it does not concern farjump.
// Its text must not lie on the stack of the handler behind ours: the stack that Rust gives its threads for
// handlers is small.
#[inline(never)]
pub(super) fn report(signal: c_int, info: &libc::siginfo_t, context: &libc::ucontext_t) {
    // SAFETY: signals that a process sends have the number of the process in their description.
    if info.si_code <= 0 && unsafe { info.si_pid() } != rustix::process::getpid().as_raw_nonzero().get() {
        return;
    }
    let mut pc = program_counter(context);
    if signal == libc::SIGTRAP {
        // The trap has already run.
        pc = pc.wrapping_sub(1);
    }
    let mut line = Line { bytes: [0; LINE], len: 0 };
    // Text that does not fit is left out.
    let _ = match (address_map::find(pc), running().and_then(address_map::find)) {
        (Some(found), _) => inside(&mut line, Fault { signal, info }, pc, &found),
        (None, Some(caller)) => called(&mut line, Fault { signal, info }, pc, &caller),
        (None, None) => return,
    };
    // If the report cannot be written, there is no other place for it.
    let _ = rustix::io::write(rustix::stdio::stderr(), &line.bytes[..line.len]);
}

fn inside(line: &mut Line, fault: Fault<'_>, pc: u64, found: &Found) -> fmt::Result {
    let Found { start, id, .. } = found;
    let offset = pc - start;
    let name = found.name();
    writeln!(
        line,
        "farjump: {fault} in ifunc `{name}`, at offset {offset:#x} of its image (code id {id}, placed at {start:#x})"
    )
}

fn called(line: &mut Line, fault: Fault<'_>, pc: u64, caller: &Found) -> fmt::Result {
    let Found { start, id, .. } = caller;
    let name = caller.name();
    writeln!(
        line,
        "farjump: {fault} at {pc:#x}, in a function called by ifunc `{name}` (code id {id}, placed at {start:#x})"
    )
}

/// A signal, and the address that was touched if there is one.
struct Fault<'a> {
    signal: c_int,
    info: &'a libc::siginfo_t,
}

impl fmt::Display for Fault<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name =
            SIGNALS.iter().find(|(number, _)| *number == self.signal).map_or("signal", |(_, name)| name);
        out.write_str(name)?;
        let touched = self.signal == libc::SIGSEGV || self.signal == libc::SIGBUS;
        if touched && self.info.si_code > 0 && self.info.si_code != SI_KERNEL {
            // SAFETY: these two signals have an address in their description unless the codes above say
            // otherwise.
            let address = unsafe { self.info.si_addr() }.addr();
            write!(out, " (address {address:#x})")?;
        }
        Ok(())
    }
}

#[cfg(target_arch = "x86_64")]
fn program_counter(context: &libc::ucontext_t) -> u64 {
    context.uc_mcontext.gregs[libc::REG_RIP as usize] as u64
}

#[cfg(target_arch = "aarch64")]
fn program_counter(context: &libc::ucontext_t) -> u64 {
    context.uc_mcontext.pc
}

/// Unused on other machines, where no code is placed.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
fn program_counter(_: &libc::ucontext_t) -> u64 {
    0
}

/// Text in a buffer of its own: formatting numbers and strings into it allocates nothing.
struct Line {
    bytes: [u8; LINE],
    len: usize,
}

impl Write for Line {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let space = &mut self.bytes[self.len..];
        let len = text.len().min(space.len());
        space[..len].copy_from_slice(&text.as_bytes()[..len]);
        self.len += len;
        if len == text.len() { Ok(()) } else { Err(fmt::Error) }
    }
}
