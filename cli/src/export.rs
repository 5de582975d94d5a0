//! `export`: gives a running target a library whose symbols take precedence over its others.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use clap::Args;
use farjump_control::first_names;
use serde_json::json;

use crate::report::{self, AdminOptions};
use farjump_cli::program::failure::Failure;

/// Most characters of a name that are printed.
const SHOWN: usize = 255;

/// Give a running target a library to link against
///
/// The library's own definitions take precedence over all others of the target (interposing). Code linked later uses
/// them. Code linked before keeps its addresses.
#[derive(Args, Debug)]
#[command(after_long_help = "\
The target has to allow it (serve --allow-export, or export in serve --rights). The library's bytes travel: its file need
not be at the target, but the libraries that it depends on must be. The target loads it at once, which runs its
constructors. The library stays as long as the target.

The command prints the names that it replaces: those that the target itself or an earlier library offered. Of more than
12 it prints the first 12, and the number of the others; --json prints all, up to 65536.

It does not replace services of farjump (farjump_reply and others). Drop code that is already linked to have it linked
against the library: its source sends it again with the next call.

Examples:
  farjump export libkv-2.so --to unix:store.sock
  farjump export libkv-2.so --to unix:store.sock && farjump store --to unix:store.sock --drop-all")]
pub(crate) struct Export {
    /// The shared library, for the target's machine
    #[arg(value_name = "LIB.so")]
    library: PathBuf,
    #[command(flatten)]
    admin: AdminOptions,
}

/// Sends the library, and reports the definitions that it interposes.
pub(crate) fn run(arguments: &Export) -> Result<(), Failure> {
    let library = &arguments.library;
    let bytes = read(library)
        .map_err(|error| Failure::new(format!("cannot read `{}`: {error}", library.display())))?;
    let name = library.file_name().unwrap_or(library.as_os_str()).to_string_lossy();
    let replaced = arguments.admin.admin()?.export(&name, &bytes)?;
    let as_json = || json!({ "exported": name, "replaced": replaced });
    report::print(arguments.admin.json, as_json, || {
        format!(
            "{name} is offered by {}, replacing {}\n",
            arguments.admin.to,
            first_names(&replaced, SHOWN, "no export")
        )
    })
}

/// Reads a regular file.
fn read(path: &Path) -> io::Result<Vec<u8>> {
    // Otherwise opening a pipe would wait for a writer.
    let flags = rustix::fs::OFlags::NONBLOCK.bits() as i32;
    let mut file = File::options().read(true).custom_flags(flags).open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::other("it is a directory, a device or a pipe"));
    }
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    Ok(bytes)
}
