//! The headers compile alone, in C and in C++, with every warning on.

use std::fs;
use std::process::Command;

use farjump_tools::all_work;
use tempfile::TempDir;

use crate::installation::prefix;
use crate::programs::finish;

/// Compiles a file that includes one header twice.
fn stands_alone(compiler: &str, language: &[&str], header: &str) {
    let folder = TempDir::new().unwrap();
    let source = folder.path().join("alone.c");
    fs::write(&source, format!("#include <{header}>\n#include <{header}>\nint main(void) {{ return 0; }}\n"))
        .unwrap();
    let mut command = Command::new(compiler);
    command.args(language).args(["-Wall", "-Wextra", "-Werror", "-pedantic", "-fsyntax-only"]);
    finish(command.arg("-I").arg(prefix().join("include")).arg(&source)).worked();
}

#[test]
fn farjump_h_stands_alone_in_c11_and_in_cpp17() {
    let c = ["-std=c11", "-Wstrict-prototypes", "-x", "c"];
    let cpp = ["-std=c++17", "-x", "c++"];
    for (compiler, language) in [("gcc", &c[..]), ("clang", &c), ("g++", &cpp), ("clang++", &cpp)] {
        if all_work(&[compiler]) {
            stands_alone(compiler, language, "farjump.h");
        }
    }
}
