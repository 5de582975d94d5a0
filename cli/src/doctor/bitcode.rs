//! The compiler of bitcode, tried in a process of its own as a target starts it.

use std::time::Duration;

use farjump_compiler::{Compiler, Options};

use super::finding::{Finding, Verdict};
use super::run_bounded;

/// Time limit for reading LLVM and compiling something.
const LIMIT: Duration = Duration::from_secs(20);
const NAME: &str = "bitcode";
const SERVES: &str = "`farjump serve --bitcode`";

pub(super) fn look() -> Finding {
    let note = |found: String| Finding::new(NAME, Verdict::Note, found, format!("needed for {SERVES}"));
    let program = match Compiler::new(Options::default()).program() {
        Ok(program) => program,
        Err(error) => return note(error.to_string()),
    };
    let mut command = program.command();
    command.arg("--check");
    match run_bounded::run(command, LIMIT) {
        Ok((status, said)) if status.success() => {
            let llvm = said.trim().to_owned();
            Finding::new(NAME, Verdict::Ok, llvm.clone(), format!("for {SERVES}")).figure("llvm", llvm)
        }
        Ok((_, said)) => {
            let why = said.trim().trim_start_matches("farjump_compiler: ").to_owned();
            let why = if why.is_empty() {
                "farjump_compiler finds no LLVM that it can use".to_owned()
            } else {
                why
            };
            note(why).mend("sudo apt-get install libllvm19")
        }
        Err(silent) => note(format!("farjump_compiler {silent}")),
    }
}
