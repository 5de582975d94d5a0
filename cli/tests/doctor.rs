//! `doctor`: its findings on a healthy machine, and on one with faults.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use serde_json::Value;

use crate::workbench::{Workbench, finish, keys, runs, wait_for};

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
    let document = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/doctor.md");
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
    let cases = [
        ("FARJUMP_CC", &nothing, "C compiler", "not found"),
        ("FARJUMP_CC", &no_linker, "C compiler", "exit status: 1"),
        ("FARJUMP_LD", &gold, "linker", "does not follow linker scripts"),
    ];
    for (variable, program, name, says) in cases {
        let report = report_with(variable, program);
        let found = finding(&report, name);
        assert_eq!(found["verdict"], "note", "{found}");
        assert!(found["found"].as_str().is_some_and(|text| text.contains(says)), "{found}");
        assert!(found["means"].as_str().is_some_and(|text| text.contains("`farjump build`")), "{found}");
        assert!(found["mend"].is_string(), "{found}");
    }
    // Trying it exposes a compiler that prints a version and compiles nothing.
    let liar =
        script("liar", "[ \"$1\" = --version ] && echo liar 1.0 && exit; echo 'no crti.o' >&2; exit 1");
    let report = report_with("FARJUMP_CC", &liar);
    assert_eq!(finding(&report, "C compiler")["verdict"], "ok");
    let building = finding(&report, "building");
    assert_eq!(building["verdict"], "note");
    assert!(building["found"].as_str().is_some_and(|text| text.contains("no crti.o")), "{building}");
}

#[test]
fn a_compiler_that_never_ends_does_not_keep_the_doctor_and_is_ended_with_its_children() {
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
