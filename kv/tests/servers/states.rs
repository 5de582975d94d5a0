//! Changes of a server's state while functions write: its memory, its role, its cluster, its end.

use std::net::TcpListener;
use std::path::Path;
use std::thread;

use farjump::Link;

use crate::resp::{Client, Value};
use crate::server::{Server, Start, library, on_each, run_ops, try_ops, until};

/// The number that `command incr KEY` has written, from its line in a reply.
fn counted(line: &str) -> Option<u64> {
    line.strip_prefix("2 ")?.strip_suffix('0')?.parse().ok()
}

/// Counts up by a link until the counter is refused with this number, or the link ends. Returns the last count.
fn count_until(link: &Link, refusal: &str) -> u64 {
    let mut last = 0;
    while let Ok(reply) = try_ops(link, "command incr n") {
        let line = reply.trim_end();
        match counted(line) {
            Some(count) => last = count,
            None if line == refusal => break,
            // What holds writes back on the way there.
            None => assert_eq!(line, "-3"),
        }
    }
    last
}

#[test]
fn a_server_that_shuts_down_saves_what_functions_have_written() {
    on_each(|program| {
        let server = Start::new(program).run();
        let link = server.link();
        assert_eq!(run_ops(&link, "command incr n"), ["2 10"]);
        let source = thread::spawn(move || count_until(&link, "none"));
        until("calls to run", || server.client().say("GET n").text().parse::<u64>().unwrap() > 10);
        let folder = server.shut_down_by(b"SAVE");
        let answered = source.join().unwrap();
        let server = Start::new(program).run_in(folder);
        let kept: u64 = server.client().say("GET n").text().parse().unwrap();
        // The last call may have run without its reply being seen.
        assert!((answered..=answered + 1).contains(&kept), "{answered} were answered, {kept} are there");
        drop(server.shut_down());
    });
}

#[test]
fn a_failover_loses_no_call_and_refuses_those_that_come_too_late() {
    on_each(|program| {
        let server = Start::new(program).run();
        let other = Start::new(program).run();
        let (port, other_port) = (server.open_port(), other.open_port());
        let (mut client, mut other_client) = (server.client(), other.client());
        other_client.say(&format!("REPLICAOF 127.0.0.1 {port}")).worked();
        until("the replica to be connected", || {
            server.client().info("replication", "slave0").is_some_and(|text| text.contains("state=online"))
        });
        let link = server.link();
        let source = thread::spawn(move || count_until(&link, "-5"));
        until("calls to run", || server.client().say("GET n") != Value::Nil);
        client.say(&format!("FAILOVER TO 127.0.0.1 {other_port}")).worked();
        let counted_before = source.join().unwrap();
        until("the replica to be the primary", || {
            other.client().info("replication", "role").as_deref() == Some("master")
        });
        // All that was answered is there, and the new primary goes on from it.
        let next = format!("2 {}0", counted_before + 1);
        assert_eq!(run_ops(&other.link(), "command incr n"), [&*next]);
        until("the old primary to follow", || {
            server.client().say("GET n") == Value::Bulk((counted_before + 1).to_string().into())
        });
        assert_eq!(run_ops(&server.link(), "command incr n"), ["-5"]);
        assert!(server.runs() && other.runs());
        drop(other.shut_down());
        drop(server.shut_down());
    });
}

/// A free port of the loopback for clients, and one for other nodes.
fn two_ports() -> (u16, u16) {
    let [clients, nodes] = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").expect("some port is free"));
    let port = |listener: &TcpListener| listener.local_addr().expect("it listens").port();
    (port(&clients), port(&nodes))
}

/// A node of a cluster, with its port.
fn node(program: &Path) -> (Server, u16, u16) {
    let (clients, nodes) = two_ports();
    let options = format!("--cluster-enabled yes --bind 127.0.0.1 --port {clients} --cluster-port {nodes}");
    (Start::new(program).options(&options).args("load yes").run(), clients, nodes)
}

/// Loads `ops` into a node, and calls it with this key.
fn call(client: &mut Client, keys: &[&str], operations: &str) -> Value {
    let code = std::fs::read(crate::server::library_file("ops")).expect("it was just built");
    client.run(&[b"FJ.LOAD", b"ops", &code]).worked();
    let (count, payload) = (keys.len().to_string(), crate::server::ops(operations));
    let mut words = vec![&b"FJ.CALL"[..], b"ops", count.as_bytes()];
    words.extend(keys.iter().map(|key| key.as_bytes()));
    words.push(&payload);
    client.run(&words)
}

#[test]
fn each_node_of_a_cluster_serves_its_slots_and_sends_clients_to_the_others() {
    // Keys of the slots 3300, 7365 and 12182, and the last slot of each node.
    let (keys, last) = (["b", "hello-2", "foo"], [5460, 10922, 16383]);
    drop(library("ops"));
    on_each(|program| {
        let nodes: Vec<_> = (0..3).map(|_| node(program)).collect();
        let mut first = 0;
        for ((server, ..), last) in nodes.iter().zip(last) {
            server.client().say(&format!("CLUSTER ADDSLOTSRANGE {first} {last}")).worked();
            first = last + 1;
        }
        for (_, clients, bus) in &nodes[1..] {
            nodes[0].0.client().say(&format!("CLUSTER MEET 127.0.0.1 {clients} {bus}")).worked();
        }
        for (server, ..) in &nodes {
            until("the node to know the cluster", || {
                let told = server.client().say("CLUSTER INFO").text();
                told.contains("cluster_state:ok") && told.contains("cluster_known_nodes:3")
            });
        }
        let slot_of = |key: &str| match nodes[0].0.client().say(&format!("CLUSTER KEYSLOT {key}")) {
            Value::Integer(slot) => slot,
            other => panic!("{other:?}"),
        };
        let owner_of = |key: &str| last.iter().position(|last| slot_of(key) <= *last).expect("all are taken");
        let owners = keys.map(owner_of);
        for (index, (server, ..)) in nodes.iter().enumerate() {
            let (mut client, link) = (server.client(), server.link());
            for (key, owner) in keys.iter().zip(owners) {
                let by_link = run_ops(&link, &format!("set {key} v; get {key}"));
                let by_command = call(&mut client, &[key], &format!("set {key} v; get {key}"));
                if owner == index {
                    assert_eq!(by_link, ["0", " v0"], "{key}");
                    assert_eq!(by_command.worked().text(), "0\n v0\n");
                } else {
                    assert_eq!(by_link, ["-6", "-6"], "{key}");
                    let moved = format!("MOVED {} 127.0.0.1:{}", slot_of(key), nodes[owner].1);
                    assert_eq!(by_command.error(), moved);
                }
            }
            assert!(call(&mut client, &["b", "foo"], "keys").error().starts_with("CROSSSLOT"));
        }
        for (server, ..) in nodes {
            drop(server.shut_down());
        }
    });
}
