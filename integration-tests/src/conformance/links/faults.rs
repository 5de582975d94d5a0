//! Links over transports that break the contract: the peer at fault loses its link, in bounded time, and no other
//! peer does.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use crate::middleware::{FaultInjector, Faults, Hold, PerMille};
use farjump::{Error, Link, RefusalCause, Target, TargetThread, WaitError};
use farjump_core::transport::{ArrivalRules, Transport};
use farjump_transports::shm::Shm;
use tempfile::TempDir;

use crate::conformance::host::PATIENCE;
use crate::conformance::libraries::{Libraries, libraries};
use crate::conformance::pattern;
use crate::fakes::{FakeOneSided, Rule};

/// Time that a target of these tests waits for the rest of a frame.
const STALL: Duration = Duration::from_millis(300);

struct Place {
    folder: TempDir,
    libraries: &'static Libraries,
}

impl Place {
    fn new() -> Place {
        Place { folder: tempfile::tempdir().unwrap(), libraries: libraries().unwrap() }
    }

    fn address(&self) -> String {
        format!("unix:{}", self.folder.path().join("target.sock").display())
    }

    fn target(&self, transport: Option<Box<dyn Transport>>) -> TargetThread {
        let mut builder = Target::listen(&self.address()).stall_timeout(STALL);
        if let Some(transport) = transport {
            builder = builder.with_transport(transport);
        }
        builder.build().unwrap().spawn().unwrap()
    }

    fn link(&self, transport: Box<dyn Transport>) -> Link {
        let name = transport.name().to_owned();
        Link::builder(&self.address()).with_transport(transport).transport(&name).connect().unwrap()
    }

    fn echo(&self, link: &Link, number: u64) -> Result<(), Error> {
        let bytes = pattern::bytes(number as usize % 300, 1, number);
        let reply = link.inject(&self.libraries.echo, &bytes)?.wait(PATIENCE)?;
        assert_eq!(*reply, *bytes);
        Ok(())
    }
}

fn shm() -> Box<dyn Transport> {
    Box::new(Shm::new())
}

#[test]
fn an_unfinished_frame_ends_its_link_while_others_are_served() {
    let place = Place::new();
    let target = place.target(Some(Box::new(FakeOneSided::new(Rule::InOrder, 1))));
    let faults = Faults { hold_last_word: PerMille::ALWAYS, hold: Hold::Forever, spare: 20, ..Faults::NONE };
    let injector = FaultInjector::new(Box::new(FakeOneSided::new(Rule::InOrder, 2)), 3, faults);
    let handle = injector.handle();
    let (stalled, healthy) = (place.link(Box::new(injector)), place.link(shm()));
    let mut replied = 0;
    while handle.total() == 0 {
        stalled.send(&place.libraries.echo, b"never whole").unwrap();
        replied += 1;
        assert!(replied < 1000, "nothing is held back");
    }
    let mut served = 0;
    let end = loop {
        if let Err(error) = stalled.progress() {
            break error.to_string();
        }
        place.echo(&healthy, served).unwrap();
        served += 1;
    };
    assert!(end.contains("the rest of a frame did not follow its signal within 300ms"), "{end}");
    assert!(served > 10, "the other source was served {served} times");
    place.echo(&healthy, served).unwrap();
    let target = target.stop().unwrap();
    assert_eq!((target.stats().refused(RefusalCause::Stalled), target.stats().refusals()), (1, 1));
}

#[test]
fn calls_over_a_broken_source_transport_fail_with_peer_gone() {
    let place = Place::new();
    let target = place.target(None);
    for spare in 0..8 {
        let faults = Faults { kill: PerMille::ALWAYS, spare, ..Faults::NONE };
        let link = place.link(Box::new(FaultInjector::new(shm(), spare, faults)));
        let error = (0..100).find_map(|number| place.echo(&link, number).err()).unwrap();
        assert!(matches!(error, Error::Wait(WaitError::PeerGone { .. })), "{error}");
        assert!(error.to_string().contains("shm"), "{error}");
        let error = link.inject(&place.libraries.echo, b"").unwrap_err();
        assert!(matches!(error, Error::Wait(WaitError::PeerGone { .. })), "{error}");
    }
    place.echo(&place.link(shm()), 1).unwrap();
    drop(target);
}

#[test]
fn a_broken_target_transport_ends_the_link_for_both_peers() {
    let place = Place::new();
    let injector = FaultInjector::new(shm(), 1, Faults::NONE);
    let handle = injector.handle();
    let name_of_own: Box<dyn Transport> = Box::new(injector);
    let target = place.target(Some(name_of_own));
    let link = place.link(shm());
    assert_eq!(link.arrival_rule(), ArrivalRules::FENCED, "the injector is not in between");
    place.echo(&link, 1).unwrap();
    let call = link.inject(&place.libraries.echo, b"in flight").unwrap();
    handle.kill();
    // The reply may have come before.
    assert!(matches!(call.wait(PATIENCE), Ok(_) | Err(Error::Wait(WaitError::PeerGone { .. }))));
    let error = (0..100_000).find_map(|number| place.echo(&link, number).err()).unwrap();
    assert!(matches!(error, Error::Wait(WaitError::PeerGone { .. })), "{error}");
    assert_eq!(target.stop().unwrap().stats().links_ended, 1);
}

#[test]
fn under_checked_a_call_replies_correctly_or_its_link_ends() {
    let place = Place::new();
    let faults = Faults { flip_bit: PerMille(30), spare: 4, ..Faults::NONE };
    let target = place.target(None);
    let seed = AtomicU64::new(0);
    let (mut replied, mut cut) = (0, 0);
    while replied < 200 || cut < 5 {
        let injector = FaultInjector::new(shm(), seed.fetch_add(1, Relaxed), faults);
        let link = place.link(Box::new(injector.offering(ArrivalRules::CHECKED)));
        for number in 0..100 {
            match place.echo(&link, number) {
                Ok(()) => replied += 1,
                Err(Error::Wait(WaitError::PeerGone { .. })) => {
                    cut += 1;
                    break;
                }
                Err(error) => panic!("{error}"),
            }
        }
        assert!(seed.load(Relaxed) < 300, "{replied} answered, {cut} cut");
    }
    place.echo(&place.link(shm()), 1).unwrap();
    drop(target);
}
