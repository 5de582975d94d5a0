//! The compiler of bitcode, which targets start.

use std::process::ExitCode;

fn main() -> ExitCode {
    farjump_compiler::program::main()
}
