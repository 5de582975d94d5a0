//! The run: for each size, rounds in which all cases are measured one after the other.

mod setup;

use std::borrow::Cow;
use std::ops::Range;
use std::rc::Rc;
use std::time::Duration;

use farjump::{Link, Mode};
use indicatif::ProgressBar;

use super::baselines::connect::Endpoint;
use super::baselines::injection::{self, Calls};
use super::case::Case;
use super::first_call;
use super::measurement::{self, Measurement, STATE_CALLS};
use super::role::Source;
use super::wake_up;
use super::work::{Function, injected, source};
use crate::perf::machine::CoreDistance;
use crate::perf::machine::perftest;
use crate::perf::machine::rdma_posts;
use crate::perf::machine::ucx_perftest;
use crate::perf::options::Perf;
use crate::perf::options::ifuncs::Libraries;
use crate::perf::process::counterpart::Counterpart;
use crate::perf::process::liveness::PATIENCE;
use crate::perf::process::place;
use crate::perf::report::metric::{Against, Metric};
use crate::perf::report::progress::{check_signals, progress};
use crate::perf::report::row::Row;
use crate::perf::report::statistics::{Round, Series, median};
use crate::perf::report::{Report, RoundState};
use crate::program::failure::Failure;
use crate::program::workspace::Stage;

/// Payload of a measurement, in bytes, unless a number of calls was requested; of work, a sixteenth.
const FEW_BYTES: usize = 256 << 20;
/// Least calls of a measurement, likewise.
const FEWEST: usize = 20;

/// The result of one case at one size.
struct Outcome {
    series: Series,
    /// The reason why it was abandoned.
    missing: Option<String>,
}

/// All cases, set up.
pub(in crate::perf) struct Bench<'a> {
    options: &'a Perf,
    stage: &'a Stage,
    libraries: &'a Libraries,
    /// Each once, cached included where it is a baseline.
    modes: Vec<Mode>,
    counterpart: Counterpart,
    links: Vec<Rc<Link>>,
    /// This process's endpoints of baselines, by their number.
    endpoints: Vec<Endpoint>,
    against: &'a [Against],
    cases: Vec<Case<'a>>,
}

impl<'a> Bench<'a> {
    /// Measures, adds the results to the report, also those before a failure, and ends the other process.
    pub(in crate::perf) fn measure(mut self, report: &mut Report) -> Result<(), Failure> {
        self.run(report)?;
        // Before the other process ends: UCX would try to reach it again.
        drop((self.links, self.endpoints));
        for case in self.cases {
            if let Case::Sleeper(waker) = case {
                waker.end()?;
            }
        }
        self.counterpart.end()
    }

    fn run(&mut self, report: &mut Report) -> Result<(), Failure> {
        let sizes: &[usize] = if self.options.metric == Metric::Idle { &[0] } else { &self.options.sizes.0 };
        let steps = sizes.len() * self.options.rounds as usize * self.cases.len();
        let bar = progress(steps);
        let mut first = 0;
        for size in sizes {
            let mut outcomes = Vec::new();
            for case in &self.cases {
                let missing = case.missing().map(str::to_owned);
                outcomes.push(Outcome { series: Series::new()?, missing });
            }
            let measured = self.rounds(*size, &mut outcomes, &mut report.rounds, &mut first, &bar);
            self.add_rows(*size, &outcomes, report);
            if measured.is_err() {
                bar.finish_and_clear();
                return measured;
            }
        }
        bar.finish_and_clear();
        Ok(())
    }

    fn rounds(
        &mut self,
        size: usize,
        outcomes: &mut [Outcome],
        states: &mut Vec<RoundState>,
        first: &mut usize,
        bar: &ProgressBar,
    ) -> Result<(), Failure> {
        // Allocated beforehand, so that nothing is allocated while calls are timed.
        let mut times = vec![Duration::ZERO; self.iterations(size).max(STATE_CALLS) as usize];
        let mut cases = std::mem::take(&mut self.cases);
        let mut measured = Ok(());
        'rounds: for round in 1..=self.options.rounds {
            let line_ns = match self.line(&mut times) {
                Ok(line_ns) => line_ns,
                Err(failure) => {
                    measured = Err(failure);
                    break;
                }
            };
            states.push(RoundState::of(size, round, line_ns));
            if self.options.metric == Metric::Idle {
                bar.set_message(format!("round {round}"));
                measured = self.leave_alone(&cases, outcomes);
                if measured.is_err() {
                    break;
                }
                bar.inc(cases.len() as u64);
                continue;
            }
            let firsts = *first;
            for (case, outcome) in cases.iter_mut().zip(&mut *outcomes) {
                bar.set_message(format!("{} B, round {round}: {}", size, case.name()));
                if outcome.missing.is_none() {
                    // A target elsewhere does not end by itself.
                    match check_signals().and_then(|()| self.one(case, size, firsts, &mut times)) {
                        Ok(Ok(round)) => outcome.series.add(round),
                        Ok(Err(why)) => outcome.missing = Some(why),
                        Err(failure) => {
                            measured = Err(failure);
                            break 'rounds;
                        }
                    }
                }
                bar.inc(1);
            }
            *first += self.modes.len() * first_call::calls(self.options.warm);
            if let (Counterpart::Pair(pair), Some(state)) = (&mut self.counterpart, states.last_mut()) {
                let placement = pair.take_placement();
                state.placement = self.options.is_unpinned().then_some(placement);
            }
        }
        self.cases = cases;
        measured
    }

    /// Measures a round of all sleepers, which are idle at the same time.
    fn leave_alone(&self, cases: &[Case<'_>], outcomes: &mut [Outcome]) -> Result<(), Failure> {
        let sleepers = cases.iter().zip(outcomes).filter(|(_, outcome)| outcome.missing.is_none());
        let (wakers, outcomes): (Vec<_>, Vec<_>) = sleepers
            .filter_map(|(case, outcome)| match case {
                Case::Sleeper(waker) => Some((&**waker, outcome)),
                _ => None,
            })
            .unzip();
        let rounds = wake_up::leave_alone(&wakers, self.options.seconds)?;
        outcomes.into_iter().zip(rounds).for_each(|(outcome, round)| outcome.series.add(round));
        Ok(())
    }

    /// Returns the time of a line one way, in nanoseconds, if it can be measured.
    fn line(&mut self, times: &mut [Duration]) -> Result<Option<f64>, Failure> {
        match &mut self.counterpart {
            // Its ring would wait for a whole slice of a shared processor.
            Counterpart::Pair(_) if self.options.is_unpinned() => Ok(None),
            Counterpart::Pair(pair) => measurement::line(pair, &mut self.endpoints, times).map(Some),
            Counterpart::Peer(_) => Ok(None),
        }
    }

    /// Returns one case's figure in one round, or the reason why it has none.
    fn one(
        &mut self,
        case: &mut Case<'a>,
        size: usize,
        first: usize,
        times: &mut [Duration],
    ) -> Result<Result<Round, String>, Failure> {
        let iterations = self.iterations(size);
        let run = Measurement {
            metric: self.options.metric,
            size,
            iterations,
            warmup: self.options.warmup.min(iterations),
        };
        match case {
            Case::Farjump { endpoint, mode, link, .. } if run.metric == Metric::FirstCall => {
                let mode_number = self.modes.iter().position(|other| other == mode).unwrap_or_default();
                let calls = first_call::calls(self.options.warm);
                let first = first + mode_number * calls;
                self.first_call(*endpoint, *link, *mode, first..first + calls, size)
            }
            Case::Farjump { batch, endpoint, mode, link, code, .. } => {
                let link = &self.links[*link];
                let args = match code.function {
                    None => Cow::Owned(vec![7; size]),
                    Some(function) => Cow::Borrowed(source::args(function, size)),
                };
                let attempt = || injection::attempt(link, &code.library, *mode, &args);
                match self.counterpart.serve(*endpoint, attempt)? {
                    Ok(()) => {}
                    Err(error @ farjump::Error::Wait(farjump::WaitError::PeerGone { .. })) => {
                        return Err(error.into());
                    }
                    Err(error) => return Ok(Err(error.to_string())),
                }
                let before = rdma_posts::counts();
                let mut source: Box<dyn Source> = match code.function {
                    None => Box::new(Calls::new(link, &code.library, args.into_owned(), *batch)),
                    Some(function) => injected::source(link, function, &code.library, size),
                };
                let round = run.measure(&mut self.counterpart, *endpoint, &mut *source, times)?;
                Ok(Ok(Round { posted: rdma_posts::since(before, run.messages()), ..round }))
            }
            Case::Both { endpoint, .. } => {
                let Some(Ok(Some(own))) = self.endpoints.get_mut(*endpoint) else {
                    return Ok(Err("it is not set up".to_owned()));
                };
                run.measure(&mut self.counterpart, *endpoint, own.source()?, times).map(Ok)
            }
            Case::Copy(copy) => run.measure_alone(self.counterpart.pair()?, copy, times).map(Ok),
            Case::Tool(tool, cpus) => {
                let (stage, metric) = (self.stage, run.metric);
                let measured = match tool {
                    Against::Perftest => {
                        ucx_perftest::run(stage, metric, size, iterations, run.warmup, *cpus)
                    }
                    program => perftest::run(*program, stage, metric, size, iterations, *cpus),
                };
                Ok(measured.map(Round::of).map_err(|failure| failure.to_string()))
            }
            Case::Sleeper(waker) => wake_up::wake(waker, size, iterations, self.options.warmup).map(Ok),
            Case::Dlopen => {
                let calls = first_call::calls(self.options.warm);
                let Some(firsts) = self.libraries.firsts.get(first..first + calls) else {
                    return Ok(Err("there is no library to load".to_owned()));
                };
                let libraries = firsts.iter().zip(first..).map(|((_, path), number)| first_call::Loaded {
                    library: path.clone(),
                    symbol: first_call::symbol(number),
                    adds: first_call::adds(number),
                });
                let times = self.counterpart.pair()?.time_load(libraries.collect())?;
                Ok(Ok(first_call::round(times)))
            }
            Case::Missing { why, .. } | Case::Unreached { why, .. } => Ok(Err(why.clone())),
        }
    }

    fn first_call(
        &mut self,
        endpoint: usize,
        link: usize,
        mode: Mode,
        numbers: Range<usize>,
        size: usize,
    ) -> Result<Result<Round, String>, Failure> {
        let Some(firsts) = self.libraries.firsts.get(numbers.clone()) else {
            return Err(Failure::new("there is no code left that the target has not seen"));
        };
        let args = vec![7; size];
        let times = match &mut self.counterpart {
            Counterpart::Pair(pair) => {
                let link = &self.links[link];
                link.set_mode(mode);
                pair.time_first(endpoint, numbers.map(first_call::adds).collect(), |place| {
                    link.inject(&firsts[place].0, &args)?.wait(PATIENCE)?;
                    Ok(())
                })?
            }
            Counterpart::Peer(peer) => {
                let mut times = Vec::new();
                for ((library, _), number) in firsts.iter().zip(numbers) {
                    match peer.time_first(link, library, mode, number, &args)? {
                        Ok(time) => times.push(time.as_nanos() as u64),
                        Err(why) => return Ok(Err(why)),
                    }
                }
                times
            }
        };
        Ok(Ok(first_call::round(times)))
    }

    /// Returns the number of calls in one measurement of this size.
    fn iterations(&self, size: usize) -> u32 {
        match (self.options.iterations, self.options.metric) {
            (_, Metric::FirstCall) => first_call::calls(self.options.warm) as u32,
            (_, Metric::Idle) => 0,
            (Some(asked), _) => asked,
            (None, Metric::WakeUp) => wake_up::USUAL_CALLS,
            (None, metric) => {
                let usual = if metric.streams() { 200_000 } else { 10_000 };
                let few = if metric == Metric::Work { FEW_BYTES / 16 } else { FEW_BYTES };
                usual.min((few / size.max(1)).max(FEWEST)) as u32
            }
        }
    }

    /// Adds a row for each case of farjump's beside each baseline, and one that compares UCX's messages with its own
    /// tool. Adds one for each ring with requested slots, too, beside UCX's messages.
    fn add_rows(&self, size: usize, outcomes: &[Outcome], report: &mut Report) {
        let of_size = report.rounds.iter().filter(|round| round.size == size);
        let lines: Vec<f64> = of_size.filter_map(|round| round.line_ns).collect();
        let state = median(&lines).map(CoreDistance::of);
        let all = || self.cases.iter().zip(outcomes);
        type Measured<'a> = (&'a Case<'a>, &'a Outcome);
        let row = |own: Measured<'_>, baseline: Option<(&'static str, Measured<'_>)>| {
            let metric = self.options.metric;
            let named = baseline.map(|(named, _)| named);
            let other = baseline.map(|(_, (other, _))| other);
            let beside = baseline.map(|(_, (_, outcome))| outcome);
            Row {
                metric: metric.name(),
                unit: metric.unit(),
                subject: own.0.name(),
                transport: own.0.transport(),
                mode: own.0.mode(),
                arrival: self.arrival(own.0),
                lane: self.lanes(own.0),
                size,
                iterations: self.iterations(size),
                reference: named,
                reference_lane: other.and_then(|other| self.lanes(other)),
                state,
                missing: own.1.missing.clone().or_else(|| beside?.missing.clone()),
                batch: (own.0.is_farjump() && metric.streams()).then_some(self.options.batch),
                image: own.0.image(),
                function: own.0.function().map(Function::name),
                ring: self.options.peer.is_none().then(|| self.options.ring()),
                slot: self.options.slot.filter(|_| own.0.has_slots() || other.is_some_and(Case::has_slots)),
                target_sleeps: (own.0.has_own_target() && self.options.peer.is_none())
                    .then_some(self.options.target_sleeps),
                warm: (self.options.metric == Metric::FirstCall).then_some(self.options.warm),
                sources: own.0.sources(),
                sleeps: own.1.series.sleeps(),
                posts: own.1.series.posted(|posted| posted.posts),
                requests: own.1.series.posted(|posted| posted.requests),
                posted_bytes: own.1.series.posted(|posted| posted.bytes),
                completions: own.1.series.posted(|posted| posted.completions),
                ..Row::beside(&own.1.series, beside.map(|beside| &beside.series))
            }
        };
        let as_asked = |case: &Case<'_>| match case {
            Case::Farjump { batch, .. } => *batch == self.options.batch,
            other => other.is_farjump(),
        };
        for own in all().filter(|(case, _)| as_asked(case)) {
            if self.against.is_empty() || matches!(own.0, Case::Unreached { .. }) {
                report.rows.push(row(own, None));
            }
            let baselines = all().filter_map(|other| Some((own.0.baseline(other.0, self.against)?, other)));
            report.rows.extend(baselines.map(|baseline| row(own, Some(baseline))));
        }
        let messages = all().find(|(case, _)| case.name() == Against::UcxAm.name());
        let tool = all().find(|(case, _)| matches!(case, Case::Tool(Against::Perftest, _)));
        if let (Some(messages), Some(tool)) = (messages, tool) {
            let mut row = row(messages, Some((tool.0.name(), tool)));
            row.agrees = row.ratio.map(|ratio| (0.85..=1.15).contains(&ratio));
            report.rows.push(row);
        }
        if let (Some(messages), Some(_)) = (messages, self.options.slot) {
            let rings = all().filter(|(case, _)| case.has_slots());
            report.rows.extend(rings.map(|ring| row(ring, Some((messages.0.name(), messages)))));
        }
    }

    fn arrival(&self, case: &Case<'_>) -> Option<String> {
        match case {
            Case::Farjump { link, .. } => Some(self.links[*link].arrival_rule().describe()),
            Case::Sleeper(waker) => waker.arrival(),
            _ => None,
        }
    }

    fn lanes(&self, case: &Case<'_>) -> Option<String> {
        match case {
            Case::Both { endpoint, .. } => self.endpoints.get(*endpoint)?.as_ref().ok()?.as_ref()?.lanes(),
            Case::Farjump { link, .. } => place::lane(&self.links[*link]),
            Case::Sleeper(waker) => waker.lane(),
            _ => None,
        }
    }
}
