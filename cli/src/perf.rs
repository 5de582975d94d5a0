//! `perf`: the program `farjump-perf`, in place of this one.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::process::Command;

use clap::Args;
use farjump_cli::program::failure::Failure;
use farjump_cli::program::workspace::cargo_folder;
use farjump_os::installed;

/// The program that measures.
const NAME: &str = "farjump-perf";

/// Measure farjump on this machine or to another, beside the alternatives
///
/// Runs the program farjump-perf, which lies beside this one, with the same arguments.
#[derive(Args, Debug)]
#[command(disable_help_flag = true)]
pub(crate) struct Perf {
    /// The arguments of farjump-perf
    #[arg(value_name = "ARGUMENT", trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<OsString>,
}

impl Perf {
    /// Returns whether the report is to be JSON.
    pub(crate) fn has_json(&self) -> bool {
        self.arguments.iter().any(|argument| argument == "--json")
    }
}

/// Becomes the program that measures: process, descriptors and signals are then its own. Returns only a failure.
pub(crate) fn run(arguments: &Perf) -> Result<(), Failure> {
    let found = installed::find(NAME).map_err(Failure::new)?;
    let found = found
        .ok_or_else(|| Failure::new(format!("there is no program {NAME} beside this one: {}", advice())))?;
    // By its path, so that the process has its name. Its folder passed the check, too.
    let error = Command::new(found.path()).args(&arguments.arguments).exec();
    Err(Failure::new(format!("cannot run `{}`: {error}", found.path().display())))
}

/// Returns how to get the program.
fn advice() -> String {
    // cargo's folder for a profile has its name, but for `dev`.
    let built =
        cargo_folder().map(|folder| folder.file_name().unwrap_or_default().to_string_lossy().into_owned());
    match built.as_deref() {
        None => "install it by `cargo install --path benches --bin farjump-perf` in a clone".to_owned(),
        Some("debug") => format!("build it by `cargo build -p farjump-benches --bin {NAME}`"),
        Some(profile) => {
            format!("build it by `cargo build --profile {profile} -p farjump-benches --bin {NAME}`")
        }
    }
}
