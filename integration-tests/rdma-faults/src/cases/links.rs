//! Links whose peer stops or dies, and whose own port goes down.

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use farjump::{Error, InjectError, WaitError};
use rustix::process::Signal;

use crate::Done;
use crate::endpoints::{honest, passes, says};
use crate::helper::{library, start};
use crate::machine::Machine;
use crate::source::{Account, FOREVER, LENGTHS, check_replies, link, stream};
use crate::target::Played;

/// A wait whose timeout is expected.
const SHORT: Duration = Duration::from_millis(500);
/// A word in errors about a port that is down: that it went down, its present state, or that it may be down. The last
/// is for requests that fail before the device and the system report the state.
const PORT_DOWN: &[&str] = &["down"];

pub(crate) fn standing_still(backend: &str) -> Done {
    let mut target = Played::start(backend);
    let witness = library("witness");
    let link = link(backend, &target.address).send_timeout(SHORT).connect().unwrap();
    let call = |number: u64| link.inject(&witness, &[number.to_le_bytes(), [0; 8]].concat());
    for round in 0..2 {
        let first = target.count().0;
        call(first).unwrap().wait(FOREVER).unwrap();
        target.process.signal(Signal::STOP);
        let mut calls = Vec::new();
        let full = loop {
            match call(first + 1 + calls.len() as u64) {
                Ok(pending) => calls.push(pending),
                Err(error) => break error,
            }
        };
        assert!(
            matches!(
                full,
                Error::Wait(WaitError::TimedOut { .. }) | Error::Inject(InjectError::TooManyCalls { .. })
            ),
            "round {round}: {full}"
        );
        assert!(calls.len() > 10, "round {round}: {full}");
        target.process.signal(Signal::CONT);
        let made = calls.len() as u64;
        // The function panics unless its numbers are consecutive.
        calls.into_iter().for_each(|pending| drop(pending.wait(FOREVER).unwrap()));
        assert_eq!(target.count().0, first + 1 + made, "round {round}");
    }
    Ok(())
}

pub(crate) fn target_killed(backend: &str) -> Done {
    let mut target = Played::start(backend);
    let counter = library("counter");
    let mut link = link(backend, &target.address).connect().unwrap();
    for _ in 0..2 {
        check_replies(&link, &counter, 8);
        target.process.signal(Signal::STOP);
        let mut account = Account::default();
        let calls: Vec<_> =
            LENGTHS.iter().take(3).map(|len| link.inject(&counter, &vec![1; *len]).unwrap()).collect();
        account.made = calls.len() as u64;
        target.process.kill();
        calls.into_iter().for_each(|call| account.settle(call));
        assert_eq!((account.lost, account.replied), (3, 0), "{account:?}");
        says(&account.why, &["has ended, or closed the link"]);
        let error = link.inject(&counter, &[1]).unwrap_err();
        assert!(matches!(error, Error::Wait(WaitError::PeerGone { .. })), "{error}");
        target.again();
        link.reconnect().unwrap();
    }
    check_replies(&link, &counter, 8);
    Ok(())
}

pub(crate) fn source_killed(backend: &str) -> Done {
    let mut target = Played::start(backend);
    let counter = library("counter");
    let link = link(backend, &target.address).connect().unwrap();
    for _ in 0..3 {
        let mut other = start(&["source", backend, &target.address]);
        other.hear_after("connected");
        other.order("stream");
        other.hear_after("streams");
        check_replies(&link, &counter, 4);
        other.kill();
        check_replies(&link, &counter, 8);
        says(&target.gone(), &["verbs-faults"]);
        assert_eq!(target.count().1, 1);
    }
    Ok(())
}

pub(crate) fn down(backend: &str) -> Done {
    let machine = Machine::breakable()?;
    let counter = library("counter");
    let mut target = Played::start(backend);
    let mut link = link(backend, &target.address).connect().unwrap();
    let mut account = Account::default();
    check_replies(&link, &counter, 8);
    (account.made, account.replied) = (8, 8);
    // No reply comes before the link is down.
    target.process.signal(Signal::STOP);
    let mut calls: Vec<_> =
        LENGTHS.iter().take(3).map(|len| link.inject(&counter, &vec![1; *len]).unwrap()).collect();
    let down = machine.down();
    // A link that only waits survives this. One that sends fails.
    match link.inject(&counter, &[1]) {
        Ok(call) => calls.push(call),
        Err(error) => says(&error, PORT_DOWN),
    }
    let under_way = calls.len() as u64;
    account.made += under_way;
    calls.into_iter().for_each(|call| account.settle(call));
    assert_eq!(account.lost, under_way, "{account:?}");
    says(&account.why, PORT_DOWN);
    says(&link.inject(&counter, &[1]).unwrap_err(), PORT_DOWN);
    target.process.signal(Signal::CONT);
    says(&target.gone(), PORT_DOWN);
    says(&link.reconnect().unwrap_err(), &[&machine.device, "is down", "ip link set"]);
    drop(down);
    link.reconnect().unwrap();
    let before = target.count().0;
    account.balances(before);
    check_replies(&link, &counter, 8);
    assert_eq!(target.count().0, before + 8);
    Ok(())
}

/// Between endpoints: links return credit by themselves, and Soft-RoCE fails everything that is sent over a port that
/// is down.
pub(crate) fn down_and_up(backend: &str) -> Done {
    let machine = Machine::breakable()?;
    let [mut one, mut other] = honest(backend);
    for round in 0..3 {
        passes(&mut one, &mut other, 2 * round);
        passes(&mut other, &mut one, 2 * round + 1);
        let down = machine.down();
        for end in [&mut one, &mut other] {
            end.work().unwrap();
        }
        drop(down);
    }
    passes(&mut one, &mut other, 6);
    Ok(())
}

pub(crate) fn down_in_the_middle(backend: &str) -> Done {
    let machine = Machine::breakable()?;
    let counter = library("counter");
    let mut target = Played::start(backend);
    let mut link = link(backend, &target.address).connect().unwrap();
    for ahead in [1, 12] {
        let before = target.count().0;
        let replies = AtomicU64::new(0);
        let account = thread::scope(|scope| {
            let downer = scope.spawn(|| {
                while replies.load(Ordering::Relaxed) < 20 {
                    thread::yield_now();
                }
                machine.down()
            });
            let account = stream(&link, &counter, ahead, |replied| replies.store(replied, Ordering::Relaxed));
            // If the stream ended too early, this case fails below instead of waiting for replies.
            replies.store(20, Ordering::Relaxed);
            drop(downer.join().unwrap());
            account
        });
        says(&account.why, PORT_DOWN);
        // No call is lost if the link goes down when all replies have arrived, also those that were not polled yet.
        assert!(account.replied >= 20, "{account:?}");
        // A target with nothing to send notices no cut: its device does not fail, and the control connection
        // continues.
        link.reconnect().unwrap();
        target.gone();
        account.balances(target.count().0 - before);
        check_replies(&link, &counter, 8);
    }
    Ok(())
}
