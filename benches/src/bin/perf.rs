//! `farjump-perf`: the program behind `farjump perf`.

use std::ffi::OsString;
use std::process::ExitCode;

use clap::{Args, CommandFactory, Parser};
use farjump_benches::perf::{self, Perf, PerfOther};
use farjump_cli::build::{self, Build};
use farjump_cli::program::command_line::{Given, end, parse, prepare};
use farjump_cli::program::environment;
use farjump_cli::program::failure::Failure;

/// The commands by which the program starts itself.
#[derive(Parser, Debug)]
#[command(name = "farjump-perf")]
enum Own {
    Build(Box<Build>),
    PerfOther(PerfOther),
}

impl Own {
    /// Returns whether a command line has one of them.
    fn is_in(words: &[OsString]) -> bool {
        let commands = Own::command();
        words.get(1).is_some_and(|word| commands.find_subcommand(word).is_some())
    }

    fn run(self) -> Result<(), Failure> {
        match self {
            Own::Build(arguments) => build::run(*arguments),
            // SAFETY: only this program uses this command; it starts this process as its own user.
            Own::PerfOther(arguments) => unsafe { perf::run_other(&arguments) },
        }
    }
}

fn main() -> ExitCode {
    // SAFETY: `main` has just begun, and the process has no other thread.
    unsafe { environment::remove_empty() };
    let words: Vec<OsString> = std::env::args_os().collect();
    if Own::is_in(&words) {
        let Given { arguments, json } = parse::<Own>(Own::command(), &words);
        // SAFETY: no line of `main` above starts a thread.
        unsafe { prepare() };
        return end(arguments.run(), json);
    }
    let command =
        clap::Command::new("farjump-perf").bin_name("farjump perf").version(env!("CARGO_PKG_VERSION"));
    let Given { arguments, json } = parse::<Perf>(Perf::augment_args(command), &words);
    #[cfg(feature = "ucx")]
    if let Some(library) = arguments.ucx_library() {
        // SAFETY: no line of `main` above starts a thread.
        unsafe { environment::choose_ucx(library) };
    }
    // SAFETY: no line of `main` above starts a thread.
    unsafe { prepare() };
    // SAFETY: this program is `farjump-perf`, and its user names the libraries.
    end(unsafe { perf::run(arguments) }, json)
}
