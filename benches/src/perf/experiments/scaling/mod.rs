//! `scaling`: a target with a growing number of sources, beside one with one source, in the same rounds.
//!
//! Each round measures the one-way time of one source while all others are idle, and the rate of all that send. Then it
//! measures the one-way time of a source that was idle itself. The target polls for the latter's first message only
//! when it is that source's turn (docs/design/mailbox.md).

mod row;
mod rss;
mod sender;
pub(crate) mod source_count;
mod sources;
pub(crate) mod table;

use std::time::Duration;

use indicatif::ProgressBar;
use rustix::process::{Resource, Rlimit, setrlimit};

use super::baselines::connect::Paired;
use super::baselines::ring::Layout;
use super::measurement::{self, LINE_SIZE, Measurement, STATE_CALLS};
use super::setting::Setting;
use crate::perf::process::child_protocol::EndpointSpec;
use crate::perf::report::metric::{Against, Metric};
use crate::perf::report::progress::progress;
use crate::perf::report::{Report, RoundState};
use crate::program::failure::Failure;
use row::{About, Measured, Step};
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
}

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
        Ok(Field { setting, paired, lanes, counts })
    }

    fn run(&mut self, report: &mut Report) -> Result<(), Failure> {
        let options = self.setting.options;
        let steps = self.lanes.len() * self.counts.len() * options.sizes.0.len() * options.rounds as usize;
        let bar = progress(steps);
        let mut measured = Ok(());
        'lanes: for lane in 0..self.lanes.len() {
            for count in 0..self.counts.len() {
                for size in &options.sizes.0 {
                    measured = self.step(lane, self.counts[count], *size, report, &bar);
                    if measured.is_err() {
                        break 'lanes;
                    }
                }
            }
        }
        bar.finish_and_clear();
        measured
    }

    /// Measures with this number of sources. A failure to connect is reported in the rows.
    fn step(
        &mut self,
        lane: usize,
        sources: usize,
        size: usize,
        report: &mut Report,
        bar: &ProgressBar,
    ) -> Result<(), Failure> {
        let options = self.setting.options;
        let (calls, messages) = options.iterations.map_or(USUAL_CALLS, |asked| (asked, asked));
        let turns = calls.min(MOST_TURNS);
        let Field { paired: Paired { pair, endpoints }, lanes, .. } = self;
        let Lane { transport, alone, processes, here } = &mut lanes[lane];
        let crowd = if sources <= PROCESSES { processes } else { here };
        let mut step = Step::new()?;
        let mut about = About {
            transport,
            rule_and_lane: alone.rule_and_lane(),
            sources,
            size,
            iterations: [calls, messages, turns],
            memory: None,
            missing: crowd.grow(pair, sources).err().map(|failure| failure.to_string()),
            ring: options.ring(),
        };
        let latency = Measurement {
            metric: Metric::Latency,
            size,
            iterations: calls,
            warmup: options.warmup.min(calls),
        };
        let active = options.active.of(sources);
        let mut times = vec![Duration::ZERO; calls.max(STATE_CALLS) as usize];
        let mut rounds = |report: &mut Report| {
            for round in 1..=options.rounds {
                bar.set_message(format!("{transport}, {sources} sources, {size} B, round {round}"));
                let line_ns = measurement::line(pair, endpoints, &mut times)?;
                report.rounds.push(RoundState::of(size, round, Some(line_ns)));
                crowd.settle(pair)?;
                let back = alone.back(pair, calls, &mut times)?;
                step.add(Measured {
                    line_ns,
                    latency: [
                        crowd.latency(pair, &latency, &mut times)?,
                        alone.latency(pair, &latency, &mut times)?,
                    ],
                    turn: [
                        crowd.turn(pair, size, &mut times[..turns as usize], back)?,
                        alone.turn(pair, size, &mut times[..turns as usize], back)?,
                    ],
                    rate: [
                        crowd.stream(pair, size, active, messages)?,
                        alone.stream(pair, size, 1, messages)?,
                    ],
                });
                bar.inc(1);
            }
            Ok(())
        };
        let measured = if about.missing.is_none() { rounds(report) } else { Ok(()) };
        about.memory = crowd.memory(pair);
        report.rows.extend(step.rows(&about));
        measured
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
