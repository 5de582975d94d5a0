//! Rows of resident data: as measured, and with the time of a modelled network added.

use farjump::placement::{Traffic, Wire};

use super::query::{NODE_HEAD, Query, STEPS};
use crate::perf::experiments::experiment::Outcome;
use crate::perf::report::key::Key;
use crate::perf::report::metric::Against;
use crate::perf::report::network_crossings::SHORT;
use crate::perf::report::row::Row;
use crate::program::failure::Failure;

/// The modelled networks, whose times are added to the measured ones: latencies of 0, 1 and 5 us.
const WIRES: [Wire; 3] = [Wire::with_latency(0.0), Wire::with_latency(1.0), Wire::with_latency(5.0)];

/// farjump's call of a function on data of one length, to be modelled over networks.
pub(super) struct Call<'a> {
    pub(super) query: Query,
    pub(super) size: usize,
    /// Bytes of code in each message.
    pub(super) code: usize,
    pub(super) own: &'a Outcome,
    /// The baseline that computes here, on data that it loads.
    pub(super) here: &'a Outcome,
    /// The time of the call without the function.
    pub(super) overhead_us: Option<f64>,
}

/// Returns the time of a call without the function, which shows in data up to [`SHORT`].
pub(super) fn overhead_us(size: usize, own: &Outcome, here: &Outcome) -> Option<f64> {
    let (call, here) = (own.series.median()?, here.series.median()?);
    (size <= SHORT).then(|| (call - here).max(0.0))
}

impl Call<'_> {
    /// Returns the rows over each network beside those of these baselines that are modelled. `described` has the other
    /// parameters.
    pub(super) fn rows(
        &self,
        described: &Row,
        baselines: &[(Against, &Outcome)],
    ) -> Result<Vec<Row>, Failure> {
        let pairs = WIRES.iter().flat_map(|wire| baselines.iter().map(move |beside| (*wire, *beside)));
        pairs.filter_map(|(wire, beside)| self.row(wire, described.clone(), beside).transpose()).collect()
    }

    fn row(
        &self,
        wire: Wire,
        described: Row,
        (against, beside): (Against, &Outcome),
    ) -> Result<Option<Row>, Failure> {
        let job = self.query.jobs(self.size).nth(0);
        let line = Traffic::of_call(job.args.len(), job.result.len());
        let call = Traffic { bytes: line.bytes + self.code, ..line };
        let (measured, traffic, ahead_from) = match against {
            Against::UcxAm => (beside, line, None),
            Against::Fetch => {
                let ahead = |overhead| wire.ahead_from(overhead, call, steps(self.query));
                let fetch = quicker_fetch(self.query, self.size, wire);
                (self.here, fetch, self.overhead_us.and_then(ahead))
            }
            _ => return Ok(None),
        };
        let missing = self.own.missing.clone().or_else(|| measured.missing.clone());
        let own = self.own.series.plus(wire.time_us(call))?;
        let reference = measured.series.plus(wire.time_us(traffic))?;
        let row = Row { reference: Some(against.name()), missing, ..described }
            .with(Key::WireUs, wire.latency_us)
            .with(Key::WireGbS, wire.gigabytes_per_second())
            .with(Key::ReferenceTrips, traffic.round_trips as u32)
            .with(Key::AheadFrom, ahead_from);
        Ok(Some(row.beside(&own, Some(&reference))))
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::perf::report::statistics::{Round, Series};

    #[test]
    fn a_modelled_row_adds_wire_time_and_has_the_computed_crossing() {
        let outcome = |us: f64| {
            let mut series = Series::new().expect("there is memory");
            series.add(Round::of(us));
            Outcome { series, missing: None }
        };
        let (own, here) = (outcome(3.0), outcome(1.0));
        assert_eq!(overhead_us(125_000, &own, &here), None, "the data are too long to tell");
        let overhead_us = overhead_us(SHORT, &own, &here);
        assert_eq!(overhead_us, Some(2.0));
        let code = 12_500 - 8 - 128;
        let call = Call { query: Query::Column, size: 125_000, code, own: &own, here: &here, overhead_us };
        let rows =
            |against| call.rows(&Row::default(), &[(against, &outcome(90.0))]).expect("there is memory");
        let figures = |row: &Row| {
            (row.figure(Key::WireUs), row.median, row.reference_median, row.number(Key::AheadFrom))
        };
        // The call has 12,500 bytes, the data 125,000: 1 and 10 us.
        let fetched = rows(Against::Fetch);
        assert_eq!(figures(&fetched[0]), (Some(0.0), Some(4.0), Some(11.0), Some(37_500)));
        assert_eq!(figures(&fetched[2]), (Some(5.0), Some(14.0), Some(21.0), Some(37_500)));
        assert_eq!((fetched.len(), rows(Against::RawFetch).len()), (3, 0));
        let unknown = Call { overhead_us: None, ..call }.rows(&Row::default(), &[(Against::Fetch, &here)]);
        assert_eq!(unknown.expect("there is memory")[0].number(Key::AheadFrom), None);
    }
}
