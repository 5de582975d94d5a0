//! Measurements inside one process: `cargo run --release -p farjump-benches --bin farjump-benches`.
//! `farjump perf` measures between two processes.

mod filter;
mod layers;
mod report;
#[cfg(target_arch = "x86_64")]
#[allow(dead_code, reason = "the guard uses all of these modules, the layers the stepper alone")]
mod stepper;
mod store;
mod vectors;

use std::process::ExitCode;

type Failure = Box<dyn std::error::Error>;

/// Default number of rounds of look-ups.
const ROUNDS: usize = 15;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match run(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Runs the requested measurements.
fn run(arguments: &[&str]) -> Result<(), Failure> {
    let (layers, look_ups) = match *arguments {
        [] => (true, Some(ROUNDS)),
        ["layers"] => (true, None),
        #[cfg(target_arch = "x86_64")]
        [layers::COUNTED, layer] => return layers::run_counted(layer),
        ["look-up"] => (false, Some(ROUNDS)),
        ["look-up", rounds] => match rounds.parse() {
            Ok(rounds) if rounds > 0 => (false, Some(rounds)),
            _ => return Err(format!("`{rounds}`: give a number of rounds, at least 1").into()),
        },
        [vectors::TARGET, address, library] => return vectors::serve(address, library),
        ["filter"] => {
            report::machine();
            return filter::run(ROUNDS);
        }
        ["vectors"] => {
            report::machine();
            return vectors::run(ROUNDS);
        }
        _ => {
            return Err(
                "give `layers`, `look-up`, `look-up ROUNDS`, `vectors`, `filter`, or nothing for the first two".into(),
            );
        }
    };
    report::machine();
    if layers {
        layers::run()?;
    }
    look_ups.map_or(Ok(()), store::run)
}
