//! The programs in the README and in `docs/start` are the examples, and work as the pages say.

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
fn the_pages_show_the_examples_as_they_are() {
    const OF_RUST: [&str; 2] = ["../README.md", "README.md"];
    const OF_C: [&str; 1] = ["../docs/start/c.md"];
    let examples =
        [("store.rs", &OF_RUST[..]), ("sum.rs", &OF_RUST), ("ifunc/sum.rs", &OF_RUST), ("sum.c", &OF_C)];
    for (name, pages) in examples {
        let text = fs::read_to_string(package().join("examples").join(name)).unwrap();
        let code: String = text
            .lines()
            .skip_while(|line| line.starts_with("//!") || line.is_empty())
            .fold(String::new(), |code, line| code + line + "\n");
        assert!(code.lines().count() > 8, "{name} is empty");
        for page in pages {
            let shown = fs::read_to_string(package().join(page)).unwrap();
            assert!(shown.contains(&code), "{page} does not show examples/{name} as it is");
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
