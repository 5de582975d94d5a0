//! The backends in `docs/guide/writing-a-transport.md` are those in this folder, carry calls, and pass the suite that the
//! page recommends.

use std::fs;
use std::path::Path;
use std::time::Duration;

use farjump::build::{Options, build};
use farjump::core::transport::{ArrivalRules, Transport};
use farjump::{CallError, Error, InjectError, Library, Link, RefusalCause, Target};
use farjump_integration_tests::conformance::{self, Pair, Subject};

use crate::datagrams::Datagrams;
use crate::hex;
use crate::pages::Pages;

const PATIENCE: Duration = Duration::from_secs(30);

/// A function that replies its payload.
fn echo(folder: &Path) -> Library {
    let source = folder.join("echo.c");
    let code = "#include <farjump_ifunc.h>\n\
                FARJUMP_COPY_ARGS(echo)\n\
                FARJUMP_IFUNC void echo_main(void *payload, size_t size, void *target_args)\n\
                { (void)target_args; farjump_reply(payload, size); }\n";
    fs::write(&source, code).unwrap();
    let output = folder.join("libecho.so");
    build(&Options { inputs: vec![source], output: output.clone(), ..Options::default() }).unwrap();
    Library::open(output).unwrap()
}

/// Makes calls over a backend. Both endpoints are in this process but connect over a socket, like two
/// processes.
fn carries_calls(make: impl Fn() -> Box<dyn Transport>, largest: usize) {
    let folder = farjump_fixtures::folder();
    let echo = echo(folder.path());
    let name = make().name().to_owned();
    let address = format!("unix:{}", folder.path().join("socket").display());
    let target = Target::listen(&address).with_transport(make()).transport(&name).build().unwrap();
    let target = target.spawn().unwrap();
    let link = Link::builder(&address).with_transport(make()).transport(&name).connect().unwrap();
    assert_eq!(link.transport(), name);

    let byte = |at: usize| (at % 251) as u8;
    // Thousands of frames, so that a ring wraps many times.
    for round in 0..3000 {
        let len = round * 37 % largest;
        let sent: Vec<u8> = (round..round + len).map(byte).collect();
        let reply = link.inject(&echo, &sent).unwrap().wait(PATIENCE).unwrap();
        assert_eq!(&reply[..], &sent[..], "round {round}");
    }
    // The link reports it, or the target, which makes no mailbox for it.
    let too_long = vec![0; (64 << 20) + 1];
    assert!(matches!(
        link.inject(&echo, &too_long).unwrap_err(),
        Error::Inject(InjectError::TooLarge { .. })
            | Error::Call(CallError::Refused { cause: RefusalCause::TooLarge, .. })
    ));

    // A sleeping target is woken, or wakes by itself.
    std::thread::sleep(Duration::from_millis(100));
    assert_eq!(&link.inject(&echo, b"still there?").unwrap().wait(PATIENCE).unwrap()[..], b"still there?");
    target.stop().unwrap();
    assert!(link.inject(&echo, b"gone").and_then(|call| call.wait(PATIENCE)).is_err());
}

#[test]
fn the_one_sided_backend_of_the_guide_carries_calls() {
    carries_calls(|| Box::new(Pages), 100_000);
}

#[test]
fn the_two_sided_backend_of_the_guide_carries_calls() {
    carries_calls(|| Box::new(Datagrams), 60_000);
}

/// Runs the conformance suite over the subject of the test `test`, with few frames. The checks are about lengths,
/// limits and faults; the test of calls sends thousands of frames.
fn conforms(subject: Subject, test: &str) {
    let again = [&format!("transports::{test}"), "--exact", "--nocapture"];
    let outcome = conformance::run(&subject.volume(2_000).between_processes(again));
    println!("{outcome}");
    outcome.assert_conforms();
}

#[test]
fn the_one_sided_backend_of_the_guide_passes_the_suite() {
    let pair = || Pair::new(Box::new(Pages), Box::new(Pages));
    let subject = Subject::new("pages", ArrivalRules::FENCED, pair).without_wake_ups();
    conforms(subject, "the_one_sided_backend_of_the_guide_passes_the_suite");
}

#[test]
fn the_two_sided_backend_of_the_guide_passes_the_suite() {
    let pair = || Pair::new(Box::new(Datagrams), Box::new(Datagrams));
    let subject = Subject::new("datagrams", ArrivalRules::DELIVERED, pair);
    conforms(subject, "the_two_sided_backend_of_the_guide_passes_the_suite");
}

/// Checks that each block of Rust in the guide is a piece of one of the files, indentation aside.
#[test]
fn the_guide_shows_the_backends_as_they_are() {
    let bare = |text: &str| text.lines().map(str::trim).collect::<Vec<_>>().join("\n");
    let files = ["pages.rs", "datagrams.rs"]
        .map(|name| bare(&hex::read(&format!("integration-tests/tests/documents/{name}"))));
    let guide = hex::read("docs/guide/writing-a-transport.md");
    let blocks: Vec<_> =
        guide.split("```rust\n").skip(1).map(|rest| rest.split("```").next().unwrap()).collect();
    assert!(blocks.len() > 8, "the guide has {} blocks", blocks.len());
    for block in blocks {
        assert!(files.iter().any(|file| file.contains(bare(block).trim())), "in neither file:\n{block}");
    }
}
