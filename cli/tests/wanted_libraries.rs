//! Libraries wanted by code, in `build`, `inspect`, `serve` and `inject`: opened by a target that lists them.

use std::process::Command;

use crate::workbench::{Process, Workbench, finish, start_target};

const SONAME: &str = "libfarjump-prices.so.3";
const LIBRARY: &str = "int price(void) { return 42; }\n";
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
    start_target(bench.serving(args).env("LD_LIBRARY_PATH", bench.path(""))).0
}

#[test]
fn code_finds_a_wanted_library_only_if_the_target_lists_it() {
    let (bench, quote) = bench();
    let serving = serve(&bench, &["--wanted-library", "libfarjump-prices.so"]);
    bench
        .inject(&quote, &[])
        .fails(3, &["`price`", SONAME, "have the target open it (`farjump serve --wanted-library`)"]);
    serving.stop();
    let _serving = serve(&bench, &["--wanted-library", SONAME]);
    assert_eq!(bench.inject(&quote, &[]).worked().out, 42_i32.to_ne_bytes());
}

#[test]
fn a_wanted_library_that_is_no_soname_is_refused() {
    let bench = Workbench::new();
    bench
        .run(["serve", "--listen", &bench.address(), "--wanted-library", "./libz.so.1"])
        .fails(1, &["\"./libz.so.1\" is no soname"]);
}
