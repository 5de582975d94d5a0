//! `farjump`: injects functions from the command line, and runs a target for them.

mod arguments;
#[cfg(feature = "build")]
mod build;
#[cfg(feature = "build")]
mod demo;
mod doctor;
mod environment;
mod export;
mod inject;
#[cfg(feature = "build")]
mod inspect;
mod key;
mod report;
mod serve;
mod stats;
mod store;
mod transports;

use std::process::ExitCode;

use clap::Parser;
#[cfg(feature = "build")]
use farjump_benches::perf;
use farjump_benches::program::failure::Failure;
use farjump_benches::program::output;

use arguments::{Arguments, Command};

fn main() -> ExitCode {
    #[cfg(feature = "ucx")]
    // SAFETY: `main` has just begun, and the process has no other thread.
    unsafe {
        environment::direct_log_of_ucx();
    }
    environment::warn_of_unknown();
    environment::start_log();
    let arguments = Arguments::parse();
    #[cfg(all(feature = "ucx", feature = "build"))]
    if let Command::Perf(perf) = &arguments.command
        && let Some(library) = perf.ucx_library()
    {
        // SAFETY: no line of `main` above starts a thread.
        unsafe { environment::choose_ucx(library) };
    }
    match choose_device(&arguments).and_then(|()| run(arguments.command)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            output::note(format_args!("error: {failure}"));
            failure.exit().into()
        }
    }
}

/// Sets the device of the transports over RDMA.
#[cfg(feature = "verbs")]
fn choose_device(arguments: &Arguments) -> Result<(), Failure> {
    let Some(device) = &arguments.device else { return Ok(()) };
    farjump_transports::verbs::choose_device(device).map_err(|why| Failure::new(format!("--device: {why}")))
}

#[cfg(not(feature = "verbs"))]
fn choose_device(_: &Arguments) -> Result<(), Failure> {
    Ok(())
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
        Command::Export(arguments) => export::run(&arguments),
        Command::Transports(arguments) => transports::run(&arguments),
        Command::Key(arguments) => key::run(&arguments),
        Command::Doctor(arguments) => doctor::run(&arguments),
        #[cfg(feature = "build")]
        Command::Demo(arguments) => demo::run(&arguments),
        #[cfg(feature = "build")]
        Command::DemoTarget(arguments) => demo::target::run(&arguments),
        #[cfg(feature = "build")]
        // SAFETY: this program is `farjump`, and its user names the libraries.
        Command::Perf(arguments) => unsafe { perf::run(&arguments) },
        #[cfg(feature = "build")]
        // SAFETY: only `farjump perf` uses this command; it starts this process as its own user.
        Command::PerfOther(arguments) => unsafe { perf::run_other(&arguments) },
    }
}
