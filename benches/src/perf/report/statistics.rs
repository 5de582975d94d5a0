//! Results over the rounds: values, their ratios, and the times of single calls.

use std::collections::BTreeMap;
use std::time::Duration;

use hdrhistogram::Histogram;

use super::key::Key;
use crate::program::failure::Failure;

/// Longest time that a histogram holds, in nanoseconds.
const LONGEST: u64 = 60_000_000_000;

/// The values of one case, one a round, and its single calls.
pub(in crate::perf) struct Series {
    rounds: Vec<f64>,
    singles: Histogram<u64>,
    /// Further figures, one a round.
    figures: BTreeMap<Key, Vec<f64>>,
}

/// One round's value, in the metric's unit, and single calls in nanoseconds.
pub(in crate::perf) struct Round {
    pub(in crate::perf) value: f64,
    pub(in crate::perf) singles: Vec<u64>,
    /// Further figures.
    pub(in crate::perf) figures: Vec<(Key, f64)>,
}

impl Round {
    /// Returns a round with only a value.
    pub(in crate::perf) fn of(value: f64) -> Round {
        Round::timed(value, Vec::new())
    }

    /// Returns a round with a value, and single calls in nanoseconds.
    pub(in crate::perf) fn timed(value: f64, singles: Vec<u64>) -> Round {
        Round { value, singles, figures: Vec::new() }
    }

    /// Returns the round with further figures.
    pub(in crate::perf) fn with(mut self, figures: impl IntoIterator<Item = (Key, f64)>) -> Round {
        self.figures.extend(figures);
        self
    }
}

/// Times of single calls, in microseconds.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(in crate::perf) struct Percentiles {
    pub(in crate::perf) p50: f64,
    pub(in crate::perf) p99: f64,
    pub(in crate::perf) p999: f64,
    pub(in crate::perf) max: f64,
}

/// The ratio of two cases over the rounds.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(in crate::perf) struct Ratio {
    pub(in crate::perf) median: f64,
    pub(in crate::perf) min: f64,
    pub(in crate::perf) max: f64,
}

impl Series {
    pub(in crate::perf) fn new() -> Result<Series, Failure> {
        let singles = Histogram::new_with_bounds(1, LONGEST, 3)
            .map_err(|error| Failure::new(format!("there is no histogram for times: {error}")))?;
        Ok(Series { rounds: Vec::new(), singles, figures: BTreeMap::new() })
    }

    pub(in crate::perf) fn add(&mut self, round: Round) {
        self.rounds.push(round.value);
        for (key, figure) in round.figures {
            self.figures.entry(key).or_default().push(figure);
        }
        for single in round.singles {
            self.singles.saturating_record(single);
        }
    }

    /// Returns these rounds with a time added to each, without single calls.
    pub(in crate::perf) fn plus(&self, time: f64) -> Result<Series, Failure> {
        let mut sum = Series::new()?;
        self.rounds.iter().for_each(|round| sum.add(Round::of(round + time)));
        Ok(sum)
    }

    /// Returns the median of the rounds; `None` before the first.
    pub(in crate::perf) fn median(&self) -> Option<f64> {
        median(&self.rounds)
    }

    /// Returns the median of a further figure over the rounds that have it.
    pub(in crate::perf) fn figure(&self, key: Key) -> Option<f64> {
        median(self.figures.get(&key)?)
    }

    /// Returns the medians of all further figures.
    pub(in crate::perf) fn figures(&self) -> impl Iterator<Item = (Key, f64)> {
        self.figures.iter().filter_map(|(key, figures)| Some((*key, median(figures)?)))
    }

    /// Returns `None` where no calls were timed one by one.
    pub(in crate::perf) fn percentiles(&self) -> Option<Percentiles> {
        let at = |percentile| self.singles.value_at_percentile(percentile) as f64 / 1e3;
        (!self.singles.is_empty()).then(|| Percentiles {
            p50: at(50.0),
            p99: at(99.0),
            p999: at(99.9),
            max: self.singles.max() as f64 / 1e3,
        })
    }

    /// Returns the ratio to a baseline, over the rounds that both have.
    pub(in crate::perf) fn ratio(&self, baseline: &Series) -> Option<Ratio> {
        let pairs = self.rounds.iter().zip(&baseline.rounds);
        let ratios: Vec<f64> =
            pairs.map(|(own, other)| own / other).filter(|ratio| ratio.is_finite()).collect();
        Some(Ratio {
            median: median(&ratios)?,
            min: ratios.iter().copied().reduce(f64::min)?,
            max: ratios.iter().copied().reduce(f64::max)?,
        })
    }
}

/// Returns the middle one; of an even number the mean of the two.
pub(in crate::perf) fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let upper = *sorted.get(sorted.len() / 2)?;
    match sorted.len() % 2 {
        0 => Some((sorted[sorted.len() / 2 - 1] + upper) / 2.0),
        _ => Some(upper),
    }
}

/// Returns the median time of one call, in nanoseconds, where each of `times` covers `batch` calls.
pub(in crate::perf) fn median_call(times: &[Duration], batch: u32) -> f64 {
    let times: Vec<f64> = times.iter().map(|time| time.as_nanos() as f64 / f64::from(batch)).collect();
    median(&times).unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn series(values: &[f64]) -> Series {
        let mut series = Series::new().expect("the bounds are right");
        values.iter().for_each(|value| series.add(Round::of(*value)));
        series
    }

    #[test]
    fn ratios_are_taken_within_rounds_and_not_of_medians() {
        // A machine that slows down by ten: both medians are 20, and each round has its own ratio.
        let (own, baseline) = (series(&[2.0, 20.0, 40.0]), series(&[4.0, 20.0, 20.0]));
        assert_eq!((own.median(), baseline.median()), (Some(20.0), Some(20.0)));
        assert_eq!(own.ratio(&baseline), Some(Ratio { median: 1.0, min: 0.5, max: 2.0 }));
    }

    #[test]
    fn a_run_that_was_cut_short_has_the_rounds_that_both_have() {
        let (own, baseline) = (series(&[1.0, 2.0]), series(&[2.0]));
        assert_eq!(own.ratio(&baseline), Some(Ratio { median: 0.5, min: 0.5, max: 0.5 }));
        assert_eq!(own.ratio(&series(&[])), None);
        assert_eq!(own.ratio(&series(&[0.0, 0.0])), None);
    }

    #[test]
    fn percentiles_are_of_single_calls_in_microseconds() {
        let mut series = Series::new().expect("the bounds are right");
        assert_eq!(series.percentiles(), None);
        let singles = (1..=1000).map(|n| n * 1000).collect();
        series.add(Round::timed(0.0, singles));
        let all = series.percentiles().expect("there are some");
        for (is, should) in [(all.p50, 500.0), (all.p99, 990.0), (all.p999, 999.0), (all.max, 1000.0)] {
            assert!((is - should).abs() <= should / 500.0, "{is} {should}");
        }
    }

    #[test]
    fn the_median_call_does_not_see_one_batch_that_was_held_up() {
        let times = [64, 64, 64, 640_000].map(Duration::from_nanos);
        assert_eq!(median_call(&times, 64), 1.0);
        assert_eq!(median(&[1.0, 2.0]), Some(1.5));
        assert_eq!(median(&[]), None);
    }
}
