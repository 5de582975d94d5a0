//! A row of a report: the figure of one case, beside a baseline's if there is one.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::Value;

use super::key::Key;
use super::statistics::Series;
use crate::perf::experiments::work::resident::query::is_resident;
use crate::perf::machine::CoreDistance;

/// One figure beside one baseline.
#[derive(Clone, Debug, Default, Serialize)]
pub(in crate::perf) struct Row {
    pub(in crate::perf) metric: &'static str,
    pub(in crate::perf) unit: &'static str,
    /// `farjump`, or the baseline that is itself compared with another.
    pub(in crate::perf) subject: &'static str,
    /// Parameters and further figures, as far as they apply.
    #[serde(flatten)]
    pub(in crate::perf) more: BTreeMap<Key, Value>,
    pub(in crate::perf) median: Option<f64>,
    pub(in crate::perf) p50: Option<f64>,
    pub(in crate::perf) p99: Option<f64>,
    pub(in crate::perf) p999: Option<f64>,
    pub(in crate::perf) max: Option<f64>,
    /// `None` without a baseline.
    pub(in crate::perf) reference: Option<&'static str>,
    pub(in crate::perf) reference_median: Option<f64>,
    pub(in crate::perf) reference_p99: Option<f64>,
    pub(in crate::perf) ratio: Option<f64>,
    pub(in crate::perf) ratio_min: Option<f64>,
    pub(in crate::perf) ratio_max: Option<f64>,
    /// The machine's state, in the median of the rounds.
    pub(in crate::perf) state: Option<CoreDistance>,
    /// The reason why there are no figures.
    pub(in crate::perf) missing: Option<String>,
}

impl Row {
    /// Returns the row with the figures of one case, beside a baseline's if there is one.
    pub(in crate::perf) fn beside(self, own: &Series, reference: Option<&Series>) -> Row {
        let ratio = reference.and_then(|reference| own.ratio(reference));
        let (single, single_of_reference) = (own.percentiles(), reference.and_then(Series::percentiles));
        let row = Row {
            median: own.median(),
            p50: single.map(|single| single.p50),
            p99: single.map(|single| single.p99),
            p999: single.map(|single| single.p999),
            max: single.map(|single| single.max),
            reference_median: reference.and_then(Series::median),
            reference_p99: single_of_reference.map(|single| single.p99),
            ratio: ratio.map(|ratio| ratio.median),
            ratio_min: ratio.map(|ratio| ratio.min),
            ratio_max: ratio.map(|ratio| ratio.max),
            ..self
        };
        let row = row.with_all(own.figures().map(|(key, figure)| (key, figure.into())));
        row.with(Key::ReferenceMessages, reference.and_then(|reference| reference.figure(Key::Messages)))
    }

    /// Returns the row with a parameter or a further figure, if it has one.
    pub(in crate::perf) fn with(mut self, key: Key, value: impl Into<Value>) -> Row {
        match value.into() {
            Value::Null => {}
            value => {
                self.more.insert(key, value);
            }
        }
        self
    }

    /// Returns the row with these parameters.
    pub(in crate::perf) fn with_all(self, labels: impl IntoIterator<Item = (Key, Value)>) -> Row {
        labels.into_iter().fold(self, |row, (key, value)| row.with(key, value))
    }

    /// Returns a text; empty where it does not apply.
    pub(in crate::perf) fn text(&self, key: Key) -> &str {
        self.more.get(&key).and_then(Value::as_str).unwrap_or_default()
    }

    /// Returns a whole number, if it applies.
    pub(in crate::perf) fn number(&self, key: Key) -> Option<u64> {
        self.more.get(&key)?.as_u64()
    }

    /// Returns a number, if it applies.
    pub(in crate::perf) fn figure(&self, key: Key) -> Option<f64> {
        self.more.get(&key)?.as_f64()
    }

    /// Returns whether something holds, if it applies.
    pub(in crate::perf) fn flag(&self, key: Key) -> Option<bool> {
        self.more.get(&key)?.as_bool()
    }

    /// Returns the bytes of payload or data; 0 without any.
    pub(in crate::perf) fn size(&self) -> u64 {
        self.number(Key::Size).unwrap_or_default()
    }

    /// Returns whether it is about data at the target.
    pub(in crate::perf) fn is_resident(&self) -> bool {
        is_resident(self.text(Key::Function))
    }

    /// Names the modelled network; of resident data without one it is `plain`.
    pub(in crate::perf) fn shown_wire(&self) -> String {
        match (self.figure(Key::WireUs), self.is_resident()) {
            (Some(latency), _) => show_us(latency),
            (None, true) => "plain".to_owned(),
            (None, false) => String::new(),
        }
    }

    pub(in crate::perf) fn shown_reference(&self) -> String {
        named(self.reference.unwrap_or_default(), self.text(Key::ReferenceLane))
    }

    /// Describes the source's posts to a device for each message, in a line.
    pub(in crate::perf) fn what_was_posted(&self) -> Option<String> {
        let figure = |key| self.figure(key).map(show);
        Some(format!(
            "{}, {} B: {} work requests in {} posts with {} B, and {} completions, for each message\n",
            self.what(),
            self.size(),
            figure(Key::Requests)?,
            figure(Key::Posts)?,
            figure(Key::PostedBytes)?,
            figure(Key::Completions)?
        ))
    }

    /// Names the one of the row's two figures that is missing.
    pub(in crate::perf) fn what_is_missing(&self) -> String {
        match self.median {
            None => self.what(),
            Some(_) => self.reference.unwrap_or_default().to_owned(),
        }
    }

    /// Names the measured case.
    pub(in crate::perf) fn what(&self) -> String {
        match (self.text(Key::Transport), self.text(Key::Mode), self.text(Key::ShardsIn)) {
            ("", ..) | (_, "", _) => self.subject.to_owned(),
            (transport, mode, "") => format!("{transport}, {mode}"),
            (transport, mode, place) => format!("{transport}, {mode}, shards in {place}"),
        }
    }
}

/// Formats a name with UCX's transports, if there are any.
pub(in crate::perf) fn named(name: &str, lane: &str) -> String {
    if lane.is_empty() { name.to_owned() } else { format!("{name} ({lane})") }
}

/// Formats a number with four digits.
pub(in crate::perf) fn show(figure: f64) -> String {
    let digits = match figure.abs() {
        number if number >= 1000.0 => 0,
        number if number >= 100.0 => 1,
        number if number >= 10.0 => 2,
        number if number >= 1.0 => 3,
        _ => 4,
    };
    format!("{figure:.digits$}")
}

/// Formats a latency.
pub(in crate::perf) fn show_us(latency: f64) -> String {
    format!("{latency} us")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_have_four_digits_whatever_their_size() {
        let shown = [0.0621, 1.2345, 12.345, 123.45, 12345.6].map(show);
        assert_eq!(shown, ["0.0621", "1.234", "12.35", "123.5", "12346"]);
    }
}
