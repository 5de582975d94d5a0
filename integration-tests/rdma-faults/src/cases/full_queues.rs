//! Full queues, and peers that exceed their credit.

use farjump_core::transport::Cause;

use crate::Done;
use crate::address::changed;
use crate::endpoints::{ConnectedEndpoint, connect, honest, open, pair, passes, says};

/// More than the capacity of any queue here.
const MANY: u64 = 100_000;

pub(crate) fn send_queue(backend: &str) -> Done {
    let (one, other) = (open(backend), open(backend));
    let (of_one, of_other) = (one.address().try_to_owned().unwrap(), other.address().try_to_owned().unwrap());
    // The other endpoint does not know its peer yet, so its device accepts nothing: everything that is sent stays in
    // the queue.
    let mut one = connect(one, of_other);
    let mut sent = 0;
    while one.send(sent).unwrap() {
        sent += 1;
        assert!(sent < MANY, "nothing says that the queue is full");
    }
    assert!(sent >= 64, "a queue of {sent} requests");
    for _ in 0..100 {
        one.work().unwrap();
        assert!(!one.send(sent).unwrap(), "there is space, and nothing was taken");
    }
    let mut other = connect(other, of_one);
    for number in 0..sent {
        while !other.has(number).unwrap() {
            one.work().unwrap();
        }
    }
    passes(&mut one, &mut other, sent);
    passes(&mut other, &mut one, 1);
    Ok(())
}

pub(crate) fn window(backend: &str) -> Done {
    let [mut one, mut other] = honest(backend);
    let (mut sent, mut taken) = (0, 0);
    for round in 0..3 {
        // The peer's last credit of the previous round is still to come. If it does not come, the watchdog reports.
        while !one.send(sent).unwrap() {
            other.work().unwrap();
            one.work().unwrap();
        }
        sent += 1;
        // Sends until there is no credit for a while: more of it may still come.
        let mut full = 0;
        while full < 100 {
            one.work().unwrap();
            match one.send(sent).unwrap() {
                true => (sent, full) = (sent + 1, 0),
                false => full += 1,
            }
            assert!(sent < MANY, "round {round}: nothing says that the peer has no space");
        }
        while taken < sent {
            one.work().unwrap();
            // Any frame but the next one, whole, ends the case.
            taken += u64::from(other.has(taken).unwrap());
        }
    }
    Ok(())
}

pub(crate) fn beyond_grant(backend: &str) -> Done {
    let [mut liar, mut other] = pair(backend, |address| changed(&address, |parts| parts.receives = u32::MAX));
    let error = greedy(&mut liar);
    says(&error, &["RNR retry counter exceeded (status 13", "has posted no receive"]);
    assert!(!matches!(error.cause(), Cause::Unreachable(_)), "the peer is there: {error}");
    // Frames within the credit have arrived all the same: as many as the receiver takes before it returns credit.
    if let ConnectedEndpoint::Sent(_) = other {
        for number in 0..12 {
            assert!(other.has(number).unwrap(), "message {number}");
        }
    }
    let [mut one, mut other] = honest(backend);
    passes(&mut one, &mut other, 1);
    Ok(())
}

/// Sends until an error, regardless of credit.
fn greedy(end: &mut ConnectedEndpoint) -> farjump_core::transport::TransportError {
    match end {
        // Receives limit only operations that use one. A full queue takes none and reports nothing, so the number of
        // attempts is no bound. The device's own retries end the loop, or the watchdog does.
        ConnectedEndpoint::Written { remote, .. } => loop {
            if let Err(error) = remote.wake_peer().and_then(|()| remote.progress()) {
                return error;
            }
        },
        ConnectedEndpoint::Sent(_) => {
            let mut number = 0;
            loop {
                match end.send(number) {
                    Ok(true) => number += 1,
                    Ok(false) => {
                        if let Err(error) = end.work() {
                            return error;
                        }
                    }
                    Err(error) => return error,
                }
                assert!(number < MANY, "nothing stops a peer that sends without end");
            }
        }
    }
}

/// Checks that a peer that sends more than its credit takes nothing of other links.
pub(crate) fn of_others(backend: &str) -> Done {
    let [mut one, mut other] = honest(backend);
    let [mut liar, victim] = pair(backend, |address| changed(&address, |parts| parts.receives = u32::MAX));
    says(&greedy(&mut liar), &["the peer has posted no receive"]);
    for number in 0..200 {
        passes(&mut one, &mut other, number);
        passes(&mut other, &mut one, number);
    }
    drop(victim);
    Ok(())
}
