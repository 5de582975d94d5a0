//! The target's part: starts the program, hands it jobs, and takes the results. Never waits for the program.

use std::collections::{HashMap, VecDeque};
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use farjump_core::cpu::Cpu;
use farjump_core::image::CodeId;
use farjump_os::limits;
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType,
};

use crate::find::{self, NotFound, Program};
use crate::protocol::{self, Fault, Job, MAX_PACKET, Reply, Tier, Times};

/// Time for which the program may be silent, besides the limit of a job.
const SILENCE: Duration = Duration::from_secs(30);
/// Time after which the target restarts a program that could not compile.
const AGAIN: Duration = Duration::from_secs(10);
/// Most jobs that wait or are under way.
pub const MAX_JOBS: usize = 256;
/// Most bytes of bitcode that wait or are compiled.
pub const MAX_BYTES: usize = 64 << 20;
/// Time for the program to end by itself.
const END: Duration = Duration::from_millis(500);

/// Choices of a compiler.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Options {
    /// The program. `None`: the one in `FARJUMP_COMPILER`; otherwise `farjump_compiler` beside the running
    /// program, or in `../libexec/farjump` from the folder of the library or program that farjump is in. A
    /// program that was not named runs only under two conditions: it and its folder belong to root, this user
    /// or the owner of that library, and no other user can write them.
    pub program: Option<PathBuf>,
    /// The library of LLVM. `None`: the one in `FARJUMP_LIBLLVM`; otherwise the newest that the dynamic linker finds, and
    /// if `RUSTC` names a compiler of Rust, that of its toolchain.
    pub llvm: Option<PathBuf>,
    /// A folder of this user alone, which keeps images for later runs. `None`: images are kept in memory
    /// alone.
    pub cache: Option<PathBuf>,
    /// Time limit of a job.
    pub deadline: Duration,
    /// Memory limit of a job, in bytes, besides the memory that LLVM takes before it.
    pub memory: u64,
}

impl Default for Options {
    /// 10 seconds and 1 GiB for a job.
    fn default() -> Self {
        Options { program: None, llvm: None, cache: None, deadline: Duration::from_secs(10), memory: 1 << 30 }
    }
}

/// The result of a job.
#[derive(Debug)]
pub struct Done {
    /// Number of the job.
    pub number: u64,
    /// The image, or the reason why there is none.
    pub result: Result<Compiled, Failed>,
}

/// The reason why a job has failed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Failed {
    /// The kind of fault.
    pub fault: Fault,
    /// The reason: a clause.
    pub text: String,
}

impl Failed {
    fn once(text: String) -> Failed {
        Failed { fault: Fault::Means, text }
    }
}

/// An image that was compiled.
#[derive(Debug)]
pub struct Compiled {
    /// Bytes of the image, which nothing has checked.
    pub image: Vec<u8>,
    /// Whether the image is optimised.
    pub optimised: bool,
    /// True if the image was kept from an earlier job.
    pub kept: bool,
    /// Durations of the job's steps.
    pub times: Times,
}

/// A compiler. The program is started for the first job, and ends with this value.
#[derive(Debug)]
pub struct Compiler {
    options: Options,
    running: Option<Running>,
    /// The time and the reason of the program's failure to compile.
    unable: Option<(Instant, String)>,
    /// The LLVM of the program, once it was started.
    llvm: Option<(u16, String)>,
    next: u64,
    /// Number of starts of the program.
    starts: u64,
    /// The process that made this value.
    process: u32,
}

#[derive(Debug)]
struct Running {
    child: Child,
    socket: OwnedFd,
    /// Bytes of the bitcode of jobs that have not ended, by their numbers.
    jobs: HashMap<u64, usize>,
    unsent: VecDeque<(Vec<u8>, OwnedFd)>,
    /// The time of the program's last message, or at which it last had nothing to do.
    heard: Instant,
}

impl Compiler {
    /// Makes a compiler, and starts nothing.
    pub fn new(options: Options) -> Compiler {
        Compiler {
            options,
            running: None,
            unable: None,
            llvm: None,
            next: 0,
            starts: 0,
            process: std::process::id(),
        }
    }

    /// The choices of this compiler.
    pub fn options(&self) -> &Options {
        &self.options
    }

    /// The program that is started.
    ///
    /// # Errors
    /// There is no program, or other users could have put it there.
    pub fn program(&self) -> Result<Program, NotFound> {
        find::program(self.options.program.as_deref())
    }

    /// The LLVM of its program, major version and text; `None` before the first job.
    pub fn llvm(&self) -> Option<(u16, &str)> {
        self.llvm.as_ref().map(|(major, text)| (*major, &**text))
    }

    /// Process id of the program; `None` while it does not run.
    pub fn process_id(&self) -> Option<u32> {
        self.running.as_ref().map(|running| running.child.id())
    }

    /// Number of jobs that have not ended.
    pub fn jobs(&self) -> usize {
        self.running.as_ref().map_or(0, |running| running.jobs.len())
    }

    /// Starts the program, and waits until it takes jobs, for `limit` at most. Without this the first job starts it.
    ///
    /// # Errors
    /// The reason why the program cannot compile: a clause.
    pub fn start(&mut self, limit: Duration) -> Result<(), String> {
        let begun = Instant::now();
        self.run()?;
        while self.llvm.is_none() {
            let left = limit.checked_sub(begun.elapsed()).and_then(|left| left.try_into().ok());
            let Some(left) = left else { return Err(format!("the compiler was not ready within {limit:?}")) };
            if let Some(running) = &self.running {
                let mut fds = [rustix::event::PollFd::new(&running.socket, rustix::event::PollFlags::IN)];
                let _ = rustix::event::poll(&mut fds, Some(&left));
            }
            self.poll();
            if self.running.is_none() {
                let why = self.unable.as_ref().map(|(_, why)| why.clone());
                return Err(why.unwrap_or_else(|| "the compiler ended at once".to_owned()));
            }
        }
        Ok(())
    }

    /// Begins a job, and returns its number. Its result comes from [`Compiler::poll`].
    ///
    /// # Errors
    /// The reason why the job is not begun: a clause.
    pub fn submit(&mut self, tier: Tier, id: CodeId, cpu: &Cpu, bitcode: &[u8]) -> Result<u64, String> {
        if let Some((when, why)) = &self.unable {
            if when.elapsed() < AGAIN {
                return Err(why.clone());
            }
            self.unable = None;
        }
        self.run()?;
        let Some(running) = &mut self.running else { return Err("the compiler is gone".to_owned()) };
        let bytes: usize = running.jobs.values().sum();
        if running.jobs.len() >= MAX_JOBS || bytes.saturating_add(bitcode.len()) > MAX_BYTES {
            return Err(format!(
                "the compiler has enough to do: {} jobs with {bytes} bytes of bitcode wait; try again later",
                running.jobs.len()
            ));
        }
        let Options { deadline, memory, .. } = self.options;
        let number = self.next;
        let job = Job { number, tier, id, cpu: cpu.clone(), deadline, memory };
        let contents =
            protocol::seal(bitcode).map_err(|error| format!("no memory for its bitcode: {error}"))?;
        self.next += 1;
        if running.jobs.is_empty() {
            running.heard = Instant::now();
        }
        running.jobs.insert(number, bitcode.len());
        running.unsent.push_back((job.encode(), contents));
        // An error shows when the end of the connection is read.
        running.send();
        Ok(number)
    }

    fn run(&mut self) -> Result<(), String> {
        if self.running.is_none() {
            self.running = Some(start(&self.options)?);
            self.starts += 1;
        }
        Ok(())
    }

    /// Takes the results that have come. Costs a system call if jobs are under way, and nothing otherwise.
    pub fn poll(&mut self) -> Vec<Done> {
        let mut done = Vec::new();
        let Some(running) = &mut self.running else { return done };
        running.send();
        let why = loop {
            match running.recv() {
                Ok(None) => break None,
                Ok(Some((Reply::Ready { llvm, text }, _))) => self.llvm = Some((llvm, text)),
                Ok(Some((Reply::Unable(text), _))) => {
                    self.unable = Some((Instant::now(), text.clone()));
                    break Some(text);
                }
                Ok(Some((Reply::Refused { number, fault, text }, _))) => {
                    running.jobs.remove(&number);
                    done.push(Done { number, result: Err(Failed { fault, text }) });
                }
                Ok(Some((Reply::Image { number, optimised, kept, times }, contents))) => {
                    running.jobs.remove(&number);
                    let image = contents.ok_or_else(|| "the compiler sent no image".to_owned());
                    let image = image.and_then(|fd| protocol::unseal(fd).map_err(|error| error.to_string()));
                    let image = image.map_err(Failed::once);
                    let result = image.map(|image| Compiled { image, optimised, kept, times });
                    done.push(Done { number, result });
                }
                Err(why) => break Some(why),
            }
        };
        let limit = self.options.deadline.saturating_add(SILENCE);
        let is_silent = !running.jobs.is_empty() && running.heard.elapsed() > limit;
        let why = why.or_else(|| is_silent.then(|| format!("the compiler did nothing for {limit:?}")));
        if let Some(why) = why {
            if !running.jobs.is_empty() {
                log::warn!("the compiler of bitcode has ended: {why}");
            }
            let failed = |number: &u64| Done { number: *number, result: Err(Failed::once(why.clone())) };
            let failed = running.jobs.keys().map(failed);
            done.extend(failed);
            self.running = None;
        }
        done
    }

    /// The descriptor that becomes readable when results are here, and its number among the descriptors that
    /// this compiler had: a restarted program has another one. `None` while no program runs.
    pub fn descriptor(&self) -> Option<(BorrowedFd<'_>, u64)> {
        self.running.as_ref().map(|running| (running.socket.as_fd(), self.starts))
    }
}

impl Drop for Compiler {
    fn drop(&mut self) {
        // A forked child has a copy of its parent's value.
        if self.process != std::process::id()
            && let Some(running) = self.running.take()
        {
            std::mem::forget(running);
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // The shutdown is the sign for the program to end.
        let _ = rustix::net::shutdown(&self.socket, rustix::net::Shutdown::Both);
        let begun = Instant::now();
        while begun.elapsed() < END {
            if !matches!(self.child.try_wait(), Ok(None)) {
                return;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// Starts the program.
fn start(options: &Options) -> Result<Running, String> {
    let program = find::program(options.program.as_deref()).map_err(|error| error.to_string())?;
    let socket =
        || rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None);
    let (own, other) = socket().map_err(|error| format!("no socket for the compiler: {error}"))?;
    let mut command = program.command();
    // It runs in another folder. The dynamic linker finds a library with a bare name.
    let from_here = |path: &Path| std::path::absolute(path).unwrap_or_else(|_| path.to_path_buf());
    if let Some(llvm) = &options.llvm {
        let is_bare = llvm.components().count() == 1;
        command.arg("--llvm").arg(if is_bare { llvm.clone() } else { from_here(llvm) });
    }
    if let Some(cache) = &options.cache {
        command.arg("--cache").arg(from_here(cache));
    }
    let named = |error: io::Error| {
        let advice = limits::behind_program(&error, "Install it with the version of farjump in use");
        format!("the compiler `{}` does not start: {error}{advice}", program.path().display())
    };
    command.stdin(Stdio::from(other)).stdout(Stdio::null()).stderr(Stdio::null()).current_dir("/");
    let child = command.spawn().map_err(named)?;
    log::debug!("started {} for bitcode, process {}", program.path().display(), child.id());
    Ok(Running { child, socket: own, jobs: HashMap::new(), unsent: VecDeque::new(), heard: Instant::now() })
}

impl Running {
    /// Sends jobs as far as the socket takes them.
    fn send(&mut self) {
        while let Some((packet, contents)) = self.unsent.front() {
            let fds = [contents.as_fd()];
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
            let mut ancillary = SendAncillaryBuffer::new(&mut space);
            ancillary.push(SendAncillaryMessage::ScmRights(&fds));
            let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
            match rustix::net::sendmsg(&self.socket, &[IoSlice::new(packet)], &mut ancillary, flags) {
                Ok(_) => drop(self.unsent.pop_front()),
                Err(Errno::INTR) => {}
                // The rest is sent later, or never: then the end of the connection is read.
                Err(_) => return,
            }
        }
    }

    /// Takes a message and the contents beside it; an error is the reason why there are no more.
    fn recv(&mut self) -> Result<Option<(Reply, Option<OwnedFd>)>, String> {
        let mut packet = [0; MAX_PACKET];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
        let mut slices = [IoSliceMut::new(&mut packet)];
        let len = match rustix::net::recvmsg(&self.socket, &mut slices, &mut ancillary, flags) {
            Ok(received) if received.bytes != 0 => received.bytes,
            Ok(_) => return Err(self.end()),
            Err(Errno::AGAIN | Errno::INTR) => return Ok(None),
            Err(error) => return Err(format!("the compiler is gone: {error}")),
        };
        let fds = ancillary.drain().filter_map(|message| match message {
            RecvAncillaryMessage::ScmRights(fds) => Some(fds),
            _ => None,
        });
        let contents = fds.flatten().last();
        self.heard = Instant::now();
        let other = || "the compiler is of another version of farjump: install both from one".to_owned();
        Ok(Some((Reply::decode(&packet[..len]).ok_or_else(other)?, contents)))
    }

    /// Describes the end of the program, whose end of the socket is closed.
    fn end(&mut self) -> String {
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_millis(20) {
            match self.child.try_wait() {
                Ok(Some(status)) => return format!("the compiler ended with {status}"),
                Ok(None) => std::thread::sleep(Duration::from_millis(1)),
                Err(error) => return format!("the compiler ended: {error}"),
            }
        }
        "the compiler closed its connection".to_owned()
    }
}
