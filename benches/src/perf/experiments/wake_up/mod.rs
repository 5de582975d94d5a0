//! `wake-up` and `idle`: sleeping targets, each in a process of its own on the target's processor, beside
//! sleepers on a futex and on UCX's active messages.
//!
//! By default the target waits as [`farjump::Target::run`] does.

mod idle;
mod sleeper;
mod source;

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::setting::Setting;
use crate::perf::machine::clock;
use crate::perf::options::ifuncs;
use crate::perf::report::metric::{Against, Metric};
use crate::perf::report::statistics::{Round, median};
use crate::program::bundled_ifuncs::Source;
use crate::program::failure::Failure;
pub(in crate::perf) use idle::leave_alone;
pub(in crate::perf) use sleeper::sleep;
pub(in crate::perf) use source::Waker;

/// Time for which it has slept, or been able to fall asleep, before it is woken.
const REST: Duration = Duration::from_millis(5);
/// Default number of calls in a round.
pub(in crate::perf) const USUAL_CALLS: u32 = 100;
/// Most calls before those that count.
const MOST_WARMUP: u32 = 10;

/// The injected function: it reports that it has run.
const STAMP: Source<'_> = Source {
    name: "stamp",
    text: "#include <farjump_ifunc.h>\n\
           FARJUMP_COPY_ARGS(stamp)\n\
           extern void perf_ran(void *stamp);\n\
           FARJUMP_IFUNC void stamp_main(void *payload, size_t payload_size, void *target_args)\n\
           {\n\
               (void)payload;\n\
               (void)payload_size;\n\
               perf_ran(target_args);\n\
           }\n",
};

/// Starts all sleepers: farjump's over each transport, and the baselines'.
pub(in crate::perf) fn wakers<'a>(
    setting: &Setting<'a>,
    against: &[Against],
) -> Result<Vec<Waker<'a>>, Failure> {
    let library = ifuncs::build(&[STAMP], setting.stage)?;
    let library = library.first().ok_or_else(|| Failure::new("`stamp` was not built"))?;
    let usual: &[usize] = if setting.options.metric == Metric::Idle { &idle::USUAL } else { &[1] };
    let counts = setting.options.sources.as_ref().map_or(usual, |counts| &counts.0);
    let mut wakers = Vec::new();
    for transport in setting.transports {
        for sources in counts {
            wakers.push(Waker::farjump(setting, transport, *sources, library)?);
        }
    }
    for baseline in against {
        wakers.push(Waker::baseline(setting, *baseline, library)?);
    }
    Ok(wakers)
}

/// Measures the time from injecting to having run, with this many calls of a sleeper.
pub(in crate::perf) fn wake(
    waker: &mut Waker<'_>,
    size: usize,
    iterations: u32,
    warmup: u32,
) -> Result<Round, Failure> {
    let warmup = warmup.min(MOST_WARMUP);
    let mut times = Vec::with_capacity(iterations as usize);
    for call in 0..warmup + iterations {
        let since = Instant::now();
        // Spins, so that only the peer has to wake up.
        while since.elapsed() < REST {
            std::hint::spin_loop();
        }
        waker.pair.rest(|memory, _| {
            memory.stamp().store(0, Ordering::Release);
            Ok(())
        })?;
        let start = clock::now();
        waker.wake(size)?;
        let end = waker.pair.rest(|memory, _| Ok(memory.stamp().load(Ordering::Acquire)))?;
        if call >= warmup {
            times.push(end.saturating_sub(start));
        }
    }
    let value = median(&times.iter().map(|time| *time as f64).collect::<Vec<_>>()).unwrap_or_default();
    Ok(Round::timed(value / 1e3, times))
}
