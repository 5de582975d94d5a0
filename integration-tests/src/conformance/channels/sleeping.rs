//! Sleeping: a frame that arrives while its receiver falls asleep is found, and a sleeping receiver is woken.

use std::thread;
use std::time::Duration;

use farjump_core::channel::{Armed, Channel};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::connect::{ChannelPair, judge};
use super::stream::{Company, Patience, Receiver, Sender, Style, both};
use crate::conformance::failure::{Counted, Failure, ensure};
use crate::conformance::subject::Subject;

const RING: usize = 16 << 10;
/// Longer than any scheduler pauses a thread: a receiver that still sleeps then was not woken.
const WAKE_TIMEOUT: Timespec = Timespec { tv_sec: 20, tv_nsec: 0 };
const NAP: Duration = Duration::from_millis(1);
/// Longest pause before a frame is replied to, in turns.
const DAWDLE: u32 = 3_000;

/// Passes a frame to and fro between two threads that go to sleep after each.
pub(super) fn sleeping(subject: &Subject) -> Counted {
    // A nap is a millisecond, a wake-up some microseconds.
    let rounds = if subject.wakes() { subject.frames(2, 200) } else { 100 };
    let (mut left, mut right, keep) = ChannelPair::connect(subject, RING, RING / 2)?.split();
    let company = Company::default();
    let sleeps = thread::scope(|scope| {
        let other =
            scope.spawn(|| company.work(&mut right, |channel| play(channel, false, rounds, &company)));
        let here = company.work(&mut left, |channel| play(channel, true, rounds, &company));
        let other = other.join().unwrap_or_else(|_| Err(Failure::new("the other end's thread panicked")));
        both(here, other)
    })?;
    drop((left, right));
    judge(&keep)?;
    ensure!(sleeps > 0, "nobody slept in {rounds} rounds");
    Ok(sleeps)
}

/// Plays one end of the game; returns its number of sleeps.
fn play(channel: &mut Channel, begins: bool, rounds: u64, company: &Company) -> Counted {
    let style = |seed| Style { seed, sizes: &[0, 40, 41, 700], varied: false };
    let (out, back) = if begins { (50, 51) } else { (51, 50) };
    let (mut sender, mut receiver) = (Sender::new(style(out)), Receiver::new(style(back)));
    let mut rng = fastrand::Rng::with_seed(out);
    let mut sleeps = 0;
    for round in 0..rounds {
        if begins || round > 0 {
            throw(channel, &mut sender)?;
        }
        sleeps += catch(channel, &mut receiver, company)?;
        // With this pause, frames arrive while the other is awake, falling asleep, and asleep.
        for _ in 0..rng.u32(0..DAWDLE) {
            std::hint::spin_loop();
        }
    }
    if !begins {
        throw(channel, &mut sender)?;
    }
    Ok(sleeps)
}

fn throw(channel: &mut Channel, sender: &mut Sender<'_>) -> Result<(), Failure> {
    let mut patience = Patience::new();
    while !sender.send(channel)? {
        channel.progress(false)?;
        patience.stuck(|| "there is no space for one frame".into())?;
    }
    Ok(())
}

/// Sleeps until the next frame has arrived.
fn catch(channel: &mut Channel, receiver: &mut Receiver<'_>, company: &Company) -> Counted {
    let mut sleeps = 0;
    let mut patience = Patience::new();
    while !receiver.take(channel)? {
        company.check()?;
        channel.progress(true)?;
        match channel.arm()? {
            Armed::Ready => {}
            Armed::Nap => {
                thread::sleep(NAP);
                sleeps += 1;
            }
            Armed::Sleep => {
                let Some(descriptor) = channel.descriptor() else {
                    return Err(Failure::new("it would sleep on a descriptor, and has none"));
                };
                let woken =
                    poll(&mut [PollFd::from_borrowed_fd(descriptor, PollFlags::IN)], Some(&WAKE_TIMEOUT))?;
                channel.disarm()?;
                ensure!(woken > 0, "it was not woken for frame {} in 20 s", receiver.taken());
                sleeps += 1;
            }
        }
        channel.disarm()?;
        patience.stuck(|| format!("frame {} does not come", receiver.taken()))?;
    }
    Ok(sleeps)
}
