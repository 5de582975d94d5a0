//! The origins of a command: a client, a script, another module, a primary, or the append-only file. Some servers crash
//! when a module queries a client that does not exist.

use std::fs;

use crate::modules;
use crate::resp::{Client, Value};
use crate::server::{Server, Start, library_file, on_each, ops, until};

/// The reply of a command that may run.
#[derive(Clone, Copy)]
enum ExpectedReply {
    /// No error.
    Works,
    /// An error with this text.
    Error(&'static str),
}

/// A command of the module's, and its replies.
struct Row {
    words: Vec<Vec<u8>>,
    /// The reply to a client.
    client: ExpectedReply,
    /// The reply to a script, and to a module that runs it as its client's user.
    user: ExpectedReply,
    /// The reply to a module that runs it for itself, a primary, and the append-only file.
    without_user: ExpectedReply,
}

const NO_CLIENT: ExpectedReply = ExpectedReply::Error("runs the command, and no client");

/// A row for each of the module's commands.
fn rows() -> Vec<Row> {
    let code = fs::read(library_file("ops")).unwrap();
    let (args, internal) = (ops("args"), ExpectedReply::Error("for the module itself"));
    let row = |words: &[&[u8]], client, user, without_user| Row {
        words: words.iter().map(|word| word.to_vec()).collect(),
        client,
        user,
        without_user,
    };
    let works = ExpectedReply::Works;
    let no_user = ExpectedReply::Error("this call has no user");
    vec![
        row(&[b"FJ.LOAD", b"ops", &code], works, NO_CLIENT, NO_CLIENT),
        row(&[b"FJ.CALL", b"ops", b"0", &args], works, works, no_user),
        row(&[b"FJ.CALL_RO", b"ops", b"0", &args], works, works, no_user),
        row(&[b"FJ.LIST"], works, works, works),
        row(&[b"FJ.STATS"], works, works, works),
        row(&[b"FJ.DELETE", b"none"], works, works, works),
        row(&[b"FJ._RUN", b"x"], internal, internal, internal),
    ]
}

/// The words before a command that make it run in some way, and its reply in that case.
type Wrapping<'w> = (&'w [&'w [u8]], fn(&Row) -> ExpectedReply);

const SCRIPT: &[u8] = b"return redis.call(unpack(ARGV))";

/// Runs a command with these words before it.
fn run_behind(client: &mut Client, before: &[&[u8]], words: &[&[u8]]) -> Value {
    client.run(&[before, words].concat())
}

/// Runs a command in a transaction.
fn run_in_transaction(client: &mut Client, before: &[&[u8]], words: &[&[u8]]) -> Value {
    client.say("MULTI").worked();
    run_behind(client, before, words).worked();
    client.say("EXEC").elements()[0].clone()
}

#[track_caller]
fn check(reply: &Value, expected: ExpectedReply, what: &str) {
    match expected {
        ExpectedReply::Works => assert!(!matches!(reply, Value::Error(_)), "{what}: {reply:?}"),
        ExpectedReply::Error(text) => {
            let error = reply.error();
            assert!(error.contains(text), "{what}: {error}");
            // The module was loaded with that argument.
            assert!(!error.contains("load it with `load local`"), "{what}: {error}");
        }
    }
}

fn start(program: &std::path::Path, options: &str) -> Server {
    let folder = farjump_fixtures::folder();
    let caller = modules::build("caller", folder.path());
    let options = format!("--loadmodule {} {options}", caller.display());
    Start::new(program).options(&options).args("load local").run_in(folder)
}

#[test]
fn each_command_works_or_is_refused_as_listed_for_every_caller() {
    let rows = rows();
    on_each(|program| {
        let server = start(program, "--appendonly yes");
        let mut client = server.client();
        let listed = client.say("COMMAND LIST FILTERBY MODULE farjump");
        let mut listed: Vec<_> = listed.elements().iter().map(|name| name.text().to_uppercase()).collect();
        let mut known: Vec<_> =
            rows.iter().map(|row| String::from_utf8_lossy(&row.words[0]).into_owned()).collect();
        listed.sort();
        known.sort();
        assert_eq!(listed, known, "each command has a row");
        let function =
            b"#!lua name=l\nredis.register_function('f', function(_, a) return redis.call(unpack(a)) end)";
        client.run(&[b"FUNCTION", b"LOAD", function]).worked();
        let eval: &[&[u8]] = &[b"EVAL", SCRIPT, b"0"];
        let fcall: &[&[u8]] = &[b"FCALL", b"f", b"0"];
        let plain: &[&[u8]] = &[b"CALLER.PLAIN"];
        let as_user: &[&[u8]] = &[b"CALLER.AS_USER"];
        let plain_in_script: &[&[u8]] = &[b"EVAL", SCRIPT, b"0", b"CALLER.PLAIN"];
        let script_in_plain: &[&[u8]] = &[b"CALLER.PLAIN", b"EVAL", SCRIPT, b"0"];
        let ways: [Wrapping<'_>; 7] = [
            (&[], |row| row.client),
            (eval, |row| row.user),
            (fcall, |row| row.user),
            (as_user, |row| row.user),
            (plain, |row| row.without_user),
            (plain_in_script, |row| row.without_user),
            (script_in_plain, |row| row.without_user),
        ];
        for row in &rows {
            let words: Vec<&[u8]> = row.words.iter().map(Vec::as_slice).collect();
            for (before, expected) in &ways {
                let shown = |way: &str| {
                    let before: Vec<_> = before.iter().map(|word| String::from_utf8_lossy(word)).collect();
                    format!("{way} {before:?} {}", String::from_utf8_lossy(words[0]))
                };
                let reply = run_behind(&mut client, before, &words);
                assert!(server.runs(), "{}: {}", shown("by itself"), server.log());
                check(&reply, expected(row), &shown("by itself"));
                let reply = run_in_transaction(&mut client, before, &words);
                check(&reply, expected(row), &shown("in a transaction"));
            }
        }
        // From a primary, and from the file: no client gets such a reply, so the server logs it.
        let replica = start(program, "");
        client.run(&[b"FJ.LOAD", b"ops", &rows[0].words[2]]).worked();
        replica.client().run(&[b"FJ.LOAD", b"ops", &rows[0].words[2]]).worked();
        replica.follow(server.open_port());
        for row in &rows {
            let words: Vec<&[u8]> = row.words.iter().map(Vec::as_slice).collect();
            run_behind(&mut client, &[b"CALLER.REPLICATE"], &words).worked();
        }
        client.say("SET after 1").worked();
        let after = Value::Bulk(b"1".into());
        until("the replica to have what came after", || replica.client().say("GET after") == after);
        client.say("DEBUG LOADAOF").worked();
        assert_eq!(client.say("GET after"), after);
        for (one, whence) in [(&replica, "primary"), (&server, "file")] {
            for row in &rows {
                if let ExpectedReply::Error(text) = row.without_user {
                    assert!(one.log().contains(text), "out of the {whence}: {text}: {}", one.log());
                }
            }
            one.client().run(&[b"FJ.CALL_RO", b"ops", b"0", &ops("args")]).worked();
        }
        drop(replica.shut_down());
        drop(server.shut_down());
    });
}

#[test]
fn loopback_clients_may_load_and_clients_of_unknown_location_may_not() {
    on_each(|program| {
        let server = Start::new(program).args("load local").run();
        let code = fs::read(library_file("ops")).unwrap();
        let port = u16::try_from(server.open_port()).unwrap();
        let mut client = Client::connect_to(port);
        client.run(&[b"FJ.LOAD", b"ops", &code]).worked();
        drop(server.shut_down());
        // If a server does not report the locations of its clients, no client may load code.
        let server = Start::new(program).options("--rename-command CLIENT hidden").args("load local").run();
        let refused = server.client().run(&[b"FJ.LOAD", b"ops", &code]);
        assert!(refused.error().contains("does not say where this client is"), "{refused:?}");
        assert!(refused.error().contains("`load yes`"), "{refused:?}");
        drop(server.shut_down());
    });
}
