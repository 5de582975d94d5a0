//! Programs in other languages, which call UCX and the shared library.

use std::fs;

use farjump_fixtures::process::finish;
use farjump_tools::Tool;

use crate::bitcode::{compiler, compiling};
use crate::fixture::{Lane, fixture, library};

#[test]
fn bitcode_made_in_python_is_registered_and_sends_itself_on() {
    let (Some(fixture), Some(compiler)) = (fixture(), compiler()) else { return };
    if let Err(why) = Tool::tried_on("python3", "import llvmlite") {
        println!("skipped: {why}");
        return;
    }
    let program = fixture.path("from_python.py");
    fs::write(&program, include_str!("programs/from_python.py")).unwrap();
    let mut command = fixture.command("python3".as_ref(), Lane::Posix, &fixture.no_libraries());
    compiling(&mut command, &compiler);
    let done = finish(command.arg(program).arg(library().join("libfarjump.so"))).worked();
    let mut lines: Vec<_> = done.text().lines().collect();
    lines.sort_unstable();
    assert_eq!(lines, ["source 70", "target 70"]);
}
