//! Ifunc libraries built from the program's own sources, or built before.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};

use farjump::Library;
use farjump_os::limits;

use crate::program::failure::Failure;
use crate::program::routines;
use crate::program::workspace::{self, Stage};

/// A source in C, and NAME of the routines in it.
#[derive(Clone, Copy, Debug)]
pub struct Source<'a> {
    /// NAME of the routines.
    pub name: &'a str,
    /// The text of the source.
    pub text: &'a str,
}

/// Builds the libraries of `sources` in the workspace folder and opens them. Nothing is written elsewhere:
/// `farjump build` and its compilers run in processes of their own, with that folder for temporary files.
///
/// # Errors
/// Mostly the lack of a C compiler.
///
/// # Safety
/// The constructors and payload routines of `sources` may run in this process.
pub unsafe fn build(sources: &[Source<'_>], stage: &Stage) -> Result<Vec<Library>, Failure> {
    // SAFETY: this function's caller allows the same.
    unsafe { build_with(sources, &[], stage) }
}

/// As [`build`], with further options of `farjump build`.
///
/// # Errors
/// As [`build`].
///
/// # Safety
/// As [`build`].
pub unsafe fn build_with(
    sources: &[Source<'_>],
    more: &[&str],
    stage: &Stage,
) -> Result<Vec<Library>, Failure> {
    // Built in parallel: with enough processors they take as long as one.
    let running: Vec<_> = sources.iter().map(|source| start(*source, more, stage)).collect();
    let built: Vec<_> = sources
        .iter()
        .zip(running)
        .map(|(source, child)| {
            let (status, said) = stage.finish(child?).map_err(|error| failed(*source, error))?;
            if !status.success() {
                return Err(failed(*source, said.strip_prefix("error: ").unwrap_or(&said)));
            }
            // SAFETY: the caller allows the code of `sources` to run, and this library was just built from
            // one.
            unsafe { routines::open(library(*source, stage.folder())) }
        })
        .collect();
    // Errors are returned only after all builds have ended.
    built.into_iter().collect()
}

/// Opens the libraries of `sources` in `folder`, made by `farjump build`: for a machine without a compiler.
///
/// # Errors
/// A library is missing or malformed.
///
/// # Safety
/// The constructors and payload routines of these libraries may run in this process.
pub unsafe fn open(sources: &[Source<'_>], folder: &Path) -> Result<Vec<Library>, Failure> {
    // SAFETY: the caller allows the code of these libraries to run.
    sources.iter().map(|source| unsafe { routines::open(library(*source, folder)) }).collect()
}

fn start(source: Source<'_>, more: &[&str], stage: &Stage) -> Result<Child, Failure> {
    let file = stage.folder().join(format!("{}.c", source.name));
    fs::write(&file, source.text).map_err(|error| {
        failed(source, format_args!("cannot write {}: {error}{}", file.display(), limits::behind(&error)))
    })?;
    let mut command = workspace::this_program();
    command.arg("build").arg(&file).arg("-o").arg(library(source, stage.folder()));
    command.args(more).env("TMPDIR", stage.folder());
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    stage.start(&mut command).map_err(|error| {
        let advice = limits::behind_program(&error, "Mount /proc: it names this program");
        failed(source, format_args!("cannot run `farjump build`: {error}{advice}"))
    })
}

fn library(source: Source<'_>, folder: &Path) -> PathBuf {
    folder.join(format!("lib{}.so", source.name))
}

fn failed(source: Source<'_>, why: impl std::fmt::Display) -> Failure {
    Failure::new(format!("the function `{}` could not be built: {why}", source.name))
}
