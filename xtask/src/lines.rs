//! `cargo xtask lines`: lines of Rust that are neither blank, comment nor generated, by room.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use crate::process::{Failed, Interrupt};
use crate::workspace::{root, tracked_files};

/// Files that bindgen made.
const GENERATED: [&str; 2] = ["transports/rdma-sys/src/bindings.rs", "transports/ucx-sys/src/bindings.rs"];
/// The columns of the table.
const KINDS: [&str; 4] = ["product", "tests", "tools", "examples"];
const PRODUCT: usize = 0;
const TESTS: usize = 1;
const TOOLS: usize = 2;
const EXAMPLES: usize = 3;

/// Prints the table.
///
/// # Errors
/// When interrupted, or git names no files.
pub(crate) fn run(interrupt: &Interrupt) -> Result<bool, Failed> {
    let mut rooms: BTreeMap<String, [usize; KINDS.len()]> = BTreeMap::new();
    for name in tracked_files(&["*.rs"], interrupt)? {
        let Ok(text) = fs::read_to_string(root().join(&name)) else { continue };
        if GENERATED.contains(&&*name) {
            continue;
        }
        let room = name.split('/').next().unwrap_or_default();
        let counts = rooms.entry(room.to_owned()).or_default();
        let (code, tests) = lines_of(&text);
        counts[kind_of(Path::new(&name))] += code;
        counts[TESTS] += tests;
    }
    let row = |name: &str, counts: [usize; KINDS.len()]| {
        let cells: String = counts.iter().map(|count| format!("{count:>10}")).collect();
        say!("{name:<18}{cells}{:>10}", counts.iter().sum::<usize>());
    };
    say!("{:<18}{:>10}{:>10}{:>10}{:>10}{:>10}", "", KINDS[0], KINDS[1], KINDS[2], KINDS[3], "all");
    let mut all = [0; KINDS.len()];
    for (room, counts) in &rooms {
        row(room, *counts);
        all = std::array::from_fn(|kind| all[kind] + counts[kind]);
    }
    row("all", all);
    Ok(true)
}

/// The column of a file's code, without its unit tests.
fn kind_of(name: &Path) -> usize {
    let has = |part: &str| name.iter().any(|found| found == part);
    let is_of_tests = name.file_stem().is_some_and(|stem| stem.to_string_lossy().ends_with("tests"));
    let room = name.iter().next().and_then(|room| room.to_str()).unwrap_or_default();
    match room {
        _ if has("tests") || is_of_tests => TESTS,
        "integration-tests" | "fuzz" => TESTS,
        "xtask" | "benches" => TOOLS,
        _ if has("benches") => TOOLS,
        "examples" => EXAMPLES,
        _ => PRODUCT,
    }
}

/// The lines of code of a file, and those of the unit tests at its end.
fn lines_of(text: &str) -> (usize, usize) {
    let (mut counts, mut in_tests, mut in_comment) = ([0, 0], false, false);
    let mut before = "";
    for line in text.lines().map(str::trim) {
        in_tests |= before == "#[cfg(test)]" && line.starts_with("mod ") && line.ends_with('{');
        in_comment |= line.starts_with("/*");
        if !line.is_empty() && !line.starts_with("//") && !in_comment {
            counts[usize::from(in_tests)] += 1;
        }
        in_comment &= !line.ends_with("*/");
        before = line;
    }
    (counts[0], counts[1])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_code_are_neither_blank_nor_comment() {
        let text = "//! Doc.\n\nfn f() {\n    // Why.\n    g(); /* here */\n}\n/* a\n b */\n#[cfg(test)]\nmod tests {\n    fn t() {}\n}\n";
        // The attribute is the file's, and the rest the tests'.
        assert_eq!(lines_of(text), (4, 3));
    }

    #[test]
    fn files_belong_to_product_tests_tools_or_examples() {
        let kinds =
            ["core/src/lib.rs", "core/tests/frame/main.rs", "kv/src/code/tests.rs", "fuzz/bodies/src/a.rs"]
                .map(|name| kind_of(Path::new(name)));
        assert_eq!(kinds, [PRODUCT, TESTS, TESTS, TESTS]);
        let kinds = ["xtask/src/main.rs", "c/benches/boundary.rs", "examples/scan/src/main.rs"]
            .map(|name| kind_of(Path::new(name)));
        assert_eq!(kinds, [TOOLS, TOOLS, EXAMPLES]);
    }
}
