//! Changes of a server's state while functions write: its role, its end.

use std::thread;

use farjump::Link;

use crate::resp::Value;
use crate::server::{Start, on_each, run_ops, try_ops, until};

/// Returns the number that `command incr KEY` has written, from its line in a reply.
fn counted(line: &str) -> Option<u64> {
    line.strip_prefix("2 ")?.strip_suffix('0')?.parse().ok()
}

/// Counts up by a link until the server refuses the counter with this number, or the link ends. Returns the last count.
fn count_until(link: &Link, refusal: &str) -> u64 {
    let mut last = 0;
    while let Ok(reply) = try_ops(link, "command incr n") {
        let line = reply.trim_end();
        match counted(line) {
            Some(count) => last = count,
            None if line == refusal => break,
            // The reply while writes are paused on the way there.
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
        // The last call may have run although its reply was not seen.
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
        // All acknowledged counts are there, and the new primary continues from them.
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
