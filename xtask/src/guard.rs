//! `cargo xtask guard`: instructions and lines of memory of the hot path, compared with those recorded.

use std::path::PathBuf;
use std::time::Duration;

use crate::artifacts::Artifacts;
use crate::process::{Failed, Interrupt, Run};
use crate::workspace::{BUILDING, root};

/// Limit for counting. It takes one or two minutes, and in CI virtual machines get the processors first.
const LIMIT: Duration = Duration::from_secs(30 * 60);

/// The program's exit code if it can count nothing.
const CANNOT_COUNT: i32 = 3;

/// Options of `cargo xtask guard`.
#[derive(clap::Args, Debug)]
pub(crate) struct Options {
    /// Records the counts in benches/hot-path.json, in place of the old ones, and compares nothing.
    #[arg(long)]
    pub(crate) record: bool,
    /// Counts the transports over RDMA devices, in a virtual machine.
    #[arg(long)]
    pub(crate) machine: bool,
}

/// The record, from the workspace's root.
pub(crate) const RECORD: &str = "benches/hot-path.json";

/// Result of the step.
#[derive(Debug)]
pub(crate) enum Seen {
    /// Nothing grew, or all was recorded.
    Counted,
    /// Nothing can be counted on this machine, with the reason.
    NotHere(String),
}

/// Counts, for `cargo xtask guard`. Returns `true` on success.
///
/// # Errors
/// When a count grew, or the program cannot be built or run.
pub(crate) fn run(options: &Options, interrupt: &Interrupt) -> Result<bool, Failed> {
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

/// Builds the program that counts, and returns it.
///
/// # Errors
/// When it does not build.
pub(crate) fn build(interrupt: &Interrupt) -> Result<PathBuf, Failed> {
    // The counted program is that of `cargo build --release`, whichever flags are in the environment.
    let build = Run::cargo(interrupt).args(["build", "--release", "--package", "farjump-benches"]);
    let build = build.args(["--bin", "farjump_guard", "--no-default-features", "--features", "in-process"]);
    let build = build.env("CARGO_ENCODED_RUSTFLAGS", "");
    Artifacts::of(build.directory(root()).limit(BUILDING), "the program that counts")?
        .program("farjump_guard")
}

fn count(args: &[&str], interrupt: &Interrupt) -> Result<Seen, Failed> {
    let program = build(interrupt)?;
    let ended = Run::new(program, interrupt).args(args).directory(root()).limit(LIMIT).run()?;
    match ended.status.code() {
        Some(0) => Ok(Seen::Counted),
        Some(CANNOT_COUNT) => Ok(Seen::NotHere(ended.output.trim().to_owned())),
        _ => {
            let said = ended.output.lines().rev().find_map(|line| line.strip_prefix("error: "));
            Err(Failed::Because(said.unwrap_or("farjump_guard failed").to_owned()))
        }
    }
}
