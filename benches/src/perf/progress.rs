//! The progress of a run, shown on a terminal, and what an interruption leaves out.

use std::sync::{Mutex, PoisonError};

use indicatif::{ProgressBar, ProgressStyle};

use crate::program::signals;

/// The bar of the run under way.
static BAR: Mutex<Option<ProgressBar>> = Mutex::new(None);

/// Returns a bar with this number of steps, which shows the time that is left. A run that is interrupted says how many
/// of them it left out.
pub(super) fn progress(steps: usize) -> ProgressBar {
    let bar = ProgressBar::new(steps as u64);
    if let Ok(style) = ProgressStyle::with_template("{bar:40} {pos}/{len}, {eta} left  {msg}") {
        bar.set_style(style);
    }
    *BAR.lock().unwrap_or_else(PoisonError::into_inner) = Some(bar.clone());
    signals::say_at_end(left_out);
    bar
}

/// Returns what an interruption leaves out; `None` if the run has made all measurements.
fn left_out() -> Option<String> {
    let bar = BAR.lock().unwrap_or_else(PoisonError::into_inner).take()?;
    // The bar counts a measurement when it begins.
    let (made, all) = (bar.position().saturating_sub(1), bar.length()?);
    let step = bar.message();
    if bar.is_finished() {
        return None;
    }
    bar.finish_and_clear();
    let during = if step.is_empty() { String::new() } else { format!(" ({step})") };
    Some(format!("interrupted{during}: {made} of {all} measurements were made, {} are left out", all - made))
}
