//! The library that `FARJUMP_UCX` names. Each case is a separate process, because a loaded library stays.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use farjump_fixtures::helper_process::{passed, role, test_in_role};
use farjump_tools::all_work;
use farjump_ucx_sys::Ucx;
use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};
use tempfile::{TempDir, tempdir};

/// The variable.
const NAMED: &str = "FARJUMP_UCX";
/// The test that is a case.
const CASE: &str = "the_case_of_a_child";
/// UCX's libraries.
const LIBRARIES: [&str; 4] = ["libucm.so.0", "libucs.so.0", "libuct.so.0", "libucp.so.0"];

/// The result of a case.
#[derive(Debug)]
struct Outcome {
    /// `VERSION FILE`, or the error.
    said: Result<String, String>,
    /// The UCX files in the process.
    mapped: BTreeSet<PathBuf>,
}

/// Opens UCX with `FARJUMP_UCX` set to `named`, after the library `before`.
fn open(named: Option<&Path>, before: Option<&Path>) -> Outcome {
    open_with(named, before, &[])
}

/// Does the same with these variables of the dynamic linker.
fn open_with(named: Option<&Path>, before: Option<&Path>, linker: &[(&str, &Path)]) -> Outcome {
    // The library that the process loads before it opens UCX.
    let before = before.map_or("none", |before| before.to_str().unwrap());
    let mut command = test_in_role(CASE, &[before]);
    // These tests use the system's UCX and copies of it, even if the others run with another.
    command.env_remove(NAMED).env_remove("LD_LIBRARY_PATH").env_remove("LD_BIND_NOW");
    command.envs(linker.iter().copied());
    let done = passed(command.envs(named.map(|named| (NAMED, named))));
    let said = done.text().to_owned();
    let reported = |key: &str| {
        let lines: Vec<_> =
            said.lines().filter_map(|line| line.strip_prefix(key)).map(str::to_owned).collect();
        lines
    };
    let opened = reported("opened ").pop().ok_or_else(|| reported("refused ").pop().unwrap_or(said.clone()));
    Outcome { said: opened, mapped: reported("mapped ").into_iter().map(PathBuf::from).collect() }
}

#[test]
fn the_case_of_a_child() {
    let [before] = &role()[..] else { return };
    if before != "none" {
        // SAFETY: the initialisers of a UCX, or of a library without any.
        std::mem::forget(unsafe { Library::open(Some(before), RTLD_NOW | RTLD_LOCAL) }.unwrap());
    }
    println!();
    match Ucx::open() {
        Ok(ucx) => println!("opened {} {}", ucx.version(), ucx.file().display()),
        Err(error) => println!("refused {error}"),
    }
    for line in fs::read_to_string("/proc/self/maps").unwrap().lines() {
        // The path is everything behind the fifth blank and padding (proc_pid_maps(5)), because it may have blanks
        // itself.
        let file = line.splitn(6, ' ').nth(5).map(|padded| Path::new(padded.trim_start()));
        let name = file.and_then(|file| file.file_name()?.to_str());
        if name.is_some_and(|name| LIBRARIES.iter().any(|library| name.starts_with(library))) {
            println!("mapped {}", file.unwrap().display());
        }
    }
}

/// The library of the system's UCX; `None`, with a message, without one.
fn installed() -> Option<PathBuf> {
    match open(None, None).said {
        Ok(said) => Some(said.split_once(' ').unwrap().1.into()),
        Err(error) => {
            assert!(error.contains("UCX is not installed"), "{error}");
            println!("skipped: {error}");
            None
        }
    }
}

/// A folder with a copy of the system's UCX, under the names that the dynamic linker searches for.
fn copied(library: &Path) -> TempDir {
    let folder = tempdir().unwrap();
    for name in LIBRARIES {
        fs::copy(library.with_file_name(name), folder.path().join(name)).unwrap();
    }
    folder
}

/// A library of this C code; `None`, with a message, without a compiler.
fn stub(file: &Path, code: &str) -> Option<()> {
    let source = file.with_extension("c");
    fs::write(&source, code).unwrap();
    if !all_work(&["cc"]) {
        return None;
    }
    let built = Command::new("cc").args(["-shared", "-fPIC", "-o"]).arg(file).arg(&source).status();
    assert!(built.unwrap().success(), "{code}");
    Some(())
}

#[test]
fn a_named_ucx_loads_its_own_libraries_and_not_the_systems() {
    let Some(library) = installed() else { return };
    let folder = copied(&library);
    let named = folder.path().join("libucp.so.0");
    let other = tempdir().unwrap();
    // The file itself, by a link among links, and by a single link.
    for name in LIBRARIES {
        symlink(folder.path().join(name), other.path().join(name)).unwrap();
    }
    let alone = other.path().join("alone.so");
    symlink(&named, &alone).unwrap();
    for path in [&named, &other.path().join("libucp.so.0"), &alone] {
        let outcome = open(Some(path), None);
        let said = outcome.said.unwrap();
        assert!(said.ends_with(&*named.to_string_lossy()), "{said}");
        assert_eq!(outcome.mapped, LIBRARIES.map(|name| folder.path().join(name)).into(), "{path:?}");
    }
}

#[test]
fn a_named_ucx_under_ld_bind_now_is_refused_with_working_remedies() {
    let Some(library) = installed() else { return };
    let folder = copied(&library);
    let named = folder.path().join("libucp.so.0");
    let now = ("LD_BIND_NOW", Path::new("1"));
    let error = open_with(Some(&named), None, &[now]).said.unwrap_err();
    let mend = format!(
        "because LD_BIND_NOW is set: unset it, or put {} first in LD_LIBRARY_PATH",
        folder.path().display()
    );
    assert!(error.ends_with(&mend), "{error}");
    // Both remedies, and the system's UCX, which needs none.
    let empty = ("LD_BIND_NOW", Path::new(""));
    for linker in [&[empty][..], &[now, ("LD_LIBRARY_PATH", folder.path())]] {
        let outcome = open_with(Some(&named), None, linker);
        assert!(outcome.said.unwrap().ends_with(&*named.to_string_lossy()), "{linker:?}");
        assert_eq!(outcome.mapped, LIBRARIES.map(|name| folder.path().join(name)).into(), "{linker:?}");
    }
    assert!(open_with(None, None, &[now]).said.unwrap().ends_with(&*library.to_string_lossy()));
}

#[test]
fn a_broken_sister_library_is_named_in_the_error() {
    let Some(library) = installed() else { return };
    let folder = copied(&library);
    fs::write(folder.path().join("libucm.so.0"), "no library").unwrap();
    let error = open(Some(&folder.path().join("libucp.so.0")), None).said.unwrap_err();
    assert!(error.contains("libucm.so.0: file too short") && error.contains("of a whole UCX"), "{error}");
}

#[test]
fn an_incomplete_ucx_file_is_refused_by_path_with_the_cause() {
    let folder = tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let version = |minor| {
        format!(
            "void ucp_get_version(unsigned *a, unsigned *b, unsigned *c) {{ *a = 1; *b = {minor}; *c = 0; }}"
        )
    };
    fs::write(at("text.so"), "no library at all, but as long as the head of one would be: 64 B").unwrap();
    for (name, code) in
        [("older.so", version(12)), ("part.so", version(13)), ("other.so", "int other;".to_owned())]
    {
        let Some(()) = stub(&at(name), &code) else { return };
    }
    let refused = |name: &str, words: &str| {
        let error = open(Some(&at(name)), None).said.unwrap_err();
        assert!(error.starts_with(&format!("FARJUMP_UCX={}: ", at(name).display())), "{error}");
        assert!(error.contains(words) && error.contains("name "), "{name}: {error}");
    };
    refused("absent.so", "No such file");
    refused("", "is a folder");
    for (name, sister) in
        [("other.so", "libucm.so.0"), ("other.so", "libucs.so.0"), ("other.so", "libuct.so.0")]
    {
        refused(name, &format!("{sister}, which it needs, is not beside it"));
        stub(&at(sister), "int nothing;").unwrap();
    }
    refused("text.so", "invalid ELF header");
    refused("older.so", "it is UCX 1.12.0, and farjump needs 1.13 or later");
    refused("part.so", "undefined symbol: uc");
    refused("other.so", "it is not UCX");
}

#[test]
fn a_loaded_ucx_is_used_and_another_name_is_refused() {
    let Some(library) = installed() else { return };
    let folder = copied(&library);
    let copy = folder.path().join("libucp.so.0");
    let before = library.as_path();
    for named in [None, Some(before)] {
        let said = open(named, Some(before)).said.unwrap();
        assert!(said.ends_with(&*library.to_string_lossy()), "{said}");
    }
    let error = open(Some(&copy), Some(before)).said.unwrap_err();
    assert!(error.contains("another UCX is in this process already"), "{error}");
    for file in [before, &copy] {
        assert!(error.contains(&*file.to_string_lossy()), "{error}");
    }
    // A library of another UCX.
    let error = open(Some(&copy), Some(&library.with_file_name("libucs.so.0"))).said.unwrap_err();
    assert!(error.contains("of another UCX is in this process already"), "{error}");
}

#[test]
fn an_empty_name_is_none() {
    let Some(library) = installed() else { return };
    let said = open(Some(Path::new("")), None).said.unwrap();
    assert!(said.ends_with(&*library.to_string_lossy()), "{said}");
}
