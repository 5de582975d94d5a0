//! Compilers, linkers and other programs that tests need.
//!
//! A tool that is in `PATH` need not work: a library of its own may be missing, or the headers of the machine for
//! which it compiles. So each is tried once in a process, on one line of input: a compiler compiles it, a linker
//! links it, an interpreter runs it, and other programs print their version. The result is a [`Tool`], or the reason
//! in the tool's own words.
//!
//! ```
//! use farjump_tools::{Tool, all_work};
//!
//! fn a_claim_that_needs_two_tools() {
//!     if !all_work(&["g++", "pkg-config"]) {
//!         return; // It has printed `skipped: g++ is there and does not run: g++: error while loading …`.
//!     }
//! }
//!
//! if let Err(why) = Tool::tried("clang --target=aarch64-linux-gnu") {
//!     println!("skipped: {why}");
//! }
//! ```
//!
//! The crate depends on the standard library alone, so that all crates and xtask can use it.
//!
//! | module | about |
//! |---|---|
//! | [`fakes`] | a folder of programs that do not work, for `PATH` |

#![deny(missing_docs)]
#![forbid(unsafe_code)]

pub mod fakes;
mod folder;
mod trial;

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::sync::{Mutex, PoisonError};

use trial::Trial;

/// A program that works, with the arguments that come before all others.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Tool {
    words: Vec<String>,
}

impl Tool {
    /// Tries a tool on a line of input that suits it. The result is kept for this process.
    ///
    /// `command` is the name of a program or its path, and arguments behind blanks: `gcc`, `ld.bfd`,
    /// `aarch64-linux-gnu-gcc`, `clang --target=riscv64-linux-gnu`, `python3 -m ziglang cc`. The kind of the tool
    /// follows from its name:
    ///
    /// | tool | what it has to do |
    /// |---|---|
    /// | compilers for C and C++ | compile a source that includes a header of the C library, and link a shared library of it. Those for another machine only compile |
    /// | gfortran, flang, rustc | compile the smallest source |
    /// | linkers | make a shared library for this machine, or that in the name |
    /// | Python | run `pass` |
    /// | gdb | print a number |
    /// | others | `--version` |
    ///
    /// # Errors
    /// `there is no clang`, or `clang is there and does not run: ` and its own words.
    pub fn tried(command: &str) -> Result<Tool, String> {
        Tool::tried_on(command, "")
    }

    /// Does the same with a line of the caller's, in a language that the tool takes: `#include <mpi.h>`, `import
    /// numba`.
    ///
    /// # Errors
    /// Those of [`Tool::tried`].
    pub fn tried_on(command: &str, line: &str) -> Result<Tool, String> {
        type Tried = BTreeMap<(String, String), Result<Tool, String>>;
        static TRIED: Mutex<Tried> = Mutex::new(BTreeMap::new());
        // Nothing panics while it holds the lock. One tool is tried at a time.
        let mut tried = TRIED.lock().unwrap_or_else(PoisonError::into_inner);
        let trial = || {
            // A file may have blanks in its path.
            let words = match Path::new(command).is_file() {
                true => vec![command.to_owned()],
                false => command.split_whitespace().map(str::to_owned).collect(),
            };
            Trial::of(&words).run(&words, line, None).map(|()| Tool { words })
        };
        tried.entry((command.to_owned(), line.to_owned())).or_insert_with(trial).clone()
    }

    /// A command that runs the tool.
    pub fn command(&self) -> Command {
        let mut command = Command::new(&self.words[0]);
        command.args(&self.words[1..]);
        command
    }

    /// The tool's name as the caller wrote it.
    pub fn name(&self) -> String {
        self.words.join(" ")
    }
}

/// Returns whether all of these tools work ([`Tool::tried`]). Otherwise prints `skipped: ` and the reason for the
/// first that does not: the caller is a test, and returns.
pub fn all_work(tools: &[&str]) -> bool {
    let broken = tools.iter().find_map(|tool| Tool::tried(tool).err());
    if let Some(why) = &broken {
        println!("skipped: {why}");
    }
    broken.is_none()
}
