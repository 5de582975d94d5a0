//! Systems that do not let a job of bitcode be confined, as a filter of system calls around a service may be: nothing is
//! compiled then.

use farjump_fixtures::seccomp::{Denied, deny};

use crate::bitcode::llvms;
use crate::workbench::{Workbench, finish};

#[test]
fn a_target_takes_no_bitcode_where_a_job_cannot_be_confined() {
    assert!(!llvms().is_empty(), "the Rust toolchain has an LLVM");
    let bench = Workbench::new();
    let denied = |call, argument| Denied { call, errno: libc::EPERM, argument: Some(argument) };
    let prctl = |option: i32| denied(libc::SYS_prctl, (0, option as u32, true));
    // A call that sets a new limit: the upper half of the limit's pointer is not 0.
    let setrlimit = denied(libc::SYS_prlimit64, (5, 0, false));
    for (calls, call) in [
        (prctl(libc::PR_SET_SECCOMP), "prctl(PR_SET_SECCOMP)"),
        (prctl(libc::PR_SET_NO_NEW_PRIVS), "prctl(PR_SET_NO_NEW_PRIVS)"),
        (prctl(libc::PR_SET_DUMPABLE), "prctl(PR_SET_DUMPABLE)"),
        (setrlimit, "setrlimit(RLIMIT_NOFILE)"),
    ] {
        let mut serving = bench.serving(&["--bitcode"]);
        deny(&mut serving, calls);
        finish(&mut serving).fails(1, &["can take no bitcode", "confine a job", call, "not permitted"]);
    }
    bench.is_clean();
}
