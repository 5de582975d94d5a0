//! Sources and targets over shared memory and over encrypted streams, killed and stopped at random points,
//! again and again.
//!
//! A round has a scenario, which a source plays with a target. One of the two is killed or stopped meanwhile: after a
//! random time, or after an event of the scenario. A journal that outlives both (`journal.rs`) holds the calls run,
//! sent and replied, which are compared at the end of the round. Then the survivor must have freed everything of the
//! dead process, and a new link has to work.
//!
//! Scenarios, victims and times come from a seed. It is always the same one unless the environment variable
//! `KILLS_SEED` has another (a decimal number). A round that fails prints its seed.

mod counted_link;
mod fixture;
#[path = "../links/helper.rs"]
mod helper;
mod journal;
mod scenario;
#[path = "../support/mod.rs"]
mod support;

use std::sync::{Mutex, MutexGuard, PoisonError};

use fixture::{Fixture, Hit, Over, Victim};
use journal::{Fate, Outcome};
use scenario::Scenario;

/// Rounds over shared memory that end with a kill.
const KILLS: usize = 200;
/// Rounds over shared memory that end without a kill.
const PAUSES: usize = 60;
/// The same over `tcp`: each scenario has each victim twice with a kill, and once without.
const TCP_KILLS: usize = 40;
const TCP_PAUSES: usize = 20;
/// The seed, unless `KILLS_SEED` has another.
const SEED: u64 = 20_240_229;

/// Tests count their process's descriptors and children, so one runs at a time.
fn alone() -> MutexGuard<'static, ()> {
    static RUNNING: Mutex<()> = Mutex::new(());
    RUNNING.lock().unwrap_or_else(PoisonError::into_inner)
}

fn seed() -> u64 {
    match std::env::var("KILLS_SEED") {
        Ok(seed) => seed.parse().expect("KILLS_SEED is a decimal number"),
        Err(_) => SEED,
    }
}

/// Prints the round that failed.
struct Round {
    what: String,
    _watchdog: support::Watchdog,
}

impl Round {
    fn new(what: String) -> Round {
        Round { _watchdog: support::Watchdog::over(what.clone()), what }
    }
}

impl Drop for Round {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("this was {}", self.what);
        }
    }
}

/// Every scenario with every victim, in random order, over and over.
struct Deck(Vec<(Scenario, Victim)>);

impl Deck {
    fn draw(&mut self, random: &mut fastrand::Rng) -> (Scenario, Victim) {
        if self.0.is_empty() {
            self.0 = Scenario::ALL
                .iter()
                .flat_map(|scenario| Victim::BOTH.map(|victim| (*scenario, victim)))
                .collect();
            random.shuffle(&mut self.0);
        }
        self.0.pop().expect("it was filled")
    }
}

/// Plays rounds; `hit` chooses their ends.
fn rounds(
    over: Over,
    count: usize,
    hit: impl Fn(&mut fastrand::Rng) -> Hit,
) -> Vec<(Scenario, Fate, Outcome)> {
    let seed = seed();
    let mut random = fastrand::Rng::with_seed(seed);
    let mut fixture = Fixture::new(over, &mut random);
    let mut deck = Deck(Vec::new());
    let mut played = Vec::new();
    for number in 0..count {
        let (scenario, victim) = deck.draw(&mut random);
        let hit = hit(&mut random);
        let what =
            format!("round {number} of KILLS_SEED={seed} over {over:?}: {scenario:?}, {victim:?}, {hit:?}");
        let _round = Round::new(what);
        let (fate, outcome) = fixture.round(scenario, victim, hit, &mut random);
        played.push((scenario, fate, outcome));
    }
    fixture.close();
    played
}

/// Sums up the results of each scenario, for the output, and of all.
fn total(played: &[(Scenario, Fate, Outcome)]) -> Outcome {
    let mut all = Outcome::default();
    for scenario in Scenario::ALL {
        let mut sum = Outcome::default();
        played.iter().filter(|(other, ..)| *other == scenario).for_each(|(.., outcome)| sum += *outcome);
        println!("{scenario:?}: {sum:?}");
        all += sum;
    }
    println!("{} rounds: {all:?}", played.len());
    all
}

/// Plays rounds that end with a kill, and checks the losses of each.
fn kills(over: Over, count: usize) {
    let played = rounds(over, count, |random| match random.u8(..4) {
        0 => Hit::StopThenKill,
        _ => Hit::Kill,
    });
    // Checks that the hits came in the middle of the scenarios.
    for (scenario, fate, Outcome { cut, failed, unsent, failed_handshakes, .. }) in &played {
        match (scenario, fate) {
            (Scenario::Connecting, Fate::TargetKilled) => assert_eq!(*failed_handshakes, 1),
            (_, Fate::TargetKilled) if scenario.holds() => {
                assert_eq!((*cut, *failed), (1, 1), "{scenario:?}")
            }
            // A stream takes one more frame when the system has moved the sent bytes on.
            (Scenario::MailboxFull, Fate::SourceKilled) if over == Over::Shm => assert_eq!(*unsent, 1),
            _ => {}
        }
    }
    let all = total(&played);
    assert!(all.replied > 0 && all.failed > 0 && all.cut > 0 && all.unsent > 0 && all.failed_handshakes > 0);
}

#[test]
fn each_kill_over_shm_reports_every_lost_call_and_leaves_nothing() {
    let _alone = alone();
    kills(Over::Shm, KILLS);
}

#[test]
fn a_process_paused_over_shm_loses_nothing() {
    let _alone = alone();
    let played = rounds(Over::Shm, PAUSES, |_| Hit::Pause);
    assert!(total(&played).replied > 0);
}

#[test]
fn each_kill_over_sealed_streams_reports_every_lost_call_and_leaves_nothing() {
    let _alone = alone();
    kills(Over::Tcp, TCP_KILLS);
}

#[test]
fn a_process_paused_over_sealed_streams_loses_nothing() {
    let _alone = alone();
    let played = rounds(Over::Tcp, TCP_PAUSES, |_| Hit::Pause);
    assert!(total(&played).replied > 0);
}
