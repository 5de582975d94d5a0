//! Rows of resident data: as measured, and with the time of a modelled network added.

use std::collections::BTreeMap;

use farjump::Mode;
use farjump::placement::{Traffic, Wire};

use super::query::{NODE_HEAD, Query, STEPS};
use crate::perf::machine::CoreDistance;
use crate::perf::report::metric::{Against, Metric};
use crate::perf::report::payload_size::show_size;
use crate::perf::report::row::{Row, show, show_us};
use crate::perf::report::statistics::{Round, Series, median};
use crate::program::failure::Failure;

/// Most bytes of data with which the time of a call without the function shows: of longer data it is less than
/// two measurements differ.
const SHORT: usize = 64 << 10;

/// The modelled networks, whose times are added to the measured ones: latencies of 0, 1 and 5 us.
const WIRES: [Wire; 3] = [Wire::with_latency(0.0), Wire::with_latency(1.0), Wire::with_latency(5.0)];

/// The times of one way.
pub(super) struct Times {
    series: Series,
    /// Rounds in which fetching node after node was quicker, and all rounds.
    stepwise: (usize, usize),
    /// The reason why there are none.
    pub(super) missing: Option<String>,
}

impl Times {
    fn new() -> Result<Times, Failure> {
        Ok(Times { series: Series::new()?, stepwise: (0, 0), missing: None })
    }

    /// Adds a round's time of a call, in nanoseconds.
    pub(super) fn add(&mut self, time: f64, is_stepwise: bool) {
        self.series.add(Round::of(time / 1e3));
        self.stepwise.0 += usize::from(is_stepwise);
        self.stepwise.1 += 1;
    }
}

/// The times of all ways, for one function on data of one length.
pub(super) struct Measured {
    /// Times of a line one way, in nanoseconds, one a round.
    pub(super) lines: Vec<f64>,
    pub(super) injected: Vec<Times>,
    pub(super) baselines: Vec<Times>,
}

/// The description of farjump's case.
#[derive(Clone)]
pub(super) struct About<'a> {
    pub(super) query: Query,
    pub(super) size: usize,
    pub(super) transport: &'a str,
    pub(super) mode: Mode,
    pub(super) arrival: String,
    pub(super) lane: Option<String>,
    pub(super) iterations: u32,
    pub(super) ring: usize,
    /// Bytes of code in each message.
    pub(super) code: usize,
}

impl Measured {
    pub(super) fn new(injected: usize, baselines: usize) -> Result<Measured, Failure> {
        let some = |count| (0..count).map(|_| Times::new()).collect::<Result<Vec<_>, _>>();
        Ok(Measured { lines: Vec::new(), injected: some(injected)?, baselines: some(baselines)? })
    }

    /// Returns the rows of farjump's case number `at`. `overhead_us` is the time of its call without the
    /// function, which the shortest data set if they are up to [`SHORT`].
    pub(super) fn rows(
        &self,
        at: usize,
        about: &About<'_>,
        baselines: &[(Against, Option<String>)],
        asked: &[Against],
        overhead_us: &mut Option<f64>,
    ) -> Result<Vec<Row>, Failure> {
        let own = &self.injected[at];
        // The last baseline computes here, on data that it loads.
        let here = self.baselines.last();
        if let (None, true, Some(call), Some(here)) = (
            *overhead_us,
            about.size <= SHORT,
            own.series.median(),
            here.and_then(|here| here.series.median()),
        ) {
            *overhead_us = Some((call - here).max(0.0));
        }
        let job = about.query.jobs(about.size).nth(0);
        let line = Traffic::of_call(job.args.len(), job.result.len());
        let call = Traffic { bytes: line.bytes + about.code, ..line };
        let describe = |against: Against, lane: &Option<String>, row: Row, missing: Option<String>| Row {
            metric: Metric::Work.name(),
            unit: Metric::Work.unit(),
            subject: "farjump",
            transport: Some(about.transport.to_owned()),
            mode: Some(about.mode.name()),
            arrival: Some(about.arrival.clone()),
            lane: about.lane.clone(),
            size: about.size,
            iterations: about.iterations,
            reference: Some(against.name()),
            reference_lane: lane.clone(),
            state: median(&self.lines).map(CoreDistance::of),
            missing,
            function: Some(about.query.name()),
            ring: Some(about.ring),
            target_sleeps: Some(false),
            ..row
        };
        let mut rows = Vec::new();
        let both = baselines.iter().zip(&self.baselines).filter(|((against, _), _)| asked.contains(against));
        for ((against, lane), times) in both.clone() {
            let missing = own.missing.clone().or_else(|| times.missing.clone());
            let trips = match against {
                Against::RawFetch => None,
                _ if times.stepwise.0 * 2 > times.stepwise.1 => Some(STEPS as u32),
                _ => times.series.median().map(|_| 1),
            };
            let row = Row { reference_trips: trips, ..Row::beside(&own.series, Some(&times.series)) };
            rows.push(describe(*against, lane, row, missing));
        }
        for wire in WIRES {
            let with_call = own.series.plus(wire.time_us(call))?;
            for ((against, _), times) in both.clone() {
                let (reference, trips, ahead_from, missing) = match (against, here) {
                    (Against::UcxAm, _) => {
                        (times.series.plus(wire.time_us(line))?, 1, None, times.missing.clone())
                    }
                    (Against::Fetch, Some(here)) => {
                        let fetch = quicker_fetch(about.query, about.size, wire);
                        let ahead = overhead_us
                            .and_then(|overhead| wire.ahead_from(overhead, call, steps(about.query)));
                        (
                            here.series.plus(wire.time_us(fetch))?,
                            fetch.round_trips as u32,
                            ahead,
                            here.missing.clone(),
                        )
                    }
                    _ => continue,
                };
                let row = Row {
                    wire_us: Some(wire.latency_us),
                    wire_gb_s: Some(wire.gigabytes_per_second()),
                    reference_trips: Some(trips),
                    ahead_from,
                    ..Row::beside(&with_call, Some(&reference))
                };
                rows.push(describe(*against, &None, row, own.missing.clone().or(missing)));
            }
        }
        Ok(rows)
    }
}

/// Returns the quicker fetch of `size` bytes of data over a modelled network.
fn quicker_fetch(query: Query, size: usize, wire: Wire) -> Traffic {
    let whole = Traffic::of_fetch(size);
    steps(query).map_or(whole, |steps| wire.quicker(whole, steps))
}

/// Returns the traffic of fetching only what the function reads, if that is less than the data.
fn steps(query: Query) -> Option<Traffic> {
    (query == Query::List).then(|| Traffic::of_steps(STEPS, NODE_HEAD))
}

/// Describes, for each function and each modelled network, the length of data from which farjump is ahead of a fetch,
/// as measured and by arithmetic.
pub(crate) fn crossings(rows: &[Row]) -> Vec<String> {
    let mut curves: BTreeMap<(usize, String), Vec<&Row>> = BTreeMap::new();
    let fetches = rows.iter().filter(|row| row.wire_us.is_some() && row.reference == Some("fetch"));
    let mut order: Vec<String> = Vec::new();
    for row in fetches.filter(|row| row.ratio.is_some()) {
        let (function, mode) = (row.function.unwrap_or_default(), row.mode.unwrap_or_default());
        let transport = row.transport.as_deref().unwrap_or_default();
        let wire = show_us(row.wire_us.unwrap_or_default());
        let name = format!("{function}, {transport}, {mode}, wire of {wire}");
        let number = order.iter().position(|known| *known == name).unwrap_or_else(|| {
            order.push(name.clone());
            order.len() - 1
        });
        curves.entry((number, name)).or_default().push(row);
    }
    let said = |((_, name), rows): (&(usize, String), &Vec<&Row>)| {
        let behind = rows.iter().rposition(|row| row.ratio >= Some(1.0));
        let measured = match behind {
            None => "at every length".to_owned(),
            Some(last) => match rows.get(last + 1) {
                Some(row) => format!("from {} on", show_size(row.size)),
                None => "at no length".to_owned(),
            },
        };
        let due = match rows.first().map(|row| (row.size, row.ahead_from)) {
            Some((_, Some(bytes))) => format!("from {} KiB on", show(bytes as f64 / 1024.0)),
            Some((size, None)) if size > SHORT => {
                format!("not known, as no data of {} or less were measured", show_size(SHORT))
            }
            _ => "never".to_owned(),
        };
        format!("{name}: farjump is ahead of the fetch {measured}; by arithmetic {due}")
    };
    curves.iter().map(said).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(size: usize, ratio: f64, ahead_from: Option<u64>) -> Row {
        Row {
            transport: Some("shm".to_owned()),
            mode: Some("cached"),
            function: Some("column"),
            reference: Some("fetch"),
            wire_us: Some(1.0),
            size,
            ratio: Some(ratio),
            ahead_from,
            ..Row::default()
        }
    }

    #[test]
    fn the_crossing_is_where_farjump_is_ahead_from_then_on() {
        let said = |ratios: [f64; 3], ahead_from| {
            let sizes = [4096, 65536, 1 << 20];
            let mut rows: Vec<_> =
                sizes.into_iter().zip(ratios).map(|(size, ratio)| row(size, ratio, ahead_from)).collect();
            // Neither is about a fetch over a network.
            rows.push(Row { wire_us: None, ..row(4096, 9.0, None) });
            rows.push(Row { reference: Some("ucx-am"), ..row(4096, 9.0, None) });
            crossings(&rows).join("; ")
        };
        let name = "column, shm, cached, wire of 1 us: farjump is ahead of the fetch";
        let from = Some(12_800);
        assert_eq!(
            said([1.5, 0.9, 0.1], from),
            format!("{name} from 64K on; by arithmetic from 12.50 KiB on")
        );
        assert_eq!(
            said([0.5, 1.1, 0.1], from),
            format!("{name} from 1M on; by arithmetic from 12.50 KiB on")
        );
        assert_eq!(said([0.5, 0.9, 0.1], None), format!("{name} at every length; by arithmetic never"));
        assert_eq!(said([1.5, 1.9, 1.1], None), format!("{name} at no length; by arithmetic never"));
        let only_long = crossings(&[row(1 << 20, 0.5, None)]).join("; ");
        assert_eq!(
            only_long,
            format!(
                "{name} at every length; by arithmetic not known, as no data of 64K or less were measured"
            )
        );
        assert!(crossings(&[]).is_empty());
    }

    #[test]
    fn a_modelled_row_adds_wire_time_and_has_the_computed_crossing() {
        let mut measured = Measured::new(1, 2).expect("there is memory");
        measured.injected[0].add(3_000.0, false);
        measured.baselines[0].add(90_000.0, false);
        measured.baselines[1].add(1_000.0, false);
        let about = About {
            query: Query::Column,
            size: 125_000,
            transport: "shm",
            mode: Mode::Always,
            arrival: "stores".to_owned(),
            lane: None,
            iterations: 3,
            ring: 4096,
            code: 12_500 - 8 - 128,
        };
        let baselines = [(Against::Fetch, None), (Against::RawFetch, None)];
        let rows_of = |about: &About<'_>, overhead: &mut Option<f64>| {
            measured.rows(0, about, &baselines, &[Against::Fetch], overhead).expect("there is memory")
        };
        let mut overhead = None;
        assert_eq!(rows_of(&about, &mut overhead)[1].ahead_from, None);
        assert_eq!(overhead, None, "the data are too long to tell");
        rows_of(&About { size: SHORT, ..about.clone() }, &mut overhead);
        assert_eq!(overhead, Some(2.0));
        let rows = rows_of(&about, &mut overhead);
        let figures = |row: &Row| (row.wire_us, row.median, row.reference_median, row.ahead_from);
        assert_eq!(figures(&rows[0]), (None, Some(3.0), Some(90.0), None));
        // The call has 12,500 bytes, the data 125,000: 1 and 10 us.
        assert_eq!(figures(&rows[1]), (Some(0.0), Some(4.0), Some(11.0), Some(37_500)));
        assert_eq!(figures(&rows[3]), (Some(5.0), Some(14.0), Some(21.0), Some(37_500)));
        assert_eq!(rows.len(), 4);
    }
}
