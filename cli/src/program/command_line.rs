//! The way of each command from the command line to the exit code.

use std::ffi::OsString;
use std::process::ExitCode;

use clap::FromArgMatches;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use farjump::config::{
    ClientConfig, Config, ConfigError, ConfigFault, Interfaces, LinkConfig, Origin, TargetConfig,
};

#[cfg(feature = "ucx")]
use crate::program::environment::direct_log_of_ucx;
use crate::program::environment::{name_variable, start_log, warn_of_unknown};
use crate::program::failure::{Exit, Failure, error_as_json};
use crate::program::{help, output, resources};

/// A command line as it was given.
#[derive(Clone, Copy, Debug)]
pub struct Given<A> {
    /// The arguments.
    pub arguments: A,
    /// Whether the command has `--json`.
    pub json: bool,
}

/// Parses the words of a command line, the program's name first. Ends the program if they are wrong, or request help or
/// the version.
pub fn parse<A: FromArgMatches>(command: clap::Command, words: &[OsString]) -> Given<A> {
    let mut command = help::fitted(command);
    let parsed = command.try_get_matches_from_mut(words).and_then(|matches| {
        let own = matches.subcommand().map_or(&matches, |(_, own)| own);
        let json = own.try_get_one::<bool>("json").ok().flatten().copied().unwrap_or(false);
        Ok(Given { arguments: A::from_arg_matches(&matches)?, json })
    });
    parsed.unwrap_or_else(|error| end_with(&command, words, error.format(&mut command.clone())))
}

/// Prepares the process for its command: UCX's log, farjump's log, limits.
///
/// # Safety
/// No other thread runs.
pub unsafe fn prepare() {
    #[cfg(feature = "ucx")]
    // SAFETY: the caller keeps other threads away.
    unsafe {
        direct_log_of_ucx();
    }
    warn_of_unknown();
    start_log();
    resources::prepare();
}

/// Reports the end of a command: as JSON, if the command has `--json`.
pub fn end(ended: Result<(), Failure>, json: bool) -> ExitCode {
    let Err(failure) = ended else { return ExitCode::SUCCESS };
    let failure = name_variable(failure);
    match json {
        true => output::note(failure.to_json()),
        false => output::note(format_args!("error: {failure}")),
    }
    failure.exit().into()
}

/// Ends the program with clap's message: help, or the error of a wrong command line.
fn end_with(command: &clap::Command, words: &[OsString], error: clap::Error) -> ! {
    let is_wrong = error.use_stderr() && error.kind() != ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand;
    if !is_wrong {
        error.exit();
    }
    let fault = option_fault(command, words, &error);
    let json = words.iter().skip(1).take_while(|word| *word != "--").any(|word| word == "--json");
    if fault.is_none() && !json {
        error.exit();
    }
    let text = fault.map_or_else(|| error.render().to_string(), |fault| format!("error: {fault}"));
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

/// Returns the table's words for an argument that the command does not have, if the table knows better than clap: the
/// new name of an option, or one whose name is near.
fn option_fault(command: &clap::Command, words: &[OsString], error: &clap::Error) -> Option<ConfigError> {
    let long = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => text.strip_prefix("--"),
        _ => None,
    };
    if error.kind() != ErrorKind::UnknownArgument {
        return None;
    }
    let name = long(ContextKind::InvalidArg)?.split('=').next()?;
    let command = if command.has_subcommands() { command.find_subcommand(words.get(1)?)? } else { command };
    let fault = match command.get_name() {
        "serve" => TargetConfig::row(name, Interfaces::COMMAND_LINE).err(),
        "put" | "get" | "evict" => ClientConfig::row(name, Interfaces::COMMAND_LINE).err(),
        _ => LinkConfig::row(name, Interfaces::COMMAND_LINE).err(),
    }?;
    let has = |name: &str| command.get_arguments().any(|argument| argument.get_long() == Some(name));
    let is_better = match fault {
        ConfigFault::Renamed { now } => has(now),
        // clap also looks among the arguments that are no options of the table.
        ConfigFault::Unknown { nearest: Some(nearest), .. } => {
            has(nearest) && long(ContextKind::SuggestedArg).is_none_or(|suggested| suggested == nearest)
        }
        _ => false,
    };
    is_better.then(|| ConfigError::new(Origin::Argument(format!("--{name}")), name, fault))
}
