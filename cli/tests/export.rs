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
    // The second copy's definition takes the place of the first one's.
    let printed = bench.json([&export[..], &["--json".as_ref()]].concat());
    assert_eq!(printed, serde_json::json!({ "exported": "libhigh.so", "replaced": ["price"] }));
    serving.stop();
}

#[test]
fn export_lists_each_replaced_name_whichever_library_offered_it() {
    let bench = Workbench::new();
    let quote = bench.library("quote", PRICE);
    let first = bench.plain_library("first", "int price(void) { return 1; } int left(void) { return 1; }");
    let second = bench.plain_library("second", "int price(void) { return 2; } int fresh(void) { return 2; }");
    let third =
        bench.plain_library("third", "int fresh(void) { return 3; } int price(void) { return fresh(); }");
    let started = first.to_str().expect("a plain path");
    let serving = bench.serve(&["--allow-export", "--export-library", started]);
    let address = bench.address();
    let export = |library: &std::path::Path, name: &str, replaced: &str| {
        let done = bench.run(["export".as_ref(), library.as_os_str(), "--to".as_ref(), address.as_ref()]);
        let expected = format!("{name} is offered by {address}, replacing {replaced}\n");
        assert_eq!(done.worked().text(), expected);
    };
    export(&second, "libsecond.so", "price");
    export(&third, "libthird.so", "fresh, price");
    assert_eq!(bench.inject(&quote, &[]).worked().out, 3_i32.to_ne_bytes());
    serving.stop();
}

#[test]
fn of_many_names_the_first_are_printed_and_the_rest_counted() {
    let bench = Workbench::new();
    let source: String =
        (0..1000).map(|number| format!("int f{number:03}(void) {{ return 0; }}\n")).collect();
    let many = bench.plain_library("many", &source);
    let serving = bench.serve(&["--allow-export", "--export-library", many.to_str().expect("a plain path")]);
    let address = bench.address();
    let export = ["export".as_ref(), many.as_os_str(), "--to".as_ref(), address.as_ref()];
    let listed = (0..12).map(|number| format!("f{number:03}")).collect::<Vec<_>>().join(", ");
    let expected = format!("libmany.so is offered by {address}, replacing {listed} and 988 more\n");
    assert_eq!(bench.run(export).worked().text(), expected);
    let printed = bench.json([&export[..], &["--json".as_ref()]].concat());
    let names = printed["replaced"].as_array().expect("a list");
    assert_eq!((names.len(), names[999].as_str()), (1000, Some("f999")));
    serving.stop();
}

#[test]
fn a_failed_export_names_the_missing_right_or_file() {
    let bench = Workbench::new();
    let library = bench.plain_library("low", "int price(void) { return 10; }");
    let library = library.to_str().expect("a plain path");
    let serving = bench.serve(&[]);
    let address = bench.address();
    bench.run(["export", library, "--to", &address]).fails(3, &["add `+export`", "`farjump serve --rights`"]);
    let done = bench.run(["export", "no-such.so", "--to", &address]);
    assert!(done.error(1).contains("cannot read `no-such.so`"), "{}", done.error(1));
    serving.stop();
}
