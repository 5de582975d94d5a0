//! The output of `perf`: rows as text, as JSON and as CSV.

pub(super) mod key;
pub(super) mod metric;
pub(super) mod network_crossings;
pub(super) mod payload_size;
pub(super) mod picture_file;
pub(super) mod plot;
pub(super) mod progress;
pub(super) mod row;
pub(super) mod statistics;
mod table;

use std::collections::BTreeSet;

use serde::Serialize;

use super::machine::{CoreDistance, Machine, Placement};
use super::options::Perf;
use crate::perf::options::image;
use crate::perf::report::key::Key;
use crate::perf::report::row::Row;
use crate::program::failure::Failure;
use crate::program::output;
use crate::program::units::counted;

/// The whole report, as `--json` prints it.
#[derive(Serialize)]
pub(super) struct Report {
    pub(super) machine: Machine,
    pub(super) rounds: Vec<RoundState>,
    pub(super) rows: Vec<Row>,
}

/// The distance of the processors at the start of a round.
#[derive(Clone, Debug, Serialize)]
pub(super) struct RoundState {
    pub(super) size: usize,
    pub(super) round: u32,
    /// `None` where the target is elsewhere: it is unknown.
    pub(super) line_ns: Option<f64>,
    pub(super) state: Option<CoreDistance>,
    /// The processors of both processes, if the system chose them.
    pub(super) placement: Option<Placement>,
}

impl RoundState {
    /// Classifies a line's time one way, in nanoseconds, if it is known.
    pub(super) fn of(size: usize, round: u32, line_ns: Option<f64>) -> RoundState {
        RoundState { size, round, line_ns, state: line_ns.map(CoreDistance::of), placement: None }
    }
}

impl Report {
    pub(super) fn print(&self, options: &Perf) -> Result<(), Failure> {
        let failed =
            |error: &dyn std::fmt::Display| Failure::new(format!("the rows cannot be written: {error}"));
        if options.json {
            let text = serde_json::to_string_pretty(self).map_err(|error| failed(&error))?;
            return output::print_line(text);
        }
        if options.csv {
            return output::print(table::csv(&self.rows).map_err(|error| failed(&error))?);
        }
        output::print(self.to_text(options))
    }

    /// Returns the processors of both processes, if the system chose them.
    fn placements(&self) -> String {
        let placements: Vec<_> = self.rounds.iter().filter_map(|round| round.placement.as_ref()).collect();
        if placements.is_empty() {
            return String::new();
        }
        let list = |of: fn(&Placement) -> &BTreeSet<usize>| {
            let all: BTreeSet<usize> =
                placements.iter().flat_map(|placement| of(placement)).copied().collect();
            all.iter().map(usize::to_string).collect::<Vec<_>>().join(" and ")
        };
        let shared = placements.iter().filter(|placement| placement.is_shared()).count();
        format!(
            "source on processors {}, target on {}; they shared one in {shared} of {} rounds\n",
            list(|placement| &placement.source),
            list(|placement| &placement.target),
            placements.len()
        )
    }

    fn to_text(&self, options: &Perf) -> String {
        let Machine { processor, kernel, source_cpu, ucx, ucx_tls, .. } = &self.machine;
        let source = source_cpu.map_or("any processor".to_owned(), |cpu| format!("processor {cpu}"));
        let target = match (&self.machine.target_cpu, &self.machine.peer) {
            (_, Some(peer)) => format!("at {peer}"),
            (Some(cpu), None) => format!("on {cpu}"),
            (None, None) => "on any".to_owned(),
        };
        let ucx = match (ucx, ucx_tls) {
            (Some(version), Some(tls)) => format!(", UCX {version} (UCX_TLS={tls})"),
            (Some(version), None) => format!(", UCX {version}"),
            (None, _) => String::new(),
        };
        let mut text = format!(
            "{processor}, Linux {kernel}{ucx}; source on {source}, target {target}\n\
             {} in {}, medians of {}\n",
            options.metric.name(),
            options.metric.unit(),
            counted(options.rounds.into(), "round")
        );
        text += &table::table(&self.rows);
        text += &self.placements();
        let mut said = BTreeSet::new();
        for row in &self.rows {
            if let Some(why) = &row.missing {
                let line = format!("{}: {why}\n", row.what_is_missing());
                if said.insert(line.clone()) {
                    text += &line;
                }
            }
            if let Some(agrees) = row.flag(Key::Agrees) {
                let verdict = if agrees { "agree within 15 %" } else { "differ by more than 15 %" };
                text += &format!("{} and ucx_perftest, {} B: {verdict}\n", row.subject, row.size());
            }
        }
        for row in &self.rows {
            let line = row.what_was_posted();
            text += line.filter(|line| said.insert(line.clone())).as_deref().unwrap_or_default();
        }
        for sentence in
            image::crossings(&self.rows).into_iter().chain(network_crossings::crossings(&self.rows))
        {
            text += &sentence;
            text.push('\n');
        }
        text
    }
}
