//! Single-steps a process: exact, and possible on machines without hardware performance counters.

use std::collections::{HashMap, HashSet};
use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::os::unix::fs::FileExt;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command};
use std::rc::Rc;
use std::thread;
use std::time::Duration;

use iced_x86::InstructionInfoFactory;
use nix::libc::user_regs_struct;
use nix::sys::personality::{self, Persona};
use nix::sys::ptrace;
use nix::sys::signal::Signal;
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::Pid;

use super::case::MeasuredOperation;
use super::maps::{self, Line, Maps, Owner};
use super::marker::Mark;
use super::memory_operands::{Instruction, LONGEST};
use crate::Failure;

/// Steps after which the counted process must be faulty.
const MOST_STEPS: u64 = 200_000_000;

/// The cost of one turn of an operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Turn {
    /// Instructions of the program itself, which farjump is part of.
    pub(crate) own: u64,
    /// Instructions of the ifunc, its payload routines included.
    pub(crate) ifunc: u64,
    /// Instructions of the transport's library.
    pub(crate) library: u64,
    /// Instructions of the system's libraries, for any caller.
    pub(crate) system: u64,
    /// Lines loaded from or stored to, except by the transport's library.
    pub(crate) lines: u64,
    /// The lines among these in memory that both endpoints share.
    pub(crate) shared_lines: u64,
    /// Lines of executed code, except of the transport's library.
    pub(crate) code_lines: u64,
    /// Pages with these lines, of data and of code.
    pub(crate) pages: (u64, u64),
}

impl Turn {
    fn add(&mut self, owner: Owner) {
        *match owner {
            Owner::Own => &mut self.own,
            Owner::Ifunc => &mut self.ifunc,
            Owner::Library => &mut self.library,
            Owner::System => &mut self.system,
        } += 1;
    }
}

/// The turns of each operation, in order.
pub(crate) type Turns = Vec<(MeasuredOperation, Turn)>;

/// Runs `command`, whose program makes marks, to its end. `ifunc` is the file name of its ifunc library. Before an
/// operation that receives, the program stands still for `delivery`.
///
/// # Errors
/// The program fails, or makes something that cannot be counted; or nothing can be counted ([`may_not`]).
pub(crate) fn run(command: &mut Command, ifunc: &str, delivery: Duration) -> Result<Turns, Failure> {
    let mut traced = Traced::start(command)?;
    loop {
        match traced.next_mark()? {
            Some(Mark::Counting) => break,
            Some(_) => {}
            None => return Err("the process that is counted ended before anything was".into()),
        }
    }
    let own = fs::read_link(format!("/proc/{}/exe", traced.pid))?;
    let maps = Maps::read(traced.pid.as_raw(), &own, ifunc)?;
    let mut stepper = Stepper::new(maps, &traced)?;
    while let Some(mark) = traced.next_mark()? {
        let mut next = mark;
        while let Mark::Of(operation) = next {
            if operation.receives() {
                thread::sleep(delivery);
            }
            next = stepper.count(&mut traced, operation)?;
        }
    }
    Ok(stepper.turns)
}

/// Returns whether an error of [`run`] means that the system forbids tracing.
pub(crate) fn may_not(error: &Failure) -> bool {
    error.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == ErrorKind::PermissionDenied)
}

/// A traced process. It is killed on drop if it has not ended.
struct Traced {
    child: Child,
    pid: Pid,
    /// Whether it has ended and was reaped.
    ended: bool,
}

impl Traced {
    /// Starts it. It stands at its first instruction then.
    fn start(command: &mut Command) -> Result<Traced, Failure> {
        // SAFETY: the closure makes two system calls, and does not allocate.
        unsafe {
            command.pre_exec(|| {
                // Where the system insists on address randomization, some figures may be off by a line.
                let _ = personality::set(Persona::ADDR_NO_RANDOMIZE);
                ptrace::traceme().map_err(io::Error::from)
            });
        }
        let child = command.spawn()?;
        let pid = Pid::from_raw(child.id().cast_signed());
        let mut traced = Traced { child, pid, ended: false };
        match traced.wait()? {
            Some(Signal::SIGTRAP) => {}
            other => {
                return Err(format!("the process that is counted did not start as one: {other:?}").into());
            }
        }
        ptrace::setoptions(pid, ptrace::Options::PTRACE_O_EXITKILL)?;
        Ok(traced)
    }

    /// Waits until a signal stops it, and returns the signal; `None` after a successful exit.
    fn wait(&mut self) -> Result<Option<Signal>, Failure> {
        match waitpid(self.pid, None)? {
            WaitStatus::Stopped(_, signal) => Ok(Some(signal)),
            status => {
                self.ended = true;
                match status {
                    WaitStatus::Exited(_, 0) => Ok(None),
                    other => Err(format!("the process that is counted failed: {other:?}").into()),
                }
            }
        }
    }

    /// Runs it to its next mark; `None` if there was none.
    fn next_mark(&mut self) -> Result<Option<Mark>, Failure> {
        let mut signal = None;
        loop {
            ptrace::cont(self.pid, signal)?;
            signal = match self.wait()? {
                None => return Ok(None),
                Some(Signal::SIGTRAP) => return self.mark(&ptrace::getregs(self.pid)?).map(Some),
                // Other signals are for the process itself.
                other => other,
            };
        }
    }

    fn step(&mut self) -> Result<(), Failure> {
        ptrace::step(self.pid, None)?;
        loop {
            match self.wait()? {
                Some(Signal::SIGTRAP) => return Ok(()),
                Some(signal) => ptrace::step(self.pid, signal)?,
                None => return Err("the process that is counted ended in the middle of an operation".into()),
            }
        }
    }

    /// Returns the mark that it stands at.
    fn mark(&self, registers: &user_regs_struct) -> Result<Mark, Failure> {
        let number = registers.rdi;
        Mark::numbered(number).ok_or_else(|| {
            format!(
                "the process that is counted stopped at {:#x}, which is no mark ({number})",
                registers.rip
            )
            .into()
        })
    }
}

impl Drop for Traced {
    fn drop(&mut self) {
        if !self.ended {
            drop(self.child.kill());
            drop(self.child.wait());
        }
    }
}

/// An instruction and its owner.
struct Known {
    instruction: Instruction,
    owner: Owner,
}

/// Counts instructions and lines between marks.
struct Stepper {
    maps: Maps,
    memory: File,
    factory: InstructionInfoFactory,
    /// Instructions in files, by address. Injected code is not here, as its addresses change.
    known: HashMap<u64, Rc<Known>>,
    turns: Turns,
    steps: u64,
}

impl Stepper {
    fn new(maps: Maps, traced: &Traced) -> Result<Stepper, Failure> {
        let memory = PathBuf::from(format!("/proc/{}/mem", traced.pid));
        Ok(Stepper {
            maps,
            memory: File::open(memory)?,
            factory: InstructionInfoFactory::new(),
            known: HashMap::new(),
            turns: Vec::new(),
            steps: 0,
        })
    }

    /// Counts up to the next mark, and leaves the process behind it.
    fn count(&mut self, traced: &mut Traced, operation: MeasuredOperation) -> Result<Mark, Failure> {
        let mut turn = Turn::default();
        let mut lines: HashSet<Line> = HashSet::new();
        let (mut data, mut code, mut code_pages) = (HashSet::new(), HashSet::new(), HashSet::new());
        // The caller of the system's libraries.
        let mut caller = Owner::Own;
        let mut registers = ptrace::getregs(traced.pid)?;
        let mut before = None;
        loop {
            let known = self.known(registers.rip)?;
            if known.instruction.is_mark {
                break;
            }
            // A repeated instruction counts once, but each repetition accesses other memory.
            if before.replace(registers.rip) != Some(registers.rip) {
                turn.add(known.owner);
            }
            if known.owner != Owner::System {
                caller = known.owner;
            }
            if caller != Owner::Library {
                code.extend(maps::lines_of(registers.rip, 1));
                code_pages.insert(maps::page_of(registers.rip));
                for place in known.instruction.places(&registers) {
                    let (address, len) = place.ok_or_else(|| {
                        format!("the instruction at {:#x} reaches memory by a vector register", registers.rip)
                    })?;
                    if !self.maps.is_constant(address) {
                        lines.extend(self.maps.lines(address, len));
                        data.insert(maps::page_of(address));
                    }
                }
            }
            self.steps += 1;
            if self.steps > MOST_STEPS {
                return Err(format!("{MOST_STEPS} instructions did not come to an end").into());
            }
            traced.step()?;
            registers = ptrace::getregs(traced.pid)?;
        }
        turn.lines = lines.len() as u64;
        turn.shared_lines = lines.iter().filter(|line| self.maps.is_shared(**line)).count() as u64;
        turn.code_lines = code.len() as u64;
        turn.pages = (data.len() as u64, code_pages.len() as u64);
        self.turns.push((operation, turn));
        let mark = traced.mark(&registers)?;
        registers.rip += 1;
        ptrace::setregs(traced.pid, registers)?;
        Ok(mark)
    }

    /// Returns the instruction at `address`.
    fn known(&mut self, address: u64) -> Result<Rc<Known>, Failure> {
        if let Some(known) = self.known.get(&address) {
            return Ok(Rc::clone(known));
        }
        let mut code = [0; LONGEST];
        // A read at the end of a mapping is shorter.
        let len = self.memory.read_at(&mut code, address)?;
        let (owner, fixed) = self.maps.code(address);
        let instruction = Instruction::read(&code[..len], address, &mut self.factory)
            .ok_or_else(|| format!("there is no instruction at {address:#x}: {:x?}", &code[..len]))?;
        let known = Rc::new(Known { instruction, owner });
        if fixed {
            self.known.insert(address, Rc::clone(&known));
        }
        Ok(known)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A program with marks around instructions of known number and lines. A send has twelve instructions and four
    /// lines, one of them the stack's. A poll has three instructions, one of which repeats over five lines.
    const PROGRAM: &str = r#"
        .globl _start
        .text
_start: mov $4, %edi
        int3
        mov $1, %edi
        int3
        lea memory(%rip), %rax
        movb $1, (%rax)
        movb $1, 63(%rax)
        movw $1, 127(%rax)
        mov %eax, %ecx
        nopl 192(%rax)
        push %rbx
        pop %rbx
        lea memory(%rip), %rdi
        mov $300, %ecx
        xor %eax, %eax
        mov $2, %edi
        int3
        lea memory(%rip), %rdi
        rep stosb
        mov $0, %edi
        int3
        mov $60, %eax
        syscall
        .bss
        .balign 64
memory: .skip 4096
"#;

    #[test]
    fn instructions_and_lines_are_counted_exactly() -> Result<(), Failure> {
        let folder = tempfile::tempdir()?;
        let (source, program) = (folder.path().join("known.s"), folder.path().join("known"));
        fs::write(&source, PROGRAM)?;
        let mut compiler = Command::new("cc");
        let built = compiler.args(["-nostdlib", "-static", "-o"]).arg(&program).arg(&source).output()?;
        assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
        let turns = match run(&mut Command::new(&program), "no ifunc", Duration::ZERO) {
            Err(error) if may_not(&error) => {
                println!("skipped: processes may not be traced");
                return Ok(());
            }
            turns => turns?,
        };
        let counted = |(operation, turn): &(_, Turn)| (*operation, turn.own, turn.lines, turn.pages);
        // The stack is another page, and all code fits one.
        let expected = [(MeasuredOperation::Send, 12, 4, (2, 1)), (MeasuredOperation::Poll, 3, 5, (1, 1))];
        assert_eq!(turns.iter().map(counted).collect::<Vec<_>>(), expected);
        assert!(turns.iter().all(|(_, turn)| (1..=2).contains(&turn.code_lines)), "{turns:?}");
        Ok(())
    }
}
