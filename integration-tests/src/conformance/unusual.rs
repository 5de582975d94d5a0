//! Lawful transports with short frames, and a transport that connects to any address.

use farjump_core::transport::{
    Address, ArrivalRules, Capabilities, Endpoint, LocalAddress, OpenRequest, Transport, TransportError,
    UnconnectedEndpoint,
};

use super::host::Fixture;
use super::subject::{Pair, Subject};
use super::{Level, Mode, SMALLEST_MAX_FRAME, channels, links};
use crate::connect::handed_over;
use crate::fakes::{FakeOneSided, FakeTwoSided, Rule};

/// The checks with long payloads, replies and frames.
const OF_CHANNELS: [&str; 3] = ["claims", "limits", "sizes"];
/// See [`OF_CHANNELS`].
const OF_LINKS: [&str; 6] = ["samples", "calls", "replies", "unread", "mix", "large"];

/// Fakes of both families whose longest frame has `max_frame` bytes.
fn with_frames_of(max_frame: usize) -> [Subject; 2] {
    let one = move || Box::new(FakeOneSided::new(Rule::Stores, 1).with_max_frame(max_frame));
    let two = move || Box::new(FakeTwoSided::new(1).with_max_frame(max_frame));
    let one = Subject::new("one-sided", ArrivalRules::STORES, move || Pair::new(one(), one()));
    let two = Subject::new("two-sided", ArrivalRules::DELIVERED, move || Pair::new(two(), two()));
    [one, two].map(|subject| subject.volume(1_000).without_wake_ups())
}

#[test]
fn transports_of_short_frames_pass_the_checks_of_long_ones() {
    for max_frame in [SMALLEST_MAX_FRAME, 256 << 10] {
        for subject in with_frames_of(max_frame) {
            let place = |check: &str| format!("{check} of {}, {max_frame} bytes a frame", subject.name());
            for (check, try_it) in channels::CHECKS.into_iter().filter(|(name, _)| OF_CHANNELS.contains(name))
            {
                assert!(try_it(&subject).unwrap_or_else(|why| panic!("{}: {why}", place(check))) > 0);
            }
            for (check, try_it) in links::CHECKS.into_iter().filter(|(name, _)| OF_LINKS.contains(name)) {
                // Code travels in each frame.
                let fixture = Fixture::new(&subject, Level::Threads(Mode::Always)).unwrap();
                assert!(try_it(&fixture).unwrap_or_else(|why| panic!("{}: {why}", place(check))) > 0);
            }
        }
    }
}

#[test]
fn a_transport_with_too_short_frames_fails_with_both_lengths() {
    for subject in with_frames_of(SMALLEST_MAX_FRAME - 64) {
        let due = "its longest frame is 16320 bytes, and the suite takes transports of at least 16384";
        let limits = channels::CHECKS.into_iter().find(|(name, _)| *name == "limits").unwrap().1;
        assert_eq!(limits(&subject).unwrap_err().to_string(), due);
        let fixture = Fixture::new(&subject, Level::Threads(Mode::Cached)).map(drop);
        assert_eq!(fixture.unwrap_err().to_string(), due);
    }
}

/// A transport that has no bytes in its address, and connects to any peer.
struct Careless(FakeTwoSided);

struct UnconnectedCareless(Box<dyn UnconnectedEndpoint>);

impl Transport for Careless {
    fn name(&self) -> &str {
        "careless"
    }

    fn capabilities(&self) -> Capabilities {
        self.0.capabilities()
    }

    fn open(&mut self, request: &OpenRequest) -> Result<Box<dyn UnconnectedEndpoint>, TransportError> {
        Ok(Box::new(UnconnectedCareless(self.0.open(request)?)))
    }
}

impl UnconnectedEndpoint for UnconnectedCareless {
    fn address(&self) -> LocalAddress<'_> {
        LocalAddress { bytes: Vec::new(), descriptors: Vec::new() }
    }

    fn connect(self: Box<Self>, _: Address, deadline_ms: u32) -> Result<Endpoint, TransportError> {
        let own = handed_over(&*self.0)?;
        self.0.connect(own, deadline_ms)
    }
}

#[test]
fn the_suite_notices_a_transport_that_connects_to_any_address() {
    let side = || Box::new(Careless(FakeTwoSided::new(1)));
    let subject = Subject::new("careless", ArrivalRules::DELIVERED, move || Pair::new(side(), side()));
    let addresses = channels::CHECKS.into_iter().find(|(name, _)| *name == "addresses").unwrap().1;
    let why = addresses(&subject).unwrap_err().to_string();
    assert!(why.starts_with("connected to a made-up address"), "{why}");
}
