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
mod rows;
mod server;
mod shard;
pub(in crate::perf) mod shown;
mod table;
mod wire;

use std::sync::Arc;

use farjump::Mode;
use indicatif::ProgressBar;

use super::setting::Setting;
use crate::perf::options::Perf;
use crate::perf::process::place;
use crate::perf::report::metric::Against;
use crate::perf::report::progress::{check_signals, progress};
use crate::perf::report::statistics::{Round, Series, median};
use crate::perf::report::{Report, RoundState};
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

/// The rounds of one contestant in a step.
pub(in crate::perf) struct Measured {
    pub(in crate::perf) series: Series,
    /// Messages of a chase, in each round's mean.
    pub(in crate::perf) messages: Vec<f64>,
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
    let mut field = Contestants::set(setting, &table, server, modes, against, most)?;
    let depths = options.chase.depths.clone().map_or(DEPTHS.to_vec(), |numbers| numbers.0);
    let wires = options.chase.wires.clone().map_or(WIRES.to_vec(), |latencies| latencies.0);
    let bar = progress(depths.len() * outstanding.len() * wires.len() * options.rounds as usize);
    let mut measured = Ok(());
    'all: for depth in depths {
        for outstanding in &outstanding {
            // The times without a wire, for the formula.
            let mut bases: Option<Vec<Option<f64>>> = None;
            for wire in &wires {
                let step = Step::new(depth as u32, *outstanding, *wire, options.iterations);
                let (results, ended) = field.measure(&table, step, options.rounds, &bar, report);
                if *wire == 0 {
                    bases = Some(
                        results.iter().map(|one| one.as_ref().and_then(|one| one.series.median())).collect(),
                    );
                }
                report.rows.extend(rows::rows(&field.all, &results, step, bases.as_deref(), &table));
                if ended.is_err() {
                    measured = ended;
                    break 'all;
                }
            }
        }
    }
    bar.finish_and_clear();
    measured.and_then(|()| field.end())
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

impl Contestants {
    /// Measures all contestants in a step. Returns the rounds that all have, and the reason why there are no more.
    fn measure(
        &mut self,
        table: &Table,
        step: Step,
        rounds: u32,
        bar: &ProgressBar,
        report: &mut Report,
    ) -> (Vec<Option<Measured>>, Result<(), Failure>) {
        let mut results: Vec<Option<Measured>> = self.all.iter().map(|_| None).collect();
        for round in 1..=rounds {
            let Step { depth, outstanding, wire, chases } = step;
            bar.set_message(format!("depth {depth}, {outstanding} at a time, {wire} ns, round {round}"));
            // Most contestants end with this process alone.
            if let Err(failure) = check_signals() {
                return (results, Err(failure));
            }
            report.rounds.push(RoundState::of(message::LEN, round, None));
            let chases = table.chases(depth, chases, round);
            let chases = Chases { chases: &chases, outstanding, log2: table.log2() };
            for (one, result) in self.all.iter_mut().zip(&mut results) {
                match one.measure(&self.server, &chases, wire) {
                    Ok(None) => {}
                    Ok(Some(timed)) => {
                        if let Err(failure) = add(result, timed) {
                            return (results, Err(failure));
                        }
                    }
                    Err(failure) => {
                        let why = format!("{}: {failure}", one.name);
                        return (results, Err(Failure::new(why)));
                    }
                }
            }
            bar.inc(1);
        }
        (results, Ok(()))
    }
}

fn add(result: &mut Option<Measured>, timed: Timed) -> Result<(), Failure> {
    let measured = match result {
        Some(measured) => measured,
        None => result.insert(Measured { series: Series::new()?, messages: Vec::new() }),
    };
    measured.messages.push(timed.messages);
    measured.series.add(Round::timed(timed.us, timed.singles));
    Ok(())
}

impl Measured {
    /// Returns the messages of a chase.
    pub(in crate::perf) fn messages(&self) -> Option<f64> {
        median(&self.messages)
    }
}

impl Contestant {
    /// Runs these chases over a wire. Returns nothing where the contestant is missing.
    fn measure(&mut self, server: &Server, chases: &Chases<'_>, wire: u64) -> Result<Option<Timed>, Failure> {
        let Ok(Player { client, shards, handled }) = &mut self.player else { return Ok(None) };
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
        Ok(Some(timed))
    }
}
