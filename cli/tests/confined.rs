//! Systems that do not let a job of bitcode be confined, as a filter of system calls around a service may be: nothing is
//! compiled then.

use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;

use libc::{BPF_ABS, BPF_JEQ, BPF_JMP, BPF_K, BPF_LD, BPF_RET, BPF_W, SECCOMP_RET_ALLOW, SECCOMP_RET_ERRNO};

use crate::bitcode::llvms;
use crate::workbench::{Workbench, finish};

/// Calls that fail with EPERM: their number, and for one of their arguments (`struct seccomp_data` has two words for each)
/// the word's index, its value, and whether it is to have this value or another one.
struct Denied(libc::c_long, Option<(u32, u32, bool)>);

/// Has the system deny these calls to the program that `command` runs, and to those that it starts.
fn deny(command: &mut Command, Denied(call, argument): &Denied) {
    let step =
        |code: u32, yes: u8, no: u8, k: u32| libc::sock_filter { code: code as u16, jt: yes, jf: no, k };
    let load = |offset| step(BPF_LD | BPF_W | BPF_ABS, 0, 0, offset);
    let ends = |what| step(BPF_RET | BPF_K, 0, 0, what);
    let equals = |value, yes, no| step(BPF_JMP | BPF_JEQ | BPF_K, yes, no, value);
    let mut program = vec![load(0), equals(*call as u32, 1, 0), ends(SECCOMP_RET_ALLOW)];
    if let Some((word, value, is_equal)) = *argument {
        let (yes, no) = if is_equal { (1, 0) } else { (0, 1) };
        program.extend([load(16 + 4 * word), equals(value, yes, no), ends(SECCOMP_RET_ALLOW)]);
    }
    program.push(ends(SECCOMP_RET_ERRNO | libc::EPERM as u32));
    let install = move || {
        let filter = libc::sock_fprog { len: program.len() as u16, filter: program.as_ptr().cast_mut() };
        // SAFETY: the kernel copies the filter, which is whole; both calls change this child alone.
        let failed = unsafe {
            libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0
                || libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const filter) != 0
        };
        if failed { Err(io::Error::last_os_error()) } else { Ok(()) }
    };
    // SAFETY: it makes two system calls, and allocates nothing.
    unsafe { command.pre_exec(install) };
}

#[test]
fn a_target_takes_no_bitcode_where_a_job_cannot_be_confined() {
    assert!(!llvms().is_empty(), "the Rust toolchain has an LLVM");
    let bench = Workbench::new();
    let prctl = |option: i32| Denied(libc::SYS_prctl, Some((0, option as u32, true)));
    // Which has a new limit: the upper half of a pointer.
    let setrlimit = Denied(libc::SYS_prlimit64, Some((5, 0, false)));
    for (denied, call) in [
        (prctl(libc::PR_SET_SECCOMP), "prctl(PR_SET_SECCOMP)"),
        (prctl(libc::PR_SET_NO_NEW_PRIVS), "prctl(PR_SET_NO_NEW_PRIVS)"),
        (prctl(libc::PR_SET_DUMPABLE), "prctl(PR_SET_DUMPABLE)"),
        (setrlimit, "setrlimit(RLIMIT_NOFILE)"),
    ] {
        let mut serving = bench.serving(&["--bitcode"]);
        deny(&mut serving, &denied);
        finish(&mut serving).fails(1, &["can take no bitcode", "confine a job", call, "not permitted"]);
    }
    bench.is_clean();
}
