//! `farjump`: functions injected from the command line, and a target to inject them into.

mod arguments;
#[cfg(feature = "build")]
mod compiled;
#[cfg(feature = "build")]
mod demo;
mod doctor;
mod environment;
mod failure;
mod inject;
mod key;
#[cfg(feature = "build")]
mod library;
mod limits;
mod output;
mod path;
#[cfg(feature = "build")]
mod perf;
mod quantity;
mod serve;
#[cfg(feature = "build")]
mod stage;
mod stats;
mod store;
mod transports;

use std::process::ExitCode;

use clap::Parser;

use arguments::{Arguments, Command};

fn main() -> ExitCode {
    #[cfg(feature = "ucx")]
    // SAFETY: the program has just begun and has no other thread.
    unsafe {
        environment::direct_log_of_ucx();
    }
    environment::warn_of_unknown();
    environment::start_log();
    let outcome = match Arguments::parse().command {
        #[cfg(feature = "build")]
        Command::Build(arguments) => library::build(arguments),
        #[cfg(feature = "build")]
        Command::Inspect(arguments) => library::inspect(&arguments),
        Command::Serve(arguments) => serve::run(&arguments),
        Command::Inject(arguments) => inject::run(&arguments),
        Command::Store(arguments) => store::run(&arguments),
        Command::Stats(arguments) => stats::run(&arguments),
        Command::Transports(arguments) => transports::run(&arguments),
        Command::Key(arguments) => key::run(&arguments),
        Command::Doctor(arguments) => doctor::run(&arguments),
        #[cfg(feature = "build")]
        Command::Demo(arguments) => demo::run(&arguments),
        #[cfg(feature = "build")]
        Command::DemoTarget(arguments) => demo::target::run(&arguments),
        #[cfg(feature = "build")]
        Command::Perf(arguments) => perf::run(&arguments),
        #[cfg(feature = "build")]
        Command::PerfOther(arguments) => perf::other::run(&arguments),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            output::note(format_args!("error: {failure}"));
            failure.exit().into()
        }
    }
}
