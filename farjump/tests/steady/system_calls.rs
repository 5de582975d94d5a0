//! System calls, counted by forbidding them. A thread behind a filter that permits only the end of its process
//! (seccomp(2)) dies of the first one. Contended locks are system calls, too (futex(2)).

use std::os::unix::process::ExitStatusExt;
use std::process::{ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use farjump_fixtures::helper_process::{role, test_in_role};
use farjump_fixtures::seccomp::{install, rule};
use farjump_fixtures::this_test;

use crate::support::{PATIENCE, Pair, Place};
use crate::{EACH, MESSAGES, Steady, handovers};

/// Exit status of a run without a system call: no other code of this process returns it.
pub(crate) const NONE: i32 = 86;

/// Runs the test `test` in a process of its own, where [`is_child`] is true of it.
pub(crate) fn run(test: &str) -> ExitStatus {
    test_in_role(test, &["child"]).stdout(Stdio::null()).status().unwrap()
}

pub(crate) fn is_child() -> bool {
    !role().is_empty()
}

/// Makes any later system call of this thread but `exit_group` end the process with `SIGSYS`.
pub(crate) fn forbid_system_calls() {
    let filter = [
        // The call's number, `seccomp_data.nr`, is at offset 0.
        rule(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 0),
        rule(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 0, 1, libc::SYS_exit_group as u32),
        rule(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ALLOW),
        rule(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_KILL_PROCESS),
    ];
    install(&filter).expect("seccomp");
}

pub(crate) fn end(code: i32) -> ! {
    // SAFETY: the call ends the process; nothing of the process is used after.
    unsafe { libc::_exit(code) }
}

#[test]
fn messages_of_every_kind_make_no_system_call_at_either_peer() {
    if is_child() {
        let place = Place::new();
        let mut steady = Steady::new(&place);
        forbid_system_calls();
        steady.run(MESSAGES / EACH);
        end(NONE);
    }
    let status = run(this_test!());
    assert_eq!(status.code(), Some(NONE), "{status}: signal 31 is a system call");
}

#[test]
fn calls_between_threads_do_no_system_call_while_they_spin() {
    if is_child() {
        let place = Place::new();
        let Steady { pair: Pair { link, mut target }, echo, .. } = Steady::new(&place);
        let (done, handovers) = (AtomicBool::new(false), handovers());
        thread::scope(|scope| {
            scope.spawn(|| {
                let link = link;
                forbid_system_calls();
                for round in 0..handovers {
                    let reply = link.inject(&echo, &round.to_ne_bytes()).unwrap().wait(PATIENCE).unwrap();
                    assert!(*reply == round.to_ne_bytes());
                }
                done.store(true, Ordering::Relaxed);
                // Returning would free the thread's memory, so it waits for the end of the process.
                loop {
                    std::hint::spin_loop();
                }
            });
            forbid_system_calls();
            while !done.load(Ordering::Relaxed) {
                target.poll().unwrap();
            }
            end(NONE);
        });
    }
    let status = run(this_test!());
    assert_eq!(status.code(), Some(NONE), "{status}: signal 31 is a system call");
}

#[test]
fn the_filter_lets_no_system_call_pass() {
    if is_child() {
        forbid_system_calls();
        // SAFETY: the call has no arguments and changes nothing.
        end(unsafe { libc::syscall(libc::SYS_getpid) } as i32);
    }
    assert_eq!(run(this_test!()).signal(), Some(libc::SIGSYS));
}
