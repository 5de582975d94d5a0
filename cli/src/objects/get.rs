//! `get`: writes an object to a file.

use std::fs::File;
use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};

use clap::Args;
use farjump_cli::program::failure::Failure;
use farjump_cli::program::link_options::parse_address;
use farjump_cli::program::output;
use farjump_cli::program::units::show_count;
use farjump_handles::Access;
use serde_json::json;

use super::{OwnerOptions, failure, read_handle};
use crate::progress::{PART, Progress, Step};

/// Write the bytes of an object to standard output, or to a file
///
/// With --out it prints the way by which they came: mapped, read or in frames. To a terminal it writes text alone:
/// redirect other bytes, or give --out.
#[derive(Args, Debug)]
#[command(after_long_help = "\
The handle names the addresses of the object's owner. The command tries them in their order. On the owner's machine it maps
the owner's memory. From another machine verbs and UCX read that memory by the device, without the owner. Over other
transports the bytes travel in frames.

Examples:
  farjump get table.handle --out table.bin
  farjump put table.bin --to unix:store.sock | farjump get - | sha256sum")]
pub(crate) struct Get {
    /// A file with the handle, as `farjump put` prints it, or its bytes; `-` is standard input
    #[arg(value_name = "HANDLE")]
    handle: PathBuf,
    /// The target that has the object [default: the addresses in the handle]
    #[arg(long, value_name = "ADDRESS", value_parser = parse_address)]
    to: Option<String>,
    /// The file to write
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    #[command(flatten)]
    owner: OwnerOptions,
    /// Print the object's number, length, type and way as JSON; without --out on standard error, because standard
    /// output has the bytes
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(arguments: &Get) -> Result<(), Failure> {
    let owner = arguments.owner.owner()?;
    let handle = read_handle(&arguments.handle)?;
    let progress = Progress::begin(Step::uncounted("fetching"));
    let client = owner.connect_for(&handle, arguments.to.as_deref())?;
    let view = client.get(&handle).map_err(failure)?;
    let bytes = view.len() as u64;
    progress.begin_step(Step::counted("writing", Some(bytes)));
    match &arguments.out {
        None if io::stdout().is_terminal() => {
            if is_binary(&view) {
                return Err(Failure::new(format!(
                    "object {} has bytes that a terminal may take for commands: write them to a file (--out FILE)",
                    handle.number()
                )));
            }
            // Before the text: clearing the progress line would clear the last line of it.
            progress.end("got", bytes);
            output::print(&*view)?;
        }
        None => {
            in_parts(&view, &progress, |part| output::print(part))?;
            progress.end("got", bytes);
        }
        Some(file) => {
            write(file, &view, &progress)
                .map_err(|error| Failure::new(format!("cannot write `{}`: {error}", file.display())))?;
            progress.end("got", bytes);
        }
    }
    let (transport, len) = (client.transport(), show_count(bytes));
    if arguments.json {
        let access = match view.access() {
            Access::Mapped => "mapped",
            Access::Read => "read",
            _ => "frames",
        };
        let figures = json!({
            "number": handle.number(),
            "bytes": view.len(),
            "type": handle.type_name(),
            "file": arguments.out,
            "transport": transport,
            "access": access,
        });
        if arguments.out.is_some() {
            return output::print_line(figures);
        }
        output::note(figures);
        return Ok(());
    }
    if arguments.out.is_none() {
        return Ok(());
    }
    let way = match view.access() {
        Access::Mapped => "from the owner's memory, which is mapped here".to_owned(),
        Access::Read => format!("read from the owner's memory by {transport}"),
        _ => format!("in frames by {transport}"),
    };
    output::print_line(format_args!("{len} B, {way}"))
}

/// Writes a file.
fn write(path: &Path, bytes: &[u8], progress: &Progress) -> io::Result<()> {
    let mut file = File::create(path)?;
    in_parts(bytes, progress, |part| file.write_all(part))
}

/// Writes bytes in parts that show as progress.
fn in_parts<E>(
    bytes: &[u8],
    progress: &Progress,
    mut write: impl FnMut(&[u8]) -> Result<(), E>,
) -> Result<(), E> {
    bytes.chunks(PART).try_for_each(|part| {
        write(part)?;
        progress.advance(part.len());
        Ok(())
    })
}

/// Returns whether a terminal would show something other than these bytes: they are no text, or have control
/// characters.
fn is_binary(bytes: &[u8]) -> bool {
    let is_control = |letter: char| letter.is_control() && !matches!(letter, '\n' | '\r' | '\t');
    std::str::from_utf8(bytes).map_or(true, |text| text.contains(is_control))
}
