//! Counts the hot path and compares it with the record.
//!
//! A process of its own ([`child`]) makes the counted calls; this one single-steps it ([`trace`]).

mod case;
mod child;
mod compare;
pub(crate) mod lines;
mod maps;
mod marker;
mod memory_operands;
mod record;
mod run_cases;
mod trace;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;

use case::Case;
use record::Record;
use run_cases::Found;

use crate::{CANNOT_COUNT, Failure};

/// Counts instructions and lines of memory of farjump's hot path, and compares them with those recorded.
///
/// Exits with 0 if no count grew, with 1 if one did, and with 3 if nothing can be counted.
#[derive(Parser, Debug)]
#[command(name = "farjump_guard")]
struct Guard {
    /// Writes the counts into the file, in place of its rows. Rows of transports unusable here stay
    #[arg(long)]
    record: bool,
    /// The file of the record
    #[arg(long, value_name = "FILE", default_value = concat!(env!("CARGO_MANIFEST_DIR"), "/hot-path.json"))]
    file: PathBuf,
    /// Counts only these transports [default: all usable ones]
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    transports: Vec<String>,
    /// Also prints the rows as the record has them
    #[arg(long, conflicts_with = "record")]
    rows: bool,
    /// The library of the function `counter`, as `farjump build` makes it [default: it is compiled]
    #[arg(long, value_name = "FILE", conflicts_with = "first_call")]
    library: Option<PathBuf>,
    /// Number of calls of each kind to count. The record has their medians
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    turns: u32,
    /// Turns of an additional empty loop in each operation, to test that the guard detects them
    #[arg(long, value_name = "N", default_value_t = 0)]
    burden: u32,
    /// Counts only the first calls of code that the target has never seen, over shared memory. Compares nothing
    #[arg(long, conflicts_with_all = ["record", "rows", "transports", "burden"])]
    first_call: bool,
    #[command(subcommand)]
    counted: Option<Counted>,
}

/// The program's commands for itself.
#[derive(clap::Subcommand, Debug)]
enum Counted {
    /// Runs as the counted process.
    #[command(hide = true)]
    Counted(case::Counted),
}

/// Executes the command line, and returns the exit code.
///
/// # Errors
/// A failure to count, read or write; or growth.
pub(crate) fn run() -> Result<ExitCode, Failure> {
    let guard = Guard::parse();
    match &guard.counted {
        Some(Counted::Counted(counted)) => child::run(counted).map(|()| ExitCode::SUCCESS),
        None if guard.first_call => guard.count_first(),
        None => guard.count(),
    }
}

impl Guard {
    fn count_first(&self) -> Result<ExitCode, Failure> {
        let turns = match run_cases::count_first(self.turns) {
            Err(error) if trace::may_not(&error) => {
                eprintln!("cannot count here: processes may not be traced: {error}");
                return Ok(ExitCode::from(CANNOT_COUNT));
            }
            turns => turns?,
        };
        let middle = |of: fn(&trace::Turn) -> u64| {
            let mut figures: Vec<_> = turns.iter().map(|(_, turn)| of(turn)).collect();
            figures.sort_unstable();
            figures.get(figures.len() / 2).copied().unwrap_or(0)
        };
        println!("a first call over shm, at the target; medians of {}", turns.len());
        println!(
            "instructions  {:>6}, and {} of libc and the ifunc",
            middle(|turn| turn.own),
            middle(|turn| turn.ifunc + turn.system)
        );
        println!(
            "data          {:>6} lines in {} pages",
            middle(|turn| turn.lines),
            middle(|turn| turn.pages.0)
        );
        println!(
            "code          {:>6} lines in {} pages",
            middle(|turn| turn.code_lines),
            middle(|turn| turn.pages.1)
        );
        Ok(ExitCode::SUCCESS)
    }

    fn count(&self) -> Result<ExitCode, Failure> {
        let cases = Case::all(&self.transports)?;
        let now = match run_cases::count(&cases.usable, self.turns, self.burden, self.library.as_deref())? {
            Found::Counted(now) => now,
            Found::CannotCount(why) => {
                eprintln!("cannot count here: {why}");
                return Ok(ExitCode::from(CANNOT_COUNT));
            }
        };
        if self.record {
            let kept = if self.file.exists() { Some(Record::read(&self.file)?) } else { None };
            let rows = now.rows.len();
            now.in_place_of(kept).write(&self.file)?;
            println!("{rows} rows recorded in {}", self.file.display());
            return Ok(ExitCode::SUCCESS);
        }
        if self.rows {
            now.to_lines()?.iter().for_each(|row| println!("{row}"));
        }
        let comparison = compare::compare(&Record::read(&self.file)?, &now);
        print!("{comparison}");
        for (transport, why) in &cases.unusable {
            println!("{transport}: not counted: {why}");
        }
        comparison.verdict().map(|()| ExitCode::SUCCESS)
    }
}
