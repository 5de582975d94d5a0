//! Sources and servers that are killed while functions write: the data are those of whole calls.

use std::collections::VecDeque;
use std::fs;
use std::thread;
use std::time::Duration;

use farjump::{Library, Link};
use farjump_fixtures::helper_process::{role, say, test_in_role};
use farjump_fixtures::process::{PATIENCE, Process, kill};
use farjump_fixtures::this_test;
use farjump_fixtures::watchdog::Watchdog;
use fastrand::Rng;
use rustix::process::Signal;

use crate::resp::{Client, Value};
use crate::server::{Server, Start, library_file, on_each, ops, until};

const KILLED_SOURCES: u32 = 200;
const KILLED_SERVERS: u32 = 50;
/// Number of calls that a source has under way.
const PENDING: u64 = 8;

/// Returns the writes of the call with this number: two counters, and the number at the end of a list.
fn written_by(name: &str, number: u64) -> Vec<u8> {
    ops(&format!("command incr a:{name}; command incr b:{name}; command rpush l:{name} {number}"))
}

/// Checks that the data of `name` are those of whole calls, in order. Returns their number.
#[track_caller]
fn whole_calls(client: &mut Client, name: &str) -> u64 {
    let number = |value: &Value| match value {
        Value::Nil => 0,
        value => value.text().parse::<u64>().expect("a counter is a number"),
    };
    client.say("MULTI").worked();
    for read in [format!("GET a:{name}"), format!("GET b:{name}"), format!("LRANGE l:{name} 0 -1")] {
        client.say(&read).worked();
    }
    let seen = client.say("EXEC").worked();
    let [first, second, list] = seen.elements() else { panic!("{seen:?}") };
    let calls = number(first);
    assert_eq!(number(second), calls, "{name}");
    let listed: Vec<u64> = list.elements().iter().map(number).collect();
    let (len, last) = (listed.len(), listed.last());
    assert!(listed.iter().copied().eq(1..=calls), "{name}: {calls} calls, and {len} numbers up to {last:?}");
    calls
}

/// Calls until the process is killed, with several calls under way. Prints the number of each call that got its reply.
fn call_until_killed(socket: &str, library: &str, name: &str) -> ! {
    let _watchdog = Watchdog::new();
    let link = Link::connect(&format!("unix:{socket}")).expect("the target takes links");
    let library = Library::open(library).expect("the test has built it");
    let mut pending = VecDeque::new();
    for number in 1.. {
        pending.push_back(link.inject(&library, &written_by(name, number)).expect("the target takes calls"));
        if number > PENDING {
            let first = pending.pop_front().expect("some are pending");
            drop(first.wait(PATIENCE).expect("the call is answered"));
            say(&(number - PENDING).to_string());
        }
    }
    unreachable!("numbers do not end")
}

fn process_id(server: &Server) -> u32 {
    let told = server.client().info("server", "process_id").expect("servers tell their process id");
    told.parse().expect("it is a number")
}

/// Returns the number of descriptors that a server has open.
fn descriptors(server: &Server) -> usize {
    let folder = format!("/proc/{}/fd", process_id(server));
    fs::read_dir(folder).expect("the server runs").count()
}

/// Makes the server write a new append-only file.
#[track_caller]
fn rewrite_file(server: &Server) {
    server.client().say("BGREWRITEAOF").worked();
    until("the rewriting to end", || {
        let mut client = server.client();
        ["aof_rewrite_in_progress", "aof_rewrite_scheduled"]
            .iter()
            .all(|field| client.info("persistence", field).as_deref() == Some("0"))
    });
}

#[test]
fn sources_that_are_killed_leave_whole_calls_and_nothing_else() {
    if let [socket, library, name] = &role()[..] {
        call_until_killed(socket, library, name);
    }
    let test = this_test!();
    let library = library_file("ops");
    on_each(|program| {
        let server = Start::new(program).options("--appendonly yes").run();
        let mut client = server.client();
        let before = descriptors(&server);
        let socket = server.path("fj.sock");
        let mut random = Rng::with_seed(7);
        let mut furthest = 0;
        for round in 0..KILLED_SOURCES {
            let (socket, library, name) = (socket.display(), library.display(), round.to_string());
            let role = [&socket.to_string(), &library.to_string(), &*name];
            let source = Process::start(&mut test_in_role(test, &role));
            // Every second process may die while it connects, or before. The others have calls under way.
            if round % 2 == 1 {
                while !source.line().contains('@') {}
            }
            thread::sleep(Duration::from_micros(random.u64(0..6_000)));
            let out = source.kill().out;
            let text = String::from_utf8_lossy(&out);
            // The last line may be cut.
            let whole = text.rsplit_once('\n').map_or("", |(lines, _)| lines);
            let last = whole.lines().rev().find_map(|line| line.split_once('@')?.1.parse().ok());
            let answered = last.unwrap_or(u64::from(round % 2 == 1));
            // Calls that were sent before the kill run after it.
            until("the link to end", || {
                server.client().info("farjump", "farjump_links").as_deref() == Some("0")
            });
            let ran = whole_calls(&mut client, &name);
            // The source sends one more call before it prints a reply.
            assert!(
                (answered..=answered + 2 + PENDING).contains(&ran),
                "{answered} were answered, {ran} ran"
            );
            furthest = furthest.max(ran);
        }
        assert!(furthest > PENDING, "no source got far: {furthest} calls");
        until("the sources' descriptors to be closed", || descriptors(&server) <= before);
        // Only now: a source that died right after its handshake may have sent calls over a link that was not there yet.
        let all = |client: &mut Client| -> Vec<u64> {
            (0..KILLED_SOURCES).map(|round| whole_calls(client, &round.to_string())).collect()
        };
        let in_memory = all(&mut client);
        let server = server.kill_and_start_again();
        assert_eq!(all(&mut server.client()), in_memory, "the file has what memory had");
        drop(server.shut_down());
    });
}

#[test]
fn a_killed_server_keeps_whole_calls_in_its_append_only_file() {
    let library = library_file("ops");
    on_each(|program| {
        let mut server = Start::new(program).options("--appendonly yes --appendfsync always").run();
        let mut random = Rng::with_seed(11);
        let mut whole = 0;
        for _ in 0..KILLED_SERVERS {
            let (link, library) = (server.link(), Library::open(&library).unwrap());
            let source = thread::spawn(move || {
                let mut sent = whole;
                let is_answered = |number| {
                    let call = link.inject(&library, &written_by("k", number)).ok()?;
                    call.wait(PATIENCE).ok()
                };
                loop {
                    sent += 1;
                    if is_answered(sent).is_none() {
                        return sent;
                    }
                }
            });
            let pid = process_id(&server);
            thread::sleep(Duration::from_micros(random.u64(0..8_000)));
            kill(pid, Signal::KILL);
            (server, _) = server.start_after_crash();
            let sent = source.join().unwrap();
            let kept = whole_calls(&mut server.client(), "k");
            // The last call got no reply, so it may be there or not. All others are there.
            assert!(
                (sent - 1..=sent).contains(&kept),
                "{whole} were there, {sent} were sent, {kept} are there"
            );
            // A server that is killed during a write leaves a transaction without its end. Redis 7.0 cuts the file
            // inside that transaction, appends to it, and runs the rest of it at its next start. A new file has no such
            // end.
            rewrite_file(&server);
            whole = kept;
        }
        assert!(whole > 0, "no call was kept");
        drop(server.shut_down());
    });
}
