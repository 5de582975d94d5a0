//! Functions with landing pads, compiled with `-mbranch-protection=standard`, where the processor checks them (BTI of
//! aarch64).

use std::os::unix::process::ExitStatusExt;

use farjump::Library;
use farjump::build::{Options, build};
use farjump_core::image::ImageView;

use crate::helper::{role, test_in_role, this_test};
use crate::support::{Pair, Place, image_of, panicked};

/// Calls the code at a function's address plus the first byte of the payload. Panics if that byte is 255.
const PADS: &str = "#include <farjump_ifunc.h>
FARJUMP_COPY_ARGS(pads)
__attribute__((noinline)) static int add_one(int number) { return number + 1; }
FARJUMP_IFUNC void pads_main(void *payload, size_t payload_size, void *target_args)
{
    unsigned char skipped = *(unsigned char *)payload;
    (void)payload_size, (void)target_args;
    if (skipped == 255) farjump_panic(\"as told\", 7);
    int (*volatile function)(int) = (int (*)(int))((char *)add_one + skipped);
    int sum = function(41);
    farjump_reply(&sum, sizeof sum);
}
";
/// An object that declares no landing pads, as assemblers make them.
const SILENT: &str = ".text\n.globl pads_silent\npads_silent: ret\n";

/// Builds the function. Its image has landing pads unless one more object declares none.
fn pads(place: &Place, silent: bool) -> Library {
    let source = |name: &str, text: &str| {
        std::fs::write(place.path(name), text).unwrap();
        place.path(name)
    };
    let mut inputs = vec![source("pads.c", PADS)];
    if silent {
        inputs.push(source("silent.s", SILENT));
    }
    let cflags = vec!["-mbranch-protection=standard".to_owned()];
    let options = Options { inputs, cflags, output: place.path("libpads.so"), ..Options::default() };
    let library = Library::open(build(&options).unwrap().library).unwrap();
    let image = image_of(&library);
    assert_eq!(ImageView::new_checked(&image).unwrap().has_landing_pads(), !silent);
    library
}

/// Runs in a process that may crash: calls `add_one`, `skipped` bytes behind its start.
fn call(place: &Place, how: &str, skipped: u8) -> i32 {
    let library = pads(place, how.contains("silent"));
    let debug = how.contains("debug");
    let mut pair = Pair::of(place.target().crash_report(true).debug(debug), place.link());
    let reply = pair.call(&library, &[skipped]).unwrap();
    i32::from_ne_bytes((*reply).try_into().unwrap())
}

#[test]
fn a_function_with_landing_pads_is_entered_calls_replies_and_panics() {
    let place = Place::new();
    let library = pads(&place, false);
    let mut pair = Pair::new(&place);
    for _ in 0..2 {
        assert_eq!(*pair.call(&library, &[0]).unwrap(), 42_i32.to_ne_bytes());
        assert_eq!(panicked(pair.call(&library, &[255]), "pads"), "as told");
    }
}

#[test]
fn a_jump_past_a_landing_pad_crashes_with_a_report() {
    // The role is the kind of target and function.
    if let [how] = &*role() {
        assert_eq!(call(&Place::new(), how, 4), 42);
        std::process::exit(7);
    }
    if !std::arch::is_aarch64_feature_detected!("bti") {
        eprintln!("skipped: this processor has no BTI");
        return;
    }
    // The crashed processes leave their files in here.
    let place = Place::new();
    for (how, faults) in [("pads", true), ("pads debug", true), ("silent", false), ("silent debug", false)] {
        let mut command = test_in_role(this_test!(), &[how]);
        let output = command.env("TMPDIR", place.path("")).output().unwrap();
        let text = String::from_utf8_lossy(&output.stderr);
        let ended = (output.status.code(), output.status.signal());
        let expected = if faults { (None, Some(libc::SIGILL)) } else { (Some(7), None) };
        assert_eq!(ended, expected, "{how}: {text}");
        let report = "farjump: SIGILL in ifunc `pads`, at offset 0x";
        assert_eq!(text.contains(report), faults, "{how}: {text}");
    }
}
