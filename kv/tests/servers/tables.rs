//! The servers' tables of commands, as `docs/decisions/kv-commands.md` judges them.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use crate::resp::Value;
use crate::server::{Start, on_each};

/// What a list says of the keys of its commands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Keys {
    /// Some have names that no argument has.
    Beyond,
    /// All are arguments.
    Arguments,
    /// There are none: channels are arguments.
    Channels,
    /// None is named.
    None,
}

/// The lists by their headings.
const LISTS: [(&str, Keys); 5] = [
    ("Keys that the command does not name", Keys::Beyond),
    ("Keys among the arguments", Keys::Arguments),
    ("Channels among the arguments", Keys::Channels),
    ("Keys at large", Keys::None),
    ("No keys", Keys::None),
];

/// All names of the lists.
fn lists() -> BTreeMap<String, Keys> {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/decisions/kv-commands.md");
    let page = fs::read_to_string(page).expect("the page is there");
    let mut lists = BTreeMap::new();
    for (heading, keys) in LISTS {
        let part = page.split(&format!("\n## {heading}\n")).nth(1).expect("the page has the heading");
        let list = part.split("```text\n").nth(1).and_then(|list| list.split("```").next());
        for name in list.expect("a list follows").split_whitespace() {
            assert_eq!(lists.insert(name.to_owned(), keys), None, "{name} is listed twice");
        }
    }
    lists
}

/// The value behind a name, in an array of names and values.
fn field<'v>(fields: &'v Value, name: &str) -> &'v Value {
    let mut pairs = fields.elements().chunks_exact(2);
    &pairs.find(|pair| pair[0].text() == name).expect("there is such a field")[1]
}

/// What the server says of a command's keys.
fn keys_of(specs: &[Value]) -> Keys {
    let has = |spec: &Value, flag: &str| field(spec, "flags").elements().iter().any(|one| one.text() == flag);
    let is_unknown = |spec: &Value| {
        ["begin_search", "find_keys"].iter().any(|part| field(field(spec, part), "type").text() == "unknown")
    };
    if specs.iter().any(is_unknown) {
        Keys::Beyond
    } else if specs.iter().all(|spec| has(spec, "not_key")) {
        Keys::None
    } else {
        Keys::Arguments
    }
}

/// Checks an element of COMMAND, and its subcommands.
fn check(lists: &BTreeMap<String, Keys>, command: &Value, wrong: &mut Vec<String>) {
    let parts = command.elements();
    let (name, flags, categories) = (parts[0].text().to_lowercase(), &parts[2], &parts[6]);
    let (specs, inner) = (parts[8].elements(), parts[9].elements());
    inner.iter().for_each(|command| check(lists, command, wrong));
    let is_for_scripts = flags.elements().iter().all(|flag| flag.text() != "noscript");
    if !is_for_scripts || !inner.is_empty() || name.starts_with("fj.") {
        return;
    }
    let is_of_channels = categories.elements().iter().any(|category| category.text() == "@pubsub");
    match (lists.get(&name), keys_of(specs)) {
        (None, told) => wrong.push(format!("{name} is in no list; the server's table says: {told:?}")),
        (Some(Keys::Channels), Keys::None) if is_of_channels => {}
        (Some(listed), told) if *listed == told => {}
        (Some(listed), told) => {
            wrong.push(format!("{name} is listed as {listed:?}; the server's table says: {told:?}"))
        }
    }
}

#[test]
fn each_command_of_a_server_is_judged_by_the_keys_that_it_reaches() {
    let lists = lists();
    on_each(|program| {
        let server = Start::new(program).run();
        let table = server.client().say("COMMAND");
        assert!(table.elements().len() > 200, "the table is short");
        let mut wrong = Vec::new();
        table.elements().iter().for_each(|command| check(&lists, command, &mut wrong));
        assert!(wrong.is_empty(), "judge them in docs/decisions/kv-commands.md:\n{}", wrong.join("\n"));
        drop(server.shut_down());
    });
}
