//! Functions that make code from a template, and have it run here and at other targets.

use farjump::{CallError, CodeId, Error, RefusalCause};

use crate::forwarding::{Turned, member};
use crate::support::{Place, id_of, library, refused};

/// The payload of `stamp`.
fn stamp(factor: u64, places: &str) -> Vec<u8> {
    let template = library("stencil");
    let image = template.images()[0].bytes();
    [&factor.to_le_bytes()[..], places.as_bytes(), &[0], image].concat()
}

fn turned<'a>(place: &Place) -> Turned<'a> {
    let maker = member(place, 0, 2).allow_making(true);
    Turned::new(place, [maker, member(place, 1, 2)])
}

fn call(turned: &Turned<'_>, payload: &[u8]) -> Result<Vec<u8>, Error> {
    turned.reply_bytes(turned.link.inject(&library("stamp"), payload).unwrap())
}

fn words(bytes: &[u8]) -> Vec<u64> {
    bytes.chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().unwrap())).collect()
}

#[test]
fn made_code_runs_at_each_target_and_is_linked_there_once() {
    let place = Place::new();
    let turned = turned(&place);
    for factor in [5, 7, 5] {
        assert_eq!(words(&call(&turned, &stamp(factor, "@;")).unwrap()), [3 * factor]);
        assert_eq!(words(&call(&turned, &stamp(factor, "next;")).unwrap()), [3 * factor]);
        assert_eq!(words(&call(&turned, &stamp(factor, "next;@;next;@;")).unwrap()), [3 * factor; 4]);
    }
    // The second target makes no code. It links the code that came: `stencil` twice.
    assert_eq!(turned.target(1).stats().images_linked, 2);
    assert_eq!(turned.target(0).stats().images_linked, 3);
    let images = turned.target(0).images();
    let made: Vec<_> = images.iter().filter(|image| image.source.starts_with("`stamp` (")).collect();
    assert_eq!(made.len(), 2);
    assert!(made.iter().all(|image| image.id != id_of(&library("stencil")) && image.name == "stamp"));
}

#[test]
fn a_target_that_does_not_allow_it_says_so_to_the_function() {
    let place = Place::new();
    let turned = Turned::new(&place, [member(&place, 0, 2), member(&place, 1, 2)]);
    assert_eq!(call(&turned, &stamp(5, "@;next;")).unwrap(), b"6");
    assert_eq!(turned.target(0).stats().images_linked, 1);
}

#[test]
fn invalid_made_code_fails_its_call_and_later_calls_run() {
    let place = Place::new();
    let turned = turned(&place);
    // A cut image, bytes that are no image, and no image at all.
    let mut cut = stamp(5, "@;");
    cut.truncate(cut.len() - 1);
    let text = refused(call(&turned, &cut), "stamp", RefusalCause::ForwardFailed);
    assert!(text.contains("`stamp`") && text.contains("truncated"), "{text}");
    let text = refused(call(&turned, b"12345678@;\0bytes"), "stamp", RefusalCause::ForwardFailed);
    assert!(text.contains("`stamp`"), "{text}");
    let text = refused(call(&turned, &stamp(0, "@;")), "stamp", RefusalCause::ForwardFailed);
    assert!(text.contains(&format!("code {}, which is not here", CodeId([0; 16]))), "{text}");
    // Of several messages, the others have outcomes.
    let outcome = call(&turned, &stamp(0, "@;next;"));
    let Err(Error::Call(CallError::Incomplete(inner))) = outcome else { panic!("nothing was lost") };
    assert_eq!((inner.lost, inner.replies.len()), (2, 0));
    assert_eq!(words(&call(&turned, &stamp(3, "@;")).unwrap()), [9]);
}

#[test]
fn an_allow_list_and_a_limit_hold_for_what_is_made() {
    let place = Place::new();
    let listed = member(&place, 0, 2).allow_making(true).allow_code([id_of(&library("stamp"))]);
    let turned = Turned::new(&place, [listed, member(&place, 1, 2)]);
    let text = refused(call(&turned, &stamp(5, "@;")), "stamp", RefusalCause::ForwardFailed);
    assert!(text.contains("the code that `stamp` has made") && text.contains("allow"), "{text}");
    drop(turned);

    let small = library("stencil").images()[0].bytes().len() - 1;
    let most = small.max(library("stamp").images()[0].bytes().len());
    let limited = member(&place, 0, 2).allow_making(true).max_image(most);
    let turned = Turned::new(&place, [limited, member(&place, 1, 2)]);
    let mut long = stamp(5, "@;");
    long.resize(long.len() + most, 0);
    assert_eq!(call(&turned, &long).unwrap()[0], b'2', "it is too long for this target");
}

#[test]
fn code_that_is_made_without_end_takes_the_place_of_other_code() {
    let place = Place::new();
    let maker = member(&place, 0, 2).allow_making(true).store_bytes(1 << 20).store_images(4);
    let turned = Turned::new(&place, [maker, member(&place, 1, 2)]);
    for factor in 1..40 {
        assert_eq!(words(&call(&turned, &stamp(factor, "@;")).unwrap()), [3 * factor]);
    }
    assert!(turned.target(0).stats().store.images <= 4 && turned.target(0).stats().store.evictions >= 30);
}
