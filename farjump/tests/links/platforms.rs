//! Libraries with images for several platforms: the image that travels, and targets that allow a family.

use std::path::PathBuf;

use farjump::build::{Options, build};
use farjump::core::cpu::Cpu;
use farjump::core::frame::{Kind, Plan, PlanCode};
use farjump::{CodeId, FamilyId, InjectError, Level, Library, Machine, Platform, RefusalCause};
use farjump_control::Message;
use farjump_fixtures::raw_source::{call, call_code};
use farjump_fixtures::raw_target::RawTarget;

use crate::policy::{refusal_of, with_hostile};
use crate::support::{PATIENCE, Pair, Place, id_of, image_of, library, meanwhile, peer_gone, refused};

/// Builds a function that replies the CPU level it was compiled for, in a library with an image for each of `levels`.
/// The function forwards itself to `next` for each `>` that its payload begins with.
pub(crate) fn levels(place: &Place, levels: &[u8]) -> Library {
    let source = place.path("level.c");
    let text = "#include \"farjump_ifunc.h\"\nFARJUMP_COPY_ARGS(level)\n\
        void level_main(void *p, size_t n, void *t) { (void)t;\n\
        if (n && *(char *)p == '>') { farjump_forward(\"next\", 4, (char *)p + 1, n - 1); return; }\n\
        unsigned char level = \n\
        #if defined __AVX512F__\n4\n#elif defined __AVX2__\n3\n#elif defined __SSE4_2__\n2\n#else\n0\n#endif\n\
        ; farjump_reply(&level, 1); }\n";
    std::fs::write(&source, text).unwrap();
    let output: PathBuf = place.path("liblevel.so");
    let targets = levels.iter().map(|&level| platform(level)).collect();
    build(&Options { inputs: vec![source], output: output.clone(), targets, ..Options::default() }).unwrap();
    Library::open(output).unwrap()
}

pub(crate) fn platform(level: u8) -> Platform {
    let machine = Machine::X86_64;
    Platform { machine, level: Level::new(machine, level).unwrap() }
}

pub(crate) fn id_for(library: &Library, level: u8) -> CodeId {
    library.image_for(platform(level)).unwrap().id()
}

pub(crate) fn family_of(library: &Library) -> FamilyId {
    library.manifest().unwrap().id()
}

/// Levels that this CPU has, and that a target can claim here.
pub(crate) fn claimed() -> impl Iterator<Item = u8> {
    let most = Level::number(farjump_os::cpu::detected().level());
    [0, 2, 3, 4].into_iter().filter(move |level| *level <= most)
}

#[test]
fn only_the_image_of_the_highest_level_that_the_target_has_travels() {
    let place = Place::new();
    let library = levels(&place, &[0, 3, 4]);
    for level in claimed() {
        let target = place.target().cpu_level(platform(level).level);
        let mut pair = Pair::of(target, place.link());
        let best = if level == 2 { 0 } else { level };
        assert_eq!(*pair.call(&library, b"").unwrap(), [best]);
        let images = pair.target.images();
        assert_eq!(images.len(), 1);
        assert_eq!((images[0].id, images[0].family), (id_for(&library, best), family_of(&library)));
        assert_eq!(images[0].platform, platform(best).to_string());
        let sent = pair.link.stats().code_bytes;
        assert_eq!(sent, library.image_for(platform(best)).unwrap().bytes().len() as u64);
    }
}

#[test]
fn a_library_without_an_image_for_the_target_sends_no_code() {
    let place = Place::new();
    let library = levels(&place, &[3, 4]);
    let mut pair = Pair::of(place.target().cpu_level(Level::BASELINE), place.link());
    let error = pair.call(&library, b"").unwrap_err();
    let text = error.to_string();
    assert!(text.contains("has no image for x86_64-unknown-linux-gnu (it has"), "{text}");
    assert!(text.contains("x86_64-unknown-linux-gnu:v3, x86_64-unknown-linux-gnu:v4)"), "{text}");
    assert!(!matches!(error, farjump::Error::Inject(InjectError::Full)));
    assert_eq!(pair.link.stats().code_bytes, 0);
    assert!(pair.target.images().is_empty());
}

#[test]
fn code_for_a_cpu_level_that_the_target_lacks_never_runs() {
    let place = Place::new();
    let library = levels(&place, &[0, 4]);
    let target = place.target().cpu_level(Level::BASELINE);
    let (mut pair, mut hostile) = with_hostile(&place, target);
    let image = library.image_for(platform(4)).unwrap();
    hostile.send_plan(&call_code("level", image.bytes(), image.id(), hostile.epoch), b"");
    let (cause, text) = refusal_of(&mut pair.target, &mut hostile);
    assert_eq!(cause, RefusalCause::WrongMachine);
    assert!(
        text.contains("for x86_64-unknown-linux-gnu:v4 and the target runs on x86_64-unknown-linux-gnu"),
        "{text}"
    );
    // The same code, declared for every CPU, is other code.
    let mut forged = image.bytes().to_vec();
    forged[6] = 1;
    hostile.send_plan(&call_code("level", &forged, image.id(), hostile.epoch), b"");
    assert_eq!(refusal_of(&mut pair.target, &mut hostile).0, RefusalCause::IdMismatch);
    assert!(pair.target.images().is_empty());
}

#[test]
fn a_target_that_claims_a_level_that_it_lacks_harms_itself_alone() {
    let place = Place::new();
    let library = levels(&place, &[0, 4]);
    let Platform { machine, level } = platform(4);
    let target = RawTarget::start_as(&place.address(), Cpu::of_level(machine, level), |mut target| {
        // The target ends as if the code had ended it.
        target.next_frame().payload_len
    });
    let link = place.link().connect().unwrap();
    assert_eq!(link.peer_cpu().level(), level);
    let call = link.inject(&library, b"").unwrap();
    assert_eq!(link.stats().code_bytes, library.image_for(platform(4)).unwrap().bytes().len() as u64);
    target.join().unwrap();
    peer_gone(call.wait(PATIENCE));
    // The same library at an honest target.
    let mut pair = Pair::of(place.target().cpu_level(Level::BASELINE), place.link());
    assert_eq!(*pair.call(&library, b"").unwrap(), [0]);
}

#[test]
fn an_allowed_family_admits_all_its_images_and_no_other_code() {
    let place = Place::new();
    let (family, echo, tally) = (levels(&place, &[0, 2]), library("echo"), library("tally"));
    // `echo` is the only image of its library: its family follows from the image.
    let target = place.target().allow_family([family_of(&family), family_of(&echo)]);
    let mut pair = Pair::of(target.cpu_level(Level::BASELINE), place.link());
    assert_eq!(*pair.call(&family, b"").unwrap(), [0]);
    assert_eq!(*pair.call(&family, b"").unwrap(), [0]);
    assert_eq!(*pair.call(&echo, b"in").unwrap(), *b"in");
    let text = refused(pair.call(&tally, b""), "tally", RefusalCause::Policy);
    assert!(text.contains("allow_code"), "{text}");
    drop(pair);

    // A link of another source to a target that knows the manifest, and a link after a reconnect.
    let target = place.target().allow_family([family_of(&family)]);
    let mut pair = Pair::of(target, place.link());
    let best = claimed().filter(|level| *level <= 2).max().unwrap();
    assert_eq!(*pair.call(&family, b"").unwrap(), [best]);
    let mut other = pair.hostile();
    let image = family.image_for(platform(best)).unwrap();
    let reply = meanwhile(&mut pair.target, || other.call_new("level", image.bytes(), b""));
    assert_eq!(reply, [best], "code that was let in once is known by its id");
}

#[test]
fn a_family_that_lies_lets_nothing_in() {
    let place = Place::new();
    let (family, tally) = (levels(&place, &[0, 2]), library("tally"));
    let allowed = family_of(&family);
    let target = place.target().allow_family([allowed]);
    let (mut pair, mut hostile) = with_hostile(&place, target);
    let image = image_of(&tally);
    let named = |hostile: &farjump_fixtures::raw_source::RawSource| PlanCode {
        image: &image,
        id: id_of(&tally),
        epoch: hostile.epoch,
        name: "tally",
        family: Some(&allowed),
    };
    let manifest = family.manifest().unwrap();
    let mut damaged = manifest.text().as_bytes().to_vec();
    *damaged.last_mut().unwrap() = b'x';
    let other = library("tally").manifest().unwrap().text().as_bytes().to_vec();
    let mut index = 0;
    let mut send =
        |pair: &mut Pair<'_>, hostile: &mut farjump_fixtures::raw_source::RawSource, answer: Message| {
            let plan = Plan { kind: Kind::CallCode, index, code: Some(named(hostile)), ..call() };
            index += 1;
            hostile.send_plan(&plan, b"");
            let asked = meanwhile(&mut pair.target, || {
                loop {
                    if let Some(Message::NeedManifest { family }) = hostile.message() {
                        return family;
                    }
                }
            });
            assert_eq!(asked, allowed.0);
            hostile.say(&answer);
            refusal_of(&mut pair.target, hostile)
        };
    let manifest_of = |text: &[u8]| Message::Manifest { family: allowed.0, text: text.to_vec() };
    for answer in [
        manifest_of(&damaged),
        manifest_of(b""),
        manifest_of(&other),
        Message::NoManifest { family: allowed.0 },
    ] {
        let (cause, text) = send(&mut pair, &mut hostile, answer);
        assert_eq!(cause, RefusalCause::Policy);
        assert!(text.contains(&format!("no manifest of family {allowed}")), "{text}");
    }
    // The family's own manifest does not have the code.
    let (cause, text) = send(&mut pair, &mut hostile, manifest_of(manifest.text().as_bytes()));
    assert_eq!(cause, RefusalCause::Policy);
    assert!(text.contains(&format!("not in the manifest of its family {allowed}")), "{text}");
    assert!(pair.target.images().is_empty());
    // The family's code comes in by its manifest now.
    assert_eq!(pair.call(&family, b"").unwrap().len(), 1);
}
