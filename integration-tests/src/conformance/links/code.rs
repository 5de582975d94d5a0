//! Code that a target does not have any more: dropped, or gone with an earlier run.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use farjump::{Error, Link, Mode, WaitError};

use super::calls::same;
use super::one_way_streams::witness_args;
use crate::conformance::failure::{Counted, Failure, ensure};
use crate::conformance::host::{Args, Fixture, PATIENCE};
use crate::conformance::libraries::Libraries;
use crate::conformance::pattern;

/// Number of times that code is lost.
const LOSSES: u64 = 8;
/// Number of times that a target is replaced.
const RESTARTS: u64 = 2;

/// Drops code with calls of it in flight: they wait for it, in order, and all run.
pub(in crate::conformance) fn lost_code(fixture: &Fixture) -> Counted {
    let mode = fixture.mode();
    let mut host = fixture.host(Args::Word)?;
    let asked = Arc::new(AtomicU64::new(0));
    let count = asked.clone();
    let link = host.link_with(|builder| builder.on_code_missing(move |_| _ = count.fetch_add(1, Relaxed)))?;
    let Libraries { echo, witness, .. } = fixture.libraries;
    let mut number = 0;
    for loss in 0..LOSSES {
        let mut calls = Vec::new();
        for call in 0..20 {
            if call == 10 {
                // Calls that have arrived by now have run; the others find no code.
                let held = host.drop_code(witness)? && host.drop_code(echo)?;
                // A target's own libraries do not return to the store after they are dropped from it. In mode in
                // place the target stores none.
                let holds = matches!(mode, Mode::Cached | Mode::Always);
                ensure!(held || loss == 0 || !holds, "the target did not hold the code");
            }
            link.send(witness, &witness_args(31, number, 16 + number as usize % 100))?;
            number += 1;
            let bytes = pattern::bytes(call * 7, loss, number);
            calls.push((link.inject(echo, &bytes)?, bytes));
        }
        for (call, bytes) in calls {
            same(&call.wait(PATIENCE)?, &bytes)?;
        }
    }
    link.flush(PATIENCE)?;
    let word = host.word()?;
    ensure!(word == number, "{number} calls in order, and {word} witnessed");
    let asked = asked.load(Relaxed);
    let lost = if mode == Mode::Cached { LOSSES..=u64::MAX } else { 0..=0 };
    ensure!(lost.contains(&asked), "code was lost {LOSSES} times and asked for {asked} times");
    travelled(&link, 2, mode)?;
    Ok(number)
}

/// Checks that code of `functions` travelled in as many frames as the mode requires. (Lost code is sent
/// beside the frames.)
pub(super) fn travelled(link: &Link, functions: u64, mode: Mode) -> Result<(), Failure> {
    let stats = link.stats();
    let due = match mode {
        Mode::Cached => functions,
        Mode::Always | Mode::InPlace => stats.frames,
        _ => 0,
    };
    ensure!(stats.frames_with_code == due, "code was to travel in {due} frames: {stats:?}");
    Ok(())
}

/// Ends the target with calls in flight, and lets another one take its place.
pub(in crate::conformance) fn restart(fixture: &Fixture) -> Counted {
    let mut host = fixture.host(Args::Word)?;
    let (asked, gone) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let (asks, ends) = (asked.clone(), gone.clone());
    let mut link = host.link_with(|builder| {
        builder
            .on_code_missing(move |_| _ = asks.fetch_add(1, Relaxed))
            .on_peer_gone(move |_| _ = ends.fetch_add(1, Relaxed))
    })?;
    let echo = &fixture.libraries.echo;
    let mut replied = 0;
    for round in 1..=RESTARTS {
        let epoch = link.epoch();
        same(&link.inject(echo, b"before")?.wait(PATIENCE)?, b"before")?;
        let calls: Vec<_> = (0..10)
            .map(|number| link.inject(echo, &pattern::bytes(50, round, number)))
            .collect::<Result<_, _>>()?;
        host.restart()?;
        for (number, call) in (0..).zip(calls) {
            match call.wait(PATIENCE) {
                Ok(reply) => same(&reply, &pattern::bytes(50, round, number))?,
                Err(Error::Wait(WaitError::PeerGone { .. })) => {}
                Err(error) => return Err(error.into()),
            }
        }
        let late = link.inject(echo, b"late").and_then(|call| call.wait(PATIENCE));
        ensure!(
            matches!(late, Err(Error::Wait(WaitError::PeerGone { .. }))),
            "a call of a target that is gone gives {late:?}"
        );
        let reported = gone.load(Relaxed);
        ensure!(reported == round, "the target went {round} times, the handler ran {reported} times");

        link.reconnect()?;
        ensure!(link.epoch() != epoch, "the new target has the old one's epoch");
        for number in 0..10 {
            let bytes = pattern::bytes(100, round, number);
            same(&link.inject(echo, &bytes)?.wait(PATIENCE)?, &bytes)?;
            replied += 1;
        }
        let asked = asked.load(Relaxed);
        let due = if fixture.mode() == Mode::Cached { round } else { 0 };
        ensure!(asked == due, "{round} new targets asked for the code {asked} times");
    }
    travelled(&link, 1, fixture.mode())?;
    Ok(replied)
}
