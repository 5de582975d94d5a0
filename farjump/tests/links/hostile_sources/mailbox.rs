//! Hostile writes to a mailbox: earlier laps, credit lines, skips, and frames that never end.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use farjump::core::frame::LINE;
use farjump::core::transport::{
    Address, ArrivalRules, Capabilities, Endpoint, LocalAddress, OpenRequest, Transport, TransportError,
    UnconnectedEndpoint,
};
use farjump::{Link, RefusalCause};
use farjump_control::Message;
use farjump_transports::shm::Shm;

use super::{FLAGS, Scene, with};
use crate::hostile_sources::raw::{RawSource, Told, call};
use crate::support::{PATIENCE, Place, Seen, library, words};

#[test]
fn a_frame_of_an_earlier_lap_is_not_there_and_neither_is_payload_that_looks_like_one() {
    let mut scene = Scene::new();
    let mut liar = RawSource::connect(&scene.place.address());
    let tally = library("tally");
    let image = tally.images()[0].bytes();
    liar.call_new("tally", image, b"");
    let ring = liar.ring() as u64;
    let mut calls = 1_u64;
    for lap in 0..4_u64 {
        while (liar.position % ring) as usize + 8 * LINE <= liar.ring() {
            // Payload made of whole frames, with the signals that were right at these very positions a lap
            // ago, and with those that are right where the frames behind this one will start.
            let here = liar.position;
            let mut payload = Vec::new();
            for line in 1..4_u64 {
                let mut ghost = liar.frame(&call(), b"ghost");
                let position = if line % 2 == 0 {
                    here + line * 64 + 256
                } else {
                    (here + line * 64).wrapping_sub(ring)
                };
                ghost[..8].copy_from_slice(&liar.key.header(position).to_le_bytes());
                payload.extend(ghost);
            }
            liar.send_plan(&call(), &payload);
            calls += 1;
            assert_eq!(liar.reply(), calls.to_ne_bytes(), "lap {lap}");
        }
        // At the next position lies a frame of the lap before.
        scene.serves_on();
        let skip = liar.skip();
        liar.send(&skip);
        let at = liar.position - ring;
        liar.signal(0, liar.key.header(at));
        scene.serves_on();
        liar.send_plan(&call(), b"");
        calls += 1;
        assert_eq!(liar.reply(), calls.to_ne_bytes());
    }
    assert!(calls > 500, "{calls} calls");
    let stats = scene.end();
    assert_eq!(stats.refusals(), 0);
}

#[test]
fn a_return_line_that_lies_changes_nothing_but_its_own_replies() {
    let mut scene = Scene::new();
    let mut liar = scene.liar();
    let lies = [u64::MAX, 1 << 63, 1, 63, u64::MAX - 64, 0, 1 << 20];
    for round in 0..2000_u64 {
        let lie = lies[round as usize % lies.len()];
        liar.write_return_line(lie, lie.rotate_left(round as u32) ^ round);
        if round % 100 == 0 {
            scene.serves_on();
        }
    }
    // More replies than its ring of 4 KiB can hold, while it claims to have taken all and more: the rest
    // waits.
    let consumed = liar.consumed();
    for _ in 0..20 {
        liar.send_plan(&call(), &[1; 1000]);
        liar.write_return_line(u64::MAX, 0);
    }
    scene.serves_on();
    assert!(liar.consumed() < consumed + 20 * 1088, "replies wait for room that is not there");
    drop(liar);
    while scene.gone.all().is_empty() {
        scene.serves_on();
    }
    assert_eq!(scene.end().refusals(), 0);
}

#[test]
fn skips_without_end_hold_up_nobody() {
    let mut scene = Scene::new();
    let mut liar = scene.liar();
    let address = scene.place.address();
    let (skips, enough) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
    let (counted, stop) = (Arc::clone(&skips), Arc::clone(&enough));
    let skipper = std::thread::spawn(move || {
        while !stop.load(Ordering::Relaxed) {
            // The next is due as soon as the last was passed; a whole ring each, but for the first.
            let skip = liar.skip();
            liar.send(&skip);
            counted.fetch_add(1, Ordering::Relaxed);
            while liar.consumed() < liar.position {
                std::thread::yield_now();
            }
        }
        liar
    });
    while skips.load(Ordering::Relaxed) < 200 {
        scene.serves_on();
    }
    drop(Link::connect(&address).unwrap());
    enough.store(true, Ordering::Relaxed);
    let mut liar = skipper.join().unwrap();
    liar.send_plan(&call(), b"done skipping");
    assert_eq!(liar.reply(), b"done skipping");
    assert_eq!(scene.end().refusals(), 0);
}

/// A transport that offers a single one of its arrival rules.
struct Only(Shm, ArrivalRules);

impl Transport for Only {
    fn name(&self) -> &str {
        "only"
    }
    fn capabilities(&self) -> Capabilities {
        let mut capabilities = self.0.capabilities();
        capabilities.arrival &= self.1;
        capabilities
    }
    fn open(&mut self, request: &OpenRequest) -> Result<Box<dyn UnconnectedEndpoint>, TransportError> {
        Ok(Box::new(UnconnectedOnly(self.0.open(request)?)))
    }
}

struct UnconnectedOnly(Box<dyn UnconnectedEndpoint>);

impl UnconnectedEndpoint for UnconnectedOnly {
    fn address(&self) -> LocalAddress<'_> {
        self.0.address()
    }
    fn connect(self: Box<Self>, peer: Address, timeout_ms: u32) -> Result<Endpoint, TransportError> {
        self.0.connect(peer, timeout_ms)
    }
}

#[test]
fn a_frame_whose_end_never_comes_holds_up_its_own_mailbox_for_as_long_as_is_allowed() {
    let place = Place::new();
    let checked = || Box::new(Only(Shm::new(), ArrivalRules::CHECKED));
    let gone = Seen::default();
    let gone_to = gone.clone();
    let target = place
        .target()
        .transport("only")
        .with_transport(checked())
        .stall_timeout(Duration::from_millis(100))
        .on_peer_gone(move |_, why| gone_to.push(why.to_owned()))
        .build()
        .unwrap()
        .spawn()
        .unwrap();
    let honest = place.link().with_transport(checked()).transport("only").connect().unwrap();
    assert_eq!(honest.arrival_rule(), ArrivalRules::CHECKED);
    let sequence = library("sequence");
    let mut liar = RawSource::connect_by(&place.address(), checked());
    // Two lines whose trailer, a checksum in the last word, does not come.
    let frame = liar.frame(&call(), &[1; 60]);
    let frame = with(frame, FLAGS, &[0x36]);
    liar.send(&frame);
    let mut calls = 0;
    while gone.all().is_empty() {
        let call = honest.inject(&sequence, &words(&[calls])).unwrap();
        calls += 1;
        assert_eq!(*call.wait(PATIENCE).unwrap(), *words(&[calls, 0]));
    }
    assert!(calls > 1, "the others are served meanwhile");
    match liar.told() {
        Told::Message(Message::Closing { text }) => {
            assert!(text.contains("did not follow its signal within 100ms"), "{text}");
            assert_eq!(gone.all(), [text]);
        }
        other => panic!("{other:?}"),
    }
    assert!(matches!(liar.told(), Told::End));
    drop(honest);
    let stats = target.stop().unwrap().stats().clone();
    assert_eq!((stats.refused(RefusalCause::Stalled), stats.refusals()), (1, 1));
}
