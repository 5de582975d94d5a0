//! System calls that a filter (seccomp(2)) denies, as those of containers and services do: farjump works without the call, or says
//! what the system denied, and `doctor` says the same.

use std::path::Path;
use std::thread;

use crate::process_limits::failed_orderly;
use crate::workbench::{Process, Workbench, finish};
use farjump_fixtures::seccomp::{Denied, deny};

/// A call by its name.
macro_rules! call {
    ($number:ident) => {
        (libc::$number, stringify!($number))
    };
}

/// Calls without which sources and targets work.
const DISPENSABLE: [(libc::c_long, &str); 15] = [
    call!(SYS_memfd_create),
    call!(SYS_membarrier),
    call!(SYS_fallocate),
    call!(SYS_ftruncate),
    call!(SYS_sched_getaffinity),
    call!(SYS_sched_yield),
    call!(SYS_prctl),
    call!(SYS_sigaltstack),
    call!(SYS_statx),
    call!(SYS_flock),
    call!(SYS_prlimit64),
    call!(SYS_rseq),
    call!(SYS_shutdown),
    call!(SYS_close_range),
    call!(SYS_pidfd_open),
];

/// Calls that sources and targets need, or for which the C library or UCX may need them.
const OTHERS: [(libc::c_long, &str); 19] = [
    call!(SYS_eventfd2),
    call!(SYS_epoll_create1),
    call!(SYS_madvise),
    call!(SYS_mremap),
    call!(SYS_getrandom),
    call!(SYS_socketpair),
    call!(SYS_fstatfs),
    call!(SYS_fchmod),
    call!(SYS_accept4),
    call!(SYS_setsockopt),
    call!(SYS_getsockopt),
    call!(SYS_ppoll),
    call!(SYS_epoll_pwait),
    call!(SYS_fcntl),
    call!(SYS_futex),
    call!(SYS_clone3),
    call!(SYS_getpeername),
    call!(SYS_sendmsg),
    call!(SYS_recvmsg),
];

/// Words about causes that do not apply where a call is denied.
const WRONG: [&str; 8] = [
    "free memory",
    "the limit of",
    "ulimit",
    "make it smaller",
    "may make no file",
    "address is not usable",
    "rings no process",
    "Install",
];

/// Runs a target and a source under the filter, and doctor. Returns whether a call of a function came back.
fn try_without(bench: &Workbench, library: &Path, calls: Denied, what: &str) -> bool {
    let error = std::io::Error::from_raw_os_error(calls.errno).to_string();
    let error = error.split(" (os error").next().unwrap_or_default();
    let mut serving = bench.serving(&[]);
    deny(&mut serving, calls);
    let serving = Process::start(&mut serving);
    let is_ready = serving.line_or_end().is_some();
    let mut works = false;
    let mut texts = Vec::new();
    if is_ready {
        let mut injecting = bench.injecting(library, &bench.address(), &[]);
        deny(&mut injecting, calls);
        let source = finish(&mut injecting);
        works = source.code == 0;
        if !works {
            failed_orderly(&source, what);
        }
        texts.push(source.err);
    }
    let target = if is_ready { serving.stop() } else { serving.finish() };
    if target.code != 0 {
        failed_orderly(&target, what);
    }
    texts.push(target.err);
    assert!(!bench.path("s").exists(), "{what}: the socket is left behind: {texts:?}");
    let said = texts.join("\n");
    assert!(works || said.contains(error), "{what}: the error of the system is not named: {said}");

    let mut doctor = bench.farjump();
    // `doctor` compiles nothing, because that takes longer than the rest.
    doctor.arg("doctor").env("FARJUMP_CC", "/bin/false").env("FARJUMP_LD", "/bin/false");
    deny(&mut doctor, calls);
    let doctor = finish(&mut doctor);
    if doctor.err.contains("The futex facility returned an unexpected error code") {
        // The C library ends a program that waits for a thread.
        return works;
    }
    assert_eq!(doctor.code, if works { 0 } else { 6 }, "{what}: {said}\n{}\n{}", doctor.err, doctor.text());
    for text in [&*said, doctor.text()] {
        if let Some(wrong) = WRONG.iter().find(|wrong| text.contains(*wrong)) {
            panic!("{what}: {wrong:?} is no cause: {text}");
        }
    }
    works
}

/// Tries a call denied by each error.
fn try_all(calls: &[(libc::c_long, &str)], must_work: bool) {
    let bench = Workbench::new();
    let library = bench.sample("crc32");
    for (call, name) in calls {
        for (errno, word) in [(libc::EPERM, "EPERM"), (libc::ENOSYS, "ENOSYS")] {
            // The test itself uses this option, so that the process ends with it.
            let argument = (*call == libc::SYS_prctl).then_some((0, libc::PR_SET_PDEATHSIG as u32, false));
            let denied = Denied { call: *call, errno, argument };
            let what = format!("{name} gives {word}");
            let works = try_without(&bench, &library, denied, &what);
            assert!(works || !must_work, "{what}, and nothing works");
        }
    }
    // Without others, folders cannot be removed.
    if must_work {
        bench.is_clean();
    }
}

/// Tries the halves beside each other: of such a time, half is spent waiting.
fn try_both_halves(calls: &[(libc::c_long, &str)], must_work: bool) {
    let (one, other) = calls.split_at(calls.len() / 2);
    thread::scope(|scope| {
        scope.spawn(|| try_all(one, must_work));
        try_all(other, must_work);
    });
}

#[test]
fn without_a_call_that_farjump_can_do_without_it_works() {
    try_both_halves(&DISPENSABLE, true);
}

#[test]
fn farjump_and_doctor_name_no_wrong_cause_for_a_denied_call() {
    try_both_halves(&OTHERS, false);
}

#[test]
fn a_store_without_memory_to_share_names_the_call_and_the_remedy() {
    let bench = Workbench::new();
    let mut serving = bench.serving(&["--objects", "1M"]);
    deny(&mut serving, Denied { call: libc::SYS_memfd_create, errno: libc::EPERM, argument: None });
    let parts = ["making the store's memory of 1048576 bytes", "memfd_create", "seccomp=unconfined"];
    finish(&mut serving).fails(1, &parts);
}

#[test]
fn a_denied_memory_call_is_named_with_its_remedy() {
    let bench = Workbench::new();
    for (call, name) in [(libc::SYS_madvise, "madvise"), (libc::SYS_mremap, "mremap")] {
        let mut serving = bench.serving(&[]);
        deny(&mut serving, Denied { call, errno: libc::EPERM, argument: None });
        let parts = ["does not let this process make an arena", name, "seccomp=unconfined"];
        finish(&mut serving).fails(1, &parts);
    }
}
