//! The command line.

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};

#[cfg(feature = "build")]
use crate::build::Build;
#[cfg(feature = "build")]
use crate::demo::{Demo, target::DemoTarget};
use crate::doctor::Doctor;
use crate::environment::VARIABLES;
use crate::export::Export;
use crate::help;
use crate::inject::Inject;
#[cfg(feature = "build")]
use crate::inspect::Inspect;
use crate::key::Key;
use crate::objects::{evict::Evict, get::Get, put::Put};
use crate::serve::Serve;
use crate::stats::Stats;
use crate::store::Store;
use crate::transports::Transports;
#[cfg(feature = "build")]
use farjump_benches::perf::{Perf, PerfOther};
use farjump_benches::program::failure::EXIT_CODES;

/// Injects functions into other processes
///
/// Machine code and its payload go straight into the memory of another process, which links and calls the
/// code. Injected code has all rights of the target's process. A target takes connections of its own user
/// only, and from other machines only of peers that hold its key.
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

/// Parses the command line. Ends the program if it is wrong, or asks for help or the version.
pub(crate) fn parse() -> Arguments {
    let mut command = help::fitted(Arguments::command());
    let parsed = Arguments::from_arg_matches(&command.get_matches_mut());
    parsed.unwrap_or_else(|error| error.format(&mut command).exit())
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
  farjump doctor                                    what keeps farjump from running fast here
  farjump perf latency --against ucx-am             how fast it is here

{EXIT_CODES}

{VARIABLES}"
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
    #[cfg(feature = "build")]
    Perf(Box<Perf>),
    #[cfg(feature = "build")]
    #[command(hide = true)]
    PerfOther(PerfOther),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_makes_sense_to_clap() {
        Arguments::command().debug_assert();
    }
}
