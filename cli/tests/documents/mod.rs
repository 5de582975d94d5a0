//! Each fenced block of the documents is run as it stands, in a clean clone, or is part of a file that is compiled and
//! run. Other blocks say the reason why they are neither.

mod blocks;
mod files;
mod output;
mod session;

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use farjump_tools::Tool;

use blocks::Block;
use session::Session;

/// Documents with commands, each of which a test below runs.
const WITH_COMMANDS: [&str; 22] = [
    "README.md",
    "benches/README.md",
    "cli/README.md",
    "docs/guide/cards.md",
    "docs/guide/command-line.md",
    "docs/guide/operations.md",
    "docs/reference/perf.md",
    "docs/guide/redis.md",
    "docs/guide/from-lua.md",
    "docs/start/c.md",
    "docs/start/python.md",
    "docs/start/redis.md",
    "docs/start/rust.md",
    "docs/guide/ucp-ifunc.md",
    "docs/design/vm-test.md",
    "docs/guide/writing-a-transport.md",
    "docs/guide/writing-ifuncs.md",
    "examples/graph/README.md",
    "examples/scan/README.md",
    "fuzz/README.md",
    "kv/README.md",
    "kv/benches/README.md",
];

/// A document whose block is what a measurement printed.
const MEASURED: &str = "benches/SCALING.md";

/// Blocks that another test reads: the document, the first word behind the fence, and the test.
const READ_ELSEWHERE: [(&str, &str, &str); 13] = [
    ("README.md", "python", "python/tests/proxystore_suite/test_documents.py"),
    ("docs/guide/dask.md", "python", "python/tests/proxystore_suite/test_dask.py"),
    ("docs/guide/dask.md", "text", "python/tests/proxystore_suite/test_dask.py"),
    ("docs/reference/protocol.md", "hex", "integration-tests/tests/documents/protocol.rs"),
    ("docs/guide/proxystore.md", "python", "python/tests/proxystore_suite/test_documents.py"),
    ("docs/guide/python-functions.md", "python", "python/tests/test_documents.py"),
    ("docs/guide/python.md", "python", "python/tests/test_documents.py"),
    ("docs/start/python.md", "python", "python/tests/test_documents.py"),
    // Its commands, which run here, build it.
    ("docs/start/redis.md", "c", "cli/tests/documents/mod.rs"),
    ("docs/guide/writing-ifuncs.md", "c", "integration-tests/tests/documents/ifuncs.rs"),
    ("docs/guide/writing-ifuncs.md", "rust", "integration-tests/tests/documents/ifuncs.rs"),
    ("docs/guide/writing-ifuncs.md", "text", "integration-tests/tests/documents/ifuncs.rs"),
    ("ifuncs/rust/README.md", "rust", "integration-tests/tests/documents/ifuncs.rs"),
];

fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
}

/// Needs of blocks that are tried on a line of input: an installed program may not work.
const COMPILERS: [&str; 6] = ["cc", "clang", "gfortran", "pkg-config", "python3", "rustc"];

/// Returns the reason why a block cannot run on this machine.
fn lacks(block: &Block) -> Option<String> {
    if block.text.contains("farjump perf ") && !session::programs().join("farjump-perf").exists() {
        return Some("cargo built no farjump-perf with this test".to_owned());
    }
    let needs = block.mark("needs")?.split(',').map(str::trim);
    needs.filter(|word| !word.is_empty()).find_map(|word| {
        if word.starts_with('/') {
            return (!Path::new(word).exists()).then(|| format!("there is no {word}"));
        }
        if let Some(transport) = farjump::transports::available().into_iter().find(|found| found.name == word)
        {
            return transport.usable.err().map(|why| format!("{word}: {why}"));
        }
        if let Some(example) = word.strip_prefix("example ") {
            let there = session::examples().join(example).exists();
            return (!there).then(|| format!("cargo built no example {example} with this test"));
        }
        if let Some(module) = word.strip_prefix("module ") {
            let there = session::modules().join(format!("lib{module}.so")).exists();
            return (!there).then(|| format!("cargo built no module {module} with this test"));
        }
        if COMPILERS.contains(&word) {
            return Tool::tried(word).err();
        }
        let path = std::env::var_os("PATH").unwrap_or_default();
        let there = std::env::split_paths(&path).any(|folder| folder.join(word).exists());
        (!there).then(|| format!("there is no {word}"))
    })
}

/// Runs the blocks of a document in their order, in one shell. Compares a command's output where the document shows
/// one.
fn run(document: &str) {
    let (mut session, mut wrong) = (None, String::new());
    for block in blocks::of(document) {
        if let Some(file) = block.mark("saved as") {
            session.get_or_insert_with(Session::new).write(file, &block.text);
        }
        if !block.is_session() {
            continue;
        }
        if let Some(why) = block.mark("not run").map(str::to_owned).or_else(|| lacks(&block)) {
            println!("not run: {}: {why}", block.place());
            continue;
        }
        let session = session.get_or_insert_with(Session::new);
        let why_read_only = block.mark("options");
        for (command, shown) in block.commands() {
            let (typed, shown) = match why_read_only {
                Some(_) => (format!("{} --help >/dev/null", without_comment(&command)), Vec::new()),
                None => (command, shown),
            };
            let (printed, status) = session.run(&typed);
            let agrees = shown.is_empty() || output::agrees(&printed, &shown);
            if status != 0 || !agrees {
                let (place, printed, shown) = (block.place(), printed.join("\n"), shown.join("\n"));
                wrong += &format!(
                    "{place}: `{typed}` prints\n{printed}\nends with {status}, and the document shows\n{shown}\n\n"
                );
            }
        }
        if let Some(why) = why_read_only {
            println!("not run: {}: {why} (but farjump takes its options)", block.place());
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}

/// Returns a command without a comment at its end.
fn without_comment(command: &str) -> &str {
    command.split(" #").next().unwrap_or(command)
}

#[test]
fn the_commands_of_the_readme_do_what_it_shows() {
    run("README.md");
}

#[test]
fn the_commands_of_the_guide_to_ifuncs_do_what_it_shows() {
    run("docs/guide/writing-ifuncs.md");
}

#[test]
fn the_commands_of_operations_do_what_it_shows() {
    run("docs/guide/operations.md");
}

#[test]
fn the_commands_of_the_other_documents_do_what_they_show() {
    let own = ["README.md", "docs/guide/writing-ifuncs.md", "docs/guide/operations.md"];
    WITH_COMMANDS.into_iter().filter(|document| !own.contains(document)).for_each(run);
}

#[test]
fn every_block_of_the_documents_is_tested_or_states_why_not() {
    let mut documents = files::ending(&["md"]);
    documents.retain(|document| document != MEASURED);
    let sources: Vec<String> = files::ending(&["rs", "c", "h", "toml"])
        .iter()
        .map(|name| bare(&fs::read_to_string(root().join(name)).unwrap_or_default()))
        .collect();
    let (mut with_commands, mut untested) = (BTreeSet::new(), Vec::new());
    for block in documents.iter().flat_map(|document| blocks::of(document)) {
        let language = block.info.split(' ').next().unwrap_or_default().to_owned();
        // A piece of a sample is that of its file.
        let read_elsewhere = READ_ELSEWHERE
            .iter()
            .filter(|_| !block.info.contains(" of "))
            .find(|(document, first, _)| *document == block.document && *first == language);
        if block.is_session() {
            with_commands.insert(block.document.clone());
        } else if let Some(why) = block.mark("not run") {
            println!("not run: {}: {why}", block.place());
        } else if is_doctest(&block) {
            // rustdoc compiles it.
        } else if let Some((document, _, test)) = read_elsewhere {
            let test =
                fs::read_to_string(root().join(test)).unwrap_or_else(|error| panic!("{test}: {error}"));
            assert!(test.contains(document), "the test of {} does not read {document}", block.place());
        } else if !sources.iter().any(|source| source.contains(bare(&block.text).trim())) {
            untested.push(format!("{} (```{})", block.place(), block.info));
        }
    }
    assert!(
        untested.is_empty(),
        "mark these as `console`, show a file's own lines, or say `<!-- not run: REASON -->`: {untested:#?}"
    );
    assert_eq!(with_commands, WITH_COMMANDS.map(str::to_owned).into());
}

/// Returns whether rustdoc compiles the block: Rust in a README that is the front page of its crate's documentation.
fn is_doctest(block: &Block) -> bool {
    let Some(folder) = block.document.strip_suffix("/README.md") else { return false };
    let library = fs::read_to_string(root().join(folder).join("src/lib.rs")).unwrap_or_default();
    library.contains(r#"#![doc = include_str!("../README.md")]"#)
        && (block.info == "rust" || block.info == "rust,no_run")
}

/// Returns the text without indentation.
fn bare(text: &str) -> String {
    text.lines().map(str::trim).collect::<Vec<_>>().join("\n")
}
