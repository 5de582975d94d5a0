//! `inspect`: shows the contents of an ifunc library.

use std::path::{Path, PathBuf};

use clap::Args;
use farjump::inspect::{Report, inspect, symbols};
use serde_json::{Value, json};

use crate::program::failure::Failure;
use crate::program::output;

/// Show the contents of an ifunc library
///
/// The kind of its payloads, and its images by platform: sizes, code id, alignment, imports. The family id names all of
/// them: allow it, and the library runs on each of its platforms. The command reads the file, and none of its code
/// runs.
#[derive(Args, Debug)]
#[command(after_long_help = "\
Examples:
  farjump inspect libsum.so
  farjump inspect libsum.so --symbols sum.elf

A target in debug mode (farjump serve --debug --debug-symbols LIB.so) reports its code to gdb. For another target, which runs as
process N, type `gdb -p N`, then `add-symbol-file sum.elf -o PLACE`. PLACE is the address at which the target placed the
image: the first word of its line in /tmp/perf-N.map (farjump serve --perf-map), at the end of a crash report, or in the
target's log with FARJUMP_LOG=debug. gdb knows lines and variables if the library was built with -g. Breakpoints there need
`hbreak`.")]
pub struct Inspect {
    /// The library
    #[arg(value_name = "LIB.so")]
    library: PathBuf,
    /// Write the image as an ELF file with symbols, for gdb's add-symbol-file. If OUT.elf is a folder, write each image
    /// into it as NAME.TARGET.elf
    #[arg(long, value_name = "OUT.elf")]
    symbols: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Shows the contents of a library, or writes its symbols.
///
/// # Errors
/// The file is no ifunc library, or the output cannot be written.
pub fn run(arguments: &Inspect) -> Result<(), Failure> {
    match &arguments.symbols {
        Some(output) => write_symbols(&arguments.library, output, arguments.json),
        None => show(&inspect(&arguments.library)?, arguments.json),
    }
}

/// Writes the symbols of each image to a file for debuggers, and prints how to use it.
fn write_symbols(library: &Path, output: &Path, json: bool) -> Result<(), Failure> {
    let all = symbols(library)?;
    let into_folder = output.is_dir();
    if all.len() > 1 && !into_folder {
        let text = format!(
            "`{}` has {} images: give a folder that is there to --symbols",
            library.display(),
            all.len()
        );
        return Err(Failure::new(text));
    }
    let mut written = Vec::new();
    for symbols in &all {
        let path = match into_folder {
            true => output.join(format!("{}.{}.elf", symbols.name, symbols.platform.replace(':', "-"))),
            false => output.to_owned(),
        };
        std::fs::write(&path, &symbols.elf)
            .map_err(|error| Failure::new(format!("cannot write `{}`: {error}", path.display())))?;
        let (platform, id) = (&symbols.platform, &symbols.id);
        if json {
            written.push(json!({ "platform": platform.to_string(), "id": id.to_string(), "file": path }));
            continue;
        }
        let path = path.display();
        output::print_line(format_args!(
            "{platform}   id {id}   in gdb: add-symbol-file {path} -o PLACE (where the target placed it)"
        ))?;
    }
    if json { output::print_line(format_args!("{:#}", Value::from(written))) } else { Ok(()) }
}

/// Shows the report on a library.
pub(crate) fn show(report: &Report, json: bool) -> Result<(), Failure> {
    if json {
        let text = serde_json::to_string_pretty(report)
            .map_err(|error| Failure::new(format!("cannot write the report as JSON: {error}")))?;
        return output::print_line(text);
    }
    output::print(report.to_string())
}
