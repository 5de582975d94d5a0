//! The package, its archive for C, and ifunc libraries.

use std::path::{Path, PathBuf};

use farjump::build::{BuildError, BuildReport, Options, build};
use farjump_extern_path::extern_path;
use farjump_fixtures::process::remove_at_end;

pub(crate) fn package() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The archive that cargo made for this test: one run of the compiler makes it and the library that the test is linked
/// with, side by side. Archives of other builds lie there too.
pub(crate) fn archive() -> PathBuf {
    Path::new(extern_path!("farjump_c")).with_extension("a")
}

/// Returns a folder of this run, which `make` fills. It is removed with this process. Its name contains blanks and
/// letters beyond ASCII, as users' paths do.
pub(crate) fn filled(name: &str, make: impl FnOnce(&Path)) -> PathBuf {
    let beside = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let folder = tempfile::Builder::new().prefix(&format!("{name} ü ")).tempdir_in(beside).unwrap().keep();
    remove_at_end(&folder);
    make(&folder);
    folder
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
