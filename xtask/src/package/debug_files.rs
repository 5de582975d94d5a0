//! Debug information of installed files, in files of its own where debuggers look: `.debug/NAME.debug` beside each.

use std::fs;
use std::path::Path;

use crate::fetch::packages;
use crate::process::{Failed, Interrupt, Run};
use crate::step::Verdict;

/// The part of a file that runs without its debug information.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kept {
    /// All but symbols: a program.
    Program,
    /// The symbols that others link with: a shared library.
    Library,
}

/// The program that divides files, if this machine has one for the files' machine.
#[derive(Debug)]
pub(crate) struct Divider<'i> {
    tool: Option<&'static str>,
    interrupt: &'i Interrupt,
}

impl<'i> Divider<'i> {
    /// For files of this machine.
    pub(crate) fn of_this_machine(interrupt: &'i Interrupt) -> Divider<'i> {
        Divider::by("objcopy", "binutils", interrupt)
    }

    /// For files of another machine: LLVM's takes them all.
    pub(crate) fn of_another(interrupt: &'i Interrupt) -> Divider<'i> {
        Divider::by("llvm-objcopy", "llvm", interrupt)
    }

    fn by(tool: &'static str, package: &str, interrupt: &'i Interrupt) -> Divider<'i> {
        let found = packages::in_path(tool).then_some(tool);
        if found.is_none() {
            say!("there is no {tool} (package {package}): programs keep their debug information");
        }
        Divider { tool: found, interrupt }
    }

    /// Returns whether files are divided. Otherwise they stay whole.
    pub(crate) fn is_there(&self) -> bool {
        self.tool.is_some()
    }

    /// Moves the debug information of `file` to a file of its own.
    ///
    /// # Errors
    /// When interrupted, or the tool fails.
    pub(crate) fn split(&self, file: &Path, kept: Kept) -> Verdict {
        let Some(tool) = self.tool else { return Ok(()) };
        let folder = file.with_file_name(".debug");
        fs::create_dir_all(&folder)
            .map_err(|error| Failed::Because(format!("making {}: {error}", folder.display())))?;
        let name = file.file_name().unwrap_or_default().to_string_lossy();
        let debug = folder.join(format!("{name}.debug"));
        run(tool, &["--only-keep-debug".as_ref(), file, &debug], self.interrupt)?;
        let strip = if kept == Kept::Program { "--strip-all" } else { "--strip-unneeded" };
        let link = format!("--add-gnu-debuglink={}", debug.display());
        run(tool, &[strip.as_ref(), link.as_ref(), file], self.interrupt)
    }

    /// Removes the debug information of an archive, which no file of its own can hold.
    ///
    /// # Errors
    /// As [`Divider::split`].
    pub(crate) fn strip_archive(&self, archive: &Path) -> Verdict {
        self.tool.map_or(Ok(()), |tool| run(tool, &["--strip-debug".as_ref(), archive], self.interrupt))
    }
}

/// Runs a tool.
///
/// # Errors
/// When interrupted, or the tool fails; with its output.
pub(crate) fn run(tool: &str, args: &[&Path], interrupt: &Interrupt) -> Verdict {
    let ended = Run::new(tool, interrupt).args(args).quiet().run()?;
    match ended.status.success() {
        true => Ok(()),
        false => Err(Failed::Because(format!("{tool} failed: {}", ended.output.trim()))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_split_program_runs_and_its_debug_file_has_its_lines() {
        let folder = crate::scratch::folder().unwrap();
        let interrupt = Interrupt::install().unwrap();
        let (source, program) = (folder.path().join("one.c"), folder.path().join("one"));
        fs::write(&source, "int main(void) { return 7; }").unwrap();
        run("cc", &["-g".as_ref(), "-o".as_ref(), &program, &source], &interrupt).unwrap();
        Divider::of_this_machine(&interrupt).split(&program, Kept::Program).unwrap();
        assert_eq!(Run::new(&program, &interrupt).run().unwrap().status.code(), Some(7));
        let sections = |file: &Path| {
            let ended = Run::new("objdump", &interrupt).args(["-h"]).args([file]).quiet().run().unwrap();
            [".debug_info", ".gnu_debuglink"].map(|name| ended.output.contains(name))
        };
        assert_eq!(sections(&program), [false, true]);
        assert!(sections(&folder.path().join(".debug/one.debug"))[0]);
    }
}
