//! The experiment with calls of one kind: each size is a step, farjump and its baselines are the contestants.

mod setup;

use std::borrow::Cow;
use std::ops::Range;
use std::rc::Rc;
use std::time::Duration;

use farjump::{Link, Mode};

use super::baselines::connect::Endpoint;
use super::baselines::injection::{self, Calls};
use super::case::Case;
use super::experiment::{self, Experiment, Measured};
use super::first_call;
use super::measurement::{self, Measurement, STATE_CALLS};
use super::role::Source;
use super::setting::Setting;
use super::wake_up;
use super::work::{Function, injected, source};
use crate::perf::machine::Placement;
use crate::perf::machine::perftest;
use crate::perf::machine::rdma_posts;
use crate::perf::machine::ucx_perftest;
use crate::perf::process::counterpart::Counterpart;
use crate::perf::process::liveness::PATIENCE;
use crate::perf::process::place;
use crate::perf::report::Report;
use crate::perf::report::key::Key;
use crate::perf::report::metric::{Against, Metric};
use crate::perf::report::row::Row;
use crate::perf::report::statistics::Round;
use crate::program::failure::Failure;

/// Payload of a measurement, in bytes, unless a number of calls was requested; of work, a sixteenth.
const FEW_BYTES: usize = 256 << 20;
/// Least calls of a measurement, likewise.
const FEWEST: usize = 20;

/// All cases, set up.
pub(in crate::perf) struct Bench<'a> {
    setting: &'a Setting<'a>,
    /// Each once, cached included where it is a baseline.
    modes: Vec<Mode>,
    counterpart: Counterpart,
    links: Vec<Rc<Link>>,
    /// This process's endpoints of baselines, by their number.
    endpoints: Vec<Endpoint>,
    against: &'a [Against],
    cases: Vec<Case<'a>>,
    current: CurrentRound,
}

/// The state of the round that is measured.
#[derive(Default)]
struct CurrentRound {
    /// The number of rounds that have begun, in all steps.
    begun: usize,
    /// Reserved beforehand, so that nothing is allocated while calls are timed.
    times: Vec<Duration>,
    /// The round of each sleeper that has been left alone.
    left_alone: Vec<Option<Round>>,
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
        let sizes: &[usize] =
            if self.setting.options.metric == Metric::Idle { &[0] } else { &self.setting.options.sizes.0 };
        experiment::run(self, sizes, self.setting.options.rounds, report)
    }

    /// Measures a round of all sleepers, which are idle at the same time.
    fn leave_alone(&mut self) -> Result<(), Failure> {
        let wakers = self.cases.iter().map(|case| match case {
            Case::Sleeper(waker) if waker.missing().is_none() => Some(&**waker),
            _ => None,
        });
        let wakers: Vec<_> = wakers.collect();
        let present: Vec<_> = wakers.iter().copied().flatten().collect();
        let mut rounds = wake_up::leave_alone(&present, self.setting.options.seconds)?.into_iter();
        self.current.left_alone = wakers.iter().map(|waker| waker.and_then(|_| rounds.next())).collect();
        Ok(())
    }

    /// Returns the time of a line one way, in nanoseconds, if it can be measured.
    fn line(&mut self) -> Result<Option<f64>, Failure> {
        match &mut self.counterpart {
            // Its ring would wait for a whole slice of a shared processor.
            Counterpart::Pair(_) if self.setting.options.is_unpinned() => Ok(None),
            Counterpart::Pair(pair) => {
                measurement::line(pair, &mut self.endpoints, &mut self.current.times).map(Some)
            }
            Counterpart::Peer(_) => Ok(None),
        }
    }

    /// Returns one case's figure in one round, or the reason why it has none.
    fn one(
        &mut self,
        case: &mut Case<'a>,
        size: usize,
        times: &mut [Duration],
    ) -> Result<Result<Round, String>, Failure> {
        let first = self.current.begun.saturating_sub(1)
            * self.modes.len()
            * first_call::calls(self.setting.options.warm);
        let iterations = self.iterations(size);
        let run = Measurement {
            metric: self.setting.options.metric,
            size,
            iterations,
            warmup: self.setting.options.warmup.min(iterations),
        };
        match case {
            Case::Farjump { endpoint, mode, link, .. } if run.metric == Metric::FirstCall => {
                let mode_number = self.modes.iter().position(|other| other == mode).unwrap_or_default();
                let calls = first_call::calls(self.setting.options.warm);
                let first = first + mode_number * calls;
                self.first_call(*endpoint, *link, *mode, first..first + calls, size)
            }
            Case::Farjump { batch, endpoint, mode, link, code, .. } => {
                let link = &self.links[*link];
                let args = match code.function {
                    None => Cow::Owned(vec![7; size]),
                    Some(function) => Cow::Borrowed(source::args(function, size)),
                };
                let library = &code.library;
                let attempted =
                    injection::attempt_served(&mut self.counterpart, *endpoint, link, library, *mode, &args);
                if let Err(why) = attempted? {
                    return Ok(Err(why));
                }
                let before = rdma_posts::counts();
                let mut source: Box<dyn Source> = match code.function {
                    None => Box::new(Calls::new(link, &code.library, args.into_owned(), *batch)),
                    Some(function) => injected::source(link, function, &code.library, size),
                };
                let round = run.measure(&mut self.counterpart, *endpoint, &mut *source, times)?;
                Ok(Ok(round.with(rdma_posts::since(before, run.messages()))))
            }
            Case::Both { endpoint, .. } => {
                let Some(Ok(Some(own))) = self.endpoints.get_mut(*endpoint) else {
                    return Ok(Err("it is not set up".to_owned()));
                };
                run.measure(&mut self.counterpart, *endpoint, own.source()?, times).map(Ok)
            }
            Case::Copy(copy) => run.measure_alone(self.counterpart.pair()?, copy, times).map(Ok),
            Case::Tool(tool, cpus) => {
                let (stage, metric) = (self.setting.stage, run.metric);
                let measured = match tool {
                    Against::Perftest => {
                        ucx_perftest::run(stage, metric, size, iterations, run.warmup, *cpus)
                    }
                    program => perftest::run(*program, stage, metric, size, iterations, *cpus),
                };
                Ok(measured.map(Round::of).map_err(|failure| failure.to_string()))
            }
            Case::Sleeper(waker) => {
                wake_up::wake(waker, size, iterations, self.setting.options.warmup).map(Ok)
            }
            Case::Dlopen => {
                let calls = first_call::calls(self.setting.options.warm);
                let Some(firsts) = self.setting.libraries.firsts.get(first..first + calls) else {
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
        let Some(firsts) = self.setting.libraries.firsts.get(numbers.clone()) else {
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
        match (self.setting.options.iterations, self.setting.options.metric) {
            (_, Metric::FirstCall) => first_call::calls(self.setting.options.warm) as u32,
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

    /// Returns the cases of rows: each of farjump's, or with requested slots each ring, beside each of its baselines.
    fn pairs(&self) -> Vec<(usize, Option<(&'static str, usize)>)> {
        let all = || self.cases.iter().enumerate();
        let as_asked = |case: &Case<'_>| match case {
            Case::Farjump { batch, .. } => *batch == self.setting.options.batch,
            other => other.is_farjump(),
        };
        let mut pairs = Vec::new();
        for (own, case) in all().filter(|(_, case)| as_asked(case)) {
            if self.against.is_empty() || matches!(case, Case::Unreached { .. }) {
                pairs.push((own, None));
            }
            let beside = all().filter_map(|(at, other)| Some((case.baseline(other, self.against)?, at)));
            pairs.extend(beside.map(|baseline| (own, Some(baseline))));
        }
        let Some(messages) = self.cases.iter().position(|case| case.name() == Against::UcxAm.name()) else {
            return pairs;
        };
        // UCX's messages have its own tool as their baseline.
        let tools = all().filter(|(_, case)| matches!(case, Case::Tool(Against::Perftest, _)));
        pairs.extend(tools.map(|(tool, case)| (messages, Some((case.name(), tool)))));
        let rings = all().filter(|(_, case)| self.setting.options.slot.is_some() && case.has_slots());
        pairs.extend(rings.map(|(ring, _)| (ring, Some((Against::UcxAm.name(), messages)))));
        pairs
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

impl Experiment for Bench<'_> {
    /// Bytes of payload.
    type Step = usize;

    fn contestants(&self) -> usize {
        self.cases.len()
    }

    fn begin(&mut self, size: usize) -> Result<Vec<Option<String>>, Failure> {
        self.current.times = vec![Duration::ZERO; self.iterations(size).max(STATE_CALLS) as usize];
        Ok(self.cases.iter().map(|case| case.missing().map(str::to_owned)).collect())
    }

    fn begin_round(&mut self, _size: usize, _round: u32) -> Result<Option<f64>, Failure> {
        self.current.begun += 1;
        let line_ns = self.line()?;
        if self.setting.options.metric == Metric::Idle {
            self.leave_alone()?;
        }
        Ok(line_ns)
    }

    fn measure(&mut self, size: usize, contestant: usize) -> Result<Result<Round, String>, Failure> {
        if let Some(round) = self.current.left_alone.get_mut(contestant).and_then(Option::take) {
            return Ok(Ok(round));
        }
        let (mut cases, mut times) =
            (std::mem::take(&mut self.cases), std::mem::take(&mut self.current.times));
        let measured = self.one(&mut cases[contestant], size, &mut times);
        (self.cases, self.current.times) = (cases, times);
        measured
    }

    fn placement(&mut self) -> Option<Placement> {
        let Counterpart::Pair(pair) = &mut self.counterpart else { return None };
        let placement = pair.take_placement();
        self.setting.options.is_unpinned().then_some(placement)
    }

    fn described(&self, size: usize, contestant: usize) -> Row {
        let (case, options) = (&self.cases[contestant], self.setting.options);
        let metric = options.metric;
        let has_own_target = case.has_own_target() && options.peer.is_none();
        Row { metric: metric.name(), unit: metric.unit(), subject: case.name(), ..Row::default() }
            .with(Key::Function, case.function().map(Function::name))
            .with(Key::Transport, case.transport())
            .with(Key::Mode, case.mode())
            .with(Key::Image, case.image())
            .with(Key::Arrival, self.arrival(case))
            .with(Key::Lane, self.lanes(case))
            .with(Key::Sources, case.sources())
            .with(Key::Size, size)
            .with(Key::Iterations, self.iterations(size))
            .with(Key::Batch, (case.is_farjump() && metric.streams()).then_some(options.batch))
            .with(Key::Warm, (metric == Metric::FirstCall).then_some(options.warm))
            .with(Key::TargetSleeps, has_own_target.then_some(options.target_sleeps))
            .with(Key::Ring, options.peer.is_none().then(|| options.ring()))
    }

    fn rows(&mut self, _size: usize, measured: &Measured) -> Result<Vec<Row>, Failure> {
        let row = |(own, reference): (usize, Option<(&'static str, usize)>)| {
            let row = measured.row(own, reference);
            let both = [Some(own), reference.map(|(_, at)| at)].into_iter().flatten();
            let has_slots = both.into_iter().any(|at| self.cases[at].has_slots());
            let is_tool =
                reference.is_some_and(|(_, at)| matches!(self.cases[at], Case::Tool(Against::Perftest, _)));
            let agrees = row.ratio.filter(|_| is_tool).map(|ratio| (0.85..=1.15).contains(&ratio));
            row.with(Key::Slot, self.setting.options.slot.filter(|_| has_slots)).with(Key::Agrees, agrees)
        };
        Ok(self.pairs().into_iter().map(row).collect())
    }
}
