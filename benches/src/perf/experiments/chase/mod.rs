//! `chase`: a pointer chase through a permutation that lies in the tables of several shards.
//!
//! Every contestant does the same chases, in each round one right after another. farjump's function and UCX's active
//! message hop from shard to shard, and gets bring each word to the client. The client's thread has one processor, and
//! one thread that polls all shards has the other (`server`). One contestant has a process for each shard there instead
//! (`processes`, `shard`). Each result and each number of messages is compared with a walk through the table (`table`),
//! and each message waits for the modelled wire (`wire`).

mod client;
mod contestants;
mod gets;
mod injected;
mod message;
#[cfg(feature = "ucx")]
mod messages;
pub(in crate::perf) mod options;
mod processes;
mod server;
mod shard;
mod table;
mod wire;

use std::sync::Arc;

use farjump::Mode;

use super::experiment::{self, Experiment, Measured};
use super::setting::Setting;
use crate::perf::options::Perf;
use crate::perf::process::place;
use crate::perf::report::Report;
use crate::perf::report::key::Key;
use crate::perf::report::metric::{Against, Metric};
use crate::perf::report::row::Row;
use crate::perf::report::statistics::Round;
use crate::program::failure::Failure;
use client::{Chases, Timed};
use contestants::{Contestant, Contestants, Player};
use server::Server;
pub(in crate::perf) use shard::serve_shard;
use table::Table;

/// Default number of shards.
const SHARDS: usize = 4;
/// Default depths.
const DEPTHS: [usize; 6] = [1, 16, 64, 256, 1024, 4096];
/// Default numbers of chases under way.
const OUTSTANDING: [usize; 2] = [1, 64];
/// Default latencies in nanoseconds.
const WIRES: [u64; 6] = [0, 500, 1000, 2000, 5000, 10_000];
/// Default bytes of a shard's table.
const TABLE: usize = 1 << 20;
/// Time that a measurement should take, in microseconds, by an estimate of a word's time without a wire.
const MEASUREMENT_US: f64 = 10_000.0;
const WORD_US: f64 = 0.4;
/// Least groups of several chases at a time, of which the median is taken.
const GROUPS: f64 = 5.0;
/// Most chases in one measurement, for each one under way.
const MOST_CHASES: f64 = 2000.0;

/// One combination of depth, chases under way, and wire.
#[derive(Clone, Copy, Debug)]
pub(in crate::perf) struct Step {
    pub(in crate::perf) depth: u32,
    pub(in crate::perf) outstanding: usize,
    /// Nanoseconds.
    pub(in crate::perf) wire: u64,
    /// Chases in a measurement.
    pub(in crate::perf) chases: usize,
}

/// The experiment: all contestants, and the chases of the round under way.
struct Chase {
    field: Contestants,
    table: Arc<Table>,
    chases: Vec<table::Chase>,
    /// The depth and the chases under way of the last step without a wire, and each contestant's median.
    bases: Option<(u32, usize, Vec<Option<f64>>)>,
}

/// # Errors
/// An option makes no sense for chases.
pub(in crate::perf) fn check(options: &Perf) -> Result<(), Failure> {
    if let Some(name) = options.transports.iter().find(|name| place::is_stream(name)) {
        return Err(Failure::new(format!("{}: leave {name} out", contestants::NO_STREAMS)));
    }
    if options.plot.is_some() {
        return Err(Failure::new("chases are not drawn: leave --plot out"));
    }
    if options.across.is_some() {
        return Err(Failure::new("chase is measured within one process: leave --across out"));
    }
    Ok(())
}

/// Measures, and adds rows to the report for each step, also those before a failure.
pub(in crate::perf) fn run(
    setting: &Setting<'_>,
    modes: &[Mode],
    against: &[Against],
    report: &mut Report,
) -> Result<(), Failure> {
    let options = setting.options;
    let words = options.chase.table.unwrap_or(TABLE) / size_of::<u64>();
    let table = Arc::new(Table::new(options.chase.shards.unwrap_or(SHARDS), words.ilog2()));
    let outstanding = options.chase.outstanding.clone().map_or(OUTSTANDING.to_vec(), |numbers| numbers.0);
    let most = outstanding.iter().copied().max().unwrap_or(1);
    let server = Server::start(setting.cpus.map(|cpus| cpus.target))?;
    let field = Contestants::set(setting, &table, server, modes, against, most)?;
    let depths = options.chase.depths.clone().map_or(DEPTHS.to_vec(), |numbers| numbers.0);
    let wires = options.chase.wires.clone().map_or(WIRES.to_vec(), |latencies| latencies.0);
    let mut steps = Vec::new();
    for depth in depths {
        for outstanding in &outstanding {
            let step = |wire: &u64| Step::new(depth as u32, *outstanding, *wire, options.iterations);
            steps.extend(wires.iter().map(step));
        }
    }
    let mut chase = Chase { field, table, chases: Vec::new(), bases: None };
    let measured = experiment::run(&mut chase, &steps, options.rounds, report);
    measured.and_then(|()| chase.field.end())
}

impl Step {
    /// Returns the latency in microseconds.
    pub(in crate::perf) fn wire_us(&self) -> f64 {
        self.wire as f64 / 1e3
    }

    fn new(depth: u32, outstanding: usize, wire: u64, asked: Option<u32>) -> Step {
        // As many at a time take no longer on the wire.
        let word = WORD_US + 2.0 * wire as f64 / 1e3 / outstanding as f64;
        let fitting = MEASUREMENT_US / (f64::from(depth) * word * outstanding as f64);
        let least = if outstanding > 1 { GROUPS } else { 1.0 };
        let usual = fitting.clamp(least, MOST_CHASES) as usize * outstanding;
        let chases = asked.map_or(usual, |asked| (asked as usize).max(outstanding));
        Step { depth, outstanding, wire, chases }
    }
}

impl Contestant {
    /// Runs these chases over a wire. The inner error is the reason why the contestant is missing.
    fn measure(
        &mut self,
        server: &Server,
        chases: &Chases<'_>,
        wire: u64,
    ) -> Result<Result<Timed, String>, Failure> {
        let Player { client, shards, handled } = match &mut self.player {
            Ok(player) => player,
            Err(why) => return Ok(Err(why.clone())),
        };
        let (timed, polled) = shards.while_served(server, wire, |watch| chases.run(&mut **client, watch))?;
        // Shards handle all messages but those that end at the client.
        if let Some(handled) = handled {
            *handled += ((timed.messages - 1.0) * chases.chases.len() as f64).round() as u64;
            if polled.handled != *handled {
                return Err(Failure::new(format!(
                    "the shards handled {} messages, and the chases took {handled}",
                    polled.handled
                )));
            }
        }
        Ok(Ok(timed))
    }
}

impl Experiment for Chase {
    type Step = Step;

    fn contestants(&self) -> usize {
        self.field.all.len()
    }

    fn begin(&mut self, _step: Step) -> Result<Vec<Option<String>>, Failure> {
        Ok(self.field.all.iter().map(|one| one.player.as_ref().err().cloned()).collect())
    }

    fn begin_round(&mut self, step: Step, round: u32) -> Result<Option<f64>, Failure> {
        self.chases = self.table.chases(step.depth, step.chases, round);
        Ok(None)
    }

    fn measure(&mut self, step: Step, contestant: usize) -> Result<Result<Round, String>, Failure> {
        let chases = Chases { chases: &self.chases, outstanding: step.outstanding, log2: self.table.log2() };
        let one = &mut self.field.all[contestant];
        let measured = one.measure(&self.field.server, &chases, step.wire);
        let measured = measured.map_err(|failure| Failure::new(format!("{}: {failure}", one.name)))?;
        Ok(measured.map(|Timed { us, singles, messages }| {
            Round::timed(us, singles).with([(Key::Messages, messages)])
        }))
    }

    fn described(&self, step: Step, contestant: usize) -> Row {
        let one = &self.field.all[contestant];
        let lane = one.player.as_ref().ok().and_then(|player| player.client.lane());
        Row { metric: Metric::Chase.name(), unit: Metric::Chase.unit(), subject: one.name, ..Row::default() }
            .with(Key::Transport, one.transport.clone())
            .with(Key::Mode, one.mode)
            .with(Key::Lane, lane)
            .with(Key::Shards, self.table.shards())
            .with(Key::ShardsIn, one.shards_in.name())
            .with(Key::Table, size_of_val(self.table.part(0)))
            .with(Key::Depth, step.depth)
            .with(Key::Outstanding, step.outstanding)
            .with(Key::Size, message::LEN)
            .with(Key::Iterations, step.chases)
            .with(Key::WireUs, step.wire_us())
    }

    /// Returns a row for each contestant but gets, beside each baseline that comes after it.
    fn rows(&mut self, step: Step, measured: &Measured) -> Result<Vec<Row>, Failure> {
        let medians = || measured.outcomes.iter().map(|outcome| outcome.series.median()).collect();
        if step.wire == 0 {
            self.bases = Some((step.depth, step.outstanding, medians()));
        }
        let bases = self.bases.as_ref().filter(|(depth, outstanding, _)| {
            (*depth, *outstanding) == (step.depth, step.outstanding) && step.outstanding == 1
        });
        // Each message adds a latency.
        let model = |contestant: usize| {
            let messages = measured.outcomes[contestant].series.figure(Key::Messages)?;
            Some(bases?.2[contestant]? + messages * step.wire_us())
        };
        let mut rows = Vec::new();
        let all: Vec<_> = self.field.all.iter().enumerate().collect();
        for (own, one) in &all {
            if matches!(one.against, Some(Against::UcxGet | Against::Load)) {
                continue;
            }
            for (at, other) in all.iter().filter(|(at, one)| at > own && one.against.is_some()) {
                let row = measured.row(*own, Some((other.name, *at)));
                rows.push(row.with(Key::ModelUs, model(*own)).with(Key::ReferenceModelUs, model(*at)));
            }
        }
        Ok(rows)
    }
}
