//! The fixture: a target, a source, a witness, and the hit.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use farjump::{
    ConnectError, Error, Key, Library, Link, LinkBuilder, Target, TargetBuilder, WaitError, WaitPolicy,
};
use fastrand::Rng;
use rustix::process::Signal;
use tempfile::TempDir;

use crate::helper::{HelperProcess, commands, role, say};
use crate::journal::{Fate, Ledger, Outcome, Outlives};
use crate::scenario::{Scene, Source};
use crate::support::{PATIENCE, library, library_path};

/// The process that is hit.
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
pub(crate) enum Blow {
    Kill,
    StopThenKill,
    /// It is stopped for a while and continues.
    Pause,
}

/// The path of frames.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Way {
    /// By `shm`, connected over a Unix socket.
    Shm,
    /// By `tcp`, encrypted, over loopback.
    #[cfg_attr(not(feature = "tcp"), allow(dead_code, reason = "it is not built in"))]
    Tcp,
}

impl Way {
    /// The first target's address. For TCP the number is this process's own, so that no other takes the port
    /// between two targets.
    fn address(self, folder: &Path) -> String {
        let [_, high, middle, low] = std::process::id().to_be_bytes();
        match self {
            Way::Shm => format!("unix:{}", folder.join("t.sock").display()),
            Way::Tcp => format!("tcp:127.{}.{middle}.{low}:0", 64 + high % 64),
        }
    }

    /// The way for such an address.
    fn to(address: &str) -> Way {
        if address.starts_with("tcp:") { Way::Tcp } else { Way::Shm }
    }

    /// The part of a killed process's data that its peer receives.
    fn outlives(self) -> Outlives {
        match self {
            Way::Shm => Outlives::Everything,
            Way::Tcp => Outlives::WhatArrived,
        }
    }

    /// Files that targets leave in the folder.
    fn left(self) -> &'static [&'static str] {
        match self {
            Way::Shm => &["ledger", "t.sock"],
            Way::Tcp => &["ledger"],
        }
    }
}

/// A target to listen at the address.
fn listen<'a>(address: &str) -> TargetBuilder<'a> {
    match Way::to(address) {
        Way::Shm => Target::listen(address),
        Way::Tcp => Target::listen(address).transport("tcp").key(key()),
    }
}

/// A link to be made to it.
pub(crate) fn link(address: &str) -> LinkBuilder {
    match Way::to(address) {
        Way::Shm => Link::builder(address),
        Way::Tcp => Link::builder(address).transport("tcp").key(key()),
    }
}

fn key() -> Key {
    Key::from_bytes([7; Key::LEN])
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

pub(crate) struct Stage<'t> {
    test: &'t str,
    folder: TempDir,
    /// Address of every target.
    address: String,
    ledger: Ledger,
    target: HelperProcess,
    /// A link of this process that no scene touches.
    witness: Link,
    echo: Library,
    /// Resources of the target and this process while there is only the witness.
    quiet: (Remains, Remains),
}

impl<'t> Stage<'t> {
    pub(crate) fn new(test: &'t str, way: Way, dice: &mut Rng) -> Stage<'t> {
        let folder = TempDir::new().unwrap();
        let ledger = Ledger::create(&folder.path().join("ledger"));
        let (target, address) = raise(test, folder.path(), &way.address(folder.path()), dice);
        let witness = link(&address).connect_timeout(PATIENCE).connect().unwrap();
        let echo = library("echo");
        // Built before descriptors are counted.
        for name in ["entry", "entry_bulky"] {
            library(name);
        }
        let quiet = (Remains::of(&target), Remains::of_this_process());
        let stage = Stage { test, folder, address, ledger, target, witness, echo, quiet };
        stage.is_witnessed();
        stage
    }

    /// Plays a scene in which `victim` is hit, checks for leaks, and makes a new link.
    pub(crate) fn round(
        &mut self,
        scene: Scene,
        victim: Victim,
        blow: Blow,
        dice: &mut Rng,
    ) -> (Fate, Outcome) {
        self.ledger.clear();
        self.ledger.pages().hold.store(scene.holds().into(), Ordering::Release);
        let (fate, unmet) = match victim {
            Victim::Target => self.hit_target(scene, blow, dice),
            Victim::Source => (self.hit_source(scene, blow, dice), false),
        };
        self.nothing_is_left();
        self.is_witnessed();
        let outcome = Outcome { unmet: unmet.into(), ..self.ledger.audit(fate, self.way().outlives()) };

        self.ledger.clear();
        source(&self.ledger, &self.address).greet(dice);
        self.nothing_is_left();
        self.ledger.audit(Fate::BothLive, self.way().outlives());
        (fate, outcome)
    }

    fn way(&self) -> Way {
        Way::to(&self.address)
    }

    /// Hits a target in another process; the source is a thread of this one. Also returns whether the source
    /// was in the handshake.
    fn hit_target(&mut self, scene: Scene, blow: Blow, dice: &mut Rng) -> (Fate, bool) {
        let pid = self.target.pid().as_raw_nonzero().to_string();
        let (source, mut own) = (source(&self.ledger, &self.address), dice.fork());
        let in_flight = self.witness.inject(&self.echo, b"in flight").unwrap();
        let played = thread::scope(|scope| {
            let playing = scope.spawn(|| source.play(scene, &mut own));
            aim(&self.ledger, scene, dice, || playing.is_finished());
            strike(&mut self.target, &self.ledger, blow, dice);
            if blow == Blow::Pause {
                self.ledger.finish();
            }
            playing.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        });
        let witnessed = in_flight.wait(PATIENCE);
        drop(source);
        if blow == Blow::Pause {
            played.unwrap();
            assert_eq!(*witnessed.unwrap(), *b"in flight");
            return (Fate::BothLive, false);
        }
        let address = &self.address;
        let error = played.expect_err("the target is gone");
        let unmet = matches!(error, Error::Connect(ConnectError::Handshake(_) | ConnectError::Connection(_)));
        assert!(unmet || matches!(error, Error::Wait(WaitError::PeerGone { .. })), "{error}");
        let text = error.to_string();
        // Until its preamble has come, a target on TCP goes by the address that was connected to.
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
        assert_eq!(left, self.way().left());
        let (target, again) = raise(self.test, self.folder.path(), address, dice);
        assert_eq!(again, *address);
        self.target = target;
        self.witness.reconnect().unwrap();
        (Fate::TargetKilled, unmet)
    }

    /// Hits a source; both are other processes.
    fn hit_source(&mut self, scene: Scene, blow: Blow, dice: &mut Rng) -> Fate {
        let folder = self.folder.path().to_str().unwrap();
        let (entry, bulky) = (library_path("entry"), library_path("entry_bulky"));
        let args = [
            folder,
            &self.address,
            entry.to_str().unwrap(),
            bulky.to_str().unwrap(),
            &dice.u64(..).to_string(),
            &Scene::ALL.iter().position(|other| *other == scene).unwrap().to_string(),
        ];
        let mut source = HelperProcess::of_test(self.test, &[&["source"][..], &args].concat());
        aim(&self.ledger, scene, dice, || source.has_ended());
        strike(&mut source, &self.ledger, blow, dice);
        self.ledger.finish();
        if blow == Blow::Pause {
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
fn raise(test: &str, folder: &Path, address: &str, dice: &mut Rng) -> (HelperProcess, String) {
    let (policy, mailbox) = (dice.usize(..3).to_string(), (1 << dice.u32(21..=22)).to_string());
    let args = [folder.to_str().unwrap(), address, &policy, &mailbox];
    let target = HelperProcess::of_test(test, &[&["target"][..], &args].concat());
    let address = target.hear();
    (target, address)
}

/// Waits for the moment to strike.
fn aim(ledger: &Ledger, scene: Scene, dice: &mut Rng, mut is_over: impl FnMut() -> bool) {
    let pages = ledger.pages();
    // Equally likely at the very start and far into it.
    let frames = match scene {
        Scene::CodeTravels => few_or_many(dice, 5),
        Scene::Reconnecting => few_or_many(dice, 8),
        // The target answers some twenty, and waits for its source to poll.
        Scene::LookingAway => few_or_many(dice, 8),
        _ => few_or_many(dice, 11),
    };
    let due = || match scene {
        Scene::Meeting => pages.acting.load(Ordering::Acquire) != 0,
        // Between the handshake and the code's sending a link gets its journal.
        Scene::CodeTravels => pages.links.load(Ordering::Acquire) > frames,
        Scene::FunctionRuns | Scene::Asleep => ledger.runs(),
        Scene::MailboxFull => pages.full.load(Ordering::Acquire) != 0 && ledger.runs(),
        // When a call ends its reply is sent.
        Scene::ReplyTravels | Scene::LookingAway => ledger.ended() > frames,
        _ => pages.acting.load(Ordering::Acquire) != 0 && ledger.begun() >= frames,
    };
    while !due() && !is_over() {
        thread::yield_now();
    }
    // In microseconds: links take milliseconds to make, code a fraction of one to travel.
    let longest = match scene {
        Scene::Meeting => 15,
        Scene::CodeTravels => 9,
        _ => 12,
    };
    pause(Duration::from_micros(few_or_many(dice, longest)));
}

/// A number below 2^`bits`, every power of two being equally likely.
fn few_or_many(dice: &mut Rng, bits: u32) -> u64 {
    let most = 1 << dice.u32(..=bits);
    dice.u64(..most)
}

/// Waits for exactly this length: the system's sleep is coarse.
fn pause(length: Duration) {
    let begun = Instant::now();
    while begun.elapsed() < length {
        thread::yield_now();
    }
}

fn strike(victim: &mut HelperProcess, ledger: &Ledger, blow: Blow, dice: &mut Rng) {
    if blow != Blow::Kill {
        victim.signal(Signal::STOP);
        pause(Duration::from_micros(dice.u64(..3000)));
    }
    match blow {
        Blow::Kill | Blow::StopThenKill => victim.kill(),
        Blow::Pause => victim.signal(Signal::CONT),
    }
    ledger.pages().struck.store(1, Ordering::Release);
}

/// Plays a role if this process was started for one; the test then returns.
pub(crate) fn plays() -> bool {
    let role = role();
    match &role.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => return false,
        ["target", folder, address, policy, mailbox] => {
            play_target(Path::new(folder), address, policy.parse().unwrap(), mailbox.parse().unwrap());
        }
        ["source", folder, address, entry, bulky, seed, scene] => {
            let scene = Scene::ALL[scene.parse::<usize>().unwrap()];
            let libraries = [entry, bulky].map(PathBuf::from);
            play_source(Path::new(folder), address, libraries, seed.parse().unwrap(), scene);
        }
        other => panic!("no such role: {other:?}"),
    }
    true
}

/// Ends this process, whatever its state, when its parent is gone.
fn end_with_parent() {
    thread::spawn(|| {
        commands().for_each(drop);
        std::process::exit(1);
    });
}

fn play_target(folder: &Path, address: &str, policy: usize, mailbox: usize) {
    end_with_parent();
    let ledger = Ledger::open(&folder.join("ledger"));
    let policies = [
        WaitPolicy::sleep_only(),
        WaitPolicy { spins: 100, pauses: 0, yields: 0 },
        WaitPolicy::for_cores(2, 2),
    ];
    let builder = listen(address)
        .mailbox_size(mailbox)
        .arena_size(1 << 23)
        .wait_policy(policies[policy])
        // A stopped source may be so for as long as the machine is busy with other work.
        .stall_timeout(PATIENCE)
        .handshake_timeout(PATIENCE);
    // SAFETY: the ledger has the type that the injected function expects, and lives as long as this process.
    let mut target = unsafe { builder.args_raw(ledger.as_ptr()) }.build().unwrap();
    say(&target.address());
    target.run().unwrap();
}

fn play_source(folder: &Path, address: &str, [entry, bulky]: [PathBuf; 2], seed: u64, scene: Scene) {
    end_with_parent();
    let ledger = Ledger::open(&folder.join("ledger"));
    let source = Source {
        ledger: &ledger,
        address: address.to_owned(),
        entry: Library::open(entry).unwrap(),
        bulky: Library::open(bulky).unwrap(),
    };
    source.play(scene, &mut Rng::with_seed(seed)).unwrap();
    say("done");
}
