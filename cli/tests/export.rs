//! `export`: its output as text and as JSON, and its refusal by a target that does not allow it.

use crate::workbench::Workbench;

const PRICE: &str = "extern int price(void);
    FARJUMP_COPY_ARGS(quote)
    FARJUMP_IFUNC void quote_main(void *payload, size_t size, void *args)
    { int found = price(); (void)payload; (void)size; (void)args; farjump_reply(&found, sizeof found); }";

/// The library's tests have what becomes of code that is linked already (`farjump/tests/links/exports.rs`).
#[test]
fn a_library_is_exported_and_what_it_replaced_is_printed() {
    let bench = Workbench::new();
    let quote = bench.library("quote", PRICE);
    let high = bench.plain_library("high", "int price(void) { return 99; }");
    let serving = bench.serve(&["--allow-export"]);
    let address = bench.address();
    let export = ["export".as_ref(), high.as_os_str(), "--to".as_ref(), address.as_ref()];
    let done = bench.run(export).worked();
    assert_eq!(done.text(), format!("libhigh.so is offered by {address}, replacing no export\n"));
    assert_eq!(bench.inject(&quote, &[]).worked().out, 99_i32.to_ne_bytes());
    let printed = bench.json([&export[..], &["--json".as_ref()]].concat());
    assert_eq!(printed, serde_json::json!({ "exported": "libhigh.so", "replaced": [] }));
    serving.stop();
}

#[test]
fn what_cannot_be_exported_is_told_with_what_to_do() {
    let bench = Workbench::new();
    let library = bench.plain_library("low", "int price(void) { return 10; }");
    let library = library.to_str().expect("a plain path");
    let serving = bench.serve(&[]);
    let address = bench.address();
    bench
        .run(["export", library, "--to", &address])
        .fails(3, &["grant `observe,call,inject,export`", "`farjump serve --allow`"]);
    let done = bench.run(["export", "no-such.so", "--to", &address]);
    assert!(done.error(1).contains("cannot read `no-such.so`"), "{}", done.error(1));
    serving.stop();
}
