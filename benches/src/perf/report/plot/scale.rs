//! The axes: both logarithmic, bytes by octaves, figures by steps of 1, 2 and 5.

use std::ops::RangeInclusive;

use crate::perf::report::payload_size::show_size;

/// An axis: its range, as logarithms, and its marks.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Scale {
    low: f64,
    high: f64,
    base: f64,
    /// Position of 0, which has no logarithm.
    zero: f64,
    /// Values, with their labels.
    pub(super) marks: Vec<(f64, String)>,
}

impl Scale {
    /// Returns an axis of numbers of bytes, or others that double; 0 lies an octave below the least of the others.
    pub(super) fn octaves(values: impl Iterator<Item = u64> + Clone) -> Scale {
        let most = values.clone().max().unwrap_or(0);
        let Some(least) = values.clone().filter(|value| *value > 0).min() else {
            return Scale { low: -1.0, high: 1.0, base: 2.0, zero: 0.0, marks: vec![(0.0, "0".to_owned())] };
        };
        let has_zero = values.clone().any(|value| value == 0);
        let (first, last) = (least.ilog2(), (most as f64).log2().ceil() as u32);
        let zero = f64::from(first) - 1.0;
        let mut marks: Vec<_> =
            (first..=last.min(63)).map(|octave| ((1_u64 << octave) as f64, show_size(1 << octave))).collect();
        if has_zero {
            marks.insert(0, (0.0, "0".to_owned()));
        }
        let low = if has_zero { zero } else { f64::from(first) };
        // A single value stands in the middle.
        let (low, high) = match f64::from(last) {
            high if high > low => (low, high),
            high => (low - 1.0, high + 1.0),
        };
        Scale { low, high, base: 2.0, zero, marks }
    }

    /// Returns an axis of figures between two of these steps. The steps are marked, or if there are many only the
    /// powers of ten among them. Figures not above 0 have no position.
    pub(super) fn decades(figures: impl Iterator<Item = f64>) -> Scale {
        let shown = figures.filter(|figure| figure.is_finite() && *figure > 0.0);
        let (least, most) = shown
            .fold((f64::INFINITY, 0.0_f64), |(least, most), figure| (least.min(figure), most.max(figure)));
        let (least, most) = if least.is_finite() { (least, most) } else { (1.0, 1.0) };
        let steps = steps(least..=most);
        let many = steps.len() > 10;
        let low = steps.first().map_or(0.0, |step| step.value().log10());
        let high = steps.last().map_or(1.0, |step| step.value().log10());
        let marked = steps.iter().filter(|step| !many || step.digit == 1);
        let marks = marked.map(|step| (step.value(), step.to_string())).collect();
        Scale { low, high, base: 10.0, zero: low, marks }
    }

    /// Returns the position of a value along the axis: 0 at its start, 1 at its end.
    pub(super) fn place(&self, value: f64) -> f64 {
        let at = if value > 0.0 { value.log(self.base) } else { self.zero };
        ((at - self.low) / (self.high - self.low)).clamp(0.0, 1.0)
    }
}

/// 1, 2 or 5 times a power of ten.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Step {
    digit: u8,
    power: i32,
}

impl Step {
    fn value(self) -> f64 {
        f64::from(self.digit) * 10_f64.powi(self.power)
    }
}

impl std::fmt::Display for Step {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let digits = usize::try_from(-self.power).unwrap_or(0);
        write!(out, "{:.digits$}", self.value())
    }
}

/// Returns all steps in a range, with one at or below its start and a different one at or above its end.
fn steps(range: RangeInclusive<f64>) -> Vec<Step> {
    let (least, most) = (*range.start(), *range.end());
    let (first, last) = (least.log10().floor() as i32 - 1, most.log10().ceil() as i32 + 1);
    let all: Vec<Step> =
        (first..=last).flat_map(|power| [1, 2, 5].map(|digit| Step { digit, power })).collect();
    // A figure that differs from a step only by rounding is that step.
    let below = all.iter().rposition(|step| step.value() <= least * (1.0 + 1e-9)).unwrap_or(0);
    let above = all.iter().position(|step| step.value() >= most * (1.0 - 1e-9)).unwrap_or(all.len() - 1);
    match below < above {
        true => all[below..=above].to_vec(),
        false => all[below.saturating_sub(1)..=(below + 1).min(all.len() - 1)].to_vec(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(scale: &Scale) -> Vec<&str> {
        scale.marks.iter().map(|(_, name)| &**name).collect()
    }

    #[test]
    fn bytes_are_marked_by_octaves_and_lie_evenly() {
        let scale = Scale::octaves([1, 8, 1024, 1 << 20].into_iter());
        assert_eq!((scale.marks.len(), names(&scale)[10], names(&scale)[20]), (21, "1K", "1M"));
        assert_eq!([1.0, 1024.0, 1048576.0].map(|bytes| scale.place(bytes)), [0.0, 0.5, 1.0]);
    }

    #[test]
    fn no_bytes_at_all_lie_an_octave_below_the_least() {
        let scale = Scale::octaves([0, 8, 32].into_iter());
        assert_eq!(names(&scale), ["0", "8", "16", "32"]);
        assert_eq!([0.0, 8.0, 32.0].map(|bytes| scale.place(bytes)), [0.0, 1.0 / 3.0, 1.0]);
        assert_eq!(Scale::octaves([0].into_iter()).place(0.0), 0.5);
    }

    #[test]
    fn one_size_alone_stands_in_the_middle() {
        let scale = Scale::octaves([8].into_iter());
        assert_eq!((names(&scale), scale.place(8.0)), (vec!["8"], 0.5));
    }

    #[test]
    fn figures_lie_between_two_steps_and_each_step_is_named() {
        let scale = Scale::decades([0.06, 0.4].into_iter());
        assert_eq!(names(&scale), ["0.05", "0.1", "0.2", "0.5"]);
        assert_eq!(names(&Scale::decades([1.0, 1.0].into_iter())), ["0.5", "1", "2"]);
        assert_eq!(names(&Scale::decades([1200.0, 4000.0].into_iter())), ["1000", "2000", "5000"]);
        assert_eq!(names(&Scale::decades(std::iter::empty())), ["0.5", "1", "2"]);
    }

    #[test]
    fn many_steps_are_marked_by_powers_of_ten() {
        let scale = Scale::decades([0.003, 150.0].into_iter());
        assert_eq!(names(&scale), ["0.01", "0.1", "1", "10", "100"]);
        assert!(scale.place(0.002) < 1e-9 && scale.place(200.0) > 1.0 - 1e-9);
    }

    #[test]
    fn a_scale_ignores_values_that_are_not_positive_and_finite() {
        let scale = Scale::decades([0.0, f64::NAN, f64::INFINITY, 3.0].into_iter());
        assert_eq!(names(&scale), ["2", "5"]);
        assert_eq!(scale.place(-1.0), 0.0);
    }
}
