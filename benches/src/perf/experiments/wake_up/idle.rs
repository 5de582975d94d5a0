//! The cost of idle targets. All of them sleep at the same time.

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use super::source::Waker;
use crate::perf::machine::clock;
use crate::perf::report::key::Key;
use crate::perf::report::progress::check_signals;
use crate::perf::report::statistics::Round;
use crate::program::failure::Failure;

/// Default numbers of sources.
pub(super) const USUAL: [usize; 2] = [1, 64];
/// Time between two looks for an interruption.
const LOOK: Duration = Duration::from_millis(200);
/// Time for them to fall asleep.
const SETTLE: Duration = Duration::from_millis(50);

#[derive(Clone, Copy, Debug)]
struct Taken {
    /// Processor time in nanoseconds.
    cpu: u64,
    /// Number of times that its first thread went to sleep.
    sleeps: u64,
}

impl Taken {
    fn by(pid: u32) -> Result<Taken, Failure> {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        let sleeps = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
        let sleeps = sleeps.and_then(|number| number.trim().parse().ok());
        let sleeps =
            sleeps.ok_or_else(|| Failure::new("how often a process sleeps cannot be read in /proc"))?;
        Ok(Taken { cpu: clock::of_process(pid)?, sleeps })
    }
}

/// Lets this time pass.
///
/// # Errors
/// A signal has interrupted the run.
fn pass(time: Duration) -> Result<(), Failure> {
    let end = Instant::now() + time;
    while let Some(rest) = end.checked_duration_since(Instant::now()) {
        check_signals()?;
        thread::sleep(rest.min(LOOK));
    }
    Ok(())
}

/// Leaves all of these alone for so many seconds. Returns the round of each.
pub(crate) fn leave_alone(wakers: &[&Waker<'_>], seconds: u32) -> Result<Vec<Round>, Failure> {
    thread::sleep(SETTLE);
    let look = || wakers.iter().map(|waker| Taken::by(waker.pair.pid())).collect::<Result<Vec<_>, _>>();
    let (before, since) = (look()?, Instant::now());
    pass(Duration::from_secs(seconds.into()))?;
    let (after, seconds) = (look()?, since.elapsed().as_secs_f64());
    // The statistics of a process that is gone can be read as well.
    wakers.iter().try_for_each(|waker| waker.pair.rest(|_, watch| watch.still_there()))?;
    let round = |(before, after): (&Taken, &Taken)| {
        let sleeps = (after.sleeps - before.sleeps) as f64 / seconds;
        Round::of((after.cpu - before.cpu) as f64 / 1e6 / seconds).with([(Key::Sleeps, sleeps)])
    };
    Ok(before.iter().zip(&after).map(round).collect())
}
