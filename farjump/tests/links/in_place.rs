//! Mode in place: code runs out of the mailbox, through its executable alias.

use std::collections::BTreeSet;
use std::fs;
use std::ptr::NonNull;

use farjump::core::frame::{Kind, Plan};
use farjump::core::image::ImageView;
use farjump::core::transport::{BorrowedFd, Cause, Endpoint, LocalMemory, Operation, TransportError};
use farjump::{CodeId, Error, InPlaceFault, InjectError, Library, Mode, RefusalCause};
use farjump_fixtures::altered::Altered;
use farjump_fixtures::raw_source::{RawSource, call_code};
use farjump_transports::shm::Shm;

use crate::support::{
    Pair, Place, RETURN, id_of, image_of, library, meanwhile, panicked, refused, to_words, words,
};

fn in_place(place: &Place) -> Pair<'static> {
    Pair::of(place.target().modes(Mode::ALL), place.link().mode(Mode::InPlace))
}

/// Address ranges of shared regions mapped by this process, with their protection.
fn regions() -> Vec<(std::ops::Range<u64>, String)> {
    let maps = fs::read_to_string("/proc/self/maps").unwrap();
    let region = |line: &str| {
        let (range, rest) = line.split_once(' ')?;
        let (from, to) = range.split_once('-')?;
        let [from, to] = [from, to].map(|text| u64::from_str_radix(text, 16).unwrap());
        line.contains("memfd:farjump").then(|| (from..to, rest[..4].to_owned()))
    };
    maps.lines().filter_map(region).collect()
}

#[track_caller]
fn protection(address: u64) -> String {
    let region = regions().into_iter().find(|(range, _)| range.contains(&address));
    region.unwrap_or_else(|| panic!("{address:#x} is in no mailbox")).1
}

#[test]
fn code_in_place_runs_wherever_its_frame_lies_and_links_no_image() {
    let place = Place::new();
    let target = place.target().mailbox_size(1 << 16).modes([Mode::InPlace]);
    let mut pair = Pair::of(target, place.link().mode(Mode::InPlace));
    let (whereabouts, echo) = (library("whereabouts"), library("echo"));
    let mut places = BTreeSet::new();
    for round in 0..200_usize {
        let len = round % 77;
        // Single calls stay near the mailbox's start; calls with others before them do not.
        for _ in 0..round % 5 {
            pair.link.send(&echo, &[7; 4000]).unwrap();
        }
        let [main, payload, table, letter] = to_words(&pair.call(&whereabouts, &vec![7; len]).unwrap())[..]
        else {
            panic!("four words")
        };
        assert_eq!((&*protection(main), &*protection(payload)), ("r-xs", "rw-s"));
        assert!(table != 0 && table.is_multiple_of(1024), "{table:#x}");
        assert_eq!(letter, u64::from(b"zot"[len % 3]));
        places.insert(main);
        // Payloads in a line of their own, behind code, and in frames that wrap around the mailbox.
        for len in [0, 8, 40, 41, 5_000] {
            let bytes = vec![round as u8; len];
            assert_eq!(*pair.call(&echo, &bytes).unwrap(), *bytes);
        }
    }
    // Code with the alignment of a page, as on aarch64, fits at fewer places.
    let least = if cfg!(target_arch = "x86_64") { 8 } else { 4 };
    assert!(places.len() > least, "it ran at {} places", places.len());
    let stats = pair.link.stats();
    assert_eq!((stats.frames, stats.frames_with_code), (1600, 1600));
    assert_eq!((pair.target.stats().calls, pair.target.stats().images_linked), (1600, 0));
}

#[test]
fn no_page_is_writable_and_executable_and_aliases_exist_only_on_request() {
    let place = Place::new();
    let mut pair = in_place(&place);
    let mine = |pair: &mut Pair<'_>| {
        let payload = to_words(&pair.call(&library("whereabouts"), b"").unwrap())[1];
        let all = regions();
        assert!(all.iter().all(|(_, protection)| !protection.starts_with("rwx")), "{all:?}");
        let mapped = all.iter().find(|(range, _)| range.contains(&payload)).map(|(range, _)| range.clone());
        mapped.is_some_and(|mapped| {
            let len = mapped.end - mapped.start;
            all.iter().any(|(range, protection)| protection == "r-xs" && range.end - range.start == len)
        })
    };
    assert!(mine(&mut pair));
    drop(pair);
    let allowing_only = place.target().modes(Mode::ALL).mailbox_size(1 << 17);
    let mut cached = Pair::of(allowing_only, place.link());
    let payload = to_words(&cached.call(&library("whereabouts"), b"").unwrap())[1];
    assert_eq!(protection(payload), "rw-s");
    let len = |(range, _): &(std::ops::Range<u64>, String)| range.end - range.start;
    let region = regions().into_iter().find(|(range, _)| range.contains(&payload)).unwrap();
    // No other test has a mailbox of this length.
    assert_eq!(
        regions().iter().filter(|other| len(other) == len(&region)).count(),
        2,
        "both sides' mappings"
    );
}

#[test]
fn code_with_statics_is_refused_in_place_before_it_is_sent() {
    let place = Place::new();
    let mut pair = in_place(&place);
    let tally = library("tally");
    for _ in 0..2 {
        match pair.link.inject(&tally, b"").map(drop) {
            Err(Error::Inject(InjectError::NotInPlace { ifunc, fault })) => {
                assert_eq!(ifunc, "tally");
                assert_eq!(fault, InPlaceFault::Statics { len: 8 });
            }
            other => panic!("{other:?}"),
        }
        assert!(matches!(pair.link.send(&tally, b""), Err(Error::Inject(InjectError::NotInPlace { .. }))));
    }
    assert_eq!(pair.link.stats().frames, 0);
    assert_eq!(*pair.call(&library("echo"), b"and on").unwrap(), *b"and on");
    pair.link.set_mode(Mode::Cached);
    assert_eq!(to_words(&pair.call(&tally, b"").unwrap()), [1]);
}

#[test]
fn a_target_refuses_code_in_place_by_default() {
    let place = Place::new();
    let mut pair = Pair::of(place.target(), place.link().mode(Mode::InPlace));
    let text = refused(pair.call(&library("echo"), b""), "echo", RefusalCause::Policy);
    assert!(text.contains("mode in-place") && text.contains("TargetBuilder::modes"), "{text}");
    for mode in [Mode::Cached, Mode::Always] {
        pair.link.set_mode(mode);
        assert_eq!(*pair.call(&library("echo"), b"yes").unwrap(), *b"yes");
    }
}

#[test]
fn all_modes_share_a_link_and_a_panic_ends_only_its_call() {
    let place = Place::new();
    let echo = library("echo");
    let mut pair = Pair::of(place.target().modes(Mode::ALL).local(&echo).mailbox_size(1 << 14), place.link());
    for round in 0..100_u64 {
        for mode in Mode::ALL {
            pair.link.set_mode(mode);
            let bytes = [round.to_ne_bytes(), (mode as u64).to_ne_bytes()].concat();
            assert_eq!(*pair.call(&echo, &bytes).unwrap(), *bytes, "{mode}");
        }
        pair.link.set_mode(Mode::InPlace);
        let outcome = pair.call(&library("speech"), &[&words(&[0, 1])[..], b"on purpose"].concat());
        assert_eq!(panicked(outcome, "speech"), "on purpose");
    }
}

// ---- sources that break the protocol ----

/// A hostile source of a target that allows everything. The test's own thread serves each.
fn hostile(place: &Place) -> (RawSource, farjump::TargetThread) {
    let target = place.target().modes(Mode::ALL).mailbox_size(1 << 16).build().unwrap().spawn().unwrap();
    (RawSource::connect(&place.address()), target)
}

fn image_and_id(library: &Library) -> (Vec<u8>, CodeId) {
    (image_of(library), id_of(library))
}

fn call_in_place<'a>(name: &'a str, image: &'a [u8], id: CodeId, epoch: u64) -> Plan<'a> {
    Plan { kind: Kind::CallInPlace, ..call_code(name, image, id, epoch) }
}

#[track_caller]
fn refuses(hostile: &mut RawSource, due: RefusalCause, words: &str) {
    let (cause, text) = hostile.refusal(7);
    assert_eq!(cause, due, "{text}");
    assert!(text.contains(words), "{text}");
}

#[test]
fn invalid_code_in_place_is_refused_and_the_link_continues() {
    let place = Place::new();
    let (mut hostile, target) = hostile(&place);
    let epoch = hostile.epoch;
    let (tally, tally_id) = image_and_id(&library("tally"));
    hostile.send_plan(&call_in_place("tally", &tally, tally_id, epoch), b"");
    refuses(&mut hostile, RefusalCause::BadImage, "writable statics");

    let (echo, id) = image_and_id(&library("echo"));
    let u32_of = |at: usize| u32::from_le_bytes(echo[at..at + 4].try_into().unwrap());
    let edit = |at: usize, bytes: &[u8]| {
        let mut image = echo.clone();
        image[at..at + bytes.len()].copy_from_slice(bytes);
        image
    };
    hostile.send_plan(&call_in_place("echo", &echo, CodeId([9; 16]), epoch), b"");
    refuses(&mut hostile, RefusalCause::IdMismatch, "09090909");
    hostile.send_plan(&call_in_place("echo", &echo, id, epoch ^ 1), b"");
    refuses(&mut hostile, RefusalCause::StaleEpoch, "connect again");
    hostile.send_plan(&call_in_place("../echo", &echo, id, epoch), b"");
    refuses(&mut hostile, RefusalCause::BadName, "../echo");
    // The layout of `core/src/wire/image/mod.rs`: the entry is at 12, the first import's site at 32.
    for (image, words) in [
        (edit(12, &u32_of(8).to_le_bytes()), "entry"),
        (edit(32, &(u32_of(8) & !7).to_le_bytes()), "outside"),
        (edit(32, &0x7fff_fff8_u32.to_le_bytes()), "outside"),
        (edit(32, &0x8000_0000_u32.to_le_bytes()), "outside"),
        (echo[..echo.len() - 1].to_vec(), "truncated"),
    ] {
        let id = farjump_loader::code_id(&image);
        hostile.send_plan(&call_in_place("echo", &image, id, epoch), b"");
        refuses(&mut hostile, RefusalCause::BadImage, words);
    }
    // Honest code, and then code of another length under the same id.
    hostile.send_plan(&call_in_place("echo", &echo, id, epoch), b"honest");
    assert_eq!(hostile.reply(), b"honest");
    for other in [echo[..echo.len() - 8].to_vec(), [&echo[..], &[0; 8]].concat()] {
        hostile.send_plan(&call_in_place("echo", &other, id, epoch), b"");
        refuses(&mut hostile, RefusalCause::IdMismatch, "damaged");
    }
    // A whole image, eight bytes off its right offset.
    let (aligned, aligned_id) = image_and_id(&library("whereabouts"));
    let mut frame = hostile.frame(&call_in_place("whereabouts", &aligned, aligned_id, epoch), b"");
    let at = u32::from_le_bytes(frame[24..28].try_into().unwrap()) as usize;
    frame.copy_within(at..at + aligned.len(), at - 8);
    frame[24..28].copy_from_slice(&((at - 8) as u32).to_le_bytes());
    hostile.send(&frame);
    refuses(&mut hostile, RefusalCause::BadFrame, &format!("multiple of {}", 1_u32 << aligned[7]));

    hostile.send_plan(&call_in_place("echo", &echo, id, epoch), b"and on");
    assert_eq!(hostile.reply(), b"and on");
    let stats = target.stop().unwrap().stats().clone();
    assert_eq!((stats.calls, stats.images_linked, stats.refusals()), (2, 0, 12));
}

#[test]
fn code_in_place_runs_as_received_except_checked_import_sites() {
    let place = Place::new();
    let (mut hostile, target) = hostile(&place);
    let epoch = hostile.epoch;
    let (echo, id) = image_and_id(&library("echo"));
    hostile.send_plan(&call_in_place("echo", &echo, id, epoch), b"checked");
    assert_eq!(hostile.reply(), b"checked");
    let view = ImageView::new_checked(&echo).unwrap();
    let (span1, entry) = (view.span1_offset(), view.entry() as usize);
    let site = match view.imports().next().unwrap().site {
        farjump::core::image::Place::Span1(at) => span1 + at as usize,
        farjump::core::image::Place::Span2(_) => panic!("echo has no statics"),
    };
    // Under the same id: code that returns at once, behind a head with other numbers throughout.
    let mut other = echo.clone();
    other[8..span1].fill(0xff);
    other[span1 + entry..][..RETURN.len()].copy_from_slice(&RETURN);
    let plan = call_in_place("echo", &other, id, epoch);
    // An honest layout for a head with arbitrary numbers.
    let mut frame = hostile.frame(&call_in_place("echo", &echo, id, epoch), b"payload!");
    let at = u32::from_le_bytes(frame[24..28].try_into().unwrap()) as usize;
    frame[at..at + other.len()].copy_from_slice(plan.code.unwrap().image);
    let start = hostile.offset();
    hostile.send(&frame);
    assert_eq!(hostile.reply(), b"", "what came returned at once");
    let after = hostile.read(start, frame.len() / 8);
    let changed: Vec<usize> = (8..frame.len()).filter(|&at| after[at] != frame[at]).collect();
    assert!(!changed.is_empty());
    assert!(
        changed.iter().all(|byte| (at + site..at + site + 8).contains(byte)),
        "{changed:?}, {at} + {site}"
    );
    drop(hostile);
    assert_eq!(target.stop().unwrap().stats().calls, 2);
}

// ---- systems that do not allow it ----

/// A region without an executable alias.
struct NoExecLocal(Box<dyn LocalMemory>);

// SAFETY: it only passes on the guarantees of the inner memory.
unsafe impl LocalMemory for NoExecLocal {
    fn base(&self) -> NonNull<u8> {
        self.0.base()
    }

    fn len(&self) -> usize {
        self.0.len()
    }

    fn executable(&mut self) -> Result<NonNull<u8>, TransportError> {
        let cause = Cause::System("this process may not execute memory".to_owned());
        Err(TransportError::new("shm", Operation::Open, cause))
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.0.descriptor()
    }

    fn before_sleep(&mut self) -> Result<bool, TransportError> {
        self.0.before_sleep()
    }

    fn after_sleep(&mut self) -> Result<(), TransportError> {
        self.0.after_sleep()
    }
}

#[test]
fn only_code_in_place_is_refused_where_memory_cannot_execute() {
    let place = Place::new();
    let no_exec = Altered::new(Shm::new()).connecting(|endpoint, peer, deadline_ms| {
        let Endpoint::OneSided { local, remote } = endpoint.connect(peer, deadline_ms)? else {
            panic!("shm is one-sided")
        };
        Ok(Endpoint::OneSided { local: Box::new(NoExecLocal(local)), remote })
    });
    let target = place.target().with_transport(no_exec.boxed()).transport("shm").modes(Mode::ALL);
    let mut pair = Pair::of(target, place.link());
    let echo = library("echo");
    for round in 0..3 {
        pair.link.set_mode(Mode::InPlace);
        let text = refused(pair.call(&echo, b""), "echo", RefusalCause::Policy);
        assert!(text.contains("may not execute memory") && text.contains("another mode"), "{text}");
        for mode in [Mode::Cached, Mode::Always] {
            pair.link.set_mode(mode);
            assert_eq!(*pair.call(&echo, b"yes").unwrap(), *b"yes", "{round}");
        }
    }
    let Pair { link, mut target } = pair;
    meanwhile(&mut target, move || drop(link));
}
