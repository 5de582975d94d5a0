//! Calls of which a part runs later (`farjump_again`): the user as which it runs, and the time when its reply leaves.

use std::fs;

use farjump_fixtures::process::PATIENCE;

use crate::modules;
use crate::resp::{Client, Value};
use crate::server::{Server, Start, library, library_file, on_each, ops, until};

/// A server with `ops`, and a user whose keys begin with `app:`.
fn server(program: &std::path::Path) -> (Server, Client, Client) {
    let server = Start::new(program).args("load local").run();
    let (mut client, mut bob) = (server.client(), server.client());
    let code = fs::read(library_file("ops")).unwrap();
    client.run(&[b"FJ.LOAD", b"ops", &code]).worked();
    client.say("ACL SETUSER bob on >secret ~app:* &* +@all").worked();
    bob.say("AUTH bob secret").worked();
    (server, client, bob)
}

#[test]
fn a_later_run_acts_as_the_user_of_its_call() {
    on_each(|program| {
        let (server, mut client, mut bob) = server(program);
        assert!(bob.say("SET secret:a own").error().starts_with("NOPERM"));
        let later = ops("set app:now now; again; set secret:a later; set app:a later");
        let reply = bob.run(&[b"FJ.CALL", b"ops", b"0", &later]).worked().text();
        assert!(reply.starts_with("0\n0\n"), "{reply}");
        // This is the last write: it shows that the function has run again, as bob.
        until("the function to have run again", || {
            server.client().say("GET app:a") == Value::Bulk(b"later".into())
        });
        assert_eq!(client.say("GET secret:a"), Value::Nil);
        drop(server.shut_down());
    });
}

#[test]
fn a_later_run_of_a_read_only_call_only_reads() {
    on_each(|program| {
        let (server, mut client, mut bob) = server(program);
        let mut heard = server.client();
        heard.say("SUBSCRIBE ran").worked();
        let later = ops("again; set app:a later; command publish ran again");
        let reply = bob.run(&[b"FJ.CALL_RO", b"ops", b"0", &later]).worked().text();
        assert!(reply.starts_with("0\n"), "{reply}");
        assert_eq!(heard.reply().map(|told| told.elements()[2].text()).as_deref(), Some("again"));
        assert_eq!(client.say("GET app:a"), Value::Nil);
        drop(server.shut_down());
    });
}

#[test]
fn deferred_calls_reply_after_their_write_is_in_the_file() {
    on_each(|program| {
        let folder = farjump_fixtures::folder();
        modules::build("slow_disk", folder.path());
        let options = "--appendonly yes --appendfsync always";
        let start = Start::new(program).options(options);
        let server = start
            .prepared(|server| {
                server.env("LD_PRELOAD", "./slow_disk.so");
            })
            .run_in(folder);
        let (link, library) = (server.link(), library("ops"));
        let file = server.path("appendonlydir/appendonly.aof.1.incr.aof");
        for way in ["", "again; ", "again; again; "] {
            for round in 0..3 {
                let key = format!("key-{}-{round}", way.len());
                let call = link.inject(&library, &ops(&format!("{way}set {key} v"))).unwrap();
                call.wait(PATIENCE).unwrap();
                let written = String::from_utf8_lossy(&fs::read(&file).unwrap()).contains(&key);
                assert!(written, "the reply of {way:?} left before its write was in the file");
            }
        }
        drop(server.shut_down());
    });
}

#[test]
fn deferred_calls_run_in_the_database_of_their_own_client() {
    on_each(|program| {
        let (server, mut client, mut bob) = server(program);
        bob.say("SELECT 3").worked();
        let later = |key: &str| ops(&format!("again; again; again; set {key} later"));
        bob.run(&[b"FJ.CALL", b"ops", b"0", &later("app:three")]).worked();
        client.run(&[b"FJ.CALL", b"ops", b"0", &later("zero")]).worked();
        // A link's calls run in the same turns, in the first database.
        let link = server.link();
        link.inject(&library("ops"), &later("link")).unwrap().wait(PATIENCE).unwrap();
        let get = |database: &str, key: &str| {
            let mut client = server.client();
            client.say(&format!("SELECT {database}")).worked();
            client.say(&format!("GET {key}"))
        };
        let is_there = Value::Bulk(b"later".into());
        until("all to have run", || get("3", "app:three") == is_there && get("0", "zero") == is_there);
        assert_eq!(get("0", "link"), is_there);
        assert_eq!([get("0", "app:three"), get("3", "zero"), get("3", "link")], [const { Value::Nil }; 3]);
        drop(server.shut_down());
    });
}

#[test]
fn waiting_calls_of_a_deleted_user_are_dropped_and_counted() {
    on_each(|program| {
        let (server, mut client, mut bob) = server(program);
        client.run(&[b"FJ.LOAD", b"endless", &fs::read(library_file("endless")).unwrap()]).worked();
        for _ in 0..3 {
            bob.run(&[b"FJ.CALL", b"endless", b"0", b"payload"]).worked();
        }
        let dropped = || server.client().info("farjump", "farjump_dropped").unwrap();
        assert_eq!(dropped(), "0");
        client.say("ACL DELUSER bob").worked();
        until("the end of the calls", || dropped() == "3");
        let log = server.log();
        assert!(log.contains("dropped 3 waiting calls"), "{log}");
        drop(server.shut_down());
    });
}
