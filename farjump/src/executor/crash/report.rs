//! Text of a crash report.

use std::ffi::c_int;
use std::fmt::{self, Write};

use farjump_loader::address_map::{self, Found};

use super::{Signal, parent};
use crate::data::files::{self, DataByte};
use crate::executor::running;

/// Capacity of the line: the longest name and path, and everything else.
const LINE: usize = 1024;
/// `si_code` of faults for which the processor gives no address (sigaction(2)).
const SI_KERNEL: c_int = 0x80;

/// Writes a line to standard error if the signal comes from listed code, or from a function that such code
/// called. Writes nothing otherwise: then it does not concern farjump.
// Its text must not lie on the stack of the handler behind ours: the stack that Rust gives its threads for
// handlers is small.
#[inline(never)]
pub(super) fn report(signal: &Signal, info: &libc::siginfo_t, context: &libc::ucontext_t) {
    let mut pc = program_counter(context);
    if cfg!(target_arch = "x86_64") && signal.number == libc::SIGTRAP {
        // The trap has already run. On other machines it is the next instruction.
        pc = pc.wrapping_sub(1);
    }
    let fault = Fault { signal, info };
    let missing = fault.address().filter(|_| signal.number == libc::SIGBUS).and_then(files::find);
    let mut line = Line::new();
    // Text that does not fit is left out.
    let _ = match (address_map::find(pc), running().and_then(address_map::find), &missing) {
        (Some(found), _, _) => inside(&mut line, &fault, pc, &found),
        (None, Some(caller), _) => called(&mut line, &fault, pc, &caller),
        (None, None, Some(_)) => write!(line, "farjump: {fault}"),
        (None, None, None) => return,
    };
    let _ = missing.iter().try_for_each(|byte| cut_short(&mut line, byte));
    if let Some(parent) = parent() {
        let child = std::process::id();
        let _ = write!(line, ", in process {child}, a forked child of the target with pid {parent}");
    }
    line.print();
}

/// Writes a line to standard error if this thread runs injected code, which ends the process by the function
/// `by`. Writes nothing in a forked child, whose end is its own.
pub(super) fn ends(by: &str) {
    let Some(found) = running().and_then(address_map::find).filter(|_| parent().is_none()) else { return };
    let (Found { start, id, .. }, name) = (&found, found.name());
    let mut line = Line::new();
    let _ = write!(
        line,
        "farjump: the process ends by {by}(), called in ifunc `{name}` (code id {id}, placed at {start:#x})"
    );
    line.print();
}

fn inside(line: &mut Line, fault: &Fault<'_>, pc: u64, found: &Found) -> fmt::Result {
    let Found { start, id, .. } = found;
    let offset = pc - start;
    let name = found.name();
    write!(
        line,
        "farjump: {fault} in ifunc `{name}`, at offset {offset:#x} of its image (code id {id}, placed at {start:#x})"
    )
}

fn called(line: &mut Line, fault: &Fault<'_>, pc: u64, caller: &Found) -> fmt::Result {
    let Found { start, id, .. } = caller;
    let name = caller.name();
    write!(
        line,
        "farjump: {fault} at {pc:#x}, in a function called by ifunc `{name}` (code id {id}, placed at {start:#x})"
    )
}

fn cut_short(line: &mut Line, byte: &DataByte) -> fmt::Result {
    let (path, offset) = (byte.path(), byte.offset);
    write!(
        line,
        ": the data file `{path}` was cut short while it was mapped, and has no byte {offset:#x} any more; write a new \
         file and rename it, and start the target again"
    )
}

/// A signal, and the address that was touched if there is one.
struct Fault<'a> {
    signal: &'a Signal,
    info: &'a libc::siginfo_t,
}

impl fmt::Display for Fault<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.signal.name)?;
        self.address().map_or(Ok(()), |address| write!(out, " (address {address:#x})"))
    }
}

impl Fault<'_> {
    /// The address that was touched.
    fn address(&self) -> Option<usize> {
        let touched = matches!(self.signal.number, libc::SIGSEGV | libc::SIGBUS);
        // SAFETY: these two signals have an address in their description unless the codes here say otherwise.
        (touched && self.info.si_code > 0 && self.info.si_code != SI_KERNEL)
            .then(|| unsafe { self.info.si_addr() }.addr())
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

#[cfg(target_arch = "riscv64")]
fn program_counter(context: &libc::ucontext_t) -> u64 {
    context.uc_mcontext.__gregs[libc::REG_PC]
}

/// Unused on other machines, where no code is placed.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64", target_arch = "riscv64")))]
fn program_counter(_: &libc::ucontext_t) -> u64 {
    0
}

/// Text in a buffer of its own: formatting numbers and strings into it allocates nothing.
struct Line {
    bytes: [u8; LINE],
    len: usize,
}

impl Line {
    fn new() -> Line {
        Line { bytes: [0; LINE], len: 0 }
    }

    /// Writes the line to standard error, with its end.
    fn print(mut self) {
        let len = self.len.min(LINE - 1);
        self.bytes[len] = b'\n';
        // If the report cannot be written, there is no other place for it.
        let _ = rustix::io::write(rustix::stdio::stderr(), &self.bytes[..=len]);
    }
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
