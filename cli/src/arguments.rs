//! The command line.

use std::ffi::OsString;

use clap::{CommandFactory, Parser, Subcommand};
#[cfg(feature = "build")]
use farjump_cli::build::Build;
#[cfg(feature = "build")]
use farjump_cli::inspect::Inspect;
use farjump_cli::program::command_line::{self, Given};
use farjump_cli::program::environment::explained_variables;
use farjump_cli::program::failure::EXIT_CODES;

#[cfg(feature = "build")]
use crate::demo::{Demo, target::DemoTarget};
use crate::doctor::Doctor;
use crate::export::Export;
use crate::inject::Inject;
use crate::key::Key;
use crate::objects::{evict::Evict, get::Get, put::Put};
use crate::perf::Perf;
use crate::serve::Serve;
use crate::stats::Stats;
use crate::store::Store;
use crate::transports::Transports;

/// Injects functions into other processes
///
/// Machine code and its payload go straight into the memory of another process, which links and calls the code.
/// Injected code has all rights of the target's process. A target accepts connections only of its own user, and from
/// other machines only of peers that hold its key.
#[derive(Parser, Debug)]
#[command(
    name = "farjump",
    version,
    arg_required_else_help = true,
    after_help = "See `farjump COMMAND --help` for examples.",
    after_long_help = after_help()
)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// Parses the command line. Ends the program if the command line is wrong, or requests help or the version.
pub(crate) fn parse() -> Given<Arguments> {
    let mut words: Vec<OsString> = std::env::args_os().collect();
    // The program behind it has the help of `perf`.
    if words.len() == 3 && words[1] == "help" && words[2] == "perf" {
        words.splice(1.., ["perf".into(), "--help".into()]);
    }
    let mut given: Given<Arguments> = command_line::parse(Arguments::command(), &words);
    given.json |= matches!(&given.arguments.command, Command::Perf(perf) if perf.has_json());
    given
}

fn after_help() -> String {
    format!(
        "\
Examples:
  farjump demo                                      see it work
  farjump build sum.c -o libsum.so                  make an ifunc library
  farjump serve --listen unix:store.sock --data f   be a target
  farjump inject libsum.so --to unix:store.sock     run the function there
  farjump stats --to unix:store.sock                statistics of the target
  farjump doctor                                    causes that make farjump slow here
  farjump perf latency --against ucx-am             measure it here

{EXIT_CODES}

{}",
        explained_variables()
    )
}

#[derive(Subcommand, Debug)]
pub(crate) enum Command {
    #[cfg(feature = "build")]
    Build(Build),
    #[cfg(feature = "build")]
    Inspect(Inspect),
    Serve(Box<Serve>),
    Inject(Inject),
    Store(Store),
    Stats(Stats),
    Put(Put),
    Get(Get),
    Evict(Evict),
    Export(Export),
    Transports(Transports),
    Key(Key),
    Doctor(Doctor),
    #[cfg(feature = "build")]
    Demo(Demo),
    #[cfg(feature = "build")]
    #[command(hide = true)]
    DemoTarget(DemoTarget),
    Perf(Perf),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_makes_sense_to_clap() {
        Arguments::command().debug_assert();
    }
}
