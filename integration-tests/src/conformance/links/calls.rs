//! Calls with replies: several in flight, replies of every length, several sources.

use std::time::{Duration, Instant};

use farjump::{Error, Link, Pending, WaitError};

use crate::conformance::failure::{Counted, Failure, ensure};
use crate::conformance::host::{Args, Fixture, Host, PATIENCE};
use crate::conformance::libraries::Libraries;
use crate::conformance::pattern;

const SIZES: [usize; 16] = [0, 1, 8, 31, 32, 33, 39, 40, 41, 63, 64, 65, 127, 1000, 4096, 20_000];
/// Lengths of payloads and replies, as far as the path's frames allow.
const REPLIES: [usize; 14] = [0, 1, 8, 39, 40, 41, 63, 64, 65, 4095, 4096, 30_000, 65_535, 65_536];
/// Calls in flight at once.
const IN_FLIGHT: u64 = 64;
/// Number of rounds of so many calls.
const ROUNDS: u64 = 8;
/// Calls of each of several sources: each of [`SIZES`] twice.
const EACH: u64 = 2 * SIZES.len() as u64;

/// Arguments for `fill`: `len` bytes of a frame's pattern.
pub(super) fn fill_args(len: usize, seed: u64, number: u64) -> [u8; 24] {
    let mut args = [0; 24];
    for (space, word) in args.chunks_exact_mut(8).zip([len as u64, seed, number]) {
        space.copy_from_slice(&word.to_le_bytes());
    }
    args
}

pub(super) fn same(found: &[u8], due: &[u8]) -> Result<(), Failure> {
    ensure!(found.len() == due.len(), "a reply of {} bytes, and not of {}", found.len(), due.len());
    match found.iter().zip(due).position(|(found, due)| found != due) {
        Some(byte) => Err(Failure::new(format!("byte {byte} of a reply of {} is wrong", due.len()))),
        None => Ok(()),
    }
}

/// Makes many calls in flight. Takes their outcomes in any order, by waiting and by polling, and cancels some calls.
pub(in crate::conformance) fn calls(fixture: &Fixture) -> Counted {
    let host = fixture.host(Args::Word)?;
    let link = host.link()?;
    let echo = &fixture.libraries.echo;
    let mut rng = fastrand::Rng::with_seed(11);
    let mut replied = 0;
    for round in 0..ROUNDS {
        let mut pending = Vec::new();
        for number in 0..IN_FLIGHT {
            let len = fixture.fitting(SIZES[rng.usize(0..SIZES.len())]);
            let bytes = pattern::bytes(len, round, number);
            pending.push((link.inject(echo, &bytes)?, bytes));
        }
        rng.shuffle(&mut pending);
        for (call, bytes) in pending {
            match rng.u8(0..4) {
                0 => call.cancel(),
                1 => same(&poll(call)?, &bytes)?,
                _ => same(&call.wait(PATIENCE)?, &bytes)?,
            }
            replied += 1;
        }
        let mut into = Vec::new();
        link.call_into(echo, b"one more", PATIENCE, &mut into)?;
        same(&into, b"one more")?;
    }
    Ok(replied)
}

/// Polls until the reply has come.
fn poll(mut call: Pending<'_>) -> Result<Vec<u8>, Failure> {
    let begun = Instant::now();
    loop {
        if let Some(reply) = call.poll()? {
            return Ok(reply.into_vec());
        }
        ensure!(begun.elapsed() < PATIENCE, "no answer to a call that is polled");
        std::thread::yield_now();
    }
}

/// Payloads and replies of every length up to 64 KiB, or to the path's limit.
pub(in crate::conformance) fn replies(fixture: &Fixture) -> Counted {
    let host = fixture.host(Args::Word)?;
    let link = host.link()?;
    let Libraries { echo, fill, .. } = fixture.libraries;
    let mut right = 0;
    for round in 0..3 {
        for (number, len) in (0..).zip(REPLIES.map(|len| fixture.fitting(len))) {
            let due = pattern::bytes(len, round, number);
            let asked = link.inject(fill, &fill_args(len, round, number))?;
            let sent = link.inject(echo, &due)?;
            same(&sent.wait(PATIENCE)?, &due).map_err(|failure| failure.at("echo"))?;
            same(&asked.wait(PATIENCE)?, &due).map_err(|failure| failure.at("fill"))?;
            right += 2;
        }
    }
    Ok(right)
}

/// Runs four sources at once, each in a thread of its own; then one ends, and the others continue.
pub(in crate::conformance) fn sources(fixture: &Fixture) -> Counted {
    let mut host = fixture.host(Args::Word)?;
    let links: Vec<Link> = (0..4).map(|_| host.link()).collect::<Result<_, _>>()?;
    let sizes = SIZES.map(|len| fixture.fitting(len));
    let replied = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..)
            .zip(links)
            .map(|(seed, link)| {
                let echo = &fixture.libraries.echo;
                scope.spawn(move || -> Counted {
                    for number in 0..EACH {
                        let bytes = pattern::bytes(sizes[number as usize % sizes.len()], seed, number);
                        same(&link.inject(echo, &bytes)?.wait(PATIENCE)?, &bytes)?;
                    }
                    Ok(EACH)
                })
            })
            .collect();
        threads.into_iter().try_fold(0, |sum, thread| {
            let one = thread.join().unwrap_or_else(|_| Err(Failure::new("a source's thread panicked")));
            one.map(|replied| sum + replied)
        })
    })?;
    // The four sources have ended with their threads.
    wait_for(&mut host, "all sources are gone", |host| Ok(host.counts()?.sources == 0))?;
    let link = host.link()?;
    same(&link.inject(&fixture.libraries.echo, b"still here")?.wait(PATIENCE)?, b"still here")?;
    let late = link.inject(&fixture.libraries.echo, b"no time")?.wait(Duration::ZERO);
    ensure!(
        matches!(late, Ok(_) | Err(Error::Wait(WaitError::TimedOut { .. }))),
        "an answer that is not waited for gives {late:?}"
    );
    Ok(replied + 1)
}

/// Waits until a condition holds.
pub(super) fn wait_for(
    host: &mut Host<'_>,
    what: &str,
    mut holds: impl FnMut(&mut Host<'_>) -> Result<bool, Failure>,
) -> Result<(), Failure> {
    let begun = Instant::now();
    while !holds(host)? {
        ensure!(begun.elapsed() < PATIENCE, "waited in vain until {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
    Ok(())
}
