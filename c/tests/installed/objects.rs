//! Objects in C: their owner in one process and their readers in others.

use std::ffi::OsStr;
use std::path::Path;
use std::process::Command;

use farjump_tools::all_work;
use tempfile::TempDir;

use crate::common::package;
use crate::installation::{ifuncs, prefix};
use crate::programs::{Linkage, Process, WARNINGS, compile, finish, start};

pub(crate) const ALL_WELL: &str = "all is as it should be\n";

/// A folder with the programs of an owner and a reader.
struct Fixture {
    folder: TempDir,
    linkage: Linkage,
}

impl Fixture {
    fn new(linkage: Linkage) -> Fixture {
        let folder = farjump_fixtures::folder();
        for program in ["owner", "reader"] {
            compile(program, linkage, folder.path());
        }
        Fixture { folder, linkage }
    }

    fn owner(&self) -> (Process, [String; 3]) {
        owner(self.folder.path(), "t.sock")
    }
}

/// Starts the `owner` that was compiled into `folder`, at a socket there. Returns it and the handles that it printed, when it is
/// ready: of a table, of a reserved object, and of one that is gone.
pub(crate) fn owner(folder: &Path, socket: &str) -> (Process, [String; 3]) {
    let address = format!("unix:{}", folder.join(socket).display());
    let owner = start(&folder.join("owner"), [address], folder);
    let handles = std::array::from_fn(|_| owner.line());
    (owner, handles)
}

/// Runs a reader through all its cases with an owner, to which the test sends commands meanwhile.
fn run_cases(linkage: Linkage, memory: &str) {
    if !linkage.is_open() {
        return;
    }
    let fixture = Fixture::new(linkage);
    let (mut owner, handles) = fixture.owner();
    let args = handles.iter().map(OsStr::new).chain([memory.as_ref(), ifuncs().as_os_str()]);
    let mut reader = start(&fixture.folder.path().join("reader"), args, fixture.folder.path());
    for word in ["set", "evict"] {
        let asked = reader.line_or_end().unwrap_or_else(|| panic!("{:?} before {word}", fixture.linkage));
        assert_eq!(asked, word);
        owner.write_line(word);
        assert_eq!(owner.line(), format!("{word} done"));
        reader.write_line("done");
    }
    assert_eq!(reader.line(), "kill");
    owner.write_line("list");
    let listed = owner.line();
    // The table, of 300,000 bytes, is evicted (4), and claimed where its memory is mapped.
    let claimed = i32::from(memory == "mapped");
    assert!(listed.contains(&format!(":300000:u8:4:{claimed};")) == (memory == "mapped"), "{listed}");
    owner.kill_and_wait();
    reader.write_line("done");
    assert_eq!(reader.line(), "restart");
    let (owner, _) = fixture.owner();
    reader.write_line("done");
    assert_eq!(reader.finish().worked().text(), ALL_WELL);
    owner.finish().worked();
}

#[test]
fn a_reader_in_c_maps_the_objects_of_an_owner_in_c() {
    run_cases(Linkage::Shared, "mapped");
}

#[test]
fn a_reader_in_c_gets_objects_through_frames() {
    run_cases(Linkage::Static, "frames");
}

#[test]
fn owners_and_readers_run_clean_under_sanitizers() {
    run_cases(Linkage::Sanitized, "mapped");
    run_cases(Linkage::Sanitized, "frames");
}

/// Runs `tests/programs/NAME.c` through all its cases, and checks that it leaves nothing behind.
pub(crate) fn in_one_process(name: &str, linkage: Linkage) {
    if !linkage.is_open() {
        return;
    }
    let (folder, empty) = (farjump_fixtures::folder(), TempDir::new().unwrap());
    let program = compile(name, linkage, folder.path());
    let done = start(&program, [ifuncs(), empty.path()], folder.path()).finish().worked();
    assert_eq!(done.text(), ALL_WELL);
    assert_eq!(std::fs::read_dir(empty.path()).unwrap().count(), 0, "a file was left behind");
}

#[test]
fn stores_handles_and_clients_are_used_and_misused_in_c() {
    in_one_process("objects", Linkage::Shared);
}

#[test]
fn stores_handles_and_clients_neither_leak_nor_touch_foreign_memory() {
    in_one_process("objects", Linkage::Sanitized);
}

#[test]
fn objects_in_c_end_with_their_owner_last_reference_or_lease() {
    in_one_process("lifetimes", Linkage::Shared);
}

#[test]
fn lifetimes_in_c_leave_nothing_behind() {
    in_one_process("lifetimes", Linkage::Sanitized);
}

#[test]
fn a_program_in_cpp_owns_objects_and_reads_them() {
    if !all_work(&["g++"]) {
        return;
    }
    let folder = farjump_fixtures::folder();
    let program = folder.path().join("objects_cpp");
    let mut compile = Command::new("g++");
    compile.arg("-std=c++17").args(WARNINGS).arg("-I").arg(prefix().join("include"));
    compile.arg(package().join("tests/programs/objects.cpp")).arg("-o").arg(&program);
    finish(compile.args(Linkage::Shared.libraries())).worked();
    let address = format!("unix:{}", folder.path().join("t.sock").display());
    let done = start(&program, [address.as_ref(), ifuncs().as_os_str()], folder.path()).finish().worked();
    assert_eq!(done.text(), "50005000 of f64\n3 outcomes and 1 failed\n3 entries and the end\n");
}
