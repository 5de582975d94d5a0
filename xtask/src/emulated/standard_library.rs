//! Standard libraries for platforms that have no package of one.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::platform::Platform;
use crate::fetch::debs::failed;
use crate::process::{Failed, Interrupt, Run};

/// Limit for building one. It took a minute with both processors busy.
const LIMIT: Duration = Duration::from_secs(20 * 60);

/// The folder of a compiler's standard libraries.
pub(super) const RUSTLIB: &str = "usr/lib/rustlib";
/// A crate that needs nothing but the standard library.
const MANIFEST: &str =
    "[package]\nname = \"nothing\"\nversion = \"0.0.0\"\nedition = \"2024\"\n[workspace]\n";

/// Builds the standard library of `platform` from `sources`, a folder with the package of the compiler's sources.
/// Does nothing if the one in `folder` is of these sources and this compiler: `version` names both. `with_compiler` makes cargo use
/// the compiler. Returns a folder with the layout of a package.
///
/// # Errors
/// When interrupted, a folder cannot be written, or the standard library cannot be built.
pub(super) fn built(
    platform: &Platform,
    with_compiler: impl for<'r> Fn(Run<'r>) -> Run<'r>,
    sources: &Path,
    version: &str,
    folder: &Path,
    interrupt: &Interrupt,
) -> Result<PathBuf, Failed> {
    let (whole, of) = (folder.join("standard-library"), folder.join("standard-library.of"));
    if fs::read_to_string(&of).is_ok_and(|of| of == version) {
        return Ok(whole);
    }
    say!("building the standard library for {}", platform.rust);
    let (project, build) = (folder.join("nothing"), folder.join("build"));
    for old in [&whole, &project, &build] {
        match fs::remove_dir_all(old) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(failed(old, error)),
            _ => {}
        }
    }
    let code = project.join("src");
    fs::create_dir_all(&code).map_err(|error| failed(&code, error))?;
    for (file, text) in [(project.join("Cargo.toml"), MANIFEST), (code.join("lib.rs"), "#![no_std]\n")] {
        fs::write(&file, text).map_err(|error| failed(&file, error))?;
    }
    let vendored = sources.join(RUSTLIB).join("src/rust/library/vendor");
    let run = Run::cargo(interrupt)
        .args(["build", "--release", "--target", platform.rust, "-Zbuild-std=std,panic_unwind,test"])
        // The crates that it needs come with its sources.
        .args(["--config", "source.crates-io.replace-with='vendored'"])
        .args(["--config", &format!("source.vendored.directory='{}'", vendored.display())])
        .directory(&project)
        .env("CARGO_TERM_COLOR", "never")
        .env("CARGO_TARGET_DIR", &build)
        // Allows `-Z`.
        .env("RUSTC_BOOTSTRAP", "1")
        .limit(LIMIT)
        .quiet();
    let ended = with_compiler(run).run()?;
    if !ended.status.success() {
        let platform = platform.rust;
        return Err(Failed::Because(format!(
            "the standard library for {platform} cannot be built:\n{}",
            ended.output
        )));
    }
    let into = whole.join(RUSTLIB).join(platform.rust).join("lib");
    fs::create_dir_all(&into).map_err(|error| failed(&into, error))?;
    let from = build.join(platform.rust).join("release/deps");
    for entry in fs::read_dir(&from).map_err(|error| failed(&from, error))? {
        let file = entry.map_err(|error| failed(&from, error))?.path();
        let Some(name) = file.file_name().and_then(|name| name.to_str()) else { continue };
        if name.ends_with(".rlib") && !name.starts_with("libnothing-") {
            fs::copy(&file, into.join(name)).map_err(|error| failed(&file, error))?;
        }
    }
    for done in [&project, &build] {
        fs::remove_dir_all(done).map_err(|error| failed(done, error))?;
    }
    // Last, so that it exists only if all else does.
    fs::write(&of, version).map_err(|error| failed(&of, error))?;
    Ok(whole)
}
