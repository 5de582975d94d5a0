//! Limits of the process (getrlimit(2)): under each a command works, or names the limit in a sentence.

use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use farjump_fixtures::workbench::built_beside;
use rustix::process::{Resource, Rlimit, setrlimit};

use crate::workbench::{Done, Process, Workbench, finish, patient, wait_for};

/// Lines that a program may print about its end: a sentence, and messages of UCX.
const FEW_LINES: usize = 40;

/// Descriptors that suffice for a target or a source over UCX.
const ENOUGH: u64 = 64;

/// Limits a resource of the process that `command` starts, once and for all.
fn limited(mut command: Command, resource: Resource, limit: u64) -> Command {
    let rlimit = Rlimit { current: Some(limit), maximum: Some(limit) };
    // SAFETY: `setrlimit` is a system call, which a forked child may make.
    unsafe { command.pre_exec(move || Ok(setrlimit(resource, rlimit)?)) };
    command
}

/// Checks that a process that failed did so by a sentence.
#[track_caller]
pub(crate) fn failed_orderly(done: &Done, limit: &str) {
    let says = |text: &str| done.err.contains(text);
    assert!(!says("panicked") && !says("RUST_BACKTRACE"), "{limit}: {}", done.err);
    assert!(done.err.lines().count() <= FEW_LINES, "{limit}: {}", done.err);
    // The dynamic linker opens the program's libraries itself.
    let is_sentence = says("error: ") || says("error while loading shared libraries");
    assert!((1..128).contains(&done.code) && is_sentence, "{limit}: {}: {}", done.code, done.err);
}

#[test]
fn a_ready_target_takes_a_source_under_any_descriptor_limit() {
    let bench = Workbench::new();
    let library = bench.sample("crc32");
    let mut ready = Vec::new();
    for limit in 3..=30 {
        let serving = Process::start(&mut limited(bench.serving(&[]), Resource::Nofile, limit));
        if serving.line_or_end().is_some() {
            bench.inject(&library, &[]).worked();
            let done = serving.stop().worked();
            assert!(done.err.lines().count() == 1, "{}", done.err);
            ready.push(limit);
            continue;
        }
        let done = serving.finish();
        failed_orderly(&done, &format!("{limit} descriptors"));
        assert!(!bench.path("s").exists(), "{limit}: {}", done.err);
        let is_named = done.err.contains("ulimit -n") || done.err.contains("loading shared libraries");
        assert!(is_named, "{limit}: {}", done.err);
    }
    assert!(ready.last() == Some(&30), "{ready:?}");
    assert!(ready.is_sorted_by(|one, next| one + 1 == *next), "more descriptors are worse: {ready:?}");
}

/// UCX itself fails an assertion, and ends the process, where its thread has no descriptors.
#[test]
fn under_any_descriptor_limit_ucx_works_or_the_limit_is_named() {
    for transport in ["ucx-put", "ucx-am"] {
        let Some(bench) = Workbench::with_transport(transport) else { return };
        let (library, address) = (bench.sample("crc32"), bench.address());
        let over = ["--transport", transport];
        for limit in (8..=44).chain([ENOUGH]) {
            let mut serving = bench.serving(&over);
            patient(&mut serving);
            let serving = Process::start(&mut limited(serving, Resource::Nofile, limit));
            if serving.line_or_end().is_some() {
                bench.inject(&library, &over).worked();
                serving.stop().worked();
                continue;
            }
            named(&serving.finish(), &format!("a target over {transport} with {limit} descriptors"));
            assert_ne!(limit, ENOUGH, "a target over {transport} serves nobody");
        }
        let serving = bench.serve(&over);
        for limit in (8..=30).chain([ENOUGH]) {
            let injecting = bench.injecting(&library, &address, &over);
            let done = finish(&mut limited(injecting, Resource::Nofile, limit));
            if done.code != 0 {
                named(&done, &format!("a source over {transport} with {limit} descriptors"));
                assert_ne!(limit, ENOUGH, "a source over {transport} reaches nobody");
            }
        }
        serving.stop().worked();
    }
}

/// Checks that a process failed by a sentence that names the limit of descriptors.
#[track_caller]
fn named(done: &Done, limit: &str) {
    failed_orderly(done, limit);
    let is_named = done.err.contains("ulimit -n") || done.err.contains("loading shared libraries");
    assert!(is_named && !done.err.contains("/dev/shm full"), "{limit}: {}", done.err);
}

#[test]
fn a_target_out_of_descriptors_refuses_with_the_cause_and_recovers() {
    let bench = Workbench::new();
    let library = bench.sample("crc32");
    let serving = Process::start(&mut limited(bench.serving(&[]), Resource::Nofile, 30));
    serving.line();
    // Connections that send nothing take a descriptor each.
    let mut silent = Vec::new();
    let refused = loop {
        silent.push(UnixStream::connect(bench.path("s")).expect("it listens"));
        let done = bench.inject(&library, &[]);
        if done.code != 0 {
            break done;
        }
        assert!(silent.len() < 30, "more connections are accepted than it has descriptors");
    };
    failed_orderly(&refused, "a target without descriptors");
    assert!(refused.err.contains("ulimit -n"), "{}", refused.err);
    drop(silent);
    // It sees the ends of the silent ones in its own time.
    wait_for("a target that has recovered", || (bench.inject(&library, &[]).code == 0).then_some(()));
    let done = serving.stop().worked();
    assert!(done.err.lines().count() <= 3, "{}", done.err);
}

#[test]
fn with_few_descriptors_other_commands_work_or_name_the_limit() {
    let bench = Workbench::new();
    let library = bench.sample("crc32");
    let serving = bench.serve(&[]);
    let address = bench.address();
    for limit in 3..=30 {
        let done = finish(&mut limited(bench.injecting(&library, &address, &[]), Resource::Nofile, limit));
        if done.code != 0 {
            failed_orderly(&done, &format!("inject with {limit} descriptors"));
        }
    }
    serving.stop().worked();
    let mut commands = vec![&["demo"][..]];
    if built_beside(env!("CARGO_BIN_EXE_farjump"), "farjump-perf").is_some() {
        commands.push(&["perf", "latency", "--rounds", "1", "--iterations", "70", "--cpus", "any"]);
    }
    for limit in [4, 6, 8, 10, 13, 16, 20, 25, 30] {
        for args in &commands {
            let mut command = bench.farjump();
            command.args(*args);
            let done = finish(&mut limited(command, Resource::Nofile, limit));
            if done.code != 0 {
                failed_orderly(&done, &format!("{args:?} with {limit} descriptors"));
            }
        }
    }
}

#[test]
fn without_addresses_the_limit_and_what_helps_are_named() {
    let bench = Workbench::new();
    let library = bench.sample("crc32");
    for limit in [500_000_u64, 1_000_000, 1_150_000, 3_000_000] {
        let serving = Process::start(&mut limited(bench.serving(&[]), Resource::As, limit << 10));
        if serving.line_or_end().is_some() {
            bench.inject(&library, &[]).worked();
            serving.stop().worked();
            assert!(limit > 1_048_576, "an arena takes 1 GiB of addresses");
            continue;
        }
        let done = serving.finish();
        failed_orderly(&done, &format!("{limit} KiB of addresses"));
        assert!(done.err.contains("ulimit -v"), "{}", done.err);
    }
    // There is space for what each arena takes, and not for this one.
    let large = ["--arena-size", "1G"];
    let mut serving = limited(bench.serving(&large), Resource::As, 1_500_000 << 10);
    finish(&mut serving).fails(1, &["ulimit -v", "1 GiB more", "`farjump serve --arena-size`"]);
    let small = ["--arena-size", "64K"];
    let serving = Process::start(&mut limited(bench.serving(&small), Resource::As, 1_500_000 << 10));
    serving.line();
    bench.inject(&library, &[]).worked();
    serving.stop().worked();
}

#[test]
fn the_limit_of_addresses_that_is_advised_suffices() {
    let bench = Workbench::new();
    let limit = 1_000_000_u64;
    let serving = |limit: u64| Process::start(&mut limited(bench.serving(&[]), Resource::As, limit << 10));
    let done = serving(limit).finish();
    let (_, advised) = done.error(1).split_once("raise the limit to ").expect("it advises one");
    let advised: u64 = advised.split(' ').next().and_then(|number| number.parse().ok()).expect("a number");
    let serving = serving(advised);
    serving.line();
    serving.stop().worked();
}

/// A user with no process.
const OTHER: u32 = 4711;

#[test]
fn build_names_the_limit_of_processes_that_stops_its_compiler() {
    let bench = Workbench::new();
    bench.write("count.c", "");
    // The limit counts all processes of a user, and not those of root.
    let mut build = bench.program(bench.executable("farjump", Path::new(env!("CARGO_BIN_EXE_farjump"))));
    build.args(["build", "count.c", "-o", "libcount.so"]);
    if rustix::process::geteuid().is_root() {
        finish(Command::new("chmod").args(["-R", "a+rwx"]).arg(bench.path("."))).worked();
        build.uid(OTHER);
    }
    let done = finish(&mut limited(build, Resource::Nproc, 1));
    done.fails(
        1,
        &["cannot run `cc`", "no more processes", "the limit of processes, 1 (`ulimit -u`", "TasksMax="],
    );
    assert!(!done.err.contains("Install"), "{}", done.err);
}

#[test]
fn files_that_grow_too_long_are_named_with_their_limit() {
    let bench = Workbench::new();
    bench.sample("crc32");
    bench.write("count.c", "");
    for args in [&["demo"][..], &["build", "count.c", "-o", "libcount.so"]] {
        let mut command = bench.farjump();
        command.args(args);
        let done = finish(&mut limited(command, Resource::Fsize, 16));
        done.fails(
            1,
            &["cannot write ", "File too large", "the limit of file sizes is 16 bytes", "ulimit -f"],
        );
        // The temporary file has a name that the user never gave.
        assert!(!done.err.contains("at path"), "{}", done.err);
    }
    let mut doctor = bench.farjump();
    doctor.arg("doctor");
    let done = finish(&mut limited(doctor, Resource::Fsize, 4096));
    assert_eq!(done.code, 6, "{}", done.err);
    assert!(done.text().contains("the limit of file sizes is 4096 bytes"), "{}", done.text());
    assert!(
        done.text().contains("$ ulimit -f unlimited") && !done.text().contains("seccomp"),
        "{}",
        done.text()
    );
}

#[test]
fn the_source_names_a_file_size_limit_and_no_target_ends() {
    let bench = Workbench::new();
    let library = bench.sample("crc32");
    let serving = Process::start(&mut limited(bench.serving(&[]), Resource::Fsize, 1 << 20));
    serving.line();
    let done = bench.inject(&library, &["--transport", "shm"]);
    failed_orderly(&done, "1 MiB of file at the target");
    assert!(done.err.contains("ulimit -f"), "{}", done.err);
    serving.stop().worked();
    let serving = bench.serve(&[]);
    let mut command = limited(bench.injecting(&library, &bench.address(), &[]), Resource::Fsize, 4096);
    let done = finish(&mut command);
    failed_orderly(&done, "4 KiB of file at the source");
    assert!(done.err.contains("ulimit -f"), "{}", done.err);
    serving.stop().worked();
}
