//! `put`: makes an object of a file.

use std::fs::{OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use clap::Args;
use farjump_benches::program::failure::Failure;
use farjump_benches::program::output;
use farjump_handles::{MAX_TYPE_NAME, Patience};

use super::{OwnerOptions, failure, read, show_handle};

/// Make an object of a file, and print its handle
///
/// The target keeps a copy of the bytes, in memory that other processes of its machine map to read them
/// without a further copy. The handle names the object wherever it goes: in a file, in a message, in the
/// payload of a function.
#[derive(Args, Debug)]
#[command(after_long_help = "\
The target needs a store of objects (serve --objects). The handle is printed in hexadecimal digits, two for each byte of
its encoding, which programs take as well (docs/operations.md). It holds the key to the object: a process that has it can read
and evict the object, if the target lets it connect.

Examples:
  farjump put table.bin --to unix:store.sock --handle table.handle
  farjump put table.bin --to unix:store.sock --type f32 | ssh node7 'farjump get - --to tcp:node3:7471 --key farm.key'
  tar c folder | farjump put - --to unix:store.sock >folder.handle")]
pub(crate) struct Put {
    /// The file; `-` is standard input
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// The target: unix:PATH, unix:@NAME or tcp:HOST:PORT
    #[arg(long, value_name = "ADDRESS")]
    to: String,
    /// A name for the object's type, which its handle and `farjump store` show
    #[arg(long = "type", value_name = "NAME", default_value = "", hide_default_value = true, value_parser = parse_type)]
    type_name: String,
    /// Write the handle to this file, which only its owner may read, in place of standard output
    #[arg(long, value_name = "FILE")]
    handle: Option<PathBuf>,
    #[command(flatten)]
    owner: OwnerOptions,
}

pub(crate) fn run(arguments: &Put) -> Result<(), Failure> {
    let bytes = read(&arguments.file, u64::MAX)?;
    let client = arguments.owner.connect(&arguments.to)?;
    let mut patience = Patience::of(arguments.owner.timeout);
    let handle = client.put_parts(&arguments.type_name, &[&bytes], &mut patience).map_err(failure)?;
    let text = show_handle(&handle);
    let Some(file) = &arguments.handle else { return output::print_line(text) };
    write_secret(file, &text).map_err(|error| {
        // Without its handle the object could never be found.
        drop(client.evict(&handle));
        Failure::new(format!("cannot write `{}`: {error}", file.display()))
    })
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
