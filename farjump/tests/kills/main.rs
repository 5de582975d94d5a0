//! Sources and targets over shared memory and over encrypted streams, killed and stopped at random points,
//! again and again.
//!
//! A round has a scene, which a source plays with a target, and one of the two is hit meanwhile: after a
//! random time, or after an event of the scene. A journal that outlives both (`journal.rs`) holds the calls
//! run, sent and answered; they are compared at the end of the round. Then the survivor must have freed
//! everything of the dead process, and a new link has to work.
//!
//! Scenes, victims and times come from a seed: the same one always unless the environment variable
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

use fixture::{Blow, Stage, Victim, Way, plays};
use helper::this_test;
use journal::{Fate, Outcome};
use scenario::Scene;

/// Rounds over shared memory that end with a kill.
const KILLS: usize = 200;
/// Rounds over shared memory that end without a kill.
const PAUSES: usize = 60;
/// The same over `tcp`: each scene has each victim twice, and once.
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

/// Every scene with every victim, in random order, over and over.
struct Deck(Vec<(Scene, Victim)>);

impl Deck {
    fn draw(&mut self, dice: &mut fastrand::Rng) -> (Scene, Victim) {
        if self.0.is_empty() {
            self.0 =
                Scene::ALL.iter().flat_map(|scene| Victim::BOTH.map(|victim| (*scene, victim))).collect();
            dice.shuffle(&mut self.0);
        }
        self.0.pop().expect("it was filled")
    }
}

/// Plays rounds; `blow` chooses their ends.
fn rounds(
    test: &str,
    way: Way,
    count: usize,
    blow: impl Fn(&mut fastrand::Rng) -> Blow,
) -> Vec<(Scene, Fate, Outcome)> {
    let seed = seed();
    let mut dice = fastrand::Rng::with_seed(seed);
    let mut stage = Stage::new(test, way, &mut dice);
    let mut deck = Deck(Vec::new());
    let mut played = Vec::new();
    for number in 0..count {
        let (scene, victim) = deck.draw(&mut dice);
        let blow = blow(&mut dice);
        let what = format!("round {number} of KILLS_SEED={seed} by {way:?}: {scene:?}, {victim:?}, {blow:?}");
        let _round = Round::new(what);
        let (fate, outcome) = stage.round(scene, victim, blow, &mut dice);
        played.push((scene, fate, outcome));
    }
    stage.close();
    played
}

/// Sums up the results of each scene, for the output, and of all.
fn total(played: &[(Scene, Fate, Outcome)]) -> Outcome {
    let mut all = Outcome::default();
    for scene in Scene::ALL {
        let mut sum = Outcome::default();
        played.iter().filter(|(other, ..)| *other == scene).for_each(|(.., outcome)| sum += *outcome);
        println!("{scene:?}: {sum:?}");
        all += sum;
    }
    println!("{} rounds: {all:?}", played.len());
    all
}

/// Plays rounds that end with a kill, and checks the losses of each.
fn kills(test: &str, way: Way, count: usize) {
    let played = rounds(test, way, count, |dice| match dice.u8(..4) {
        0 => Blow::StopThenKill,
        _ => Blow::Kill,
    });
    // Checks that the hits came in the middle of the scenes.
    for (scene, fate, Outcome { cut, failed, unsent, unmet, .. }) in &played {
        match (scene, fate) {
            (Scene::Meeting, Fate::TargetKilled) => assert_eq!(*unmet, 1),
            (_, Fate::TargetKilled) if scene.holds() => assert_eq!((*cut, *failed), (1, 1), "{scene:?}"),
            // A stream takes one more frame when the system has moved on the sent bytes.
            (Scene::MailboxFull, Fate::SourceKilled) if way == Way::Shm => assert_eq!(*unsent, 1),
            _ => {}
        }
    }
    let all = total(&played);
    assert!(all.answered > 0 && all.failed > 0 && all.cut > 0 && all.unsent > 0 && all.unmet > 0);
}

#[test]
fn of_200_kills_each_tells_of_every_call_it_cost_and_leaves_nothing_behind() {
    if plays() {
        return;
    }
    let _alone = alone();
    kills(this_test!(), Way::Shm, KILLS);
}

#[test]
fn who_is_stopped_and_goes_on_loses_nothing() {
    if plays() {
        return;
    }
    let _alone = alone();
    let played = rounds(this_test!(), Way::Shm, PAUSES, |_| Blow::Pause);
    assert!(total(&played).answered > 0);
}

#[test]
fn of_kills_over_sealed_streams_each_tells_of_every_call_it_cost_and_leaves_nothing_behind() {
    if plays() {
        return;
    }
    let _alone = alone();
    kills(this_test!(), Way::Tcp, TCP_KILLS);
}

#[test]
fn a_process_that_is_stopped_over_sealed_streams_and_goes_on_loses_nothing() {
    if plays() {
        return;
    }
    let _alone = alone();
    let played = rounds(this_test!(), Way::Tcp, TCP_PAUSES, |_| Blow::Pause);
    assert!(total(&played).answered > 0);
}
