//! Sources that break the protocol over shared memory: each is found out, told, counted and cut, and costs the others nothing.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use farjump::core::frame::{CODE_HEADER_LEN, Kind, LINE, Plan, PlanCode};
use farjump::core::transport::{
    Address, ArrivalRules, Capabilities, Endpoint, OpenRequest, Opening, Transport, TransportError,
};
use farjump::{CodeId, Library, Link, RefusalCause, Stats, TargetThread};
use farjump_loader::code_id;
use farjump_transports::meet::Message;
use farjump_transports::shm::Shm;

use crate::raw::{RawSource, Told, call, call_code, call_id};
use crate::support::{PATIENCE, Place, Seen, library, words};

/// A target on a thread of its own, and an honest source of it.
struct Scene {
    place: Place,
    target: TargetThread,
    honest: Link,
    sequence: Library,
    calls: u64,
    /// What the target's handler was told of refused frames, and of sources that went.
    refusals: Seen<String>,
    gone: Seen<String>,
}

impl Scene {
    fn new() -> Scene {
        let place = Place::new();
        let (refusals, gone) = (Seen::default(), Seen::default());
        let (refusals_to, gone_to) = (refusals.clone(), gone.clone());
        let target = place
            .target()
            .mailbox(1 << 16)
            .on_refused(move |_, refusal| refusals_to.push(refusal.to_string()))
            .on_peer_gone(move |_, why| gone_to.push(why.to_owned()))
            .build()
            .unwrap()
            .spawn()
            .unwrap();
        let honest = place.link().connect().unwrap();
        let sequence = library("sequence");
        Scene { place, target, honest, sequence, calls: 0, refusals, gone }
    }

    /// A source that breaks the protocol, after it has called honest code once, at index 0.
    fn liar(&self) -> RawSource {
        let mut liar = RawSource::connect(&self.place.address());
        let echo = library("echo");
        assert_eq!(liar.call_new("echo", echo.images()[0].bytes(), b"honest so far"), b"honest so far");
        liar
    }

    /// The honest source is served as ever.
    fn serves_on(&mut self) {
        for _ in 0..20 {
            let call = self.honest.inject(&self.sequence, &words(&[self.calls])).unwrap();
            self.calls += 1;
            assert_eq!(*call.wait(PATIENCE).unwrap(), *words(&[self.calls, 0]));
        }
    }

    /// The link of `liar` is cut, it was told why with `words`, and it is alone in that.
    fn cuts(&mut self, mut liar: RawSource, words: &str, what: &str) {
        let text = match liar.told() {
            Told::Message(Message::Closing { text }) => text,
            other => panic!("{what}: {other:?}"),
        };
        assert!(text.starts_with("the target cut the link: ") && text.contains(words), "{what}: {text}");
        assert!(matches!(liar.told(), Told::End), "{what}");
        self.serves_on();
        assert_eq!(self.refusals.all().last(), Some(&text), "{what}");
        assert_eq!(self.gone.all().last(), Some(&text), "{what}");
    }

    /// A frame of `liar` was refused for this cause with `words`; its link goes on.
    fn refuses(&mut self, liar: &mut RawSource, cause: RefusalCause, words: &str, what: &str) {
        match liar.told() {
            Told::Message(Message::Refused { token: 7, cause: told, text }) => {
                assert_eq!(told, cause, "{what}: {text}");
                assert!(text.contains(words), "{what}: {text}");
                assert!(text.starts_with("the target refused "), "{what}: {text}");
                assert_eq!(text.matches("the target refused").count(), 1, "{what}: {text}");
                self.serves_on();
                assert_eq!(self.refusals.all().last(), Some(&text), "{what}");
            }
            other => panic!("{what}: {other:?}"),
        }
    }

    fn end(self) -> Stats {
        drop(self.honest);
        self.target.stop().unwrap().stats().clone()
    }
}

/// `frame` with other bytes at an offset.
fn with(mut frame: Vec<u8>, at: usize, bytes: &[u8]) -> Vec<u8> {
    frame[at..at + bytes.len()].copy_from_slice(bytes);
    frame
}

fn with_u32(frame: Vec<u8>, at: usize, value: u32) -> Vec<u8> {
    with(frame, at, &value.to_le_bytes())
}

/// Makes a frame for where the liar's next one is due.
type Making = Box<dyn Fn(&RawSource) -> Vec<u8>>;

const FRAME_LEN: usize = 8;
const PAYLOAD_LEN: usize = 12;
const KIND: usize = 16;
const FLAGS: usize = 17;
const IMAGE_AT: usize = 24;
const IMAGE_LEN: usize = 28;
const PAYLOAD_AT: usize = 56;
const NAME_LEN: usize = 60;
const RESERVED: usize = 62;

#[test]
fn frames_with_impossible_lengths_kinds_and_flags_cut_their_source_off() {
    let mut scene = Scene::new();
    let ring = 1 << 16;
    // What an honest one looks like: a line, or two with 100 bytes of payload at 64.
    let lengths = [0, 1, 63, 65, 100, ring, ring + 64, 1 << 20, 1 << 31, !63, u32::MAX];
    let mut cases: Vec<(String, &str, Making)> = Vec::new();
    for len in lengths {
        let words = if len % 64 == 0 && len > 0 { "past the end" } else { "frame length" };
        cases.push((
            format!("frame length {len}"),
            words,
            Box::new(move |liar| with_u32(liar.frame(&call(), b"12345678"), FRAME_LEN, len)),
        ));
    }
    for len in [41, 42, 64, 1 << 16, 1 << 31, u32::MAX - 24, u32::MAX] {
        cases.push((
            format!("payload length {len} in one line"),
            "payload",
            Box::new(move |liar| with_u32(liar.frame(&call(), b"12345678"), PAYLOAD_LEN, len)),
        ));
    }
    for len in [129, 192, u32::MAX - 63, u32::MAX] {
        cases.push((
            format!("payload length {len} in three lines"),
            "payload",
            Box::new(move |liar| with_u32(liar.frame(&call(), &[1; 100]), PAYLOAD_LEN, len)),
        ));
    }
    for kind in [0, 7, 8, 127, 128, 255] {
        cases.push((
            format!("kind {kind}"),
            "kind",
            Box::new(move |liar| with(liar.frame(&call(), b""), KIND, &[kind])),
        ));
    }
    // Alignments of 1, 4, and 8192 bytes; a trailer where none is due; reserved bits.
    for flags in [0x10, 0x12, 0x1d, 0x1f, 0x33, 0x53, 0x93, 0xff] {
        cases.push((
            format!("flags {flags:#04x}"),
            "flags",
            Box::new(move |liar| with(liar.frame(&call(), b""), FLAGS, &[flags])),
        ));
    }
    cases.push((
        "a skip that does not end with the ring".into(),
        "frame length",
        Box::new(|liar| with_u32(liar.skip(), FRAME_LEN, 128)),
    ));
    cases.push((
        "a skip with a payload".into(),
        "payload",
        Box::new(|liar| with_u32(liar.skip(), PAYLOAD_LEN, 8)),
    ));
    let count = cases.len();
    for (what, words, frame) in cases {
        let mut liar = scene.liar();
        let frame = frame(&liar);
        liar.send(&frame);
        scene.cuts(liar, words, &what);
    }
    let stats = scene.end();
    assert_eq!(stats.refused(RefusalCause::BadFrame), count as u64);
    assert_eq!(stats.refusals(), count as u64);
}

#[test]
fn code_frames_whose_parts_overlap_or_reach_outside_cut_their_source_off() {
    let mut scene = Scene::new();
    let image = library("tally").images()[0].bytes().to_vec();
    let image_len = image.len() as u32;
    let id = code_id(&image);
    let edits: &[(&str, usize, u32, &str)] = &[
        ("an image at 0", IMAGE_AT, 0, "image"),
        ("an image on the header", IMAGE_AT, 32, "image"),
        ("an image on the name", IMAGE_AT, CODE_HEADER_LEN as u32, "image"),
        ("an image past the end", IMAGE_AT, 1 << 20, "image"),
        ("an image at the maximum", IMAGE_AT, u32::MAX, "image"),
        ("an image without bytes", IMAGE_LEN, 0, "image"),
        ("an image longer than the frame", IMAGE_LEN, 1 << 16, "image"),
        ("an image of the maximum", IMAGE_LEN, u32::MAX, "image"),
        ("an image over the payload", IMAGE_LEN, image_len + 64, "payload"),
        ("a payload on the header", PAYLOAD_AT, 0, "payload"),
        ("a payload on the image", PAYLOAD_AT, 128, "payload"),
        ("a payload past the end", PAYLOAD_AT, 1 << 20, "payload"),
        ("a payload at the maximum", PAYLOAD_AT, u32::MAX, "payload"),
        ("a payload that is too long", PAYLOAD_LEN, 4096, "payload"),
        ("a payload of the maximum", PAYLOAD_LEN, u32::MAX, "payload"),
        ("a frame too short for its header", FRAME_LEN, 64, "name"),
        ("a frame too short for its image", FRAME_LEN, 128, "image"),
        ("a name of 256 bytes", NAME_LEN, 256, "name"),
        ("a name of the maximum", NAME_LEN, 0xffff, "name"),
        ("reserved bytes", RESERVED, 1, "reserved"),
    ];
    for (what, at, value, expected) in edits {
        let mut liar = scene.liar();
        let frame = liar.frame(&call_code("tally", &image, id, liar.epoch), &[1; 100]);
        // Behind 60 the fields have 16 bits.
        let bytes = if *at >= NAME_LEN { &value.to_le_bytes()[..2] } else { &value.to_le_bytes()[..] };
        let frame = with(frame, *at, bytes);
        liar.send(&frame);
        scene.cuts(liar, expected, what);
    }
    let mut liar = scene.liar();
    let misaligned = with(
        liar.frame(&call_code("tally", &image, id, liar.epoch), &[1; 100]),
        PAYLOAD_AT,
        &(128 + image_len + 1).to_le_bytes(),
    );
    liar.send(&misaligned);
    scene.cuts(liar, "payload", "a payload that is not aligned");
    let mut liar = scene.liar();
    let named = with_u32(liar.frame(&call_id("tally", id, liar.epoch), b""), IMAGE_LEN, 16);
    liar.send(&named);
    scene.cuts(liar, "image", "an image where none travels");
    let stats = scene.end();
    assert_eq!(stats.refused(RefusalCause::BadFrame), edits.len() as u64 + 2);
    // The echo of every liar and the honest source's code, and nothing else.
    assert_eq!(stats.images_linked, 2);
}

#[test]
fn frames_that_make_no_sense_where_they_come_are_refused_and_the_link_goes_on() {
    let mut scene = Scene::new();
    let mut liar = scene.liar();
    let tally = library("tally");
    let image = tally.images()[0].bytes().to_vec();
    let id = code_id(&image);
    let (epoch, stale) = (liar.epoch, liar.epoch.wrapping_add(1));
    liar.send_plan(&Plan { kind: Kind::Reply, ..call() }, b"?");
    scene.refuses(&mut liar, RefusalCause::BadFrame, "only targets send", "a reply");
    liar.send_plan(&Plan { index: 1, ..call() }, b"");
    scene.refuses(&mut liar, RefusalCause::UnknownIndex, "index 1", "an index never bound");
    liar.send_plan(&Plan { index: u16::MAX, ..call() }, b"");
    scene.refuses(&mut liar, RefusalCause::UnknownIndex, "index 65535", "the largest index");
    for round in ["the code", "the id alone"] {
        let plan = match round {
            "the code" => call_code("tally", &image, id, stale),
            _ => call_id("tally", id, stale),
        };
        liar.send_plan(&Plan { index: 2, ..plan }, b"");
        scene.refuses(&mut liar, RefusalCause::StaleEpoch, "connect again", round);
        liar.send_plan(&Plan { index: 2, ..call() }, b"");
        scene.refuses(&mut liar, RefusalCause::StaleEpoch, "connect again", "a call by that index");
    }
    // An index that was bound is bound anew, and never falls back to what it stood for.
    liar.send_plan(&Plan { index: 0, ..call_code("tally", &image, id, stale) }, b"");
    scene.refuses(&mut liar, RefusalCause::StaleEpoch, "connect again", "an index bound before");
    liar.send_plan(&call(), b"");
    scene.refuses(&mut liar, RefusalCause::StaleEpoch, "connect again", "and a call by it");
    liar.send_plan(&Plan { index: 65_535, ..call_code("tally", &image, id, epoch) }, b"");
    assert_eq!(liar.reply(), 1_u64.to_ne_bytes());
    assert_eq!(scene.end().refusals(), 9);
}

#[test]
fn code_that_is_not_what_it_says_is_refused_with_the_reason() {
    let mut scene = Scene::new();
    let mut liar = scene.liar();
    let image = library("tally").images()[0].bytes().to_vec();
    let edit = |at: usize, bytes: &[u8]| with(image.clone(), at, bytes);
    let u32_of = |at: usize| u32::from_le_bytes(image[at..at + 4].try_into().unwrap());
    // The layout of `core/src/image.rs`; `tally` has an import (farjump_reply) at 32.
    let (span1, site) = (u32_of(8), u32_of(32));
    assert_eq!(image[24..26], 1_u16.to_le_bytes(), "the test needs an image of one import");
    let bad = [
        ("no image at all", b"nonsense".to_vec(), "truncated"),
        ("a longer image", [&image[..], &[0; 16]].concat(), "overlong"),
        ("a shorter image", image[..image.len() - 1].to_vec(), "truncated"),
        ("another magic", edit(0, b"ELF"), "start with FJI"),
        ("another version", edit(3, &[2]), "version 2"),
        ("another ABI", edit(6, &[9]), "ABI 9"),
        ("an alignment of 8192", edit(7, &[13]), "2^13"),
        ("an entry behind the code", edit(12, &span1.to_le_bytes()), "entry"),
        ("an entry at the maximum", edit(12, &u32::MAX.to_le_bytes()), "entry"),
        ("a span at the maximum", edit(8, &u32::MAX.to_le_bytes()), "span 1"),
        ("an empty span", edit(8, &[0; 4]), "empty"),
        ("statics at the maximum", edit(20, &u32::MAX.to_le_bytes()), "span 2"),
        ("a site outside the image", edit(32, &(span1 & !7).to_le_bytes()), "outside"),
        ("a site at the maximum", edit(32, &0x7fff_fff8_u32.to_le_bytes()), "outside"),
        ("a site that is not aligned", edit(32, &(site - 4).to_le_bytes()), "aligned"),
        ("more imports than there are", edit(24, &u16::MAX.to_le_bytes()), "truncated"),
        ("a name outside the table", edit(36, &0x7fff_u32.to_le_bytes()), "name"),
    ];
    let mut index = 1;
    let mut refused =
        |scene: &mut Scene, name: &str, image: &[u8], id: CodeId, cause, words: &str, what: &str| {
            liar.send_plan(&Plan { index, ..call_code(name, image, id, liar.epoch) }, b"");
            scene.refuses(&mut liar, cause, words, what);
            liar.send_plan(&Plan { index, ..call() }, b"");
            scene.refuses(&mut liar, cause, words, what);
            index += 1;
        };
    for (what, image, words) in &bad {
        refused(&mut scene, "tally", image, code_id(image), RefusalCause::BadImage, words, what);
    }
    let (mismatch, wrong) = (RefusalCause::IdMismatch, CodeId([9; 16]));
    refused(&mut scene, "tally", &image, wrong, mismatch, "09090909", "an id that is not its own");
    let echo = library("echo").images()[0].id();
    refused(&mut scene, "tally", &image, echo, mismatch, "damaged", "the id of code that is held");
    let arm = edit(4, &183_u16.to_le_bytes());
    let machine = RefusalCause::WrongMachine;
    refused(
        &mut scene,
        "tally",
        &arm,
        code_id(&arm),
        machine,
        "aarch64-unknown-linux-gnu",
        "another machine",
    );
    for name in ["", "..", "../tally", "a/b", "/", "1st", "a b", "a\0", "größe", &"x".repeat(255)] {
        // 255 letters make a name; everything before is none.
        let cause = if name.len() == 255 { RefusalCause::BadImage } else { RefusalCause::Name };
        let image = if name.len() == 255 { b"nonsense".to_vec() } else { image.clone() };
        refused(&mut scene, name, &image, code_id(&image), cause, "", &format!("the name {name:?}"));
    }
    let stats = scene.end();
    assert_eq!(stats.refused(RefusalCause::BadImage), 2 * (bad.len() as u64 + 1));
    assert_eq!(stats.refused(mismatch), 4);
    assert_eq!(stats.refused(machine), 2);
    assert_eq!(stats.refused(RefusalCause::Name), 18);
    assert_eq!(stats.images_linked, 2, "echo and sequence");
}

#[test]
fn code_sent_on_request_is_checked_like_any_other() {
    let mut scene = Scene::new();
    let mut liar = scene.liar();
    let image = library("tally").images()[0].bytes().to_vec();
    let id = code_id(&image);
    let ask = |liar: &mut RawSource, index, name, id: CodeId| {
        let plan = Plan { index, ..call_id(name, id, liar.epoch) };
        liar.send_plan(&plan, b"");
        assert!(
            matches!(liar.told(), Told::Message(Message::NeedCode { index: of, id: wanted }) if (of, wanted) == (index, id.0))
        );
    };
    ask(&mut liar, 1, "tally", CodeId([3; 16]));
    liar.control.send(&Message::Code { id: [3; 16], image: image.clone() }, &[]).unwrap();
    scene.refuses(&mut liar, RefusalCause::IdMismatch, "0303", "code of another id");
    ask(&mut liar, 2, "tally", id);
    liar.control.send(&Message::NoCode { id: id.0 }, &[]).unwrap();
    scene.refuses(&mut liar, RefusalCause::CodeMissing, "did not send it", "code that is not to be had");
    ask(&mut liar, 3, "../tally", id);
    liar.control.send(&Message::Code { id: id.0, image: image.clone() }, &[]).unwrap();
    scene.refuses(&mut liar, RefusalCause::Name, "../tally", "code by a name that is none");
    ask(&mut liar, 4, "tally", id);
    // Until the code comes nothing behind the frame runs, and nobody else waits.
    liar.send_plan(&call(), b"behind");
    scene.serves_on();
    liar.control.send(&Message::Code { id: id.0, image }, &[]).unwrap();
    assert_eq!(liar.reply(), 1_u64.to_ne_bytes());
    assert_eq!(liar.reply(), b"behind");
    assert_eq!(scene.end().refusals(), 3);
}

#[test]
fn messages_that_nobody_asked_for_cut_the_link() {
    let mut scene = Scene::new();
    let image = library("tally").images()[0].bytes().to_vec();
    let hello =
        Message::Hello { machine: 62, pid: 1, program: "again".into(), transports: vec!["shm".into()] };
    let messages = [
        Message::Code { id: code_id(&image).0, image: image.clone() },
        Message::NoCode { id: [0; 16] },
        Message::Go,
        Message::Closing { text: "no, you".into() },
        hello,
    ];
    for message in &messages {
        let mut liar = scene.liar();
        liar.control.send(message, &[]).unwrap();
        scene.cuts(liar, &format!("sent {} unasked", message.name()), message.name());
    }
    // While one code is waited for, another is as unwanted.
    let mut liar = scene.liar();
    let plan = Plan { index: 1, ..call_id("tally", CodeId([3; 16]), liar.epoch) };
    liar.send_plan(&plan, b"");
    assert!(matches!(liar.told(), Told::Message(Message::NeedCode { .. })));
    liar.control.send(&messages[0], &[]).unwrap();
    scene.cuts(liar, "sent Code unasked", "another code than the one waited for");
    assert_eq!(scene.end().refused(RefusalCause::BadFrame), messages.len() as u64 + 1);
}

#[test]
fn garbage_on_the_control_connection_cuts_the_link() {
    use std::os::fd::AsFd;
    let mut scene = Scene::new();
    let too_long = [&u32::MAX.to_le_bytes()[..], &[0; 4]].concat();
    let cases: [(&str, Vec<u8>, &str); 3] = [
        ("a message of 4 GiB", too_long, "limit"),
        ("a message of no kind", [&1_u32.to_le_bytes()[..], &[0; 4], &[250]].concat(), "makes no sense"),
        ("a head that is none", vec![0xff; 8], ""),
    ];
    let count = cases.len() as u64;
    for (what, bytes, words) in cases {
        let liar = scene.liar();
        rustix::io::write(liar.control.as_fd(), &bytes).unwrap();
        scene.cuts(liar, words, what);
    }
    assert_eq!(scene.end().refused(RefusalCause::BadFrame), count);
}

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
            // Payload made of whole frames, with the signals that were right at these very places a lap ago, and with those
            // that are right where the frames behind this one will start.
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
        // What lies where the next frame is due is a frame, of the lap before.
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
    // More replies than its room of 4 KiB holds, while it claims to have taken all and more: the rest waits.
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

/// A transport that offers one arrival rule of those it has.
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
    fn open(&mut self, request: &OpenRequest) -> Result<Box<dyn Opening>, TransportError> {
        Ok(Box::new(OnlyOpening(self.0.open(request)?)))
    }
}

struct OnlyOpening(Box<dyn Opening>);

impl Opening for OnlyOpening {
    fn address(&self) -> Address {
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
        .stall_limit(Duration::from_millis(100))
        .on_peer_gone(move |_, why| gone_to.push(why.to_owned()))
        .build()
        .unwrap()
        .spawn()
        .unwrap();
    let honest = place.link().with_transport(checked()).transport("only").connect().unwrap();
    assert_eq!(honest.rule(), ArrivalRules::CHECKED);
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
            assert!(text.contains("its end did not within 100ms"), "{text}");
            assert_eq!(gone.all(), [text]);
        }
        other => panic!("{other:?}"),
    }
    assert!(matches!(liar.told(), Told::End));
    drop(honest);
    let stats = target.stop().unwrap().stats().clone();
    assert_eq!((stats.refused(RefusalCause::Stalled), stats.refusals()), (1, 1));
}

#[test]
fn a_source_that_reads_no_refusals_is_not_cut_off_and_gets_no_more_of_them_than_it_reads() {
    let mut scene = Scene::new();
    let mut liar = scene.liar();
    // 60,000 frames that will be refused with a text each: far more than a socket and a queue hold.
    let mut sent = 0;
    while sent < 60_000_u64 {
        if (liar.position - liar.consumed()) as usize + LINE > liar.ring() / 2 {
            if sent > 2000 && liar.consumed() == liar.position - (liar.ring() / 2) as u64 {
                break;
            }
            scene.serves_on();
            if liar.position - liar.consumed() > (liar.ring() / 2 - LINE) as u64 {
                break;
            }
            continue;
        }
        liar.send_plan(&Plan { index: 9, ..call() }, b"");
        sent += 1;
    }
    scene.serves_on();
    let mut refused = 0;
    while refused < sent {
        match liar.told() {
            Told::Message(Message::Refused { cause: RefusalCause::UnknownIndex, .. }) => refused += 1,
            other => panic!("{other:?}"),
        }
    }
    liar.send_plan(&call(), b"no hard feelings");
    assert_eq!(liar.reply(), b"no hard feelings");
    assert_eq!(scene.end().refusals(), sent);
}

/// `PlanCode` is public: what it allows to say, an image in a frame that names its code only, is refused too.
#[test]
fn a_frame_that_names_its_code_and_brings_it_is_no_frame() {
    let mut scene = Scene::new();
    let mut liar = scene.liar();
    let image = library("tally").images()[0].bytes().to_vec();
    let code = PlanCode { image: &image, id: code_id(&image), epoch: liar.epoch, name: "tally" };
    let plan = Plan { kind: Kind::CallId, code: Some(code), index: 1, ..call() };
    liar.send_plan(&plan, b"");
    scene.cuts(liar, "image", "code with a frame that names it");
}
