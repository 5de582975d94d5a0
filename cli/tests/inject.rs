//! `inject`: replies, figures and failures.

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::Stdio;
use std::time::{Duration, Instant};

use farjump_fixtures::process::PATIENCE;
use rustix::net::{AddressFamily, SocketType};
use rustix::process::Signal;
use serde_json::Value;

use crate::serve::STUCK;
use crate::workbench::{Process, Workbench, documented, finish, keys, wait_for};
use farjump_fixtures::terminal::Terminal;

/// Replies its payload.
pub(crate) const ECHO: &str = "
FARJUMP_COPY_ARGS(echo)
FARJUMP_IFUNC void echo_main(void *payload, size_t size, void *args) { farjump_reply(payload, size); }";

/// CRC-32 bit by bit, independent of the others in this repository.
pub(crate) fn crc32(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| (crc >> 1) ^ (0xedb8_8320 & (crc & 1).wrapping_neg()))
    })
}

/// Returns the last line of standard error, as JSON.
fn figures(err: &str) -> Value {
    serde_json::from_str(err.lines().last().expect("there are figures")).expect("they are JSON")
}

#[test]
fn the_raw_reply_on_standard_output_equals_an_independent_result() {
    let bench = Workbench::new();
    let contents: Vec<u8> = (0..100_003_u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    bench.write("data", &contents);
    let serving = bench.serve(&["--data", "data"]);
    let done = bench.inject(&bench.sample("crc32"), &[]).worked();
    assert_eq!(done.out, crc32(&contents).to_le_bytes());
    assert!(done.err.contains("1 frame to farjump (pid ") && done.err.contains("linking"), "{}", done.err);
    let done = bench.inject(&bench.sample("grep"), &["--args", "\u{1}"]).worked();
    let expected = contents.iter().filter(|byte| **byte == 1).count() as u64;
    assert!(expected > 0);
    assert_eq!(done.out, expected.to_le_bytes());
    serving.stop().worked();
}

#[test]
fn the_mode_is_the_sources_choice_of_what_the_target_allows() {
    let bench = Workbench::new();
    let library = bench.library("echo", ECHO);
    let serving = bench.serve(&["--modes", "always,local", "--local", "libecho.so"]);
    for (mode, with_code) in [("always", 3), ("local", 0)] {
        let args = ["--mode", mode, "--args", mode, "--repeat", "3", "--json"];
        let done = bench.inject(&library, &args).worked();
        assert_eq!(done.text(), mode);
        let figures = figures(&done.err);
        assert_eq!((&figures["mode"], &figures["frames"]), (&mode.into(), &3.into()));
        assert_eq!(figures["frames_with_code"], with_code, "{mode}");
    }
    bench.inject(&library, &["--repeat", "2"]).fails(3, &["only always, local", "serve --modes`"]);
    // The target lacks this function.
    let other = bench.library("other", &ECHO.replace("echo", "other"));
    let refused = bench.inject(&other, &["--mode", "local"]);
    refused.fails(3, &["`other`", "--local"]);
    let done = serving.stop().worked();
    assert!(done.err.contains("2 frames refused"), "{}", done.err);
}

#[test]
fn figures_count_what_was_sent_and_code_travels_once() {
    let bench = Workbench::new();
    let library = bench.library("echo", ECHO);
    let report = bench.json(["inspect", "libecho.so", "--json"]);
    let serving = bench.serve(&[]);
    let args = ["--args", "twelve bytes", "--repeat", "5", "--json"];
    let done = bench.inject(&library, &args).worked();
    assert_eq!(done.text(), "twelve bytes");
    let first = figures(&done.err);
    assert_eq!((&first["transport"], &first["arrives_by"]), (&"shm".into(), &"stores".into()));
    assert_eq!(
        (&first["frames"], &first["frames_with_code"], &first["later_calls"]),
        (&5.into(), &1.into(), &4.into())
    );
    assert_eq!((&first["payload_bytes"], &first["reply_bytes"]), (&60.into(), &12.into()));
    assert_eq!(first["code_bytes"], report["images"][0]["bytes"]);
    assert_eq!(first["pid"], serving.pid());
    assert_eq!(keys(&first), documented("reference/json.md", "`farjump inject --json` prints"));
    let number = |name: &str| first[name].as_f64().unwrap_or_else(|| panic!("{name} in {first}"));
    assert!(number("link_us") > 0.0 && number("link_us") < number("first_call_us"), "{first}");
    assert!(number("later_call_us") > 0.0);
    // Another source; the target has its code already and does not link again.
    let second = figures(&bench.inject(&library, &["--json"]).worked().err);
    assert_eq!((&second["link_us"], &second["later_call_us"]), (&Value::Null, &Value::Null));
    let done = serving.stop().worked();
    assert!(done.err.contains("6 calls, 1 image linked"), "{}", done.err);
}

#[test]
fn a_terminal_gets_a_hex_dump_unless_a_format_is_given() {
    let bench = Workbench::new();
    let library = bench.library("echo", ECHO);
    let serving = bench.serve(&[]);
    let shown_at_terminal = |more: &[&str]| {
        let terminal = Terminal::new();
        let mut command = bench.injecting(&library, &bench.address(), more);
        command.stdout(terminal.end()).stderr(Stdio::piped());
        Process::spawn(&mut command).finish().worked();
        terminal.shown(command)
    };
    let args = ["--args", "12345678 bytes: \u{1b}["];
    let dump = "\
00000000  31 32 33 34 35 36 37 38  20 62 79 74 65 73 3a 20  |12345678 bytes: |
00000010  1b 5b                                             |.[|
";
    // A terminal adds a carriage return to each newline.
    assert_eq!(shown_at_terminal(&args), dump.replace('\n', "\r\n"));
    let with = |format| [&args[..], &["--format", format]].concat();
    assert_eq!(shown_at_terminal(&with("raw")), "12345678 bytes: \u{1b}[");
    let shown = |format| bench.inject(&library, &with(format)).worked().out;
    assert_eq!(shown("hex"), dump.as_bytes());
    assert_eq!(shown("text"), b"12345678 bytes: \\x1b[\n");
    assert_eq!(shown("u16").iter().filter(|byte| **byte == b'\n').count(), 9);

    let done = bench.inject(&library, &with("u64"));
    done.fails(1, &["the reply has 18 bytes, which is no whole number of u64", "remain 1b 5b;", "--format"]);
    let numbers = [*b"12345678", *b" bytes: "].map(|bytes| format!("{}\n", u64::from_le_bytes(bytes)));
    assert_eq!(done.text(), numbers.concat());
    assert!(done.err.contains("1 frame to farjump"), "{}", done.err);
    assert_eq!(bench.inject(&library, &["--format", "f32"]).worked().out, b"");
    assert_eq!(bench.inject(&library, &["--format", "octal"]).code, 2);
    serving.stop().worked();
}

#[test]
fn arguments_come_from_a_file_or_from_standard_input() {
    let bench = Workbench::new();
    let library = bench.library("echo", ECHO);
    let serving = bench.serve(&[]);
    let bytes: Vec<u8> = (0..=255).collect();
    bench.write("args", &bytes);
    assert_eq!(bench.inject(&library, &["--args-file", "args"]).worked().out, bytes);
    let mut command = bench.injecting(&library, &bench.address(), &["--args-file", "-"]);
    let mut process = Process::start(command.stdin(Stdio::piped()));
    process.write_line("from standard input");
    assert_eq!(process.finish().worked().text(), "from standard input\n");
    bench
        .inject(&library, &["--args-file", "missing"])
        .fails(1, &["cannot read the arguments from `missing`"]);
    assert_eq!(bench.inject(&library, &["--args", "--help"]).worked().text(), "--help");
    serving.stop().worked();
}

#[test]
fn without_a_listener_inject_exits_with_5_and_advises_farjump_serve() {
    let bench = Workbench::new();
    let library = bench.library("echo", ECHO);
    bench.inject(&library, &[]).fails(5, &["no target listens on", "farjump serve"]);
    bench.run(["inject", "libecho.so", "--to", "store.sock"]).fails(2, &["write unix:PATH"]);
    bench.inject(&library, &["--wait", "20ms"]).fails(5, &["no target listens on"]);
}

#[test]
fn it_waits_for_a_target_that_listens_later() {
    let bench = Workbench::new();
    let library = bench.library("echo", ECHO);
    let to = bench.address();
    let waiting = Process::start(&mut bench.injecting(&library, &to, &["--args", "late", "--wait", "60m"]));
    // It sleeps between its attempts.
    wait_for("its attempts", || {
        let status = std::fs::read_to_string(format!("/proc/{}/status", waiting.pid())).ok()?;
        let slept = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"))?;
        (slept.trim().parse::<u32>().ok()? > 5).then_some(())
    });
    let serving = bench.serve(&[]);
    assert_eq!(waiting.finish().worked().text(), "late");
    serving.stop().worked();
}

#[test]
fn inject_waits_for_a_silent_machine_and_for_an_unknown_host() {
    let bench = Workbench::new();
    let library = bench.library("echo", ECHO);
    // The system drops what comes for a listener whose queue of connections is full, as for a machine that is off.
    let socket =
        rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None).expect("a socket can be made");
    rustix::net::bind(&socket, &SocketAddr::from(([127, 0, 0, 1], 0))).expect("there is a port");
    rustix::net::listen(&socket, 0).expect("it can listen");
    let listener = TcpListener::from(socket);
    let address = listener.local_addr().expect("it is bound");
    let mut queued = Vec::new();
    while let Ok(one) = TcpStream::connect_timeout(&address, Duration::from_millis(300)) {
        queued.push(one);
    }
    let waiting = |to: &str, wait: Duration, timeout: &str| {
        let wait_for_it = format!("{}ms", wait.as_millis());
        let args = ["--wait", &wait_for_it, "--timeout", timeout, "--transport", "tcp"];
        let begun = Instant::now();
        let done = finish(&mut bench.injecting(&library, to, &args));
        let waited = begun.elapsed();
        // The last pause ends no later than the wait.
        assert!(waited * 2 > wait && waited < wait + PATIENCE / 2, "{waited:?}: {}", done.err);
        done
    };
    let address = format!("tcp:{address}");
    waiting(&address, Duration::from_secs(1), "100ms").fails(4, &["a connection did not come in time"]);
    waiting(&address, Duration::from_millis(400), "60m").fails(4, &["a connection did not come in time"]);
    let unknown = waiting("tcp:no-such-host.invalid:1", Duration::from_secs(1), "10s");
    assert!(unknown.err.contains("no-such-host.invalid"), "{}", unknown.err);
}

#[test]
fn an_unknown_transport_is_refused_from_the_option_and_from_the_variable() {
    let bench = Workbench::new();
    let library = bench.library("echo", ECHO);
    let by_option = bench.inject(&library, &["--transport", "pigeon"]);
    let mut command = bench.farjump();
    command.args(["inject", "libecho.so", "--to", "unix:s"]).env("FARJUMP_TRANSPORT", "pigeon");
    for done in [by_option, finish(&mut command)] {
        done.fails(2, &["no transport `pigeon`: choose one of shm, "]);
    }
}

#[test]
fn inject_names_why_a_file_is_no_ifunc_library() {
    let bench = Workbench::new();
    bench.write("text.so", "no library");
    bench.plain_library("plain", "int x;");
    for (file, part) in [
        ("missing.so", "there is no file `./missing.so`"),
        ("text.so", "it is not an ELF file"),
        (".", "a directory, a device or a pipe"),
        ("libplain.so", "carries no images: was it built with `farjump build`?"),
    ] {
        bench.run(["inject", file, "--to", "unix:s"]).fails(1, &[part]);
    }
}

/// The library's tests have all ways to fail (`farjump/tests/links/{payloads,panics,code}.rs`).
#[test]
fn a_failed_call_names_its_reason_and_the_target_serves_on() {
    let bench = Workbench::new();
    let serving = bench.serve(&[]);
    let echo = bench.library("echo", ECHO);
    for (name, source, code, parts) in [
        (
            "fails",
            "FARJUMP_IFUNC void fails_main(void *p, size_t n, void *t) { farjump_reply(p, n); }
            FARJUMP_IFUNC size_t fails_payload_get_max_size(void *a, size_t n) { return 8; }
            FARJUMP_IFUNC int fails_payload_init(void *p, size_t n, void *a, size_t m) { return 7; }",
            1,
            &["the payload routine of `fails` failed with 7: nothing was sent"][..],
        ),
        (
            "gives_up",
            "FARJUMP_COPY_ARGS(gives_up)
            FARJUMP_IFUNC void gives_up_main(void *p, size_t n, void *t) { farjump_panic(\"no such column\", 14); }",
            3,
            &["`gives_up` panicked at the target: no such column"],
        ),
        (
            "typo",
            "FARJUMP_COPY_ARGS(typo)
            extern void memcopy(void *);
            FARJUMP_IFUNC void typo_main(void *p, size_t n, void *t) { memcopy(p); }",
            3,
            &["exports no `memcopy`", "did you mean memcpy?", "`farjump serve --export-library`"],
        ),
    ] {
        let library = bench.library(name, source);
        for _ in 0..2 {
            let done = bench.inject(&library, &[]);
            done.fails(code, parts);
            assert_eq!(done.out, b"", "{name}");
        }
        bench.inject(&echo, &[]).worked();
    }
    serving.stop().worked();
}

#[test]
fn killing_the_target_during_a_call_ends_inject_with_5() {
    let bench = Workbench::new();
    let library = bench.library("stuck", STUCK);
    let serving = bench.serve(&["--process-symbols"]);
    let injecting = Process::start(&mut bench.injecting(&library, &bench.address(), &["--timeout", "50s"]));
    assert_eq!(serving.line(), "stuck");
    assert_eq!(serving.kill().code, 128 + 9);
    injecting.finish().fails(5, &["is gone"]);
}

#[test]
fn a_call_to_a_paused_target_times_out_with_exit_code_4() {
    let bench = Workbench::new();
    let library = bench.library("echo", ECHO);
    let serving = bench.serve(&[]);
    serving.signal(Signal::STOP);
    let done = bench.inject(&library, &["--timeout", "300ms"]);
    done.fails(4, &["took too long", "perhaps because it runs a long function"]);
    serving.signal(Signal::CONT);
    bench.inject(&library, &["--args", "again"]).worked();
    serving.stop().worked();
}

#[test]
fn the_crc32_sample_in_rust_gives_the_independent_result() {
    let bench = Workbench::new();
    bench.write("data", "abracadabra");
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/../ifuncs/samples/rust/crc32.rs");
    bench.run(["build", source, "-o", "libcrc32.so"]).worked();
    let serving = bench.serve(&["--data", "data"]);
    let done = bench.inject(&bench.path("libcrc32.so"), &[]).worked();
    assert_eq!(done.out, crc32(b"abracadabra").to_le_bytes());
    serving.stop().worked();
}
