//! Images compiled for the target's CPU behind the calls. Tests that calls use them, and when calls keep the image of
//! their library.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use farjump::build::{Options, build};
use farjump::core::frame::{Kind, Plan};
use farjump::{
    CodeId, CompiledImage, Cpu, KeptCause, Level, Library, Link, LinkBuilder, Machine, PeerCompiler,
    RefusalCause,
};
use farjump_fixtures::IFUNCS;
use farjump_fixtures::process::{quoted, runs};
use farjump_fixtures::raw_source::{RawSource, call as raw_call, call_code};
use farjump_fixtures::raw_target::RawTarget;
use farjump_tools::fakes::write_script;

use crate::helper::{start_target, start_target_over};
use crate::support::{FOREVER, PATIENCE, Pair, Place, eventually, id_of, serve, to_words, while_polling};

/// Sums the bytes of its payload, and replies the sum: a uint64_t.
const SUM: &str = "#include \"sum.h\"
FARJUMP_COPY_ARGS(sum)
FARJUMP_IFUNC void sum_main(void *payload, size_t size, void *args)
{
    const unsigned char *bytes = payload;
    uint64_t sum = START;
    (void)args;
    for (size_t i = 0; i < size; i++) sum += bytes[i];
    farjump_reply(&sum, sizeof sum);
}
";
const HEADER: &str = "#include <farjump_ifunc.h>\n#define START 0\n";

/// A compiler that runs these shell commands first.
fn compiler(place: &Place, first: &str) -> PeerCompiler {
    let script = place.path("cc");
    write_script(&script, &format!("{first}\nexec cc \"$@\""));
    PeerCompiler::new().cc(script.to_str().unwrap())
}

/// The options of a build of the function `name` with this text.
fn options(place: &Place, name: &str, text: &str) -> Options {
    let source = place.path(&format!("{name}.c"));
    fs::write(&source, text).unwrap();
    fs::write(place.path("sum.h"), HEADER).unwrap();
    Options {
        inputs: vec![source],
        output: place.path(&format!("lib{name}.so")),
        cflags: vec!["-O2".to_owned()],
        carry_source: true,
        ..Options::default()
    }
}

/// A library that carries its source. The source file is removed.
fn carrying(place: &Place, name: &str, text: &str) -> Library {
    let report = build(&options(place, name, text)).unwrap();
    fs::remove_file(place.path(&format!("{name}.c"))).unwrap();
    fs::remove_file(place.path("sum.h")).unwrap();
    Library::open(report.library).unwrap()
}

fn sum(place: &Place) -> Library {
    carrying(place, "sum", SUM)
}

fn link_by(builder: LinkBuilder, compiler: PeerCompiler) -> Link {
    builder.connect_timeout(PATIENCE).compile_for_peer(compiler).connect().unwrap()
}

/// Calls the sum. Its result is right with either image.
fn call(link: &Link, library: &Library) {
    assert_eq!(to_words(&link.inject(library, &[3; 500]).unwrap().wait(PATIENCE).unwrap()), [1500]);
}

/// Calls until the image reaches its last state. The watchdog bounds this.
fn settle(link: &Link, library: &Library, mut call: impl FnMut()) -> CompiledImage {
    loop {
        call();
        match link.compiled_image(library) {
            settled @ (CompiledImage::InUse(_) | CompiledImage::Kept(_)) => return settled,
            CompiledImage::NotRequested => panic!("it was asked for"),
            _ => {}
        }
    }
}

fn settled(link: &Link, library: &Library) -> CompiledImage {
    settle(link, library, || call(link, library))
}

/// The id of the image that is in use.
#[track_caller]
fn in_use(image: CompiledImage) -> CodeId {
    match image {
        CompiledImage::InUse(id) => id,
        other => panic!("not in use: {other:?}"),
    }
}

/// The reason why the image was not compiled.
#[track_caller]
fn not_compiled(image: CompiledImage) -> String {
    match image {
        CompiledImage::Kept(KeptCause::NotCompiled { text }) => text,
        other => panic!("not kept for a failed compiler: {other:?}"),
    }
}

/// The number of lines in a file, or 0 if there is no such file.
fn lines(path: PathBuf) -> usize {
    fs::read_to_string(path).map_or(0, |text| text.lines().count())
}

#[test]
fn calls_run_the_carried_image_until_the_compiled_one_is_ready() {
    let place = Place::new();
    let library = sum(&place);
    let go = place.path("go");
    let compiler = compiler(&place, &format!("while [ ! -e {} ]; do sleep 0.01; done", quoted(&go)));
    let _target = start_target(&place.address());
    let link = link_by(place.link(), compiler);
    assert_eq!(link.compiled_image(&library), CompiledImage::NotRequested);
    for _ in 0..100 {
        call(&link, &library);
        assert_eq!(link.compiled_image(&library), CompiledImage::Compiling);
    }
    let calls = || {
        let images = place.admin().store().unwrap().images;
        images.into_iter().map(|image| (image.id, (image.calls, image.platform))).collect::<Vec<_>>()
    };
    let triple = Machine::native().unwrap().triple();
    let carried = id_of(&library);
    assert_eq!(calls(), [(carried, (100, triple.to_owned()))]);
    fs::write(go, "").unwrap();
    let id = in_use(settled(&link, &library));
    assert_ne!(id, carried);
    let before = calls();
    for _ in 0..10 {
        call(&link, &library);
    }
    let (before, after) = (|wanted| before.iter().find(|(id, _)| *id == wanted), calls());
    let after = |wanted| after.iter().find(|(id, _)| *id == wanted).map(|(_, of)| of.clone());
    assert_eq!(after(carried), before(carried).map(|(_, of)| of.clone()));
    let (ran, platform) = after(id).unwrap();
    assert_eq!(ran, 10 + before(id).map_or(0, |(_, (calls, _))| *calls));
    assert_eq!(platform, format!("{triple}:exact"));
}

#[test]
fn code_with_writable_variables_is_not_exchanged() {
    let place = Place::new();
    let tally = fs::read_to_string(Path::new(IFUNCS).join("tally.c")).unwrap();
    let library = carrying(&place, "tally", &tally);
    let _target = start_target(&place.address());
    let link = link_by(place.link(), PeerCompiler::new());
    for count in 1..=50 {
        assert_eq!(to_words(&link.inject(&library, b"").unwrap().wait(PATIENCE).unwrap()), [count]);
        assert_eq!(link.compiled_image(&library), CompiledImage::Kept(KeptCause::Statics));
    }
}

#[test]
fn an_image_that_the_target_refuses_costs_no_call() {
    let place = Place::new();
    let library = sum(&place);
    let target = place.target().allow_code([id_of(&library)]);
    let link = place.link().compile_for_peer(PeerCompiler::new());
    let mut pair = Pair::of(target, link);
    let mut calls = 0;
    let kept = loop {
        assert_eq!(to_words(&pair.call(&library, &[1; 64]).unwrap()), [64]);
        pair.link.send(&library, &[1; 64]).unwrap();
        let mut batch = pair.link.batch();
        (0..10).for_each(|_| batch.send(&library, &[1; 64]).unwrap());
        batch.finish().unwrap();
        calls += 12;
        if let CompiledImage::Kept(cause) = pair.link.compiled_image(&library) {
            break cause;
        }
    };
    assert!(matches!(kept, KeptCause::Refused(_)) && kept.to_string().contains("allow"), "{kept}");
    for _ in 0..10 {
        assert_eq!(to_words(&pair.call(&library, &[1; 64]).unwrap()), [64]);
    }
    pair.flush().unwrap();
    // The target refused the frame that brought the image.
    assert_eq!((pair.target.stats().calls, pair.target.stats().refusals()), (calls + 10, 1));
    assert_eq!(pair.target.images().len(), 1);
}

#[test]
fn one_way_calls_and_batches_change_to_the_compiled_image() {
    for transport in ["shm", "tcp"] {
        one_way_calls_change_to_the_image_over(transport);
    }
}

fn one_way_calls_change_to_the_image_over(transport: &str) {
    let place = Place::new();
    let library = sum(&place);
    let (_target, address) = start_target_over(&place.address(), transport);
    let link = link_by(Link::builder(&address).transport(transport), PeerCompiler::new());
    let mut sent = 0_u64;
    let id = in_use(settle(&link, &library, || {
        link.send(&library, &[1; 100]).unwrap();
        let mut batch = link.batch();
        (0..50).for_each(|_| batch.send(&library, &[1; 100]).unwrap());
        batch.finish().unwrap();
        sent += 51;
        link.flush(PATIENCE).unwrap();
    }));
    let mut batch = link.batch();
    (0..50).for_each(|_| batch.send(&library, &[1; 100]).unwrap());
    batch.finish().unwrap();
    link.flush(PATIENCE).unwrap();
    let images = place.admin().store().unwrap().images;
    assert_eq!(images.iter().map(|image| image.calls).sum::<u64>(), sent + 50);
    assert!(images.iter().any(|image| image.id == id && image.calls >= 50), "{images:?}");
}

#[test]
fn each_obstacle_leaves_the_carried_image_in_use_and_can_be_read() {
    let place = Place::new();
    let library = sum(&place);
    let _target = start_target(&place.address());
    let kept = |library: &Library, compiler| settled(&link_by(place.link(), compiler), library);

    let missing = not_compiled(kept(&library, PeerCompiler::new().cc("/nowhere/cc")));
    assert!(missing.contains("/nowhere/cc") && missing.contains("Install a C compiler"), "{missing}");
    let failed = not_compiled(kept(&library, compiler(&place, "echo nothing works >&2; exit 1")));
    assert!(failed.contains("nothing works"), "{failed}");
    let killed = not_compiled(kept(&library, compiler(&place, "kill -KILL $$")));
    assert!(killed.contains("does not compile"), "{killed}");
    let linker = not_compiled(kept(&library, PeerCompiler::new().linker("/nowhere/ld")));
    assert!(linker.contains("/nowhere/ld"), "{linker}");

    let mut without = options(&place, "sum", SUM);
    without.carry_source = false;
    let library = Library::open(build(&without).unwrap().library).unwrap();
    assert_eq!(kept(&library, PeerCompiler::new()), CompiledImage::Kept(KeptCause::NoSource));
    let own = Options { cpu: Some((*farjump_os::cpu::detected()).clone()), ..options(&place, "sum", SUM) };
    let library = Library::open(build(&own).unwrap().library).unwrap();
    assert_eq!(kept(&library, PeerCompiler::new()), CompiledImage::Kept(KeptCause::CarriesOne));
}

#[test]
fn a_source_without_the_right_to_bring_code_compiles_nothing() {
    let place = Place::new();
    let library = sum(&place);
    let target = place.target().rights(farjump::Rights::all() - farjump::Rights::INJECT);
    let mut pair = Pair::of(target, place.link().compile_for_peer(PeerCompiler::new()));
    drop(pair.link.inject(&library, &[1; 8]).unwrap());
    assert_eq!(pair.link.compiled_image(&library), CompiledImage::Kept(KeptCause::MayNotBring));
    pair.serve();
}

/// A compiler that hangs, with a child process. The lines of the file are the ids of both.
fn hanging(place: &Place) -> (PeerCompiler, PathBuf) {
    let pids = place.path("pids");
    let file = quoted(&pids);
    (compiler(place, &format!("sleep 100000 & echo $! >> {file}; echo $$ >> {file}; wait")), pids)
}

fn pids(path: &PathBuf) -> Vec<u32> {
    eventually(|| lines(path.clone()) == 2);
    fs::read_to_string(path).unwrap().lines().map(|line| line.parse().unwrap()).collect()
}

#[test]
fn a_compiler_that_hangs_is_ended_by_its_limit() {
    let place = Place::new();
    let library = sum(&place);
    let (compiler, file) = hanging(&place);
    let _target = start_target(&place.address());
    let link = link_by(place.link(), compiler.time_limit(Duration::from_millis(300)));
    let text = not_compiled(settled(&link, &library));
    assert!(text.contains("longer than 300ms"), "{text}");
    eventually(|| pids(&file).into_iter().all(|pid| !runs(pid)));
}

#[test]
fn the_last_link_that_wants_an_image_ends_its_compiler() {
    let place = Place::new();
    let library = sum(&place);
    let (compiler, file) = hanging(&place);
    let compiler = compiler.time_limit(FOREVER);
    let _target = start_target(&place.address());
    let links = [(); 2].map(|()| link_by(place.link(), compiler.clone()));
    links.iter().for_each(|link| call(link, &library));
    let compiling = pids(&file);
    let [first, second] = links;
    drop(first);
    call(&second, &library);
    assert_eq!(second.compiled_image(&library), CompiledImage::Compiling);
    assert!(compiling.iter().all(|pid| runs(*pid)), "the other link wants it");
    drop(second);
    // They are killed, and take a moment to end.
    eventually(|| compiling.iter().all(|pid| !runs(*pid)));
    // Two, and no third process.
    assert_eq!(pids(&file), compiling);
}

#[test]
fn links_share_what_was_compiled_from_one_source_for_one_cpu() {
    let place = Place::new();
    let library = sum(&place);
    // Another file with the same source.
    fs::copy(library.path(), place.path("copy.so")).unwrap();
    let copy = Library::open(place.path("copy.so")).unwrap();
    let log = place.path("log");
    let compiler = compiler(&place, &format!("case \" $* \" in *' -c '*) echo >> {}; esac", quoted(&log)));
    let _targets = ["a", "b"].map(|name| start_target(&place.address_of(name)));
    let link = |name: &str| link_by(Link::builder(&place.address_of(name)), compiler.clone());
    let (one, other) = (link("a"), link("b"));
    call(&one, &library);
    call(&other, &copy);
    let ids = [settled(&one, &library), settled(&other, &copy)].map(in_use);
    assert_eq!(ids[0], ids[1]);
    // A later link finds it done.
    let later = link("a");
    assert_eq!(in_use(settled(&later, &library)), ids[0]);
    assert_eq!(lines(log), 1);
}

#[test]
fn a_link_made_anew_uses_the_image_again() {
    let place = Place::new();
    let library = sum(&place);
    let target = start_target(&place.address());
    let mut link = link_by(place.link(), PeerCompiler::new());
    let id = in_use(settled(&link, &library));
    drop(target);
    let _target = start_target(&place.address());
    link.reconnect().unwrap();
    assert_eq!(link.compiled_image(&library), CompiledImage::NotRequested);
    assert_eq!(in_use(settled(&link, &library)), id);
    let images = place.admin().store().unwrap().images;
    assert!(images.iter().any(|image| image.id == id), "{images:?}");
}

#[test]
fn a_peers_cpu_description_cannot_choose_compiler_options() {
    let place = Place::new();
    let library = sum(&place);
    let log = place.path("log");
    let compiler = compiler(&place, &format!("for word; do echo \"$word\"; done >> {}", quoted(&log)));
    let (machine, level) = (Machine::native().unwrap(), Level::BASELINE);
    // Words that compilers take behind -m and that name no feature, and one that no compiler knows.
    let words = ["32", "no-red-zone", "cmodel-large", "soft-float", "long-double-64", "unicode", "made-up"];
    let own = Cpu::of_level(machine, level);
    let features = own.features().iter().map(String::as_str).chain(words);
    let cpu = Cpu::new(machine, level, "made-up-2000.x", features).unwrap();
    let target = RawTarget::start_as(&place.address(), cpu, |mut target| {
        // The last call has no payload.
        loop {
            let frame = target.next_frame();
            target.reply(frame.token, 0, b"");
            if frame.kind == Kind::Call && frame.payload_len == 0 {
                return;
            }
        }
    });
    let link = link_by(place.link(), compiler);
    let id = settle(&link, &library, || drop(link.inject(&library, b"1").unwrap().wait(PATIENCE).unwrap()));
    in_use(id);
    link.inject(&library, b"").unwrap().wait(PATIENCE).unwrap();
    target.join().unwrap();
    let words = fs::read_to_string(log).unwrap();
    // The command that compiled comes last: the linker's version comes from another program.
    let (_, compiled) = words.rsplit_once("-fno-omit-frame-pointer").unwrap();
    let (before, _) = words.rsplit_once("-Os\n-fno-omit-frame-pointer").unwrap();
    let flags: Vec<_> = before.lines().rev().take_while(|word| *word != "/dev/null").collect();
    for hostile in ["made-up", "-m32", "red-zone", "large", "soft-float", "long-double", "unicode"] {
        assert!(!flags.iter().any(|flag| flag.contains(hostile)) && !compiled.contains(hostile), "{flags:?}");
    }
    for name in ["a b", "\"; touch x", "-march", "$(x)", "../x", "é", &"x".repeat(65)] {
        Cpu::new(machine, level, name, [""; 0]).unwrap_err();
        Cpu::new(machine, level, "", [name]).unwrap_err();
    }
}

/// A frame that only binds code.
fn bind<'a>(image: &'a [u8], id: CodeId, epoch: u64) -> Plan<'a> {
    Plan { kind: Kind::Bind, ..call_code("sum", image, id, epoch) }
}

#[test]
fn a_code_binding_frame_runs_nothing_and_is_refused_like_calls() {
    let place = Place::new();
    let library = sum(&place);
    let (id, image) = (id_of(&library), library.images()[0].bytes().to_vec());
    let allowed = place.target().allow_code([id]);
    let mut target = allowed.build().unwrap();
    let address = target.address();
    let mut source = while_polling(&mut target, || RawSource::connect(&address));
    let epoch = source.epoch;
    // Twice, as a source may: the index then stands for the code.
    for _ in 0..2 {
        source.send_plan(&bind(&image, id, epoch), b"what is no payload");
        serve(&mut target);
        assert_eq!(source.reply(), b"");
        assert_eq!((target.stats().calls, target.images().len()), (0, 1));
    }
    source.send_plan(&raw_call(), &[1; 9]);
    serve(&mut target);
    assert_eq!(to_words(&source.reply()), [9]);
    // Other bytes under the id, other code, and another run of the target.
    let mut other = image.clone();
    *other.last_mut().unwrap() ^= 1;
    let stranger = farjump_loader::code_id(&other);
    for (plan, cause) in [
        (bind(&other, id, epoch), RefusalCause::IdMismatch),
        (bind(&other, stranger, epoch), RefusalCause::Policy),
        (bind(&image, id, epoch + 1), RefusalCause::StaleEpoch),
    ] {
        source.send_plan(&Plan { index: 7, ..plan }, b"");
        serve(&mut target);
        assert_eq!(source.refusal(plan.token).0, cause);
    }
    assert_eq!((target.stats().calls, target.stats().refusals()), (1, 3));
}
