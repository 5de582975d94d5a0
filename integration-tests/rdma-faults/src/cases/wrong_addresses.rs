//! Addresses that were changed on their way: another key, another range, another queue pair.

use farjump_core::transport::Cause;

use crate::Done;
use crate::address::changed;
use crate::endpoints::{ConnectedEndpoint, REGION, connect, honest, open, pair, passes, says};

/// The words of the device whose memory the peer accesses. Some devices report more, by an event.
const MEMORY_REQUESTED: &[&str] = &["the peer requested memory"];
/// The words of a device whose access the peer's device refuses.
const REFUSED: &[&str] = &["remote access error (status 10", "key, range or rights", "vendor error"];

pub(crate) fn key(backend: &str) -> Done {
    let [mut liar, mut other] =
        pair(backend, |address| changed(&address, |parts| parts.region.key ^= 0x5a00));
    liar.send(7).unwrap();
    let error = liar.fails();
    says(&error, REFUSED);
    assert_eq!(error.frame(), Some(7), "{error}");
    assert!(other.is_untouched());
    says(&other.fails(), MEMORY_REQUESTED);
    again(backend);
    Ok(())
}

pub(crate) fn range(backend: &str) -> Done {
    let more = 64 * REGION as u64;
    let [mut liar, mut other] = pair(backend, |address| changed(&address, |parts| parts.region.len += more));
    let ConnectedEndpoint::Written { remote, .. } = &mut liar else { panic!("it writes") };
    // Half of it would still be inside: the device must not write any of it.
    remote.put(REGION - 64, &[0xff; 128], 9).unwrap();
    let error = liar.fails();
    says(&error, REFUSED);
    assert_eq!(error.frame(), Some(9), "{error}");
    assert!(other.is_untouched());
    says(&other.fails(), MEMORY_REQUESTED);
    again(backend);
    Ok(())
}

pub(crate) fn missing_queue_pair(backend: &str) -> Done {
    let [mut liar, mut other] = pair(backend, |address| changed(&address, |parts| parts.queue = 0xff_fffe));
    unreachable(&mut liar);
    assert!(other.is_untouched());
    again(backend);
    Ok(())
}

pub(crate) fn foreign_queue_pair(backend: &str) -> Done {
    let [mut one, mut other] = honest(backend);
    passes(&mut one, &mut other, 1);
    let mut whose = 0;
    let victim = open(backend);
    changed(&victim.address().try_to_owned().unwrap(), |parts| whose = parts.queue);
    let peer = open(backend);
    let (of_victim, of_peer) =
        (victim.address().try_to_owned().unwrap(), peer.address().try_to_owned().unwrap());
    let mut victims = [connect(victim, of_peer), connect(peer, of_victim)];
    let [mut liar, _hers] = pair(backend, |address| changed(&address, |parts| parts.queue = whose));
    unreachable(&mut liar);
    let [victim, peer] = &mut victims;
    assert!(victim.is_untouched(), "what was not meant for it came to the victim");
    for number in 2..300 {
        passes(peer, victim, number);
        passes(victim, peer, number);
    }
    passes(&mut one, &mut other, 2);
    Ok(())
}

pub(crate) fn closed(backend: &str) -> Done {
    let [mut one, other] = honest(backend);
    drop(other);
    unreachable(&mut one);
    again(backend);
    Ok(())
}

/// Asserts that frames of `end` arrive nowhere, and that the error names the frame.
fn unreachable(end: &mut ConnectedEndpoint) {
    end.send(5).unwrap();
    let error = end.fails();
    says(&error, &["transport retry counter exceeded (status 12", "the peer did not answer"]);
    assert!(matches!(error.cause(), Cause::Unreachable(_)), "{error}");
    assert_eq!(error.frame(), Some(5), "{error}");
}

/// Checks that other endpoints of the same device work.
fn again(backend: &str) {
    let [mut one, mut other] = honest(backend);
    passes(&mut one, &mut other, 3);
    passes(&mut other, &mut one, 1);
}
