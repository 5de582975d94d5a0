//! `farjump-guard`: the hot path, in instructions and in lines of memory, held against what was recorded.
//!
//! No time is measured, so neither a machine's speed nor its mood matters: `docs/decisions/hot-path-guard.md`.

#[cfg(target_arch = "x86_64")]
#[path = "../guard/mod.rs"]
mod guard;

use std::process::ExitCode;

/// What went wrong, in words.
type Failure = Box<dyn std::error::Error>;

/// The exit code where nothing can be counted: neither good nor bad.
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
static ALIGNED: guard::aligned::Aligned = guard::aligned::Aligned;

/// Says that nothing can be counted.
#[cfg(not(target_arch = "x86_64"))]
fn run() -> Result<ExitCode, Failure> {
    eprintln!("cannot count here: instructions are read on x86-64 only");
    Ok(ExitCode::from(CANNOT_COUNT))
}
