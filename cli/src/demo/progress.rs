//! The progress of the demo, on standard error if that is a terminal.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

use farjump_cli::program::failure::Failure;
use farjump_cli::program::output;

/// Interval between two turns of the sign of activity.
const TURN: Duration = Duration::from_millis(100);

/// The line that shows the step under way.
pub(super) struct Progress(ProgressBar);

impl Progress {
    pub(super) fn new() -> Progress {
        Progress(ProgressBar::new_spinner())
    }

    /// Begins a step of unknown length.
    pub(super) fn step(&self, text: impl Into<String>) {
        self.style("{spinner} {msg} {elapsed}");
        self.0.unset_length();
        self.begin(text.into());
        self.0.enable_steady_tick(TURN);
    }

    /// Begins a step over this number of bytes.
    pub(super) fn bytes(&self, text: impl Into<String>, bytes: u64) {
        self.0.disable_steady_tick();
        self.style("{bar:30} {bytes}/{total_bytes} {bytes_per_sec}  {msg}");
        self.0.set_length(bytes);
        self.begin(text.into());
    }

    /// Adds bytes to those that the step has done.
    pub(super) fn advance(&self, bytes: u64) {
        self.0.inc(bytes);
    }

    /// Prints text to standard output, above the line.
    pub(super) fn print(&self, text: impl AsRef<[u8]>) -> Result<(), Failure> {
        self.0.suspend(|| output::print(text))
    }

    fn begin(&self, text: String) {
        self.0.reset();
        self.0.set_message(text);
    }

    fn style(&self, template: &str) {
        // The templates above are valid.
        if let Ok(style) = ProgressStyle::with_template(template) {
            self.0.set_style(style);
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}
