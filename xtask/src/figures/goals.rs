//! Judges the bounds on figures from the rows alone; `figures.toml` lists them.

use serde::Deserialize;
use serde_json::Value;

use super::section_file::{Kept, Row};

/// A bound on a column of a section's rows.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Bound {
    pub(crate) what: String,
    pub(crate) against: String,
    /// The section. This field and the next three select rows.
    section: String,
    metric: String,
    transport: String,
    reference: String,
    /// The first and the last of the payload sizes; all by default.
    #[serde(default = "any_size")]
    sizes: (u64, u64),
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

fn any_size() -> (u64, u64) {
    (0, u64::MAX)
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
    /// Every row keeps the bound; the worst of them.
    Reached(String),
    /// Some row does not keep the bound; the worst, and the number of rows that do.
    NotReached(String),
    /// There are no rows with figures, for this reason.
    NotMeasured(String),
}

impl Bound {
    /// The limit for near processors.
    fn near(&self) -> f64 {
        self.at_most.or(self.at_least).unwrap_or(f64::NAN)
    }

    /// The bound as text.
    pub(crate) fn limit(&self) -> String {
        let (sign, near) = (if self.at_most.is_some() { '≤' } else { '≥' }, self.near());
        match self.far {
            None => format!("{sign} {near}"),
            Some(far) => format!("{sign} {near} near, {sign} {far} far"),
        }
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
        let reached = judged.iter().filter(|(_, excess)| *excess <= 1.0).count();
        let mut said = self.shown(worst);
        if judged.len() > 1 {
            said = format!("{reached} of {} sizes; worst {said}", judged.len());
        }
        match excess <= 1.0 {
            true => Verdict::Reached(said),
            false => Verdict::NotReached(said),
        }
    }

    fn is_about(&self, row: &Row) -> bool {
        let (first, last) = self.sizes;
        row.metric == self.metric
            && row.subject == "farjump"
            && row.transport.as_ref() == Some(&self.transport)
            && row.reference.as_ref() == Some(&self.reference)
            && row.size.is_none_or(|size| (first..=last).contains(&size))
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

    /// A row's value, with the spread of a ratio, and the place of its measurement.
    fn shown(&self, row: &Row) -> String {
        let mut shown = match self.of {
            Of::Ratio => super::table::ratio(row),
            Of::Requests | Of::Completions => self.value(row).map(|value| format!("{value:.4}")),
        }
        .unwrap_or_default();
        if let Some(size) = row.size {
            shown += &format!(" at {}", super::table::bytes(size));
        }
        shown + &row.state.as_ref().map(|state| format!(", {state}")).unwrap_or_default()
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::section_file::tests::kept;
    use super::super::sections::{bounds, named};
    use super::*;

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
        assert_eq!(verdict, Verdict::Reached("2 of 2 sizes; worst 4.00 (3.50 to 4.50) at 32 B, near".into()));
        let run = kept("rate-batch", &[rate(1, 5.0, "near"), rate(32, 3.9, "near")]);
        let verdict = of_rate().judge(&[run]);
        assert_eq!(
            verdict,
            Verdict::NotReached("1 of 2 sizes; worst 3.90 (3.40 to 4.40) at 32 B, near".into())
        );
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
        assert!(matches!(judge(1.06), Verdict::NotReached(_)));
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
        assert_eq!(verdict(0.1), Verdict::Reached("0.1000 at 8 B, near".into()));
        assert!(matches!(verdict(0.126), Verdict::NotReached(_)));
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
    fn every_bound_is_about_a_section_that_measures_it() {
        for bound in bounds() {
            let section = named(&bound.section).expect("it is a section")[0];
            let mut words = section.run.split([' ', ',']);
            assert!(bound.metric.starts_with(words.next().expect("a metric")), "{}", bound.what);
            assert!(
                words.any(|word| word == bound.reference) || bound.reference == "alone",
                "{}",
                bound.what
            );
            assert!(bound.at_most.is_some() != bound.at_least.is_some(), "{}", bound.what);
        }
    }
}
