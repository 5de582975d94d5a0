//! `farjump_guard`: compares the hot path, in instructions and lines of memory, with a record.
//!
//! It measures no time, so neither the machine's speed nor its load matters:
//! `docs/design/tests.md`.

#[cfg(target_arch = "x86_64")]
#[path = "../guard/mod.rs"]
mod guard;

use std::process::ExitCode;

type Failure = Box<dyn std::error::Error>;

/// The exit code where nothing can be counted: neither success nor failure.
const CANNOT_COUNT: u8 = 3;

fn main() -> ExitCode {
    run().unwrap_or_else(|error| {
        eprintln!("error: {error}");
        ExitCode::FAILURE
    })
}

#[cfg(target_arch = "x86_64")]
use guard::run;

#[cfg(target_arch = "x86_64")]
#[global_allocator]
static LINES: guard::lines::Lines = guard::lines::Lines::new();

/// Reports that nothing can be counted.
#[cfg(not(target_arch = "x86_64"))]
fn run() -> Result<ExitCode, Failure> {
    eprintln!("cannot count here: instructions are read on x86-64 only");
    Ok(ExitCode::from(CANNOT_COUNT))
}
