//! The program `farjump_compiler`: a server that opens LLVM, warms it, and forks for each job.
//!
//! It is single-threaded, so that a forked child may call any function. Its standard input is a socket of a
//! target.

mod cache;
mod compile;
mod job;
mod limits;
mod llvm;
mod serve;

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use llvm::Llvm;

use crate::protocol::Reply;

/// The text of `--help`.
const HELP: &str = "\
farjump_compiler compiles bitcode for a farjump target, which starts it. There is nothing for people to do with it, except:

  farjump_compiler --check [--llvm FILE]    name the LLVM that it would use, and compile something by it

  --llvm FILE     the library of LLVM [default: the one in FARJUMP_LIBLLVM, otherwise the newest of those that the system
                  has, and of that in the toolchain of RUSTC, if that names a compiler of Rust]
  --cache FOLDER  keep images in this folder, which must be this user's alone
  --version       show the version
";

/// The arguments of the program.
#[derive(Default)]
struct Arguments {
    llvm: Option<PathBuf>,
    cache: Option<PathBuf>,
    check: bool,
}

/// The program. `main` must call this before anything else has run or opened a file.
pub fn main() -> ExitCode {
    let arguments = match parse(std::env::args_os().skip(1)) {
        Ok(Some(arguments)) => arguments,
        Ok(None) => return ExitCode::SUCCESS,
        Err(problem) => {
            eprintln!("farjump_compiler: {problem}; see farjump_compiler --help");
            return ExitCode::from(2);
        }
    };
    if arguments.check {
        return match open(&arguments) {
            Ok(llvm) => {
                println!("{}", llvm.text());
                ExitCode::SUCCESS
            }
            Err(problem) => {
                eprintln!("farjump_compiler: {problem}");
                ExitCode::FAILURE
            }
        };
    }
    // A program that is run by a descriptor would otherwise have the descriptor's number as its name.
    let _ = rustix::thread::set_name(c"farjump_compile");
    limits::ignore_signals_of_terminals();
    match limits::leave_parents_descriptors().and_then(|()| open(&arguments)) {
        Ok(llvm) => serve::serve(&llvm, arguments.cache.as_deref()),
        Err(problem) => {
            serve::send_reply(&Reply::Unable(problem));
            ExitCode::FAILURE
        }
    }
}

/// Opens LLVM and warms it, where jobs can be confined.
///
/// # Errors
/// The reason why nothing can be compiled: a clause.
fn open(arguments: &Arguments) -> Result<Llvm, String> {
    limits::try_to_confine()?;
    let llvm = Llvm::open(arguments.llvm.as_deref())?;
    compile::warm(&llvm).map_err(|refusal| refusal.text)?;
    Ok(llvm)
}

/// Reads the command line; `None` if nothing is left to do.
fn parse(mut words: impl Iterator<Item = OsString>) -> Result<Option<Arguments>, String> {
    let mut arguments = Arguments::default();
    while let Some(word) = words.next() {
        let mut value = || words.next().map(PathBuf::from).ok_or_else(|| format!("{word:?} needs a value"));
        match word.to_str() {
            Some("--help" | "-h") => {
                print!("{HELP}");
                return Ok(None);
            }
            Some("--version" | "-V") => {
                println!("farjump_compiler {}", env!("CARGO_PKG_VERSION"));
                return Ok(None);
            }
            Some("--check") => arguments.check = true,
            Some("--llvm") => arguments.llvm = Some(value()?),
            Some("--cache") => arguments.cache = Some(value()?),
            _ => return Err(format!("{word:?} is no option")),
        }
    }
    Ok(Some(arguments))
}
