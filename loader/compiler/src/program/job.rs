//! A job: a forked child that compiles, and a pipe from it.

use std::ffi::{CStr, c_char};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::{Duration, Instant};

use farjump_core::bitcode::BitcodeView;
use rustix::pipe::PipeFlags;

use super::compile::{self, Made, Refusal};
use super::limits;
use super::llvm::Llvm;
use crate::protocol::{Fault, Job, MAX_CONTENTS, Times};

/// First byte of a child's output: an image follows, or the fault and the reason.
const IMAGE: u8 = 1;
const REFUSED: u8 = 2;
/// Bytes before the image: the kind, a byte that is 1 for an optimised image, and the times.
const HEAD: usize = 2 + 16;

/// A child at work.
pub(super) struct Working {
    pub(super) job: Job,
    child: libc::pid_t,
    pipe: File,
    said: Vec<u8>,
    begun: Instant,
}

/// The image that a child has made.
pub(super) struct Result {
    pub(super) optimised: bool,
    pub(super) times: Times,
    pub(super) image: Vec<u8>,
}

/// The pipe of a child, for LLVM's fatal errors.
static PIPE: AtomicI32 = AtomicI32::new(-1);

impl Working {
    /// Forks a child that does `job`.
    ///
    /// # Errors
    /// The system's.
    pub(super) fn begin(llvm: &Llvm, job: Job, bitcode: &[u8]) -> io::Result<Working> {
        let (read, write) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC)?;
        rustix::fs::fcntl_setfl(&read, rustix::fs::OFlags::NONBLOCK)?;
        let begun = Instant::now();
        // SAFETY: this program has one thread, so that the child may do all that this process may.
        match unsafe { libc::fork() } {
            -1 => Err(io::Error::last_os_error()),
            0 => work(llvm, &job, bitcode, write, begun),
            child => Ok(Working { job, child, pipe: File::from(read), said: Vec::new(), begun }),
        }
    }

    /// The pipe from the child.
    pub(super) fn as_fd(&self) -> BorrowedFd<'_> {
        self.pipe.as_fd()
    }

    /// The time left for the job.
    pub(super) fn left(&self) -> Duration {
        self.job.deadline.saturating_sub(self.begun.elapsed())
    }

    /// Reads the child's output so far. Returns `true` if that is all, or too much.
    pub(super) fn read(&mut self) -> bool {
        let mut part = [0; 64 << 10];
        loop {
            match self.pipe.read(&mut part) {
                Ok(0) => return true,
                Ok(len) => self.said.extend_from_slice(&part[..len]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return false,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return true,
            }
            if self.said.len() > MAX_CONTENTS {
                return true;
            }
        }
    }

    /// Ends the child, and returns its image, or the reason why there is none.
    pub(super) fn end(self) -> std::result::Result<Result, Refusal> {
        let is_late = self.left().is_zero();
        let status = self.kill();
        let exited = libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0;
        let means = |text| Err(Refusal { fault: Fault::Means, text });
        if let Some((&[REFUSED, fault], text)) = self.said.split_first_chunk() {
            let text = String::from_utf8_lossy(&text[..text.len().min(4096)]).into_owned();
            return Err(Refusal { fault: Fault::decode(fault).unwrap_or(Fault::Code), text });
        }
        match self.said.split_first_chunk::<HEAD>() {
            Some((&[IMAGE, optimised, ref times @ ..], image)) if exited && !image.is_empty() => {
                Ok(Result { optimised: optimised != 0, times: Times::decode(*times), image: image.to_vec() })
            }
            _ if is_late => means(format!("compiling it took longer than {:?}", self.job.deadline)),
            _ if libc::WIFSIGNALED(status) => {
                let signal = libc::WTERMSIG(status);
                let text = format!(
                    "the compiler crashed over it ({}): it is damaged, or needs more than {} MiB of memory",
                    signal_name(signal),
                    self.job.memory >> 20
                );
                let fault = if signal == libc::SIGKILL { Fault::Means } else { Fault::Code };
                Err(Refusal { fault, text })
            }
            _ => means("the compiler ended without a word".to_owned()),
        }
    }

    /// Kills the child if it still runs, and returns its status.
    fn kill(&self) -> i32 {
        let mut status = 0;
        // SAFETY: `self.child` is a child of this process that nothing has waited for.
        unsafe {
            // A child that is done has closed its pipe, a moment before it ends.
            if !self.said_all() {
                libc::kill(self.child, libc::SIGKILL);
            }
            while libc::waitpid(self.child, &raw mut status, 0) == -1
                && io::Error::last_os_error().kind() == io::ErrorKind::Interrupted
            {}
        }
        status
    }

    /// Returns whether the child's end of the pipe is closed, as it is only when the child ends.
    fn said_all(&self) -> bool {
        let mut part = [0; 1];
        self.said.len() <= MAX_CONTENTS && matches!((&self.pipe).read(&mut part), Ok(0))
    }
}

fn signal_name(signal: i32) -> String {
    match signal {
        libc::SIGSEGV => "SIGSEGV".to_owned(),
        libc::SIGABRT => "SIGABRT".to_owned(),
        libc::SIGBUS => "SIGBUS".to_owned(),
        libc::SIGILL => "SIGILL".to_owned(),
        libc::SIGXCPU => "SIGXCPU".to_owned(),
        libc::SIGKILL => "SIGKILL".to_owned(),
        other => format!("signal {other}"),
    }
}

/// The child: compiles, writes the result, and ends.
fn work(llvm: &Llvm, job: &Job, bitcode: &[u8], pipe: OwnedFd, begun: Instant) -> ! {
    use std::os::fd::AsRawFd;
    PIPE.store(pipe.as_raw_fd(), Ordering::Relaxed);
    compile::on_fatal_error(llvm, fatal);
    // A panic is a defect of this program. It ends the job, and must not return the child into the server.
    let mut fork = Duration::ZERO;
    let made = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        // SAFETY: this is a forked child, and uses the pipe alone from here on.
        let confined =
            unsafe { limits::confine(pipe.as_fd(), job.memory, job.deadline.as_secs().saturating_add(1)) };
        confined.map_err(|text| Refusal { fault: Fault::Means, text })?;
        fork = begun.elapsed();
        let view = BitcodeView::new_checked(bitcode).map_err(|error| error.to_string())?;
        compile::compile(llvm, &view, &job.cpu, job.tier)
    }));
    let written = match made {
        Ok(Ok(Made { linked, optimised, mut times })) => {
            times.fork = fork;
            let head = [&[IMAGE, optimised.into()][..], &times.encode()].concat();
            let mut pipe = File::from(pipe);
            pipe.write_all(&head).and_then(|()| pipe.write_all(&linked.image)).is_ok()
        }
        Ok(Err(Refusal { fault, text })) => refuse(fault, &text),
        Err(_) => refuse(Fault::Code, "the compiler panicked over it"),
    };
    // SAFETY: nothing of the parent has to be flushed or released here.
    unsafe { libc::_exit(i32::from(!written)) }
}

/// Writes a refusal.
fn refuse(fault: Fault, why: &str) -> bool {
    let pipe: RawFd = PIPE.load(Ordering::Relaxed);
    // SAFETY: the child's pipe is open until it ends; the file is not closed here.
    let mut pipe = std::mem::ManuallyDrop::new(unsafe { File::from_raw_fd(pipe) });
    pipe.write_all(&[&[REFUSED, fault.encode()], why.as_bytes()].concat()).is_ok()
}

/// Called for an error over which LLVM would end the process.
extern "C" fn fatal(why: *const c_char) {
    // SAFETY: LLVM passes a string.
    let why = unsafe { CStr::from_ptr(why) };
    refuse(Fault::Code, &format!("LLVM gives up over it: {}", why.to_string_lossy()));
    // SAFETY: as in `work`.
    unsafe { libc::_exit(1) }
}
