//! The progress of a run, shown on a terminal, and the measurements that an interruption leaves out.

use std::fmt::Write;
use std::sync::{Mutex, PoisonError};

use indicatif::{HumanDuration, ProgressBar, ProgressState, ProgressStyle};

use crate::program::failure::Failure;
use crate::program::signals;

/// The bar of the run under way.
static BAR: Mutex<Option<ProgressBar>> = Mutex::new(None);

/// Returns a bar with this number of steps, to be counted as they end. It shows the time that is left. An interrupted
/// run reports the number of steps that it left out.
pub(in crate::perf) fn progress(steps: usize) -> ProgressBar {
    let bar = ProgressBar::new(steps as u64);
    if let Ok(style) = ProgressStyle::with_template("{bar:20} {pos}/{len}{left}  {msg}") {
        bar.set_style(style.with_key("left", show_left));
    }
    *BAR.lock().unwrap_or_else(PoisonError::into_inner) = Some(bar.clone());
    signals::say_at_end(left_out);
    bar
}

/// Shows the time that the steps left take, if each takes as long as the ones made did on average.
fn show_left(state: &ProgressState, out: &mut dyn Write) {
    let (Some(all), made @ 1..) = (state.len(), state.pos()) else { return };
    let left = state.elapsed().mul_f64(all.saturating_sub(made) as f64 / made as f64);
    // A terminal that cannot be written shows nothing.
    let _ = write!(out, ", about {} left", HumanDuration(left));
}

/// # Errors
/// A signal has interrupted the run.
pub(in crate::perf) fn check_signals() -> Result<(), Failure> {
    match signals::is_interrupted() {
        true => Err(Failure::new("the run was interrupted")),
        false => Ok(()),
    }
}

/// Returns the measurements that an interruption leaves out; `None` if the run has made all.
fn left_out() -> Option<String> {
    let bar = BAR.lock().unwrap_or_else(PoisonError::into_inner).take()?;
    let (made, all) = (bar.position(), bar.length()?);
    let step = bar.message();
    if bar.is_finished() {
        return None;
    }
    bar.finish_and_clear();
    let during = if step.is_empty() { String::new() } else { format!(" ({step})") };
    Some(format!("interrupted{during}: {made} of {all} measurements were made, {} are left out", all - made))
}
