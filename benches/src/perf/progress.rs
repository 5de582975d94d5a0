//! The progress of a run, shown on a terminal.

use indicatif::{ProgressBar, ProgressStyle};

/// Returns a bar with this number of steps.
pub(super) fn progress(steps: usize) -> ProgressBar {
    let bar = ProgressBar::new(steps as u64);
    if let Ok(style) = ProgressStyle::with_template("{bar:40} {pos}/{len}  {msg}") {
        bar.set_style(style);
    }
    bar
}
