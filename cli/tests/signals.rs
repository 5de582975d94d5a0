//! Signals: they end a target from its first instant on, and its socket never stays.

use std::io;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use nix::libc;
use nix::sys::ptrace;
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::Pid;
use rustix::process::Signal;

use crate::inject::ECHO;
use crate::serve::STUCK;
use crate::workbench::{Process, Workbench, finish, start_target, wait_for};

/// Exit codes of a target that a signal ended: in order, or at once.
const ENDED: [i32; 2] = [0, 128 + 15];

/// A target whose main thread stands at a system call.
struct Stopped {
    process: Process,
    pid: Pid,
    /// Whether the target serves, and waits for sources.
    serves: bool,
}

impl Stopped {
    /// Starts a target and stops it at its system call number `call`, from its start on. `None` if the system
    /// forbids tracing.
    fn at(call: usize, command: &mut Command) -> Option<Stopped> {
        // SAFETY: the closure makes one system call, and does not allocate.
        unsafe { command.pre_exec(|| ptrace::traceme().map_err(io::Error::from)) };
        let process = Process::start(command);
        let pid = Pid::from_raw(process.pid().cast_signed());
        if !matches!(waitpid(pid, None), Ok(WaitStatus::Stopped(..))) {
            return None;
        }
        ptrace::setoptions(pid, ptrace::Options::PTRACE_O_TRACESYSGOOD | ptrace::Options::PTRACE_O_EXITKILL)
            .expect("a stopped process takes options");
        let (mut calls, mut signal, mut serves) = (0, None, false);
        while calls < call && !serves {
            ptrace::syscall(pid, signal).expect("it stands");
            signal = None;
            match waitpid(pid, None).expect("it is a child") {
                WaitStatus::PtraceSyscall(_) => calls += 1,
                WaitStatus::Stopped(_, other) => signal = Some(other),
                other => panic!("the target has ended: {other:?}"),
            }
            let number = ptrace::getregs(pid).expect("it stands").orig_rax.cast_signed();
            serves = [libc::SYS_epoll_wait, libc::SYS_epoll_pwait, libc::SYS_epoll_pwait2].contains(&number);
        }
        Some(Stopped { process, pid, serves })
    }
}

#[test]
fn a_signal_at_any_startup_call_ends_target_and_socket() {
    let bench = Workbench::new();
    for call in 0.. {
        let mut command = bench.serving(&["--transport", "shm"]);
        let Some(Stopped { process, pid, serves }) = Stopped::at(call, &mut command) else {
            println!("skipped: this system forbids tracing");
            return;
        };
        process.signal(Signal::TERM);
        // It may have ended: another thread takes the signal.
        let _ = ptrace::detach(pid, None);
        if call % 2 == 1 {
            process.signal(Signal::TERM);
        }
        let done = process.finish();
        assert!(ENDED.contains(&done.code), "call {call}: {} {}", done.code, done.err);
        assert!(!bench.path("s").exists(), "the socket is left behind by a signal at call {call}");
        if serves {
            assert!(call > 50, "it served after {call} calls");
            return;
        }
    }
}

/// timeout(1) sends two signals, one to the process and one to its group.
#[test]
fn no_socket_is_left_behind_under_timeout() {
    let bench = Workbench::new();
    for turn in 1..=200 {
        let mut command = bench.program("timeout");
        command.arg(format!("{}e-6", 200 * turn)).arg(env!("CARGO_BIN_EXE_farjump"));
        command.args(["serve", "--listen", &bench.address(), "--transport", "shm"]);
        let done = finish(&mut command);
        // timeout's own code.
        assert_eq!(done.code, 124, "turn {turn}: {}", done.err);
        assert!(!bench.path("s").exists(), "the socket is left behind in turn {turn}");
    }
}

#[test]
fn a_signal_ends_a_target_that_waits_before_it_listens() {
    let bench = Workbench::new();
    let library = bench.plain_library(
        "slow",
        "#include <unistd.h>
        __attribute__((constructor)) static void wait(void)
        {
            write(1, \"waits\\n\", 6);
            for (;;) pause();
        }",
    );
    for signal in [Signal::TERM, Signal::INT, Signal::HUP] {
        let serving = Process::start(bench.serving(&["--export-library"]).arg(&library));
        assert_eq!(serving.line(), "waits");
        serving.signal(signal);
        assert_eq!(serving.finish().code, 128 + signal.as_raw());
    }
}

#[test]
fn a_file_that_never_ends_is_refused() {
    let bench = Workbench::new();
    let pipe = bench.path("pipe");
    finish(Command::new("mkfifo").args(["-m", "600"]).arg(&pipe)).worked();
    let pipe = pipe.to_str().expect("its path is text");
    let key = [("serve", "--listen"), ("inject", "--to")].map(|(command, address)| {
        let library = if command == "inject" { Some("libecho.so") } else { None };
        [command].into_iter().chain(library).chain([address, "tcp:127.0.0.1:0", "--key-file", pipe]).collect()
    });
    bench.library("echo", ECHO);
    let data = |option| vec!["serve", "--listen", "unix:s", option, pipe];
    let commands: Vec<Vec<&str>> = key
        .into_iter()
        .chain(["--data", "--export-library", "--local", "--config"].map(data))
        .chain([vec!["demo", pipe]])
        .collect();
    for command in commands {
        let done = bench.run(&command);
        let error = done.error(1);
        let named = error.contains("no regular file") || error.contains("a directory, a device or a pipe");
        assert!(named && error.contains("pipe"), "{command:?}: {error}");
        assert!(!Path::new("s").exists());
    }
    // A terminal has no end either, and belongs to its user alone.
    bench.run(["serve", "--listen", "tcp:127.0.0.1:0", "--key-file", "/dev/tty"]).error(1);
}

#[test]
fn a_target_ends_in_its_time_though_a_function_never_returns() {
    let bench = Workbench::new();
    let library = bench.library("stuck", STUCK);
    let serving = bench.serve(&["--process-symbols", "--grace", "100ms"]);
    let source = Process::start(&mut bench.injecting(&library, &bench.address(), &["--timeout", "60m"]));
    assert_eq!(serving.line(), "stuck");
    serving.signal(Signal::TERM);
    assert_eq!(serving.finish().code, 128 + 15);
    assert!(!bench.path("s").exists());
    source.finish().fails(5, &["is gone"]);
}

#[test]
fn the_end_of_a_terminal_ends_a_target_unless_it_ignores_that() {
    let bench = Workbench::new();
    let serving = bench.serve(&[]);
    serving.signal(Signal::HUP);
    assert!(serving.finish().worked().err.starts_with("stopped:"));
    assert!(!bench.path("s").exists());

    let mut command = bench.program("nohup");
    command.args([env!("CARGO_BIN_EXE_farjump"), "serve", "--listen", &bench.address()]);
    let (serving, _) = start_target(&mut command);
    serving.signal(Signal::HUP);
    bench.inject(&bench.library("echo", ECHO), &["--args", "there"]).worked();
    serving.stop().worked();
}

#[test]
fn a_demo_leaves_no_socket_outside_of_its_folder_either() {
    let bench = Workbench::new();
    bench.write("prose", "don't panic");
    bench.run(["demo", "prose", "--listen", &bench.address()]).worked();
    assert!(!bench.path("s").exists());
    std::fs::File::create(bench.path("large")).and_then(|file| file.set_len(1 << 30)).expect("a sparse file");
    let mut command = bench.farjump();
    let demo = Process::start(command.args(["demo", "large", "--listen", &bench.address()]));
    wait_for("the socket", || bench.path("s").exists().then_some(()));
    demo.signal(Signal::TERM);
    assert_eq!(demo.finish().code, 128 + 15);
    assert!(!bench.path("s").exists());
    bench.is_clean();
}
