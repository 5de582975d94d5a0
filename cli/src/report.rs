//! Options and output that reports of several commands share.

use std::time::Duration;

use clap::Args;
use farjump::admin::Admin;
use farjump::config::LinkConfig;
use farjump::core::cpu::Forms;
use farjump::{Cpu, Error, Key};
use serde_json::{Value, json};

use farjump_cli::program::config_arguments::ConfigArguments;
use farjump_cli::program::failure::Failure;
use farjump_cli::program::link_options::{KeyOption, parse_address};
use farjump_cli::program::output;
use farjump_cli::program::units::parse_duration;

/// The target of admin requests, and the form of its report.
#[derive(Args, Debug)]
pub(crate) struct AdminOptions {
    /// The target: unix:PATH, unix:@NAME or tcp:HOST:PORT
    #[arg(long, value_name = "ADDRESS", value_parser = parse_address)]
    pub(crate) to: String,
    #[command(flatten)]
    link: ConfigArguments<LinkConfig, KeyOption>,
    /// Time limit for each request, such as 500ms or 2s
    #[arg(long, value_name = "T", default_value = "10s", value_parser = parse_duration)]
    timeout: Duration,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

impl AdminOptions {
    /// Returns the admin interface of the target.
    pub(crate) fn admin(&self) -> Result<Admin, Failure> {
        let admin = Admin::new(&self.to)?.timeout(self.timeout);
        let options = self.link.resolve()?;
        match &options.config.key_file {
            Some(file) if self.to.starts_with("tcp:") => {
                Ok(admin.key(Key::read(file).map_err(|error| options.failure(Error::from(error)))?))
            }
            _ => Ok(admin),
        }
    }
}

/// Returns the CPU of a target, for programs.
pub(crate) fn cpu(cpu: &Cpu) -> Value {
    json!({
        "machine": cpu.machine().to_string(),
        "level": cpu.level().to_string(),
        "name": Some(cpu.name()).filter(|name| !name.is_empty()),
        "features": cpu.features(),
        "takes": takes(cpu),
    })
}

/// Returns the forms of code that a target takes, the preferred one first.
pub(crate) fn takes(cpu: &Cpu) -> Vec<&'static str> {
    let of = |form, word| cpu.forms().contains(form).then_some(word);
    let mut taken: Vec<_> =
        [of(Forms::NATIVE, "images"), of(Forms::BITCODE, "bitcode")].into_iter().flatten().collect();
    if cpu.forms().contains(Forms::PREFERS_BITCODE) {
        taken.reverse();
    }
    taken
}

/// Prints a report: for programs if `json`, otherwise for people.
pub(crate) fn print(
    json: bool,
    for_programs: impl FnOnce() -> Value,
    for_people: impl FnOnce() -> String,
) -> Result<(), Failure> {
    if json {
        return output::print_line(format_args!("{:#}", for_programs()));
    }
    output::print(for_people())
}
