//! The demo's libraries, built from the sources in this program.

use std::fs;
use std::path::Path;
use std::process::{Child, Stdio};

use farjump::Library;

use super::functions::Function;
use crate::failure::Failure;

/// Builds the libraries of `functions` in `folder` and opens them. Nothing is written elsewhere: `farjump build` and the
/// compilers that it starts run with that folder for their temporary files, which is why they run in processes of their own.
///
/// # Errors
/// No C compiler, mostly.
pub(super) fn build(functions: &[Function], folder: &Path) -> Result<Vec<Library>, Failure> {
    // All at once: they take as long as one where there are processors enough.
    let running = functions.iter().map(|function| start(function, folder)).collect::<Result<Vec<_>, _>>()?;
    let mut libraries = Vec::new();
    for (function, child) in functions.iter().zip(running) {
        let output = child.wait_with_output().map_err(|error| failed(function, error))?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr);
            let said = said.trim_end();
            return Err(failed(function, said.strip_prefix("error: ").unwrap_or(said)));
        }
        libraries.push(Library::open(library(function, folder))?);
    }
    Ok(libraries)
}

fn start(function: &Function, folder: &Path) -> Result<Child, Failure> {
    let source = folder.join(format!("{}.c", function.name));
    fs::write(&source, function.source).map_err(|error| failed(function, error))?;
    super::stage::this_program()
        .arg("build")
        .arg(&source)
        .arg("-o")
        .arg(library(function, folder))
        .env("TMPDIR", folder)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| failed(function, error))
}

fn library(function: &Function, folder: &Path) -> std::path::PathBuf {
    folder.join(format!("lib{}.so", function.name))
}

fn failed(function: &Function, why: impl std::fmt::Display) -> Failure {
    Failure::new(format!("the function `{}` could not be built: {why}", function.name))
}
