//! Writing: the data that replicas and the append-only file get, and the cases in which writes are refused.

use crate::server::{Start, on_each, run_ops, until};

#[test]
fn writes_by_functions_survive_a_kill_and_reach_a_replica() {
    on_each(|program| {
        let server = Start::new(program).options("--appendonly yes --appendfsync always").run();
        let mut client = server.client();
        let replica = Start::new(program).run();
        let port = server.open_port();
        let mut copy = replica.client();
        replica.follow(port);
        let link = server.link();
        let all = "set s v; hset h f v; zadd z m 5; set gone x; del gone; del gone; command rpush l a b; expire s 1000000";
        assert_eq!(run_ops(&link, all), ["0", "0", "0", "0", "0", "1", "2 20", "0"]);
        assert!(client.info("farjump", "farjump_writes").unwrap().parse::<u32>().unwrap() >= 6);
        let check = "get s; hget h f; zscore z m; type gone; len l";
        let expected = [" v0", " v0", "50", "0", "20"];
        // WAIT would wait for writes of this client.
        until("the transaction to arrive", || {
            matches!(replica.client().say("EXISTS l"), crate::resp::Value::Integer(1))
        });
        assert_eq!(run_ops(&replica.link(), check), expected);
        assert!(matches!(copy.say("PTTL s"), crate::resp::Value::Integer(1..)));
        // A read-only replica takes no writes of functions.
        assert_eq!(run_ops(&replica.link(), "set s w; get s"), ["-5", " v0"]);
        drop(link);
        let server = server.kill_and_start_again();
        assert_eq!(run_ops(&server.link(), check), expected);
        drop(replica.shut_down());
        drop(server.shut_down());
    });
}

#[test]
fn a_pause_refuses_writes_and_lets_reads() {
    on_each(|program| {
        let server = Start::new(program).options("--appendonly yes").run();
        let mut client = server.client();
        let link = server.link();
        assert_eq!(run_ops(&link, "set k v"), ["0"]);
        // A pause of all commands would also delay the command that ends it.
        client.say("CLIENT PAUSE 1000000 WRITE").worked();
        let during = run_ops(&link, "set k w; command incr n; command get k; get k; del k; error");
        assert_eq!(during[..5], ["-3", "-3", "0 v0", " v0", "-3"]);
        assert!(during[5].contains("CLIENT PAUSE"), "{during:?}");
        client.say("CLIENT UNPAUSE").worked();
        assert_eq!(run_ops(&link, "set k w; get k"), ["0", " w0"]);
        assert!(server.runs());
        drop(server.shut_down());
    });
}

#[test]
fn a_full_server_refuses_what_needs_memory_and_lets_keys_be_deleted() {
    on_each(|program| {
        let server = Start::new(program).run();
        let mut client = server.client();
        let link = server.link();
        assert_eq!(run_ops(&link, "set k v; set other v"), ["0", "0"]);
        client.say("CONFIG SET maxmemory 1").worked();
        let full = run_ops(&link, "set k w; error; get k; command get k; del other");
        assert_eq!((&*full[0], &full[2..]), ("-4", &[" v0", "0 v0", "0"].map(str::to_owned)[..]));
        assert!(full[1].contains("maxmemory"), "{full:?}");
        client.say("CONFIG SET maxmemory 0").worked();
        assert_eq!(run_ops(&link, "set k w; get k"), ["0", " w0"]);
        drop(server.shut_down());
    });
}

#[test]
fn time_stands_still_for_keys_that_expire_while_a_function_runs() {
    on_each(|program| {
        let server = Start::new(program).options("--appendonly yes").run();
        let mut client = server.client();
        let link = server.link();
        client.say("SET k value PX 60").worked();
        // Some 200 ms pass in the call, in which it may begin before the key expires, or after.
        let seen = run_ops(&link, "get k; spin 200; get k; len k");
        match &*seen[0] {
            " value0" => assert_eq!(seen[2..], [" value0", "50"]),
            _ => assert_eq!(seen[2..], ["1", "1"]),
        }
        until("the key to expire", || run_ops(&link, "get k") == ["1"]);
        assert!(server.runs());
        drop(server.shut_down());
    });
}

#[test]
fn functions_run_no_commands_that_end_the_server_or_wait_for_themselves() {
    on_each(|program| {
        let server = Start::new(program).run();
        let link = server.link();
        for command in [
            "shutdown",
            "module unload farjump",
            "debug segfault",
            "eval return 0",
            "subscribe c",
            "nosuch x",
        ] {
            assert_eq!(run_ops(&link, &format!("command {command}")), ["-8"], "{command}");
        }
        for command in ["FJ.CALL x 0", "fj._run", "Fj.List"] {
            assert_eq!(run_ops(&link, &format!("command {command}")), ["-9"], "{command}");
        }
        // A command that blocks does not wait: it finds nothing, or is refused.
        let waited = run_ops(&link, "command blpop none 0");
        assert!(waited == ["4 0"] || waited == ["-8"], "{waited:?}");
        assert_eq!(
            run_ops(&link, "command lrange none 0 -1; command rpush l x; command lrange l 0 -1; element 0")
                [3],
            " x0"
        );
        assert!(server.runs());
        drop(server.shut_down());
    });
}
