//! The command line.

use std::ffi::OsString;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::parser::ValueSource;
use clap::{ArgMatches, CommandFactory, FromArgMatches, Parser, Subcommand};

#[cfg(feature = "build")]
use crate::build::Build;
#[cfg(feature = "build")]
use crate::demo::{Demo, target::DemoTarget};
use crate::doctor::Doctor;
use crate::environment::{TRANSPORT, VARIABLES};
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
use farjump_benches::program::failure::{EXIT_CODES, Exit, error_as_json};
use farjump_benches::program::output;

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

/// The command line as it was given.
pub(crate) struct Given {
    pub(crate) command: Command,
    /// Whether the command has `--json`.
    pub(crate) json: bool,
    /// The variables of the environment that stand for options which were not given, and their values.
    pub(crate) variables: Vec<(String, String)>,
}

/// Parses the command line. Ends the program if the command line is wrong, or wants help or the version.
pub(crate) fn parse() -> Given {
    let mut command = help::fitted(Arguments::command());
    let words: Vec<OsString> = std::env::args_os().collect();
    let parsed = command.try_get_matches_from_mut(&words).and_then(|matches| {
        let variables = variables(&command, &matches);
        let json = matches.subcommand().is_some_and(|(_, matches)| {
            matches.try_get_one::<bool>("json").ok().flatten().copied().unwrap_or(false)
        });
        let Arguments { command } = Arguments::from_arg_matches(&matches)?;
        Ok(Given { command, json, variables })
    });
    parsed.unwrap_or_else(|error| end(&command, &words, error.format(&mut command.clone())))
}

/// Ends the program with clap's message: help, or the error of a wrong command line.
fn end(command: &clap::Command, words: &[OsString], error: clap::Error) -> ! {
    let is_wrong = error.use_stderr() && error.kind() != ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand;
    if !is_wrong {
        error.exit();
    }
    let variable = of_variable(command, words, &error);
    let json = words.iter().skip(1).take_while(|word| *word != "--").any(|word| word == "--json");
    if variable.is_none() && !json {
        error.exit();
    }
    let mut text = error.render().to_string();
    if let Some((option, variable)) = variable {
        text = text.replacen(&format!("for '{option}'"), &format!("of the variable {variable}"), 1);
    }
    if json {
        let words = text.strip_prefix("error: ").unwrap_or(&text);
        let end = ["\n\nUsage:", "\n\nFor more"].iter().filter_map(|end| words.find(end)).min();
        let lines = words[..end.unwrap_or(words.len())].lines().map(str::trim);
        let sentence = lines.filter(|line| !line.is_empty()).collect::<Vec<_>>().join(" ");
        output::note(error_as_json(&sentence, Exit::Usage));
    } else {
        output::note(text.trim_end());
    }
    std::process::exit(Exit::Usage as i32)
}

/// Returns the option with the wrong value, and the variable that the value is from, if it is from one.
fn of_variable(command: &clap::Command, words: &[OsString], error: &clap::Error) -> Option<(String, String)> {
    let text = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text.clone()),
        _ => None,
    };
    let (option, value) = (text(ContextKind::InvalidArg)?, text(ContextKind::InvalidValue)?);
    let given = |long: &str| {
        words
            .iter()
            .filter_map(|word| word.to_str()?.strip_prefix("--")?.strip_prefix(long))
            .any(|rest| rest.is_empty() || rest.starts_with('='))
    };
    let all = command.get_subcommands().flat_map(clap::Command::get_arguments);
    let long = option.trim_start_matches('-').split([' ', '=', '[']).next()?;
    let argument =
        all.into_iter().find(|argument| argument.get_long() == Some(long) && argument.get_env().is_some())?;
    let variable = argument.get_env()?;
    let set = std::env::var_os(variable)?.to_string_lossy().into_owned();
    let is_from_it = set.split(',').any(|part| part == value) || set == value;
    let is_from_it = is_from_it && !argument.get_long().is_some_and(given);
    is_from_it.then(|| (option, variable.to_string_lossy().into_owned()))
}

/// Returns the variables that stand for options of the command, with their values.
fn variables(command: &clap::Command, matches: &ArgMatches) -> Vec<(String, String)> {
    let Some((name, matches)) = matches.subcommand() else { return Vec::new() };
    let Some(command) = command.find_subcommand(name) else { return Vec::new() };
    let from = |argument: &clap::Arg| {
        let source = matches.value_source(argument.get_id().as_str());
        let variable = match argument.get_env() {
            Some(variable) => (source == Some(ValueSource::EnvVariable)).then_some(variable)?,
            // Commands that do not always connect read the variable when they do.
            None if argument.get_id() == "transport" && source.is_none() => TRANSPORT.as_ref(),
            None => return None,
        };
        let value = std::env::var_os(variable)?;
        Some((variable.to_string_lossy().into_owned(), value.to_string_lossy().into_owned()))
    };
    command.get_arguments().filter_map(from).collect()
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
