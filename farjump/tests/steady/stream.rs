//! The steady state over `tcp`: what a message allocates, and which system calls move it.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::ptr;

use farjump::{Key, Library, Link, Target, WaitPolicy};

use crate::support::{Pair, Place, Watchdog, library, meet, serve};
use crate::{NEVER, counting};

const TRANSPORT: &str = "tcp";
const ROLE: &str = "STREAM_ROLE";
/// Calls that are counted, one by one.
const CALLS: u64 = 1000;
/// Batches that are counted, and calls in each.
const BATCHES: u64 = 50;
const TOGETHER: u64 = 64;

/// A link and a target in this thread that meet on loopback with a key, so that frames are sealed.
fn sealed() -> Pair<'static> {
    let count: &'static mut u64 = Box::leak(Box::new(0));
    let key = || Key::from_bytes([7; Key::LEN]);
    let mut target = Target::listen("tcp:127.0.0.1:0")
        .transport(TRANSPORT)
        .key(key())
        .args(count)
        .control_interval(NEVER)
        .wait_policy(WaitPolicy::spin_only())
        .build()
        .unwrap();
    let link = Link::builder(&target.address())
        .transport(TRANSPORT)
        .key(key())
        .control_interval(NEVER)
        .wait_policy(WaitPolicy::spin_only());
    let link = meet(&mut target, || link.connect()).unwrap();
    let sealed = link.path().route.notes.iter().any(|note| note.starts_with("sealed by "));
    assert!(sealed, "{:?}", link.path().route);
    Pair { link, target }
}

/// `count` calls, each answered before the next.
fn one_by_one(pair: &mut Pair<'_>, library: &Library, count: u64) {
    for round in 0..count {
        let mut call = pair.link.inject(library, &round.to_ne_bytes()).unwrap();
        while call.poll().unwrap().is_none() {
            pair.target.poll().unwrap();
        }
    }
}

/// `count` batches, each of which has run before the next.
fn together(pair: &mut Pair<'_>, library: &Library, count: u64) {
    for _ in 0..count {
        let before = pair.target.stats().calls;
        let mut batch = pair.link.batch();
        (0..TOGETHER).for_each(|round| batch.send(library, &round.to_ne_bytes()).unwrap());
        batch.finish().unwrap();
        while pair.target.stats().calls != before + TOGETHER {
            pair.target.poll().unwrap();
        }
        pair.link.progress().unwrap();
    }
}

#[test]
fn a_sealed_message_allocates_nothing() {
    let _watchdog = Watchdog::new();
    let (mut pair, counter) = (sealed(), library("counter"));
    let mut run = |calls: u64, batches: u64| {
        one_by_one(&mut pair, &counter, calls);
        together(&mut pair, &counter, batches);
    };
    run(1000, 100);
    let before = counting::allocations();
    run(10_000, 1000);
    assert_eq!(counting::allocations() - before, 0);
}

/// A child that is traced, killed when dropped.
struct Traced(Child);

impl Drop for Traced {
    fn drop(&mut self) {
        // Both fail if it has ended, which is what is wanted.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// System calls of a phase.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Calls {
    /// Those that moved bytes.
    sent: u64,
    received: u64,
    /// Receives that found nothing.
    empty: u64,
    others: u64,
}

/// What separates phases: a call that nothing else here does.
const MARK: libc::c_long = libc::SYS_getpriority;

fn mark() {
    // SAFETY: takes two numbers and changes nothing.
    unsafe { libc::syscall(MARK, libc::PRIO_PROCESS, 0) };
}

/// Follows the thread `thread` to its end, and counts the system calls that it does after each of its marks.
fn follow(thread: i32, go_on: impl FnOnce()) -> Vec<Calls> {
    let options = libc::PTRACE_O_TRACESYSGOOD | libc::PTRACE_O_EXITKILL;
    let ask = |request: libc::c_uint, data: libc::c_long| {
        // SAFETY: none of these requests writes to memory of this process.
        unsafe { libc::ptrace(request, thread, ptr::null_mut::<libc::c_void>(), data) }
    };
    let wait = || {
        let mut status = 0;
        // SAFETY: there is room for the status.
        let waited = unsafe { libc::waitpid(thread, &raw mut status, libc::__WALL) };
        (waited == thread && libc::WIFSTOPPED(status)).then(|| libc::WSTOPSIG(status))
    };
    assert_eq!(ask(libc::PTRACE_SEIZE, options.into()), 0, "{}", std::io::Error::last_os_error());
    assert_eq!(ask(libc::PTRACE_INTERRUPT, 0), 0);
    assert!(wait().is_some());
    go_on();
    let (mut phases, mut number) = (Vec::new(), None);
    loop {
        ask(libc::PTRACE_SYSCALL, 0);
        match wait() {
            None => return phases,
            Some(signal) if signal == libc::SIGTRAP | 0x80 => {}
            Some(_) => continue,
        }
        // SAFETY: all of its fields are numbers, of which zero is one.
        let mut info: libc::ptrace_syscall_info = unsafe { std::mem::zeroed() };
        // SAFETY: as many bytes as there is room for are written.
        let known =
            unsafe { libc::ptrace(libc::PTRACE_GET_SYSCALL_INFO, thread, size_of_val(&info), &raw mut info) };
        assert!(known > 0, "{}", std::io::Error::last_os_error());
        // SAFETY: `op` says which of the fields was written.
        unsafe {
            match info.op {
                libc::PTRACE_SYSCALL_INFO_ENTRY => number = Some(info.u.entry.nr as libc::c_long),
                libc::PTRACE_SYSCALL_INFO_EXIT => {
                    let Some(number) = number.take() else { continue };
                    if number == MARK {
                        phases.push(Calls::default());
                    } else if let Some(phase) = phases.last_mut() {
                        phase.count(number, info.u.exit.sval);
                    }
                }
                _ => {}
            }
        }
    }
}

impl Calls {
    fn count(&mut self, number: libc::c_long, result: i64) {
        match number {
            libc::SYS_sendto | libc::SYS_sendmsg | libc::SYS_write | libc::SYS_writev => self.sent += 1,
            libc::SYS_recvfrom | libc::SYS_recvmsg | libc::SYS_read | libc::SYS_readv if result > 0 => {
                self.received += 1;
            }
            libc::SYS_recvfrom | libc::SYS_recvmsg | libc::SYS_read | libc::SYS_readv => self.empty += 1,
            _ => self.others += 1,
        }
    }
}

/// The child's part: says which thread it is, waits, and then does what is counted.
fn play() {
    let (mut pair, counter) = (sealed(), library("counter"));
    one_by_one(&mut pair, &counter, 100);
    together(&mut pair, &counter, 10);
    // SAFETY: returns a number.
    println!("@{}", unsafe { libc::syscall(libc::SYS_gettid) });
    std::io::stdin().read_line(&mut String::new()).unwrap();
    mark();
    one_by_one(&mut pair, &counter, CALLS);
    mark();
    together(&mut pair, &counter, BATCHES);
    mark();
    serve(&mut pair.target);
}

#[test]
fn a_call_is_moved_by_two_system_calls_on_each_side_and_one_of_a_batch_by_far_less() {
    if std::env::var_os(ROLE).is_some() {
        return play();
    }
    let place = Place::new();
    let name = "stream::a_call_is_moved_by_two_system_calls_on_each_side_and_one_of_a_batch_by_far_less";
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", name, "--nocapture", "--test-threads=1"])
        .env(ROLE, place.path("").as_os_str())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut child = Traced(child);
    let (mut orders, said) = (child.0.stdin.take().unwrap(), child.0.stdout.take().unwrap());
    let mut lines = BufReader::new(said).lines();
    let thread = lines
        .find_map(|line| line.unwrap().split_once('@').and_then(|(_, id)| id.parse::<i32>().ok()))
        .expect("it says which thread it is");
    let phases = follow(thread, || orders.write_all(b"go\n").unwrap());
    let [single, batched, _] = phases[..] else { panic!("{phases:?}") };
    println!("one by one {single:?}, in batches {batched:?}");
    // Both sides are in one thread, which sends a call and an answer and receives both. Credit rides on them, but for once: what the
    // batches before left untold.
    let calls = 2 * CALLS..=2 * CALLS + 1;
    assert!(calls.contains(&single.sent) && calls.contains(&single.received), "{single:?}");
    let of_batches = (batched.sent + batched.received) as f64 / (BATCHES * TOGETHER) as f64;
    assert!(of_batches <= 2.0 * 0.05, "{of_batches} a call: {batched:?}");
    assert!(batched.sent >= BATCHES, "{batched:?}");
    assert_eq!(single.others + batched.others, 0, "{single:?} {batched:?}");
}
