//! `doctor`: its findings on a healthy machine, and on one with faults.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use farjump_tools::all_work;
use farjump_tools::fakes::{Fakes, words_of};
use rustix::process::Signal;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use serde_json::Value;

use crate::workbench::{Process, Workbench, finish, keys, runs, start_target, wait_for};

fn doctor(bench: &Workbench) -> Command {
    let mut command = bench.farjump();
    command.arg("doctor");
    command
}

fn finding<'a>(report: &'a Value, name: &str) -> &'a Value {
    let findings = report["findings"].as_array().expect("a list");
    findings.iter().find(|finding| finding["name"] == name).unwrap_or_else(|| panic!("no {name} in {report}"))
}

/// Returns the document's table of findings: each name, with its figures.
fn documented() -> Vec<(String, BTreeSet<String>)> {
    let document = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/guide/doctor.md");
    let document = fs::read_to_string(document).expect("the document is there");
    let (_, rest) = document.split_once("## What is looked at").expect("it has a list");
    let (list, _) = rest.split_once("\n## ").expect("something follows");
    let rows = list.lines().filter(|line| line.starts_with("| `"));
    let quoted = |cell: &str| cell.split('`').skip(1).step_by(2).map(String::from).collect::<Vec<_>>();
    rows.map(|row| {
        let cells: Vec<&str> = row.split('|').collect();
        (quoted(cells[1]).remove(0), quoted(cells[3]).into_iter().collect())
    })
    .collect()
}

#[test]
fn a_machine_that_runs_these_tests_is_one_where_farjump_works() {
    let bench = Workbench::new();
    let done = finish(&mut doctor(&bench)).worked();
    assert!(done.text().contains("\nfarjump works here"), "{}", done.text());
    let report = finish(doctor(&bench).arg("--json")).worked().json();
    for name in ["machine", "executable memory", "shared memory", "C compiler", "linker", "building"] {
        assert_eq!(finding(&report, name)["verdict"], "ok", "{report}");
        assert!(done.text().contains(name), "{name}");
    }
    assert_eq!(bench.leftovers(), Vec::<std::path::PathBuf>::new());
}

#[test]
fn every_finding_is_as_documented() {
    let bench = Workbench::new();
    let report = finish(doctor(&bench).arg("--json")).worked().json();
    let findings = report["findings"].as_array().expect("a list");
    let documented = documented();
    let names: Vec<_> = findings.iter().filter_map(|finding| finding["name"].as_str()).collect();
    assert_eq!(names, documented.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>());
    assert_eq!(keys(&report), ["verdict", "findings"]);
    for (finding, (name, figures)) in findings.iter().zip(&documented) {
        assert_eq!(keys(finding), ["name", "verdict", "found", "figures", "means", "mend"], "{name}");
        let verdict = finding["verdict"].as_str().expect("a word");
        assert!(["impossible", "slow", "note", "ok"].contains(&verdict), "{finding}");
        for text in ["found", "means"] {
            assert!(finding[text].as_str().is_some_and(|text| !text.is_empty()), "{finding}");
        }
        for (figure, value) in finding["figures"].as_object().expect("an object") {
            assert!(figures.contains(figure), "{figure} of {name} is not in the document");
            let is_figure = !value.is_null() && !value.is_object();
            assert!(is_figure, "{finding}");
        }
    }
}

#[test]
fn where_memory_may_not_become_executable_farjump_is_impossible() {
    // From linux/prctl.h. Children and their programs inherit the restriction.
    const PR_SET_MDWE: i32 = 65;
    const PR_MDWE_REFUSE_EXEC_GAIN: libc::c_ulong = 1;
    let zero: libc::c_ulong = 0;
    let bench = Workbench::new();
    let mut command = doctor(&bench);
    command.arg("--json");
    // SAFETY: the closure runs between fork and exec, and makes only a system call that restricts the child.
    unsafe {
        command.pre_exec(move || {
            match libc::prctl(PR_SET_MDWE, PR_MDWE_REFUSE_EXEC_GAIN, zero, zero, zero) {
                0 => Ok(()),
                _ => Err(io::Error::last_os_error()),
            }
        });
    }
    if let Err(error) = command.output() {
        println!("skipped: this kernel has no PR_SET_MDWE (Linux 6.3): {error}");
        return;
    }
    let done = finish(&mut command);
    assert_eq!(done.error(6), "farjump cannot work on this machine: executable memory");
    let report = done.json();
    assert_eq!(report["verdict"], "impossible");
    let memory = finding(&report, "executable memory");
    assert_eq!(memory["verdict"], "impossible");
    assert!(
        memory["mend"].is_string() && memory["found"].as_str().is_some_and(|text| text.contains("SELinux"))
    );
}

#[test]
fn one_processor_is_slow_and_no_reason_to_fail() {
    let bench = Workbench::new();
    let allowed = sched_getaffinity(None).expect("the system gives it");
    let first = (0..CpuSet::MAX_CPU).find(|cpu| allowed.is_set(*cpu)).expect("this runs on one");
    let mut one = CpuSet::new();
    one.set(first);
    let mut command = doctor(&bench);
    command.arg("--json");
    // SAFETY: between fork and exec the closure makes only a system call, on memory allocated before.
    unsafe { command.pre_exec(move || Ok(sched_setaffinity(None, &one)?)) };
    let report = finish(&mut command).worked().json();
    let cores = finding(&report, "cores");
    assert_eq!((&cores["verdict"], &cores["figures"]["allowed"]), (&"slow".into(), &1.into()), "{cores}");
    assert_eq!(report["verdict"], "slow");
}

#[test]
fn missing_and_useless_tools_are_notes_that_name_them() {
    let bench = Workbench::new();
    let report_with =
        |name: &str, value: &Path| finish(doctor(&bench).arg("--json").env(name, value)).worked().json();
    let script = |name: &str, text: &str| {
        let path = bench.write(name, format!("#!/bin/sh\n{text}\n"));
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("it is ours");
        bench.executable(&format!("{name}-copy"), &path)
    };
    let gold = script("gold", "echo 'GNU gold (GNU Binutils 2.40) 1.16'");
    let no_linker = script("broken", "exit 1");
    let nothing = bench.path("nowhere");
    // A version is no proof that it compiles.
    let liar =
        script("liar", "[ \"$1\" = --version ] && echo liar 1.0 && exit; echo 'no crti.o' >&2; exit 1");
    let only_version = script("version", "[ \"$1\" = --version ] && echo GNU ld 2 && exit; exit 3");
    let cases = [
        ("FARJUMP_CC", &nothing, "C compiler", "not found"),
        ("FARJUMP_CC", &no_linker, "C compiler", "does not compile a line (exit status: 1)"),
        ("FARJUMP_CC", &liar, "C compiler", "does not compile a line (exit status: 1): no crti.o"),
        ("FARJUMP_LD", &gold, "linker", "does not follow linker scripts"),
        ("FARJUMP_LD", &only_version, "linker", "does not link a line (exit status: 3)"),
    ];
    for (variable, program, name, says) in cases {
        let report = report_with(variable, program);
        let found = finding(&report, name);
        assert_eq!(found["verdict"], "note", "{found}");
        assert!(found["found"].as_str().is_some_and(|text| text.contains(says)), "{found}");
        assert!(found["means"].as_str().is_some_and(|text| text.contains("`farjump build`")), "{found}");
        assert!(found["mend"].is_string(), "{found}");
    }
    // A library takes more than a line: the C library's start files.
    let no_start =
        script("start", "case \" $*\" in *' -shared '*) echo 'no crti.o' >&2; exit 1; esac; exec cc \"$@\"");
    let report = report_with("FARJUMP_CC", &no_start);
    assert_eq!(finding(&report, "C compiler")["verdict"], "ok");
    let building = finding(&report, "building");
    assert_eq!(building["verdict"], "note");
    assert!(building["found"].as_str().is_some_and(|text| text.contains("no crti.o")), "{building}");
}

#[test]
fn doctor_notes_tools_that_cannot_start_with_their_message() {
    let bench = Workbench::new();
    let linkers = ["ld.bfd", "ld", "ld.lld"];
    let cases: [(&[&str], &str); 2] = [(&["cc"], "C compiler"), (&linkers, "linker")];
    for (broken, name) in cases {
        let fakes = Fakes::new().broken(broken);
        let report = finish(doctor(&bench).arg("--json").env("PATH", fakes.path())).worked().json();
        let found = finding(&report, name);
        assert_eq!(found["verdict"], "note", "{found}");
        for program in broken {
            let says = format!("{program}: does not run (exit status: 127): {}", words_of(program));
            assert!(found["found"].as_str().is_some_and(|text| text.contains(&says)), "{found}");
        }
    }
    // One that works is enough.
    if !all_work(&["ld.bfd"]) {
        return;
    }
    let fakes = Fakes::new().broken(&linkers[1..]);
    let report = finish(doctor(&bench).arg("--json").env("PATH", fakes.path())).worked().json();
    assert_eq!(finding(&report, "linker")["verdict"], "ok", "{report}");
    assert_eq!(bench.leftovers(), Vec::<std::path::PathBuf>::new());
}

#[test]
fn doctor_ends_a_hanging_compiler_with_its_children() {
    let bench = Workbench::new();
    let script = bench.write("slow", "#!/bin/sh\nsleep 1000 &\necho $$ $! >> slow.pids\nwait\n");
    let slow = bench.executable("slow-copy", &script);
    let report = finish(doctor(&bench).arg("--json").env("FARJUMP_CC", &slow)).worked().json();
    let compiler = finding(&report, "C compiler");
    assert!(compiler["found"].as_str().is_some_and(|text| text.contains("did not end within")), "{compiler}");
    let pids = fs::read_to_string(bench.path("slow.pids")).expect("it was started");
    let pids: Vec<u32> = pids.split_whitespace().map(|pid| pid.parse().expect("a number")).collect();
    assert_eq!(pids.len(), 2, "it is started once: {pids:?}");
    for pid in pids {
        wait_for("its end", || (!runs(pid)).then_some(()));
    }
}

/// Waits for its process's end in the target.
const FOREVER: &str = "
FARJUMP_COPY_ARGS(forever)
extern int puts(const char *line);
FARJUMP_IFUNC void forever_main(void *payload, size_t size, void *args)
{
    (void)payload, (void)size, (void)args;
    puts(\"in\");
    for (;;) __asm__ volatile(\"pause\");
}";

/// A user with no other process. As root, a test whose files are removed runs its processes as this user.
const UNUSED_UID: u32 = 54_321;

/// Returns a process in a mount namespace with its own /dev/shm; other processes enter the namespace. Requires root.
fn own_shm(bench: &Workbench) -> Option<Process> {
    let script = "mount -t tmpfs tmpfs /dev/shm && echo ready && exec sleep 1000";
    if finish(bench.program("unshare").args(["-m", "sh", "-c", "mount -t tmpfs tmpfs /dev/shm"])).code != 0 {
        return None;
    }
    let holder = Process::start(bench.program("unshare").args(["-m", "sh", "-c", script]));
    assert_eq!(holder.line(), "ready");
    Some(holder)
}

/// Returns the names of UCX's files in /dev/shm that a process maps.
fn segments(process: &Process) -> BTreeSet<String> {
    let maps = fs::read_to_string(format!("/proc/{}/maps", process.pid())).expect("it runs");
    let names = maps.lines().filter_map(|line| line.split_once("/dev/shm/ucx_shm_posix_"));
    names.filter(|(_, name)| !name.contains(' ')).map(|(_, name)| format!("ucx_shm_posix_{name}")).collect()
}

/// The first namespace of process ids (`PROC_PID_INIT_INO` of Linux).
const FIRST_PID_NAMESPACE: &str = "pid:[4026531836]";

#[test]
fn doctor_lists_and_removes_ucx_leftovers_of_killed_processes_alone() {
    // As in a container, where the program removes nothing.
    if fs::read_link("/proc/self/ns/pid").is_ok_and(|own| own != Path::new(FIRST_PID_NAMESPACE)) {
        return println!("skipped: this process is in a container (not in the first pid namespace)");
    }
    let Some(bench) = Workbench::with_transport("ucx-put") else { return };
    let library = bench.library("forever", FOREVER);
    let holder = own_shm(&bench);
    if holder.is_none() {
        println!("skipped: a /dev/shm of its own takes root, so nothing is removed");
    }
    let enter = |program: &str, options: &[&str]| match &holder {
        None => bench.program(program),
        Some(holder) => {
            let mut command = bench.program("nsenter");
            command.args(["-t", &holder.pid().to_string(), "-m", "-w"]).args(options).args(["--", program]);
            command
        }
    };
    let user = UNUSED_UID.to_string();
    let inside = |program: &str| enter(program, &["-S", &user, "-G", &user]);
    if holder.is_some() {
        for folder in [bench.path("."), bench.path("tmp")] {
            chown(folder, Some(UNUSED_UID), Some(UNUSED_UID)).expect("root may");
        }
    }
    let farjump = env!("CARGO_BIN_EXE_farjump");
    // UCX then keeps the names of its segments as long as it lives. Otherwise it removes them at once, and
    // only a process that is killed in between leaves one.
    let kept = ("UCX_POSIX_USE_PROC_LINK", "n");
    let start = |name: &str| {
        let address = format!("unix:{}", bench.path(name).display());
        let common = ["--transport", "ucx-put"];
        let mut serve = inside(farjump);
        serve.args(["serve", "--listen", &address, "--process-symbols"]).args(common).env(kept.0, kept.1);
        let target = start_target(&mut serve).0;
        let mut inject = inside(farjump);
        inject.arg("inject").arg(&library).args(["--to", &address, "--timeout", "200s"]).args(common);
        let source = Process::start(inject.env(kept.0, kept.1));
        assert_eq!(target.line(), "in");
        (target, source)
    };
    let report = || finish(inside(farjump).args(["doctor", "--json"])).worked().json();
    let listed = || {
        let report = report();
        let paths =
            finding(&report, "UCX's leftovers")["figures"]["paths"].as_array().expect("a list").clone();
        let name = |path: &Value| path.as_str()?.strip_prefix("/dev/shm/").map(str::to_owned);
        paths.iter().map(|path| name(path).expect("a file there")).collect::<BTreeSet<_>>()
    };
    let ((dead, orphan), (alive, source)) = (start("dead"), start("alive"));
    let (left, used) = (segments(&dead), segments(&alive));
    if left.is_empty() {
        return println!("skipped: UCX takes no files in /dev/shm here");
    }
    let both: BTreeSet<_> = left.union(&used).cloned().collect();
    assert_eq!(listed().intersection(&both).count(), 0);
    dead.signal(Signal::KILL);
    // Its source ends in order, and removes its own.
    drop((dead.finish(), orphan.finish()));
    let found: BTreeSet<_> = listed().intersection(&both).cloned().collect();
    assert!(!found.is_empty() && found.is_subset(&left), "{found:?} of {left:?} and {used:?}");
    let text = finish(inside(farjump).arg("doctor")).worked();
    assert!(text.text().contains("farjump doctor --clean"), "{}", text.text());

    match &holder {
        None => found
            .iter()
            .for_each(|name| fs::remove_file(Path::new("/dev/shm").join(name)).expect("it is there")),
        Some(holder) => {
            let folder = format!("/proc/{}/root/dev/shm", holder.pid());
            let is_there = |name: &String| Path::new(&folder).join(name).exists();
            let contained = ["-p", "-f", "--mount-proc", farjump, "doctor", "--clean"];
            finish(enter("unshare", &[]).args(contained))
                .fails(1, &["nothing was removed", "in a container"]);
            assert!(found.iter().all(is_there));
            let removed = RefCell::new(BTreeSet::new());
            wait_for("files that are no longer young", || {
                let done = finish(inside(farjump).args(["doctor", "--clean", "--json"])).worked().json();
                assert_eq!(keys(&done), ["removed", "bytes", "kept"]);
                let paths = done["removed"].as_array().expect("a list").iter();
                let names = paths.map(|path| path.as_str().expect("a path").replace("/dev/shm/", ""));
                removed.borrow_mut().extend(names);
                (done["kept"] == 0).then_some(())
            });
            let removed = removed.into_inner();
            assert_eq!(removed, found);
            assert!(!found.iter().any(is_there) && used.iter().all(is_there));
            let text = finish(inside(farjump).args(["doctor", "--clean"])).worked();
            assert_eq!(text.text(), "/dev/shm has nothing to remove\n");
        }
    }
    assert_eq!(listed().intersection(&both).count(), 0);
    assert!(segments(&alive).is_superset(&used));
    for process in [&alive, &source] {
        process.signal(Signal::KILL);
    }
    drop((alive.finish(), source.finish()));
    for name in &used {
        let _ = fs::remove_file(Path::new("/dev/shm").join(name));
    }
}
