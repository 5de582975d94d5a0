//! The demo's libraries, built from the sources in this program.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};

use farjump::Library;

use super::functions::Function;
use super::stage::{self, Stage};
use crate::failure::Failure;

/// Builds the libraries of `functions` in the stage's folder and opens them. Nothing is written elsewhere: `farjump build`
/// and the compilers that it starts run with that folder for their temporary files, which is why they run in processes of their own.
///
/// # Errors
/// No C compiler, mostly.
pub(super) fn build(functions: &[Function], stage: &Stage) -> Result<Vec<Library>, Failure> {
    // All at once: they take as long as one where there are processors enough.
    let running: Vec<_> = functions.iter().map(|function| start(function, stage)).collect();
    let built: Vec<_> = functions
        .iter()
        .zip(running)
        .map(|(function, child)| {
            let (status, said) = stage.finish(child?).map_err(|error| failed(function, error))?;
            if !status.success() {
                return Err(failed(function, said.strip_prefix("error: ").unwrap_or(&said)));
            }
            Ok(Library::open(library(function, stage.folder()))?)
        })
        .collect();
    // Only now, when none runs any more.
    built.into_iter().collect()
}

fn start(function: &Function, stage: &Stage) -> Result<Child, Failure> {
    let source = stage.folder().join(format!("{}.c", function.name));
    fs::write(&source, function.source).map_err(|error| failed(function, error))?;
    let mut command = stage::this_program();
    command.arg("build").arg(&source).arg("-o").arg(library(function, stage.folder()));
    command.env("TMPDIR", stage.folder());
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    stage.start(&mut command).map_err(|error| failed(function, error))
}

fn library(function: &Function, folder: &Path) -> PathBuf {
    folder.join(format!("lib{}.so", function.name))
}

fn failed(function: &Function, why: impl std::fmt::Display) -> Failure {
    Failure::new(format!("the function `{}` could not be built: {why}", function.name))
}
