//! System calls of a thread, counted by tracing it (ptrace(2)).

use std::collections::HashMap;
use std::ptr;

use farjump_fixtures::helper_process::{HelperProcess, commands, say};

use crate::support::Watchdog;

/// System calls of a phase.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Calls {
    /// Calls that moved bytes.
    pub(crate) sent: u64,
    pub(crate) received: u64,
    /// Receives that found nothing.
    pub(crate) empty: u64,
    /// Calls that accepted a connection.
    pub(crate) accepted: u64,
    pub(crate) others: u64,
}

/// Observations of a thread.
pub(crate) struct Traces {
    /// Its system calls after each of its marks.
    pub(crate) phases: Vec<Calls>,
    /// Most bytes that it received from one of the connections that it accepted.
    pub(crate) longest: u64,
}

/// Separator of phases: a call with no other use here.
const MARK: libc::c_long = libc::SYS_getpriority;

/// Begins another phase.
pub(crate) fn mark() {
    // SAFETY: the call takes two numbers and changes nothing.
    unsafe { libc::syscall(MARK, libc::PRIO_PROCESS, 0) };
}

/// Follows the thread `thread` to its end, and counts its system calls after each of its marks.
fn follow(thread: i32, go_on: impl FnOnce()) -> Traces {
    let options = libc::PTRACE_O_TRACESYSGOOD | libc::PTRACE_O_EXITKILL;
    let ask = |request: libc::c_uint, data: libc::c_long| {
        // SAFETY: none of these requests writes to memory of this process.
        unsafe { libc::ptrace(request, thread, ptr::null_mut::<libc::c_void>(), data) }
    };
    let wait = || {
        let mut status = 0;
        // SAFETY: `status` has the size that waitpid(2) writes.
        let waited = unsafe { libc::waitpid(thread, &raw mut status, libc::__WALL) };
        (waited == thread && libc::WIFSTOPPED(status)).then(|| libc::WSTOPSIG(status))
    };
    assert_eq!(ask(libc::PTRACE_SEIZE, options.into()), 0, "{}", std::io::Error::last_os_error());
    assert_eq!(ask(libc::PTRACE_INTERRUPT, 0), 0);
    assert!(wait().is_some());
    go_on();
    let (mut phases, mut call) = (Vec::<Calls>::new(), None);
    let (mut bytes, mut longest) = (HashMap::new(), 0);
    loop {
        ask(libc::PTRACE_SYSCALL, 0);
        match wait() {
            None => return Traces { phases, longest },
            Some(signal) if signal == libc::SIGTRAP | 0x80 => {}
            Some(_) => continue,
        }
        // SAFETY: all of its fields are numbers, for which zero is valid.
        let mut info: libc::ptrace_syscall_info = unsafe { std::mem::zeroed() };
        // SAFETY: at most the given number of bytes is written.
        let known =
            unsafe { libc::ptrace(libc::PTRACE_GET_SYSCALL_INFO, thread, size_of_val(&info), &raw mut info) };
        assert!(known > 0, "{}", std::io::Error::last_os_error());
        // SAFETY: `op` says which of the fields was written.
        unsafe {
            match info.op {
                libc::PTRACE_SYSCALL_INFO_ENTRY => {
                    call = Some((info.u.entry.nr as libc::c_long, info.u.entry.args[0]));
                }
                libc::PTRACE_SYSCALL_INFO_EXIT => {
                    let Some((number, descriptor)) = call.take() else { continue };
                    let result = info.u.exit.sval;
                    if number == MARK {
                        phases.push(Calls::default());
                    } else if let Some(phase) = phases.last_mut() {
                        phase.count(number, result);
                    }
                    match (is_accept(number), is_receive(number), u64::try_from(result)) {
                        (true, _, Ok(accepted)) => drop(bytes.insert(accepted, 0)),
                        (_, true, Ok(received)) => {
                            if let Some(all) = bytes.get_mut(&descriptor) {
                                *all += received;
                                longest = longest.max(*all);
                            }
                        }
                        _ => {}
                    }
                }
                _ => {}
            }
        }
    }
}

fn is_accept(number: libc::c_long) -> bool {
    matches!(number, libc::SYS_accept | libc::SYS_accept4)
}

fn is_receive(number: libc::c_long) -> bool {
    matches!(number, libc::SYS_recvfrom | libc::SYS_recvmsg | libc::SYS_read | libc::SYS_readv)
}

impl Calls {
    fn count(&mut self, number: libc::c_long, result: i64) {
        match number {
            libc::SYS_sendto | libc::SYS_sendmsg | libc::SYS_write | libc::SYS_writev => self.sent += 1,
            _ if is_receive(number) && result > 0 => self.received += 1,
            _ if is_receive(number) => self.empty += 1,
            _ if is_accept(number) && result >= 0 => self.accepted += 1,
            _ => self.others += 1,
        }
    }

    /// All calls.
    pub(crate) fn all(self) -> u64 {
        self.sent + self.received + self.empty + self.accepted + self.others
    }
}

/// The child's part: reports its thread id, and waits until it is traced.
pub(crate) fn wait_for_tracer() {
    // SAFETY: the call only returns a number.
    say(&unsafe { libc::syscall(libc::SYS_gettid) }.to_string());
    commands().next();
}

/// Runs the test `test` in a child, which has a role, and traces it.
pub(crate) fn run(test: &str) -> Traces {
    let _watchdog = Watchdog::new();
    let mut child = HelperProcess::of_test(test, &["traced"]);
    let thread = child.hear().parse().expect("it says which thread it is");
    let traces = follow(thread, || child.order("go"));
    child.end();
    traces
}
