//! Calls that a program has its own target run, without a link.

use std::ffi::c_void;

use farjump::{CodeId, Error, InjectError, Mode, OwnCode, RefusalCause, Reply, ServeError, Target};

use crate::support::{
    Pair, Place, Seen, id_of, image_of, library, panicked, poll_until, refused, to_words, words,
};

/// Makes the target run code of these tests.
fn call<'c>(target: &mut Target<'_>, code: impl Into<OwnCode<'c>>, args: &[u8]) -> Result<Reply, Error> {
    // SAFETY: the functions of these tests take whatever the tests pass.
    unsafe { target.call(code, args) }
}

fn image<'a>(name: &'a str, bytes: &'a [u8]) -> OwnCode<'a> {
    OwnCode::Image { name, bytes }
}

/// `struct wish` of `wish.h`, for a payload of `len` bytes.
fn wish(len: u64, result: i64) -> Vec<u8> {
    words(&[len, len, len, result as u64])
}

#[test]
fn own_calls_by_library_image_or_id_share_one_copy() {
    let (_place, mut pair) = Pair::start();
    let tally = library("tally");
    let bytes = image_of(&tally);
    assert_eq!(to_words(&call(&mut pair.target, &tally, b"").unwrap()), [1]);
    assert_eq!(to_words(&call(&mut pair.target, image("tally", &bytes), b"").unwrap()), [2]);
    assert_eq!(to_words(&call(&mut pair.target, id_of(&tally), b"").unwrap()), [3]);
    assert_eq!(to_words(&pair.call(&tally, b"").unwrap()), [4]);
    let mut kept = b"before ".to_vec();
    // SAFETY: as in `call`.
    unsafe { pair.target.call_into(&tally, b"", &mut kept) }.unwrap();
    assert_eq!(kept, [&b"before "[..], &words(&[5])].concat());
    let stats = pair.target.stats();
    assert_eq!((stats.calls, stats.images_linked, stats.store.images, stats.refusals()), (5, 1, 1, 0));
    assert_eq!(stats.frames, 1, "only the source sends frames");
    assert_eq!(pair.target.images()[0].name, "tally");
}

#[test]
fn a_target_without_sources_runs_code_with_args_and_aligned_payloads() {
    let place = Place::new();
    let mut count = 0_u64;
    let mut target = place.target().args(&mut count).build().unwrap();
    let counter = library("counter");
    for _ in 0..3 {
        assert!(call(&mut target, &counter, b"").unwrap().is_empty(), "it replies nothing");
    }
    *target.args_mut::<u64>().unwrap() += 10;
    let aligned = library("aligned");
    for len in [0, 1, 63, 4096, 100_000] {
        let reply = to_words(&call(&mut target, &aligned, &vec![7; len]).unwrap());
        assert_eq!(reply[0] % (1 << aligned.images()[0].payload_align_log2()), 0, "{reply:?}");
    }
    drop(target);
    assert_eq!(count, 13);
}

#[test]
fn payload_routines_of_a_library_make_the_payload_and_are_watched() {
    let place = Place::new();
    let mut target = place.target().build().unwrap();
    for name in ["demanding", "shrinking"] {
        let library = library(name);
        for len in [8, 40, 5000] {
            assert_eq!(to_words(&call(&mut target, &library, &wish(len, 0)).unwrap()), [len]);
        }
        let failed = call(&mut target, &library, &wish(8, -7)).unwrap_err();
        assert!(matches!(failed, Error::Library(_)) && failed.to_string().contains("-7"), "{failed}");
        let too_far = call(&mut target, &library, &words(&[8, 9, 8, 0])).unwrap_err();
        assert!(matches!(too_far, Error::Inject(InjectError::PayloadOverrun { max: 8, .. })), "{too_far}");
        for most in [u64::MAX, i64::MAX as u64 - 4096] {
            let asked = words(&[most, 0, 0, 0]);
            let text = refused(call(&mut target, &library, &asked), name, RefusalCause::OutOfMemory);
            assert!(text.contains(&most.to_string()), "{text}");
        }
    }
    assert_eq!(target.stats().calls, 6);
}

#[test]
fn own_calls_return_panics_and_refusals_as_links_do() {
    let place = Place::new();
    let mut target = place.target().build().unwrap();
    let bytes = image_of(&library("demanding"));
    let ended = call(&mut target, image("demanding", &bytes), b"not what it wants");
    assert_eq!(panicked(ended, "demanding"), "the payload came over damaged");
    let text = refused(call(&mut target, &library("lookup"), b""), "lookup", RefusalCause::UnresolvedImport);
    assert!(text.contains("store_get"), "{text}");
    let text = refused(call(&mut target, image("junk", b"junk"), b""), "junk", RefusalCause::BadImage);
    assert!(text.contains("junk"), "{text}");
    let cut = image("cut", &bytes[..bytes.len() - 1]);
    refused(call(&mut target, cut, b""), "cut", RefusalCause::BadImage);
    let nowhere = CodeId([7; 16]);
    let text = refused(call(&mut target, nowhere, b""), &nowhere.to_string(), RefusalCause::CodeMissing);
    assert!(text.contains(&nowhere.to_string()), "{text}");
    let stats = target.stats();
    assert_eq!((stats.calls, stats.refusals()), (1, 4));
    assert_eq!(*call(&mut target, &library("echo"), b"goes on").unwrap(), *b"goes on");
}

#[test]
fn allow_lists_limits_and_modes_hold_as_for_sources() {
    let (echo, tally) = (library("echo"), library("tally"));
    let place = Place::new();
    let mut listed = place.target().allow_code([id_of(&echo)]).build().unwrap();
    assert_eq!(*call(&mut listed, &echo, b"in").unwrap(), *b"in");
    let text = refused(call(&mut listed, &tally, b""), "tally", RefusalCause::Policy);
    assert!(text.contains(&id_of(&tally).to_string()), "{text}");
    refused(call(&mut listed, image("tally", &image_of(&tally)), b""), "tally", RefusalCause::Policy);
    refused(call(&mut listed, id_of(&tally), b""), &id_of(&tally).to_string(), RefusalCause::Policy);
    drop(listed);

    let len = image_of(&echo).len();
    let mut small = place.target().max_image(len).max_payload(8).build().unwrap();
    assert_eq!(*call(&mut small, &echo, b"just so ").unwrap(), *b"just so ");
    let text = refused(call(&mut small, &echo, b"too much!"), "echo", RefusalCause::TooLarge);
    assert!(text.contains("9 bytes") && text.contains("max_payload"), "{text}");
    drop(small);
    let mut tiny = place.target().max_image(len - 1).build().unwrap();
    let text = refused(call(&mut tiny, &echo, b""), "echo", RefusalCause::TooLarge);
    assert!(text.contains("max_image"), "{text}");
    drop(tiny);

    let mut local = place.target().modes([Mode::Local]).local(&echo).build().unwrap();
    let text = refused(call(&mut local, &echo, b""), "echo", RefusalCause::Policy);
    assert!(text.contains("local"), "{text}");
}

// Levels of CPUs are those of x86-64.
#[cfg(target_arch = "x86_64")]
#[test]
fn a_family_that_may_come_in_lets_its_library_in() {
    use crate::platforms::{family_of, levels};

    let place = Place::new();
    let (echo, tally) = (library("echo"), library("tally"));
    let several = levels(&place, &[0, 2]);
    let mut target = place.target().allow_family([&several, &echo].map(family_of)).build().unwrap();
    assert_eq!(call(&mut target, &several, b"").unwrap().len(), 1);
    assert_eq!(*call(&mut target, image("echo", &image_of(&echo)), b"in").unwrap(), *b"in");
    refused(call(&mut target, &tally, b""), "tally", RefusalCause::Policy);
}

#[test]
fn code_evicted_by_an_own_call_is_requested_again() {
    let place = Place::new();
    let (asked, note_asked) = Seen::new();
    let one_image = place.target().store_bytes(usize::MAX).store_images(1);
    let mut pair = Pair::of(one_image.on_code_missing(move |_, _| note_asked(())), place.link());
    let (tally, echo) = (library("tally"), library("echo"));
    for round in 1..=5 {
        assert_eq!(to_words(&pair.call(&tally, b"").unwrap()), [1]);
        assert_eq!(*call(&mut pair.target, &echo, b"own").unwrap(), *b"own");
        assert_eq!(*call(&mut pair.target, &echo, b"again").unwrap(), *b"again");
        assert_eq!(asked.all().len(), round - 1);
    }
    let stats = pair.target.stats();
    assert_eq!((stats.calls, stats.images_linked, stats.store.evictions, stats.refusals()), (15, 10, 9, 0));
    // Code that fits nowhere is refused, and evicts nothing twice.
    drop(pair);
    let mut target = place.target().arena_size(256 << 10).build().unwrap();
    let text = refused(call(&mut target, &library("bulky_one"), b""), "bulky", RefusalCause::OutOfMemory);
    assert!(text.contains("arena") || text.contains("capacity"), "{text}");
}

/// The target's argument in the next test: another target, and the outcome of a call of it.
struct Inside {
    other: *mut Target<'static>,
    said: String,
}

extern "C" fn store_get(inside: *mut Inside, key: u64) -> u64 {
    // SAFETY: the test passes such a value, whose target is not in use, and uses neither meanwhile.
    let inside = unsafe { &mut *inside };
    // SAFETY: as above; the target is another one than that which runs this.
    let other = unsafe { &mut *inside.other };
    // SAFETY: `echo` takes any payload.
    let ended = unsafe { other.call(&library("echo"), b"") };
    if let Err(error @ Error::Serve(ServeError::InsideCall)) = ended {
        inside.said = error.to_string();
    }
    key
}

#[test]
fn a_call_from_inside_an_injected_function_is_refused_and_runs_nothing() {
    static VERSION: u64 = 0;
    let place = Place::new();
    let mut other = Target::listen(&place.address_of("other.sock")).build().unwrap();
    let mut inside = Inside { other: &raw mut other, said: String::new() };
    let args = (&raw mut inside).cast::<c_void>();
    // SAFETY: the value outlives the target; `store_get` takes it.
    let mut target = unsafe { place.target().args_raw(args) }
        .export("store_get", store_get as extern "C" fn(_, _) -> _)
        .export_data("store_version", &VERSION)
        .build()
        .unwrap();
    assert_eq!(to_words(&call(&mut target, &library("lookup"), &words(&[7])).unwrap()), [7]);
    drop(target);
    assert!(inside.said.contains("on this thread"), "{}", inside.said);
    assert_eq!(other.stats().calls, 0);
    assert_eq!(*call(&mut other, &library("echo"), b"later").unwrap(), *b"later");
}

#[test]
fn an_own_call_returns_its_reply_before_its_forwards_run() {
    let place = Place::new();
    let mut count = 0_u64;
    let mut target = place.target().args(&mut count).build().unwrap();
    // One generation, two messages to this target, and the byte that each call replies.
    let payload = [&[1, 2][..], b"r-@;"].concat();
    assert_eq!(*call(&mut target, &library("spread"), &payload).unwrap(), *b"r");
    assert_eq!(*target.args_mut::<u64>().unwrap(), 1);
    poll_until(&mut target, |target| target.stats().calls == 3);
    assert_eq!(*target.args_mut::<u64>().unwrap(), 3);
    // A message to a name that is no destination is refused at once.
    let lost = [&[1, 1][..], b"r-nobody;"].concat();
    assert_eq!(*call(&mut target, &library("spread"), &lost).unwrap(), *b"r1");
    assert_eq!(target.stats().calls, 4);
}
