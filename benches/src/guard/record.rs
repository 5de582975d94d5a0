//! The counts, and their file.

use std::fs;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::case::{Case, MeasuredOperation};
use super::trace::Turn;
use crate::Failure;

/// Rows, and the compiler that they belong to.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Record {
    /// The compiler's own name for itself.
    pub(crate) rustc: String,
    pub(crate) rows: Vec<Row>,
}

/// The figures of one operation: each is the median over the turns. Work done once in many calls, such as
/// reading the clock, does not appear in them.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Row {
    /// The case and operation that the figures belong to.
    #[serde(flatten)]
    pub(crate) key: Key,
    /// farjump's own instructions, without those of the ifunc, of UCX or of another library.
    pub(crate) instructions: u64,
    /// Lines of memory, of 64 bytes, loaded from or stored to, except UCX's and constants.
    pub(crate) lines: u64,
    /// The lines among these in shared memory: in the mailbox, where there is one.
    pub(crate) shared_lines: u64,
    /// All other instructions: of the ifunc, the transport's library and libc. They are shown, not compared.
    #[serde(skip)]
    pub(crate) others: u64,
}

/// The case and operation of figures.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub(crate) struct Key {
    pub(crate) transport: String,
    pub(crate) mode: String,
    /// Bytes of payload.
    pub(crate) size: usize,
    /// The operation.
    pub(crate) operation: MeasuredOperation,
}

impl Row {
    pub(crate) fn of(case: &Case, operation: MeasuredOperation, turns: &[Turn]) -> Row {
        let middle = |of: fn(&Turn) -> u64| {
            let mut figures: Vec<_> = turns.iter().map(of).collect();
            figures.sort_unstable();
            figures.get(figures.len() / 2).copied().unwrap_or(0)
        };
        let Case { transport, mode, size } = case;
        let key = Key { transport: transport.clone(), mode: mode.to_string(), size: *size, operation };
        Row {
            key,
            instructions: middle(|turn| turn.own),
            lines: middle(|turn| turn.lines),
            shared_lines: middle(|turn| turn.shared_lines),
            others: middle(|turn| turn.ifunc + turn.library + turn.system),
        }
    }
}

impl std::fmt::Display for Key {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Key { transport, mode, size, operation } = self;
        write!(out, "{transport}, {mode}, {size} B, {operation}")
    }
}

impl Record {
    /// Returns the record of rows that this program counted.
    pub(crate) fn new(rows: Vec<Row>) -> Record {
        Record { rustc: env!("FARJUMP_GUARD_RUSTC").to_owned(), rows }
    }

    /// Reads a record from a file.
    ///
    /// # Errors
    /// The file cannot be read, or has another format.
    pub(crate) fn read(file: &Path) -> Result<Record, Failure> {
        let text = fs::read_to_string(file)
            .map_err(|error| format!("{}: {error}. `cargo xtask guard --record` makes it", file.display()))?;
        Ok(serde_json::from_str(&text).map_err(|error| format!("{}: {error}", file.display()))?)
    }

    /// Returns the rows, a line for each.
    ///
    /// # Errors
    /// None that can happen.
    pub(crate) fn to_lines(&self) -> Result<Vec<String>, Failure> {
        self.rows.iter().map(|row| Ok(serde_json::to_string(row)?)).collect()
    }

    /// Writes it to a file, a line for each row.
    ///
    /// # Errors
    /// The file cannot be written.
    pub(crate) fn write(&self, file: &Path) -> Result<(), Failure> {
        let rows = self.to_lines()?.join(",\n");
        let rustc = serde_json::to_string(&self.rustc)?;
        let text = format!("{{\n\"rustc\": {rustc},\n\"rows\": [\n{rows}\n]\n}}\n");
        Ok(fs::write(file, text).map_err(|error| format!("{}: {error}", file.display()))?)
    }

    /// Adds the rows of `kept` over transports without rows in `self`.
    pub(crate) fn in_place_of(mut self, kept: Option<Record>) -> Record {
        let kept = kept.map_or_else(Vec::new, |kept| kept.rows);
        let lacks = |row: &Row| self.rows.iter().all(|own| own.key.transport != row.key.transport);
        let others: Vec<_> = kept.into_iter().filter(lacks).collect();
        self.rows.extend(others);
        self
    }
}

#[cfg(test)]
mod tests {
    use farjump::Mode;

    use super::*;

    fn row(transport: &str, instructions: u64) -> Row {
        let case = Case { transport: transport.to_owned(), mode: Mode::Cached, size: 8 };
        Row::of(&case, MeasuredOperation::Send, &[Turn { own: instructions, lines: 9, ..Turn::default() }])
    }

    #[test]
    fn a_turn_in_which_more_was_done_does_not_count() {
        let case = Case { transport: "shm".to_owned(), mode: Mode::Cached, size: 8 };
        let turns = [100, 100, 3_000, 100].map(|own| Turn { own, ..Turn::default() });
        assert_eq!(Row::of(&case, MeasuredOperation::Send, &turns).instructions, 100);
    }

    #[test]
    fn a_written_record_reads_back_unchanged() -> Result<(), Failure> {
        let folder = tempfile::tempdir()?;
        let file = folder.path().join("record.json");
        let record = Record::new(vec![row("shm", 7), row("ucx-am", 8)]);
        record.write(&file)?;
        assert_eq!(Record::read(&file)?, record);
        Ok(())
    }

    #[test]
    fn a_missing_or_invalid_record_file_is_an_error_naming_it() -> Result<(), Failure> {
        let folder = tempfile::tempdir()?;
        let file = folder.path().join("record.json");
        let error = Record::read(&file).expect_err("no such file").to_string();
        assert!(error.contains("record.json") && error.contains("--record"), "{error}");
        fs::write(&file, "{\"rustc\": 1}")?;
        let error = Record::read(&file).expect_err("no record").to_string();
        assert!(error.contains("record.json"), "{error}");
        Ok(())
    }

    #[test]
    fn recording_keeps_rows_of_transports_that_are_not_here() {
        let kept = Record { rustc: "older".to_owned(), rows: vec![row("shm", 1), row("verbs-write", 2)] };
        let now = Record::new(vec![row("shm", 3)]);
        let merged = now.clone().in_place_of(Some(kept));
        assert_eq!(merged.rows, [row("shm", 3), row("verbs-write", 2)]);
        assert_eq!(merged.rustc, now.rustc);
    }
}
