//! Rights: a process may do at a target only what its operator permits, by whatever message it tries. A refusal names
//! the missing right.

use farjump::core::frame::{Kind, Plan};
use farjump::{CodeId, Error, Library, Link, Mode, RefusalCause, Rights, Target, TargetBuilder};
use farjump_control::{Message, RejectCause};
use farjump_fixtures::raw_source::{RawSource, call, call_code, call_id};

use crate::support::{
    PATIENCE, Pair, Place, alongside, id_of, image_of, library, meanwhile, outcome_of, refused, rejected,
    serve, to_words, while_polling,
};

const CALLERS: Rights = Rights::OBSERVE.union(Rights::CALL);

fn with_rights<'a>(place: &Place, rights: Rights) -> TargetBuilder<'a> {
    place.target().rights(rights)
}

/// Checks that a call was refused because its source may not inject, with the text for that.
#[track_caller]
fn may_not_inject<T>(outcome: Result<T, Error>, ifunc: &str) {
    let text = refused(outcome, ifunc, RefusalCause::Rights);
    assert_eq!(text, refusal_text(), "a source says what its target says");
}

/// The text of a refusal for a source that may observe and call.
fn refusal_text() -> String {
    format!("the target refused a frame: {}", CALLERS.lacks(Rights::INJECT).unwrap())
}

/// Takes the target's next message to `hostile`, which must refuse its frame with token 7 for a missing right.
#[track_caller]
fn refuses(target: &mut Target<'_>, hostile: &mut RawSource) {
    let refusal = meanwhile(target, || hostile.refusal(7));
    assert_eq!(refusal, (RefusalCause::Rights, refusal_text()));
}

/// A target whose sources may call, with `echo` as its own; an honest source of it, and a hostile one.
fn callers<'a>(place: &Place) -> (Pair<'a>, RawSource) {
    let target = with_rights(place, CALLERS).local(&library("echo")).modes(Mode::ALL);
    let mut pair = Pair::of(target, place.link());
    let hostile = pair.hostile();
    (pair, hostile)
}

#[test]
fn a_source_that_may_not_inject_runs_only_stored_code() {
    let place = Place::new();
    let (echo, tally) = (library("echo"), library("tally"));
    let (mut pair, _) = callers(&place);
    assert_eq!(pair.link.rights(), CALLERS);
    for _ in 0..3 {
        for mode in [Mode::Local, Mode::Cached] {
            pair.link.set_mode(mode);
            assert_eq!(*pair.call(&echo, b"held").unwrap(), *b"held", "{mode}");
        }
        may_not_inject(pair.call(&tally, b""), "tally");
        for mode in [Mode::Always, Mode::InPlace] {
            pair.link.set_mode(mode);
            may_not_inject(pair.call(&echo, b""), "echo");
            may_not_inject(pair.call(&tally, b""), "tally");
        }
    }
    pair.link.set_mode(Mode::Cached);
    // As one-way call, and in a batch.
    pair.link.send(&tally, b"").unwrap();
    may_not_inject(pair.flush(), "tally");
    let mut batch = pair.link.batch();
    for _ in 0..10 {
        batch.send(&echo, b"held").unwrap();
    }
    batch.finish().unwrap();
    pair.flush().unwrap();

    let (sent, stats) = (pair.link.stats(), pair.target.stats());
    assert_eq!((sent.frames_with_code, sent.code_bytes), (0, 0), "an honest source sends no code in vain");
    // One refusal each for the missing id; the source did not even send the rest.
    assert_eq!((stats.refused(RefusalCause::Rights), stats.refusals()), (4, 4));
    assert_eq!((stats.images_linked, stats.calls), (1, 16), "of the target's own");
}

#[test]
fn no_hostile_frame_brings_code_without_the_right_to_inject() {
    let place = Place::new();
    let (mut pair, mut hostile) = callers(&place);
    let (echo, tally) = (library("echo"), library("tally"));
    let (image, own, epoch) = (image_of(&tally), image_of(&echo), hostile.epoch);
    let in_place = |image, id| Plan { kind: Kind::CallInPlace, ..call_code("x", image, id, epoch) };
    let plans = [
        call_code("tally", &image, id_of(&tally), epoch),
        in_place(&image, id_of(&tally)),
        call_id("tally", id_of(&tally), epoch),
        // The index that the refused frame was to bind.
        call(),
        // The source may not bring stored code either.
        call_code("echo", &own, id_of(&echo), epoch),
        in_place(&own, id_of(&echo)),
    ];
    for plan in &plans {
        hostile.send_plan(plan, b"");
        refuses(&mut pair.target, &mut hostile);
    }
    // A batch for an index that is bound to no code in the store.
    let several = Plan { kind: Kind::CallBatch, wants_reply: false, ..call() };
    hostile.send_plan(&several, &[4, 0, 0, 0, 1, 0, 0, 0, 1, 2, 3, 4]);
    refuses(&mut pair.target, &mut hostile);
    let plan = Plan { index: 1, ..call_id("echo", id_of(&echo), epoch) };
    hostile.send_plan(&plan, b"held");
    assert_eq!(meanwhile(&mut pair.target, || hostile.reply()), b"held");

    // Dropped code is lost to this source. The target refuses the call of its index, and does not keep it until code
    // comes.
    assert!(pair.target.remove_local("echo") && pair.target.drop_code(&id_of(&echo)));
    hostile.send_plan(&Plan { index: 1, ..call() }, b"held");
    refuses(&mut pair.target, &mut hostile);
    assert_eq!(pair.target.stats().images_linked, 1);

    // Unrequested code ends the link, whatever its id.
    hostile.say(&Message::Code { id: id_of(&tally).0, image });
    let closing = meanwhile(&mut pair.target, || hostile.closing());
    assert!(closing.contains("sent Code unasked"), "{closing}");
}

#[test]
fn a_frame_of_the_large_mailbox_brings_no_code_either() {
    let place = Place::new();
    let (echo, tally) = (library("echo"), library("tally"));
    let target = with_rights(&place, CALLERS).local(&echo).mailbox_size(1 << 16);
    let mut pair = Pair::of(target, place.link().reply_mailbox_size(4 << 20));
    let payload = vec![7; 1 << 20];
    let long = |pair: &mut Pair<'_>, library: &Library| {
        let (link, payload) = (&mut pair.link, &payload);
        meanwhile(&mut pair.target, move || {
            link.inject(library, payload)?.wait(PATIENCE).map(|reply| reply.len())
        })
    };
    assert!(matches!(long(&mut pair, &echo), Ok(len) if len == 1 << 20));
    may_not_inject(long(&mut pair, &tally), "tally");
    assert_eq!((pair.target.stats().images_linked, pair.target.stats().calls), (1, 1));
}

#[test]
fn code_refused_to_a_caller_runs_once_the_target_has_it() {
    let place = Place::new();
    let tally = library("tally");
    let mut pair = Pair::of(with_rights(&place, CALLERS), place.link());
    may_not_inject(pair.call(&tally, b""), "tally");
    pair.target.set_local(&tally).unwrap();
    assert_eq!(to_words(&pair.call(&tally, b"").unwrap()), [1], "it is tried anew each time");
    assert_eq!(to_words(&pair.call(&tally, b"").unwrap()), [2]);
}

#[test]
fn no_link_is_made_without_the_call_right_but_other_rights_apply() {
    for rights in
        [Rights::empty(), Rights::OBSERVE, Rights::INJECT | Rights::DROP, Rights::all() - Rights::CALL]
    {
        let place = Place::new();
        let mut target = with_rights(&place, rights).build().unwrap();
        let text = rejected(while_polling(&mut target, || place.link().connect()), RejectCause::Rights);
        assert!(text.contains(&rights.lacks(Rights::CALL).unwrap().to_string()), "{text}");
        check_admin_rights(&place, &mut target, rights);
        assert_eq!((target.stats().links, target.sources()), (0, 0));
    }
}

#[test]
fn each_admin_request_needs_its_own_right_and_no_other() {
    for bits in 0..32 {
        let place = Place::new();
        let rights = Rights::from_bits(bits).unwrap();
        let mut target = with_rights(&place, rights).build().unwrap();
        check_admin_rights(&place, &mut target, rights);
    }
}

type AdminCall<'a> = dyn Fn() -> Result<(), Error> + Sync + 'a;

/// Makes all requests. Those that `rights` permit succeed. The target refuses the others with a text that names the
/// right.
fn check_admin_rights(place: &Place, target: &mut Target<'_>, rights: Rights) {
    let admin = place.admin();
    let nothing = CodeId([0; 16]);
    let requests: [(Rights, &AdminCall<'_>); 5] = [
        (Rights::OBSERVE, &|| admin.store().map(drop)),
        (Rights::OBSERVE, &|| admin.stats().map(drop)),
        (Rights::DROP, &|| admin.drop_code(&nothing).map(drop)),
        (Rights::DROP, &|| admin.drop_all().map(drop)),
        // The target does not even read a long library.
        (Rights::EXPORT, &|| admin.export("libnone.so", &vec![7; 100_000]).map(drop)),
    ];
    for (needed, ask) in requests {
        let outcome = while_polling(target, ask);
        match rights.lacks(needed) {
            Some(what) => assert_eq!(rejected(outcome, RejectCause::Rights), what.to_string()),
            // The target reads it, and finds that it is no library.
            None if needed == Rights::EXPORT => drop(rejected(outcome, RejectCause::Failed)),
            None => outcome.unwrap(),
        }
    }
}

#[test]
fn allow_export_adds_one_right_and_defaults_exclude_drop_and_export() {
    let (place, mut pair) = Pair::start();
    assert_eq!(pair.link.rights(), Rights::OBSERVE | Rights::CALL | Rights::INJECT);
    let admin = place.admin();
    let sources = while_polling(&mut pair.target, || admin.stats()).unwrap().sources;
    assert_eq!(sources.iter().map(|source| source.rights).collect::<Vec<_>>(), [Rights::default()]);
    check_admin_rights(&place, &mut pair.target, Rights::default());

    let place = Place::new();
    // In either order of the settings.
    let target = with_rights(&place, CALLERS).allow_export(true);
    assert_eq!(Pair::of(target, place.link()).link.rights(), CALLERS | Rights::EXPORT);
    let target = place.target().allow_export(true).rights(CALLERS);
    assert_eq!(Pair::of(target, place.link()).link.rights(), CALLERS | Rights::EXPORT);
}

#[test]
fn a_link_made_anew_has_the_rights_of_its_new_target() {
    let place = Place::new();
    let (echo, tally) = (library("echo"), library("tally"));
    let Pair { mut link, mut target } = Pair::new(&place);
    let call = |link: &Link, target: &mut Target<'_>, library: &Library| {
        outcome_of(target, &mut link.inject(library, b"x")?)
    };
    assert_eq!(*call(&link, &mut target, &echo).unwrap(), *b"x");
    link.set_mode(Mode::Always);
    call(&link, &mut target, &tally).unwrap();
    drop(target);
    let mut target = with_rights(&place, CALLERS).local(&echo).build().unwrap();
    while_polling(&mut target, || link.reconnect()).unwrap();
    assert_eq!(link.rights(), CALLERS);
    may_not_inject(call(&link, &mut target, &tally), "tally");
    link.set_mode(Mode::Cached);
    assert_eq!(*call(&link, &mut target, &echo).unwrap(), *b"x");
    may_not_inject(call(&link, &mut target, &tally), "tally");
    serve(&mut target);
    assert_eq!(target.stats().images_linked, 1);
}

#[test]
fn a_forward_without_inject_right_runs_only_where_code_is_stored() {
    let place = Place::new();
    let onward = library("onward");
    let there = place.address_of("there.sock");
    let mut peer = Target::listen(&there).rights(CALLERS).build().unwrap();
    let mut pair = Pair::of(place.target().destination("next", &there), place.link());
    let call = |pair: &mut Pair<'_>, peer: &mut Target<'_>| {
        let (link, target) = (&mut pair.link, &mut pair.target);
        let onward = &onward;
        alongside(
            move || link.inject(onward, b">next;there")?.wait(PATIENCE),
            || {
                target.wait(std::time::Duration::from_millis(1)).unwrap();
                target.poll().unwrap();
                peer.wait(std::time::Duration::from_millis(1)).unwrap();
                peer.poll().unwrap();
            },
        )
    };
    let text = refused(call(&mut pair, &mut peer), "onward", RefusalCause::ForwardFailed);
    assert!(text.contains(&CALLERS.lacks(Rights::INJECT).unwrap().to_string()), "{text}");
    assert_eq!((peer.stats().images_linked, peer.stats().refused(RefusalCause::Rights)), (0, 1));
    peer.set_local(&onward).unwrap();
    assert_eq!(*call(&mut pair, &mut peer).unwrap(), *b"there");
    assert_eq!(peer.stats().images_linked, 1);
}
