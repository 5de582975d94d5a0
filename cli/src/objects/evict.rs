//! `evict`: removes an object.

use std::path::PathBuf;

use clap::Args;
use farjump_cli::program::failure::Failure;
use farjump_cli::program::link_options::parse_address;
use farjump_cli::program::output;

use serde_json::json;

use super::{OwnerOptions, failure, read_handle};

/// Remove an object from its owner's store
///
/// The object is gone for all readers that come later. Readers that read it now keep its bytes until they are done.
#[derive(Args, Debug)]
#[command(after_long_help = "\
It is no failure if the object is gone already.

Examples:
  farjump evict table.handle
  farjump evict - --to unix:store.sock <table.handle")]
pub(crate) struct Evict {
    /// A file with the handle, as `farjump put` prints it, or its bytes; `-` is standard input
    #[arg(value_name = "HANDLE")]
    handle: PathBuf,
    /// The target that has the object [default: the addresses in the handle]
    #[arg(long, value_name = "ADDRESS", value_parser = parse_address)]
    to: Option<String>,
    #[command(flatten)]
    owner: OwnerOptions,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(arguments: &Evict) -> Result<(), Failure> {
    let owner = arguments.owner.owner()?;
    let handle = read_handle(&arguments.handle)?;
    let client = owner.connect_for(&handle, arguments.to.as_deref())?;
    let number = handle.number();
    let evicted = client.evict(&handle).map_err(failure)?;
    if arguments.json {
        return output::print_line(json!({ "number": number, "evicted": evicted }));
    }
    match evicted {
        true => output::print_line(format_args!("object {number} is evicted")),
        false => output::print_line(format_args!("object {number} was gone already")),
    }
}
