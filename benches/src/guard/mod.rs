//! Counting the hot path and holding it against what was recorded.
//!
//! What is counted runs in a process of its own ([`child`]), which this one steps through ([`trace`]).

pub(crate) mod aligned;
mod case;
mod child;
mod compare;
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

/// Counts the instructions and the lines of memory of farjump's hot path, and compares them with those recorded.
///
/// Exits with 0 if nothing grew, with 1 if something did, and with 3 where nothing can be counted.
#[derive(Parser, Debug)]
#[command(name = "farjump-guard")]
struct Guard {
    /// Writes what is counted into the file, in place of what is there. Rows of transports that cannot be used here stay.
    #[arg(long)]
    record: bool,
    /// What was recorded.
    #[arg(long, value_name = "FILE", default_value = concat!(env!("CARGO_MANIFEST_DIR"), "/hot-path.json"))]
    file: PathBuf,
    /// Counts over these transports alone. All that are usable, unless given.
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    transports: Vec<String>,
    /// How many calls of a kind are counted; figures are of the one in the middle.
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    turns: u32,
    /// Turns of an empty loop that each operation is given besides, to see that the guard sees them.
    #[arg(long, value_name = "N", default_value_t = 0)]
    burden: u32,
    #[command(subcommand)]
    counted: Option<Counted>,
}

/// What this program starts itself as.
#[derive(clap::Subcommand, Debug)]
enum Counted {
    /// The process that is counted.
    #[command(hide = true)]
    Counted(case::Counted),
}

/// Does what the command line says, and returns with which exit code.
///
/// # Errors
/// Something cannot be counted, read or written; or something grew.
pub(crate) fn run() -> Result<ExitCode, Failure> {
    let guard = Guard::parse();
    match &guard.counted {
        Some(Counted::Counted(counted)) => child::run(counted).map(|()| ExitCode::SUCCESS),
        None => guard.count(),
    }
}

impl Guard {
    /// Counts, and compares or records.
    fn count(&self) -> Result<ExitCode, Failure> {
        let cases = Case::all(&self.transports)?;
        let now = match run_cases::count(&cases.usable, self.turns, self.burden)? {
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
        let comparison = compare::compare(&Record::read(&self.file)?, &now);
        print!("{comparison}");
        for (transport, why) in &cases.unusable {
            println!("{transport}: not counted: {why}");
        }
        comparison.verdict().map(|()| ExitCode::SUCCESS)
    }
}
