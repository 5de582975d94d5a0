//! `wake-up` and `idle`: sleeping targets, each in a process of its own on the target's processor, beside
//! sleepers on a futex and on UCX's active messages.
//!
//! By default the target waits as [`farjump::Target::run`] does.

mod idle;
mod sleeper;
mod source;

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use farjump::{Library, Mode};

use super::baselines::connect::Paired;
use super::baselines::ring::Layout;
use super::child_protocol::EndpointSpec;
use super::clock;
use super::ifuncs;
use super::machine::CoreDistance;
use super::measurement::{self, LINE_SIZE, STATE_CALLS};
use super::metric::{Against, Metric};
use super::progress::progress;
use super::report::{Report, RoundState};
use super::row::Row;
use super::setting::Setting;
use super::statistics::{Round, Series, median};
use crate::program::bundled_ifuncs::Source;
use crate::program::failure::Failure;
pub(super) use sleeper::sleep;
use source::Waker;

/// Time for which it has slept, or been able to fall asleep, before it is woken.
const REST: Duration = Duration::from_millis(5);
/// Default number of calls in a round.
const USUAL_CALLS: u32 = 100;
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

/// Measures, and adds rows to the report, also those before a failure.
pub(super) fn run(setting: &Setting<'_>, against: &[Against], report: &mut Report) -> Result<(), Failure> {
    let library = ifuncs::build(&[STAMP], setting.stage)?;
    let library = library.first().ok_or_else(|| Failure::new("`stamp` was not built"))?;
    let mut line = Line::set(setting)?;
    let idle = setting.options.metric == Metric::Idle;
    let counts = match (&setting.options.sources, idle) {
        (Some(counts), _) => counts.0.clone(),
        (None, true) => idle::USUAL.to_vec(),
        (None, false) => vec![1],
    };
    let mut wakers = Vec::new();
    for transport in setting.transports {
        for sources in &counts {
            wakers.push(Waker::farjump(setting, transport, *sources, library)?);
        }
    }
    for baseline in against {
        wakers.push(Waker::baseline(setting, *baseline)?);
    }
    match idle {
        true => idle::run(setting, &wakers, &mut line, report)?,
        false => wake_up(setting, &mut wakers, library, &mut line, report)?,
    }
    wakers.into_iter().try_for_each(Waker::end)?;
    line.paired.end()
}

/// The measurement of the machine's state.
struct Line {
    paired: Paired,
    times: Vec<Duration>,
    /// Results for the present rows.
    found: Vec<f64>,
}

impl Line {
    fn set(setting: &Setting<'_>) -> Result<Line, Failure> {
        let layout = Layout::new(0, LINE_SIZE, None)?;
        let paired = Paired::start(setting, &[EndpointSpec::Baseline(Against::Raw)], layout, 0)?;
        Ok(Line { paired, times: vec![Duration::ZERO; STATE_CALLS as usize], found: Vec::new() })
    }

    /// Measures, and adds the result to the report.
    fn look(&mut self, size: usize, round: u32, report: &mut Report) -> Result<(), Failure> {
        let Paired { pair, endpoints } = &mut self.paired;
        let line_ns = measurement::line(pair, endpoints, &mut self.times)?;
        report.rounds.push(RoundState::of(size, round, Some(line_ns)));
        self.found.push(line_ns);
        Ok(())
    }

    /// Returns the state over the rounds since the last call of this.
    fn state(&mut self) -> Option<CoreDistance> {
        median(&std::mem::take(&mut self.found)).map(CoreDistance::of)
    }
}

/// Measures the time from injecting to having run, for each size.
fn wake_up(
    setting: &Setting<'_>,
    wakers: &mut [Waker<'_>],
    library: &Library,
    line: &mut Line,
    report: &mut Report,
) -> Result<(), Failure> {
    let options = setting.options;
    let bar = progress(options.sizes.0.len() * options.rounds as usize * wakers.len());
    let iterations = options.iterations.unwrap_or(USUAL_CALLS);
    let mut measured = Ok(());
    for size in &options.sizes.0 {
        let mut series = Vec::new();
        for _ in &*wakers {
            series.push(Series::new()?);
        }
        measured = (1..=options.rounds).try_for_each(|round| {
            line.look(*size, round, report)?;
            for (waker, series) in wakers.iter_mut().zip(&mut series) {
                bar.set_message(format!("{size} B, round {round}: {}", waker.name));
                bar.inc(1);
                if waker.missing().is_none() {
                    series.add(one_round(
                        waker,
                        library,
                        *size,
                        iterations,
                        options.warmup.min(MOST_WARMUP),
                    )?);
                }
            }
            Ok(())
        });
        let state = line.state();
        add_rows(wakers, &series, report, |_, row| Row {
            metric: Metric::WakeUp.name(),
            unit: Metric::WakeUp.unit(),
            size: *size,
            iterations,
            state,
            ring: Some(options.ring()),
            ..row
        });
        if measured.is_err() {
            break;
        }
    }
    bar.finish_and_clear();
    measured
}

/// Makes this many calls of a sleeper.
fn one_round(
    waker: &mut Waker<'_>,
    library: &Library,
    size: usize,
    iterations: u32,
    warmup: u32,
) -> Result<Round, Failure> {
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
        waker.wake(library, size)?;
        let end = waker.pair.rest(|memory, _| Ok(memory.stamp().load(Ordering::Acquire)))?;
        if call >= warmup {
            times.push(end.saturating_sub(start));
        }
    }
    let figure = median(&times.iter().map(|time| *time as f64).collect::<Vec<_>>()).unwrap_or_default();
    Ok(Round::timed(figure / 1e3, times))
}

/// Adds a row for each of farjump's cases beside each baseline. `finish` describes the case of this number.
fn add_rows(
    wakers: &[Waker<'_>],
    series: &[Series],
    report: &mut Report,
    finish: impl Fn(usize, Row) -> Row,
) {
    let all = || wakers.iter().zip(series);
    for (number, (own, series)) in all().enumerate().filter(|(_, (waker, _))| waker.transport.is_some()) {
        for (baseline, beside) in all().filter(|(waker, _)| waker.transport.is_none()) {
            let row = Row {
                subject: own.name,
                transport: own.transport.map(str::to_owned),
                mode: Some(Mode::Cached.name()),
                arrival: own.arrival(),
                lane: own.lane(),
                reference: Some(baseline.name),
                reference_lane: baseline.lane(),
                missing: baseline.missing().map(str::to_owned),
                sources: Some(own.sources as u32),
                ..Row::beside(series, Some(beside))
            };
            report.rows.push(finish(number, row));
        }
    }
}
