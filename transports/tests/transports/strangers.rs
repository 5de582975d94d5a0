//! A foreign process that speaks UCX and knows only a port and an address of a worker (`stranger.c`). Each case runs it
//! against a separate process, in which no other test listens.

use std::env;
use std::fs;
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use farjump_core::transport::{Endpoint, Messages, OpenRequest, Transport};
use farjump_transports::ucx::Am;
use rustix::net::getsockname;
use rustix::net::sockopt::socket_acceptconn;
use tempfile::tempdir;

use farjump_fixtures::helper_process::{command, in_roles, role};
use farjump_fixtures::seccomp::refuse_socket_options;
use farjump_fixtures::this_test;

/// Path of the stranger's program.
const PROGRAM: &str = "TRANSPORTS_TEST_STRANGER";
/// The roles of the victim: without UCX's TCP; with it, where the process may close UCX's ports in any way, or may put
/// no filter on them.
const ROLES: [&str; 3] = ["no tcp", "any closing", NO_FILTER];
const NO_FILTER: &str = "no filter";
/// Exit codes of the stranger after a write and without access.
const WRITTEN: i32 = 0;
const KEPT_OUT: i32 = 3;

/// The variable that the stranger writes: a global that was never registered with UCX.
static VICTIM: AtomicU64 = AtomicU64::new(7);

/// Returns the addresses at which sockets of this process listen.
fn listening() -> Vec<SocketAddr> {
    let numbers = fs::read_dir("/proc/self/fd").unwrap();
    let numbers = numbers.filter_map(|entry| entry.unwrap().file_name().to_str()?.parse().ok());
    let at = |number| {
        // SAFETY: the descriptor is only queried for its address. No thread of this process closes descriptors at the
        // same time.
        let socket = unsafe { BorrowedFd::borrow_raw(number) };
        let listens = socket_acceptconn(socket).unwrap_or(false);
        listens.then(|| SocketAddr::try_from(getsockname(socket).unwrap()).unwrap())
    };
    numbers.filter_map(at).collect()
}

/// Makes two connected endpoints.
fn pair(mut am: Am) -> [Box<dyn Messages>; 2] {
    let [left, right] = [(); 2].map(|()| am.open(&OpenRequest::new(1 << 20, 4096)).unwrap());
    let (to_left, to_right) =
        (left.address().try_to_owned().unwrap(), right.address().try_to_owned().unwrap());
    [left.connect(to_right, 1000), right.connect(to_left, 1000)].map(|end| match end.unwrap() {
        Endpoint::TwoSided(messages) => messages,
        Endpoint::OneSided { .. } => panic!("ucx-am is two-sided"),
    })
}

/// Runs the stranger against a port on loopback, while `ends` progress. Returns its exit code.
fn attack(at: SocketAddr, ends: &mut [Box<dyn Messages>]) -> Option<i32> {
    let mut stranger = command(env::var_os(PROGRAM).unwrap());
    stranger.args(["lo".to_owned(), at.port().to_string(), format!("{:p}", &VICTIM)]);
    let mut stranger = stranger.env("UCX_LOG_LEVEL", "fatal").spawn().unwrap();
    loop {
        ends.iter_mut().for_each(|end| end.progress().unwrap());
        if let Some(status) = stranger.try_wait().unwrap() {
            // Data that it sent before it ended may still be in the kernel.
            (0..10_000).for_each(|_| ends.iter_mut().for_each(|end| end.progress().unwrap()));
            return status.code();
        }
    }
}

/// Runs one case; this process is the victim.
fn play(role: &str) {
    if role == ROLES[0] {
        let mut ends = pair(Am::new());
        assert_eq!(listening(), []);
        ends.iter_mut().for_each(|end| end.progress().unwrap());
        assert_eq!(listening(), []);
        return;
    }
    if role == NO_FILTER
        && let Err(error) = refuse_socket_options(&[libc::SO_ATTACH_FILTER])
    {
        return println!("skipped: no filter of system calls: {error}");
    }
    let mut ends = pair(Am::with_tcp());
    let on_loopback: Vec<_> = listening().into_iter().filter(|at| at.ip().is_loopback()).collect();
    assert_eq!(on_loopback.len(), 2);
    // While the other endpoint makes no progress, no message has arrived from it. This is the gap that the option
    // opens.
    assert_eq!(at_one_of(&on_loopback, &mut ends[..1]), [WRITTEN]);
    VICTIM.store(7, Relaxed);
    // Longer than connections may be under way.
    let began = std::time::Instant::now();
    while began.elapsed() < std::time::Duration::from_millis(500) {
        ends.iter_mut().for_each(|end| end.progress().unwrap());
    }
    for at in on_loopback {
        assert_eq!(attack(at, &mut ends), Some(KEPT_OUT));
    }
    assert_eq!(VICTIM.load(Relaxed), 7);
}

/// Runs the stranger against each port until it has written. Returns its exit code in that run.
fn at_one_of(ports: &[SocketAddr], ends: &mut [Box<dyn Messages>]) -> Vec<i32> {
    let mut attacks = ports.iter().map(|at| attack(*at, ends));
    let written = attacks.find(|_| VICTIM.load(Relaxed) != 7);
    written.into_iter().flatten().collect()
}

/// The stranger's program in this folder.
fn program_in(folder: &Path) -> PathBuf {
    folder.join("stranger")
}

/// Compiles the stranger's program in this folder. Returns `false`, and prints the reason, if that fails.
fn is_built(folder: &Path) -> bool {
    if !farjump_tools::all_work(&["cc"]) {
        return false;
    }
    let source = folder.join("stranger.c");
    fs::write(&source, include_str!("stranger.c")).unwrap();
    let mut compile = Command::new("cc");
    // UCT's types grow between versions: headers and library must be those of the UCX that this process
    // opens.
    if let Some(library) = env::var_os("FARJUMP_UCX").map(PathBuf::from) {
        let libraries = library.parent().unwrap();
        let headers = libraries.with_file_name("include");
        compile.arg("-isystem").arg(headers).arg("-L").arg(libraries);
        compile.arg(format!("-Wl,-rpath,{}", libraries.display()));
    }
    let made =
        compile.arg(&source).arg("-o").arg(program_in(folder)).args(["-luct", "-lucs"]).output().unwrap();
    if !made.status.success() {
        println!("skipped: no UCX to build with: {}", String::from_utf8_lossy(&made.stderr));
    }
    made.status.success()
}

#[test]
fn a_stranger_can_write_only_over_ucx_tcp_before_the_peer_connects() {
    let folder = tempdir().unwrap();
    if role().is_empty() {
        if let Err(why) = Am::new().usable() {
            return println!("skipped: {why}");
        }
        if !is_built(folder.path()) {
            return;
        }
    }
    let prepare = |command: &mut Command, role: &str| {
        command.env(PROGRAM, program_in(folder.path())).env_remove("UCX_TLS").env_remove("UCX_NET_DEVICES");
        if role != ROLES[0] {
            command.env("UCX_TLS", "tcp");
        }
    };
    if let Some(role) = in_roles(this_test!(), &ROLES, prepare) {
        play(&role);
    }
}
