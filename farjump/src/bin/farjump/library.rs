//! `build` and `inspect`: ifunc libraries made and looked at.

use farjump::build::Options;
use farjump::inspect::{Report, inspect as read};

use crate::arguments::{Build, Inspect};
use crate::failure::Failure;
use crate::output;

/// Builds a library and shows what it carries.
pub(crate) fn build(arguments: Build) -> Result<(), Failure> {
    let Build { sources, output, name, cc, linker, cflags, json } = arguments;
    let built = farjump::build::build(&Options { inputs: sources, output, name, cc, cflags, linker })?;
    if !built.messages.is_empty() {
        output::note(built.messages.trim_end());
    }
    show(&read(&built.library)?, json)
}

/// Shows what a library carries.
pub(crate) fn inspect(arguments: &Inspect) -> Result<(), Failure> {
    show(&read(&arguments.library)?, arguments.json)
}

fn show(report: &Report, json: bool) -> Result<(), Failure> {
    if json {
        let text = serde_json::to_string_pretty(report)
            .map_err(|error| Failure::new(format!("cannot write the report as JSON: {error}")))?;
        return output::print_line(text);
    }
    output::print(report.to_string())
}
