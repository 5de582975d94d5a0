//! The server's own behaviour, while functions run.

use std::net::TcpListener;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use crate::resp::Value;
use crate::server::{Start, on_each, run_ops, try_ops, until};

#[test]
fn functions_go_on_while_the_server_saves_rewrites_reloads_and_flushes() {
    on_each(|program| {
        let server = Start::new(program).options("--appendonly yes").run();
        let mut client = server.client();
        let stop = AtomicBool::new(false);
        let (link, go_on) = (server.link(), &stop);
        let calls = thread::scope(|scope| {
            let source = scope.spawn(move || {
                let mut calls = 0;
                while !go_on.load(Ordering::Relaxed) {
                    let written =
                        run_ops(&link, "command incr n; set k v; zadd z m 1; zrange z 0 9 0; znext");
                    assert_eq!(written[1..], ["0", "0", "0", " m 10"]);
                    calls += 1;
                }
                calls
            });
            for _ in 0..3 {
                client.say("BGSAVE").worked();
                until("the save to end", || {
                    server.client().info("persistence", "rdb_bgsave_in_progress").as_deref() == Some("0")
                });
                client.say("BGREWRITEAOF").worked();
                until("the rewriting to end", || {
                    let mut client = server.client();
                    ["aof_rewrite_in_progress", "aof_rewrite_scheduled"]
                        .iter()
                        .all(|field| client.info("persistence", field).as_deref() == Some("0"))
                });
                client.say("DEBUG RELOAD").worked();
                client.say("FLUSHALL").worked();
                client.say("INFO everything").worked();
            }
            stop.store(true, Ordering::Relaxed);
            source.join().unwrap()
        });
        assert!(calls > 0);
        assert_eq!(client.info("persistence", "rdb_last_bgsave_status").as_deref(), Some("ok"));
        let numbers = client.say("GET n");
        let server = server.kill_and_start_again();
        // Exactly the written data are there: the append-only file holds whole calls.
        assert_eq!(server.client().say("GET n"), numbers);
        drop(server.shut_down());
    });
}

#[test]
fn a_crashing_function_ends_the_server_with_whole_calls_and_a_report() {
    on_each(|program| {
        let server = Start::new(program).options("--appendonly yes --appendfsync always").run();
        let link = server.link();
        assert_eq!(run_ops(&link, "set a 1; set b 1"), ["0", "0"]);
        server.write_file();
        assert!(try_ops(&link, "set a 2; crash; set b 2").is_err());
        let (server, error) = server.start_after_crash();
        assert!(error.contains("ops"), "standard error names the function: {error}");
        assert_eq!(run_ops(&server.link(), "get a; get b"), [" 10", " 10"]);
        assert!(server.log().contains("farjump_function_running:1"), "{}", server.log());
        drop(server.shut_down());
    });
}

#[test]
fn slow_functions_are_reported_while_they_run_and_at_their_end() {
    on_each(|program| {
        let server = Start::new(program).args("limit 10ms").run();
        let mut client = server.client();
        assert_eq!(run_ops(&server.link(), "spin 1000"), ["0"]);
        // The reply left before the end was noted.
        until("the log to say so", || server.log().contains("functions (ops of "));
        assert!(server.log().contains("have been running for"), "{}", server.log());
        assert_ne!(client.info("farjump", "farjump_slow_runs").as_deref(), Some("0"));
        drop(server.shut_down());
    });
}

#[test]
fn keys_of_other_nodes_of_a_cluster_are_refused() {
    on_each(|program| {
        // Nodes listen for each other; the system chooses a port that is free now.
        let free =
            TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).unwrap().port();
        let options = format!("--cluster-enabled yes --bind 127.0.0.1 --cluster-port {free}");
        let server = Start::new(program).options(&options).args("load yes").run();
        let mut client = server.client();
        client.say("CLUSTER ADDSLOTSRANGE 0 8191").worked();
        client.say("CONFIG SET cluster-require-full-coverage no").worked();
        // Slots 3300 and 12182.
        assert_eq!(client.say("CLUSTER KEYSLOT b"), Value::Integer(3300));
        assert_eq!(client.say("CLUSTER KEYSLOT foo"), Value::Integer(12182));
        until("the cluster to be ready", || {
            server.client().say("CLUSTER INFO").text().contains("cluster_state:ok")
        });
        let link = server.link();
        let other = run_ops(&link, "set b v; get b; get foo; error; set foo v; hget foo f; zrange foo 0 1 0");
        assert_eq!(other[..3], ["0", " v0", "-6"]);
        assert!(other[3].contains("another node"), "{other:?}");
        assert_eq!(other[4..], ["-6", "-6", "-6"]);
        let moved = client.say("FJ.CALL none 1 foo");
        assert!(!moved.error().starts_with("NOCODE"), "{moved:?}");
        assert!(client.say("FJ.CALL none 1 b").error().starts_with("NOCODE"));
        assert!(server.runs());
        drop(server.shut_down());
    });
}
