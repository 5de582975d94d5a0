//! `cargo xtask guard`: instructions and lines of memory of the hot path, compared with those recorded.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::process::{Failed, Interrupt, Run};
use crate::step::cargo;
use crate::vm;
use crate::workspace::{Workspace, root};

/// Limit for counting. It takes one or two minutes, and in CI leaves the processors to virtual machines.
const LIMIT: Duration = Duration::from_secs(30 * 60);

/// The program's exit code where nothing can be counted.
const CANNOT_COUNT: i32 = 3;

/// Options of `cargo xtask guard`.
#[derive(clap::Args, Debug)]
pub(crate) struct Options {
    /// Records the counts in benches/hot-path.json, in place of the old ones, and compares nothing.
    #[arg(long)]
    record: bool,
    /// Counts the transports over RDMA devices, in a virtual machine.
    #[arg(long)]
    machine: bool,
}

/// The record, from the workspace's root.
pub(crate) const RECORD: &str = "benches/hot-path.json";

/// The beginning of the record's rows over RDMA devices.
const OF_DEVICES: &str = "{\"transport\":\"verbs-";

/// Result of the step.
#[derive(Debug)]
pub(crate) enum Seen {
    /// Nothing grew, or all was recorded.
    Counted,
    /// Nothing can be counted on this machine, with the reason.
    NotHere(String),
}

/// Counts, for `cargo xtask guard`; `true` on success.
///
/// # Errors
/// Something grew, or the program cannot be built or run.
pub(crate) fn run(options: &Options, interrupt: &Interrupt) -> Result<bool, Failed> {
    if options.machine {
        let counted = vm::run(&vm::Options::of_guard(), interrupt)?;
        return if options.record { record_of_machine(interrupt) } else { Ok(counted) };
    }
    let args: &[&str] = if options.record { &["--record"] } else { &[] };
    match count(args, interrupt)? {
        Seen::Counted => Ok(true),
        // The program has printed the reason.
        Seen::NotHere(_) => Ok(false),
    }
}

/// Counts and compares.
///
/// # Errors
/// As for [`run`].
pub(crate) fn check(interrupt: &Interrupt) -> Result<Seen, Failed> {
    count(&[], interrupt)
}

/// Writes the rows that a machine has counted into the record. `false` if it has counted none.
fn record_of_machine(interrupt: &Interrupt) -> Result<bool, Failed> {
    let file = root().join(RECORD);
    let failed = |file: &Path| {
        let file = file.display().to_string();
        move |error| Failed::Because(format!("{file}: {error}"))
    };
    let log = vm::log_of_guard(interrupt)?;
    let said = String::from_utf8_lossy(&fs::read(&log).map_err(failed(&log))?).into_owned();
    let counted: Vec<&str> = said.lines().filter_map(row).collect();
    if counted.is_empty() {
        println!("no row was counted: {}", log.display());
        return Ok(false);
    }
    let text = with_rows(&fs::read_to_string(&file).map_err(failed(&file))?, &counted);
    fs::write(&file, text).map_err(failed(&file))?;
    println!("{} rows recorded in {}", counted.len(), file.display());
    Ok(true)
}

/// The row in a line of a machine's console.
fn row(line: &str) -> Option<&str> {
    let row = &line[line.find(OF_DEVICES)?..];
    Some(&row[..=row.find('}')?])
}

/// The text of a record with these rows over RDMA devices.
fn with_rows(record: &str, counted: &[&str]) -> String {
    let is_row = |line: &&str| line.starts_with('{') && line.len() > 1;
    let rows = record.lines().filter(is_row).map(|line| line.trim_end_matches(','));
    let rows: Vec<&str> =
        rows.filter(|row| !row.starts_with(OF_DEVICES)).chain(counted.iter().copied()).collect();
    let head: Vec<&str> = record.lines().take_while(|line| !is_row(line)).collect();
    format!("{}\n{}\n]\n}}\n", head.join("\n"), rows.join(",\n"))
}

/// Builds the program that counts, and returns it.
///
/// # Errors
/// It does not build.
pub(crate) fn build(interrupt: &Interrupt) -> Result<PathBuf, Failed> {
    // The counted program is that of `cargo build --release`, whatever flags are in the environment.
    let plain = [("CARGO_ENCODED_RUSTFLAGS", "")];
    let build = ["build", "--release", "--package", "farjump-benches", "--bin", "farjump-guard"];
    let features = ["--no-default-features", "--features", "in-process"];
    cargo(interrupt, &[&build[..], &features].concat(), &plain)?;
    Ok(Workspace::load(false, interrupt)?.target().join("release/farjump-guard"))
}

fn count(args: &[&str], interrupt: &Interrupt) -> Result<Seen, Failed> {
    let program = build(interrupt)?;
    let ended = Run::new(program, interrupt).args(args).directory(root()).limit(LIMIT).run()?;
    match ended.status.code() {
        Some(0) => Ok(Seen::Counted),
        Some(CANNOT_COUNT) => Ok(Seen::NotHere(ended.output.trim().to_owned())),
        _ => {
            let said = ended.output.lines().rev().find_map(|line| line.strip_prefix("error: "));
            Err(Failed::Because(said.unwrap_or("farjump-guard failed").to_owned()))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_of_a_machine_replace_those_of_an_earlier_one_and_no_others() {
        let old = "{\n\"rustc\": \"1\",\n\"rows\": [\n{\"transport\":\"shm\",\"lines\":1},\n{\"transport\":\"verbs-send\",\"lines\":2}\n]\n}\n";
        let console = "[    1.2] {\"transport\":\"verbs-write\",\"lines\":3}\r";
        let new = with_rows(old, &[row(console).unwrap()]);
        assert_eq!(new, old.replace("verbs-send\",\"lines\":2", "verbs-write\",\"lines\":3"));
        assert_eq!(row("verbs-write  cached  8 send"), None);
    }
}
