//! `serve` with limits: accepted frames, refused ones, and contradictory limits.

use std::io::{ErrorKind, Read};
use std::os::unix::net::UnixStream;
use std::thread;
use std::time::Duration;

use crate::workbench::{Workbench, finish};

#[test]
fn only_code_ids_allowed_by_option_or_file_are_accepted() {
    let bench = Workbench::new();
    let (crc32, grep, hello) = (bench.sample("crc32"), bench.sample("grep"), bench.sample("hello"));
    let id = |library| {
        let shown = bench.json(["inspect".as_ref(), library, "--json".as_ref()]);
        shown["images"][0]["id"].as_str().expect("it has an id").to_owned()
    };
    let (crc32_id, grep_id) = (id(crc32.as_os_str()), id(grep.as_os_str()));
    bench.write("allowed", format!("# reviewed\n{grep_id}  grep\n"));
    let serving = bench.serve(&["--allow-code", &crc32_id, "--allow-code", "@allowed"]);
    bench.inject(&crc32, &[]).worked();
    bench.inject(&grep, &["--args", "x", "--mode", "always"]).worked();
    bench.inject(&hello, &[]).fails(3, &["not among the 2 that may come in", "--allow-code"]);
    bench.inject(&crc32, &[]).worked();
    let stopped = serving.stop().worked();
    assert!(stopped.err.contains("2 images linked, 1 frame refused"), "{}", stopped.err);
}

#[test]
fn an_exceeded_limit_is_named_and_the_target_serves_on() {
    let bench = Workbench::new();
    let crc32 = bench.sample("crc32");
    bench.write("args", vec![7; 3000]);
    let cases: [(&[&str], i32, &str); 6] = [
        (&["--store-bytes", "64"], 3, "`farjump serve --store-bytes`"),
        (&["--max-payload", "100"], 3, "--max-payload"),
        (&["--max-image", "100"], 3, "--max-image"),
        (&["--max-frame", "2K"], 1, "--max-frame"),
        (&["--mailbox-size", "64K", "--max-source-memory", "69700"], 3, "--max-source-memory"),
        (&["--mailbox-size", "64K", "--max-source-memory", "70300"], 3, "left of the 70300"),
    ];
    for (limit, code, words) in cases {
        let serving = bench.serve(limit);
        bench.inject(&crc32, &["--args-file", "args"]).fails(code, &[words]);
        // The target still runs, and takes frames within the limit.
        let done = bench.inject(&crc32, &[]);
        let takes_none =
            limit.iter().any(|word| ["--store-bytes", "--max-image", "--max-source-memory"].contains(word));
        assert_eq!(done.code, if takes_none { 3 } else { 0 }, "{limit:?}: {}", done.err);
        serving.stop().worked();
    }
}

/// The library's tests compare what arrives (`farjump/tests/links/large.rs`).
#[test]
fn payloads_of_64_mib_are_taken_and_longer_ones_by_option() {
    let bench = Workbench::new();
    let crc32 = bench.sample("crc32");
    bench.write("large", vec![7; 64 << 20]);
    bench.write("larger", vec![7; (64 << 20) + 1]);
    let serving = bench.serve(&[]);
    bench.inject(&crc32, &["--args-file", "large"]).worked();
    bench.inject(&crc32, &["--args-file", "larger"]).fails(3, &["67108865", "67108864", "--max-payload"]);
    serving.stop().worked();
    let serving = bench.serve(&["--max-payload", "65M"]);
    bench.inject(&crc32, &["--args-file", "larger"]).worked();
    serving.stop().worked();
}

#[test]
fn a_source_too_many_is_turned_away_with_3() {
    let bench = Workbench::new();
    let crc32 = bench.sample("crc32");
    let serving = bench.serve(&["--max-sources", "1"]);
    let link = farjump::Link::connect(&bench.address()).expect("it takes one");
    bench.inject(&crc32, &[]).fails(3, &["takes 1 source at a time"]);
    link.flush(std::time::Duration::from_secs(30)).expect("the first one is served on");
    serving.stop().worked();
}

#[test]
fn limits_that_make_no_sense_are_said_and_no_socket_is_left() {
    let bench = Workbench::new();
    let wrong: [(&[&str], i32, &str); 11] = [
        (&["--allow-code", "libgrep.so"], 2, "32 hexadecimal digits"),
        (&["--allow-code", "@missing"], 2, "`missing`"),
        (&["--max-payload", "0"], 2, "--max-payload: 0 is out of range"),
        (&["--max-image", "0"], 2, "--max-image: 0 is out of range"),
        (&["--max-frame", "0"], 2, "--max-frame: 0 is out of range"),
        (&["--max-source-memory", "0"], 2, "--max-source-memory: 0 is out of range"),
        (&["--max-sources", "0"], 2, "--max-sources: 0 is out of range: give 1 to "),
        (&["--max-frame", "big"], 2, "no number of bytes"),
        (&["--max-image", "32"], 2, "set 33 at least"),
        (&["--max-frame", "63"], 2, "set 64 at least"),
        (&["--max-source-memory", "1M"], 2, "with its mailbox"),
    ];
    for (limit, code, words) in wrong {
        finish(&mut bench.serving(limit)).fails(code, &[words]);
        assert!(!bench.path("s").exists());
    }
}

#[test]
fn a_silent_connection_is_closed_after_the_given_handshake_timeout() {
    let bench = Workbench::new();
    bench.run(["serve", "--listen", &bench.address(), "--handshake-timeout", "soon"]).fails(2, &["`soon`"]);
    let connect = || UnixStream::connect(bench.path("s")).expect("the target listens");
    let hasty = bench.serve(&["--handshake-timeout", "50ms"]);
    connect().read_to_end(&mut Vec::new()).expect("the target closes the connection");
    hasty.stop().worked();

    let patient = bench.serve(&["--handshake-timeout", "60m"]);
    let mut silent = connect();
    // Longer than without the option.
    thread::sleep(Duration::from_secs(3));
    silent.set_nonblocking(true).expect("it is a socket");
    let waits = silent.read(&mut [0]).expect_err("the target still waits");
    assert_eq!(waits.kind(), ErrorKind::WouldBlock);
    drop(silent);
    patient.stop().worked();
}
