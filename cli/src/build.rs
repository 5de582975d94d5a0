//! `build` and `inspect`: ifunc libraries made and looked at.

use std::path::Path;

use farjump::build::Options;
use farjump::inspect::{Report, inspect as read, symbols};

use crate::arguments::{Build, Inspect};
use crate::failure::Failure;
use crate::output;

/// Builds a library and shows what it carries.
pub(crate) fn build(arguments: Build) -> Result<(), Failure> {
    let Build { sources, output, name, cc, linker, cflags, debug, json } = arguments;
    let built = farjump::build::build(&Options { inputs: sources, output, name, cc, cflags, linker, debug })?;
    if !built.messages.is_empty() {
        output::note(built.messages.trim_end());
    }
    show(&read(&built.library)?, json)
}

/// Shows what a library carries, or writes its symbols.
pub(crate) fn inspect(arguments: &Inspect) -> Result<(), Failure> {
    match &arguments.symbols {
        Some(output) => write_symbols(&arguments.library, output),
        None => show(&read(&arguments.library)?, arguments.json),
    }
}

/// Writes the symbols of each image to a file for debuggers, and says how it is used.
fn write_symbols(library: &Path, output: &Path) -> Result<(), Failure> {
    let all = symbols(library)?;
    let into_folder = output.is_dir();
    if all.len() > 1 && !into_folder {
        let text = format!(
            "`{}` has images for {} machines: give a folder that is there to --symbols",
            library.display(),
            all.len()
        );
        return Err(Failure::new(text));
    }
    for symbols in &all {
        let path = match into_folder {
            true => output.join(format!("{}.{}.elf", symbols.name, symbols.machine)),
            false => output.to_owned(),
        };
        std::fs::write(&path, &symbols.elf)
            .map_err(|error| Failure::new(format!("cannot write `{}`: {error}", path.display())))?;
        let (machine, id, path) = (&symbols.machine, &symbols.id, path.display());
        output::print_line(format_args!(
            "{machine}   id {id}   in gdb: add-symbol-file {path} -o PLACE (where the target placed it)"
        ))?;
    }
    Ok(())
}

fn show(report: &Report, json: bool) -> Result<(), Failure> {
    if json {
        let text = serde_json::to_string_pretty(report)
            .map_err(|error| Failure::new(format!("cannot write the report as JSON: {error}")))?;
        return output::print_line(text);
    }
    output::print(report.to_string())
}
