//! Clusters: slots of other nodes, and loaded code in keys.

use std::net::TcpListener;
use std::path::Path;

use crate::resp::{Client, Value};
use crate::server::{Server, Start, library, library_file, on_each, ops, run_ops, until};

/// A free port of the loopback for clients, and one for other nodes.
fn two_ports() -> (u16, u16) {
    let [clients, nodes] = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").expect("some port is free"));
    let port = |listener: &TcpListener| listener.local_addr().expect("it listens").port();
    (port(&clients), port(&nodes))
}

/// A node of a cluster, with its ports for clients and for other nodes.
type Node = (Server, u16, u16);

/// Starts a node.
fn node(program: &Path) -> Node {
    let (clients, nodes) = two_ports();
    let options = format!(
        "--cluster-enabled yes --appendonly yes --appendfsync always --bind 127.0.0.1 --port {clients} --cluster-port {nodes}"
    );
    let folder = tempfile::tempdir().expect("there is space for a folder");
    std::fs::write(folder.path().join("seal"), b"a key of more than sixteen bytes").expect("there is space");
    let start = Start::new(program).options(&options).args("load yes code-key seal");
    (start.run_in(folder), clients, nodes)
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

/// The last slot of each node.
const LAST: [i64; 3] = [5460, 10922, 16383];

/// A cluster of three nodes, all of which know it.
fn cluster(program: &Path) -> Vec<Node> {
    let nodes: Vec<_> = (0..3).map(|_| node(program)).collect();
    let mut first = 0;
    for ((server, ..), last) in nodes.iter().zip(LAST) {
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
    nodes
}

#[test]
fn each_cluster_node_serves_its_slots_and_redirects_clients_for_others() {
    // Keys of the slots 3300, 7365 and 12182.
    let keys = ["b", "hello-2", "foo"];
    drop(library("ops"));
    on_each(|program| {
        let nodes = cluster(program);
        let slot_of = |key: &str| match nodes[0].0.client().say(&format!("CLUSTER KEYSLOT {key}")) {
            Value::Integer(slot) => slot,
            other => panic!("{other:?}"),
        };
        let owner_of = |key: &str| LAST.iter().position(|last| slot_of(key) <= *last).expect("all are taken");
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

/// A key of each node's slots.
const KEYS: [&str; 3] = ["b", "hello-2", "foo"];

/// Loads `ops` under a name. Returns the key that holds it.
fn load(client: &mut Client, name: &str) -> String {
    let code = std::fs::read(library_file("ops")).expect("it was just built");
    let told = client.run(&[b"FJ.LOAD", name.as_bytes(), &code]).worked().elements()[1].text();
    told.strip_prefix("kept in the key ").expect("it is in a key").to_owned()
}

/// Sets a key by loaded code, and reads it.
fn set(client: &mut Client, name: &str, key: &str) -> Value {
    let payload = ops(&format!("set {key} v; get {key}"));
    client.run(&[b"FJ.CALL", name.as_bytes(), b"1", key.as_bytes(), &payload])
}

fn is_known(node: &Node) -> bool {
    node.0.client().say("CLUSTER INFO").text().contains("cluster_state:ok")
}

fn is_unknown(reply: &Value) -> bool {
    matches!(reply, Value::Error(text) if text.starts_with("NOCODE "))
}

fn done() -> Value {
    Value::Bulk(b"0\n v0\n".into())
}

#[test]
fn each_nodes_code_is_in_its_key_and_survives_a_kill() {
    drop(library("ops"));
    on_each(|program| {
        let mut nodes = cluster(program);
        for (index, (server, ..)) in nodes.iter().enumerate() {
            let mut client = server.client();
            let key = load(&mut client, "ops");
            assert!(key.starts_with("farjump:code:{"), "{key}");
            assert_eq!(load(&mut client, "ops"), key, "a node has one key");
            let Value::Integer(slot) = client.say(&format!("CLUSTER KEYSLOT {key}")) else {
                panic!("no slot")
            };
            assert_eq!(LAST.iter().position(|last| slot <= *last), Some(index));
            assert_eq!(client.say(&format!("HLEN {key}")), Value::Integer(2));
            assert_eq!(set(&mut client, "ops", KEYS[index]), done());
        }
        // A killed node still has its code.
        let (server, clients, bus) = nodes.remove(0);
        nodes.insert(0, (server.kill_and_start_again(), clients, bus));
        until("the node to know the cluster", || is_known(&nodes[0]));
        let mut client = nodes[0].0.client();
        until("the code to be found", || set(&mut nodes[0].0.client(), "ops", KEYS[0]) == done());
        assert_eq!(client.say("FJ.LIST").elements(), [Value::Bulk(b"ops".into())]);
        // A replica of the node also has the code.
        let replica = node(program);
        let id = client.say("CLUSTER MYID").text();
        client.say(&format!("CLUSTER MEET 127.0.0.1 {} {}", replica.1, replica.2)).worked();
        until("the replica to know its primary", || {
            !matches!(replica.0.client().say(&format!("CLUSTER REPLICATE {id}")), Value::Error(_))
        });
        until("the replica to be connected", || {
            replica.0.client().info("replication", "master_link_status").as_deref() == Some("up")
        });
        let mut reader = replica.0.client();
        reader.say("READONLY").worked();
        let read = ops("get b; set b w");
        until("the code to be found", || {
            let mut reader = replica.0.client();
            reader.say("READONLY").worked();
            reader.run(&[b"FJ.CALL_RO", b"ops", b"1", b"b", &read]) == Value::Bulk(b" v0\n-5\n".into())
        });
        assert_eq!(reader.say("FJ.LIST").elements(), [Value::Bulk(b"ops".into())]);
        // Deleted code is gone at both.
        let key = load(&mut client, "ops");
        let Value::Array(kept) = client.say(&format!("HMGET {key} c:ops s:ops")) else { panic!("no code") };
        assert_eq!(client.say("FJ.DELETE ops"), Value::Integer(1));
        until("the name to be unknown", || is_unknown(&set(&mut nodes[0].0.client(), "ops", KEYS[0])));
        until("the replica to have none", || {
            is_unknown(&replica.0.client().run(&[b"FJ.CALL_RO", b"ops", b"0", &read]))
        });
        // A write of the key does not bring it back.
        let [code, seal] = [&kept[0], &kept[1]].map(|field| match field {
            Value::Bulk(bytes) => &bytes[..],
            other => panic!("{other:?}"),
        });
        client.run(&[b"HSET", key.as_bytes(), b"c:ops", code, b"s:ops", seal]).worked();
        for server in [&nodes[0].0, &replica.0] {
            until("the node to have looked at it", || {
                let mut client = server.client();
                client.say("READONLY").worked();
                let reply = client.run(&[b"FJ.CALL_RO", b"ops", b"0", &read]);
                assert!(matches!(reply, Value::Error(_)), "deleted code ran: {reply:?}");
                server.log().contains("is older than what FJ.LOAD or FJ.DELETE has put there since")
            });
        }
        drop(replica.0.shut_down());
        for (server, ..) in nodes {
            drop(server.shut_down());
        }
    });
}

#[test]
fn code_stays_with_both_nodes_when_its_slot_moves() {
    drop(library("ops"));
    on_each(|program| {
        let mut nodes = cluster(program);
        let mut clients: Vec<_> = nodes.iter().map(|(server, ..)| server.client()).collect();
        let key = load(&mut clients[0], "one");
        assert_eq!(set(&mut clients[0], "one", KEYS[0]), done());
        load(&mut clients[1], "other");
        let Value::Integer(slot) = clients[0].say(&format!("CLUSTER KEYSLOT {key}")) else {
            panic!("no slot")
        };
        let ids = [0, 1].map(|index| clients[index].say("CLUSTER MYID").text());
        clients[1].say(&format!("CLUSTER SETSLOT {slot} IMPORTING {}", ids[0])).worked();
        clients[0].say(&format!("CLUSTER SETSLOT {slot} MIGRATING {}", ids[1])).worked();
        clients[0].say(&format!("MIGRATE 127.0.0.1 {} {key} 0 10000", nodes[1].1)).worked();
        // The key is gone, but the slot is not.
        assert_eq!(set(&mut clients[0], "one", KEYS[0]), done());
        for index in [1, 0, 2] {
            clients[index].say(&format!("CLUSTER SETSLOT {slot} NODE {}", ids[1])).worked();
        }
        assert_eq!(set(&mut clients[0], "one", KEYS[0]), done());
        assert_eq!(clients[0].say("FJ.LIST").elements(), [Value::Bulk(b"one".into())]);
        // The other node has the code by the key alone. It may have searched for it just before.
        until("the other node to find it", || set(&mut nodes[1].0.client(), "one", KEYS[1]) == done());
        assert_eq!(set(&mut clients[1], "other", KEYS[1]), done());
        let both = [Value::Bulk(b"one".into()), Value::Bulk(b"other".into())];
        assert_eq!(clients[1].say("FJ.LIST").elements(), both);
        drop(clients);
        // Both nodes write the code again.
        until("the code to be written again", || {
            let mut client = nodes[0].0.client();
            assert_eq!(set(&mut client, "one", KEYS[0]), done());
            !client.say("KEYS farjump:code:*").elements().is_empty()
        });
        for (index, names) in [(0, &["one"][..]), (1, &["one", "other"])] {
            let (server, port, bus) = nodes.remove(index);
            nodes.insert(index, (server.kill_and_start_again(), port, bus));
            until("the node to know the cluster", || is_known(&nodes[index]));
            for name in names {
                let found = || set(&mut nodes[index].0.client(), name, KEYS[index]) == done();
                until("the code to be found", found);
            }
        }
        // One command deletes the code of both keys.
        let mut client = nodes[1].0.client();
        assert_eq!(client.say("FJ.DELETE one"), Value::Integer(1));
        assert_eq!(client.say("FJ.LIST").elements(), [Value::Bulk(b"other".into())]);
        until("the name to be unknown", || is_unknown(&set(&mut nodes[1].0.client(), "one", KEYS[1])));
        for (server, ..) in nodes {
            drop(server.shut_down());
        }
    });
}

/// Moves the slot of the first node's code to another node as Valkey 9 does, while a function writes to the slot. Does nothing on
/// other servers.
fn move_at_once(nodes: &[Node], key: &str, id: &str) {
    let (mut client, link) = (nodes[0].0.client(), nodes[0].0.link());
    let Value::Integer(slot) = client.say(&format!("CLUSTER KEYSLOT {key}")) else { panic!("no slot") };
    let written = key.replace("farjump:code:", "written:");
    let count = || run_ops(&link, &format!("command incr {written}"))[0].clone();
    assert_eq!(count(), "2 10");
    match client.say(&format!("CLUSTER MIGRATESLOTS SLOTSRANGE {slot} {slot} NODE {id}")) {
        Value::Error(error) if error.to_lowercase().contains("unknown subcommand") => return,
        reply => drop(reply.worked()),
    }
    let last = std::cell::Cell::new(1);
    until("the slot to be another node's", || {
        let reply = count();
        let is_here = reply == format!("2 {}0", last.get() + 1);
        last.set(last.get() + i32::from(is_here));
        assert!(is_here || reply == "-6" || reply == "-3", "{reply}");
        reply == "-6"
    });
    until("the other node to have the slot", || {
        nodes[1].0.client().say(&format!("GET {written}")) == Value::Bulk(last.get().to_string().into())
    });
}

#[test]
fn moving_slots_one_by_one_leaves_each_node_one_code_key() {
    drop(library("ops"));
    on_each(|program| {
        let nodes = cluster(program);
        let mut clients: Vec<_> = nodes.iter().map(|(server, ..)| server.client()).collect();
        let ids = [0, 1].map(|index| clients[index].say("CLUSTER MYID").text());
        load(&mut clients[0], "one");
        load(&mut clients[0], "both");
        load(&mut clients[1], "both");
        let keys = |client: &mut Client| -> Vec<String> {
            client.say("KEYS farjump:code:*").elements().iter().map(Value::text).collect()
        };
        // The slot of the node's key moves each time: the worst order.
        for round in 0..6 {
            let [key] = &keys(&mut clients[0])[..] else { panic!("{round}: not one key") };
            let Value::Integer(slot) = clients[0].say(&format!("CLUSTER KEYSLOT {key}")) else {
                panic!("no slot")
            };
            clients[1].say(&format!("CLUSTER SETSLOT {slot} IMPORTING {}", ids[0])).worked();
            clients[0].say(&format!("CLUSTER SETSLOT {slot} MIGRATING {}", ids[1])).worked();
            clients[0].say(&format!("MIGRATE 127.0.0.1 {} {key} 0 10000", nodes[1].1)).worked();
            for index in [1, 0, 2] {
                clients[index].say(&format!("CLUSTER SETSLOT {slot} NODE {}", ids[1])).worked();
            }
            until("the node to have a key again", || {
                let mut client = nodes[0].0.client();
                assert_eq!(set(&mut client, "one", KEYS[0]), done());
                keys(&mut client).len() == 1
            });
        }
        move_at_once(&nodes, &keys(&mut clients[0])[0], &ids[1]);
        until("the node to have a key again", || {
            let mut client = nodes[0].0.client();
            assert_eq!(set(&mut client, "one", KEYS[0]), done());
            keys(&mut client).len() == 1
        });
        until("the other node to have one key", || keys(&mut nodes[1].0.client()).len() == 1);
        let both = [Value::Bulk(b"both".into()), Value::Bulk(b"one".into())];
        for (index, name) in [(0, "one"), (0, "both"), (1, "one"), (1, "both")] {
            until("the code to be found", || set(&mut nodes[index].0.client(), name, KEYS[index]) == done());
            assert_eq!(clients[index].say("FJ.LIST").elements(), both);
            let [key] = &keys(&mut clients[index])[..] else { panic!("not one key at {index}") };
            assert_eq!(clients[index].say(&format!("HLEN {key}")), Value::Integer(4));
        }
        assert_eq!(clients[1].say("FJ.DELETE one"), Value::Integer(1));
        until("the name to be unknown", || is_unknown(&set(&mut nodes[1].0.client(), "one", KEYS[1])));
        assert_eq!(set(&mut clients[0], "one", KEYS[0]), done(), "each node has its own code");
        for (server, ..) in nodes {
            drop(server.shut_down());
        }
    });
}

#[test]
fn a_node_without_a_slot_keeps_code_in_memory() {
    drop(library("ops"));
    on_each(|program| {
        let (server, ..) = node(program);
        let mut client = server.client();
        let code = std::fs::read(library_file("ops")).expect("it was just built");
        let told = client.run(&[b"FJ.LOAD", b"ops", &code]).worked().elements()[1].text();
        assert!(told.starts_with("in memory until the server ends: this node has no slot"), "{told}");
        assert_eq!(client.run(&[b"FJ.CALL", b"ops", b"0", &ops("args")]).worked().text(), "1\n");
        assert_eq!(client.say("FJ.LIST").elements(), [Value::Bulk(b"ops".into())]);
        assert_eq!(client.say("FJ.DELETE ops"), Value::Integer(1));
        drop(server.shut_down());
    });
}

#[test]
fn a_call_with_keys_reaches_their_slot_and_no_other() {
    drop(library("ops"));
    on_each(|program| {
        let (server, ..) = node(program);
        let mut client = server.client();
        client.say("CLUSTER ADDSLOTSRANGE 0 16383").worked();
        until("the cluster to be ready", || {
            server.client().say("CLUSTER INFO").text().contains("cluster_state:ok")
        });
        client.say("SET b 1").worked();
        client.say("SET foo 2").worked();
        client.say("ZADD {foo}z 1 m").worked();
        // Both keys are this node's, of slots 3300 and 12182.
        let other =
            "get b; get foo; set foo 3; del foo; zrange {foo}z 0 9 0; command get foo; command get b; error";
        let reply = call(&mut client, &["b"], other).worked().text();
        let lines: Vec<_> = reply.lines().collect();
        assert_eq!(lines[..7], [" 10", "-6", "-6", "-6", "-6", "-6", "0 10"], "{reply}");
        let same =
            call(&mut client, &["foo"], "get foo; zrange {foo}z 0 9 0; znext; get b; error").worked().text();
        let lines: Vec<_> = same.lines().collect();
        assert_eq!(lines[..4], [" 20", "0", " m 10", "-6"], "{same}");
        assert!(lines[4].contains("is of another slot than the keys of FJ.CALL"), "{same}");
        // Without keys, and by a link, all of the node's slots may be used.
        assert_eq!(call(&mut client, &[], "get b; set foo 4; get foo").worked().text(), " 10\n0\n 40\n");
        assert_eq!(run_ops(&server.link(), "get foo; set foo 5; set b 6"), [" 40", "0", "0"]);
        assert_eq!(client.say("GET foo").text(), "5");
        assert_eq!(client.say("GET b").text(), "6");
        assert_eq!(client.say("DBSIZE"), Value::Integer(4), "b, foo, {{foo}}z, and the code");
        drop(server.shut_down());
    });
}
