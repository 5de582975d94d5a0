//! Keys with code, which lie among the data, and commands about data.

use std::fs;

use tempfile::TempDir;

use crate::resp::{Client, Value};
use crate::server::{Server, Start, library_file, on_each, ops, run_ops, until};

fn folder() -> TempDir {
    let folder = farjump_fixtures::folder();
    fs::write(folder.path().join("seal"), b"a key of more than sixteen bytes").unwrap();
    folder
}

#[track_caller]
fn load(client: &mut Client, name: &str) {
    let code = fs::read(library_file("ops")).unwrap();
    client.run(&[b"FJ.LOAD", name.as_bytes(), &code]).worked();
}

fn call(client: &mut Client, name: &str) -> Value {
    client.run(&[b"FJ.CALL_RO", name.as_bytes(), b"0", &ops("args")])
}

fn ran() -> Value {
    Value::Bulk(b"1\n".into())
}

/// The fields of the key with code, in the database of the client.
fn fields(client: &mut Client) -> Vec<String> {
    let mut names: Vec<_> = client.say("HKEYS farjump:code").elements().iter().map(Value::text).collect();
    names.sort();
    names
}

/// Waits until the key of each database has the code that was loaded there.
#[track_caller]
fn until_restored(server: &Server) {
    for (database, expected) in [(0, ["c:f", "s:f", "s:gone"]), (1, ["c:g", "s:g", "s:none"])] {
        let expected: Vec<_> = expected.iter().filter(|name| **name != "s:none").collect();
        until("the key to have the code again", || {
            let mut client = server.client();
            client.say(&format!("SELECT {database}")).worked();
            fields(&mut client).iter().eq(expected.iter().copied())
        });
    }
}

#[track_caller]
fn check(client: &mut Client, what: &str) {
    for (database, name, other) in [(0, "f", "g"), (1, "g", "f")] {
        client.say(&format!("SELECT {database}")).worked();
        assert_eq!(call(client, name), ran(), "{what}: {name} in {database}");
        assert_eq!(client.say("FJ.LIST").elements(), [Value::Bulk(name.into())], "{what}");
        for gone in ["gone", other] {
            let reply = call(client, gone);
            let error = reply.error();
            let is_there = error.starts_with("BADCODE ") && gone == other;
            assert!(error.starts_with("NOCODE ") || is_there, "{what}: {gone} in {database}: {error}");
        }
    }
    client.say("SELECT 0").worked();
}

#[test]
fn loaded_code_survives_losing_its_key_and_deleted_code_stays_deleted() {
    const COMMANDS: [&str; 13] = [
        "FLUSHALL",
        "FLUSHALL ASYNC",
        "FLUSHDB",
        "SWAPDB 0 1",
        "SWAPDB 1 2",
        "DEL farjump:code",
        "UNLINK farjump:code",
        "RENAME farjump:code other",
        "MOVE farjump:code 5",
        "PEXPIREAT farjump:code 1",
        "HDEL farjump:code c:f s:f s:gone",
        "HDEL farjump:code c:f",
        "DEBUG RELOAD",
    ];
    on_each(|program| {
        let start = || {
            Start::new(program).options("--appendonly yes").args("load yes code-key seal").run_in(folder())
        };
        let (mut server, replica) = (start(), start());
        replica.follow(server.open_port());
        let mut client = server.client();
        load(&mut client, "gone");
        let kept = ["c", "s"].map(|field| match client.say(&format!("HGET farjump:code {field}:gone")) {
            Value::Bulk(bytes) => bytes,
            other => panic!("{other:?}"),
        });
        assert_eq!(client.say("FJ.DELETE gone"), Value::Integer(1));
        load(&mut client, "f");
        client.say("SELECT 1").worked();
        load(&mut client, "g");
        check(&mut client, "before");
        // A server that has just started has called none of the code.
        for ways in [&COMMANDS[..], &COMMANDS[..1], &COMMANDS[3..4]] {
            for way in ways {
                let mut client = server.client();
                // The call comes before the server has turned.
                client.say("MULTI").worked();
                client.say(way).worked();
                call(&mut client, "f");
                client.say("EXEC").elements().iter().for_each(|reply| drop(reply.clone().worked()));
                check(&mut client, way);
                until_restored(&server);
                until_restored(&replica);
                check(&mut client, way);
                check(&mut replica.client(), way);
                // Code that other clients may have kept.
                client.run(&[b"HSET", b"farjump:code", b"c:gone", &kept[0], b"s:gone", &kept[1]]).worked();
                assert!(call(&mut client, "gone").error().starts_with("BADCODE "), "{way}");
                assert_eq!(client.say("FJ.DELETE gone"), Value::Integer(1));
                client.say("DEL other").worked();
            }
            server = server.kill_and_start_again();
        }
        drop(replica.shut_down());
        drop(server.shut_down());
    });
}

#[test]
fn loaded_code_survives_flushes_by_functions_and_while_writes_are_refused() {
    on_each(|program| {
        let server = Start::new(program).args("load yes code-key seal").run_in(folder());
        let mut client = server.client();
        load(&mut client, "f");
        client.say("SELECT 1").worked();
        load(&mut client, "g");
        client.say("SELECT 0").worked();
        load(&mut client, "gone");
        assert_eq!(client.say("FJ.DELETE gone"), Value::Integer(1));
        let flush = client.run(&[b"FJ.CALL", b"f", b"0", &ops("set k v; command flushall; get k")]);
        assert_eq!(flush, Value::Bulk(b"0\n0 OK0\n1\n".into()));
        check(&mut client, "by FJ.CALL");
        until_restored(&server);
        assert_eq!(run_ops(&server.link(), "command flushall"), ["0 OK0"]);
        check(&mut client, "by a link");
        until_restored(&server);
        // While writes are paused, and while there is no memory, calls run from memory, and the key comes later.
        for (bar, end) in [
            ("CONFIG SET min-replicas-to-write 1", "CONFIG SET min-replicas-to-write 0"),
            ("CONFIG SET maxmemory 1", "CONFIG SET maxmemory 0"),
        ] {
            client.say("MULTI").worked();
            client.say("FLUSHALL").worked();
            client.say(bar).worked();
            client.say("EXEC").elements().iter().for_each(|reply| drop(reply.clone().worked()));
            check(&mut client, bar);
            assert_eq!(client.say("EXISTS farjump:code"), Value::Integer(0));
            client.say(end).worked();
            check(&mut client, end);
            until("the key to be there", || {
                let mut client = server.client();
                call(&mut client, "f");
                client.say("SELECT 1").worked();
                call(&mut client, "g");
                client.say("EXISTS farjump:code") == Value::Integer(1)
            });
            until_restored(&server);
        }
        drop(server.shut_down());
    });
}

#[test]
fn a_replica_has_the_code_of_its_primary_and_not_its_own() {
    on_each(|program| {
        let start = || Start::new(program).args("load yes code-key seal").run_in(folder());
        let (server, other) = (start(), start());
        load(&mut server.client(), "f");
        let mut own = other.client();
        load(&mut own, "own");
        assert_eq!(call(&mut own, "own"), ran());
        other.follow(server.open_port());
        assert!(call(&mut own, "own").error().starts_with("NOCODE "));
        assert_eq!(call(&mut own, "f"), ran());
        // Nor does it as the next primary.
        own.say("REPLICAOF NO ONE").worked();
        own.say("FLUSHALL").worked();
        until("the key to be there", || fields(&mut other.client()) == ["c:f", "s:f"]);
        assert!(call(&mut own, "own").error().starts_with("NOCODE "));
        assert_eq!(call(&mut own, "f"), ran());
        drop(other.shut_down());
        drop(server.shut_down());
    });
}
