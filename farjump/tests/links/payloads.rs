//! Payload routines that fail, write too far, request the impossible, or need less than they requested.

use farjump::{Error, InjectError, Library, Mode};

use crate::support::{Pair, Place, library, to_words, words};

/// `struct wish` of `wish.h`.
#[derive(Clone, Copy)]
struct Wish {
    max: u64,
    written: u64,
    used: u64,
    result: i64,
}

impl Wish {
    /// Commands of an honest routine with `len` bytes of payload.
    fn of(len: u64) -> Wish {
        Wish { max: len, written: len, used: len, result: 0 }
    }

    fn args(self) -> Vec<u8> {
        words(&[self.max, self.written, self.used, self.result as u64])
    }
}

/// Checks that the call fails as `expected`, nothing is sent, and the next call succeeds.
fn fails(pair: &mut Pair<'_>, library: &Library, wish: Wish, expected: impl Fn(&Error) -> bool) {
    let sent = pair.link.stats();
    let ran = pair.target.stats().calls;
    for wants_reply in [true, false] {
        let result = if wants_reply {
            pair.link.inject(library, &wish.args()).map(drop)
        } else {
            pair.link.send(library, &wish.args())
        };
        let error = result.unwrap_err();
        assert!(expected(&error), "{error}");
    }
    pair.serve();
    assert_eq!(pair.link.stats(), sent);
    assert_eq!(pair.target.stats().calls, ran);
    for len in [8, 40, 5000] {
        assert_eq!(to_words(&pair.call(library, &Wish::of(len).args()).unwrap()), [len]);
    }
}

/// Checks it for frames that carry code, for payloads that fit a line and for those that do not.
fn fails_in_each_frame(name: &str, wishes: &[Wish], expected: impl Fn(&Error) -> bool + Copy) {
    let (place, library) = (Place::new(), library(name));
    for wish in wishes {
        let mut pair = Pair::new(&place);
        fails(&mut pair, &library, *wish, expected);
        assert_eq!(pair.link.stats().frames_with_code, 1, "the code went with the first that was sent");
        fails(&mut pair, &library, *wish, expected);
    }
}

#[test]
fn a_failing_routine_sends_nothing_and_its_result_is_reported() {
    let wishes = [4, 40, 41, 5000].map(|len| Wish { result: -7, ..Wish::of(len) });
    for name in ["demanding", "shrinking"] {
        fails_in_each_frame(name, &wishes, |error| {
            matches!(error, Error::Library(_)) && error.to_string().contains("-7")
        });
    }
}

#[test]
fn a_routine_that_writes_past_its_maximum_is_caught_and_sends_nothing() {
    let wishes =
        [(0, 1), (4, 5), (16, 24), (40, 41), (40, 48), (40, 200), (41, 42), (5000, 5001), (5000, 5100)]
            .map(|(max, written)| Wish { written, ..Wish::of(max) });
    fails_in_each_frame("demanding", &wishes, |error| {
        matches!(error, Error::Inject(InjectError::PayloadOverrun { ifunc, .. }) if ifunc == "demanding")
            && error.to_string().contains("nothing was sent")
    });
}

#[test]
fn a_routine_that_reports_a_length_over_its_maximum_sends_nothing() {
    let wishes = [(4, 5), (40, 41), (5000, 5001), (16, u64::MAX)].map(|(max, used)| Wish {
        max,
        used,
        written: max,
        result: 0,
    });
    fails_in_each_frame("shrinking", &wishes, |error| matches!(error, Error::Library(_)));
}

#[test]
fn a_maximum_that_no_frame_has_is_refused_before_anything_is_written() {
    let wishes = [u64::MAX, u64::MAX - 7, u64::MAX - 64, 1 << 63, 1 << 32, 1 << 31, 1 << 30]
        .map(|max| Wish { written: 1, ..Wish::of(max) });
    fails_in_each_frame(
        "demanding",
        &wishes,
        |error| matches!(error, Error::Inject(InjectError::TooLarge { ifunc, .. }) if ifunc == "demanding"),
    );
}

#[test]
fn a_payload_smaller_than_its_maximum_travels_at_its_own_length() {
    let (_place, mut pair) = Pair::start();
    let shrinking = library("shrinking");
    let mut total = 0;
    for (max, used) in [(5000, 100), (5000, 3), (5000, 0), (40, 1), (0, 0), (100_000, 99_999)] {
        let wish = Wish { max, written: used, used, result: 0 };
        assert_eq!(to_words(&pair.call(&shrinking, &wish.args()).unwrap()), [used]);
        total += used;
        assert_eq!(pair.link.stats().payload_bytes, total);
    }
}

#[test]
fn payloads_lie_at_their_images_alignment() {
    let place = Place::new();
    let mut pair = Pair::of(place.target().mailbox_size(1 << 16), place.link());
    let (aligned, echo) = (library("aligned"), library("echo"));
    for round in 0..100 {
        // A line or two between, so that the next frame starts elsewhere.
        pair.call(&echo, &vec![0; round]).unwrap();
        let address = to_words(&pair.call(&aligned, &vec![1; round * 31]).unwrap())[0];
        assert_eq!(address % 4096, 0, "round {round}");
    }
}

/// Makes the calls of a link, with and without a reply and in batches. Each kind has payloads at several places: in a
/// line, and behind it. `asked` is the number of requests before.
fn calls_each_kind(pair: &mut Pair<'_>, library: &Library, asked: &mut u64) {
    for len in [8, 40, 41, 64, 1024, 5000, 100_000] {
        let args = vec![0; len];
        let mut batch = pair.link.batch();
        for _ in 0..3 {
            batch.send(library, &args).unwrap();
            pair.target.poll().unwrap();
        }
        batch.finish().unwrap();
        pair.serve();
        pair.link.send(library, &args).unwrap();
        pair.serve();
        *asked += 5;
        assert_eq!(to_words(&pair.call(library, &args).unwrap()), [*asked], "{len} bytes");
    }
}

#[test]
fn the_payload_length_routine_runs_once_in_each_call() {
    let library = library("queries");
    let mut asked = 0;
    for mode in [Mode::Cached, Mode::Always, Mode::Local] {
        let place = Place::new();
        let target = place.target().local(&library);
        let mut pair = Pair::of(target, place.link().mode(mode));
        for _ in 0..2 {
            calls_each_kind(&mut pair, &library, &mut asked);
        }
    }
}
