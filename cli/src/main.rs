//! `farjump`: injects functions from the command line, and runs a target for them.

mod arguments;
#[cfg(feature = "build")]
mod demo;
mod doctor;
mod export;
mod inject;
mod key;
mod objects;
mod perf;
mod progress;
mod reply_format;
mod report;
mod serve;
mod stats;
mod store;
mod transports;

use std::process::ExitCode;

use farjump_cli::program::command_line::{Given, end, prepare};
use farjump_cli::program::environment;
use farjump_cli::program::failure::Failure;
#[cfg(feature = "build")]
use farjump_cli::{build, inspect};

use arguments::{Arguments, Command};

fn main() -> ExitCode {
    // SAFETY: `main` has just begun, and the process has no other thread.
    unsafe { environment::remove_empty() };
    let Given { arguments: Arguments { command }, json } = arguments::parse();
    // The program behind `perf` prepares itself.
    if !matches!(command, Command::Perf(_)) {
        // SAFETY: no line of `main` above starts a thread.
        unsafe { prepare() };
    }
    end(run(command), json)
}

fn run(command: Command) -> Result<(), Failure> {
    match command {
        #[cfg(feature = "build")]
        Command::Build(arguments) => build::run(arguments),
        #[cfg(feature = "build")]
        Command::Inspect(arguments) => inspect::run(&arguments),
        Command::Serve(arguments) => serve::run(&arguments),
        Command::Inject(arguments) => inject::run(&arguments),
        Command::Store(arguments) => store::run(&arguments),
        Command::Stats(arguments) => stats::run(&arguments),
        Command::Put(arguments) => objects::put::run(&arguments),
        Command::Get(arguments) => objects::get::run(&arguments),
        Command::Evict(arguments) => objects::evict::run(&arguments),
        Command::Export(arguments) => export::run(&arguments),
        Command::Transports(arguments) => transports::run(&arguments),
        Command::Key(arguments) => key::run(&arguments),
        Command::Doctor(arguments) => doctor::run(&arguments),
        #[cfg(feature = "build")]
        Command::Demo(arguments) => demo::run(&arguments),
        #[cfg(feature = "build")]
        Command::DemoTarget(arguments) => demo::target::run(&arguments),
        Command::Perf(arguments) => perf::run(&arguments),
    }
}
