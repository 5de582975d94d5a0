//! Injected code in perf and gdb.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use farjump_tools::all_work;

use crate::workbench::{Process, Workbench, alone, finish, start_target};

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

#[test]
fn perf_names_the_function_that_keeps_a_target_busy() {
    if !all_work(&["perf"]) {
        return;
    }
    let _alone = alone();
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
    // The thread that runs calls alone: others come and go while perf lists them.
    record.args(["record", "-e", "cpu-clock", "-o", "recorded", "-t", &pid, "--"]);
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
fn serve_writes_a_perf_map_with_the_option_alone() {
    let bench = Workbench::new();
    let counter = bench.sample("counter");
    let serving = bench.serve(&[]);
    bench.inject(&counter, &[]).worked();
    assert!(!PerfMap::of(&serving).0.exists());
    serving.stop().worked();
    let serving = bench.serve(&["--perf-map"]);
    bench.inject(&counter, &[]).worked();
    assert!(PerfMap::of(&serving).place("counter").is_some());
    serving.stop().worked();
}

#[test]
fn gdb_knows_functions_arguments_lines_and_statics_of_code_that_runs() {
    gdb_knows_code_linked_with(&[]);
}

#[test]
fn gdb_knows_code_that_farjumps_own_linker_linked() {
    gdb_knows_code_linked_with(&["--linker", "own"]);
}

fn gdb_knows_code_linked_with(linker: &[&str]) {
    if !all_work(&["gdb"]) {
        return;
    }
    let _alone = alone();
    let bench = Workbench::new();
    bench.write("linger.c", format!("#include <farjump_ifunc.h>\n{LINGER}"));
    bench.run([&["build", "-g", "linger.c", "-o", "liblinger.so"], linker].concat()).worked();
    let wrote = bench.run(["inspect", "liblinger.so", "--symbols", "linger.elf"]).worked();
    assert!(wrote.text().contains("add-symbol-file linger.elf -o"), "{}", wrote.text());

    let serving = bench.serve(&["--perf-map", "--process-symbols"]);
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
    if !crate::workbench::gdb_attached(&said) {
        return;
    }
    let text = said.text();
    // For a frame that stands at the beginning of a line of code, gdb shows no address and no "in".
    let frame = text
        .lines()
        .find(|line| line.contains(" turn_until_released (first=") && line.contains("=42) at linger.c:"));
    assert!(frame.is_some(), "{text}{}", said.err);
    assert!(text.lines().any(|line| line.contains(" in linger_main (")), "{text}");
    // Statics are at the addresses of the symbols, a gigabyte above the code, so the call ends.
    let done = injecting.finish().worked();
    assert_eq!(done.out, 43_i32.to_ne_bytes());
    serving.stop().worked();
}

/// Returns the lines of the page that begin with `prompt`, from `**heading` on to the next heading.
fn page(heading: &str, prompt: &str) -> Vec<String> {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/guide/writing-ifuncs.md");
    let text = fs::read_to_string(page).expect("the page is there");
    let (_, section) = text.split_once(&format!("\n**{heading}")).expect("the section is there");
    let section = section.split("\n**").next().unwrap_or_default();
    let lines: Vec<_> = section.lines().filter_map(|line| line.strip_prefix(prompt)).collect();
    assert!(!lines.is_empty(), "{heading}");
    lines.into_iter().map(str::to_owned).collect()
}

/// Returns a shell's command in a folder that has the samples, and `farjump` in its path.
fn shell(bench: &Workbench, line: &str) -> std::process::Command {
    let _ = symlink(Path::new(env!("CARGO_MANIFEST_DIR")).join("../ifuncs"), bench.path("ifuncs"));
    let program = Path::new(env!("CARGO_BIN_EXE_farjump")).parent().expect("it is in a folder");
    let mut command = bench.program("sh");
    let path = format!("{}:{}", program.display(), std::env::var("PATH").unwrap_or_default());
    command.args(["-c", line]).env("PATH", path);
    command
}

/// Attaches gdb to `target`, with these orders. If gdb is missing or may not attach, prints the reason and returns
/// `None`.
fn gdb(bench: &Workbench, target: &Process, orders: &[String]) -> Option<Process> {
    if !all_work(&["gdb"]) {
        return None;
    }
    let attach = || {
        let mut gdb = bench.program("gdb");
        gdb.args(["--batch", "-nx", "-p", &target.pid().to_string()]);
        gdb
    };
    let tried = finish(&mut attach());
    if ["ptrace: Operation not permitted", "Could not attach"].iter().any(|no| tried.err.contains(no)) {
        println!("skipped: gdb may not attach here: {}", tried.err.trim().replace('\n', " "));
        return None;
    }
    let mut gdb = attach();
    for order in orders {
        gdb.args(["-ex", order]);
    }
    Some(Process::start(&mut gdb))
}

/// Returns the first line of `process` with these words.
fn line_with(process: &Process, words: &str) -> String {
    loop {
        let line = process.line();
        if line.contains(words) {
            return line;
        }
    }
}

#[test]
fn gdb_stops_at_a_breakpoint_as_documented_and_the_call_replies() {
    let _alone = alone();
    let bench = Workbench::new();
    let lines = page("gdb.**", "$ ");
    let [build, serve, attach, inject] = &*lines else { panic!("{lines:?}") };
    assert!(attach.starts_with("gdb -p "), "{attach}");
    let data = "/usr/share/common-licenses/GPL-3";
    let Ok(text) = fs::read_to_string(data) else {
        println!("skipped: there is no {data}");
        return;
    };
    assert!(serve.contains(data), "{serve}");
    finish(&mut shell(&bench, build)).worked();
    let background = serve.strip_suffix(" &").expect("the target goes on");
    let (serving, _) = start_target(&mut shell(&bench, &format!("exec {background}")));
    let orders = page("gdb.**", "(gdb) ");
    let Some(gdb) = gdb(&bench, &serving, &orders) else { return };
    line_with(&gdb, "Breakpoint 1 (grep_main) pending.");
    let injecting = Process::start(&mut shell(&bench, inject));
    let stopped = line_with(&gdb, "hit Breakpoint 1, grep_main (");
    assert!(stopped.contains("payload_size=9, "), "{stopped}");
    assert!(stopped.contains(" at ifuncs/samples/c/grep.c:"), "{stopped}");
    let rest = gdb.finish().worked();
    let frame = |number| rest.text().lines().find(|line| line.starts_with(&format!("#{number} ")));
    assert!(frame(0).is_some_and(|frame| frame.contains(" grep_main (payload=")), "{}", rest.text());
    // Without lines gdb names the function that `enter` is inlined in.
    let is_of_the_target = |frame: &str| frame.contains(" in enter ") || frame.contains("Executor>::run");
    assert!(frame(1).is_some_and(is_of_the_target), "{}", rest.text());
    assert!(rest.text().lines().any(|line| line == "$1 = 9"), "{}", rest.text());
    let replied = injecting.finish().worked();
    assert_eq!(replied.text().trim(), text.matches("copyright").count().to_string());
    serving.stop().worked();
}

#[test]
fn gdb_attached_later_knows_stored_code() {
    let _alone = alone();
    let bench = Workbench::new();
    bench.write(
        "linger.c",
        format!("#include <farjump_ifunc.h>\n{LINGER}").replace("while (!released)", "if (released)"),
    );
    bench.run(["build", "-g", "linger.c", "-o", "liblinger.so"]).worked();
    let serving = bench.serve(&["--process-symbols", "--debug", "--debug-symbols", "liblinger.so"]);
    let inject = || {
        let more = ["--args", "xy", "--timeout", "50s"];
        Process::start(&mut bench.injecting("liblinger.so".as_ref(), &bench.address(), &more))
    };
    inject().finish().worked();
    assert_eq!(serving.line(), "in");
    // The call continues with another argument, and hits a breakpoint twice.
    let orders = ["break turn_until_released", "continue", "print first", "set var first = 1", "continue"];
    let orders = orders.into_iter().chain(["print first", "info symbol turn_until_released", "detach"]);
    let orders: Vec<_> = orders.map(str::to_owned).collect();
    let Some(gdb) = gdb(&bench, &serving, &orders) else { return };
    let set = line_with(&gdb, "Breakpoint 1 at 0x");
    assert!(set.contains("file linger.c, line "), "{set}");
    let first = inject();
    let stopped = line_with(&gdb, "hit Breakpoint 1");
    assert!(stopped.contains("turn_until_released (first=") && stopped.contains("=42)"), "{stopped}");
    assert_eq!(line_with(&gdb, "$1"), "$1 = 42");
    assert_eq!(first.finish().worked().out, 1_i32.to_ne_bytes());
    let second = inject();
    assert_eq!(line_with(&gdb, "$2"), "$2 = 42");
    gdb.finish().worked();
    assert_eq!(second.finish().worked().out, 42_i32.to_ne_bytes());
    serving.stop().worked();
}

#[test]
fn gdb_knows_code_without_its_library_by_its_main_function() {
    let _alone = alone();
    let bench = Workbench::new();
    let library = bench.library("linger", &LINGER.replace("while (!released)", "if (released)"));
    // For programs that have no option of their own.
    let (serving, address) = start_target(bench.serving(&["--process-symbols"]).env("FARJUMP_DEBUG", "1"));
    let orders = ["set breakpoint pending on", "break linger_main", "continue", "backtrace 1", "detach"];
    let Some(gdb) = gdb(&bench, &serving, &orders.map(str::to_owned)) else { return };
    line_with(&gdb, "Breakpoint 1 (linger_main) pending.");
    let injecting = Process::start(&mut bench.injecting(&library, &address, &["--timeout", "50s"]));
    assert!(line_with(&gdb, "hit Breakpoint 1").contains("in linger_main ()"));
    gdb.finish().worked();
    assert_eq!(injecting.finish().worked().out, 40_i32.to_ne_bytes());
    serving.stop().worked();
}

#[test]
fn debugger_symbols_require_the_debug_option_and_a_file_with_symbols() {
    let bench = Workbench::new();
    let plain = bench.plain_library("plain", "int one(void) { return 1; }");
    let serve = |more: &[&str]| finish(&mut bench.serving(more));
    serve(&["--debug-symbols", "libplain.so"]).fails(2, &["--debug"]);
    serve(&["--debug", "--debug-symbols", "libnone.so"]).fails(1, &["there is no file `./libnone.so`"]);
    let text = format!("`{}` keeps no symbols", plain.display());
    serve(&["--debug", "--debug-symbols", &plain.display().to_string()]).fails(1, &[&text]);
}

#[test]
fn symbols_of_a_library_without_debug_info_name_its_functions() {
    let bench = Workbench::new();
    let plain = bench.library("linger", LINGER);
    fs::create_dir(bench.path("symbols")).expect("a folder can be made");
    let wrote = bench.run(["inspect", "liblinger.so", "--symbols", "symbols"]).worked();
    let elf = bench.path("symbols/linger.x86_64-unknown-linux-gnu.elf");
    let names = finish(bench.program("nm").arg(&elf)).worked();
    for name in ["linger_main", "turn_until_released", "released"] {
        assert!(names.text().lines().any(|line| line.ends_with(&format!(" {name}"))), "{}", names.text());
    }
    // The symbols can be removed on their own.
    let id = wrote.text().split(' ').nth(4).expect("an id").to_owned();
    finish(bench.program("strip").args(["-R", ".farjump.symbols.*"]).arg(&plain)).worked();
    assert!(bench.run(["inspect", "liblinger.so"]).worked().text().contains(&id));
    bench.run(["inspect", "liblinger.so", "--symbols", "linger.elf"]).fails(1, &["was it stripped?"]);
    assert!(!bench.path("linger.elf").exists());
}
