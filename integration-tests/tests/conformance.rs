//! The conformance suite over all transports of farjump: a test for each subject, named after it. `cargo run -p
//! farjump-integration-tests --bin conformance` prints the whole as a matrix.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use farjump_fixtures::helper_process::{again, command};
use farjump_fixtures::namespaces::{DEVICE, Namespace, Namespaces};
use farjump_fixtures::process::{Process, end_with_this_thread};
use farjump_integration_tests::conformance::{Candidate, candidate, names, run};

/// Words, one a line, that start the targets of a test's subject in another network namespace.
const LAUNCHER: &str = "CONFORMANCE_TEST_LAUNCHER";

/// Arguments with which this test program runs one test.
fn only(test: &str) -> Vec<OsString> {
    [test, "--exact", "--nocapture"].map(OsString::from).into()
}

/// The name of the test of a subject.
fn test_of(subject: &str) -> String {
    subject.replace(", ", "_").replace([' ', '-'], "_")
}

fn conforms(test: &str) {
    let candidate = names()
        .into_iter()
        .find(|name| test_of(name) == test)
        .and_then(|name| candidate(name, |subject| only(&test_of(subject))))
        .unwrap_or_else(|| panic!("no subject belongs to the test {test}"));
    match candidate {
        Candidate::Here(subject) => {
            let launcher = std::env::var(LAUNCHER).unwrap_or_default();
            let outcome = run(&subject.launched_by(launcher.lines()));
            println!("{outcome}");
            outcome.assert_conforms();
        }
        Candidate::Missing { name, why } => println!("skipped: {name}: {why}"),
    }
}

fn program() -> PathBuf {
    std::env::current_exe().expect("a test has a program")
}

/// Runs the test `test` in a process of its own that `command` starts, with only these UCX transports: UCX reads its
/// settings once. Tests channels, and links in one mode, since modes do not depend on UCX's transports. Returns
/// whether the test was not skipped.
fn conforms_over(transports: &str, test: &str, mut command: Command) -> bool {
    command.args(only(test)).env("UCX_TLS", transports).stdin(Stdio::null());
    command.env("CONFORMANCE_PARTS", "channels,cached");
    if transports.contains("tcp") {
        command.env("CONFORMANCE_UCX_TCP", "yes");
    }
    let output = end_with_this_thread(&mut command).output().expect("the program starts once more");
    let text = String::from_utf8_lossy(&output.stdout);
    println!("{text}");
    assert!(output.status.success(), "UCX_TLS={transports}: {}", String::from_utf8_lossy(&output.stderr));
    let ran = text.contains("volume");
    assert!(ran || text.contains("skipped: "), "nothing ran with UCX_TLS={transports}");
    ran
}

/// Runs the test `test` in one network namespace, with the targets of its other processes in another one.
fn conforms_between_namespaces(test: &str) {
    let namespaces = match Namespaces::new() {
        Ok(namespaces) => namespaces,
        Err(why) => return println!("skipped: {test} between network namespaces: {why}"),
    };
    let mut command = namespaces.command(Namespace::Left, program());
    command.env(LAUNCHER, namespaces.launcher(Namespace::Right).join("\n")).env("UCX_NET_DEVICES", DEVICE);
    // UCX would use shared memory between the namespaces.
    if conforms_over("tcp,self", test, command) {
        for side in [Namespace::Left, Namespace::Right] {
            let bytes = namespaces.received(side).unwrap();
            assert!(bytes > 1 << 20, "{bytes} bytes came to the {side:?}: the frames went another way");
        }
    }
}

/// Makes `command`, which runs the suite's program, use only UCX's sockets and the links of one mode.
fn settled(mut command: Command) -> Command {
    command.env("UCX_TLS", "tcp,self").env("CONFORMANCE_UCX_TCP", "yes");
    command.env("CONFORMANCE_PARTS", "cached").stdin(Stdio::null());
    end_with_this_thread(&mut command);
    command
}

/// Starts the suite's program by `run` to serve targets at `listen`. Returns it and its address.
fn serving(run: Command, listen: &str) -> (Process, String) {
    let serving = Process::spawn(settled(run).args(["--serve", listen]).stdout(Stdio::piped()));
    let ready = serving.line();
    let address = ready.strip_prefix("ready: ").expect("it is ready");
    (serving, address.to_owned())
}

/// Tests `subject` with targets that are started at `address`. Returns whether the test was not skipped.
fn conforms_at(run: Command, address: &str, subject: &str) -> bool {
    let output = settled(run).args(["--at", address, subject]).output().expect("the suite's program starts");
    let text = String::from_utf8_lossy(&output.stdout);
    println!("{text}");
    if text.starts_with("skipped: ") {
        return false;
    }
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(text.contains("links, cached, two machines"), "nothing ran");
    true
}

fn suite() -> Command {
    command(env!("CARGO_BIN_EXE_conformance"))
}

#[test]
fn targets_started_by_another_program_pass_except_over_shm() {
    let (_serving, address) = serving(suite(), "127.0.0.1:0");
    for subject in ["ucx-am", "tcp"] {
        conforms_at(suite(), &address, subject);
    }
    let shm = settled(suite()).args(["--at", &address, "shm"]).output().expect("the suite's program starts");
    assert_eq!(shm.status.code(), Some(1), "shared memory reaches no other machine");
}

#[test]
fn tcp_between_two_network_namespaces() {
    let namespaces = match Namespaces::new() {
        Ok(namespaces) => namespaces,
        Err(why) => return println!("skipped: tcp between network namespaces: {why}"),
    };
    let run = |side| namespaces.command(side, env!("CARGO_BIN_EXE_conformance"));
    let (_serving, address) = serving(run(Namespace::Right), &format!("{}:0", Namespace::Right.address()));
    assert!(conforms_at(run(Namespace::Left), &address, "tcp"));
    for side in [Namespace::Left, Namespace::Right] {
        let bytes = namespaces.received(side).unwrap();
        assert!(bytes > 1 << 20, "{bytes} bytes came to the {side:?}: the frames went another way");
    }
}

#[test]
fn ucx_am_over_tcp_alone() {
    conforms_over("tcp,self", "ucx_am", again());
}

#[test]
fn ucx_am_over_posix_shared_memory_alone() {
    conforms_over("posix,self", "ucx_am", again());
}

#[test]
fn ucx_am_over_system_v_shared_memory_alone() {
    conforms_over("sysv,self", "ucx_am", again());
}

#[test]
fn ucx_put_over_posix_shared_memory_alone() {
    conforms_over("posix,self", "ucx_put", again());
}

#[test]
fn ucx_put_over_system_v_shared_memory_alone() {
    conforms_over("sysv,self", "ucx_put", again());
}

#[test]
fn ucx_am_between_two_network_namespaces() {
    conforms_between_namespaces("ucx_am");
}

macro_rules! subjects {
    ($($test:ident)*) => {
        $(
            #[test]
            fn $test() {
                conforms(stringify!($test));
            }
        )*

        #[test]
        fn every_subject_has_a_test() {
            let tests = [$(stringify!($test)),*];
            let subjects: Vec<_> = names().into_iter().map(test_of).collect();
            assert_eq!(subjects, tests);
        }
    };
}

subjects! {
    shm
    ucx_put
    ucx_am
    verbs_write
    verbs_send
    tcp
    ucx_put_fenced
    ucx_put_checked
    verbs_write_fenced
    verbs_write_write_imm
    verbs_write_checked
    tcp_clear
    shm_traced
    shm_delayed
    fake_one_sided_stores
    fake_one_sided_in_order
    fake_one_sided_fenced
    fake_one_sided_write_imm
    fake_one_sided_checked
    fake_two_sided
}
