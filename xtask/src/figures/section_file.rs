//! The stored result of a section's run, beside the page: JSON, a row a line.

use std::fs;
use std::path::Path;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::process::Failed;

/// A run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Kept {
    pub(crate) section: String,
    /// The command line.
    pub(crate) command: String,
    pub(crate) date: String,
    /// Version and compiler of the build.
    pub(crate) built: String,
    /// The reason why it ended early, or did not begin; `None` if it succeeded.
    pub(crate) failed: Option<String>,
    /// Output of `farjump perf --json`: unchanged, for readers of the file.
    pub(crate) machine: Value,
    pub(crate) rounds: Vec<Value>,
    pub(crate) rows: Vec<Value>,
}

/// The columns of a row that bounds use. Columns that a metric lacks are null, or missing.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Row {
    pub(crate) metric: String,
    pub(crate) subject: String,
    pub(crate) transport: Option<String>,
    pub(crate) mode: Option<String>,
    pub(crate) size: Option<u64>,
    pub(crate) reference: Option<String>,
    pub(crate) ratio: Option<f64>,
    pub(crate) ratio_min: Option<f64>,
    pub(crate) ratio_max: Option<f64>,
    pub(crate) state: Option<String>,
    pub(crate) missing: Option<String>,
    pub(crate) sources: Option<u64>,
    /// All other columns.
    #[serde(flatten)]
    pub(crate) others: Map<String, Value>,
}

impl Kept {
    /// Reads a stored run; `None` if there is none.
    ///
    /// # Errors
    /// The file cannot be read, or is malformed.
    pub(crate) fn read(path: &Path) -> Result<Option<Kept>, Failed> {
        if !path.exists() {
            return Ok(None);
        }
        let wrong = |error: &dyn std::fmt::Display| Failed::Because(format!("{}: {error}", path.display()));
        let text = fs::read_to_string(path).map_err(|error| wrong(&error))?;
        let kept: Kept = serde_json::from_str(&text).map_err(|error| wrong(&error))?;
        kept.rows().map_err(|error| wrong(&error))?;
        Ok(Some(kept))
    }

    /// Writes the run to a file.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub(crate) fn write(&self, path: &Path) -> Result<(), Failed> {
        let wrong = |error: &dyn std::fmt::Display| Failed::Because(format!("{}: {error}", path.display()));
        let value = serde_json::to_value(self).map_err(|error| wrong(&error))?;
        fs::write(path, by_lines(&value)).map_err(|error| wrong(&error))
    }

    /// Adds the output of `farjump perf --json`.
    ///
    /// # Errors
    /// When the output has another format.
    pub(crate) fn take(&mut self, printed: &str) -> Result<(), Failed> {
        self.read_report(printed).map_err(|error| {
            Failed::Because(format!("what it printed is not what docs/reference/perf.md says: {error}"))
        })
    }

    fn read_report(&mut self, printed: &str) -> Result<(), serde_json::Error> {
        #[derive(Deserialize)]
        struct Report {
            machine: Value,
            rounds: Vec<Value>,
            rows: Vec<Value>,
        }
        let Report { machine, rounds, rows } = serde_json::from_str(printed)?;
        (self.machine, self.rounds, self.rows) = (machine, rounds, rows);
        self.rows().map(|_| ())
    }

    /// The run's rows.
    ///
    /// # Errors
    /// When a row lacks a required column.
    pub(crate) fn rows(&self) -> Result<Vec<Row>, serde_json::Error> {
        self.rows.iter().map(Row::deserialize).collect()
    }
}

/// An object as text with a line for each of its values, and for each element of lists.
fn by_lines(object: &Value) -> String {
    let lines = object.as_object().into_iter().flatten().map(|(key, value)| {
        let value = match value.as_array().map(Vec::as_slice) {
            None | Some([]) => value.to_string(),
            Some(list) => {
                let elements: Vec<_> = list.iter().map(Value::to_string).collect();
                format!("[\n{}\n]", elements.join(",\n"))
            }
        };
        format!("{}: {value}", Value::from(key.as_str()))
    });
    format!("{{\n{}\n}}\n", lines.collect::<Vec<_>>().join(",\n"))
}

#[cfg(test)]
pub(crate) mod tests {
    use serde_json::json;

    use super::*;

    /// A run with these rows, each completed by the usual cells.
    pub(crate) fn kept(section: &str, rows: &[Value]) -> Kept {
        let usual = json!({
            "metric": "latency", "unit": "us", "subject": "farjump", "transport": "shm", "mode": "cached", "size": 8,
            "median": 0.1, "reference": "raw", "reference_median": 0.2, "ratio": 0.5, "ratio_min": 0.4, "ratio_max": 0.6,
            "state": "near",
        });
        let full = |row: &Value| {
            let mut full = usual.as_object().expect("it is one").clone();
            full.extend(row.as_object().expect("cells are an object").clone());
            Value::Object(full)
        };
        Kept {
            section: section.to_owned(),
            command: "farjump perf latency".to_owned(),
            date: "2026-11-22".to_owned(),
            built: "farjump 0.1.0 at a98c5f20, built by rustc 1.95.0 (59807616e 2026-04-14)".to_owned(),
            failed: None,
            machine: json!({ "processor": "one", "kernel": "6", "ucx": null, "source_cpu": 0, "target_cpu": 1 }),
            rounds: vec![json!({ "size": 8, "round": 1, "line_ns": 25.0, "state": "near" })],
            rows: rows.iter().map(full).collect(),
        }
    }

    #[test]
    fn a_kept_run_is_read_back_and_has_one_line_per_row() {
        let folder = tempfile::tempdir().expect("a folder can be made");
        let path = folder.path().join("latency.json");
        assert!(Kept::read(&path).expect("nothing there is no failure").is_none());
        let run = kept("latency", &[json!({}), json!({ "size": 16 })]);
        run.write(&path).expect("it can be written");
        let text = fs::read_to_string(&path).expect("it is there");
        assert_eq!(text.lines().filter(|line| line.contains("\"metric\"")).count(), 2, "{text}");
        let again = Kept::read(&path).expect("it is whole").expect("it is there");
        let sizes: Vec<_> = again.rows().expect("they are rows").iter().map(|row| row.size).collect();
        assert_eq!((sizes, again.rounds.len()), (vec![Some(8), Some(16)], 1));
        fs::write(&path, "{}").expect("it can be written");
        assert!(Kept::read(&path).is_err());
    }
}
