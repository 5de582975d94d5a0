//! `inject`: replies, figures and failures.

use std::io::Write;
use std::process::Stdio;

use farjump_loader::bundle::{Bundle, BundleImage, Sizes};
use rustix::process::Signal;
use serde_json::Value;

use crate::serve::STUCK;
use crate::workbench::{Watched, Workbench, finish};

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
fn the_reply_goes_to_standard_output_as_it_is_and_equals_an_independent_answer() {
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
    let serving = bench.serve(&["--mode", "always,local", "--local", "libecho.so"]);
    for (mode, with_code) in [("always", 3), ("local", 0)] {
        let args = ["--mode", mode, "--args", mode, "--repeat", "3", "--json"];
        let done = bench.inject(&library, &args).worked();
        assert_eq!(done.text(), mode);
        let figures = figures(&done.err);
        assert_eq!((&figures["mode"], &figures["frames"]), (&mode.into(), &3.into()));
        assert_eq!(figures["frames_with_code"], with_code, "{mode}");
    }
    let refused = bench.inject(&library, &["--repeat", "2"]);
    let text = refused.error(3);
    assert!(text.contains("only always, local") && text.contains("serve --mode`"), "{text}");
    // The target lacks this function.
    let other = bench.library("other", &ECHO.replace("echo", "other"));
    let refused = bench.inject(&other, &["--mode", "local"]);
    let text = refused.error(3);
    assert!(text.contains("`other`") && text.contains("--local"), "{text}");
    let done = serving.stop().worked();
    assert!(done.err.contains("2 frames refused"), "{}", done.err);
}

#[test]
fn figures_count_what_was_sent_and_code_travels_once() {
    let bench = Workbench::new();
    let library = bench.library("echo", ECHO);
    let report = bench.run(["inspect", "libecho.so", "--json"]).worked();
    let report: Value = serde_json::from_slice(&report.out).expect("it is JSON");
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
    assert_eq!(first["target_pid"], serving.pid());
    let number = |name: &str| first[name].as_f64().unwrap_or_else(|| panic!("{name} in {first}"));
    assert!(number("link_us") > 0.0 && number("link_us") < number("first_call_us"), "{first}");
    assert!(number("later_call_us") > 0.0);
    // Another source; the target has its code already and does not link again.
    let second = figures(&bench.inject(&library, &["--json"]).worked().err);
    assert_eq!((&second["link_us"], &second["later_call_us"]), (&Value::Null, &Value::Null));
    let done = serving.stop().worked();
    assert!(done.err.contains("6 calls, 1 images linked"), "{}", done.err);
}

#[test]
fn arguments_come_from_a_file_or_from_standard_input() {
    let bench = Workbench::new();
    let library = bench.library("echo", ECHO);
    let serving = bench.serve(&[]);
    let bytes: Vec<u8> = (0..=255).collect();
    bench.write("args", &bytes);
    assert_eq!(bench.inject(&library, &["--args-file", "args"]).worked().out, bytes);
    let address = bench.address();
    let mut command = bench.farjump();
    command.arg("inject").arg(&library).args(["--to", &address, "--args-file", "-"]);
    let (read, mut write) = std::io::pipe().expect("a pipe can be made");
    command.stdin(read).stdout(Stdio::piped()).stderr(Stdio::piped());
    let process = Watched::start(&mut command);
    drop(command);
    write.write_all(b"from standard input").expect("it reads");
    drop(write);
    assert_eq!(process.finish().worked().text(), "from standard input");
    let done = bench.inject(&library, &["--args-file", "missing"]);
    assert!(done.error(1).contains("cannot read the arguments from `missing`"), "{}", done.err);
    assert_eq!(bench.inject(&library, &["--args", "--help"]).worked().text(), "--help");
    serving.stop().worked();
}

#[test]
fn where_nobody_listens_it_ends_with_5_and_says_how_to_start_a_target() {
    let bench = Workbench::new();
    let library = bench.library("echo", ECHO);
    let done = bench.inject(&library, &[]);
    assert!(
        done.error(5).contains("no target listens on") && done.err.contains("farjump serve"),
        "{}",
        done.err
    );
    let done = bench.run(["inject", "libecho.so", "--to", "store.sock"]);
    assert!(done.error(1).contains("write unix:PATH"), "{}", done.err);
}

#[test]
fn an_unknown_transport_is_refused_from_the_option_and_from_the_variable() {
    let bench = Workbench::new();
    let library = bench.library("echo", ECHO);
    let by_option = bench.inject(&library, &["--transport", "pigeon"]);
    let mut command = bench.farjump();
    command.args(["inject", "libecho.so", "--to", "unix:s"]).env("FARJUMP_TRANSPORT", "pigeon");
    for done in [by_option, finish(&mut command)] {
        assert!(done.error(1).contains("no transport `pigeon`: choose one of shm, "), "{}", done.err);
    }
}

#[test]
fn files_that_are_no_ifunc_libraries_are_told_apart() {
    let bench = Workbench::new();
    bench.write("text.so", "no library");
    bench.plain_library("plain", "int x;");
    for (file, part) in [
        ("missing.so", "there is no file `./missing.so`"),
        ("text.so", "it is not an ELF file"),
        (".", "a directory or a device"),
        ("libplain.so", "carries no images: was it built with `farjump build`?"),
    ] {
        let done = bench.run(["inject", file, "--to", "unix:s"]);
        assert!(done.error(1).contains(part), "{}", done.err);
    }
}

/// C source of a library with `name`, the image that `farjump build` made of [`ECHO`], and these definitions.
fn crafted(bench: &Workbench, library: &str, name: &str, definitions: &str) -> std::path::PathBuf {
    bench.write("echo.c", format!("#include <farjump_ifunc.h>\n{ECHO}"));
    let built = farjump::build::build(&farjump::build::Options {
        inputs: vec![bench.path("echo.c")],
        output: bench.path("libecho.so"),
        ..Default::default()
    })
    .expect("it is built");
    let image = BundleImage { sizes: Sizes::default(), bytes: &built.image };
    // A stand-in of the same length can be encoded; `name` then replaces it.
    let stand_in = "x".repeat(name.len());
    let mut bundle = Bundle { name: &stand_in, images: vec![image] }.encode().expect("a bundle");
    bundle[12..12 + name.len()].copy_from_slice(name.as_bytes());
    let bytes = bundle.iter().map(|byte| byte.to_string()).collect::<Vec<_>>().join(",");
    let source = format!(
        "#include <stddef.h>
        __attribute__((aligned(64))) const unsigned char farjump_bundle[] = {{{bytes}}};
        {definitions}"
    );
    bench.plain_library(library, &source)
}

#[test]
fn a_library_without_its_main_routine_is_refused_with_the_routine() {
    let bench = Workbench::new();
    let library = crafted(
        &bench,
        "nomain",
        "echo",
        "size_t echo_payload_get_max_size(void *a, size_t n) { return n; }",
    );
    let done = bench.inject(&library, &[]);
    assert!(done.error(1).contains("has no routine `echo_main`"), "{}", done.err);
}

#[test]
fn a_library_whose_name_is_a_path_is_refused() {
    let bench = Workbench::new();
    for (file, name) in [("slash", "a/b"), ("dots", ".."), ("up", "../up")] {
        let library = crafted(&bench, file, name, "");
        let done = bench.inject(&library, &[]);
        assert!(done.error(1).contains("an ifunc's name is a C identifier"), "{}", done.err);
    }
}

#[test]
fn payload_routines_that_fail_or_overrun_send_nothing_and_the_target_serves_on() {
    let bench = Workbench::new();
    let routine = |name: &str, body: &str| {
        bench.library(
            name,
            &format!(
                "FARJUMP_IFUNC void {name}_main(void *p, size_t n, void *t) {{ farjump_reply(p, n); }}
                FARJUMP_IFUNC size_t {name}_payload_get_max_size(void *a, size_t n) {{ return 8; }}
                {body}"
            ),
        )
    };
    let fails = routine(
        "fails",
        "FARJUMP_IFUNC int fails_payload_init(void *p, size_t n, void *a, size_t m) { return 7; }",
    );
    let overruns = routine(
        "overruns",
        "FARJUMP_IFUNC int overruns_payload_init(void *p, size_t n, void *a, size_t m)
        { for (size_t i = 0; i < n + 1; i++) ((volatile char *)p)[i] = 1; return 0; }",
    );
    let claims = routine(
        "claims",
        "FARJUMP_IFUNC int claims_payload_init_shrink(void *p, size_t *n, void *a, size_t m) { *n = 9; return 0; }",
    );
    let serving = bench.serve(&[]);
    for (library, part) in [
        (fails, "the payload routine of `fails` failed with 7: nothing was sent"),
        (overruns, "`overruns_payload_init` wrote past the 8 bytes"),
        (claims, "`claims` reports 9 bytes in a buffer of 8"),
    ] {
        let done = bench.inject(&library, &[]);
        assert!(done.error(1).contains(part), "{}", done.err);
    }
    bench.inject(&bench.library("echo", ECHO), &[]).worked();
    let done = serving.stop().worked();
    assert!(done.err.contains("1 calls"), "{}", done.err);
}

#[test]
fn a_function_that_panics_ends_with_3_and_its_message_and_the_target_serves_on() {
    let bench = Workbench::new();
    let library = bench.library(
        "gives_up",
        "FARJUMP_COPY_ARGS(gives_up)
        FARJUMP_IFUNC void gives_up_main(void *p, size_t n, void *t) { farjump_panic(\"no such column\", 14); }",
    );
    let serving = bench.serve(&[]);
    for _ in 0..2 {
        let done = bench.inject(&library, &[]);
        assert!(done.error(3).contains("`gives_up` panicked at the target: no such column"), "{}", done.err);
        assert_eq!(done.out, b"");
    }
    bench.inject(&bench.library("echo", ECHO), &[]).worked();
    serving.stop().worked();
}

#[test]
fn an_import_that_is_not_offered_is_named_with_what_was_probably_meant() {
    let bench = Workbench::new();
    let library = bench.library(
        "typo",
        "FARJUMP_COPY_ARGS(typo)
        extern void memcopy(void *);
        FARJUMP_IFUNC void typo_main(void *p, size_t n, void *t) { memcopy(p); }",
    );
    let serving = bench.serve(&[]);
    let done = bench.inject(&library, &[]);
    let error = done.error(3);
    assert!(error.contains("exports no `memcopy`") && error.contains("did you mean memcpy?"), "{error}");
    assert!(error.contains("`farjump serve --export`"), "{error}");
    serving.stop().worked();
}

#[test]
fn a_target_that_is_killed_while_a_function_runs_ends_the_wait_with_5() {
    let bench = Workbench::new();
    let library = bench.library("stuck", STUCK);
    let serving = bench.serve(&["--allow-process-symbols"]);
    let address = bench.address();
    let mut command = bench.farjump();
    command.arg("inject").arg(&library).args(["--to", &address, "--timeout", "50s"]);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let injecting = Watched::start(&mut command);
    assert_eq!(serving.line(), "stuck");
    assert_eq!(serving.kill().code, 128 + 9);
    let done = injecting.finish();
    assert!(done.error(5).contains("is gone"), "{}", done.err);
}

#[test]
fn a_target_that_does_not_answer_ends_with_4() {
    let bench = Workbench::new();
    let library = bench.library("echo", ECHO);
    let serving = bench.serve(&[]);
    serving.signal(Signal::STOP);
    let done = bench.inject(&library, &["--timeout", "300ms"]);
    assert!(done.error(4).contains("took too long"), "{}", done.err);
    serving.signal(Signal::CONT);
    bench.inject(&library, &["--args", "again"]).worked();
    serving.stop().worked();
}

#[test]
fn a_target_that_restarted_gets_the_code_again() {
    let bench = Workbench::new();
    let library = bench.library("echo", ECHO);
    for _ in 0..2 {
        let serving = bench.serve(&[]);
        let done = bench.inject(&library, &["--args", "hello", "--json"]).worked();
        assert_eq!((done.text(), &figures(&done.err)["frames_with_code"]), ("hello", &1.into()));
        serving.stop().worked();
    }
}

#[test]
fn a_rust_function_answers_as_the_c_function_does() {
    let bench = Workbench::new();
    bench.write("data", "abracadabra");
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/../ifuncs/samples/rust/crc32.rs");
    bench.run(["build", source, "-o", "libcrc32.so"]).worked();
    let serving = bench.serve(&["--data", "data"]);
    let done = bench.inject(&bench.path("libcrc32.so"), &[]).worked();
    assert_eq!(done.out, crc32(b"abracadabra").to_le_bytes());
    serving.stop().worked();
}
