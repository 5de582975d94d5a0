//! `key`: makes a key for targets and sources that connect over TCP.

use std::path::PathBuf;

use clap::Args;
use serde_json::json;

use farjump::{Error, Grant, Key as Secret, Keys};

use farjump_cli::program::failure::Failure;
use farjump_cli::program::output;

/// Make a key for connecting over TCP
///
/// Target and source each have a copy. A source with the key has the rights that the targets with this key
/// grant. The key authenticates both and encrypts the control connection, code on request and reasons of
/// refusals included. Of the transports, which carry calls and replies, tcp alone is encrypted
/// (docs/security.md).
#[derive(Args, Debug)]
#[command(after_long_help = "\
The file has mode 0600. farjump refuses a key file that other users may read or write, as ssh does. The command
does not overwrite an existing file. Without FILE the key goes to standard output.

A target may have up to 64 keys, one for each of its sources: --name adds one to FILE. Each key is a line: its digits, its
name, and allow= if its rights differ from those of `serve --rights`. This is a list in their place (allow=observe,call), or
changes to them (allow=+drop,-call). Lines that begin with # are comments. A source has only the line of its own key, in a
file of its own. A running target rereads its file. If you remove a line, the links by that key end within about a second.
If you change a key's rights, its links end, and new ones have the new rights.

Examples:
  farjump key farm.key && scp -p farm.key node7:
  farjump key farm.key --name node7 --allow observe,call   # one more, for node7
  grep ' node7' farm.key | ssh node7 'umask 077; cat > farm.key'   # its line, and no other, for node7
  farjump serve --listen tcp:0.0.0.0:7471 --key-file farm.key   # on node7
  farjump inject libsum.so --to tcp:node7:7471 --key-file farm.key")]
pub(crate) struct Key {
    /// The file to write
    pub(crate) file: Option<PathBuf>,
    /// Add a key to FILE, or make FILE, under this name: the target's log and `farjump stats` show it
    #[arg(long, value_name = "NAME", requires = "file")]
    pub(crate) name: Option<String>,
    /// The rights of this key at targets with FILE, as for serve --rights: a list, or changes of the rights that serve
    /// --rights gives (+drop,-call) [default: those of serve --rights]
    #[arg(long = "allow", value_name = "RIGHT,…", requires = "name", allow_hyphen_values = true)]
    pub(crate) rights: Option<Grant>,
    /// Print JSON: the file and the name, or without FILE the key
    #[arg(long)]
    pub(crate) json: bool,
}

pub(crate) fn run(arguments: &Key) -> Result<(), Failure> {
    let made = json!({ "file": arguments.file, "name": arguments.name });
    match (&arguments.file, &arguments.name) {
        (Some(file), Some(name)) => {
            Keys::add(file, name, arguments.rights).map_err(Error::from)?;
            if arguments.json {
                return output::print_line(made);
            }
            let file = file.display();
            output::note(format_args!(
                "added `{name}` to {file}, for targets: copy its line, and no other, to the source in secret \
                 (grep ' {name}' {file} | ssh HOST 'umask 077; cat > FILE')"
            ));
            Ok(())
        }
        (Some(file), None) => {
            Secret::create(file).map_err(Error::from)?;
            if arguments.json {
                return output::print_line(made);
            }
            let file = file.display();
            output::note(format_args!(
                "wrote {file}: copy it to the other machine in secret (scp -p), and give it to both processes with --key-file"
            ));
            Ok(())
        }
        (None, _) => {
            let digits = Secret::draw().map_err(Error::from)?.digits();
            match arguments.json {
                true => output::print_line(json!({ "key": digits.trim_end() })),
                false => output::print(digits.as_str()),
            }
        }
    }
}
