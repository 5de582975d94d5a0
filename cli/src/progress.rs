//! The progress of a command that moves bytes, on standard error if that is a terminal.

use std::io::{self, IsTerminal, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use farjump_benches::program::output;
use farjump_benches::program::units::{show_count, show_duration};

/// Time after which a command counts as long. Shorter ones show nothing.
const LONG: Duration = Duration::from_secs(1);
/// Interval between two lines.
const TURN: Duration = Duration::from_millis(200);
/// Most bytes that are written or read at a time.
pub(crate) const PART: usize = 4 << 20;
/// Clears the line of a terminal.
const CLEAR: &str = "\r\x1b[K";

/// The line of a command under way, and its end line.
pub(crate) struct Progress {
    start: Instant,
    done: Arc<AtomicU64>,
    /// The thread that shows the line, and the channel whose end ends it. `None` without a terminal.
    shown: Option<(Sender<()>, JoinHandle<()>)>,
}

impl Progress {
    /// Shows `doing` and the bytes done, once the command takes long. `total` is `None` while it is not known.
    pub(crate) fn begin(doing: &str, total: Option<u64>) -> Progress {
        let (start, done) = (Instant::now(), Arc::new(AtomicU64::new(0)));
        let shown = io::stderr().is_terminal().then(|| {
            let (sender, receiver) = mpsc::channel::<()>();
            let (doing, counter) = (doing.to_owned(), done.clone());
            let show = move || {
                let mut wait = LONG;
                while receiver.recv_timeout(wait) == Err(RecvTimeoutError::Timeout) {
                    wait = TURN;
                    let of = total.map_or(String::new(), |total| format!(" of {}", show_count(total)));
                    let (done, elapsed) =
                        (show_count(counter.load(Ordering::Relaxed)), start.elapsed().as_secs());
                    // A terminal that cannot be written shows nothing.
                    let _ = write!(io::stderr().lock(), "{CLEAR}{doing}: {done}{of} B, {elapsed} s");
                }
            };
            let thread = std::thread::Builder::new().name("farjump-progress".into()).spawn(show).ok()?;
            Some((sender, thread))
        });
        Progress { start, done, shown: shown.flatten() }
    }

    /// More bytes are done.
    pub(crate) fn advance(&self, bytes: usize) {
        self.done.fetch_add(bytes as u64, Ordering::Relaxed);
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
        // It does not panic.
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
