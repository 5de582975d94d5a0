//! `build`: an ifunc library from sources, objects and archives.

use std::path::PathBuf;

use clap::Args;
use farjump::build::Options;
use farjump::inspect::inspect;

use crate::inspect::show;
use farjump_benches::program::failure::Failure;
use farjump_benches::program::output;

/// Make an ifunc library
///
/// Sources are C, C++ or Rust files, crates, and objects or archives of any compiler. The code that NAME_main
/// reaches becomes an image, which travels; the file as a whole is an ordinary shared library. Code that
/// cannot be part of an image is refused by symbol, section and object.
#[derive(Args, Debug)]
#[command(after_long_help = "\
Examples:
  farjump build sum.c -o libsum.so
  farjump build sum.c table.o -o plugins/sum.so --cflag -O2 --cflag -Iinclude
  farjump build src/sum.rs -o libsum.so
  farjump build ./sum-crate -o libsum.so --name sum
  farjump build squeeze.c -o libsqueeze.so --cflag -lz

A shared library among the flags that defines what the code imports does not travel: the image says that it wants it, and a
target opens it only if it may (farjump serve --wanted-library).

farjump_ifunc.h, and for a single Rust source the crate farjump_ifunc, need not be installed.")]
pub(crate) struct Build {
    /// C or C++ sources, Rust sources, crates (a folder or its Cargo.toml), objects, archives
    #[arg(required = true, value_name = "SRC")]
    pub(crate) sources: Vec<PathBuf>,
    /// The library to write
    #[arg(short, long, value_name = "LIB.so")]
    pub(crate) output: PathBuf,
    /// NAME of the routines NAME_main and so on [default: from the output's name, libNAME.so or NAME.so]
    #[arg(long)]
    pub(crate) name: Option<String>,
    /// The C compiler [default: cc]
    #[arg(long, env = "FARJUMP_CC", hide_env = true)]
    pub(crate) cc: Option<String>,
    /// The linker that makes the image, GNU ld or lld [default: the first usable one of ld.bfd, ld, ld.lld]
    #[arg(long, value_name = "LD", env = "FARJUMP_LD", hide_env = true)]
    pub(crate) linker: Option<PathBuf>,
    /// A flag for the compiler, and for the link of the library; may be repeated
    #[arg(long = "cflag", value_name = "FLAG", allow_hyphen_values = true)]
    pub(crate) cflags: Vec<String>,
    /// Add debugging information for `farjump inspect --symbols`; the image stays the same
    #[arg(short = 'g', long)]
    pub(crate) debug: bool,
    /// Show the result as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Builds a library and shows its contents.
pub(crate) fn run(arguments: Build) -> Result<(), Failure> {
    let Build { sources, output, name, cc, linker, cflags, debug, json } = arguments;
    let built = farjump::build::build(&Options { inputs: sources, output, name, cc, cflags, linker, debug })?;
    if !built.messages.is_empty() {
        output::note(built.messages.trim_end());
    }
    show(&inspect(&built.library)?, json)
}
