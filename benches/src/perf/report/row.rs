//! Rows of a report, and the format of their figures.

use serde::Serialize;

use super::payload_size::show_size;
use super::statistics::Series;
use crate::perf::experiments::work::resident::query::is_resident;
use crate::perf::machine::CoreDistance;
use crate::program::output;

/// One figure beside one baseline.
#[derive(Clone, Debug, Default, Serialize)]
pub(in crate::perf) struct Row {
    pub(in crate::perf) metric: &'static str,
    pub(in crate::perf) unit: &'static str,
    /// `farjump`, or the baseline that is itself compared with another.
    pub(in crate::perf) subject: &'static str,
    pub(in crate::perf) transport: Option<String>,
    pub(in crate::perf) mode: Option<&'static str>,
    pub(in crate::perf) arrival: Option<String>,
    /// The carrier of its frames, if the transport reports it.
    pub(in crate::perf) lane: Option<String>,
    /// Bytes of payload.
    pub(in crate::perf) size: usize,
    pub(in crate::perf) iterations: u32,
    pub(in crate::perf) median: Option<f64>,
    pub(in crate::perf) p50: Option<f64>,
    pub(in crate::perf) p99: Option<f64>,
    pub(in crate::perf) p999: Option<f64>,
    pub(in crate::perf) max: Option<f64>,
    /// `None` without a baseline.
    pub(in crate::perf) reference: Option<&'static str>,
    pub(in crate::perf) reference_lane: Option<String>,
    pub(in crate::perf) reference_median: Option<f64>,
    pub(in crate::perf) reference_p99: Option<f64>,
    pub(in crate::perf) ratio: Option<f64>,
    pub(in crate::perf) ratio_min: Option<f64>,
    pub(in crate::perf) ratio_max: Option<f64>,
    /// The machine's state, in the median of the rounds.
    pub(in crate::perf) state: Option<CoreDistance>,
    /// True if a baseline and `ucx_perftest` are within 15 % of each other.
    pub(in crate::perf) agrees: Option<bool>,
    /// The reason why there are no figures.
    pub(in crate::perf) missing: Option<String>,
    /// Calls handed to farjump at a time; `None` where they are made one by one, and for other subjects.
    pub(in crate::perf) batch: Option<u32>,
    /// Bytes of the called function's image as sent, if a length was requested.
    pub(in crate::perf) image: Option<usize>,
    /// The function that works on data.
    pub(in crate::perf) function: Option<&'static str>,
    pub(in crate::perf) sources: Option<u32>,
    /// Processor time of the target for each message, in nanoseconds.
    pub(in crate::perf) cpu_ns_target: Option<f64>,
    /// The same of all sources together.
    pub(in crate::perf) cpu_ns_source: Option<f64>,
    /// The target's memory for one more source, in bytes, without memory shared with that source.
    pub(in crate::perf) peer_bytes: Option<u64>,
    /// Memory shared by the target and that source.
    pub(in crate::perf) mailbox_bytes: Option<u64>,
    /// Times a second that the target went to sleep.
    pub(in crate::perf) sleeps: Option<f64>,
    /// Lists of work requests that the source posted to RDMA devices for each message, if its transport does.
    pub(in crate::perf) posts: Option<f64>,
    /// Work requests in them.
    pub(in crate::perf) requests: Option<f64>,
    /// Bytes in those, without what the device adds.
    pub(in crate::perf) posted_bytes: Option<f64>,
    /// Completions that the source took for its posts, for each message.
    pub(in crate::perf) completions: Option<f64>,
    /// Bytes of mailbox and rings.
    pub(in crate::perf) ring: Option<usize>,
    /// Bytes of a slot of rings with slots.
    pub(in crate::perf) slot: Option<usize>,
    /// Whether farjump's target slept while idle.
    pub(in crate::perf) target_sleeps: Option<bool>,
    /// Of first-call: true if other new code had just been called.
    pub(in crate::perf) warm: Option<bool>,
    /// Latency of the modelled network whose time is in the figures, in microseconds.
    pub(in crate::perf) wire_us: Option<f64>,
    /// Its bandwidth in GB/s.
    pub(in crate::perf) wire_gb_s: Option<f64>,
    /// Round trips of the baseline that depend on each other.
    pub(in crate::perf) reference_trips: Option<u32>,
    /// Bytes of data from which farjump must be ahead of the fetch, by arithmetic; `None` if it need not be, or
    /// if that is not known.
    pub(in crate::perf) ahead_from: Option<u64>,
    /// Of tsi: the form of the code.
    pub(in crate::perf) form: Option<&'static str>,
    /// Of tsi: bytes of a call's frame.
    pub(in crate::perf) frame_bytes: Option<usize>,
    /// Of chase: the number of shards, their place, and the bytes of the table of each.
    pub(in crate::perf) shards: Option<u32>,
    pub(in crate::perf) shards_in: Option<&'static str>,
    pub(in crate::perf) table: Option<usize>,
    /// Words of a chase.
    pub(in crate::perf) depth: Option<u32>,
    /// Chases under way at a time.
    pub(in crate::perf) outstanding: Option<u32>,
    /// Messages of a chase.
    pub(in crate::perf) messages: Option<f64>,
    pub(in crate::perf) reference_messages: Option<f64>,
    /// The time without a wire and a latency for each message, in microseconds; `None` where the former was not
    /// measured.
    pub(in crate::perf) model_us: Option<f64>,
    pub(in crate::perf) reference_model_us: Option<f64>,
}

impl Row {
    /// Fills in the figures of one case, beside a baseline's if there is one. The description is left empty.
    pub(in crate::perf) fn beside(own: &Series, reference: Option<&Series>) -> Row {
        let ratio = reference.and_then(|reference| own.ratio(reference));
        let (single, single_of_reference) = (own.percentiles(), reference.and_then(Series::percentiles));
        Row {
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
            ..Row::default()
        }
    }

    pub(in crate::perf) fn cells(&self) -> [String; 15] {
        let text = |text: &Option<String>| text.clone().unwrap_or_default();
        [
            self.subject.to_owned(),
            self.function.unwrap_or_default().to_owned(),
            text(&self.transport),
            self.mode.unwrap_or_default().to_owned(),
            self.image.map(show_size).unwrap_or_default(),
            text(&self.arrival),
            show_size(self.size),
            self.shown_wire(),
            self.median.map(show).unwrap_or_default(),
            self.p99.map(show).unwrap_or_default(),
            self.shown_reference(),
            self.reference_median.map(show).unwrap_or_default(),
            self.shown_ratio(),
            self.spread(),
            self.state.map(|state| state.name().to_owned()).unwrap_or_default(),
        ]
    }

    /// Returns whether it is about data at the target.
    pub(in crate::perf) fn is_resident(&self) -> bool {
        self.function.is_some_and(is_resident)
    }

    /// Names the modelled network; of resident data without one it is `plain`.
    pub(in crate::perf) fn shown_wire(&self) -> String {
        match (self.wire_us, self.is_resident()) {
            (Some(latency), _) => show_us(latency),
            (None, true) => "plain".to_owned(),
            (None, false) => String::new(),
        }
    }

    pub(in crate::perf) fn shown_reference(&self) -> String {
        named(self.reference.unwrap_or_default(), self.reference_lane.as_deref())
    }

    pub(in crate::perf) fn shown_ratio(&self) -> String {
        self.ratio.map(|ratio| format!("{ratio:.3}")).unwrap_or_default()
    }

    /// Formats the smallest and the largest ratio.
    pub(in crate::perf) fn spread(&self) -> String {
        match (self.ratio_min, self.ratio_max) {
            (Some(min), Some(max)) => format!("{min:.2}..{max:.2}"),
            _ => String::new(),
        }
    }

    /// Describes the source's posts to a device for each message, in a line.
    pub(in crate::perf) fn what_was_posted(&self) -> Option<String> {
        let (posts, requests, completions) = (self.posts?, self.requests?, self.completions?);
        Some(format!(
            "{}, {} B: {} work requests in {} posts with {} B, and {} completions, for each message\n",
            self.what(),
            self.size,
            show(requests),
            show(posts),
            show(self.posted_bytes?),
            show(completions)
        ))
    }

    /// Names the one of the row's two figures that is missing.
    pub(in crate::perf) fn what_is_missing(&self) -> String {
        match self.median {
            None => self.what(),
            Some(_) => self.reference.unwrap_or_default().to_owned(),
        }
    }

    fn what(&self) -> String {
        match (&self.transport, self.mode, self.shards_in) {
            (Some(transport), Some(mode), Some(place)) => format!("{transport}, {mode}, shards in {place}"),
            (Some(transport), Some(mode), None) => format!("{transport}, {mode}"),
            _ => self.subject.to_owned(),
        }
    }
}

/// Formats a name with UCX's transports, if there are any.
pub(in crate::perf) fn named(name: &str, lane: Option<&str>) -> String {
    lane.map_or_else(|| name.to_owned(), |lane| format!("{name} ({lane})"))
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

/// Formats a table with these columns aligned to the right, without columns that are empty below their head.
pub(in crate::perf) fn right_aligned<const COLUMNS: usize>(
    rows: &[[String; COLUMNS]],
    right: &[usize],
) -> String {
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: [usize; COLUMNS] = std::array::from_fn(width);
    let bare: Vec<_> =
        (0..COLUMNS).filter(|column| rows.iter().skip(1).all(|row| row[*column].is_empty())).collect();
    let padded = |row: &[String; COLUMNS]| {
        let cell = |column: usize| {
            let width = widths[column];
            match right.contains(&column) {
                true => format!("{:>width$}", row[column]),
                false => row[column].clone(),
            }
        };
        (0..COLUMNS).filter(|column| !bare.contains(column)).map(cell).collect::<Vec<_>>()
    };
    output::table(&rows.iter().map(padded).collect::<Vec<_>>())
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

    #[test]
    fn numbers_end_and_words_begin_in_one_column() {
        let rows = [["a", "x", "1"], ["long", "", "100"]].map(|row| row.map(String::from));
        assert_eq!(right_aligned(&rows, &[2]), "a       1\nlong  100\n", "and there is nothing in x");
    }
}
