//! `farjump`: injects functions from the command line, and runs a target for them.

mod arguments;
#[cfg(feature = "build")]
mod build;
#[cfg(feature = "build")]
mod demo;
mod doctor;
mod environment;
mod export;
mod help;
mod inject;
#[cfg(feature = "build")]
mod inspect;
mod key;
mod objects;
mod progress;
mod query_link;
mod reply_format;
mod report;
mod resources;
mod serve;
mod stats;
mod store;
mod transports;

use std::process::ExitCode;

#[cfg(feature = "build")]
use farjump_benches::perf;
use farjump_benches::program::failure::Failure;
use farjump_benches::program::output;

use arguments::{Command, Given};

fn main() -> ExitCode {
    // SAFETY: `main` has just begun, and the process has no other thread.
    unsafe {
        environment::remove_empty();
        #[cfg(feature = "ucx")]
        environment::direct_log_of_ucx();
    }
    environment::warn_of_unknown();
    environment::start_log();
    resources::prepare();
    let Given { command, json, variables } = arguments::parse();
    #[cfg(all(feature = "ucx", feature = "build"))]
    if let Command::Perf(perf) = &command
        && let Some(library) = perf.ucx_library()
    {
        // SAFETY: no line of `main` above starts a thread.
        unsafe { environment::choose_ucx(library) };
    }
    match choose_device(&command).and_then(|()| run(command)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            let failure = environment::name_variable(failure, &variables);
            match json {
                true => output::note(failure.to_json()),
                false => output::note(format_args!("error: {failure}")),
            }
            failure.exit().into()
        }
    }
}

/// Sets the device of the transports over RDMA, for commands that use one.
fn choose_device(command: &Command) -> Result<(), Failure> {
    match command {
        Command::Serve(arguments) => arguments.device.choose(),
        Command::Inject(arguments) => arguments.device.choose(),
        Command::Transports(arguments) => arguments.device.choose(),
        #[cfg(feature = "build")]
        Command::Demo(arguments) => arguments.device.choose(),
        #[cfg(feature = "build")]
        Command::Perf(arguments) => arguments.device().choose(),
        _ => Ok(()),
    }
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
        #[cfg(feature = "build")]
        // SAFETY: this program is `farjump`, and its user names the libraries.
        Command::Perf(arguments) => unsafe { perf::run(&arguments) },
        #[cfg(feature = "build")]
        // SAFETY: only `farjump perf` uses this command; it starts this process as its own user.
        Command::PerfOther(arguments) => unsafe { perf::run_other(&arguments) },
    }
}
