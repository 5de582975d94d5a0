//! The commands of `docs/start/c.md` for the example, and the results that it shows.

use std::fs;

use crate::common::package;

/// A command, and its output.
pub(crate) struct Typed {
    pub(crate) command: String,
    pub(crate) printed: Vec<String>,
}

/// Returns the commands of the page, in their order.
pub(crate) fn typed() -> Vec<Typed> {
    let page = fs::read_to_string(package().join("../docs/start/c.md")).unwrap();
    let of_example = |block: &&str| block.contains("$ cc c/examples/recordings/");
    let block = page
        .split("```console\n")
        .filter_map(|rest| rest.split("```").next())
        .find(of_example)
        .expect("the page has the example");
    let mut typed: Vec<Typed> = Vec::new();
    for line in block.lines() {
        match (line.strip_prefix("$ "), typed.last_mut()) {
            (Some(command), _) => typed.push(Typed { command: command.to_owned(), printed: Vec::new() }),
            (None, Some(last)) => last.printed.push(line.to_owned()),
            (None, None) => panic!("the block begins with `{line}`, which is no command"),
        }
    }
    typed
}

#[test]
fn the_c_page_quotes_the_codecs_target_code_verbatim() {
    let page = fs::read_to_string(package().join("../docs/start/c.md")).unwrap();
    let codec = fs::read_to_string(package().join("examples/recordings/codec.c")).unwrap();
    let (_, shown) = codec.split_once("static void insert(").expect("the codec inserts");
    assert!(shown.contains("codec_main("));
    assert!(page.contains(&format!("```c\nstatic void insert({shown}```\n")));
}
