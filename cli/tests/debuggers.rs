//! Injected code in perf and gdb.

use std::ffi::OsStr;
use std::fs;
use std::path::PathBuf;

use crate::workbench::{Process, Workbench, finish};

/// Keeps the processor busy for as many turns as its payload says.
const BUSY: &str = "
FARJUMP_COPY_ARGS(busy)
FARJUMP_IFUNC void busy_main(void *payload, size_t size, void *args)
{
    volatile unsigned long sum = 0;
    (void)payload, (void)args;
    for (unsigned long turn = 0; turn < size * 1000000; turn++) sum += turn;
    farjump_reply(&size, sizeof size);
}";

/// Turns until another process sets `released`, in a function that `linger_main` calls.
const LINGER: &str = "
FARJUMP_COPY_ARGS(linger)
static volatile int released;
__attribute__((noinline)) static int turn_until_released(int first)
{
    int turns = first;
    while (!released) turns |= 1;
    return turns;
}
extern int puts(const char *line);
FARJUMP_IFUNC void linger_main(void *payload, size_t size, void *args)
{
    puts(\"in\");
    int turns = turn_until_released(40 + (int)size);
    (void)payload, (void)args;
    farjump_reply(&turns, sizeof turns);
}";

/// A target's perf map, removed on drop: targets leave theirs behind.
struct PerfMap(PathBuf);

impl PerfMap {
    fn of(serving: &Process) -> PerfMap {
        PerfMap(format!("/tmp/perf-{}.map", serving.pid()).into())
    }

    /// Returns address and length of the image that was placed as `name`.
    fn place(&self, name: &str) -> Option<(u64, u64)> {
        let text = fs::read_to_string(&self.0).ok()?;
        let line = text.lines().find_map(|line| line.strip_suffix(&format!(" ifunc:{name}")))?;
        let (address, len) = line.split_once(' ')?;
        Some((u64::from_str_radix(address, 16).ok()?, u64::from_str_radix(len, 16).ok()?))
    }
}

impl Drop for PerfMap {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

/// Returns whether a program runs here.
fn is_there(program: &str) -> bool {
    std::process::Command::new(program).arg("--version").output().is_ok_and(|output| output.status.success())
}

#[test]
fn perf_names_the_function_that_keeps_a_target_busy() {
    if !is_there("perf") {
        eprintln!("skipped: perf is not installed");
        return;
    }
    let bench = Workbench::new();
    let library = bench.library("busy", BUSY);
    // Most virtual machines lack the processor's own counters.
    let probe = finish(bench.program("perf").args(["record", "-e", "cpu-clock", "-o", "probe", "true"]));
    if probe.code != 0 {
        eprintln!("skipped: perf may not record here: {}", probe.err.trim().replace('\n', " "));
        return;
    }
    let serving = bench.serve(&["--perf-map"]);
    let map = PerfMap::of(&serving);
    let (address, pid) = (bench.address(), serving.pid().to_string());
    let turns = bench.write("turns", vec![0; 300]);
    let mut record = bench.program("perf");
    record.args(["record", "-e", "cpu-clock", "-o", "recorded", "-p", &pid, "--"]);
    record.args([OsStr::new(env!("CARGO_BIN_EXE_farjump")), OsStr::new("inject"), library.as_os_str()]);
    record.args(["--to", &address, "--timeout", "50s", "--args-file"]).arg(turns);
    finish(&mut record).worked();
    // The target has ended before perf reads the map.
    serving.stop().worked();
    let report =
        finish(bench.program("perf").args(["report", "--stdio", "--sort", "symbol", "-i", "recorded"]))
            .worked();
    let busiest = report.text().lines().find(|line| line.contains('%') && !line.starts_with('#'));
    assert!(busiest.is_some_and(|line| line.contains(" ifunc:busy ")), "{}", report.text());
    let bytes = map.place("busy").expect("the map stays").1;
    assert!(bytes > 0);
}

#[test]
fn the_perf_map_tells_where_each_image_lies_once() {
    let bench = Workbench::new();
    let (busy, counter) = (bench.library("busy", BUSY), bench.sample("counter"));
    let serving = bench.serve(&["--perf-map"]);
    let map = PerfMap::of(&serving);
    assert_eq!(fs::read_to_string(&map.0).expect("it is there at once"), "");
    for library in [&busy, &counter, &busy] {
        bench.inject(library, &[]).worked();
    }
    assert_eq!(fs::read_to_string(&map.0).expect("it is there").lines().count(), 2);
    let ((busy, len), (counter, _)) =
        (map.place("busy").expect("a line"), map.place("counter").expect("a line"));
    assert!(!(busy..busy + len).contains(&counter));
    let maps = fs::read_to_string(format!("/proc/{pid}/maps", pid = serving.pid())).expect("it runs");
    let executable = maps.lines().filter(|line| line.contains(" r-xs ")).any(|line| {
        let (start, rest) = line.split_once('-').expect("a range");
        let end = rest.split_once(' ').expect("a range").0;
        let number = |digits| u64::from_str_radix(digits, 16).expect("digits");
        (number(start)..number(end)).contains(&busy)
    });
    assert!(executable, "{busy:#x} is not in {maps}");
    serving.stop().worked();
}

#[test]
fn no_perf_map_is_written_unless_asked_for() {
    let bench = Workbench::new();
    let counter = bench.sample("counter");
    let serving = bench.serve(&[]);
    bench.inject(&counter, &[]).worked();
    assert!(!PerfMap::of(&serving).0.exists());
    serving.stop().worked();
}

#[test]
fn gdb_knows_functions_arguments_lines_and_statics_of_code_that_runs() {
    if !is_there("gdb") {
        eprintln!("skipped: gdb is not installed");
        return;
    }
    let bench = Workbench::new();
    bench.write("linger.c", format!("#include <farjump_ifunc.h>\n{LINGER}"));
    bench.run(["build", "-g", "linger.c", "-o", "liblinger.so"]).worked();
    let wrote = bench.run(["inspect", "liblinger.so", "--symbols", "linger.elf"]).worked();
    assert!(wrote.text().contains("add-symbol-file linger.elf -o"), "{}", wrote.text());

    let serving = bench.serve(&["--perf-map", "--allow-process-symbols"]);
    let map = PerfMap::of(&serving);
    let more = ["--args", "xy", "--timeout", "50s"];
    let injecting = Process::start(&mut bench.injecting("liblinger.so".as_ref(), &bench.address(), &more));
    assert_eq!(serving.line(), "in");
    let (place, _) = map.place("linger").expect("a line");
    let mut gdb = bench.program("gdb");
    gdb.args(["--batch", "-nx", "-p", &serving.pid().to_string()]);
    for order in [
        &*format!("add-symbol-file linger.elf -o {place:#x}"),
        "thread apply all -q backtrace",
        "set var released = 1",
    ] {
        gdb.args(["-ex", order]);
    }
    let said = finish(&mut gdb);
    if ["ptrace: Operation not permitted", "Could not attach"].iter().any(|no| said.err.contains(no)) {
        eprintln!("skipped: gdb may not attach here: {}", said.err.trim().replace('\n', " "));
        return;
    }
    let text = said.text();
    let frame = text
        .lines()
        .find(|line| line.contains(" in turn_until_released (first=") && line.contains("=42) at linger.c:"));
    assert!(frame.is_some(), "{text}{}", said.err);
    assert!(text.lines().any(|line| line.contains(" in linger_main (")), "{text}");
    // Statics are at the addresses of the symbols, a gigabyte above the code, so the call ends.
    let done = injecting.finish().worked();
    assert_eq!(done.out, 43_i32.to_ne_bytes());
    serving.stop().worked();
}

#[test]
fn symbols_of_a_library_that_was_not_built_for_debugging_have_the_names_of_its_functions() {
    let bench = Workbench::new();
    let plain = bench.library("linger", LINGER);
    fs::create_dir(bench.path("symbols")).expect("a folder can be made");
    let wrote = bench.run(["inspect", "liblinger.so", "--symbols", "symbols"]).worked();
    let elf = bench.path("symbols/linger.x86_64-unknown-linux-gnu.elf");
    let names = finish(bench.program("nm").arg(&elf)).worked();
    for name in ["linger_main", "turn_until_released", "released"] {
        assert!(names.text().lines().any(|line| line.ends_with(&format!(" {name}"))), "{}", names.text());
    }
    // The file is larger, the code that travels is the same.
    let id = wrote.text().split(' ').nth(4).expect("an id").to_owned();
    bench.run(["build", "-g", "linger.c", "-o", "liblinger.so"]).worked();
    assert!(bench.run(["inspect", "liblinger.so"]).worked().text().contains(&id));
    // The symbols can be removed on their own.
    finish(bench.program("strip").args(["-R", ".farjump.symbols.*"]).arg(&plain)).worked();
    assert!(bench.run(["inspect", "liblinger.so"]).worked().text().contains(&id));
    bench.run(["inspect", "liblinger.so", "--symbols", "linger.elf"]).fails(1, &["was it stripped?"]);
    assert!(!bench.path("linger.elf").exists());
}
