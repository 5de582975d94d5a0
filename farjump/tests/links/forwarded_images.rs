//! Functions that forward themselves to targets with other CPUs. Tests which image travels, which source is requested
//! to send it, and the outcome of the call if no source has it. CPU levels stand for machines: not every CPU runs the
//! code for a level.

use std::time::Duration;

use farjump::build::{Options, build};
use farjump::core::frame::{Kind, Plan, PlanCode};
use farjump::{
    CodeId, CodeKind, CompiledImage, Error, FamilyId, Library, Link, Mode, PeerCompiler, RefusalCause,
    TargetBuilder,
};
use farjump_control::Message;
use farjump_fixtures::raw_source::{RawSource, call};

use crate::forwarding::{Turned, address, connect, member};
use crate::platforms::{claimed, family_of, id_for, levels, platform};
use crate::support::{PATIENCE, Place, alongside, library, refused};

/// Targets that claim these levels, each with the next one as its destination.
fn chain<'a>(place: &Place, levels: &[u8]) -> Vec<TargetBuilder<'a>> {
    let of_level =
        |(number, level): (usize, &u8)| member(place, number, levels.len()).cpu_level(platform(*level).level);
    levels.iter().enumerate().map(of_level).collect()
}

/// Injects `library` with this number of hops, and polls until the level of the image that ran has come.
fn call_level(turned: &Turned<'_>, library: &Library, hops: usize) -> Result<String, Error> {
    let reply = turned.reply_bytes(turned.link.inject(library, ">".repeat(hops).as_bytes())?)?;
    Ok(reply.iter().map(|level| char::from(b'0' + level)).collect())
}

/// The images that each target has, by their ids.
fn images(turned: &Turned<'_>) -> Vec<Vec<CodeId>> {
    (0..turned.targets.len())
        .map(|number| turned.target(number).images().iter().map(|image| image.id).collect())
        .collect()
}

#[track_caller]
fn lost(outcome: Result<String, Error>) -> String {
    refused(outcome, "level", RefusalCause::ForwardFailed)
}

/// Returns whether this machine has level v3, for which these tests need targets.
fn has_v3() -> bool {
    let has = claimed().any(|level| level == 3);
    if !has {
        eprintln!("skipped: this CPU is not of level v3");
    }
    has
}

#[test]
fn each_target_of_a_chain_runs_a_fitting_image_sent_only_once() {
    if !has_v3() {
        return;
    }
    let place = Place::new();
    let level = levels(&place, &[0, 2, 3]);
    let turned = Turned::new(&place, chain(&place, &[3, 2, 0, 3]));
    for _ in 0..50 {
        for (hops, ran) in ["3", "2", "0", "0"].into_iter().enumerate() {
            assert_eq!(call_level(&turned, &level, hops).unwrap(), ran, "{hops} hops");
        }
    }
    let [v0, v2, v3] = [0, 2, 3].map(|one| id_for(&level, one));
    // The last target has level v3: it runs its forerunner's image, and no source is requested to send one.
    assert_eq!(images(&turned), [[v3], [v2], [v0], [v0]]);
    for number in 0..4 {
        assert_eq!(turned.target(number).stats().refusals(), 0);
        assert_eq!(turned.target(number).images()[0].family, family_of(&level));
    }
    let bytes: usize = level.images().iter().map(|image| image.bytes().len()).sum();
    assert_eq!(turned.link.stats().code_bytes, bytes as u64);
}

#[test]
fn a_target_that_forgot_the_image_gets_it_again() {
    if !has_v3() {
        return;
    }
    let place = Place::new();
    let level = levels(&place, &[0, 2, 3]);
    let turned = Turned::new(&place, chain(&place, &[3, 2, 0]));
    let ids = [3, 2, 0].map(|one| id_for(&level, one));
    for forgetful in [&[][..], &[2], &[1, 2], &[0, 1], &[1]] {
        for &number in forgetful {
            assert!(turned.target(number).drop_code(&ids[number]));
        }
        assert_eq!(call_level(&turned, &level, 2).unwrap(), "0", "{forgetful:?}");
    }
    let bytes: usize = level.images().iter().map(|image| image.bytes().len()).sum();
    let again = level.image_for(platform(3)).unwrap().bytes().len();
    assert_eq!(turned.link.stats().code_bytes, (bytes + again) as u64, "only what the first one dropped");
}

#[test]
fn an_admitted_family_runs_over_forwards_and_other_code_is_refused() {
    if !has_v3() {
        return;
    }
    let place = Place::new();
    let level = levels(&place, &[0, 3]);
    let mut targets = chain(&place, &[3, 3, 0]);
    let last = targets.pop().unwrap();
    targets.push(last.allow_family([family_of(&level)]));
    let turned = Turned::new(&place, targets);
    assert_eq!(call_level(&turned, &level, 2).unwrap(), "0");

    let place = Place::new();
    let mut targets = chain(&place, &[3, 3]);
    let last = targets.pop().unwrap();
    targets.push(last.allow_family([family_of(&level)]));
    let turned = Turned::new(&place, targets);
    assert_eq!(call_level(&turned, &level, 1).unwrap(), "3", "the same image, of an admitted family");
    let tally = library("onward");
    let error = turned.reply_text(turned.link.inject(&tally, b">next;x").unwrap()).unwrap_err();
    assert!(error.to_string().contains("allow_code"), "{error}");
}

#[test]
fn a_targets_own_function_is_forwarded_with_its_librarys_images() {
    if !has_v3() {
        return;
    }
    let place = Place::new();
    let level = levels(&place, &[0, 3]);
    let mut targets = chain(&place, &[3, 0]);
    let own = targets.remove(0).local(&level);
    targets.insert(0, own);
    let turned = Turned::new(&place, targets);
    turned.link.set_mode(Mode::Local);
    for _ in 0..3 {
        assert_eq!(call_level(&turned, &level, 1).unwrap(), "0");
    }
    assert_eq!(turned.link.stats().code_bytes, 0);
}

#[test]
fn code_compiled_for_its_target_goes_on_by_a_carried_image() {
    if !has_v3() {
        return;
    }
    let place = Place::new();
    drop(levels(&place, &[0]));
    let options = Options {
        inputs: vec![place.path("level.c")],
        output: place.path("libcarrying.so"),
        name: Some("level".to_owned()),
        carry_source: true,
        ..Options::default()
    };
    let level = Library::open(build(&options).unwrap().library).unwrap();
    let targets = [member(&place, 0, 2), member(&place, 1, 2).cpu_level(platform(0).level)];
    let mut turned = Turned::new(&place, targets);
    let link = Link::builder(&address(&place, 0)).compile_for_peer(PeerCompiler::new());
    turned.link = alongside(|| link.connect().unwrap(), || turned.turn());
    loop {
        call_level(&turned, &level, 0).unwrap();
        match turned.link.compiled_image(&level) {
            CompiledImage::Compiling | CompiledImage::Compiled(_) => {}
            CompiledImage::InUse(_) => break,
            other => panic!("{other:?}"),
        }
    }
    assert_ne!(call_level(&turned, &level, 0).unwrap(), "0");
    assert_eq!(call_level(&turned, &level, 1).unwrap(), "0");
    assert_eq!(images(&turned)[1], [id_for(&level, 0)]);
}

#[test]
fn a_forward_without_an_image_for_its_destination_fails_with_the_reason() {
    if !has_v3() {
        return;
    }
    let place = Place::new();
    let turned = Turned::new(&place, chain(&place, &[3, 0]));
    let (one, two) = (levels(&place, &[3]), levels(&Place::new(), &[2, 3]));
    let start = "the target refused a call: it could not forward it to its destination `next`: ";
    let text = lost(call_level(&turned, &one, 1));
    assert!(text.contains(start), "{text}");
    assert!(text.contains("it runs on x86_64-unknown-linux-gnu, and the code is the only image"), "{text}");
    let text = lost(call_level(&turned, &two, 1));
    assert!(
        text.contains("has no image for x86_64-unknown-linux-gnu (it has x86_64-unknown-linux-gnu:v2, "),
        "{text}"
    );
    // The refusal of a one-way call comes with the next flush.
    turned.link.send(&two, b">").unwrap();
    let text = lost(call_level(&turned, &two, 1));
    assert!(text.contains("has no image for"), "{text}");
    assert!(images(&turned)[1].is_empty());
    assert_eq!(call_level(&turned, &two, 0).unwrap(), "3");
}

/// Sends a call that forwards itself, of the image for level v3. The frame names this family.
fn send(source: &mut RawSource, level: &Library, index: u16, family: FamilyId) {
    let image = level.image_for(platform(3)).unwrap();
    let code = PlanCode {
        image: image.bytes(),
        id: image.id(),
        epoch: source.epoch,
        name: "level",
        family: Some(&family),
    };
    source.send_plan(&Plan { kind: Kind::CallCode, index, code: Some(code), ..call() }, b">");
}

/// A chain of two targets, of which the second needs another image; an honest source and a hostile source of the
/// first.
struct Hostile<'a> {
    turned: Turned<'a>,
    source: RawSource,
    level: Library,
    index: u16,
}

impl Hostile<'_> {
    fn new(place: &Place, patience: Duration) -> Self {
        let targets = chain(place, &[3, 0]).into_iter().map(|target| target.handshake_timeout(patience));
        let turned = Turned::new(place, targets);
        let source = alongside(|| RawSource::connect(&address(place, 0)), || turned.turn());
        Hostile { turned, source, level: levels(place, &[0, 3]), index: 0 }
    }

    /// Sends a call that forwards itself, of an image for which the frame names this family.
    fn send(&mut self, family: FamilyId) {
        send(&mut self.source, &self.level, self.index, family);
        self.index += 1;
    }

    fn message(&mut self) -> Message {
        let (source, turned) = (&mut self.source, &self.turned);
        alongside(
            || {
                loop {
                    match source.message() {
                        Some(Message::CodeLinked { .. }) | None => {}
                        Some(message) => break message,
                    }
                }
            },
            || turned.turn(),
        )
    }

    /// The text of the next refusal.
    fn refusal(&mut self) -> String {
        match self.message() {
            Message::Refused { cause: RefusalCause::ForwardFailed, text, .. } => text,
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_source_that_sends_wrong_code_or_manifests_loses_only_its_call() {
    if !has_v3() {
        return;
    }
    let place = Place::new();
    let mut hostile = Hostile::new(&place, PATIENCE);
    let level = hostile.level.clone();
    let (family, wanted) = (family_of(&level), id_for(&level, 0));
    let manifest = |text: &[u8]| Message::Manifest { family: family.0, text: text.to_vec() };
    let own = level.manifest().unwrap().text().as_bytes().to_vec();
    let mut damaged = own.clone();
    *damaged.last_mut().unwrap() = b'x';
    let other = library("onward").manifest().unwrap().text().as_bytes().to_vec();
    for (answer, words) in [
        (Message::NoManifest { family: family.0 }, "its source does not have the manifest"),
        (manifest(&damaged), "is no platform and code id"),
        (manifest(&other), "sent the manifest of family"),
        (manifest(b""), "this is no manifest"),
    ] {
        hostile.send(family);
        assert!(matches!(hostile.message(), Message::NeedManifest { family: asked } if asked == family.0));
        hostile.source.say(&answer);
        let text = hostile.refusal();
        assert!(text.contains(words) && text.contains("destination `next`"), "{text}");
    }
    let image = level.image_for(platform(0)).unwrap().bytes().to_vec();
    let other = level.image_for(platform(3)).unwrap().bytes().to_vec();
    for (number, (answer, words)) in [
        (Message::NoCode { id: wanted.0 }, "its source does not have code"),
        (Message::Code { id: wanted.0, image: other }, "its source sent other code"),
        (
            Message::Code { id: wanted.0, image: image[..image.len() / 2].to_vec() },
            "its source sent other code",
        ),
    ]
    .into_iter()
    .enumerate()
    {
        hostile.send(family);
        if number == 0 {
            assert!(matches!(hostile.message(), Message::NeedManifest { .. }));
            hostile.source.say(&manifest(&own));
        }
        assert!(matches!(hostile.message(), Message::NeedCode { id, .. } if id == wanted.0));
        hostile.source.say(&answer);
        let text = hostile.refusal();
        assert!(text.contains(words), "{text}");
    }
    assert!(images(&hostile.turned)[1].is_empty(), "nothing went on");
    // The target gets the image from an honest source.
    assert_eq!(call_level(&hostile.turned, &level, 1).unwrap(), "0");
}

#[test]
fn a_manifest_that_lies_about_an_image_sends_nothing_on() {
    if !has_v3() {
        return;
    }
    let place = Place::new();
    let mut hostile = Hostile::new(&place, PATIENCE);
    let v3 = id_for(&hostile.level, 3);
    // The manifest claims that the code for v3 is for every CPU.
    let lie = farjump_loader::Manifest::new([(CodeKind::Platform(platform(0)), v3)]).unwrap();
    hostile.send(lie.id());
    assert!(matches!(hostile.message(), Message::NeedManifest { family } if family == lie.id().0));
    hostile.source.say(&Message::Manifest { family: lie.id().0, text: lie.text().as_bytes().to_vec() });
    let text = hostile.refusal();
    assert!(text.contains("lies: code") && text.contains("is for x86_64-unknown-linux-gnu:v3"), "{text}");
    assert!(images(&hostile.turned)[1].is_empty());
    // The first frame of this code named that family. The honest source's frame names its own.
    let level = hostile.level.clone();
    assert_eq!(call_level(&hostile.turned, &level, 1).unwrap(), "0");
}

#[test]
fn a_silent_source_delays_others_for_a_time_and_may_respond_late() {
    if !has_v3() {
        return;
    }
    let place = Place::new();
    let mut hostile = Hostile::new(&place, Duration::from_secs(3));
    let level = hostile.level.clone();
    let family = family_of(&level);
    hostile.send(family);
    assert!(matches!(hostile.message(), Message::NeedManifest { .. }));
    // The hostile source was the first that named the family. So the target requests the manifest from it, and the
    // calls of others for this function wait for it. Calls of other functions do not.
    let turned = &hostile.turned;
    let far = turned.link.inject(&level, b">").unwrap();
    assert_eq!(turned.reply_text(turned.link.inject(&library("onward"), b"near").unwrap()).unwrap(), "near");
    let other = connect(&turned.targets[0], &place);
    let near = other.inject(&library("onward"), b">next;there").unwrap();
    assert_eq!(turned.reply_text(near).unwrap(), "there");
    assert_eq!(turned.reply_bytes(far).unwrap(), [0], "the honest source was asked after it");
    // The hostile source's call was forwarded with the image that the other source sent. Its late message is no
    // breach.
    hostile.source.say(&Message::NoManifest { family: family.0 });
    assert_eq!(alongside(|| hostile.source.reply(), || hostile.turned.turn()), [0]);
    assert_eq!(hostile.turned.target(0).sources(), 3);
    // The target has not requested this.
    hostile.source.say(&Message::NoManifest { family: family.0 });
    assert!(matches!(hostile.message(), Message::Closing { text } if text.contains("NoManifest unasked")));
}

#[test]
fn the_next_source_supplies_a_manifest_when_the_first_one_ends() {
    if !has_v3() {
        return;
    }
    let place = Place::new();
    let mut hostile = Hostile::new(&place, PATIENCE);
    let level = hostile.level.clone();
    hostile.send(family_of(&level));
    assert!(matches!(hostile.message(), Message::NeedManifest { .. }));
    let Hostile { turned, source, .. } = hostile;
    let far = turned.link.inject(&level, b">").unwrap();
    turned.turn();
    drop(source);
    assert_eq!(turned.reply_bytes(far).unwrap(), [0]);
}

#[test]
fn a_source_that_names_families_without_end_costs_others_none_of_theirs() {
    if !has_v3() {
        return;
    }
    let place = Place::new();
    let Hostile { turned, mut source, level, .. } = Hostile::new(&place, PATIENCE);
    let mut far = turned.link.inject(&level, b">").unwrap();
    // The destination does not poll, so the target does not request its image from any source yet.
    let turn = || {
        turned.target(0).poll().unwrap();
    };
    while turned.target(0).stats().forwarded == 0 {
        turn();
    }
    let frame = level.image_for(platform(3)).unwrap().bytes().len() + 512;
    for number in 0..200_u8 {
        let waits = &mut source;
        alongside(move || waits.await_credit(frame), turn);
        // The source skips to the start of the target's mailbox where the frame may not fit before the end.
        source.skip_unless_left(frame);
        send(&mut source, &level, number.into(), FamilyId([number; 16]));
    }
    while turned.target(0).stats().forwarded <= 200 {
        turn();
    }
    assert!(far.poll().unwrap().is_none());
    assert_eq!(turned.reply_bytes(far).unwrap(), [0]);
    assert_eq!(call_level(&turned, &level, 1).unwrap(), "0");
}
