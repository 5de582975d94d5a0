//! The cost of idle targets. All of them sleep at the same time.

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use super::source::Waker;
use super::{Line, add_rows};
use crate::perf::clock;
use crate::perf::metric::Metric;
use crate::perf::progress::progress;
use crate::perf::report::Report;
use crate::perf::row::Row;
use crate::perf::setting::Setting;
use crate::perf::statistics::{Round, Series, median};
use crate::program::failure::Failure;

/// Default numbers of sources.
pub(super) const USUAL: [usize; 2] = [1, 64];
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

/// Leaves all of them alone for a while in each round.
pub(super) fn run(
    setting: &Setting<'_>,
    wakers: &[Waker<'_>],
    line: &mut Line,
    report: &mut Report,
) -> Result<(), Failure> {
    let options = setting.options;
    let bar = progress(options.rounds as usize);
    let mut series = Vec::new();
    for _ in wakers {
        series.push(Series::new()?);
    }
    let mut sleeps = vec![Vec::new(); wakers.len()];
    let measured = (1..=options.rounds).try_for_each(|round| {
        bar.set_message(format!("round {round}"));
        bar.inc(1);
        line.look(0, round, report)?;
        thread::sleep(SETTLE);
        let look = || wakers.iter().map(|waker| Taken::by(waker.pair.pid())).collect::<Result<Vec<_>, _>>();
        let (before, since) = (look()?, Instant::now());
        thread::sleep(Duration::from_secs(options.seconds.into()));
        let (after, seconds) = (look()?, since.elapsed().as_secs_f64());
        // The figures of a process that is gone can be read as well.
        wakers.iter().try_for_each(|waker| waker.pair.rest(|_, watch| watch.still_there()))?;
        for (number, (before, after)) in before.iter().zip(&after).enumerate() {
            if wakers[number].missing().is_none() {
                series[number].add(Round::of((after.cpu - before.cpu) as f64 / 1e6 / seconds));
                sleeps[number].push((after.sleeps - before.sleeps) as f64 / seconds);
            }
        }
        Ok(())
    });
    bar.finish_and_clear();
    let state = line.state();
    add_rows(wakers, &series, report, |number, row| Row {
        metric: Metric::Idle.name(),
        unit: Metric::Idle.unit(),
        size: 0,
        iterations: 0,
        state,
        sleeps: median(&sleeps[number]),
        ring: Some(options.ring()),
        ..row
    });
    measured
}
