//! Databases: SELECT in a function holds until the function ends, as in a script.

use std::fs;

use farjump_fixtures::process::PATIENCE;

use crate::resp::Value;
use crate::server::{Start, library, library_file, on_each, ops, run_ops, until};

#[test]
fn select_in_a_function_affects_only_the_rest_of_that_run() {
    on_each(|program| {
        let options = "--appendonly yes --appendfsync always";
        let server = Start::new(program).options(options).args("load local").run();
        let mut client = server.client();
        let code = fs::read(library_file("ops")).unwrap();
        client.run(&[b"FJ.LOAD", b"ops", &code]).worked();
        let replica = Start::new(program).run();
        replica.follow(server.open_port());
        let link = server.link();
        let both = "set k zero; command select 3; set k three; get k; command get k; hset h f v; scan h 9; name; \
                    command select 0; get k; command select 3; type h";
        let expected =
            ["0", "0 OK0", "0", " three0", "0 three", "0", "0", " h0", "0 OK0", " zero0", "0 OK0", "3"];
        let told = run_ops(&link, both);
        assert_eq!(told[..4], expected[..4], "{told:?}");
        assert_eq!(told[5..8], expected[5..8], "{told:?}");
        assert_eq!(told[8..], expected[8..], "{told:?}");
        // The next call of the same link, even in the same turn, and a call behind a panic.
        assert_eq!(run_ops(&link, "get k; type h"), [" zero0", "0"]);
        let (select, read) = (ops("command select 3; panic"), ops("get k"));
        let calls = [&select, &read, &select, &read].map(|call| link.inject(&library("ops"), call).unwrap());
        for (number, call) in calls.into_iter().enumerate() {
            match (number % 2, call.wait(PATIENCE)) {
                (0, reply) => assert!(reply.is_err(), "it panics"),
                (_, reply) => assert_eq!(*reply.unwrap(), *b" zero0\n"),
            }
        }
        // A part that runs later begins where the call did.
        let later = ops("command select 3; set before 1; again; set later 1");
        link.inject(&library("ops"), &later).unwrap().wait(PATIENCE).unwrap();
        until("the later part to have run", || run_ops(&link, "get later") == [" 10"]);
        assert_eq!(run_ops(&link, "type before; command select 3; type before; type later")[2..], ["1", "0"]);
        // A client stays in its own database, even in a transaction and in a script.
        client.say("select 5").worked();
        let operations = ops("command select 3; get k");
        let call: [&[u8]; 4] = [b"FJ.CALL", b"ops", b"0", &operations];
        let three = Value::Bulk(b"0 OK0\n three0\n".into());
        assert_eq!(client.run(&call), three);
        client.say("SET k five").worked();
        client.say("MULTI").worked();
        client.run(&call).worked();
        client.say("GET k").worked();
        let five = Value::Bulk(b"five".into());
        assert_eq!(client.say("EXEC").elements(), [three.clone(), five.clone()]);
        let script =
            b"local a = redis.call('FJ.CALL', 'ops', 0, ARGV[1]); return {a, redis.call('GET', 'k')}";
        assert_eq!(client.run(&[b"EVAL", script, b"0", &operations]).elements(), [three, five]);
        // A failed SELECT changes nothing.
        let failed =
            run_ops(&link, "command select 99; error; get k; command select; get k; command select x; get k");
        assert!(failed[0] == "-8" && failed[1].contains("out of range"), "{failed:?}");
        let zeros: Vec<_> = failed[2..].iter().filter(|line| line.starts_with(' ')).collect();
        assert_eq!(zeros, [" zero0"; 3], "{failed:?}");
        client.say("select 0").worked();
        client.say("SET after 1").worked();
        until("the replica to have it all", || replica.client().say("GET after") == Value::Bulk(b"1".into()));
        let server = server.kill_and_start_again();
        for server in [&server, &replica] {
            let mut client = server.client();
            assert_eq!(client.say("GET k"), Value::Bulk(b"zero".into()));
            client.say("select 3").worked();
            assert_eq!(client.say("GET k"), Value::Bulk(b"three".into()));
            assert_eq!(client.say("HGET h f"), Value::Bulk(b"v".into()));
        }
        drop(replica.shut_down());
        drop(server.shut_down());
    });
}

#[test]
fn a_command_that_the_configuration_has_renamed_is_the_same() {
    on_each(|program| {
        let options = "--rename-command SELECT choose --rename-command READONLY rests";
        let server = Start::new(program).options(options).run();
        let link = server.link();
        for _ in 0..2 {
            let told = run_ops(
                &link,
                "command choose 3; set k three; command select 0; get k; command rests; error",
            );
            assert_eq!(told[..5], ["0 OK0", "0", "-8", " three0", "-9"]);
            assert!(told[5].contains("cannot run \"rests\": it acts on a client"), "{told:?}");
            assert_eq!(run_ops(&link, "get k"), ["1"]);
        }
        drop(server.shut_down());
    });
}

#[test]
fn a_user_that_may_not_select_stays_in_its_database() {
    on_each(|program| {
        let server = Start::new(program).args("user app").run();
        let mut client = server.client();
        client.say("ACL SETUSER app on ~* +@all -select").worked();
        let told = run_ops(&server.link(), "set k v; command select 3; error; get k");
        assert_eq!((&*told[0], &*told[1], &*told[3]), ("0", "-2", " v0"), "{told:?}");
        assert!(told[2].contains("may not run"), "{told:?}");
        client.say("SELECT 3").worked();
        assert_eq!(client.say("DBSIZE"), Value::Integer(0));
        drop(server.shut_down());
    });
}
