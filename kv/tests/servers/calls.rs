//! Calls by commands.

use std::fs;

use crate::resp::{Client, Value};
use crate::server::{Start, library_file, on_each, ops, run_ops, until};

/// Loads `ops` and `chase`.
fn load(client: &mut Client) {
    for name in ["ops", "chase"] {
        let code = fs::read(library_file(name)).unwrap();
        client.run(&[b"FJ.LOAD", name.as_bytes(), &code]).worked();
    }
}

/// Calls `ops` by a command, with these keys and operations.
fn call(client: &mut Client, command: &str, keys: &str, text: &str) -> Value {
    let operations = ops(text);
    let keys: Vec<&[u8]> = keys.split(' ').filter(|key| !key.is_empty()).map(str::as_bytes).collect();
    let count = keys.len().to_string();
    let mut words = vec![command.as_bytes(), b"ops", count.as_bytes()];
    words.extend(keys);
    words.push(&operations);
    client.run(&words)
}

/// Returns the lines of a call's reply.
#[track_caller]
fn lines(value: Value) -> Vec<String> {
    value.worked().text().lines().map(str::to_owned).collect()
}

#[test]
fn clients_that_know_nothing_of_farjump_call_code() {
    on_each(|program| {
        let server = Start::new(program).args("load local").run();
        let mut client = server.client();
        load(&mut client);
        client.say("MSET a b b c c end").worked();
        let reply = client.say("FJ.CALL chase 1 a").worked();
        assert_eq!(reply, Value::Bulk([&3_u64.to_le_bytes()[..], b"end"].concat()));
        assert_eq!(client.say("FJ.CALL_RO chase 1 c").text().as_bytes()[8..], *b"end");
        let told = call(&mut client, "FJ.CALL", "k1 k2", "keys; key 0; key 1; key 2; args");
        assert_eq!(lines(told), ["2", " k10", " k20", "1", "1"]);
        // In a call by a link, no keys or arguments come.
        assert_eq!(run_ops(&server.link(), "keys; key 0; args"), ["0", "1", "0"]);
        assert_eq!(client.say("FJ.CALL ops 0"), Value::Nil, "no reply is nil");
        let panicked = call(&mut client, "FJ.CALL", "", "panic");
        assert!(panicked.error().contains("asked to"), "{panicked:?}");
        let failed = call(&mut client, "FJ.CALL", "", "hget a f; fail");
        assert!(failed.error().contains("key \"a\" is no hash"), "{failed:?}");
        let inside = call(&mut client, "FJ.CALL", "", "command FJ.CALL chase 1 a; error");
        assert!(lines(inside)[1].contains("inside a call"));
        let stats = client.say("FJ.STATS");
        let of_ops =
            stats.elements().iter().find(|one| one.elements()[0] == Value::Bulk(b"ops".into())).unwrap();
        assert_eq!(of_ops.elements()[1..3], [Value::Integer(5), Value::Integer(2)]);
        // The server rounds as before, whatever rounding mode a function leaves behind.
        let tenths = |client: &mut Client| {
            client.say("DEL z").worked();
            (0..7).for_each(|_| drop(client.say("ZINCRBY z 0.1 m").worked()));
            client.say("ZSCORE z m")
        };
        let before = tenths(&mut client);
        for left in ["round-up; panic", "round-up"] {
            call(&mut client, "FJ.CALL", "", left);
            assert_eq!(tenths(&mut client), before, "{left}");
        }
        assert_eq!(run_ops(&server.link(), "round-up"), ["0"]);
        assert_eq!(tenths(&mut client), before, "by a link");
        drop(server.shut_down());
    });
}

#[test]
fn calls_are_part_of_transactions_and_of_scripts() {
    on_each(|program| {
        let server =
            Start::new(program).options("--appendonly yes --appendfsync always").args("load yes").run();
        let mut client = server.client();
        load(&mut client);
        client.say("MULTI").worked();
        client.say("SET before x").worked();
        call(&mut client, "FJ.CALL", "k", "get before; set k v; hset h f v").worked();
        client.say("GET k").worked();
        let replies = client.say("EXEC");
        assert_eq!(lines(replies.elements()[1].clone()), [" x0", "0", "0"]);
        assert_eq!(replies.elements()[2], Value::Bulk(b"v".into()));
        let operations = ops("get k; set k w");
        let script = b"return redis.call('FJ.CALL', 'ops', 1, KEYS[1], ARGV[1])";
        assert_eq!(lines(client.run(&[b"EVAL", script, b"1", b"k", &operations])), [" v0", "0"]);
        let refused = client.run(&[b"EVAL_RO", script, b"1", b"k", &operations]);
        assert!(refused.error().to_lowercase().contains("write"), "{refused:?}");
        let reading = b"return redis.call('FJ.CALL_RO', 'ops', 1, KEYS[1], ARGV[1])";
        assert_eq!(lines(client.run(&[b"EVAL_RO", reading, b"1", b"k", &operations])), [" w0", "-5"]);
        let mut server = server;
        for _ in 0..2 {
            server = server.kill_and_start_again();
            let mut client = server.client();
            assert_eq!(client.say("GET k"), Value::Bulk(b"w".into()));
            assert_eq!(client.say("HGET h f"), Value::Bulk(b"v".into()));
        }
        drop(server.shut_down());
    });
}

#[test]
fn calls_act_as_the_user_of_the_client() {
    on_each(|program| {
        let server = Start::new(program).args("load yes").run();
        let mut client = server.client();
        load(&mut client);
        client.say("MSET app:k v other:k v").worked();
        client.say("ACL SETUSER app on >secret ~app:* +@all").worked();
        client.say("ACL SETUSER reader on >secret ~app:* +get +fj.call").worked();
        client.say("AUTH app secret").worked();
        let seen =
            call(&mut client, "FJ.CALL", "app:k", "get app:k; get other:k; set app:k w; set other:k w");
        assert_eq!(lines(seen), [" v0", "-2", "0", "-2"]);
        assert!(call(&mut client, "FJ.CALL", "other:k", "get other:k").error().starts_with("NOPERM"));
        client.say("AUTH reader secret").worked();
        assert_eq!(
            lines(call(&mut client, "FJ.CALL", "app:k", "get app:k; set app:k x; type app:k")),
            [" w0", "-2", "-2"]
        );
        assert!(client.say("FJ.LOAD x y").error().starts_with("NOPERM"));
        drop(server.shut_down());
    });
}

#[test]
fn replicas_run_calls_that_read_and_get_what_others_wrote() {
    on_each(|program| {
        let folder = farjump_fixtures::folder();
        fs::write(folder.path().join("seal"), b"a key of more than sixteen bytes").unwrap();
        let seal = folder.path().join("seal");
        let start = || Start::new(program).args("load yes code-key").arg(&seal);
        let (server, replica) = (start().run(), start().run());
        let mut client = server.client();
        let port = server.open_port();
        let mut copy = replica.client();
        copy.say(&format!("REPLICAOF 127.0.0.1 {port}")).worked();
        load(&mut client);
        call(&mut client, "FJ.CALL", "k", "set k v").worked();
        until("the replica to have the key", || replica.client().say("GET k") == Value::Bulk(b"v".into()));
        // The code came with the data, and the replica knows its seal.
        assert_eq!(lines(call(&mut copy, "FJ.CALL_RO", "k", "get k; set k w")), [" v0", "-5"]);
        assert!(call(&mut copy, "FJ.CALL", "k", "get k").error().starts_with("READONLY"));
        drop(replica.shut_down());
        drop(server.shut_down());
    });
}

#[test]
fn only_code_with_a_listed_id_runs() {
    on_each(|program| {
        // Built for the baseline of this machine alone.
        let library = crate::server::library("chase");
        let id = library.images()[0].id();
        let server = Start::new(program).args(&format!("load yes allow-code {id}")).run();
        let mut client = server.client();
        load(&mut client);
        client.say("SET a end").worked();
        client.say("FJ.CALL chase 1 a").worked();
        let refused = call(&mut client, "FJ.CALL", "", "get a");
        assert!(refused.error().contains("refused"), "{refused:?}");
        assert!(crate::server::try_ops(&server.link(), "get a").is_err());
        drop(server.shut_down());
    });
}
