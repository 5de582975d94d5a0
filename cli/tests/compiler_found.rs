//! The choice of the program `farjump_compiler` that a target runs where the user names none.

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::bitcode::{COMPILER, llvms};
use crate::workbench::{Workbench, finish, start_target};

/// A copy of `farjump` in the folder `bin` of a bench, and a program of this name that leaves a trace.
struct Tree {
    bench: Workbench,
    farjump: PathBuf,
    marks: PathBuf,
}

impl Tree {
    fn new() -> Tree {
        let bench = Workbench::new();
        fs::create_dir(bench.path("bin")).expect("a folder can be made");
        let farjump = bench.executable("bin/farjump", Path::new(env!("CARGO_BIN_EXE_farjump")));
        let script = bench.write("script", "#!/bin/sh\nid >\"$0.ran\"\n");
        let marks = bench.executable("marks", &script);
        Tree { bench, farjump, marks }
    }

    /// Returns a command that starts its target, which takes bitcode.
    fn serving(&self) -> Command {
        let mut command = self.bench.program(&self.farjump);
        command.args(["serve", "--bitcode", "--listen", &self.bench.address()]);
        command
    }

    /// Puts the program that leaves a trace at this place.
    fn put(&self, place: &str) -> PathBuf {
        self.bench.executable(place, &self.marks)
    }

    /// Returns the places at which it ran.
    fn ran(&self) -> Vec<PathBuf> {
        let folders = ["", "bin", "libexec/farjump"].map(|folder| self.bench.path(folder));
        let files = folders.iter().filter_map(|folder| fs::read_dir(folder).ok()).flatten();
        let files = files.map(|file| file.expect("it can be read").path());
        files.filter(|path| path.extension().is_some_and(|end| end == "ran")).collect()
    }
}

#[test]
fn a_program_above_this_one_or_in_path_is_not_looked_for() {
    let tree = Tree::new();
    tree.put("farjump_compiler");
    fs::create_dir(tree.bench.path("bin/bin")).expect("a folder can be made");
    tree.put("bin/bin/farjump_compiler");
    let path = std::env::var("PATH").unwrap_or_default();
    let path = format!("{}:{path}", tree.bench.path("").display());
    let refused = finish(tree.serving().env("PATH", path));
    refused.fails(
        1,
        &["can take no bitcode", "no program farjump_compiler beside this one", "FARJUMP_COMPILER"],
    );
    assert_eq!(tree.ran(), [""; 0].map(PathBuf::from));
}

#[test]
fn a_compiler_that_others_could_write_is_refused_unless_named() {
    let tree = Tree::new();
    let mode = |path: &Path, mode| {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("it is ours");
    };
    let compiler = tree.bench.executable("bin/farjump_compiler", Path::new(COMPILER));
    mode(&compiler, 0o702);
    let path = compiler.display().to_string();
    let why = "must not be run: it can be written by all users: chmod o-w";
    finish(&mut tree.serving()).fails(1, &[&path, why, "FARJUMP_COMPILER"]);
    mode(&compiler, 0o700);
    if rustix::process::geteuid().is_root() {
        chown(&compiler, Some(1234), None).expect("root may");
        // As on clusters: the owner of the program may own the compiler that it runs.
        chown(&tree.farjump, Some(1234), None).expect("root may");
        let said = finish(tree.serving().args(["--llvm", "/nowhere/libLLVM.so"]));
        said.fails(1, &["`/nowhere/libLLVM.so` cannot be opened"]);
    } else {
        println!("skipped: only root can give files away");
    }
    // One that the user names is taken as it is.
    let named = tree.put("named");
    mode(&named, 0o777);
    finish(tree.serving().arg("--compiler").arg(&named)).fails(1, &["the compiler ended"]);
    assert_eq!(tree.ran(), [tree.bench.path("named.ran")]);
    fs::remove_file(tree.bench.path("named.ran")).expect("it is ours");
    finish(tree.serving().env("FARJUMP_COMPILER", "named")).fails(1, &["the compiler ended"]);
    assert_eq!(tree.ran(), [tree.bench.path("named.ran")], "a name is one of this folder");
}

#[test]
fn an_installed_tree_may_be_moved() {
    let tree = Tree::new();
    assert!(!llvms().is_empty(), "the Rust toolchain has an LLVM");
    let moved = tree.bench.path("moved");
    fs::create_dir_all(moved.join("libexec/farjump")).expect("a folder can be made");
    tree.bench.executable("moved/libexec/farjump/farjump_compiler", Path::new(COMPILER));
    fs::rename(tree.bench.path("bin"), moved.join("bin")).expect("it is ours");
    let mut command = tree.bench.program(moved.join("bin/farjump"));
    let (serving, _) = start_target(command.args(["serve", "--bitcode", "--listen", &tree.bench.address()]));
    let taken = tree.bench.json(["transports", "--to", &tree.bench.address(), "--json"]);
    assert_eq!(taken["cpu"]["takes"], serde_json::json!(["images", "bitcode"]));
    serving.stop().worked();
    tree.bench.is_clean();
}
