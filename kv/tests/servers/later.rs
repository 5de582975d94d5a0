//! Functions that send themselves on: their calls run later than the command or the link that brought them.

use std::fs;
use std::path::Path;

use farjump_fixtures::process::PATIENCE;

use crate::resp::{Client, Value};
use crate::server::{Server, Start, library, library_file, on_each, until};

/// A server that has the function `later` loaded, and a user with few rights.
fn loaded(program: &Path) -> Server {
    let server = Start::new(program).args("load yes").run();
    let mut client = server.client();
    client.run(&[b"FJ.LOAD", b"later", &fs::read(library_file("later")).unwrap()]).worked();
    client.say("ACL SETUSER bob on >pw ~app:* +fj.call +fj.call_ro +select +set +get").worked();
    server
}

/// A client of that user.
fn bob(server: &Server) -> Client {
    let mut bob = server.client();
    bob.say("AUTH bob pw").worked();
    bob
}

fn later() -> Value {
    Value::Bulk(b"later".into())
}

/// Waits until the module has refused so many accesses.
fn until_refused(server: &Server, count: u64) {
    until("the refusal", || server.client().info("farjump", "farjump_refused").unwrap() == count.to_string());
}

#[test]
fn a_call_that_runs_later_does_what_its_user_and_its_command_may() {
    on_each(|program| {
        let server = loaded(program);
        let (mut client, mut bob) = (server.client(), bob(&server));
        for (count, (command, key)) in
            (1..).zip([("FJ.CALL", "secret:a"), ("FJ.CALL_RO", "app:ro"), ("FJ.CALL", "secret:b")])
        {
            bob.say(&format!("{command} later 0 3{key}")).worked();
            until_refused(&server, count);
            assert_eq!(client.say(&format!("GET {key}")), Value::Nil, "{command} {key}");
        }
        bob.say("FJ.CALL later 0 3app:a").worked();
        until("its own key", || server.client().say("GET app:a") == later());
        // Calls of others run in the same turns.
        client.say("FJ.CALL later 0 9secret:b").worked();
        bob.say("FJ.CALL later 0 9secret:c").worked();
        bob.say("FJ.CALL later 0 9app:c").worked();
        until("both keys", || {
            ["secret:b", "app:c"].iter().all(|key| server.client().say(&format!("GET {key}")) == later())
        });
        until_refused(&server, 4);
        assert_eq!(client.say("GET secret:c"), Value::Nil);
        // A link's calls run as the user of links.
        let link = server.link();
        assert_eq!(*link.inject(&library("later"), b"5secret:d").unwrap().wait(PATIENCE).unwrap(), *b"o");
        drop(server.shut_down());
    });
}

#[test]
fn a_call_that_runs_later_uses_the_database_of_its_client() {
    on_each(|program| {
        let server = loaded(program);
        let (mut client, mut bob) = (server.client(), bob(&server));
        bob.say("SELECT 3").worked();
        bob.say("FJ.CALL later 0 3app:k").worked();
        bob.say("FJ.CALL later 0 0app:now").worked();
        let in_three = |key: &str| {
            let mut client = server.client();
            client.say("SELECT 3").worked();
            client.say(&format!("GET {key}"))
        };
        until("the key", || in_three("app:k") == later());
        assert_eq!(in_three("app:now"), later());
        // What follows is in the first one.
        let link = server.link();
        assert_eq!(*link.inject(&library("later"), b"2app:link").unwrap().wait(PATIENCE).unwrap(), *b"o");
        assert_eq!(client.say("GET app:link"), later());
        assert_eq!(client.say("GET app:k"), Value::Nil);
        assert_eq!(in_three("app:link"), Value::Nil);
        drop(server.shut_down());
    });
}

#[test]
fn calls_that_wait_for_a_user_who_is_deleted_are_dropped() {
    on_each(|program| {
        let server = loaded(program);
        let mut bob = bob(&server);
        for _ in 0..3 {
            bob.say("FJ.CALL later 0 xapp:x").worked();
        }
        let dropped = || server.client().info("farjump", "farjump_dropped").unwrap();
        assert_eq!(dropped(), "0");
        server.client().say("ACL DELUSER bob").worked();
        until("the end of the calls", || dropped() == "3");
        assert!(server.log().contains("dropped 3 waiting calls"), "{}", server.log());
        drop(server.shut_down());
    });
}

/// Servers that are killed.
const KILLED: usize = 12;

#[test]
fn what_a_call_wrote_that_ran_again_is_in_the_append_only_file_when_it_is_answered() {
    on_each(|program| {
        let mut server = Start::new(program).options("--appendonly yes --appendfsync always").run();
        for round in 0..KILLED {
            let link = server.link();
            let payload = format!("2k{round}");
            let reply = link.inject(&library("later"), payload.as_bytes()).unwrap().wait(PATIENCE).unwrap();
            server = server.kill_at_once_and_start_again();
            assert_eq!(*reply, *b"o");
            assert_eq!(server.client().say(&format!("GET k{round}")), later(), "round {round}");
        }
        drop(server.shut_down());
    });
}
