//! Servers that may not make memory executable, as in the units of Debian's packages.

use std::io;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use farjump::Link;

use crate::resp::Value;
use crate::server::{Start, on_each};

/// From linux/prctl.h.
const PR_SET_MDWE: i32 = 65;
const PR_MDWE_REFUSE_EXEC_GAIN: libc::c_ulong = 1;
/// From linux/audit.h: the machine whose system call numbers the filter has.
const AUDIT_ARCH: u32 = match () {
    () if cfg!(target_arch = "x86_64") => 0xc000_003e,
    () if cfg!(target_arch = "aarch64") => 0xc000_00b7,
    () => 0xc000_00f3,
};
/// Offsets in `struct seccomp_data` of the call's number, the machine, and the low half of the third argument.
const NUMBER: u32 = 0;
const ARCH: u32 = 4;
const THIRD: u32 = 32;

/// The filter that systemd 252 makes from `MemoryDenyWriteExecute=`: no memory that is writable and executable at once,
/// and none that becomes executable. A call of the first column fails if its third argument has all bits of the second.
fn filter() -> Vec<libc::sock_filter> {
    let refused = [
        (libc::SYS_mmap, libc::PROT_WRITE | libc::PROT_EXEC),
        (libc::SYS_mprotect, libc::PROT_EXEC),
        (libc::SYS_pkey_mprotect, libc::PROT_EXEC),
        (libc::SYS_shmat, libc::SHM_EXEC),
    ];
    let rule = |code: u32, jt, jf, k| libc::sock_filter { code: code as u16, jt, jf, k };
    let load = |offset| rule(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, offset);
    let skip_unless = |value, count| rule(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 0, count, value);
    let result = |value| rule(libc::BPF_RET | libc::BPF_K, 0, 0, value);
    let mut rules = vec![load(ARCH), skip_unless(AUDIT_ARCH, 6 * refused.len() as u8)];
    for (call, bits) in refused {
        rules.extend([
            load(NUMBER),
            skip_unless(call as u32, 4),
            load(THIRD),
            rule(libc::BPF_ALU | libc::BPF_AND | libc::BPF_K, 0, 0, bits as u32),
            skip_unless(bits as u32, 1),
            result(libc::SECCOMP_RET_ERRNO | libc::EPERM as u32),
        ]);
    }
    rules.push(result(libc::SECCOMP_RET_ALLOW));
    rules
}

/// Makes a program start under the filter.
fn filtered(command: &mut Command) {
    let rules = filter();
    // SAFETY: between fork and exec the closure makes only system calls, on memory allocated before. The kernel reads the
    // program, which lives, during the second call. The first takes no memory.
    unsafe {
        command.pre_exec(move || {
            let program = libc::sock_fprog { len: rules.len() as u16, filter: rules.as_ptr().cast_mut() };
            libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
            match libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program) {
                0 => Ok(()),
                _ => Err(io::Error::last_os_error()),
            }
        });
    }
}

/// Makes a program start with the kernel's own restriction, which later versions of systemd use.
fn restricted(command: &mut Command) {
    let zero: libc::c_ulong = 0;
    // SAFETY: the closure runs between fork and exec, and makes only a system call that restricts the child.
    unsafe {
        command.pre_exec(move || {
            match libc::prctl(PR_SET_MDWE, PR_MDWE_REFUSE_EXEC_GAIN, zero, zero, zero) {
                0 => Ok(()),
                _ => Err(io::Error::last_os_error()),
            }
        });
    }
}

/// Returns whether a program can start under `restrict`.
fn can_start(restrict: fn(&mut Command)) -> bool {
    let mut command = Command::new("true");
    restrict(&mut command);
    match command.status() {
        Ok(status) => status.success(),
        Err(error) => {
            println!("skipped: this kernel lacks the restriction: {error}");
            false
        }
    }
}

/// Checks what users see of a server under `restrict`.
fn is_refused_and_said(program: &Path, restrict: fn(&mut Command)) {
    let server = Start::new(program).prepared(restrict).run();
    let mut client = server.client();
    client.say("SET k v").worked();
    assert_eq!(client.say("GET k"), Value::Bulk(b"v".into()), "the server serves");
    assert!(!server.path("fj.sock").exists(), "nothing listens");
    assert!(Link::connect(&format!("unix:{}", server.path("fj.sock").display())).is_err());
    assert_eq!(client.info("farjump", "farjump_listening").as_deref(), Some("0"));
    let is_told = |text: &str| {
        ["may not make memory executable", "MemoryDenyWriteExecute=no below [Service]", "systemctl edit"]
            .iter()
            .all(|part| text.contains(part))
    };
    let problem = client.info("farjump", "farjump_problem");
    assert!(problem.as_ref().is_some_and(|text| is_told(text)), "{problem:?}");
    assert!(is_told(&server.log()), "{}", server.log());
    for command in ["FJ.LIST", "FJ.STATS", "FJ.LOAD a b", "FJ.CALL a 0", "FJ.CALL_RO a 0", "FJ.DELETE a"] {
        let answer = client.say(command);
        let error = answer.error();
        assert!(error.starts_with("NOTARGET ") && is_told(error), "{command}: {error}");
    }
    client.say("MODULE UNLOAD farjump").worked();
    assert_eq!(client.say("GET k"), Value::Bulk(b"v".into()));
    drop(server.shut_down());
}

#[test]
fn a_server_under_debians_filter_serves_and_reports_denied_executable_memory() {
    if can_start(filtered) {
        on_each(|program| is_refused_and_said(program, filtered));
    }
}

#[test]
fn a_server_under_the_kernels_restriction_serves_and_reports_the_denial() {
    if can_start(restricted) {
        on_each(|program| is_refused_and_said(program, restricted));
    }
}
