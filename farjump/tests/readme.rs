//! The programs in README.md are the examples, and work as it says.

use std::fs;
use std::path::{Path, PathBuf};

use farjump::build::{Options, build};
use farjump_fixtures::helper_process::command;
use farjump_fixtures::process::Process;

fn package() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// `target/debug/examples/NAME`: cargo builds examples with the tests.
fn example(name: &str) -> PathBuf {
    let own = std::env::current_exe().unwrap();
    let path = own.parent().unwrap().parent().unwrap().join("examples").join(name);
    assert!(path.exists(), "{} is not there: cargo build --examples", path.display());
    path
}

#[test]
fn the_readme_shows_the_examples_as_they_are() {
    let readmes = ["../README.md", "README.md"];
    let readmes = readmes.map(|path| (path, fs::read_to_string(package().join(path)).unwrap()));
    for name in ["store.rs", "sum.rs", "ifunc/sum.rs", "sum.c"] {
        let text = fs::read_to_string(package().join("examples").join(name)).unwrap();
        let code: String = text
            .lines()
            .skip_while(|line| line.starts_with("//!") || line.is_empty())
            .fold(String::new(), |code, line| code + line + "\n");
        assert!(code.lines().count() > 8, "{name} is empty");
        for (path, readme) in &readmes {
            // The page of the crate shows the functions of one language.
            let shows = readme.contains(&code) || (*path == "README.md" && name == "sum.c");
            assert!(shows, "{path} does not show examples/{name} as it is");
        }
    }
}

#[test]
fn the_programs_of_the_readme_sum_rows_where_they_lie() {
    let folder = tempfile::tempdir().unwrap();
    let build_from = |source: &str| {
        let options = Options {
            inputs: vec![package().join("examples").join(source)],
            output: folder.path().join("libsum.so"),
            ..Options::default()
        };
        build(&options).unwrap();
    };
    let start = |name: &str| Process::start(command(example(name)).current_dir(folder.path()));
    let store = start("store");
    assert_eq!(store.line(), "ready");
    for source in ["ifunc/sum.rs", "sum.c"] {
        build_from(source);
        // 3² + 4² + 5²
        assert_eq!(start("sum").line(), "rows 3, 4 and 5 sum up to 50", "{source}");
    }
}
