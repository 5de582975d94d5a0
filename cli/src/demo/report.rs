//! The report of the demo: a table that grows by a row for each function, or one object.

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::{Value, json};

use super::functions::FunctionResult;
use farjump_cli::program::failure::Failure;
use farjump_cli::program::output;
use farjump_cli::program::units::{microseconds, show_count, show_duration};

/// The heads of the table's columns.
const HEADS: [&str; 6] = ["", "answer", "sent", "first call", "later", "moving the file instead"];

/// The results of one function.
pub(super) struct Outcome {
    pub(super) name: &'static str,
    pub(super) result: FunctionResult,
    /// The answer of this process, on the moved file.
    pub(super) expected: FunctionResult,
    pub(super) code_bytes: u64,
    pub(super) payload_bytes: u64,
    pub(super) first_call: Duration,
    pub(super) link: Duration,
    pub(super) later_call: Duration,
    /// Median time to move the file here and to compute.
    pub(super) instead: Duration,
    /// Median time of computing within that.
    pub(super) compute: Duration,
}

pub(super) struct Report {
    /// Process id of the target.
    pub(super) pid: u32,
    pub(super) transport: String,
    /// The transport, and whether its frames are encrypted.
    pub(super) path: String,
    pub(super) file: PathBuf,
    /// Length of the file.
    pub(super) bytes: u64,
    pub(super) results: Vec<Outcome>,
}

impl Report {
    /// Returns the lines above the first row. `pid` is the target's.
    pub(super) fn head(&self, pid: u32) -> String {
        let name = self.file.file_name().unwrap_or(self.file.as_os_str());
        format!(
            "target   pid {pid} by {}, mapped {} ({}), knows none of these functions\n{}",
            self.path,
            Path::new(name).display(),
            show_length(self.bytes),
            output::row(&HEADS.map(String::from), &self.widths())
        )
    }

    /// Returns the line of a function.
    pub(super) fn row(&self, outcome: &Outcome) -> String {
        let cells = [
            outcome.name.to_owned(),
            outcome.result.to_string(),
            format!("{} B + {} B", outcome.code_bytes, outcome.payload_bytes),
            format!("{} ({} linking)", show_duration(outcome.first_call), show_duration(outcome.link)),
            show_duration(outcome.later_call),
            format!(
                "{}, {} ({} computing)",
                show_length(self.bytes),
                show_duration(outcome.instead),
                show_duration(outcome.compute)
            ),
        ];
        output::row(&cells, &self.widths())
    }

    /// Returns the columns' widths before their cells are known. A long literal moves the rest of its row.
    fn widths(&self) -> [usize; 6] {
        let answer = format!("0.00 bits/byte, {} B", show_count(self.bytes)).len();
        [9, answer, "9999 B + 99 B".len(), "999 ms (999 us linking)".len(), "9.9 ms".len(), 0]
    }

    pub(super) fn to_json(&self) -> Value {
        let function = |outcome: &Outcome| {
            json!({
                "name": outcome.name,
                "answer": outcome.result.to_json(),
                "expected": outcome.expected.to_json(),
                "code_bytes": outcome.code_bytes,
                "payload_bytes": outcome.payload_bytes,
                "first_call_us": microseconds(outcome.first_call),
                "link_us": microseconds(outcome.link),
                "later_call_us": microseconds(outcome.later_call),
                "fetch_instead_us": microseconds(outcome.instead),
                "compute_instead_us": microseconds(outcome.compute),
            })
        };
        json!({
            "pid": self.pid,
            "transport": self.transport,
            "path": self.path,
            "file": self.file.to_string_lossy(),
            "file_bytes": self.bytes,
            "functions": self.results.iter().map(function).collect::<Vec<_>>(),
        })
    }

    /// Compares the answers.
    ///
    /// # Errors
    /// Answers differ; the error names them.
    pub(super) fn verdict(&self) -> Result<(), Failure> {
        let wrong = self.results.iter().filter(|outcome| outcome.result != outcome.expected);
        let sentences: Vec<_> = wrong
            .map(|it| {
                format!(
                    "`{}` replied {} in the target, and {} on the moved file: did the file change?",
                    it.name, it.result, it.expected
                )
            })
            .collect();
        if sentences.is_empty() { Ok(()) } else { Err(Failure::new(sentences.join("; "))) }
    }
}

/// Formats a length roughly: `272 B`, `9.1 MB`. Units are powers of 1000, as for files.
pub(super) fn show_length(bytes: u64) -> String {
    let exact = bytes as f64;
    match bytes {
        0..1_000 => format!("{bytes} B"),
        1_000..1_000_000 => format!("{:.1} kB", exact / 1e3),
        1_000_000..1_000_000_000 => format!("{:.1} MB", exact / 1e6),
        _ => format!("{:.1} GB", exact / 1e9),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_are_shown_in_units_of_1000() {
        assert_eq!([show_length(272), show_length(9_100_432)], ["272 B", "9.1 MB"]);
        assert_eq!([show_length(1_000), show_length(2_500_000_000)], ["1.0 kB", "2.5 GB"]);
    }

    fn report(crc: u32) -> Report {
        let outcome = Outcome {
            name: "crc32",
            result: FunctionResult::Crc32(crc),
            expected: FunctionResult::Crc32(7),
            code_bytes: 472,
            payload_bytes: 0,
            first_call: Duration::from_micros(12),
            link: Duration::from_nanos(500),
            later_call: Duration::from_micros(10),
            instead: Duration::from_micros(7),
            compute: Duration::from_micros(3),
        };
        Report {
            pid: 1,
            transport: "shm".into(),
            path: "shm".into(),
            file: "/some/file".into(),
            bytes: 9,
            results: vec![outcome],
        }
    }

    #[test]
    fn a_wrong_result_fails_with_both_values_named() {
        assert!(report(7).verdict().is_ok());
        let wrong = report(8);
        let failure = wrong.verdict().expect_err("8 is not 7").to_string();
        assert!(failure.contains("00000008") && failure.contains("00000007"), "{failure}");
    }

    #[test]
    fn rows_stand_below_their_heads() {
        let report = report(7);
        let head = report.head(1);
        let row = report.row(&report.results[0]);
        let columns = head.lines().nth(1).expect("there are heads");
        assert_eq!(columns.find("first call"), row.find("12 us (500 ns linking)"), "{head}{row}");
        assert_eq!(columns.find("moving"), row.find("9 B, 7.0 us"), "{head}{row}");
    }

    #[test]
    fn the_json_is_the_object_that_programs_were_promised() {
        let expected = json!({
            "pid": 1, "transport": "shm", "path": "shm", "file": "/some/file", "file_bytes": 9, "functions": [{
                "name": "crc32", "answer": "00000007", "expected": "00000007", "code_bytes": 472, "payload_bytes": 0,
                "first_call_us": 12.0, "link_us": 0.5, "later_call_us": 10.0, "fetch_instead_us": 7.0,
                "compute_instead_us": 3.0
            }]
        });
        assert_eq!(report(7).to_json(), expected);
    }
}
