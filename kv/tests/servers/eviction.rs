//! Servers that evict: functions free memory for their writes.

use farjump::Link;

use crate::resp::{Client, Value};
use crate::server::{Server, Start, library_file, on_each, ops, run_ops, until};

/// Limits the server's memory to this much more than it uses at present. Returns the limit.
fn limit(client: &mut Client, more: u64) -> u64 {
    let used: u64 = client.info("memory", "used_memory").unwrap().parse().unwrap();
    client.say(&format!("CONFIG SET maxmemory {}", used + more)).worked();
    used + more
}

/// Makes a string of this length by a short command. The buffer of a client that has sent a large one counts as memory until the
/// server's cron frees it, at any time behind [`limit`].
fn large_key(client: &mut Client, name: &str, len: usize) {
    assert_eq!(client.say(&format!("SETRANGE {name} {} x", len - 1)), Value::Integer(len as i64));
}

/// A number of INFO.
fn number(client: &mut Client, section: &str, field: &str) -> i64 {
    client.info(section, field).expect("the server has the field").parse().expect("it is a number")
}

/// Writes `rounds` keys with values of `len` bytes. Every write has to succeed.
fn write_all(link: &Link, rounds: u32, len: usize) {
    let value = "v".repeat(len);
    for round in 0..rounds {
        let operations: Vec<_> = (0..50).map(|key| format!("set {round}:{key} {value}")).collect();
        let replies = run_ops(link, &operations.join("; "));
        assert!(replies.iter().all(|line| line == "0"), "round {round}: {replies:?}");
    }
}

/// The digest of all data.
fn digest(server: &Server) -> String {
    server.client().say("DEBUG DIGEST").worked().text()
}

#[test]
fn sources_alone_go_on_writing_and_memory_stays_bounded() {
    const MORE: u64 = 2 << 20;
    on_each(|program| {
        for (policy, len) in [("allkeys-lru", 1000), ("allkeys-lfu", 1000), ("allkeys-random", 20)] {
            let server = Start::new(program).options(&format!("--maxmemory-policy {policy}")).run();
            let mut client = server.client();
            let link = server.link();
            assert_eq!(run_ops(&link, "type none"), ["0"]);
            let most = limit(&mut client, MORE);
            let rounds = if len == 20 { 800 } else { 100 };
            write_all(&link, rounds, len);
            let used = number(&mut client, "memory", "used_memory");
            // Buffers of this client and the key that crossed the limit are beyond it.
            assert!(used < (most + MORE / 4) as i64, "{policy}: {used} of {most}");
            let by_functions = number(&mut client, "farjump", "farjump_evicted");
            let by_server = number(&mut client, "stats", "evicted_keys");
            assert!(by_functions > 100, "{policy}: {by_functions}");
            let written = i64::from(rounds) * 50;
            assert_eq!(client.say("DBSIZE"), Value::Integer(written - by_functions - by_server), "{policy}");
            assert_eq!(number(&mut client, "farjump", "farjump_refused"), 0);
            drop(server.shut_down());
        }
    });
}

#[test]
fn a_replica_and_the_append_only_file_have_what_is_left() {
    on_each(|program| {
        let options =
            "--maxmemory-policy allkeys-lru --appendonly yes --appendfsync always --repl-backlog-size 16kb";
        let server = Start::new(program).options(options).run();
        let replica = Start::new(program).run();
        let port = server.open_port();
        replica.follow(port);
        let link = server.link();
        assert_eq!(run_ops(&link, "type none"), ["0"]);
        let mut client = server.client();
        client.say("SELECT 3").worked();
        large_key(&mut client, "other", 500_000);
        limit(&mut client, 1 << 20);
        write_all(&link, 60, 1000);
        write_all(&link, 60, 10);
        assert!(number(&mut client, "farjump", "farjump_evicted") > 100);
        // An expiry would differ, but evicted keys are gone everywhere.
        client.say("CONFIG SET maxmemory 0").worked();
        let left = digest(&server);
        until("the replica to have it all", || digest(&replica) == left);
        drop(link);
        let server = server.kill_and_start_again();
        assert_eq!(digest(&server), left);
        drop(replica.shut_down());
        drop(server.shut_down());
    });
}

#[test]
fn volatile_policies_evict_keys_with_an_expiry_and_no_other() {
    on_each(|program| {
        for policy in ["volatile-ttl", "volatile-lru"] {
            let server = Start::new(program).options(&format!("--maxmemory-policy {policy}")).run();
            let (mut client, link) = (server.client(), server.link());
            assert_eq!(run_ops(&link, "type none"), ["0"]);
            client.run(&[b"SET", b"stays", &[b's'; 1000]]).worked();
            large_key(&mut client, "goes", 500_000);
            assert_eq!(client.say("EXPIRE goes 100000"), Value::Integer(1));
            client.say("CONFIG SET notify-keyspace-events Ee").worked();
            let mut watcher = server.client();
            watcher.say("SUBSCRIBE __keyevent@0__:evicted").worked();
            client.say("CONFIG SET maxmemory-samples 3").worked();
            // With less the server would evict before this client's next command.
            limit(&mut client, 1 << 16);
            let value = "v".repeat(50_000);
            let writes = |keys: std::ops::Range<u32>| {
                let operations: Vec<_> = keys.map(|key| format!("set k{key} {value}")).collect();
                run_ops(&link, &operations.join("; "))
            };
            assert_eq!(writes(0..4), ["0"; 4]);
            let event = watcher.reply().expect("the server tells of it");
            assert_eq!(event.elements()[2], Value::Bulk(b"goes".into()));
            assert_eq!(client.say("EXISTS goes"), Value::Integer(0));
            // No key that may be evicted is left.
            let full = writes(4..40);
            assert_eq!(full.last().map(String::as_str), Some("-4"), "{full:?}");
            assert_eq!(client.say("EXISTS stays k0 k1 k2"), Value::Integer(4));
            assert_eq!(number(&mut client, "farjump", "farjump_evicted"), 1);
            // The written key stays, whatever its expiry. The words of a command count, too: a write that gets no
            // memory may leave some free.
            let (small, large) = ("v".repeat(500), "v".repeat(10_000));
            let fill: String = (0..200).map(|key| format!("set s{key} {small}; ")).collect();
            let operations =
                format!("{fill}command pexpire stays 100000000; command append stays {large}; len stays");
            assert_eq!(run_ops(&link, &operations)[199..], ["-4", "2 10", "-4", "10000"]);
            drop(server.shut_down());
        }
    });
}

#[test]
fn calls_by_commands_evict_keys_and_read_only_calls_none() {
    on_each(|program| {
        let server = Start::new(program).options("--maxmemory-policy allkeys-lru").args("load yes").run();
        let mut client = server.client();
        let code = std::fs::read(library_file("ops")).expect("it was just built");
        client.run(&[b"FJ.LOAD", b"ops", &code]).worked();
        client.say("FJ.CALL ops 0 type").worked();
        limit(&mut client, 1 << 20);
        let value = "v".repeat(1000);
        for round in 0..60 {
            let operations: Vec<_> = (0..50).map(|key| format!("set {round}:{key} {value}")).collect();
            let reply = client.run(&[b"FJ.CALL", b"ops", b"0", &ops(&operations.join("; "))]).worked();
            assert!(reply.text().lines().all(|line| line == "0"), "round {round}");
        }
        let evicted = number(&mut client, "farjump", "farjump_evicted");
        assert!(evicted > 100, "{evicted}");
        let reply = client.run(&[b"FJ.CALL_RO", b"ops", b"0", &ops("set k v; get 59:49; command get k")]);
        assert!(reply.worked().text().starts_with("-5\n"));
        assert_eq!(number(&mut client, "farjump", "farjump_evicted"), evicted);
        drop(server.shut_down());
    });
}
