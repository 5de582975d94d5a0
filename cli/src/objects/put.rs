//! `put`: makes an object of a file.

use std::fs::{self, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use clap::Args;
use farjump_cli::program::failure::Failure;
use farjump_cli::program::link_options::parse_address;
use farjump_cli::program::output;
use farjump_handles::{MAX_TYPE_NAME, Patience};
use serde_json::json;

use super::{OwnerOptions, failure, read_with, show_handle};
use crate::progress::{Progress, Step};

/// Make an object of a file, and print its handle
///
/// The target keeps a copy of the bytes, in memory that other processes of its machine map to read them without a
/// further copy. The handle names the object in any place: in a file, in a message, in the payload of a function.
#[derive(Args, Debug)]
#[command(after_long_help = "\
The target needs a store of objects (serve --objects). The command prints the handle in hexadecimal digits, two for each
byte of its encoding. Programs take the encoding as well (docs/guide/operations.md). The handle has the key to the object: a
process that has the handle can read and evict the object, if the target lets that process connect.

Examples:
  farjump put table.bin --to unix:store.sock --handle table.handle
  farjump put table.bin --to unix:store.sock --type f32 | ssh node7 'farjump get - --to tcp:node3:7471 --key-file farm.key'
  tar c folder | farjump put - --to unix:store.sock >folder.handle")]
pub(crate) struct Put {
    /// The file; `-` is standard input
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// The target: unix:PATH, unix:@NAME or tcp:HOST:PORT
    #[arg(long, value_name = "ADDRESS", value_parser = parse_address)]
    to: String,
    /// A name for the object's type, which its handle and `farjump store` show
    #[arg(long = "type", value_name = "NAME", default_value = "", hide_default_value = true, value_parser = parse_type)]
    type_name: String,
    /// Write the handle to this file, which only its owner may read, in place of standard output
    #[arg(long, value_name = "FILE")]
    handle: Option<PathBuf>,
    #[command(flatten)]
    owner: OwnerOptions,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(arguments: &Put) -> Result<(), Failure> {
    let owner = arguments.owner.owner()?;
    let total = fs::metadata(&arguments.file).ok().filter(fs::Metadata::is_file).map(|file| file.len());
    let progress = Progress::begin(Step::counted("reading", total));
    let bytes = read_with(&arguments.file, u64::MAX, &progress)?;
    progress.begin_step(Step::uncounted("sending"));
    let client = owner.connect(&arguments.to)?;
    let mut patience = Patience::of(arguments.owner.timeout);
    let handle = client.put_parts(&arguments.type_name, &[&bytes], &mut patience).map_err(failure)?;
    progress.end("put", bytes.len() as u64);
    let text = show_handle(&handle);
    if let Some(file) = &arguments.handle {
        write_secret(file, &text).map_err(|error| {
            // Without its handle the object could never be found.
            drop(client.evict(&handle));
            Failure::new(format!("cannot write `{}`: {error}", file.display()))
        })?;
    }
    if arguments.json {
        let digits = arguments.handle.is_none().then_some(text);
        return output::print_line(json!({
            "number": handle.number(),
            "bytes": handle.len(),
            "type": handle.type_name(),
            "handle": digits,
            "file": arguments.handle,
            "transport": client.transport(),
        }));
    }
    if arguments.handle.is_some() { Ok(()) } else { output::print_line(text) }
}

/// Writes a line to a file that only its owner may read.
fn write_secret(path: &Path, text: &str) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path)?;
    // A file that was there before may have had another mode.
    file.set_permissions(Permissions::from_mode(0o600))?;
    writeln!(file, "{text}")
}

fn parse_type(text: &str) -> Result<String, String> {
    match text.len() {
        len if len > MAX_TYPE_NAME => {
            Err(format!("the name has {len} bytes, and {MAX_TYPE_NAME} are allowed"))
        }
        _ => Ok(text.to_owned()),
    }
}
