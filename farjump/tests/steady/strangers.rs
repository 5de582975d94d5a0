//! Bounds on a target's work for processes without the key, by count: its system calls in one turn, the bytes that it
//! reads, and its memory.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use farjump::{Key, Link, Target, WaitPolicy};
use farjump_fixtures::allocation;
use farjump_fixtures::by_hand::{KEYED, opening};
use farjump_fixtures::helper_process::role;
use farjump_fixtures::this_test;

use crate::support::{Pair, Watchdog, library, to_words, while_polling};
use crate::traced::{self, Traces, mark};

/// Rounds, in each of which the honest link calls once.
const ROUNDS: u64 = 30;
/// Connections that strangers make at once, in each of the first rounds. The system keeps no more until the target
/// accepts them.
const TOGETHER: usize = 120;
/// Number of those rounds.
const BURSTS: u64 = 4;
/// Turns of the target within which a call of the honest link gets its reply.
const MOST_TURNS: usize = 50;
/// Most bytes of the target's memory for all strangers.
const MOST_HELD: i64 = 512 << 10;

/// Connections that the target accepts in a turn. Its system calls in a turn are for each of these, and for each of
/// as many connections that have events.
const ACCEPTED: u64 = 64;
const CALLS: u64 = 64 * 24;
/// Bytes that the target reads from a connection without token and key: the length of a stream's opening. The first
/// part of a handshake has two less.
const READ: u64 = 64;

/// A connection of a stranger, and its behaviour.
struct Stranger {
    stream: TcpStream,
    /// Bytes that it sends, one in each round.
    trickle: Vec<u8>,
    /// Bytes that it sends as often as its socket takes them.
    flood: Vec<u8>,
}

impl Stranger {
    fn new(address: &str, number: usize) -> Stranger {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_nonblocking(true).unwrap();
        let opening = opening(&[9; 32]).to_vec();
        let handshake = [&KEYED[..], &[48, 0], &[7; 48]].concat();
        let garbage = vec![0x5a; 64 << 10];
        let (trickle, flood) = match number % 6 {
            0 => (Vec::new(), Vec::new()),
            1 => (opening, Vec::new()),
            2 => (handshake, Vec::new()),
            3 => (Vec::new(), [opening, garbage].concat()),
            4 => (Vec::new(), [handshake, garbage].concat()),
            _ => (Vec::new(), garbage),
        };
        let trickle = trickle.into_iter().rev().collect();
        Stranger { stream, trickle, flood }
    }

    /// Does its actions of a round. It continues after the target has closed it.
    fn act(&mut self) {
        if let Some(byte) = self.trickle.pop() {
            let _ = self.stream.write(&[byte]);
        }
        while !self.flood.is_empty() && self.stream.write(&self.flood).is_ok() {}
    }

    /// Returns whether the target has closed it.
    fn is_closed(&mut self) -> bool {
        loop {
            match self.stream.read(&mut [0; 256]) {
                Ok(0) => return true,
                Ok(_) => {}
                Err(error) => return error.kind() != ErrorKind::WouldBlock,
            }
        }
    }
}

/// A turn of the target: it handles events, and it polls. Each half is a phase of its own.
fn turn(target: &mut Target<'_>) {
    mark();
    target.wait(Duration::ZERO).unwrap();
    mark();
    mark();
    target.poll().unwrap();
    mark();
}

/// The child's part.
fn play() {
    let _watchdog = Watchdog::new();
    let key = || Key::from_bytes([7; Key::LEN]);
    let count: &'static mut u64 = Box::leak(Box::new(0));
    let mut target = Target::listen("tcp:127.0.0.1:0")
        .transport("tcp")
        .key(key())
        .args(count)
        .handshake_timeout(Duration::from_millis(1500))
        .build()
        .unwrap();
    let address = target.address();
    let link = Link::builder(&address).transport("tcp").key(key()).wait_policy(WaitPolicy::spin_only());
    let link = while_polling(&mut target, || link.connect()).unwrap();
    let mut pair = Pair { link, target };
    let tally = library("tally");
    pair.call(&tally, b"").unwrap();
    let Pair { link, mut target } = pair;

    traced::wait_for_tracer();
    let address = &address["tcp:".len()..];
    let (mut strangers, mut held) = (Vec::new(), 0);
    for round in 0..ROUNDS {
        let before = allocation::live();
        if round < BURSTS {
            strangers.extend((0..TOGETHER).map(|number| Stranger::new(address, number)));
        }
        strangers.iter_mut().for_each(Stranger::act);
        held -= allocation::live() - before;
        let mut call = link.inject(&tally, &round.to_ne_bytes()).unwrap();
        let mut turns = 0;
        let reply = loop {
            assert!(turns < MOST_TURNS, "no answer in {turns} turns");
            turn(&mut target);
            turns += 1;
            if let Some(reply) = call.poll().unwrap() {
                break reply;
            }
        };
        assert_eq!(to_words(&reply), [round + 2], "each call runs once");
        drop(reply);
        drop(call);
        let now = allocation::live() + held;
        assert!(now <= MOST_HELD, "{now} bytes in round {round}");
    }
    // The target closes all of them, including those that still send, when a handshake would be too late.
    while !strangers.iter_mut().all(Stranger::is_closed) {
        strangers.iter_mut().for_each(Stranger::act);
        turn(&mut target);
    }
    assert_eq!(target.sources(), 1);
    assert_eq!(target.stats().calls, ROUNDS + 1);
}

#[test]
fn unauthenticated_connections_cost_bounded_system_calls_and_reads_in_each_turn() {
    if !role().is_empty() {
        return play();
    }
    let Traces { phases, longest } = traced::run(this_test!());
    let turns: Vec<_> = phases.iter().step_by(2).collect();
    let accepted = turns.iter().map(|turn| turn.accepted).max().unwrap();
    let calls = turns.iter().max_by_key(|turn| turn.all()).unwrap();
    println!("{} turns, of which one accepts {accepted}; most calls {calls:?}; {longest} bytes", turns.len());
    assert_eq!(accepted, ACCEPTED, "there were more, and so many are taken at a time");
    assert!(calls.all() <= CALLS, "{calls:?}");
    assert!(longest <= READ, "{longest} bytes of one");
}
