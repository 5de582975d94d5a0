//! `scaling`: a target with a growing number of sources, beside one with one source, in the same rounds.
//!
//! Each round measures the one-way time of one source while all others are idle, and the rate of all that send. Then it
//! measures the one-way time of a source that was idle itself. The target polls for the latter's first message only
//! when it is that source's turn (docs/design/mailbox.md).

mod rss;
mod sender;
pub(crate) mod source_count;
mod sources;

use std::time::Duration;

use farjump::Mode;
use rustix::process::{Resource, Rlimit, setrlimit};

use super::baselines::connect::Paired;
use super::baselines::ring::Layout;
use super::experiment::{self, Experiment, Measured};
use super::measurement::{self, LINE_SIZE, Measurement, STATE_CALLS};
use super::setting::Setting;
use crate::perf::process::child_protocol::EndpointSpec;
use crate::perf::report::Report;
use crate::perf::report::key::Key;
use crate::perf::report::metric::{Against, Metric};
use crate::perf::report::row::Row;
use crate::perf::report::statistics::Round;
use crate::program::failure::Failure;
pub(in crate::perf) use sender::Caller;
use sources::{Crowd, Home};

/// Up to this many sources each have a process.
const PROCESSES: usize = 8;
/// Default numbers of sources.
const USUAL: [usize; 9] = [1, 2, 4, 8, 16, 32, 64, 128, 256];
/// Default number of calls for latency, and of messages for the rate.
const USUAL_CALLS: (u32, u32) = (10_000, 200_000);
/// Most calls of an idle source in one round: each takes a millisecond.
const MOST_TURNS: u32 = 100;

/// The three targets of a transport.
struct Lane<'a> {
    transport: &'a str,
    alone: Crowd<'a>,
    processes: Crowd<'a>,
    here: Crowd<'a>,
}

/// All targets, set up.
struct Field<'a> {
    setting: &'a Setting<'a>,
    paired: Paired,
    lanes: Vec<Lane<'a>>,
    /// Numbers of sources, in ascending order.
    counts: Vec<usize>,
    /// Time of a reply in the round under way, in nanoseconds.
    back: f64,
    /// Reserved beforehand, so that nothing is allocated while calls are timed.
    times: Vec<Duration>,
}

/// A number of sources of a transport, and a size.
#[derive(Clone, Copy)]
struct Step {
    lane: usize,
    sources: usize,
    size: usize,
}

/// What is measured, of many sources and then of the one that is alone.
const METRICS: [(&str, &str); 3] =
    [("scaling-latency", "us"), ("scaling-turn", "us"), ("scaling-rate", "million/s")];

/// Measures, and adds rows to the report for each number of sources, also those before a failure.
pub(in crate::perf) fn run(setting: &Setting<'_>, report: &mut Report) -> Result<(), Failure> {
    raise_file_limit();
    let mut field = Field::set(setting)?;
    field.run(report)?;
    field.end()
}

/// Raises the limit of open files: each link has several descriptors, and the default limit is low.
fn raise_file_limit() {
    let Rlimit { maximum, .. } = farjump_os::limits::of(Resource::Nofile);
    // If that is refused, connecting reports the limit.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
}

impl<'a> Field<'a> {
    fn set(setting: &'a Setting<'a>) -> Result<Field<'a>, Failure> {
        let Setting { options, transports, .. } = *setting;
        let mut counts = options.sources.clone().map_or(USUAL.to_vec(), |counts| counts.0);
        counts.sort_unstable();
        let most = counts.last().copied().unwrap_or(1);
        let layout = Layout::new(options.ring(), options.sizes.longest().max(LINE_SIZE), None)?;
        // The raw ring is for the machine's state.
        let mut specs = vec![EndpointSpec::Baseline(Against::Raw)];
        let mut lanes = Vec::new();
        for transport in transports {
            let mut crowd = |name: &str, sources: usize, home| {
                let socket = format!("{transport}-{name}");
                specs.push(EndpointSpec::Farjump {
                    transport: transport.clone(),
                    socket: socket.clone(),
                    sources,
                });
                Crowd::new(setting, transport, specs.len() - 1, socket, home)
            };
            lanes.push(Lane {
                transport,
                alone: crowd("1", 1, Home::Here),
                processes: crowd("p", PROCESSES, Home::Processes),
                here: crowd("h", most, Home::Here),
            });
        }
        let mut paired = Paired::start(setting, &specs, layout, 0)?;
        if let Some(Err(why)) = paired.endpoints.iter().find(|endpoint| endpoint.is_err()) {
            return Err(Failure::new(format!("a target could not be made: {why}")));
        }
        for lane in &mut lanes {
            lane.alone.grow(&mut paired.pair, 1)?;
        }
        Ok(Field { setting, paired, lanes, counts, back: 0.0, times: Vec::new() })
    }

    fn run(&mut self, report: &mut Report) -> Result<(), Failure> {
        let options = self.setting.options;
        let mut steps = Vec::new();
        for lane in 0..self.lanes.len() {
            for &sources in &self.counts {
                steps.extend(options.sizes.0.iter().map(|&size| Step { lane, sources, size }));
            }
        }
        experiment::run(self, &steps, options.rounds, report)
    }

    /// Returns the numbers of calls for latency and turn, and of messages for the rate.
    fn iterations(&self) -> [u32; 3] {
        let (calls, messages) = self.setting.options.iterations.map_or(USUAL_CALLS, |asked| (asked, asked));
        [calls, calls.min(MOST_TURNS), messages]
    }

    /// Ends all processes.
    fn end(self) -> Result<(), Failure> {
        for Lane { alone, processes, here, .. } in self.lanes {
            for crowd in [alone, processes, here] {
                crowd.end()?;
            }
        }
        self.paired.end()
    }
}

impl<'a> Lane<'a> {
    /// Returns the crowd of this many sources.
    fn many(&mut self, sources: usize) -> &mut Crowd<'a> {
        if sources <= PROCESSES { &mut self.processes } else { &mut self.here }
    }
}

impl Experiment for Field<'_> {
    type Step = Step;

    fn contestants(&self) -> usize {
        2 * METRICS.len()
    }

    /// Connects further sources. A failure to connect is reported in the rows.
    fn begin(&mut self, step: Step) -> Result<Vec<Option<String>>, Failure> {
        let grown = self.lanes[step.lane].many(step.sources).grow(&mut self.paired.pair, step.sources);
        self.times = vec![Duration::ZERO; self.iterations()[0].max(STATE_CALLS) as usize];
        Ok(vec![grown.err().map(|failure| failure.to_string()); self.contestants()])
    }

    fn begin_round(&mut self, step: Step, _round: u32) -> Result<Option<f64>, Failure> {
        let [calls, ..] = self.iterations();
        let Field { paired: Paired { pair, endpoints }, lanes, times, .. } = self;
        let line_ns = measurement::line(pair, endpoints, times)?;
        let lane = &mut lanes[step.lane];
        lane.many(step.sources).settle(pair)?;
        self.back = lane.alone.back(pair, calls, times)?;
        Ok(Some(line_ns))
    }

    fn measure(&mut self, step: Step, contestant: usize) -> Result<Result<Round, String>, Failure> {
        let Step { lane, sources, size } = step;
        let [calls, turns, messages] = self.iterations();
        let (options, back) = (self.setting.options, self.back);
        let Field { paired: Paired { pair, .. }, lanes, times, .. } = self;
        let (crowd, active) = match contestant % 2 {
            0 => (lanes[lane].many(sources), options.active.of(sources)),
            _ => (&mut lanes[lane].alone, 1),
        };
        let round = match contestant / 2 {
            0 => {
                let warmup = options.warmup.min(calls);
                let latency = Measurement { metric: Metric::Latency, size, iterations: calls, warmup };
                crowd.latency(pair, &latency, times)
            }
            1 => crowd.turn(pair, size, &mut times[..turns as usize], back),
            _ => crowd.stream(pair, size, active, messages),
        };
        round.map(Ok)
    }

    fn described(&self, Step { lane, sources, size }: Step, contestant: usize) -> Row {
        let Lane { transport, alone, .. } = &self.lanes[lane];
        let (metric, unit) = METRICS[contestant / 2];
        let (rule, carrier) = alone.rule_and_lane();
        let row = Row { metric, unit, subject: "farjump", ..Row::default() };
        if contestant % 2 == 1 {
            return Row { subject: Against::Alone.name(), ..row };
        }
        row.with(Key::Transport, *transport)
            .with(Key::Mode, Mode::Cached.name())
            .with(Key::Arrival, rule)
            .with(Key::Lane, carrier)
            .with(Key::Sources, sources)
            .with(Key::Size, size)
            .with(Key::Iterations, self.iterations()[contestant / 2])
            .with(Key::Ring, self.setting.options.ring())
    }

    fn rows(&mut self, step: Step, measured: &Measured) -> Result<Vec<Row>, Failure> {
        let memory = self.lanes[step.lane].many(step.sources).memory(&self.paired.pair);
        let row = |metric: usize| {
            let row = measured.row(2 * metric, Some((Against::Alone.name(), 2 * metric + 1)));
            row.with(Key::PeerBytes, memory.map(|memory| memory.own))
                .with(Key::MailboxBytes, memory.map(|memory| memory.shared))
        };
        // The rate comes before the turn, which is measured first.
        Ok([0, 2, 1].map(row).into())
    }
}
