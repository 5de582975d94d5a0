//! The results of one number of sources, beside those of one source with a target of its own, and their rows.

use farjump::Mode;

use super::rss::Resident;
use super::sources::Streamed;
use crate::perf::machine::CoreDistance;
use crate::perf::report::metric::Against;
use crate::perf::report::row::Row;
use crate::perf::report::statistics::{Round, Series, median};
use crate::program::failure::Failure;

/// One statistic, of the many sources and of the one.
struct Beside {
    many: Series,
    alone: Series,
}

impl Beside {
    fn new() -> Result<Beside, Failure> {
        Ok(Beside { many: Series::new()?, alone: Series::new()? })
    }

    fn add(&mut self, many: Round, alone: Round) {
        self.many.add(many);
        self.alone.add(alone);
    }
}

/// The rounds of one number of sources.
pub(super) struct Step {
    latency: Beside,
    turn: Beside,
    rate: Beside,
    cpu_target: Vec<f64>,
    cpu_source: Vec<f64>,
    lines: Vec<f64>,
}

/// The results of one round, first of many sources, then of the one.
pub(super) struct Measured {
    pub(super) line_ns: f64,
    pub(super) latency: [Round; 2],
    pub(super) turn: [Round; 2],
    pub(super) rate: [Streamed; 2],
}

/// The common cells of a step's rows.
pub(super) struct About<'a> {
    pub(super) transport: &'a str,
    pub(super) rule_and_lane: (Option<String>, Option<String>),
    pub(super) sources: usize,
    pub(super) size: usize,
    /// Calls for the latency, messages for the rate, calls for the turn.
    pub(super) iterations: [u32; 3],
    pub(super) memory: Option<Resident>,
    pub(super) missing: Option<String>,
    /// Bytes of a mailbox.
    pub(super) ring: usize,
}

impl Step {
    pub(super) fn new() -> Result<Step, Failure> {
        Ok(Step {
            latency: Beside::new()?,
            turn: Beside::new()?,
            rate: Beside::new()?,
            cpu_target: Vec::new(),
            cpu_source: Vec::new(),
            lines: Vec::new(),
        })
    }

    pub(super) fn add(&mut self, measured: Measured) {
        let Measured { line_ns, latency: [latency, latency_alone], turn: [turn, turn_alone], rate } =
            measured;
        self.latency.add(latency, latency_alone);
        self.turn.add(turn, turn_alone);
        let [many, alone] = rate;
        self.rate.add(Round::of(many.rate), Round::of(alone.rate));
        self.cpu_target.push(many.cpu_target);
        self.cpu_source.push(many.cpu_source);
        self.lines.push(line_ns);
    }

    /// Returns a row for each statistic.
    pub(super) fn rows(&self, about: &About<'_>) -> [Row; 3] {
        let [latency, rate, turn] = about.iterations;
        let row = |metric, unit, iterations, beside: &Beside| Row {
            metric,
            unit,
            subject: "farjump",
            transport: Some(about.transport.to_owned()),
            mode: Some(Mode::Cached.name()),
            arrival: about.rule_and_lane.0.clone(),
            lane: about.rule_and_lane.1.clone(),
            size: about.size,
            iterations,
            reference: Some(Against::Alone.name()),
            state: median(&self.lines).map(CoreDistance::of),
            missing: about.missing.clone(),
            sources: Some(about.sources as u32),
            peer_bytes: about.memory.map(|memory| memory.own),
            mailbox_bytes: about.memory.map(|memory| memory.shared),
            ring: Some(about.ring),
            ..Row::beside(&beside.many, Some(&beside.alone))
        };
        [
            row("scaling-latency", "us", latency, &self.latency),
            Row {
                cpu_ns_target: median(&self.cpu_target),
                cpu_ns_source: median(&self.cpu_source),
                ..row("scaling-rate", "million/s", rate, &self.rate)
            },
            row("scaling-turn", "us", turn, &self.turn),
        ]
    }
}
