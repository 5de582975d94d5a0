//! Loaded code that was deleted or replaced, in keys that other clients may write.

use std::fs;

use tempfile::TempDir;

use crate::resp::{Client, Value};
use crate::server::{Start, library_file, on_each, ops, until};

/// A folder with a key for seals.
fn folder() -> TempDir {
    let folder = farjump_fixtures::folder();
    fs::write(folder.path().join("seal"), b"a key of more than sixteen bytes").unwrap();
    folder
}

/// Loads a library under the name `f`.
#[track_caller]
fn load(client: &mut Client, library: &str) {
    let code = fs::read(library_file(library)).unwrap();
    client.run(&[b"FJ.LOAD", b"f", &code]).worked();
}

/// The contents of the key under the name `f`. Any client that may read them may keep them.
struct Kept(Vec<u8>, Vec<u8>);

impl Kept {
    #[track_caller]
    fn now(client: &mut Client) -> Kept {
        let mut field = |name: &str| match client.say(&format!("HGET farjump:code {name}:f")) {
            Value::Bulk(bytes) => bytes,
            other => panic!("{name}: {other:?}"),
        };
        Kept(field("c"), field("s"))
    }

    /// Returns the command that writes the contents again.
    fn words(&self) -> [&[u8]; 6] {
        [b"HSET", b"farjump:code", b"c:f", &self.0, b"s:f", &self.1]
    }

    fn write(&self, client: &mut Client) {
        client.run(&self.words()).worked();
    }
}

/// Calls `f`, which is `ops`.
fn call(client: &mut Client) -> Value {
    client.run(&[b"FJ.CALL_RO", b"f", b"0", &ops("args")])
}

fn ran() -> Value {
    Value::Bulk(b"1\n".into())
}

#[track_caller]
fn is_older(reply: &Value) {
    let error = reply.error();
    assert!(error.starts_with("BADCODE ") && error.contains("is older than"), "{error}");
}

#[test]
fn code_that_was_deleted_or_replaced_stays_so_whatever_the_key_has() {
    on_each(|program| {
        let options = "--appendonly yes --appendfsync always";
        let start = Start::new(program).options(options).args("load yes code-key seal");
        let server = start.run_in(folder());
        let mut client = server.client();
        load(&mut client, "chase");
        let first = Kept::now(&mut client);
        load(&mut client, "ops");
        let second = Kept::now(&mut client);
        assert_eq!(call(&mut client), ran());
        // Replaced.
        first.write(&mut client);
        is_older(&call(&mut client));
        second.write(&mut client);
        assert_eq!(call(&mut client), ran());
        // Deleted.
        assert_eq!(client.say("FJ.DELETE f"), Value::Integer(1));
        assert!(call(&mut client).error().starts_with("NOCODE "));
        assert_eq!(client.say("FJ.LIST").elements(), []);
        assert_eq!(client.say("FJ.DELETE f"), Value::Integer(0));
        for kept in [&first, &second] {
            client.say("DEL farjump:code").worked();
            kept.write(&mut client);
            is_older(&call(&mut client));
        }
        assert_eq!(client.say("FJ.DELETE f"), Value::Integer(1));
        // FJ.DELETE also deletes code that is not in the key at present.
        load(&mut client, "ops");
        let third = Kept::now(&mut client);
        client.say("DEL farjump:code").worked();
        assert_eq!(call(&mut client), ran());
        client.say("DEL farjump:code").worked();
        assert!(matches!(client.say("FJ.DELETE f"), Value::Integer(_)));
        third.write(&mut client);
        is_older(&call(&mut client));
        assert_eq!(client.say("FJ.DELETE f"), Value::Integer(1));
        // A restarted server knows the seals in the key.
        let server = server.kill_and_start_again();
        let mut client = server.client();
        assert!(call(&mut client).error().starts_with("NOCODE "));
        client.say("HDEL farjump:code s:f").worked();
        second.write(&mut client);
        is_older(&call(&mut client));
        // Loaded again.
        load(&mut client, "ops");
        assert_eq!(call(&mut client), ran());
        second.write(&mut client);
        is_older(&call(&mut client));
        load(&mut client, "ops");
        // Another database has its own code.
        client.say("COPY farjump:code farjump:code DB 1").worked();
        client.say("SELECT 1").worked();
        assert!(call(&mut client).error().starts_with("BADCODE "));
        load(&mut client, "ops");
        assert_eq!(call(&mut client), ran());
        client.say("SELECT 0").worked();
        assert_eq!(call(&mut client), ran());
        drop(server.shut_down());
    });
}

#[test]
fn replicas_refuse_deleted_or_replaced_code_even_without_calls_in_between() {
    on_each(|program| {
        let start = || Start::new(program).args("load yes code-key seal").run_in(folder());
        let (server, early, late) = (start(), start(), start());
        let mut client = server.client();
        let port = server.open_port();
        early.follow(port);
        load(&mut client, "ops");
        let first = Kept::now(&mut client);
        // Each pair of writes comes to the replica at once.
        for (round, newer) in [&[&b"FJ.DELETE"[..], b"f"][..], &[b"FJ.LOAD", b"f", b""]].iter().enumerate() {
            let code = fs::read(library_file("ops")).unwrap();
            let newer: Vec<&[u8]> =
                newer.iter().map(|word| if word.is_empty() { &code[..] } else { word }).collect();
            client.say("MULTI").worked();
            client.run(&newer).worked();
            client.say("DEL farjump:code").worked();
            client.run(&first.words()).worked();
            client.say(&format!("SET round {round}")).worked();
            client.say("EXEC").elements().iter().for_each(|reply| drop(reply.clone().worked()));
            let expected = Value::Bulk(round.to_string().into());
            until("the replica to have it all", || early.client().say("GET round") == expected);
            is_older(&call(&mut early.client()));
            is_older(&call(&mut client));
        }
        // A replica that gets all data knows earlier deletions.
        assert_eq!(client.say("FJ.DELETE f"), Value::Integer(1));
        late.follow(port);
        client.say("HDEL farjump:code s:f").worked();
        first.write(&mut client);
        client.say("SET round late").worked();
        let expected = Value::Bulk(b"late".into());
        until("the replica to have it all", || late.client().say("GET round") == expected);
        is_older(&call(&mut late.client()));
        // It still knows them as the primary.
        late.client().say("REPLICAOF NO ONE").worked();
        is_older(&call(&mut late.client()));
        load(&mut late.client(), "ops");
        assert_eq!(call(&mut late.client()), ran());
        for server in [late, early, server] {
            drop(server.shut_down());
        }
    });
}
