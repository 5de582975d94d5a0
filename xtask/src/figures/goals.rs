//! Judges the bounds on figures from the rows alone; `figures.toml` lists them.

use serde::Deserialize;
use serde_json::Value;

use super::section_file::{Kept, Row};

/// A bound on a column of a section's rows.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Bound {
    /// The section. This field and the next three select rows.
    section: String,
    metric: String,
    transport: String,
    reference: String,
    /// The first and the last of the payload sizes; all by default.
    sizes: Option<(u64, u64)>,
    /// Number of sources, where a row has it.
    sources: Option<u64>,
    /// The mode; all by default.
    mode: Option<String>,
    /// True if the bound is on figures with the time of a modelled network, false if on others; both by default.
    modelled: Option<bool>,
    /// True if the bound is only on data from the length on that arithmetic gives for each row.
    #[serde(default)]
    from_arithmetic: bool,
    /// The bounded column.
    #[serde(default)]
    of: Of,
    /// The limit for processors that are near, or neither near nor far. A bound has one of these two.
    at_most: Option<f64>,
    at_least: Option<f64>,
    /// The limit for processors that are far, if it differs.
    far: Option<f64>,
}

/// The column that a bound is on.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Of {
    #[default]
    Ratio,
    /// Work requests for each message.
    Requests,
    /// Completions for each message.
    Completions,
}

/// Verdict on a bound.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Verdict {
    /// Every row is within the bound; the worst of them.
    Reached(String),
    /// Some row is not within the bound; the worst of all, and the number of those that are.
    NotReached { worst: String, within: usize, of: usize },
    /// There are no rows with figures, for this reason.
    NotMeasured(String),
}

impl Bound {
    /// The limit for near processors.
    fn near(&self) -> f64 {
        self.at_most.or(self.at_least).unwrap_or(f64::NAN)
    }

    /// The selected rows as text, without their baseline.
    pub(crate) fn rows(&self) -> String {
        let mut parts = vec![format!("`{}`", self.section), format!("`{}`", self.transport)];
        parts.extend(self.sizes.map(|(first, last)| match first {
            first if first == last => bytes(last),
            0 => format!("to {}", bytes(last)),
            first => format!("{}..{}", bytes(first), bytes(last)),
        }));
        parts.extend(self.sources.map(|sources| format!("`{}` of {sources} sources", self.metric)));
        if self.from_arithmetic {
            parts.push("from `ahead_from`".to_owned());
        }
        match self.of {
            Of::Ratio => {}
            Of::Requests => parts.push("requests".to_owned()),
            Of::Completions => parts.push("completions".to_owned()),
        }
        parts.join(", ")
    }

    /// The bound and its baseline as text.
    pub(crate) fn limit(&self) -> String {
        let (sign, near) = (if self.at_most.is_some() { '≤' } else { '≥' }, self.near());
        let unit = match self.of {
            Of::Ratio => format!("`{}`", self.reference),
            Of::Requests | Of::Completions => "a message".to_owned(),
        };
        let far = self.far.map(|far| format!(", far {far}")).unwrap_or_default();
        format!("{sign} {near} {unit}{far}")
    }

    /// Judges the bound by the measured rows.
    pub(crate) fn judge(&self, runs: &[Kept]) -> Verdict {
        let Some(run) = runs.iter().find(|run| run.section == self.section) else {
            return Verdict::NotMeasured(format!("section {} was not run", self.section));
        };
        let rows = run.rows().unwrap_or_default();
        let rows: Vec<_> = rows.into_iter().filter(|row| self.is_about(row)).collect();
        let judged: Vec<_> = rows.iter().filter_map(|row| Some((row, self.excess(row)?))).collect();
        let Some((worst, excess)) = judged.iter().copied().max_by(|one, other| one.1.total_cmp(&other.1))
        else {
            let why = rows.iter().find_map(|row| row.missing.clone()).or_else(|| run.failed.clone());
            return Verdict::NotMeasured(why.unwrap_or_else(|| "no row is about it".to_owned()));
        };
        let within = judged.iter().filter(|(_, excess)| *excess <= 1.0).count();
        let worst = self.shown(worst, judged.len() > 1);
        match excess <= 1.0 {
            true => Verdict::Reached(worst),
            false => Verdict::NotReached { worst, within, of: judged.len() },
        }
    }

    fn is_about(&self, row: &Row) -> bool {
        let is_sized = |size: u64| self.sizes.is_none_or(|(first, last)| (first..=last).contains(&size));
        row.metric == self.metric
            && row.subject == "farjump"
            && row.transport.as_ref() == Some(&self.transport)
            && row.reference.as_ref() == Some(&self.reference)
            && row.size.is_none_or(is_sized)
            && self.sources.is_none_or(|sources| row.sources == Some(sources))
            && self.mode.as_ref().is_none_or(|mode| row.mode.as_ref() == Some(mode))
            && self
                .modelled
                .is_none_or(|modelled| row.others.get("wire_us").is_some_and(Value::is_number) == modelled)
            && (!self.from_arithmetic || is_from_arithmetic(row))
    }

    /// The bounded column of a row.
    fn value(&self, row: &Row) -> Option<f64> {
        match self.of {
            Of::Ratio => row.ratio,
            Of::Requests => row.others.get("requests")?.as_f64(),
            Of::Completions => row.others.get("completions")?.as_f64(),
        }
    }

    /// A row's value, with the spread of a ratio, its size if there are several, and its state.
    fn shown(&self, row: &Row, with_size: bool) -> String {
        let value = match self.of {
            Of::Ratio => ratio(row),
            Of::Requests | Of::Completions => self.value(row).map(|value| format!("{value:.4}")),
        };
        let size = row.size.filter(|_| with_size).map(bytes);
        value.into_iter().chain(size).chain(row.state.clone()).collect::<Vec<_>>().join(", ")
    }

    /// Factor by which a row exceeds its bound. Up to 1 the row keeps it.
    fn excess(&self, row: &Row) -> Option<f64> {
        let far = self.far.filter(|_| row.state.as_deref() == Some("far"));
        let limit = far.unwrap_or(self.near());
        let value = self.value(row)?;
        Some(if self.at_most.is_some() { value / limit } else { limit / value })
    }
}

/// Returns whether a row's data are at least as long as those from which farjump must be ahead.
fn is_from_arithmetic(row: &Row) -> bool {
    let from = row.others.get("ahead_from").and_then(Value::as_u64);
    from.zip(row.size).is_some_and(|(from, size)| size >= from)
}

/// A row's ratio with the smallest and the largest of the rounds.
fn ratio(row: &Row) -> Option<String> {
    let ratio = row.ratio?;
    Some(match (row.ratio_min, row.ratio_max) {
        (Some(min), Some(max)) => format!("{ratio:.2} ({min:.2}..{max:.2})"),
        _ => format!("{ratio:.2}"),
    })
}

/// A number of bytes in the largest unit that divides it.
fn bytes(bytes: u64) -> String {
    match bytes {
        0 => "0 B".to_owned(),
        bytes if bytes.is_multiple_of(1 << 20) => format!("{} MiB", bytes >> 20),
        bytes if bytes.is_multiple_of(1 << 10) => format!("{} KiB", bytes >> 10),
        bytes => format!("{bytes} B"),
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use serde_json::json;

    use super::super::section_file::tests::kept;
    use super::super::sections::{bounds, named};
    use super::*;

    /// Rows of a section that its bounds select, all of them out of bounds.
    pub(crate) fn out_of_bounds(section: &str) -> Vec<Value> {
        let rows = |bound: &Bound| {
            let (first, last) = bound.sizes.unwrap_or((8, 1 << 20));
            let value = if bound.at_most.is_some() { 99.0 } else { 0.01 };
            [first, last].map(|size| {
                json!({
                    "metric": bound.metric, "transport": bound.transport, "reference": bound.reference, "size": size,
                    "sources": bound.sources, "mode": bound.mode, "ratio": value, "requests": value,
                    "completions": value, "ahead_from": bound.from_arithmetic.then_some(0),
                    "wire_us": bound.modelled.filter(|modelled| *modelled).map(|_| 1.0),
                })
            })
        };
        bounds().iter().filter(|bound| bound.section == section).flat_map(rows).collect()
    }

    /// The bound on rates of up to 32 B against active messages: at least 4 near, 3 far.
    fn of_rate() -> &'static Bound {
        &bounds()[4]
    }

    fn rate(size: u64, ratio: f64, state: &str) -> serde_json::Value {
        json!({
            "metric": "rate", "reference": "ucx-am", "size": size, "ratio": ratio, "ratio_min": ratio - 0.5,
            "ratio_max": ratio + 0.5, "state": state,
        })
    }

    #[test]
    fn every_row_that_a_bound_is_about_has_to_reach_it() {
        let run = kept("rate-batch", &[rate(1, 5.0, "near"), rate(32, 4.0, "near"), rate(64, 1.0, "near")]);
        let verdict = of_rate().judge(&[run]);
        assert_eq!(verdict, Verdict::Reached("4.00 (3.50..4.50), 32 B, near".into()));
        let run = kept("rate-batch", &[rate(1, 5.0, "near"), rate(32, 3.9, "near")]);
        let verdict = of_rate().judge(&[run]);
        let worst = "3.90 (3.40..4.40), 32 B, near".to_owned();
        assert_eq!(verdict, Verdict::NotReached { worst, within: 1, of: 2 });
    }

    #[test]
    fn the_bound_depends_on_distance_and_middle_counts_as_near() {
        let reached = |state| {
            matches!(of_rate().judge(&[kept("rate-batch", &[rate(8, 3.5, state)])]), Verdict::Reached(_))
        };
        assert_eq!(["near", "middle", "far"].map(reached), [false, false, true]);
    }

    #[test]
    fn a_bound_from_above_is_missed_from_above() {
        let floor = &bounds()[0];
        let judge = |ratio: f64| floor.judge(&[kept("floor", &[json!({ "ratio": ratio })])]);
        assert!(matches!(judge(1.05), Verdict::Reached(_)));
        assert!(matches!(judge(1.06), Verdict::NotReached { .. }));
    }

    #[test]
    fn resident_data_are_judged_by_mode_and_fetches_from_the_crossing() {
        let row = |size: u64, mode: &str, reference: &str, wire_us: Option<f64>, ratio: f64| {
            json!({
                "metric": "work", "function": "list", "size": size, "mode": mode, "reference": reference,
                "wire_us": wire_us, "ahead_from": wire_us.map(|_| 12_625), "ratio": ratio,
            })
        };
        let rows = [
            row(4096, "cached", "ucx-am", None, 1.05),
            row(4096, "always", "ucx-am", None, 9.0),
            row(4096, "cached", "ucx-am", Some(1.0), 8.0),
            row(4096, "cached", "fetch", None, 7.0),
            row(4096, "cached", "fetch", Some(1.0), 1.5),
            row(65536, "cached", "fetch", Some(1.0), 0.5),
        ];
        let verdict = |reference: &str| {
            let bound = |bound: &&Bound| bound.section == "resident" && bound.reference == reference;
            bounds().iter().find(bound).expect("it is listed").judge(&[kept("resident", &rows)])
        };
        assert!(matches!(verdict("ucx-am"), Verdict::Reached(said) if said.starts_with("1.05 ")));
        assert!(matches!(verdict("fetch"), Verdict::Reached(said) if said.starts_with("0.50 ")));
    }

    #[test]
    fn an_unmeasured_bound_is_reported_with_its_reason() {
        let why = |runs: &[Kept]| match of_rate().judge(runs) {
            Verdict::NotMeasured(why) => why,
            other => panic!("{other:?}"),
        };
        assert_eq!(why(&[]), "section rate-batch was not run");
        assert_eq!(why(&[kept("rate-batch", &[rate(64, 9.0, "near")])]), "no row is about it");
        let missing = json!({ "metric": "rate", "reference": "ucx-am", "ratio": null, "missing": "no UCX" });
        assert_eq!(why(&[kept("rate-batch", &[missing])]), "no UCX");
        let mut refused = kept("rate-batch", &[]);
        refused.failed = Some("it is not known".to_owned());
        assert_eq!(why(&[refused]), "it is not known");
    }

    #[test]
    fn a_devices_message_cost_is_judged_by_requests_and_not_ratio() {
        let row = |requests: f64| {
            json!({
                "metric": "rate", "transport": "verbs-write", "reference": "raw", "ratio": 9.0, "requests": requests, "size": 8,
            })
        };
        let bound = bounds().iter().find(|bound| bound.of == Of::Requests).expect("there is one");
        let verdict = |requests| bound.judge(&[kept("verbs-batch", &[row(requests)])]);
        assert_eq!(verdict(0.1), Verdict::Reached("0.1000, near".into()));
        assert!(matches!(verdict(0.126), Verdict::NotReached { .. }));
        let none = bound.judge(&[kept(
            "verbs-batch",
            &[json!({ "metric": "rate", "transport": "verbs-write", "reference": "raw" })],
        )]);
        assert!(matches!(none, Verdict::NotMeasured(_)), "{none:?}");
    }

    #[test]
    fn a_bound_for_many_sources_ignores_rows_of_fewer() {
        let row = |sources: u64, ratio: f64| json!({ "metric": "scaling-latency", "reference": "alone", "sources": sources, "ratio": ratio });
        let bound = &bounds()[12];
        let verdict = bound.judge(&[kept("scaling", &[row(2, 9.0), row(256, 1.1)])]);
        assert!(matches!(verdict, Verdict::Reached(_)), "{verdict:?}");
    }

    #[test]
    fn a_bound_is_shown_by_its_rows_limit_and_baseline() {
        let shown = |number: usize| (bounds()[number].rows(), bounds()[number].limit());
        let of = |rows: &str, limit: &str| (rows.to_owned(), limit.to_owned());
        assert_eq!(shown(1), of("`latency`, `shm`, to 1 KiB", "≤ 0.4 `ucx-am`, far 0.6"));
        assert_eq!(shown(6), of("`rate`, `shm`, 64 B..1 KiB", "≥ 1.5 `ucx-am`"));
        assert_eq!(shown(7), of("`bandwidth`, `shm`, 1 MiB", "≥ 0.9 `memcpy`"));
        assert_eq!(shown(12), of("`scaling`, `shm`, `scaling-latency` of 256 sources", "≤ 1.2 `alone`"));
        assert_eq!(shown(16), of("`verbs-batch`, `verbs-write`, requests", "≤ 0.125 a message"));
    }

    #[test]
    fn every_bound_is_about_a_section_that_measures_it() {
        for bound in bounds() {
            let section = named(&bound.section).expect("it is a section")[0];
            let mut words = section.run.split([' ', ',']);
            assert!(bound.metric.starts_with(words.next().expect("a metric")), "{bound:?}");
            assert!(words.any(|word| word == bound.reference) || bound.reference == "alone", "{bound:?}");
            assert!(bound.at_most.is_some() != bound.at_least.is_some(), "{bound:?}");
        }
    }
}
