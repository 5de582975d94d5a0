//! The package, its archive for C, and ifunc libraries.

use std::path::{Path, PathBuf};
use std::{env, fs};

use farjump::build::{BuildError, BuildReport, Options, build};

pub(crate) fn package() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The archive that cargo has made for this test. It is made together with the library that the test depends
/// on, so it lies beside the test and no other one is newer. If nothing had to be made, the newest is still
/// the right one.
pub(crate) fn archive() -> PathBuf {
    let own = env::current_exe().unwrap();
    let beside = fs::read_dir(own.parent().unwrap()).unwrap().map(|entry| entry.unwrap().path());
    let is_archive = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        name.starts_with("libfarjump_c-") && name.ends_with(".a")
    };
    let age = |path: &PathBuf| path.metadata().and_then(|metadata| metadata.modified()).unwrap();
    beside.filter(is_archive).max_by_key(age).expect("cargo makes the archive with the library")
}

/// Builds an ifunc library as `farjump build` does.
pub(crate) fn ifunc_library(
    source: impl Into<PathBuf>,
    output: impl Into<PathBuf>,
    cflags: &[String],
) -> Result<BuildReport, BuildError> {
    let (inputs, output) = (vec![source.into()], output.into());
    build(&Options { inputs, output, cflags: cflags.to_vec(), ..Options::default() })
}
