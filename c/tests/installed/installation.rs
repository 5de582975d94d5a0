//! The installation that the tests compile against, and the ifunc libraries that the programs inject.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use farjump_fixtures::IFUNCS;
use farjump_fixtures::process::finish;

use crate::common::{archive, filled, package};
use farjump::build::{Options, build};

/// Returns the prefix, with the library that was built with this test.
pub(crate) fn prefix() -> &'static Path {
    static PREFIX: OnceLock<PathBuf> = OnceLock::new();
    PREFIX.get_or_init(|| filled("farjump-c-prefix", install))
}

fn install(prefix: &Path) {
    let mut install = Command::new(env!("CARGO"));
    install.args(["run", "--quiet", "--package", "xtask", "--", "install", "--prefix"]);
    install.arg(prefix).arg("--archive").arg(archive()).stdin(Stdio::null());
    finish(install.current_dir(package())).worked();
}

/// Returns the folder of the ifunc libraries, each built of the file of its name in `tests/ifuncs` or [`IFUNCS`].
pub(crate) fn ifuncs() -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| filled("farjump-c-ifuncs", build_ifuncs))
}

fn build_ifuncs(folder: &Path) {
    let sources = [&*package().join("tests/ifuncs"), Path::new(IFUNCS)];
    for entry in sources.into_iter().flat_map(|folder| std::fs::read_dir(folder).unwrap()) {
        let source = entry.unwrap().path();
        let name = source.file_stem().unwrap().to_string_lossy();
        let output = folder.join(format!("lib{name}.so"));
        let inputs = vec![source];
        build(&Options { inputs, output, carry_source: true, ..Options::default() }).unwrap();
    }
}

/// A file that is removed when this is dropped.
struct Decoy(PathBuf);

impl Drop for Decoy {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

#[test]
fn the_archive_found_is_this_tests_own_despite_a_newer_one() {
    let program = std::env::current_exe().unwrap();
    let newer = program.with_file_name(format!("libfarjump_c-{}.a", std::process::id()));
    std::fs::write(&newer, "").unwrap();
    let _newer = Decoy(newer.clone());
    let found = archive();
    assert_ne!(found, newer);
    // The compiler names objects of a library by the crate and the part of it, in each of its forms.
    let parts = |file: &Path| -> BTreeSet<Vec<u8>> {
        let bytes = std::fs::read(file).unwrap();
        let archive = object::read::archive::ArchiveFile::parse(&*bytes).unwrap();
        let names = archive.members().map(|member| member.unwrap().name().to_vec());
        names.filter(|name| name.starts_with(b"farjump_c-") && name.ends_with(b".o")).collect()
    };
    let library = parts(&found.with_extension("rlib"));
    assert!(!library.is_empty() && library.is_subset(&parts(&found)), "{} has other parts", found.display());
}
