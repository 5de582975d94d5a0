//! The signals that end a command, and the thread that waits for them.

use std::io::{self, Read};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::time::{Duration, Instant};

use farjump::{Stopper, end_process};
use farjump_os::limits;
use nix::sys::signal::{SigSet, Signal};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use signal_hook::low_level::pipe;

use crate::program::failure::Failure;
use crate::program::procfs;

/// Time between two looks for signals where the process cannot sleep until one comes.
const LOOK: Duration = Duration::from_millis(20);

/// SIGINT, SIGTERM and SIGHUP, caught: each delivery counts, also of one signal twice in a row. (Of signals that
/// are sent before the process gets to run, the system delivers one.) SIGHUP is left alone where it was ignored,
/// as by nohup(1).
#[derive(Debug)]
pub struct EndSignals {
    /// Each signal, and the stream that gets a byte for each delivery.
    streams: Vec<(i32, UnixStream)>,
}

impl EndSignals {
    /// Catches the signals from now on. The process has no other thread.
    ///
    /// # Errors
    /// The system has no descriptors left.
    pub fn catch() -> io::Result<EndSignals> {
        let mut signals = vec![Signal::SIGINT, Signal::SIGTERM];
        if !is_ignored(Signal::SIGHUP) {
            signals.push(Signal::SIGHUP);
        }
        // Blocked meanwhile: a handler is there shortly before it knows its stream.
        let blocked: SigSet = signals.iter().copied().collect();
        blocked.thread_block()?;
        let streams = signals.into_iter().map(|signal| {
            let (stream, of_handler) = UnixStream::pair()?;
            pipe::register(signal as i32, of_handler)?;
            Ok((signal as i32, stream))
        });
        let streams = streams.collect::<io::Result<_>>();
        blocked.thread_unblock()?;
        Ok(EndSignals { streams: streams? })
    }

    /// Waits for the next signal and returns its number; `None` when `limit` has passed. Where the process may not call ppoll, it
    /// looks for signals from time to time.
    pub fn wait(&mut self, limit: Option<Duration>) -> Option<i32> {
        let deadline = limit.and_then(|limit| Instant::now().checked_add(limit));
        loop {
            let rest = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            // A limit that is too long for the system is none.
            let rest = rest.and_then(|rest| Timespec::try_from(rest).ok());
            let mut found: Vec<_> =
                self.streams.iter().map(|(_, stream)| PollFd::new(stream, PollFlags::IN)).collect();
            match poll(&mut found, rest.as_ref()) {
                Ok(0) => return None,
                Ok(_) => {}
                // The system lacks memory for a moment; the signals are kept.
                Err(Errno::INTR | Errno::NOMEM) => continue,
                // A filter of system calls denies it: no other error is possible for a valid list.
                Err(_) => return self.look_until(deadline),
            }
            let ready = found.iter().position(|one| !one.revents().is_empty());
            let Some((signal, stream)) = ready.map(|at| &mut self.streams[at]) else { continue };
            if stream.read(&mut [0]).is_ok() {
                return Some(*signal);
            }
        }
    }

    fn look_until(&mut self, deadline: Option<Instant>) -> Option<i32> {
        loop {
            for (signal, stream) in &mut self.streams {
                let _ = stream.set_nonblocking(true);
                if stream.read(&mut [0]).is_ok_and(|read| read != 0) {
                    return Some(*signal);
                }
            }
            if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                return None;
            }
            std::thread::sleep(LOOK);
        }
    }
}

/// Returns whether this process ignores a signal.
fn is_ignored(signal: Signal) -> bool {
    let status = procfs::read("/proc/self/status").unwrap_or_default();
    let ignored = procfs::field(&status, "SigIgn").and_then(|mask| u64::from_str_radix(mask, 16).ok());
    ignored.is_some_and(|mask| mask >> (signal as i32 - 1) & 1 == 1)
}

/// Returns the exit code of a command that `signal` ended.
pub fn exit_code(signal: i32) -> i32 {
    128 + signal
}

/// The last words of an interrupted command; `None` if it ends at once.
static LAST_WORDS: Mutex<Option<Words>> = Mutex::new(None);

/// Makes the words of a command that is interrupted; `None` if it ends at once.
pub type Words = fn() -> Option<String>;

/// The signal that interrupted the command; 0 for none.
static INTERRUPTED: AtomicI32 = AtomicI32::new(0);

/// Makes the command end by itself when a signal interrupts it, with [`end_interrupted`], after these words on standard
/// error.
pub fn say_at_end(words: Words) {
    *LAST_WORDS.lock().unwrap_or_else(PoisonError::into_inner) = Some(words);
}

/// Records that `signal` interrupts the command. Returns its words if it then ends by itself.
pub fn interrupt(signal: i32) -> Option<String> {
    let words = LAST_WORDS.lock().unwrap_or_else(PoisonError::into_inner).take()?;
    INTERRUPTED.store(signal, Ordering::Release);
    words()
}

/// Returns whether the command is to end by itself.
pub fn is_interrupted() -> bool {
    INTERRUPTED.load(Ordering::Acquire) != 0
}

/// Ends the process of a command that was interrupted.
pub fn end_interrupted() {
    match INTERRUPTED.load(Ordering::Acquire) {
        0 => {}
        signal => end_process(exit_code(signal)),
    }
}

/// Starts the thread that waits for signals, and waits until it does.
///
/// # Errors
/// Signals cannot be caught, or the thread not started.
pub fn watch(act: impl FnOnce(EndSignals) + Send + 'static) -> Result<(), Failure> {
    let signals = EndSignals::catch().map_err(|error| {
        let advice = limits::behind_call("socketpair, fcntl or rt_sigaction", &error);
        Failure::new(format!("cannot catch signals: {error}{advice}"))
    })?;
    let thread = std::thread::Builder::new().name("farjump-signals".into());
    // A thread that starts takes a lock of the dynamic linker, which a library's constructor may hold later.
    let (started, start) = mpsc::channel();
    let body = move || {
        drop(started);
        act(signals);
    };
    thread.spawn(body).map_err(|error| {
        let advice = limits::behind_thread(&error);
        Failure::new(format!("cannot start the thread that waits for signals: {error}{advice}"))
    })?;
    // The end of the channel is the message.
    let _: Result<(), _> = start.recv();
    Ok(())
}

/// The end of a target's process by signals, from this moment on.
///
/// Until [`TargetEnd::serves`], a signal ends the process at once. Then the first signal stops the target. A
/// second one, or a target that has not ended in time, ends the process. Its socket files are removed in each
/// case.
#[derive(Debug)]
pub struct TargetEnd(Arc<Mutex<Option<Stopper>>>);

impl TargetEnd {
    /// Catches the signals. `grace` is the time for a stopped target to end.
    ///
    /// # Errors
    /// As [`watch`].
    pub fn catch(grace: Duration) -> Result<TargetEnd, Failure> {
        let target = Arc::new(Mutex::new(None::<Stopper>));
        let end = TargetEnd(target.clone());
        watch(move |mut signals| {
            let Some(signal) = signals.wait(None) else { return };
            match &*target.lock().unwrap_or_else(PoisonError::into_inner) {
                Some(stopper) => stopper.stop(),
                // Under the lock: the target must not begin to serve.
                None => end_process(exit_code(signal)),
            }
            let second = signals.wait(Some(grace));
            end_process(exit_code(second.unwrap_or(signal)))
        })?;
        Ok(end)
    }

    /// Makes the first signal stop this target, from now on.
    pub fn serves(&self, target: Stopper) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(target);
    }
}
