//! Libraries wanted by code, in `build`, `inspect`, `serve` and `inject`: opened by a target that lists them.

use std::process::Command;

use crate::workbench::{Process, Workbench, finish, start_target};

const SONAME: &str = "libfarjump-prices.so.3";
/// Leaves a file at a given place when it is opened.
const LIBRARY: &str = r#"
#include <stdio.h>
#include <stdlib.h>
__attribute__((constructor)) static void begin(void)
{
    FILE *file = fopen(getenv("OPENED"), "a");
    if (file) { fputs("opened\n", file); fclose(file); }
}
int price(void) { return 42; }
"#;
const QUOTE: &str = "extern int price(void);
    FARJUMP_COPY_ARGS(quote)
    FARJUMP_IFUNC void quote_main(void *payload, size_t size, void *args)
    { int found = price(); (void)payload; (void)size; (void)args; farjump_reply(&found, sizeof found); }";

/// Returns a fixture with the library, and an ifunc library that wants it.
fn bench() -> (Workbench, std::path::PathBuf) {
    let bench = Workbench::new();
    let source = bench.write("prices.c", LIBRARY);
    let library = bench.path(SONAME);
    let soname = format!("-Wl,-soname,{SONAME}");
    let mut cc = Command::new("cc");
    finish(cc.args(["-shared", "-fPIC", &soname, "-o"]).arg(&library).arg(source)).worked();
    std::os::unix::fs::symlink(SONAME, bench.path("libfarjump-prices.so")).expect("a link can be made");
    let quote = bench.write("quote.c", format!("#include <farjump_ifunc.h>\n{QUOTE}"));
    let output = bench.path("libquote.so");
    let search = format!("-L{}", bench.path("").display());
    // The image wants neither libraries used by payload routines alone nor those of every process.
    let flags = [&*search, "-lfarjump-prices", "-lm", "-pthread"].map(|flag| ["--cflag", flag]).concat();
    let (quote, output_text) = (quote.to_str().expect("plain"), output.to_str().expect("plain"));
    let report = bench.json([&["build", quote, "-o", output_text, "--json"], &flags[..]].concat());
    assert_eq!(report["images"][0]["wanted"], serde_json::json!([SONAME]));
    let shown = bench.run(["inspect", output_text]).worked();
    assert!(shown.text().ends_with(&format!("  wants     {SONAME}\n")), "{}", shown.text());
    (bench, output)
}

fn serve(bench: &Workbench, args: &[&str]) -> Process {
    let mut command = bench.serving(args);
    command.env("LD_LIBRARY_PATH", bench.path("")).env("OPENED", opened(bench));
    start_target(&mut command).0
}

fn opened(bench: &Workbench) -> std::path::PathBuf {
    bench.path("opened")
}

fn times_opened(bench: &Workbench) -> usize {
    std::fs::read_to_string(opened(bench)).unwrap_or_default().lines().count()
}

#[test]
fn a_wanted_library_is_opened_once_and_only_if_listed() {
    let (bench, quote) = bench();
    let serving = serve(&bench, &["--wanted-library", "libfarjump-prices.so"]);
    bench
        .inject(&quote, &[])
        .fails(3, &["`price`", SONAME, "have the target open it (`farjump serve --wanted-library`)"]);
    serving.stop();
    assert_eq!(times_opened(&bench), 0);

    let serving = serve(&bench, &["--wanted-library", SONAME]);
    assert_eq!(times_opened(&bench), 0, "nothing wants it yet");
    for _ in 0..2 {
        assert_eq!(bench.inject(&quote, &[]).worked().out, 42_i32.to_ne_bytes());
        assert_eq!(times_opened(&bench), 1);
    }
    serving.stop();

    let own = bench.plain_library("own", "int price(void) { return 7; }");
    let own = own.to_str().expect("a plain path");
    let serving = serve(&bench, &["--wanted-library", SONAME, "--export", own]);
    assert_eq!(bench.inject(&quote, &[]).worked().out, 7_i32.to_ne_bytes(), "what is offered goes first");
    serving.stop();
    assert_eq!(times_opened(&bench), 1);
}

#[test]
fn a_wanted_library_that_is_no_soname_is_refused() {
    let bench = Workbench::new();
    for name in ["./libz.so.1", "/lib/libz.so.1", "", "lib z.so"] {
        bench
            .run(["serve", "--listen", &bench.address(), "--wanted-library", name])
            .fails(1, &[&format!("{name:?} is no soname")]);
    }
}
