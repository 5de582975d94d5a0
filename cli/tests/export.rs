//! `export`: its output as text and as JSON, and its refusal by a target that does not allow it.

use serde_json::Value;

use crate::workbench::Workbench;

const PRICE: &str = "extern int price(void);
    FARJUMP_COPY_ARGS(quote)
    FARJUMP_IFUNC void quote_main(void *payload, size_t size, void *args)
    { int found = price(); (void)payload; (void)size; (void)args; farjump_reply(&found, sizeof found); }";

#[test]
fn a_library_changes_what_is_linked_later_and_what_is_linked_already_once_it_is_dropped() {
    let bench = Workbench::new();
    let quote = bench.library("quote", PRICE);
    let low = bench.plain_library("low", "int price(void) { return 10; }");
    let high = bench.plain_library("high", "int price(void) { return 99; }");
    let low = low.to_str().expect("a plain path");
    let serving = bench.serve(&["--export", low, "--allow", "observe,call,inject,drop", "--allow-export"]);
    let price = || bench.inject(&quote, &[]).worked().out;
    let address = bench.address();
    assert_eq!(price(), 10_i32.to_ne_bytes());
    let done = bench.run(["export".as_ref(), high.as_os_str(), "--to".as_ref(), address.as_ref()]).worked();
    assert_eq!(done.text(), format!("libhigh.so is offered by {address}, replacing no export\n"));
    assert_eq!(price(), 10_i32.to_ne_bytes(), "the code is linked already, for a new source too");
    bench.run(["store", "--to", &address, "--drop-all"]).worked();
    assert_eq!(price(), 99_i32.to_ne_bytes());
    let done = bench.run(["export", low, "--to", &address, "--json"]).worked();
    let told: Value = serde_json::from_slice(&done.out).expect("it is JSON");
    assert_eq!(told, serde_json::json!({ "exported": "liblow.so", "replaced": [] }));
    serving.stop();
}

#[test]
fn what_cannot_be_exported_is_told_with_what_to_do() {
    let bench = Workbench::new();
    let library = bench.plain_library("low", "int price(void) { return 10; }");
    let library = library.to_str().expect("a plain path");
    let serving = bench.serve(&[]);
    let address = bench.address();
    let done = bench.run(["export", library, "--to", &address]);
    assert!(
        done.error(3).contains("grant `observe,call,inject,export`")
            && done.error(3).contains("`farjump serve --allow`"),
        "{}",
        done.error(3)
    );
    let done = bench.run(["export", "no-such.so", "--to", &address]);
    assert!(done.error(1).contains("cannot read `no-such.so`"), "{}", done.error(1));
    serving.stop();
}
