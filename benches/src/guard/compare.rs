//! Compares counts with a record.

use std::fmt;

use super::case::is_by_device;
use super::record::{Key, Record, Row};
use crate::Failure;

/// A compared statistic of a row.
struct Statistic {
    name: &'static str,
    of: fn(&Row) -> u64,
    /// Absolute tolerance.
    some: u64,
    /// Relative tolerance, in hundredths of the recorded statistic.
    hundredths: u64,
}

const STATISTICS: [Statistic; 3] = [
    Statistic { name: "instructions", of: |row| row.instructions, some: 5, hundredths: 3 },
    Statistic { name: "lines", of: |row| row.lines, some: 1, hundredths: 3 },
    Statistic { name: "shared lines", of: |row| row.shared_lines, some: 0, hundredths: 0 },
];

impl Statistic {
    /// Returns whether it is compared for a row. Over a device the lines depend on how many completions came
    /// together.
    fn is_compared(&self, row: &Row) -> bool {
        self.name == "instructions" || !is_by_device(&row.key.transport)
    }

    /// Returns the growth since the record; `None` within the tolerances.
    fn change(&self, recorded: &Row, now: &Row) -> Option<i64> {
        let (recorded, now) = ((self.of)(recorded), (self.of)(now));
        let none = self.some.max(recorded * self.hundredths / 100);
        (recorded.abs_diff(now) > none).then(|| now.cast_signed() - recorded.cast_signed())
    }
}

/// The result of comparing two records.
#[derive(Debug)]
pub(crate) struct Comparison {
    /// Each counted row, with the recorded one.
    pairs: Vec<(Row, Option<Row>)>,
    /// Recorded rows that were not counted, of transports that were.
    lost: Vec<Key>,
    /// Transports without recorded rows.
    unheard: Vec<String>,
    /// The recorded compiler and the present one, if they differ.
    compilers: Option<(String, String)>,
}

pub(crate) fn compare(recorded: &Record, now: &Record) -> Comparison {
    let of = |record: &Record, key: &Key| record.rows.iter().find(|row| row.key == *key).cloned();
    let knows = |record: &Record, key: &Key| record.rows.iter().any(|row| row.key.transport == key.transport);
    let lost = recorded.rows.iter().map(|row| &row.key);
    let lost = lost.filter(|key| knows(now, key) && of(now, key).is_none()).cloned().collect();
    let unheard = now.rows.iter().filter(|row| !knows(recorded, &row.key));
    let mut unheard: Vec<_> = unheard.map(|row| row.key.transport.clone()).collect();
    unheard.dedup();
    Comparison {
        pairs: now.rows.iter().map(|row| (row.clone(), of(recorded, &row.key))).collect(),
        lost,
        unheard,
        compilers: (recorded.rustc != now.rustc).then(|| (recorded.rustc.clone(), now.rustc.clone())),
    }
}

impl Comparison {
    fn changes(&self, sign: i64) -> Vec<String> {
        let both = self.pairs.iter().filter_map(|(now, recorded)| Some((now, recorded.as_ref()?)));
        let changes = both.flat_map(|(now, recorded)| {
            STATISTICS.iter().filter(|statistic| statistic.is_compared(now)).filter_map(move |statistic| {
                let change = statistic.change(recorded, now).filter(|change| change.signum() == sign)?;
                Some(format!("{}: {change:+} {}", now.key, statistic.name))
            })
        });
        changes.collect()
    }

    /// Returns the verdict.
    ///
    /// # Errors
    /// A statistic grew under the same compiler; or the two records have different rows of a transport.
    pub(crate) fn verdict(&self) -> Result<(), Failure> {
        let new = self.pairs.iter().filter(|(_, recorded)| recorded.is_none()).map(|(now, _)| &now.key);
        let new = new.filter(|key| !self.unheard.contains(&key.transport));
        let strange: Vec<_> = new.chain(&self.lost).map(Key::to_string).collect();
        if !strange.is_empty() {
            return Err(format!(
                "only counted, or only recorded: {}. Record what is counted now: `cargo xtask guard --record`",
                strange.join("; ")
            )
            .into());
        }
        let grown = self.changes(1);
        if self.compilers.is_none() && !grown.is_empty() {
            return Err(format!(
                "the hot path grew: {}. If that is intended, state its benefit in the commit, and record it: `cargo xtask \
                 guard --record`",
                grown.join("; ")
            )
            .into());
        }
        Ok(())
    }
}

impl fmt::Display for Comparison {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{:12} {:7} {:>6} {:11}", "transport", "mode", "bytes", "")?;
        for statistic in &STATISTICS {
            write!(out, " {:>20}", statistic.name)?;
        }
        writeln!(out, " {:>7}", "others")?;
        write!(out, "{:39}", "")?;
        for _ in &STATISTICS {
            write!(out, " {:>8} {:>5} {:>5}", "recorded", "now", "")?;
        }
        writeln!(out)?;
        for (now, recorded) in &self.pairs {
            let Key { transport, mode, size, operation } = &now.key;
            write!(out, "{transport:12} {mode:7} {size:>6} {operation:11}")?;
            for Statistic { of, .. } in &STATISTICS {
                let before = recorded.as_ref().map(of);
                let shown = before.map_or("none".to_owned(), |before| before.to_string());
                let more = before.map_or(0, |before| of(now).cast_signed() - before.cast_signed());
                let more = if more == 0 { String::new() } else { format!("{more:+}") };
                write!(out, " {shown:>8} {:>5} {more:>5}", of(now))?;
            }
            writeln!(out, " {:>7}", now.others)?;
        }
        for transport in &self.unheard {
            writeln!(out, "{transport}: nothing was recorded to compare with")?;
        }
        if let Some((recorded, now)) = &self.compilers {
            writeln!(
                out,
                "recorded with {recorded}; this is {now}, so that what changed fails nothing. Record with the new one."
            )?;
            for change in self.changes(1) {
                writeln!(out, "more: {change}")?;
            }
        }
        let less = self.changes(-1);
        for change in &less {
            writeln!(out, "less: {change}")?;
        }
        if !less.is_empty() {
            writeln!(out, "Record what is better, so that it stays so: `cargo xtask guard --record`")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::case::MeasuredOperation;
    use super::*;

    fn row(transport: &str, statistics: [u64; 3]) -> Row {
        let [instructions, lines, shared_lines] = statistics;
        let operation = MeasuredOperation::Send;
        let key = Key { transport: transport.to_owned(), mode: "cached".to_owned(), size: 8, operation };
        Row { key, instructions, lines, shared_lines, others: 0 }
    }

    fn record(rows: &[Row]) -> Record {
        Record { rustc: "rustc 1".to_owned(), rows: rows.to_vec() }
    }

    /// Returns the report and the verdict on one row then and now.
    fn compared(then: [u64; 3], now: [u64; 3]) -> (String, Result<(), String>) {
        let comparison = compare(&record(&[row("shm", then)]), &record(&[row("shm", now)]));
        (comparison.to_string(), comparison.verdict().map_err(|error| error.to_string()))
    }

    #[test]
    fn growth_beyond_the_tolerance_fails_naming_it_and_the_record_option() {
        for (then, now, grown) in [
            ([100, 20, 2], [106, 20, 2], "shm, cached, 8 B, send: +6 instructions"),
            ([1000, 20, 2], [1031, 20, 2], "shm, cached, 8 B, send: +31 instructions"),
            ([100, 20, 2], [100, 22, 2], "shm, cached, 8 B, send: +2 lines"),
            ([100, 100, 2], [100, 104, 2], "shm, cached, 8 B, send: +4 lines"),
            ([100, 20, 2], [100, 20, 3], "shm, cached, 8 B, send: +1 shared lines"),
        ] {
            let error = compared(then, now).1.expect_err(grown);
            assert!(error.contains(grown) && error.contains("cargo xtask guard --record"), "{error}");
        }
    }

    #[test]
    fn changes_within_the_tolerance_pass_and_are_not_listed() {
        for now in [[100, 20, 2], [105, 21, 2], [95, 19, 2]] {
            let (shown, verdict) = compared([100, 20, 2], now);
            assert_eq!(verdict, Ok(()));
            assert!(!shown.contains("less: ") && !shown.contains("--record"), "{shown}");
        }
        assert_eq!(compared([1000, 20, 2], [1030, 20, 2]).1, Ok(()));
    }

    #[test]
    fn reduced_counts_pass_and_are_listed_with_the_record_option() {
        let (shown, verdict) = compared([100, 20, 2], [90, 18, 1]);
        assert_eq!(verdict, Ok(()));
        for less in ["-10 instructions", "-2 lines", "-1 shared lines", "cargo xtask guard --record"] {
            assert!(shown.contains(less), "{less} is not in {shown}");
        }
    }

    #[test]
    fn the_table_has_what_was_recorded_what_is_now_and_the_difference() {
        let (shown, _) = compared([100, 20, 2], [123, 20, 2]);
        let row = shown.lines().find(|line| line.starts_with("shm")).expect("a row");
        let words: Vec<_> = row.split_whitespace().collect();
        assert_eq!(words, ["shm", "cached", "8", "send", "100", "123", "+23", "20", "20", "2", "2", "0"]);
    }

    #[test]
    fn growth_under_another_compiler_is_listed_and_fails_nothing() {
        let then = record(&[row("shm", [100, 20, 2])]);
        let now = Record { rustc: "rustc 2".to_owned(), ..record(&[row("shm", [200, 20, 2])]) };
        let comparison = compare(&then, &now);
        assert!(comparison.verdict().is_ok());
        let shown = comparison.to_string();
        assert!(
            shown.contains("rustc 1") && shown.contains("rustc 2") && shown.contains("+100 instructions"),
            "{shown}"
        );
    }

    #[test]
    fn rows_in_only_one_record_fail_and_missing_transports_do_not() {
        let (shm, am) = (row("shm", [1, 1, 1]), row("ucx-am", [1, 1, 1]));
        let other = Row { key: Key { size: 9, ..shm.key.clone() }, ..shm.clone() };
        let two = record(&[shm.clone(), other]);
        let (one, both) = (record(std::slice::from_ref(&shm)), record(&[shm.clone(), am]));
        for (then, now) in [(&one, &two), (&two, &one)] {
            let error = compare(then, now).verdict().expect_err("a row too many").to_string();
            assert!(error.contains("shm, cached, 9 B, send"), "{error}");
        }
        assert!(compare(&both, &one).verdict().is_ok());
        let more = compare(&one, &both);
        assert!(more.verdict().is_ok());
        assert!(more.to_string().contains("ucx-am: nothing was recorded"), "{more}");
    }
}
