//! The results of the suite, and their display.

use std::fmt;

use super::Mode;

/// The result of a check.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Verdict {
    /// Nothing was wrong with this number of things (frames, calls, refusals); never 0.
    Ok(u64),
    /// The failure.
    Failed(String),
    /// The reason why the check could not run.
    Skipped(String),
}

/// A group of checks: a table of the matrix.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
#[non_exhaustive]
pub enum Level {
    /// Two endpoints and the frames between them.
    Channels,
    /// Sources and a target, in threads of one process.
    Threads(Mode),
    /// A source and a target, in processes of their own.
    Processes(Mode),
    /// A source and a target, on machines of their own.
    Machines(Mode),
}

impl Level {
    /// The mode in which code travels there; `None` without code.
    pub(super) fn mode(self) -> Option<Mode> {
        match self {
            Level::Channels => None,
            Level::Threads(mode) | Level::Processes(mode) | Level::Machines(mode) => Some(mode),
        }
    }
}

impl fmt::Display for Level {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Level::Channels => out.write_str("channels"),
            Level::Threads(mode) => write!(out, "links, {mode}, one process"),
            Level::Processes(mode) => write!(out, "links, {mode}, two processes"),
            Level::Machines(mode) => write!(out, "links, {mode}, two machines"),
        }
    }
}

/// One check of one subject.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Cell {
    /// Its table.
    pub level: Level,
    /// The check's name: its column.
    pub check: &'static str,
    /// Its result.
    pub verdict: Verdict,
}

/// The results for a subject. Displays as the tables of a [`Matrix`] with this one row.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Outcome {
    pub(super) subject: String,
    pub(super) rule: String,
    pub(super) cells: Vec<Cell>,
}

impl Outcome {
    /// The subject's name.
    pub fn subject(&self) -> &str {
        &self.subject
    }

    /// Every check, in the order in which they ran.
    pub fn cells(&self) -> &[Cell] {
        &self.cells
    }

    /// The failures: check and reason.
    pub fn failures(&self) -> impl Iterator<Item = (&Cell, &str)> {
        self.cells.iter().filter_map(|cell| match &cell.verdict {
            Verdict::Failed(why) => Some((cell, why.as_str())),
            _ => None,
        })
    }

    /// Returns whether some check ran and none failed.
    pub fn conforms(&self) -> bool {
        self.failures().next().is_none()
            && self.cells.iter().any(|cell| matches!(cell.verdict, Verdict::Ok(_)))
    }

    /// Panics with a list of failures, if there is one or no check ran.
    #[track_caller]
    pub fn assert_conforms(&self) {
        let list: String =
            self.failures().map(|(cell, why)| format!("\n  {}, {}: {why}", cell.level, cell.check)).collect();
        assert!(self.conforms(), "{} does not conform:{list}\n\n{self}", self.subject);
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&Matrix { rows: vec![Row::Tried(self.clone())] }, out)
    }
}

/// Tables of outcomes: a row for each subject, a column for each check.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Matrix {
    rows: Vec<Row>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum Row {
    Tried(Outcome),
    Missing { name: String, why: String },
}

impl Matrix {
    /// Adds the results for a subject.
    pub fn add(&mut self, outcome: Outcome) {
        self.rows.push(Row::Tried(outcome));
    }

    /// Adds a row for a missing subject, with the reason.
    pub fn add_missing(&mut self, name: &str, why: &str) {
        self.rows.push(Row::Missing { name: name.to_owned(), why: why.to_owned() });
    }

    /// Returns whether some check ran and none failed.
    pub fn conforms(&self) -> bool {
        let mut tried = self.tried().peekable();
        tried.peek().is_some() && tried.all(Outcome::conforms)
    }

    fn tried(&self) -> impl Iterator<Item = &Outcome> {
        self.rows.iter().filter_map(|row| match row {
            Row::Tried(outcome) => Some(outcome),
            Row::Missing { .. } => None,
        })
    }

    /// The levels and their checks, in the order in which they first appear.
    fn tables(&self) -> Vec<(Level, Vec<&'static str>)> {
        let mut tables: Vec<(Level, Vec<&'static str>)> = Vec::new();
        for cell in self.tried().flat_map(|outcome| &outcome.cells) {
            let index = tables.iter().position(|(level, _)| *level == cell.level).unwrap_or_else(|| {
                tables.push((cell.level, Vec::new()));
                tables.len() - 1
            });
            let checks = &mut tables[index].1;
            if !checks.contains(&cell.check) {
                checks.push(cell.check);
            }
        }
        tables
    }
}

impl fmt::Display for Matrix {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = self.rows.iter().map(|row| match row {
            Row::Tried(outcome) => outcome.subject.len(),
            Row::Missing { name, .. } => name.len(),
        });
        let tables = self.tables();
        let titles = tables.iter().map(|(level, _)| level.to_string().len());
        let first = names.chain(titles).max().unwrap_or(0);
        let rules = self.tried().map(|outcome| outcome.rule.len()).max().unwrap_or(0).max("rule".len());
        let mut notes = Vec::new();
        for (index, (level, checks)) in tables.iter().enumerate() {
            let title = level.to_string();
            write!(out, "{}{title:first$}  {:rules$}", if index == 0 { "" } else { "\n" }, "rule")?;
            writeln!(out, "  {}", checks.join("  "))?;
            for row in &self.rows {
                match row {
                    Row::Missing { name, why } => {
                        writeln!(out, "{name:first$}  {:rules$}  skipped: {why}", "")?
                    }
                    Row::Tried(outcome) => {
                        let line = line(outcome, *level, checks, &mut notes);
                        writeln!(out, "{:first$}  {:rules$}  {line}", outcome.subject, outcome.rule)?;
                    }
                }
            }
        }
        if !notes.is_empty() {
            writeln!(out)?;
        }
        notes.iter().try_for_each(|failure| out.write_str(failure))
    }
}

/// The cells of one row; results that need more words go to `notes`.
fn line(outcome: &Outcome, level: Level, checks: &[&'static str], notes: &mut Vec<String>) -> String {
    let find =
        |check: &'static str| outcome.cells.iter().find(|cell| cell.level == level && cell.check == check);
    // A reason common to all checks is shown once, in the row.
    if let Some(Cell { verdict: Verdict::Skipped(why), .. }) = checks.first().and_then(|check| find(check))
        && checks
            .iter()
            .all(|check| find(check).is_some_and(|cell| cell.verdict == Verdict::Skipped(why.clone())))
    {
        return format!("skipped: {why}");
    }
    let mut line = String::new();
    for check in checks {
        let word = match find(check).map(|cell| &cell.verdict) {
            Some(Verdict::Ok(_)) => "ok",
            Some(Verdict::Failed(why)) => {
                notes.push(format!("{}, {level}, {check} failed: {why}\n", outcome.subject));
                "failed"
            }
            Some(Verdict::Skipped(why)) => {
                notes.push(format!("{}, {level}, {check} skipped: {why}\n", outcome.subject));
                "skipped"
            }
            None => "-",
        };
        line += &format!("{word:width$}  ", width = check.len());
    }
    line.trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(subject: &str, verdicts: &[Verdict]) -> Outcome {
        let cell = |(check, verdict): (&&'static str, &Verdict)| Cell {
            level: Level::Channels,
            check,
            verdict: verdict.clone(),
        };
        let cells = ["laps", "sleeping"].iter().zip(verdicts).map(cell).collect();
        Outcome { subject: subject.into(), rule: "fenced".into(), cells }
    }

    #[test]
    fn the_matrix_shows_passed_failed_and_skipped_checks() {
        let skipped = Verdict::Skipped("no wind".into());
        let mut matrix = Matrix::default();
        matrix.add(outcome("kite", &[Verdict::Ok(3), Verdict::Failed("it crashed".into())]));
        matrix.add(outcome("boat", &[skipped.clone(), skipped]));
        matrix.add_missing("plane", "no hangar");
        let expected = "\
channels  rule    laps  sleeping
kite      fenced  ok    failed
boat      fenced  skipped: no wind
plane             skipped: no hangar

kite, channels, sleeping failed: it crashed
";
        assert_eq!(matrix.to_string(), expected);
        assert!(!matrix.conforms());
    }

    #[test]
    fn nothing_tried_does_not_conform() {
        assert!(!Matrix::default().conforms());
        let skipped = Verdict::Skipped("no wind".into());
        assert!(!outcome("boat", &[skipped.clone(), skipped.clone()]).conforms());
        assert!(outcome("boat", &[skipped, Verdict::Ok(1)]).conforms());
    }
}
