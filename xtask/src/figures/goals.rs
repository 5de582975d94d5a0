//! The bounds on figures, judged from the rows alone.

use std::ops::RangeInclusive;

use super::section_file::{Kept, Row};

/// A bound on a figure.
#[derive(Debug)]
pub(crate) struct Bound {
    pub(crate) what: &'static str,
    pub(crate) against: &'static str,
    /// The section, and which of its rows.
    section: &'static str,
    metric: &'static str,
    /// The bounded figure of a row.
    of: Of,
    transport: &'static str,
    reference: &'static str,
    sizes: RangeInclusive<u64>,
    /// Number of sources, where a row has it.
    sources: Option<u64>,
    side: Side,
    /// Bound for processors that are near, or neither near nor far.
    near: f64,
    far: f64,
}

/// The figure that a bound is on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Of {
    Ratio,
    /// Work requests for each message.
    Requests,
    /// Completions for each message.
    Completions,
}

/// The allowed side of a bound.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Side {
    AtMost,
    AtLeast,
}

use Side::{AtLeast, AtMost};

const ANY: RangeInclusive<u64> = 0..=u64::MAX;

const fn bound(
    (what, against): (&'static str, &'static str),
    (section, metric): (&'static str, &'static str),
    (transport, reference): (&'static str, &'static str),
    sizes: RangeInclusive<u64>,
    side: Side,
    (near, far): (f64, f64),
) -> Bound {
    let (of, sources) = (Of::Ratio, None);
    Bound { what, against, section, metric, of, transport, reference, sizes, sources, side, near, far }
}

/// A bound on a message's cost in a machine with an RDMA device, apart from time.
const fn count(
    what: &'static str,
    of: Of,
    section: &'static str,
    transport: &'static str,
    most: f64,
) -> Bound {
    let what = (what, "");
    let bound = bound(what, (section, "rate"), (transport, "raw"), ANY, AtMost, (most, most));
    Bound { of, ..bound }
}

/// A bound on latency in such a machine: up to 220 bytes travel inside a request.
const fn inside(
    what: &'static str,
    section: &'static str,
    transport: &'static str,
    reference: &'static str,
    most: f64,
) -> Bound {
    let what = (what, reference);
    bound(what, (section, "latency"), (transport, reference), 0..=220, AtMost, (most, most))
}

/// A bound over TCP, where a line's transfer between processors is a small part of any time.
const fn over_tcp(
    what: (&'static str, &'static str),
    section: (&'static str, &'static str),
    between: (&'static str, &'static str),
    side: Side,
    limit: f64,
) -> Bound {
    bound(what, section, between, ANY, side, (limit, limit))
}

/// All bounds.
pub(crate) const BOUNDS: [Bound; 36] = [
    bound(
        ("one-way, cached, `shm`, up to 40 B", "raw ping-pong, one line each way"),
        ("floor", "latency"),
        ("shm", "raw"),
        0..=40,
        AtMost,
        (1.05, 1.05),
    ),
    bound(
        ("one-way, cached, `shm`, up to 1 KiB", "UCX active message"),
        ("latency", "latency"),
        ("shm", "ucx-am"),
        0..=1024,
        AtMost,
        (0.4, 0.6),
    ),
    bound(
        ("one-way, cached, `shm`", "iceoryx2, same payload, polling"),
        ("iceoryx2", "latency"),
        ("shm", "iceoryx2"),
        ANY,
        AtMost,
        (0.4, 0.4),
    ),
    bound(
        ("one-way, cached, `ucx-put`, every size", "UCX active message"),
        ("latency", "latency"),
        ("ucx-put", "ucx-am"),
        ANY,
        AtMost,
        (0.5, 0.6),
    ),
    bound(
        ("message rate, cached, `shm`, up to 32 B, 64 given at a time", "UCX active message"),
        ("rate-batch", "rate"),
        ("shm", "ucx-am"),
        0..=32,
        AtLeast,
        (4.0, 3.0),
    ),
    bound(
        ("message rate, cached, `shm`, up to 32 B, 64 given at a time", "one 64-byte line a message, raw"),
        ("rate-batch", "rate"),
        ("shm", "raw"),
        0..=32,
        AtLeast,
        (1.2, 1.2),
    ),
    bound(
        ("message rate, cached, `shm`, 64 B to 1 KiB", "UCX active message"),
        ("rate", "rate"),
        ("shm", "ucx-am"),
        64..=1024,
        AtLeast,
        (1.5, 1.5),
    ),
    bound(
        ("bandwidth, 1 MiB, `shm`", "memcpy into the same memory"),
        ("bandwidth", "bandwidth"),
        ("shm", "memcpy"),
        1 << 20..=1 << 20,
        AtLeast,
        (0.9, 0.9),
    ),
    bound(
        ("one-way, code in every message, `shm`, below 1 KiB", "the same function as UCX active message"),
        ("always", "latency"),
        ("shm", "ucx-am"),
        0..=1023,
        AtMost,
        (1.0, 1.0),
    ),
    bound(
        ("one-way, code in every message, `shm`, from 1 KiB", "the same function as UCX active message"),
        ("always", "latency"),
        ("shm", "ucx-am"),
        1024..=u64::MAX,
        AtMost,
        (0.8, 0.8),
    ),
    bound(
        ("first call of never-seen code, arrival to return", "dlopen, dlsym and call of the same library"),
        ("first-call", "first-call"),
        ("shm", "dlopen"),
        ANY,
        AtMost,
        (0.05, 0.05),
    ),
    Bound {
        sources: Some(256),
        ..bound(
            ("one-way, 256 connected sources of which one is active", "one connected source"),
            ("scaling", "scaling-latency"),
            ("shm", "alone"),
            ANY,
            AtMost,
            (1.2, 1.2),
        )
    },
    bound(
        ("wake-up after idle, `shm`", "a bare futex wake"),
        ("wake-up", "wake-up"),
        ("shm", "futex"),
        ANY,
        AtMost,
        (1.3, 1.3),
    ),
    inside(
        "one-way, cached, `verbs-write`, up to 220 B, Linux 6.12",
        "verbs-latency",
        "verbs-write",
        "ib_write_lat",
        1.3,
    ),
    inside(
        "one-way, cached, `verbs-write`, up to 220 B, Linux 6.1",
        "verbs-latency-6.1",
        "verbs-write",
        "ib_write_lat",
        1.3,
    ),
    inside(
        "one-way, cached, `verbs-send`, up to 220 B, Linux 6.12",
        "verbs-latency",
        "verbs-send",
        "ib_send_lat",
        1.2,
    ),
    inside(
        "one-way, cached, `verbs-send`, up to 220 B, Linux 6.1",
        "verbs-latency-6.1",
        "verbs-send",
        "ib_send_lat",
        1.2,
    ),
    bound(
        ("bandwidth, 1 MiB, `verbs-write`, Linux 6.12", "ib_write_bw"),
        ("verbs-bandwidth", "bandwidth"),
        ("verbs-write", "ib_write_bw"),
        1 << 20..=1 << 20,
        AtLeast,
        (0.9, 0.9),
    ),
    bound(
        ("bandwidth, 1 MiB, `verbs-write`, Linux 6.1", "ib_write_bw"),
        ("verbs-bandwidth-6.1", "bandwidth"),
        ("verbs-write", "ib_write_bw"),
        1 << 20..=1 << 20,
        AtLeast,
        (0.9, 0.9),
    ),
    count(
        "work requests for a message, `verbs-write`, 16 given at a time",
        Of::Requests,
        "verbs-batch",
        "verbs-write",
        0.125,
    ),
    count(
        "work requests for a message, `verbs-send`, 16 given at a time",
        Of::Requests,
        "verbs-batch",
        "verbs-send",
        0.125,
    ),
    count(
        "completions for a message, `verbs-write`, at the sender",
        Of::Completions,
        "verbs-batch",
        "verbs-write",
        0.03125,
    ),
    over_tcp(
        ("one-way, 8 B, `tcp-clear`", "as many bytes over a stream"),
        ("tcp-latency", "latency"),
        ("tcp-clear", "stream"),
        AtMost,
        1.05,
    ),
    over_tcp(
        ("one-way, 8 B, `tcp-clear`", "UCX active message over TCP"),
        ("tcp-latency", "latency"),
        ("tcp-clear", "ucx-am-tcp"),
        AtMost,
        0.9,
    ),
    over_tcp(
        ("one-way, 8 B, `tcp`, processors with AES", "`tcp-clear`"),
        ("tcp-latency", "latency"),
        ("tcp", "clear"),
        AtMost,
        1.08,
    ),
    over_tcp(
        ("message rate, 8 B, 64 given at a time, `tcp-clear`", "64 calls that are each a record"),
        ("tcp-rate", "rate"),
        ("tcp-clear", "single"),
        AtLeast,
        12.0,
    ),
    over_tcp(
        ("message rate, 8 B, 64 given at a time, `tcp`", "64 calls that are each a record"),
        ("tcp-rate", "rate"),
        ("tcp", "single"),
        AtLeast,
        12.0,
    ),
    over_tcp(
        ("message rate, 8 B, 64 given at a time, `tcp`", "`tcp-clear`"),
        ("tcp-rate", "rate"),
        ("tcp", "clear"),
        AtLeast,
        0.75,
    ),
    over_tcp(
        ("bandwidth, 1 MiB, `tcp-clear`", "a loop of the same writes"),
        ("tcp-bandwidth", "bandwidth"),
        ("tcp-clear", "stream"),
        AtLeast,
        0.95,
    ),
    over_tcp(
        ("bandwidth, 1 MiB, `tcp`", "a loop of the same writes, records and AEAD"),
        ("tcp-bandwidth", "bandwidth"),
        ("tcp", "stream-sealed"),
        AtLeast,
        0.95,
    ),
    over_tcp(
        ("bandwidth, 1 MiB, `tcp`", "`tcp-clear`"),
        ("tcp-bandwidth", "bandwidth"),
        ("tcp", "clear"),
        AtLeast,
        0.8,
    ),
    over_tcp(
        ("bandwidth, 1 MiB, `tcp-clear`, packets take 5 ms", "a loop of the same writes"),
        ("tcp-delay-5", "bandwidth"),
        ("tcp-clear", "stream"),
        AtLeast,
        0.8,
    ),
    over_tcp(
        ("bandwidth, 1 MiB, `tcp`, packets take 5 ms", "a loop of the same writes, records and AEAD"),
        ("tcp-delay-5", "bandwidth"),
        ("tcp", "stream-sealed"),
        AtLeast,
        0.8,
    ),
    over_tcp(
        ("bandwidth, 1 MiB, `tcp-clear`, packets take 20 ms", "a loop of the same writes"),
        ("tcp-delay-20", "bandwidth"),
        ("tcp-clear", "stream"),
        AtLeast,
        0.8,
    ),
    over_tcp(
        ("bandwidth, 1 MiB, `tcp`, packets take 20 ms", "a loop of the same writes, records and AEAD"),
        ("tcp-delay-20", "bandwidth"),
        ("tcp", "stream-sealed"),
        AtLeast,
        0.8,
    ),
    Bound {
        sources: Some(256),
        ..over_tcp(
            ("one-way, 256 connected sources of which one is active, `tcp`", "one connected source"),
            ("tcp-scaling", "scaling-latency"),
            ("tcp", "alone"),
            AtMost,
            1.15,
        )
    },
];

/// Verdict on a bound.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Verdict {
    /// In every row; the worst of them.
    Reached(String),
    /// Not in every row; the worst of them, and how many rows did.
    NotReached(String),
    /// There are no rows with figures, for this reason.
    NotMeasured(String),
}

impl Bound {
    /// The bound as text.
    pub(crate) fn limit(&self) -> String {
        let sign = match self.side {
            AtMost => '≤',
            AtLeast => '≥',
        };
        match self.near == self.far {
            true => format!("{sign} {}", self.near),
            false => format!("{sign} {} near, {sign} {} far", self.near, self.far),
        }
    }

    /// Judges it by the measured rows.
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
        row.metric == self.metric
            && row.subject == "farjump"
            && row.transport.as_deref() == Some(self.transport)
            && row.reference.as_deref() == Some(self.reference)
            && row.size.is_none_or(|size| self.sizes.contains(&size))
            && self.sources.is_none_or(|sources| row.sources == Some(sources))
    }

    /// The bounded figure of a row.
    fn figure(&self, row: &Row) -> Option<f64> {
        match self.of {
            Of::Ratio => row.ratio,
            Of::Requests => row.requests,
            Of::Completions => row.completions,
        }
    }

    /// A row's figure, with the spread of a ratio, and the place of its measurement.
    fn shown(&self, row: &Row) -> String {
        let mut shown = match self.of {
            Of::Ratio => super::table::ratio(row).unwrap_or_default(),
            Of::Requests | Of::Completions => {
                self.figure(row).map(|figure| format!("{figure:.4}")).unwrap_or_default()
            }
        };
        if let Some(size) = row.size {
            shown += &format!(" at {}", super::table::bytes(size));
        }
        shown + &row.state.as_ref().map(|state| format!(", {state}")).unwrap_or_default()
    }

    /// Factor by which a row exceeds its bound: up to 1 it does not.
    fn excess(&self, row: &Row) -> Option<f64> {
        let limit = if row.state.as_deref() == Some("far") { self.far } else { self.near };
        self.figure(row).map(|figure| match self.side {
            AtMost => figure / limit,
            AtLeast => limit / figure,
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::section_file::tests::kept;
    use super::super::sections;
    use super::*;

    /// The bound on rates of up to 32 B against active messages: at least 4 near, 3 far.
    const RATE: &Bound = &BOUNDS[4];

    fn rate(size: u64, ratio: f64, state: &str) -> serde_json::Value {
        json!({
            "metric": "rate", "reference": "ucx-am", "size": size, "ratio": ratio, "ratio_min": ratio - 0.5,
            "ratio_max": ratio + 0.5, "state": state,
        })
    }

    #[test]
    fn every_row_that_a_bound_is_about_has_to_reach_it() {
        let run = kept("rate-batch", &[rate(1, 5.0, "near"), rate(32, 4.0, "near"), rate(64, 1.0, "near")]);
        let verdict = RATE.judge(&[run]);
        assert_eq!(verdict, Verdict::Reached("2 of 2 sizes; worst 4.00 (3.50 to 4.50) at 32 B, near".into()));
        let run = kept("rate-batch", &[rate(1, 5.0, "near"), rate(32, 3.9, "near")]);
        let verdict = RATE.judge(&[run]);
        assert_eq!(
            verdict,
            Verdict::NotReached("1 of 2 sizes; worst 3.90 (3.40 to 4.40) at 32 B, near".into())
        );
    }

    #[test]
    fn the_bound_is_that_of_the_machines_state_and_neither_near_nor_far_counts_as_near() {
        let reached =
            |state| matches!(RATE.judge(&[kept("rate-batch", &[rate(8, 3.5, state)])]), Verdict::Reached(_));
        assert_eq!(["near", "middle", "far"].map(reached), [false, false, true]);
    }

    #[test]
    fn a_bound_from_above_is_missed_from_above() {
        let floor = &BOUNDS[0];
        let judge = |ratio: f64| floor.judge(&[kept("floor", &[json!({ "ratio": ratio })])]);
        assert!(matches!(judge(1.05), Verdict::Reached(_)));
        assert!(matches!(judge(1.06), Verdict::NotReached(_)));
    }

    #[test]
    fn what_was_not_measured_is_not_reached_and_says_why() {
        let why = |runs: &[Kept]| match RATE.judge(runs) {
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
    fn what_a_message_costs_a_device_is_judged_by_its_own_column_and_not_by_the_ratio() {
        let row = |requests: f64| {
            json!({
                "metric": "rate", "transport": "verbs-write", "reference": "raw", "ratio": 9.0, "requests": requests, "size": 8,
            })
        };
        let bound = BOUNDS.iter().find(|bound| bound.of == Of::Requests).expect("there is one");
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
    fn one_source_of_many_is_told_from_fewer() {
        let row = |sources: u64, ratio: f64| json!({ "metric": "scaling-latency", "reference": "alone", "sources": sources, "ratio": ratio });
        let bound = &BOUNDS[11];
        let verdict = bound.judge(&[kept("scaling", &[row(2, 9.0), row(256, 1.1)])]);
        assert!(matches!(verdict, Verdict::Reached(_)), "{verdict:?}");
    }

    #[test]
    fn every_bound_is_about_a_section_that_measures_it() {
        for bound in &BOUNDS {
            let section = sections::named(bound.section).expect("it is a section")[0];
            let compared = section.args.iter().any(|arg| arg.split(',').any(|name| name == bound.reference));
            assert!(compared || bound.reference == "alone", "{}", bound.what);
            assert!(bound.metric.starts_with(section.args[0]), "{}", bound.what);
        }
    }
}
