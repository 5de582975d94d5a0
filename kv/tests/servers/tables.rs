//! The servers' tables of commands, compared with `commands.toml`.

use std::collections::BTreeMap;
use std::fmt::Debug;

use crate::resp::Value;
use crate::server::{Start, on_each, run_ops};

/// The statement of a list about the keys of its commands.
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

/// The lists of `[keys]`, by name.
const LISTS: [(&str, Keys); 5] = [
    ("beyond", Keys::Beyond),
    ("arguments", Keys::Arguments),
    ("channels", Keys::Channels),
    ("at-large", Keys::None),
    ("none", Keys::None),
];

/// The effect of a client's command for a function.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum OfClient {
    Selects,
    Refused,
    Runs,
}

/// The lists of `[client]`, by name.
const OF_CLIENTS: [(&str, OfClient); 3] =
    [("selects", OfClient::Selects), ("refused", OfClient::Refused), ("answers", OfClient::Runs)];

/// All names in these lists of a table of `commands.toml`.
fn listed<K: Copy + PartialEq + Debug>(table: &str, lists: &[(&str, K)]) -> BTreeMap<String, K> {
    let tables: BTreeMap<String, BTreeMap<String, String>> =
        toml::from_str(include_str!("commands.toml")).expect("tables of lists");
    assert_eq!(tables[table].len(), lists.len(), "a list of {table} is not read");
    let mut names = BTreeMap::new();
    for (list, kind) in lists {
        for name in tables[table][*list].split_whitespace() {
            assert_eq!(names.insert(name.to_owned(), *kind), None, "{name} is listed twice");
        }
    }
    names
}

/// The value behind a name, in an array of names and values.
fn field<'v>(fields: &'v Value, name: &str) -> &'v Value {
    let mut pairs = fields.elements().chunks_exact(2);
    &pairs.find(|pair| pair[0].text() == name).expect("there is such a field")[1]
}

/// Returns the server's statement about a command's keys.
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
fn each_command_is_listed_by_the_keys_that_it_reaches() {
    let lists = listed("keys", &LISTS);
    on_each(|program| {
        let server = Start::new(program).run();
        let table = server.client().say("COMMAND");
        assert!(table.elements().len() > 200, "the table is short");
        let mut wrong = Vec::new();
        table.elements().iter().for_each(|command| check(&lists, command, &mut wrong));
        assert!(wrong.is_empty(), "judge them in commands.toml:\n{}", wrong.join("\n"));
        drop(server.shut_down());
    });
}

/// Calls `found` with the name of each command of a client in an element of COMMAND, its arity, and whether scripts may run it.
fn of_clients(command: &Value, found: &mut impl FnMut(String, usize, bool)) {
    let parts = command.elements();
    parts[9].elements().iter().for_each(|inner| of_clients(inner, found));
    let has = |part: &Value, names: &[&str]| part.elements().iter().any(|one| names.contains(&&*one.text()));
    if !parts[9].elements().is_empty() || !has(&parts[6], &["@connection", "@transaction"]) {
        return;
    }
    let Value::Integer(arity) = parts[1] else { panic!("no arity") };
    found(parts[0].text().to_lowercase(), arity.unsigned_abs() as usize, !has(&parts[2], &["noscript"]));
}

#[test]
fn client_commands_work_as_in_scripts_or_are_refused_by_name() {
    let lists = listed("client", &OF_CLIENTS);
    on_each(|program| {
        let server = Start::new(program).run();
        let (table, link) = (server.client().say("COMMAND"), server.link());
        let (mut seen, mut refused) = (0, 0);
        let mut try_one = |name: String, arity: usize, is_for_scripts: bool| {
            let words = name.split('|').map(str::to_owned);
            let missing = arity.saturating_sub(name.split('|').count());
            let command: Vec<_> = words.chain((0..missing).map(|_| "1".to_owned())).collect();
            let told = run_ops(&link, &format!("command {}; error; set k v; get k", command.join(" ")));
            assert_eq!(told[2..], ["0", " v0"], "{name}");
            let text = &told[1];
            match (is_for_scripts, lists.get(&name)) {
                (true, None) => panic!("judge {name} in commands.toml: it acts on a client"),
                (true, Some(OfClient::Selects)) => assert_eq!(told[0], "0 OK0", "{name}: {text}"),
                (_, Some(OfClient::Refused)) => {
                    let names_it = text.contains(&format!("cannot run \"{name}\": it acts on a client"));
                    assert!(told[0] == "-9" && names_it, "{name}: {told:?}");
                    refused += 1;
                }
                (true, Some(OfClient::Runs)) => {
                    assert!(
                        !told[0].starts_with('-') || text.contains("Invalid command"),
                        "{name}: {told:?}"
                    );
                }
                (false, _) => {
                    assert!(told[0] == "-8" && text.contains("not allowed"), "{name}: {told:?}");
                }
            }
            seen += 1;
        };
        table.elements().iter().for_each(|command| of_clients(command, &mut try_one));
        assert!(seen > 30 && refused >= 3, "{seen} were tried, and {refused} refused");
        drop(server.shut_down());
    });
}
