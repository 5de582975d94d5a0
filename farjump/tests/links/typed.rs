//! Typed calls: of functions in Rust, which declare their types, and of functions in C, which do not.

use farjump::zerocopy::{FromBytes, Immutable, IntoBytes};
use farjump::{CallError, Error, Mode, TypedArgs, TypedFunction, TypedReply};

use crate::support::{PATIENCE, Pair, Place, library, meanwhile, panicked};

/// Makes a typed call, while the target polls.
fn call<A, R>(pair: &mut Pair<'_>, function: &TypedFunction<A, R>, args: &A) -> Result<R::Value, Error>
where
    A: TypedArgs + Sync + ?Sized,
    R: TypedReply<Value: Send> + ?Sized,
{
    let link = &mut pair.link;
    meanwhile(&mut pair.target, move || link.call(function, args)?.wait(PATIENCE))
}

fn refusal<A: TypedArgs + ?Sized, R: TypedReply + ?Sized>(name: &str) -> String {
    library(name).typed::<A, R>().unwrap_err().to_string()
}

#[derive(IntoBytes, Immutable, Clone, Copy)]
#[zerocopy(crate = "farjump::zerocopy")]
#[repr(C)]
struct Query {
    from: i32,
    count: u32,
    points: [i32; 100],
}

#[derive(FromBytes, PartialEq, Debug)]
#[zerocopy(crate = "farjump::zerocopy")]
#[repr(C)]
struct NearestPoint {
    index: u32,
    distance: u32,
}

#[test]
fn structures_go_and_come_and_an_error_is_the_functions_own_text() {
    let (_place, mut pair) = Pair::start();
    let nearest = library("nearest.rs").typed::<Query, NearestPoint>().unwrap();
    let mut query = Query { from: 10, count: 3, points: [0; 100] };
    query.points[..3].copy_from_slice(&[-5, 12, 9]);
    assert_eq!(call(&mut pair, &nearest, &query).unwrap(), NearestPoint { index: 2, distance: 1 });
    for (count, text) in [(0, "there are no points"), (101, "there are at most 100 points")] {
        let error = panicked(call(&mut pair, &nearest, &Query { count, ..query }), "nearest");
        assert!(error.contains(text), "{error}");
    }
    // Bytes of another length never reach the function, whichever source sends them.
    let error = panicked(pair.call(nearest.library(), &[0; 407]), "nearest");
    assert!(error.contains("the payload is no value of 408 bytes"), "{error}");
}

#[test]
fn slices_of_any_length_go_and_come_in_every_mode() {
    let place = Place::new();
    let prefixes = library("prefixes.rs").typed::<[u64], [u64]>().unwrap();
    let sum = library("sum.rs").typed::<[f32], f64>().unwrap();
    for mode in [Mode::Cached, Mode::Always, Mode::InPlace, Mode::Local] {
        let target = place.target().modes([mode]).local(prefixes.library()).local(sum.library());
        let mut pair = Pair::of(target, place.link().mode(mode));
        // Payloads of up to 256 bytes are copied to the stack, and longer ones to memory of the target.
        for len in [0, 1, 5, 6, 31, 32, 33, 1000, 100_000_u64] {
            let values: Vec<u64> = (1..=len).collect();
            let expected: Vec<u64> = values.iter().map(|n| n * (n + 1) / 2).collect();
            assert_eq!(call(&mut pair, &prefixes, &values).unwrap(), expected, "{mode:?}, {len}");
        }
        assert_eq!(call(&mut pair, &sum, &[0.5, 0.25][..]).unwrap(), 0.75, "{mode:?}");
        // Longer than the mailbox.
        if mode != Mode::InPlace {
            assert_eq!(call(&mut pair, &sum, &vec![0.5; 600_000]).unwrap(), 300_000.0, "{mode:?}");
        }
    }
}

#[test]
fn texts_are_checked_and_wide_values_are_aligned_at_the_target() {
    let (_place, mut pair) = Pair::start();
    let shout = library("shout.rs").typed::<str, [u8]>().unwrap();
    assert_eq!(call(&mut pair, &shout, "größer").unwrap(), "GRößER".as_bytes());
    let error = panicked(pair.call(shout.library(), b"\xff"), "shout");
    assert!(error.contains("no UTF-8"), "{error}");
    let wide = library("wide.rs").typed::<[u128], [u128; 2]>().unwrap();
    for len in [1, 2, 3, 16, 17, 5000] {
        let values: Vec<u128> = (0..len).map(|n| n << 70).collect();
        assert_eq!(call(&mut pair, &wide, &values).unwrap(), [(len - 1) << 70, 0], "{len} values");
    }
}

#[test]
fn one_way_calls_and_batches_take_typed_arguments() {
    let place = Place::new();
    let mut count = 0_u64;
    let mut pair = Pair::of(place.target().args(&mut count), place.link());
    let counter = library("counter.rs").typed::<u32, ()>().unwrap();
    pair.link.call_one_way(&counter, &1).unwrap();
    pair.link.try_call_one_way(&counter, &2).unwrap();
    pair.serve();
    let frames = pair.link.stats().frames;
    let mut batch = pair.link.batch();
    for number in 0..10 {
        batch.call_one_way(&counter, &number).unwrap();
    }
    batch.finish().unwrap();
    assert_eq!(pair.link.stats().frames, frames + 1, "calls of one length share a frame");
    pair.flush().unwrap();
    call(&mut pair, &counter, &3).unwrap();
    drop(pair);
    assert_eq!(count, 13);
}

#[test]
fn a_pending_typed_call_is_polled_cancelled_or_taken_as_bytes() {
    let (_place, mut pair) = Pair::start();
    let sum = library("sum.rs").typed::<[f32], f64>().unwrap();
    let mut pending = pair.link.try_call(&sum, &[1.0, 2.0]).unwrap();
    assert_eq!(pending.poll().unwrap(), None);
    let bytes = pair.link.call(&sum, &[4.0]).unwrap().into_pending();
    pair.link.call(&sum, &[8.0]).unwrap().cancel();
    while pair.target.poll().unwrap() != 0 {}
    assert_eq!(pending.poll().unwrap(), Some(3.0));
    assert_eq!(*bytes.wait(PATIENCE).unwrap(), 4.0_f64.to_ne_bytes());
}

#[test]
fn types_that_do_not_fit_are_refused_with_both_named() {
    let text = refusal::<[u64], f64>("sum.rs");
    assert_eq!(
        text,
        "`sum` is `fn sum(values: &[f32]) -> f64`: its arguments are values of 4 bytes aligned to 4, and `[u64]` is values of 8 \
         bytes aligned to 8: call it with the type that it has"
    );
    let text = refusal::<[f32], f32>("sum.rs");
    assert!(text.contains("its reply is 8 bytes aligned to 8, and `f32` is 4 bytes aligned to 4"), "{text}");
    let text = refusal::<f32, NearestPoint>("nearest.rs");
    assert!(text.contains("its arguments are 408 bytes aligned to 4, and `f32` is 4 bytes"), "{text}");
    assert!(refusal::<[Query], NearestPoint>("nearest.rs").contains("values of 408 bytes"));
    // An array is some number of values, and one value is an array of one.
    library("sum.rs").typed::<[f32; 3], [f64]>().unwrap();
    // A function in C declares nothing but the alignment.
    library("echo").typed::<[u64], u32>().unwrap();
    let text = refusal::<[u128], ()>("echo");
    assert!(
        text.contains("a `[u128]` is aligned to 16 bytes, and payloads of `echo` to 8 at least"),
        "{text}"
    );
    assert!(text.contains("FARJUMP_PAYLOAD_ALIGN(echo, 16)"), "{text}");
    // A payload of more than 40 bytes is aligned to 64.
    library("echo").typed::<[u128; 3], ()>().unwrap();
    library("aligned").typed::<[u128], ()>().unwrap();
}

#[test]
fn a_reply_of_another_length_is_an_error_that_names_both() {
    let (_place, mut pair) = Pair::start();
    let echo = library("echo").typed::<[u8], u32>().unwrap();
    assert_eq!(call(&mut pair, &echo, &7_u32.to_ne_bytes()[..]).unwrap(), 7);
    let error = call(&mut pair, &echo, &b"abc"[..]).unwrap_err();
    let Error::Call(CallError::ReplyLength(found)) = &error else { panic!("{error}") };
    assert_eq!((found.len, found.type_name), (3, "u32"));
    assert_eq!(
        error.to_string(),
        "the reply of `echo` has 3 bytes, and a `u32` is 4 bytes aligned to 4: call it with the type of its reply"
    );
    let words = library("echo").typed::<[u8], [u32]>().unwrap();
    assert_eq!(call(&mut pair, &words, &[0; 12][..]).unwrap(), [0; 3]);
    assert!(call(&mut pair, &words, &[0; 13][..]).is_err());
    let nothing = library("echo").typed::<(), ()>().unwrap();
    call(&mut pair, &nothing, &()).unwrap();
}
