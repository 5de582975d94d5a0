//! The programs of README.md in C are the examples, and work as it says.

use std::fs;
use std::process::Command;

use tempfile::TempDir;

use crate::common::{ifunc_library, package};
use crate::installation::prefix;
use crate::programs::{Way, finish, start};

#[test]
fn the_readme_shows_the_examples_in_c_as_they_are() {
    let readme = fs::read_to_string(package().join("../README.md")).unwrap();
    for name in ["store.c", "sum.c"] {
        let text = fs::read_to_string(package().join("examples").join(name)).unwrap();
        let code: String = text.lines().skip(1).fold(String::new(), |code, line| code + line + "\n");
        assert!(
            text.starts_with("/*") && code.lines().count() > 10,
            "{name} has a head comment, and is not empty"
        );
        assert!(readme.contains(&code), "README.md does not show c/examples/{name} as it is");
    }
}

#[test]
fn the_programs_in_c_of_the_readme_sum_rows_where_they_lie() {
    if !Way::Shared.is_open() {
        return;
    }
    let folder = TempDir::new().unwrap();
    let sum = package().join("../farjump/examples/sum.c");
    ifunc_library(sum, folder.path().join("libsum.so"), &[]).unwrap();
    let compile = |name: &str| {
        let program = folder.path().join(name);
        let mut cc = Command::new("cc");
        cc.args(["-Wall", "-Wextra", "-Werror", "-I"]).arg(prefix().join("include"));
        let source = package().join("examples").join(format!("{name}.c"));
        finish(cc.arg(source).arg("-o").arg(&program).args(Way::Shared.libraries())).worked();
        program
    };
    let none: [&str; 0] = [];
    let store = start(&compile("store"), none, folder.path());
    assert_eq!(store.line(), "ready");
    let done = start(&compile("sum"), none, folder.path()).finish().worked();
    // 3² + 4² + 5²
    assert_eq!(done.text(), "rows 3, 4 and 5 sum up to 50\n");
}
