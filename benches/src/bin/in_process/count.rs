//! Counts instructions by single-stepping: exact, and possible without hardware performance counters.

use nix::sys::ptrace;
use nix::sys::signal::{Signal, raise};
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::{ForkResult, Pid, fork};

use crate::Failure;

/// Returns the instructions of this process in one turn of `run`: the difference between two runs of
/// different length, in a child that `make` prepares. The kernel's instructions do not count.
pub(crate) fn instructions<T>(
    make: impl Fn() -> Result<T, Failure>,
    run: impl Fn(&mut T, usize),
) -> Result<f64, Failure> {
    const TURNS: usize = 64;
    // SAFETY: this process has one thread, so the child of `fork` may call any function.
    let child = match unsafe { fork()? } {
        ForkResult::Parent { child } => child,
        ForkResult::Child => {
            let counted = ptrace::traceme().map_err(Failure::from).and_then(|()| {
                let mut made = make()?;
                // The first turns differ: they include one-time setup.
                run(&mut made, TURNS);
                for turns in [TURNS, 2 * TURNS] {
                    raise(Signal::SIGSTOP)?;
                    run(&mut made, turns);
                    raise(Signal::SIGSTOP)?;
                }
                Ok(())
            });
            if let Err(error) = &counted {
                eprintln!("error: {error}");
            }
            std::process::exit(i32::from(counted.is_err()))
        }
    };
    let counted = count(child);
    if counted.is_err() {
        let _ = nix::sys::signal::kill(child, Signal::SIGKILL);
        let _ = waitpid(child, None);
    }
    let [once, twice] = counted?;
    Ok((twice - once) as f64 / TURNS as f64)
}

/// Counts instructions between the child's first and second stop, and between its third and fourth.
fn count(child: Pid) -> Result<[u64; 2], Failure> {
    let mut counts = [0; 2];
    for (pair, steps) in counts.iter_mut().enumerate() {
        if pair > 0 {
            ptrace::cont(child, None)?;
        }
        next_stop(child)?;
        loop {
            ptrace::step(child, None)?;
            match waitpid(child, None)? {
                WaitStatus::Stopped(_, Signal::SIGTRAP) => *steps += 1,
                WaitStatus::Stopped(_, Signal::SIGSTOP) => break,
                other => return Err(format!("the process that is counted ended: {other:?}").into()),
            }
        }
    }
    ptrace::detach(child, None)?;
    match waitpid(child, None)? {
        WaitStatus::Exited(_, 0) => Ok(counts),
        other => Err(format!("the process that is counted ended: {other:?}").into()),
    }
}

/// Resumes the child until it stops itself.
fn next_stop(child: Pid) -> Result<(), Failure> {
    loop {
        match waitpid(child, None)? {
            WaitStatus::Stopped(_, Signal::SIGSTOP) => return Ok(()),
            // Signals without meaning here, such as the end of one of its children.
            WaitStatus::Stopped(..) => ptrace::cont(child, None)?,
            other => return Err(format!("the process that is counted ended: {other:?}").into()),
        }
    }
}
