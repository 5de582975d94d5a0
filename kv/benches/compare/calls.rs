//! Empty calls, one by one and 64 together.

use std::rc::Rc;

use farjump_benches::rounds::{Group, Limit, Result};
use farjump_fixtures::process::PATIENCE;

use crate::client::request;
use crate::setup::{Place, Rig, State};

/// Number of calls of a measurement: few if the server sleeps before each.
fn count(rig: &Rig<'_>, awake: usize) -> usize {
    match (rig.fixture.state, rig.place) {
        // Each call may wait until the system takes the processor from a process that spins.
        (State::Spinning, Place::OneCore) => 5,
        (State::Asleep, _) => 50,
        _ => awake,
    }
}

/// Empty calls, one after another.
///
/// # Errors
/// When a library cannot be opened.
pub(crate) fn empty<'a>(rig: &'a Rig<'a>) -> Result<Group<'a>> {
    let count = count(rig, 1000);
    let library = rig.fixture.library("empty")?;
    let mut group = Group::new();
    group.subject("farjump", move || rig.time(count, || rig.call(&library, &[]).map(drop)));
    let commands: [(&'static str, &[&[u8]]); 3] = [
        ("FCALL", &[b"FCALL", b"empty", b"0"]),
        ("PING", &[b"PING"]),
        ("module command", &[b"COMPARE.EMPTY"]),
    ];
    for (name, words) in commands {
        let request = request(words);
        group.case(name, move || rig.time(count, || rig.client.borrow_mut().run(&request).map(drop)));
    }
    match (rig.fixture.state, rig.place) {
        (State::Asleep, Place::Apart) => group.bound("FCALL", Limit::TimesAsLong(0.6)),
        (State::Asleep, _) => group.bound("FCALL", Limit::TimesAsLong(0.7)),
        (State::Spinning, Place::Apart | Place::Unpinned) => group.bound("FCALL", Limit::TimesAsLong(0.1)),
        _ => {}
    }
    Ok(group)
}

/// Number of calls that are sent together.
const TOGETHER: usize = 64;

/// Empty calls that want replies, 64 together. Times are for all of them.
///
/// # Errors
/// When a library cannot be opened.
pub(crate) fn together<'a>(rig: &'a Rig<'a>) -> Result<Group<'a>> {
    let count = count(rig, 200);
    let library = Rc::new(rig.fixture.library("empty")?);
    let mut group = Group::new();
    let given = library.clone();
    let mut pending = Vec::with_capacity(TOGETHER);
    group.subject("farjump, Link::group", move || {
        rig.time(count, || {
            let mut calls = rig.link.group();
            for _ in 0..TOGETHER {
                pending.push(calls.inject(&given, &[])?);
            }
            calls.finish()?;
            pending.drain(..).try_for_each(|call| call.wait(PATIENCE).map(drop).map_err(Into::into))
        })
    });
    let mut pending = Vec::with_capacity(TOGETHER);
    group.case("farjump, each wakes the server", move || {
        rig.time(count, || {
            for _ in 0..TOGETHER {
                pending.push(rig.link.inject(&library, &[])?);
            }
            pending.drain(..).try_for_each(|call| call.wait(PATIENCE).map(drop).map_err(Into::into))
        })
    });
    let commands: [(&'static str, &[&[u8]]); 2] =
        [("FCALL, pipelined", &[b"FCALL", b"empty", b"0"]), ("PING, pipelined", &[b"PING"])];
    for (name, words) in commands {
        let requests = request(words).repeat(TOGETHER);
        group.case(name, move || {
            rig.time(count, || rig.client.borrow_mut().pipeline(&requests, TOGETHER, |_, _| {}))
        });
    }
    match (rig.fixture.state, rig.place) {
        (State::Asleep, Place::Apart) => group.bound("FCALL, pipelined", Limit::Sooner(5.0)),
        (State::Lingering, Place::Apart) => group.bound("FCALL, pipelined", Limit::Sooner(10.0)),
        (_, Place::OneCore) => group.bound("FCALL, pipelined", Limit::Sooner(1.0)),
        _ => {}
    }
    Ok(group)
}
