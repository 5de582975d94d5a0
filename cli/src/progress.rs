//! The progress of a command that moves bytes, on standard error if that is a terminal.

use std::io::{self, IsTerminal, Write};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use farjump_cli::program::output;
use farjump_cli::program::units::{show_count, show_duration};

/// Time after which a command counts as long. Shorter ones show nothing.
const LONG: Duration = Duration::from_secs(1);
/// Interval between two lines.
const TURN: Duration = Duration::from_millis(200);
/// Most bytes that are written or read at a time.
pub(crate) const PART: usize = 4 << 20;
/// Clears the line of a terminal.
const CLEAR: &str = "\r\x1b[K";

/// A step of a command.
#[derive(Clone, Copy)]
pub(crate) struct Step {
    doing: &'static str,
    /// Bytes done, and all of them if that is known. `None` where none are reported before the step ends.
    bytes: Option<(u64, Option<u64>)>,
}

impl Step {
    /// Returns a step that reports its bytes by [`Progress::advance`]. `total` is `None` while it is not known.
    pub(crate) fn counted(doing: &'static str, total: Option<u64>) -> Step {
        Step { doing, bytes: Some((0, total)) }
    }

    /// Returns a step that reports no bytes.
    pub(crate) fn uncounted(doing: &'static str) -> Step {
        Step { doing, bytes: None }
    }

    fn line(&self, elapsed: Duration) -> String {
        let bytes = self.bytes.map_or(String::new(), |(done, total)| {
            let of = total.map_or(String::new(), |total| format!(" of {}", show_count(total)));
            format!("{}{of} B, ", show_count(done))
        });
        format!("{}: {bytes}{} s", self.doing, elapsed.as_secs())
    }
}

/// The line of a command under way, and its end line.
pub(crate) struct Progress {
    start: Instant,
    step: Arc<Mutex<Step>>,
    /// The thread that shows the line, and the channel that ends the thread when it closes. `None` without a terminal.
    shown: Option<(Sender<()>, JoinHandle<()>)>,
}

impl Progress {
    /// Shows the step under way, once the command takes long. `first` is the first one.
    pub(crate) fn begin(first: Step) -> Progress {
        let (start, step) = (Instant::now(), Arc::new(Mutex::new(first)));
        let shown = io::stderr().is_terminal().then(|| {
            let (sender, receiver) = mpsc::channel::<()>();
            let step = step.clone();
            let show = move || {
                let mut wait = LONG;
                while receiver.recv_timeout(wait) == Err(RecvTimeoutError::Timeout) {
                    wait = TURN;
                    let step = *step.lock().unwrap_or_else(PoisonError::into_inner);
                    // A terminal that cannot be written shows nothing.
                    let _ = write!(io::stderr().lock(), "{CLEAR}{}", step.line(start.elapsed()));
                }
            };
            let thread = std::thread::Builder::new().name("farjump-progress".into()).spawn(show).ok()?;
            Some((sender, thread))
        });
        Progress { start, step, shown: shown.flatten() }
    }

    /// Begins another step.
    pub(crate) fn begin_step(&self, next: Step) {
        *self.step.lock().unwrap_or_else(PoisonError::into_inner) = next;
    }

    /// Adds bytes to those that a counted step has done.
    pub(crate) fn advance(&self, bytes: usize) {
        let mut step = self.step.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((done, _)) = &mut step.bytes {
            *done += bytes as u64;
        }
    }

    /// Ends the line, and prints the end line of a long command: `did`, such as `put`, with bytes, time and rate.
    pub(crate) fn end(mut self, did: &str, bytes: u64) {
        let is_shown = self.hide();
        let elapsed = self.start.elapsed();
        if is_shown && elapsed >= LONG {
            let rate = show_count((bytes as f64 / elapsed.as_secs_f64() / 1e6) as u64);
            output::note(format_args!(
                "{did} {} B in {} ({rate} MB/s)",
                show_count(bytes),
                show_duration(elapsed)
            ));
        }
    }

    /// Ends the line. Returns whether there is a terminal for it.
    fn hide(&mut self) -> bool {
        let Some((sender, thread)) = self.shown.take() else { return false };
        drop(sender);
        // The thread does not panic.
        let _ = thread.join();
        if self.start.elapsed() >= LONG {
            let _ = write!(io::stderr().lock(), "{CLEAR}");
        }
        true
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.hide();
    }
}
