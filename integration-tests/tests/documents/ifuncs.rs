//! The functions in `docs/guide/writing-ifuncs.md` build, and its mistakes give its messages.

use std::fs;
use std::path::Path;
use std::time::Duration;

use farjump::build::{BuildError, BuildReport, Options, build};
use farjump::{Library, Link, Target};
use farjump_tools::all_work;

use crate::hex;

const PATIENCE: Duration = Duration::from_secs(30);

/// A fenced block of the guide, and the first paragraph behind it, as one line.
struct Block {
    marks: String,
    code: String,
    message: String,
}

fn blocks(language: &str) -> Vec<Block> {
    blocks_of("docs/guide/writing-ifuncs.md", language)
}

fn blocks_of(document: &str, language: &str) -> Vec<Block> {
    let guide = hex::read(document);
    let parts: Vec<_> = guide.split("```").collect();
    // Odd parts are those between fences.
    let fenced: Vec<_> = parts.iter().skip(1).step_by(2).filter_map(|part| part.split_once('\n')).collect();
    let language = |marks: &str| marks.split(' ').next() == Some(language);
    let found = fenced.iter().enumerate().filter(|(_, (marks, _))| language(marks));
    found
        .map(|(index, (marks, code))| {
            let text = fenced[index..].iter().find(|(marks, _)| *marks == "text");
            let message = text.map_or("", |(_, message)| message.trim()).replace('\n', " ");
            Block { marks: (*marks).to_owned(), code: (*code).to_owned(), message }
        })
        .collect()
}

/// NAME of the first `NAME_main` in C; in Rust that of `#[ifunc(name = "NAME"`, or of the function behind it.
fn name(code: &str) -> String {
    let attribute = code.split_once("#[ifunc").map(|(_, rest)| rest);
    let given =
        attribute.and_then(|rest| rest.strip_prefix("(name = \"")).and_then(|rest| rest.split_once('"'));
    let function = || attribute?.split_once("fn ")?.1.split_once('(');
    let rust = given.or_else(function);
    let c = || code.split_once("_main(").and_then(|(before, _)| before.split([' ', '*']).next_back());
    rust.map(|(name, _)| name).or_else(c).expect("a block has an ifunc").to_owned()
}

fn build_block(code: &str, suffix: &str, folder: &Path) -> Result<BuildReport, BuildError> {
    build_block_by(Options::default(), code, suffix, folder)
}

fn build_block_by(
    options: Options,
    code: &str,
    suffix: &str,
    folder: &Path,
) -> Result<BuildReport, BuildError> {
    let name = name(code);
    let source = folder.join(format!("{name}.{suffix}"));
    fs::write(&source, code).unwrap();
    let output = folder.join(format!("lib{name}.so"));
    build(&Options { inputs: vec![source], output, ..options })
}

/// Fails with all messages that differ from the guide.
fn assert_messages(blocks: Vec<Block>, message_of: impl Fn(&str) -> String) {
    let mut differing = String::new();
    for block in blocks {
        let message = message_of(&block.code);
        if message != block.message {
            differing +=
                &format!("{} says\n{message}\nand the guide\n{}\n\n", name(&block.code), block.message);
        }
    }
    assert!(differing.is_empty(), "{differing}");
}

#[test]
fn every_function_in_the_guide_builds() {
    let folder = farjump_fixtures::folder();
    for (language, suffix, least) in [("c", "c", 4), ("rust", "rs", 2)] {
        let right: Vec<_> = blocks(language).into_iter().filter(|block| block.marks == language).collect();
        assert!(right.len() >= least, "{} blocks of {language}", right.len());
        for block in right {
            build_block(&block.code, suffix, folder.path())
                .unwrap_or_else(|error| panic!("{error}\n{}", block.code));
        }
    }
}

#[test]
fn the_function_in_the_readme_of_the_author_crate_builds() {
    let folder = farjump_fixtures::folder();
    let blocks = blocks_of("ifuncs/rust/README.md", "rust");
    let [block] = &blocks[..] else { panic!("{} blocks of Rust", blocks.len()) };
    build_block(&block.code, "rs", folder.path()).unwrap_or_else(|error| panic!("{error}\n{}", block.code));
}

#[test]
fn each_mistake_of_building_gives_the_message_in_the_guide() {
    if !all_work(&["gcc"]) {
        return;
    }
    // clang would report that some of the mistakes have no effect.
    let gcc = || Options { cc: Some("gcc".to_owned()), ..Options::default() };
    let folder = farjump_fixtures::folder();
    let wrong: Vec<_> = blocks("c").into_iter().filter(|block| block.marks == "c refused").collect();
    assert!(wrong.len() >= 5);
    let place = format!("{}/", folder.path().display());
    assert_messages(wrong, |code| {
        build_block_by(gcc(), code, "c", folder.path()).expect_err(code).to_string().replace(&place, "")
    });
}

#[test]
fn each_mistake_at_run_time_gives_the_message_in_the_guide() {
    let folder = farjump_fixtures::folder();
    let address = format!("unix:{}", folder.path().join("socket").display());
    let target = Target::listen(&address).build().unwrap().spawn().unwrap();
    let link = Link::connect(&address).unwrap();
    let wrong: Vec<_> = blocks("c").into_iter().filter(|block| block.marks == "c fails").collect();
    assert!(wrong.len() >= 4);
    assert_messages(wrong, |code| {
        let built = build_block(code, "c", folder.path()).unwrap().library;
        // SAFETY: the mistakes in this process are detected (the canary) or reported.
        let library = unsafe { Library::load(built) }.unwrap();
        let reply = link.inject(&library, b"abc").and_then(|call| call.wait(PATIENCE));
        reply.expect_err(code).to_string()
    });
    target.stop().unwrap();
}
