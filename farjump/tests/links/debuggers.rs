//! gdb, and perf's map, on a target of an architecture other than x86-64. For gdb the target runs in an emulator with
//! a stub for it (QEMU's `-g`), which debuggers know as a remote target. `cli/tests/debuggers.rs` has the tests for
//! x86-64.

use std::fs;
use std::path::Path;
use std::process::Command;

use farjump::build::{Options, build};
use farjump::{Library, Target};
use farjump_core::image::ImageView;
use farjump_fixtures::helper_process::{RUNNER, is_alone};
use farjump_fixtures::process::Process;

use crate::helper::{HelperProcess, role, serve_until_ended, test_in_role, this_test};
use crate::support::{PATIENCE, Pair, Place, eventually, image_of, library, to_words};

/// A gdb that supports other architectures than the machine's.
const GDB: &str = "gdb-multiarch";

const TWICE: &str = "#include <farjump_ifunc.h>
FARJUMP_COPY_ARGS(twice)
__attribute__((noinline)) static int add_to_itself(volatile int *number)
{
    return *number + *number;
}
FARJUMP_IFUNC void twice_main(void *payload, size_t payload_size, void *target_args)
{
    volatile int number = (int)payload_size;
    int sum = add_to_itself(&number);
    (void)payload, (void)target_args;
    farjump_reply(&sum, sizeof sum);
}
";

/// Plays a target under a debugger, until its parent ends it.
fn play_target(address: &str, symbols: &str) {
    serve_until_ended(Target::listen(address).debug(true).debug_symbols(symbols).build().unwrap());
}

/// Returns the first line of `gdb` with these words.
fn line_with(gdb: &Process, words: &str) -> String {
    loop {
        let line = gdb.line();
        if line.contains(words) {
            return line;
        }
    }
}

#[test]
fn gdb_stops_in_an_injected_function_and_shows_its_lines() {
    if let [address, symbols] = &*role() {
        return play_target(address, symbols);
    }
    if std::env::var_os(RUNNER).is_none() {
        eprintln!("skipped: there is no emulator, whose stub {GDB} talks to");
        return;
    }
    if cfg!(target_arch = "riscv64") {
        eprintln!(
            "skipped: lld leaves no relocations of debugging information for riscv64, so there are no lines"
        );
        return;
    }
    if !farjump_tools::all_work(&[GDB]) {
        return;
    }
    let place = Place::new();
    let source = place.path("twice.c");
    fs::write(&source, TWICE).unwrap();
    let output = place.path("libtwice.so");
    build(&Options { inputs: vec![source], output: output.clone(), debug: true, ..Options::default() })
        .unwrap();

    // The emulator waits for gdb at its socket, before the program's first instruction.
    let (stub, address) = (place.path("gdb"), place.address());
    let mut command = test_in_role(this_test!(), &[&address, output.to_str().unwrap()]);
    let target = HelperProcess::start({
        command.env("QEMU_GDB", &stub);
        command
    });
    eventually(|| stub.exists());
    let program = std::env::current_exe().unwrap();
    let orders = [
        &*format!("file {}", program.display()),
        // The libraries' symbols are not needed, and gdb would read them through the stub.
        "set auto-solib-add off",
        "set sysroot /nowhere",
        "set breakpoint pending on",
        &*format!("target remote {}", stub.display()),
        "break add_to_itself",
        "continue",
        "backtrace",
        "info symbol $pc",
        "continue",
        "up",
        "print payload_size",
        "delete",
        "detach",
    ];
    let mut command = Command::new(GDB);
    command.args(["--batch", "-nx"]).args(orders.iter().flat_map(|order| ["-ex", order]));
    let gdb = Process::start(&mut command);
    line_with(&gdb, "Breakpoint 1 (add_to_itself) pending.");
    assert_eq!(target.hear(), "ready");

    let library = Library::open(&output).unwrap();
    let link = place.link().connect().unwrap();
    let first = link.inject(&library, b"four").unwrap();
    let second = link.inject(&library, b"longer").unwrap();
    let stopped = line_with(&gdb, "hit Breakpoint 1");
    assert!(stopped.contains("add_to_itself (number=") && stopped.contains("twice.c:5"), "{stopped}");
    for (number, words) in [(0, "add_to_itself (number="), (1, " in twice_main (payload="), (2, " in ")] {
        let frame = line_with(&gdb, &format!("#{number} "));
        assert!(frame.contains(words), "{frame}");
        // The target itself has no line numbers: programs built for the emulator have no debug information.
        let place = if number < 2 { "twice.c:" } else { "farjump::executor::" };
        assert!(frame.contains(place), "{frame}");
    }
    line_with(&gdb, "add_to_itself in section");
    line_with(&gdb, "hit Breakpoint 1");
    line_with(&gdb, "$1 = 6");
    for (call, sum) in [(first, 8_i32), (second, 12)] {
        assert_eq!(*call.wait(PATIENCE).unwrap(), sum.to_ne_bytes());
    }
    gdb.finish().worked();
    // The target continues without gdb.
    let third = link.inject(&library, b"1").unwrap();
    assert_eq!(*third.wait(PATIENCE).unwrap(), 2_i32.to_ne_bytes());
    drop(link);
    target.end();
}

/// The lines of perf's map at `path`: address, length and name.
fn perf_map(path: &Path) -> Vec<(u64, u64, String)> {
    let text = fs::read_to_string(path).unwrap();
    let number = |digits: &str| u64::from_str_radix(digits, 16).unwrap();
    let lines = text.lines().map(|line| {
        let mut words = line.splitn(3, ' ');
        let mut next = || words.next().unwrap_or_else(|| panic!("{line:?}"));
        (number(next()), number(next()), next().to_owned())
    });
    lines.collect()
}

#[test]
fn perfs_map_has_the_address_length_and_name_of_each_image() {
    // A map belongs to a process, so this target has a process of its own.
    if !is_alone(this_test!()) {
        return;
    }
    let map = Path::new("/tmp").join(format!("perf-{}.map", std::process::id()));
    let place = Place::new();
    let mut pair = Pair::of(place.target().perf_map(true), place.link());
    assert_eq!(perf_map(&map), []);
    let (whereabouts, echo) = (library("whereabouts"), library("echo"));
    let length = |library| ImageView::new_checked(&image_of(library)).unwrap().span1().len() as u64;
    let found = to_words(&pair.call(&whereabouts, b"").unwrap());
    assert_eq!(*pair.call(&echo, b"again").unwrap(), *b"again");
    pair.call(&whereabouts, b"").unwrap();
    let lines = perf_map(&map);
    fs::remove_file(&map).unwrap();
    let [(address, len, name), (other, other_len, other_name)] = &*lines else { panic!("{lines:?}") };
    let image = image_of(&whereabouts);
    let entry = u64::from(ImageView::new_checked(&image).unwrap().entry());
    // The function replies its own address.
    assert_eq!((address + entry, *len, &**name), (found[0], length(&whereabouts), "ifunc:whereabouts"));
    assert_eq!((*other_len, &**other_name), (length(&echo), "ifunc:echo"));
    assert!(!(*address..address + len).contains(other));
}
