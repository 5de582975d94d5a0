//! Functions at objects in C: a program uses the objects of two owners, which stop, continue and end meanwhile.

use std::ffi::OsStr;

use farjump_fixtures::process::wait_for;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, waitid};

use crate::installation::ifuncs;
use crate::objects::{ALL_WELL, owner};
use crate::programs::{Linkage, Process, compile, start};

/// Stops a process, and returns when all its threads have stopped.
fn stop(process: &Process) {
    process.signal(Signal::STOP);
    let pid = Pid::from_raw(process.pid().cast_signed()).expect("a process has a number");
    wait_for("the owner stops", || {
        let options = WaitIdOptions::STOPPED | WaitIdOptions::NOHANG;
        waitid(WaitId::Pid(pid), options).expect("it is a child")
    });
}

fn run_cases(linkage: Linkage) {
    if !linkage.is_open() {
        return;
    }
    let folder = farjump_fixtures::folder();
    for program in ["owner", "functions_at"] {
        compile(program, linkage, folder.path());
    }
    let (one, handles) = owner(folder.path(), "one.sock");
    let (mut other, others) = owner(folder.path(), "other.sock");
    let args = [ifuncs().as_os_str()].into_iter().chain(handles.iter().map(OsStr::new));
    let args = args.chain([OsStr::new(&others[0])]);
    let mut user = start(&folder.path().join("functions_at"), args, folder.path());
    for word in ["stop", "continue", "stop", "continue", "kill the other"] {
        let Some(asked) = user.line_or_end() else {
            panic!("{linkage:?} before {word}: {}", user.finish().err);
        };
        assert_eq!(asked, word);
        match word {
            "stop" => stop(&one),
            "continue" => one.signal(Signal::CONT),
            _ => drop(other.kill_and_wait()),
        }
        user.write_line("done");
    }
    assert_eq!(user.finish().worked().text(), ALL_WELL);
    one.finish().worked();
}

#[test]
fn functions_in_c_run_at_several_owners_or_the_faster_place() {
    run_cases(Linkage::Shared);
}

#[test]
fn functions_at_objects_run_clean_under_sanitizers() {
    run_cases(Linkage::Sanitized);
}
