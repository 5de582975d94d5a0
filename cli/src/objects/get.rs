//! `get`: writes an object to a file.

use std::fs;
use std::path::PathBuf;

use clap::Args;
use farjump_benches::program::failure::Failure;
use farjump_benches::program::output;
use farjump_benches::program::units::show_count;
use farjump_handles::Access;

use super::{OwnerOptions, failure, read_handle};

/// Write the bytes of an object to standard output, or to a file
///
/// With --out it prints how they came.
#[derive(Args, Debug)]
#[command(after_long_help = "\
The handle names the addresses of the object's owner, which are tried in their order. On the owner's machine its memory is
mapped. From another machine verbs and UCX read it by the device, without the owner; over other transports the bytes travel
in frames.

Examples:
  farjump get table.handle --out table.bin
  farjump put table.bin --to unix:store.sock | farjump get - | sha256sum")]
pub(crate) struct Get {
    /// A file with the handle, as `farjump put` prints it, or its bytes; `-` is standard input
    #[arg(value_name = "HANDLE")]
    handle: PathBuf,
    /// The target that has the object [default: the addresses in the handle]
    #[arg(long, value_name = "ADDRESS")]
    to: Option<String>,
    /// The file to write
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    #[command(flatten)]
    owner: OwnerOptions,
}

pub(crate) fn run(arguments: &Get) -> Result<(), Failure> {
    let handle = read_handle(&arguments.handle)?;
    let client = arguments.owner.connect_for(&handle, arguments.to.as_deref())?;
    let view = client.get(&handle).map_err(failure)?;
    let Some(file) = &arguments.out else { return output::print(&*view) };
    fs::write(file, &*view)
        .map_err(|error| Failure::new(format!("cannot write `{}`: {error}", file.display())))?;
    let (transport, len) = (client.transport(), show_count(view.len() as u64));
    let way = match view.access() {
        Access::Mapped => "from the owner's memory, which is mapped here".to_owned(),
        Access::Read => format!("read from the owner's memory by {transport}"),
        _ => format!("in frames by {transport}"),
    };
    output::print_line(format_args!("{len} B, {way}"))
}
