//! TMPDIR: commands work in the folder that it names, or say what is wrong with it.

use std::ffi::OsStr;
use std::fs;
use std::process::Command;

use serde_json::Value;

use crate::demo::installed;
use crate::workbench::{Workbench, finish};

const IN_C: &str = "#include <farjump_ifunc.h>
FARJUMP_COPY_ARGS(count)
FARJUMP_IFUNC void count_main(void *payload, size_t size, void *args)
{ (void)payload; (void)args; farjump_reply(&size, sizeof size); }
";
const IN_RUST: &str = "#![no_std]
use farjump_ifunc::ifunc;
#[ifunc]
fn count(bytes: &[u8]) -> u64 { bytes.len() as u64 }
";
const FINDING: &str = "temporary folder";

/// Returns a folder with the files that [`commands`] need.
fn workbench() -> Workbench {
    let bench = Workbench::new();
    bench.write("count.c", IN_C);
    bench.write("count.rs", IN_RUST);
    bench.write("prose", "don't panic");
    installed(&bench);
    bench
}

/// Returns the commands that make temporary files. `demo` is that of a program outside of cargo's folder, which has its
/// files in TMPDIR.
fn commands(bench: &Workbench) -> [Command; 3] {
    let build = |source: &str| {
        let mut command = bench.farjump();
        command.args(["build", source, "-o", "libcount.so"]);
        command
    };
    let mut demo = bench.program(bench.path("installed/farjump"));
    demo.args(["demo", "prose"]);
    [demo, build("count.c"), build("count.rs")]
}

/// Returns the finding of `doctor` about the folder.
fn finding(command: &mut Command) -> Value {
    let report = finish(command.args(["doctor", "--json"])).worked().json();
    assert!(!report.to_string().contains("install gcc"), "{report}");
    let findings = report["findings"].as_array().expect("a list");
    findings.iter().find(|finding| finding["name"] == FINDING).expect("it is among them").clone()
}

#[test]
fn commands_work_in_any_writable_temporary_folder_and_leave_nothing() {
    let bench = workbench();
    let long = "l".repeat(110);
    // Relative to the folder that they run in, too.
    let absolute = |name: &str| bench.path(name).display().to_string();
    for (folder, value) in [("a b", absolute("a b")), (&long, absolute(&long)), ("near", "near".to_owned())] {
        fs::create_dir(bench.path(folder)).expect("a folder can be made");
        for mut command in commands(&bench) {
            let done = finish(command.env("TMPDIR", &value)).worked();
            assert_eq!(done.err, "", "{command:?}");
            let left = fs::read_dir(bench.path(folder)).expect("it is there").count();
            assert_eq!(left, 0, "{command:?}");
        }
        let finding = finding(bench.farjump().env("TMPDIR", &value));
        assert_eq!(finding["verdict"], if folder == long { "note" } else { "ok" }, "{finding}");
        assert!(finding["found"].as_str().is_some_and(|found| found.contains("TMPDIR")), "{finding}");
    }
}

#[test]
fn an_unusable_temporary_folder_is_named_with_its_variable() {
    let bench = workbench();
    bench.write("file", "");
    for folder in [bench.path("missing"), bench.path("file"), "/proc".into()] {
        let named = format!("no folder can be made in {} (named by TMPDIR): ", folder.display());
        for mut command in commands(&bench) {
            let done = finish(command.env("TMPDIR", &folder));
            done.fails(1, &[&named, "; set TMPDIR to a folder"]);
            assert_eq!(done.err.lines().count(), 1, "{}", done.err);
        }
        let finding = finding(bench.farjump().env("TMPDIR", &folder));
        assert_eq!(finding["verdict"], "note");
        assert!(finding["found"].as_str().is_some_and(|found| found.contains(&named)), "{finding}");
        assert!(finding["mend"].is_string(), "{finding}");
    }
}

/// Makes `command` run where `mounting`, a script, has mounted something. If that is not possible here, prints it and
/// returns `None`.
fn mounted(bench: &Workbench, mounting: &str, command: &Command) -> Option<Command> {
    let enter = |rest: &[&OsStr]| {
        // A mount over the working folder is visible only under the folder's name.
        let mut entering = bench.program("unshare");
        entering
            .args(["-m", "sh", "-c", &format!("{mounting} && cd \"$PWD\" && exec \"$@\""), "sh"])
            .args(rest);
        entering
    };
    let tried = finish(&mut enter(&[env!("CARGO_BIN_EXE_farjump").as_ref(), "--version".as_ref()]));
    if tried.code != 0 {
        println!("skipped: {}", tried.err.trim().replace('\n', " "));
        return None;
    }
    let words: Vec<_> = std::iter::once(command.get_program()).chain(command.get_args()).collect();
    Some(enter(&words))
}

#[test]
fn in_a_folder_without_code_all_work_and_doctor_says_so() {
    let bench = workbench();
    let mounting = "mount -t tmpfs -o noexec,size=256m tmpfs tmp";
    for command in commands(&bench) {
        let Some(mut mounted) = mounted(&bench, mounting, &command) else { return };
        finish(&mut mounted).worked();
    }
    let mut doctor = mounted(&bench, mounting, &bench.farjump()).expect("the others could");
    let finding = finding(&mut doctor);
    assert_eq!((&finding["verdict"], &finding["figures"]["noexec"]), (&"note".into(), &true.into()));
    let found = finding["found"].as_str().expect("a sentence");
    assert!(found.contains("TMPDIR") && found.contains("noexec"), "{found}");
}

#[test]
fn where_all_temporary_folders_are_noexec_rust_is_refused_naming_tmpdir() {
    let bench = workbench();
    // Made anew over themselves, so that all in them stays.
    let mounting = "unset XDG_RUNTIME_DIR; mount -t tmpfs -o noexec tmpfs tmp && for folder in /tmp /var/tmp /dev/shm; do \
                    mount --bind $folder $folder && mount -o remount,bind,noexec $folder || exit; done";
    let [_, c, rust] = commands(&bench);
    let Some(mut c) = mounted(&bench, mounting, &c) else { return };
    finish(&mut c).worked();
    let mut rust = mounted(&bench, mounting, &rust).expect("the other could");
    finish(&mut rust)
        .fails(1, &["(named by TMPDIR) is mounted noexec", "set TMPDIR to a folder that is not"]);
}
