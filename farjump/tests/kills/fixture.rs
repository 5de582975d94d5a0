//! The fixture: a target, a source, a witness, and the signal that hits one of them.

use std::fs;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use farjump::{ConnectError, Error, Library, Link, LinkBuilder, WaitError};
use fastrand::Rng;
use rustix::process::Signal;
use tempfile::TempDir;

use crate::helper::{HelperProcess, link_to, listen, role, say};
use crate::journal::{Fate, Ledger, Outcome, Outlives};
use crate::scenario::{POLICIES, Scenario, Source, wait_policy};
use crate::support::{PATIENCE, library};

/// The test that the fixture's processes run.
const ENTRY: &str = "fixture::a_process_plays_the_role_that_it_was_started_for";

/// The process that the signal hits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Victim {
    Target,
    Source,
}

impl Victim {
    pub(crate) const BOTH: [Victim; 2] = [Victim::Target, Victim::Source];
}

/// The kind of hit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Hit {
    Kill,
    StopThenKill,
    /// The process is stopped for a while, and continues.
    Pause,
}

/// The transport of frames.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Over {
    /// `shm`, connected over a Unix socket.
    Shm,
    /// `tcp`, encrypted, over loopback.
    Tcp,
}

impl Over {
    /// The first target's address. For TCP the number is this process's own, so that no other process takes the port
    /// between two targets.
    fn address(self, folder: &Path) -> String {
        let [_, high, middle, low] = std::process::id().to_be_bytes();
        match self {
            Over::Shm => format!("unix:{}", folder.join("t.sock").display()),
            Over::Tcp => format!("tcp:127.{}.{middle}.{low}:0", 64 + high % 64),
        }
    }

    /// The transport for such an address.
    fn of_address(address: &str) -> Over {
        if address.starts_with("tcp:") { Over::Tcp } else { Over::Shm }
    }

    fn name(self) -> &'static str {
        match self {
            Over::Shm => "shm",
            Over::Tcp => "tcp",
        }
    }

    /// The part of a killed process's data that its peer receives.
    fn outlives(self) -> Outlives {
        match self {
            Over::Shm => Outlives::Everything,
            Over::Tcp => Outlives::WhatArrived,
        }
    }

    /// Files that targets leave in the folder.
    fn left_files(self) -> &'static [&'static str] {
        match self {
            Over::Shm => &["ledger", "t.sock"],
            Over::Tcp => &["ledger"],
        }
    }
}

/// A link to be made to the target at the address.
pub(crate) fn link(address: &str) -> LinkBuilder {
    link_to(address, Over::of_address(address).name())
}

/// A process's resources for its peers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Remains {
    descriptors: usize,
    /// Mappings of shared regions.
    regions: usize,
}

impl Remains {
    fn of(actor: &HelperProcess) -> Remains {
        Remains { descriptors: actor.descriptors(), regions: actor.regions().len() }
    }

    fn of_this_process() -> Remains {
        let maps = fs::read_to_string("/proc/self/maps").unwrap();
        Remains {
            descriptors: fs::read_dir("/proc/self/fd").unwrap().count(),
            regions: maps.lines().filter(|line| line.contains("memfd:farjump")).count(),
        }
    }
}

pub(crate) struct Fixture {
    folder: TempDir,
    /// Address of every target.
    address: String,
    ledger: Ledger,
    target: HelperProcess,
    /// A link of this process that no scenario touches.
    witness: Link,
    echo: Library,
    /// Resources of the target and this process while there is only the witness.
    quiet: (Remains, Remains),
}

impl Fixture {
    pub(crate) fn new(over: Over, random: &mut Rng) -> Fixture {
        let folder = farjump_fixtures::folder();
        let ledger = Ledger::create(&folder.path().join("ledger"));
        let (target, address) = start_target(folder.path(), &over.address(folder.path()), random);
        let witness = link(&address).connect_timeout(PATIENCE).connect().unwrap();
        let echo = library("echo");
        // Built before descriptors are counted.
        for name in ["entry", "entry_bulky"] {
            library(name);
        }
        let quiet = (Remains::of(&target), Remains::of_this_process());
        let fixture = Fixture { folder, address, ledger, target, witness, echo, quiet };
        fixture.is_witnessed();
        fixture
    }

    /// Plays a scenario in which `victim` is hit, checks for leaks, and makes a new link.
    pub(crate) fn round(
        &mut self,
        scenario: Scenario,
        victim: Victim,
        hit: Hit,
        random: &mut Rng,
    ) -> (Fate, Outcome) {
        self.ledger.clear();
        self.ledger.pages().hold.store(scenario.holds().into(), Ordering::Release);
        let (fate, failed_handshakes) = match victim {
            Victim::Target => self.hit_target(scenario, hit, random),
            Victim::Source => (self.hit_source(scenario, hit, random), false),
        };
        self.nothing_is_left();
        self.is_witnessed();
        let outcome = Outcome {
            failed_handshakes: failed_handshakes.into(),
            ..self.ledger.audit(fate, self.over().outlives())
        };

        self.ledger.clear();
        source(&self.ledger, &self.address).greet(random);
        self.nothing_is_left();
        self.ledger.audit(Fate::BothLive, self.over().outlives());
        (fate, outcome)
    }

    fn over(&self) -> Over {
        Over::of_address(&self.address)
    }

    /// Hits a target in another process; the source is a thread of this one. Also returns whether the source
    /// was in the handshake.
    fn hit_target(&mut self, scenario: Scenario, hit: Hit, random: &mut Rng) -> (Fate, bool) {
        let pid = self.target.pid().as_raw_nonzero().to_string();
        let (source, mut own) = (source(&self.ledger, &self.address), random.fork());
        let in_flight = self.witness.inject(&self.echo, b"in flight").unwrap();
        let played = thread::scope(|scope| {
            let playing = scope.spawn(|| source.play(scenario, &mut own));
            aim(&self.ledger, scenario, random, || playing.is_finished());
            strike(&mut self.target, &self.ledger, hit, random);
            if hit == Hit::Pause {
                self.ledger.finish();
            }
            playing.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        });
        let witnessed = in_flight.wait(PATIENCE);
        drop(source);
        if hit == Hit::Pause {
            played.unwrap();
            assert_eq!(*witnessed.unwrap(), *b"in flight");
            return (Fate::BothLive, false);
        }
        let address = &self.address;
        let error = played.expect_err("the target is gone");
        let failed_handshakes =
            matches!(error, Error::Connect(ConnectError::Handshake(_) | ConnectError::Connection(_)));
        assert!(failed_handshakes || matches!(error, Error::Wait(WaitError::PeerGone { .. })), "{error}");
        let text = error.to_string();
        // Until the preamble of a target on TCP has come, its name is the address of the connection.
        let number = address.strip_prefix("tcp:").unwrap_or(address);
        assert!(text.contains(number) || text.contains(&pid), "it does not name the target: {text}");
        match witnessed {
            Ok(reply) => assert_eq!(*reply, *b"in flight"),
            Err(error) => {
                assert!(
                    matches!(&error, Error::Wait(WaitError::PeerGone { peer, .. }) if peer == address),
                    "{error}"
                )
            }
        }
        // A Unix target leaves only its socket, which the next target takes over.
        let mut left: Vec<_> =
            fs::read_dir(self.folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        left.sort();
        assert_eq!(left, self.over().left_files());
        let (target, again) = start_target(self.folder.path(), address, random);
        assert_eq!(again, *address);
        self.target = target;
        self.witness.reconnect().unwrap();
        (Fate::TargetKilled, failed_handshakes)
    }

    /// Hits a source; both are other processes.
    fn hit_source(&mut self, scenario: Scenario, hit: Hit, random: &mut Rng) -> Fate {
        let folder = self.folder.path().to_str().unwrap();
        let args = [
            folder,
            &self.address,
            &random.u64(..).to_string(),
            &Scenario::ALL.iter().position(|other| *other == scenario).unwrap().to_string(),
        ];
        let mut source = HelperProcess::of_test(ENTRY, &[&["source"][..], &args].concat());
        aim(&self.ledger, scenario, random, || source.has_ended());
        strike(&mut source, &self.ledger, hit, random);
        self.ledger.finish();
        if hit == Hit::Pause {
            assert_eq!(source.hear(), "done");
            return Fate::BothLive;
        }
        Fate::SourceKilled
    }

    /// Waits until target and this process have exactly the resources of the quiet state.
    fn nothing_is_left(&self) {
        let begun = Instant::now();
        loop {
            let now = (Remains::of(&self.target), Remains::of_this_process());
            if now == self.quiet {
                return;
            }
            assert!(begun.elapsed() < PATIENCE, "target and source have {now:?}, and not {:?}", self.quiet);
            thread::sleep(Duration::from_micros(200));
        }
    }

    fn is_witnessed(&self) {
        let reply = self.witness.inject(&self.echo, b"seen").unwrap().wait(PATIENCE).unwrap();
        assert_eq!(*reply, *b"seen");
    }

    /// Ends the target; this process has no child then, alive or not.
    pub(crate) fn close(self) {
        drop(self.target);
        let children = rustix::process::waitpid(None, rustix::process::WaitOptions::NOHANG);
        assert_eq!(children.unwrap_err(), rustix::io::Errno::CHILD);
    }
}

/// A source in this process.
fn source<'l>(ledger: &'l Ledger, address: &str) -> Source<'l> {
    Source { ledger, address: address.to_owned(), entry: library("entry"), bulky: library("entry_bulky") }
}

/// A target in a process of its own, and its address.
fn start_target(folder: &Path, address: &str, random: &mut Rng) -> (HelperProcess, String) {
    let (policy, mailbox) = (random.usize(..POLICIES).to_string(), (1 << random.u32(21..=22)).to_string());
    let args = [folder.to_str().unwrap(), address, &policy, &mailbox];
    let target = HelperProcess::of_test(ENTRY, &[&["target"][..], &args].concat());
    let address = target.hear();
    (target, address)
}

/// Waits for the moment to send the signal.
fn aim(ledger: &Ledger, scenario: Scenario, random: &mut Rng, mut is_over: impl FnMut() -> bool) {
    let pages = ledger.pages();
    // Equally likely at the very start and far into it.
    let frames = match scenario {
        Scenario::CodeTravels => few_or_many(random, 5),
        Scenario::Reconnecting => few_or_many(random, 8),
        // The target replies to some twenty calls, and then waits until its source polls.
        Scenario::LookingAway => few_or_many(random, 8),
        _ => few_or_many(random, 11),
    };
    let due = || match scenario {
        Scenario::Connecting => pages.acting.load(Ordering::Acquire) != 0,
        // A link gets its journal between the handshake and the sending of its code.
        Scenario::CodeTravels => pages.links.load(Ordering::Acquire) > frames,
        Scenario::FunctionRuns | Scenario::Asleep => ledger.runs(),
        Scenario::MailboxFull => pages.full.load(Ordering::Acquire) != 0 && ledger.runs(),
        // The target sends a call's reply when the call ends.
        Scenario::ReplyTravels | Scenario::LookingAway => ledger.ended() > frames,
        _ => pages.acting.load(Ordering::Acquire) != 0 && ledger.begun() >= frames,
    };
    while !due() && !is_over() {
        thread::yield_now();
    }
    // In microseconds: a link takes milliseconds to make, and code takes a fraction of one to travel.
    let longest = match scenario {
        Scenario::Connecting => 15,
        Scenario::CodeTravels => 9,
        _ => 12,
    };
    pause(Duration::from_micros(few_or_many(random, longest)));
}

/// A number below 2^`bits`, every power of two being equally likely.
fn few_or_many(random: &mut Rng, bits: u32) -> u64 {
    let most = 1 << random.u32(..=bits);
    random.u64(..most)
}

/// Waits for exactly this length: the system's sleep is coarse.
fn pause(length: Duration) {
    let begun = Instant::now();
    while begun.elapsed() < length {
        thread::yield_now();
    }
}

fn strike(victim: &mut HelperProcess, ledger: &Ledger, hit: Hit, random: &mut Rng) {
    if hit != Hit::Kill {
        victim.signal(Signal::STOP);
        pause(Duration::from_micros(random.u64(..3000)));
    }
    match hit {
        Hit::Kill | Hit::StopThenKill => victim.kill(),
        Hit::Pause => victim.signal(Signal::CONT),
    }
    ledger.pages().struck.store(1, Ordering::Release);
}

/// The entry of the fixture's processes; without a role it does nothing.
#[test]
fn a_process_plays_the_role_that_it_was_started_for() {
    let role = role();
    match &role.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => {}
        ["target", folder, address, policy, mailbox] => {
            play_target(Path::new(folder), address, policy.parse().unwrap(), mailbox.parse().unwrap());
        }
        ["source", folder, address, seed, scenario] => {
            let scenario = Scenario::ALL[scenario.parse::<usize>().unwrap()];
            play_source(Path::new(folder), address, seed.parse().unwrap(), scenario);
        }
        other => panic!("no such role: {other:?}"),
    }
}

fn play_target(folder: &Path, address: &str, policy: usize, mailbox: usize) {
    let ledger = Ledger::open(&folder.join("ledger"));
    let builder = listen(address, Over::of_address(address).name())
        .mailbox_size(mailbox)
        .arena_size(1 << 23)
        .wait_policy(wait_policy(policy))
        // A source may be stopped for as long as the machine is busy with other work.
        .stall_timeout(PATIENCE)
        .handshake_timeout(PATIENCE);
    // SAFETY: the ledger has the type that the injected function expects, and lives as long as this process.
    let mut target = unsafe { builder.args_raw(ledger.as_ptr()) }.build().unwrap();
    say(&target.address());
    target.run().unwrap();
}

fn play_source(folder: &Path, address: &str, seed: u64, scenario: Scenario) {
    let ledger = Ledger::open(&folder.join("ledger"));
    source(&ledger, address).play(scenario, &mut Rng::with_seed(seed)).unwrap();
    say("done");
}
