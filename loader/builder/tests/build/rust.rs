//! Ifuncs in Rust: the attributes of `farjump-ifunc`, in a file and in a crate.

use farjump_builder::build;
use farjump_builder::inspect::inspect;
use farjump_loader::{Library, Shape};

use crate::fixture::{Fixture, Target};

/// An ifunc that uses every attribute, without unsafe code.
const STORE: &str = "
use farjump_ifunc::{Plain, ifunc, imports, target_args};

#[target_args]
struct Store;

#[imports]
extern \"C\" {
    fn store_get(store: &Store, key: u64) -> u64;
}

#[derive(Plain)]
#[repr(C)]
struct Range {
    first: u64,
    count: u64,
}

#[ifunc(name = \"sum\")]
pub(crate) fn sum_range(range: &Range, store: &Store) -> u64 {
    (0..range.count).map(|offset| store_get(store, range.first + offset)).sum()
}
";

unsafe extern "C" fn store_get(store: *const u64, key: u64) -> u64 {
    // SAFETY: the test passes a word.
    unsafe { *store * key }
}

#[test]
fn an_author_needs_no_unsafe_code_in_a_file_or_crate() {
    let fixture = Fixture::new();
    let source = format!("#![no_std]\n#![forbid(unsafe_code)]\n#![deny(warnings)]\n{STORE}");
    let file = fixture.write("sum.rs", &source);
    let author = concat!(env!("CARGO_MANIFEST_DIR"), "/../../ifuncs/rust");
    let manifest = format!(
        "[package]\nname = \"stranger\"\nedition = \"2024\"\n\
         [dependencies]\nfarjump-ifunc = {{ path = \"{author}\" }}\n[workspace]\n"
    );
    fixture.write("stranger/Cargo.toml", &manifest);
    fixture.write("stranger/src/lib.rs", &source);
    for input in [file, fixture.path("stranger")] {
        let report = build(&fixture.options("sum", &[input])).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(report.messages, "", "nothing to warn of");
        let mut target = Target::offering("store_get", store_get as *const std::ffi::c_void);
        // SAFETY: the code declares it with this type.
        unsafe { target.resolver.exports_mut().insert("farjump_panic", std::process::abort as *const _) };
        let range: Vec<u8> = [3_u64, 3].into_iter().flat_map(u64::to_ne_bytes).collect();
        assert_eq!(target.run(&report, &range, &mut 10_u64), 120_u64.to_ne_bytes());

        let opened = Library::open(&report.library).unwrap();
        // SAFETY: built above.
        let loaded = unsafe { Library::load(&report.library) }.unwrap();
        for library in [opened, loaded] {
            let signature = library.signature().unwrap();
            assert_eq!(signature.arguments, Shape::One { size: 16, align: 8 });
            assert_eq!(signature.reply, Shape::One { size: 8, align: 8 });
            assert_eq!(signature.text, "fn sum_range(range: &Range, store: &Store) -> u64");
        }
        let text = inspect(&report.library).unwrap().to_string();
        assert!(text.contains("\n  function  fn sum_range(range: &Range, store: &Store) -> u64\n"), "{text}");
    }
}

/// A slice of any length is no part of the payload, which another process could write during the call.
#[test]
fn slices_and_values_are_copies_that_belong_to_the_call() {
    let fixture = Fixture::new();
    let source = "#![no_std]
use farjump_ifunc::{Plain, ifunc};
#[derive(Plain)] #[repr(transparent)] struct Long([u8; 999]);
#[ifunc] fn where_(TYPE: &TYPE_, payload: *mut u8) -> [u64; 2] {
    let at = (&raw const *TYPE).cast::<u8>().addr();
    [at.wrapping_sub(payload.addr()) as u64, size_of_val(TYPE) as u64]
}";
    for (kind, len) in
        [("[u8]", 1), ("[u16]", 256), ("[u16]", 258), ("[u8]", 70_000), ("u32", 4), ("Long", 999)]
    {
        let source = source.replace("TYPE_", kind).replace("TYPE", "value");
        let source = fixture.write("where_.rs", &source);
        let report = build(&fixture.options("where_", &[source])).unwrap_or_else(|error| panic!("{error}"));
        let mut target = Target::new();
        // SAFETY: the code declares it with this type.
        unsafe { target.resolver.exports_mut().insert("farjump_panic", std::process::abort as *const _) };
        let linked = target.hold(&report);
        let mut payload = vec![7_u8; len];
        let at = payload.as_mut_ptr();
        let reply = crate::fixture::replied(|| {
            // SAFETY: the code takes this payload, and its address.
            unsafe { (linked.main())(at.cast(), len, at.cast()) }
        });
        let [offset, size] = [0, 8].map(|at| usize::from_ne_bytes(*reply[at..].first_chunk().unwrap()));
        assert_eq!(size, len, "{kind}");
        assert!(offset >= len && offset.wrapping_add(len) > len, "{kind}: {offset} bytes from the payload");
    }
}

/// Checks that the build refuses each code with this text, at this column of its line.
fn refused(cases: &[(&str, &str, usize)]) {
    let fixture = Fixture::new();
    let mut source = String::from("#![no_std]\n");
    for (number, (code, ..)) in cases.iter().enumerate() {
        source += &format!("mod m{number} {{ use farjump_ifunc::*;\n{code}\n}}\n");
    }
    let refusal = fixture.refusal(build(&fixture.options("t", &[fixture.write("t.rs", &source)])));
    for (number, (code, text, column)) in cases.iter().enumerate() {
        let place = format!("t.rs:{}:{column}\n", 3 + 3 * number);
        let (before, _) =
            refusal.split_once(&place).unwrap_or_else(|| panic!("{code}: not at {place}: {refusal}"));
        let message = before.rsplit("error").next().unwrap_or_default();
        assert!(message.contains(text), "{code}: {message}");
    }
}

#[test]
fn invalid_attributes_are_refused_at_their_place_with_the_accepted_form() {
    refused(&[
        ("#[ifunc] fn t(a: &[u8], b: *mut u8, c: u8) {}", "at most two parameters", 37),
        ("#[ifunc] fn t<T>(a: &[T]) {}", "no type or lifetime parameters", 14),
        ("#[ifunc] unsafe fn t() {}", "not `unsafe fn`", 10),
        ("#[ifunc] struct T;", "#[ifunc] is for a function", 10),
        ("#[ifunc(size = 8)] fn t() {}", "#[ifunc] takes name =", 9),
        ("#[ifunc(name = \"a-b\")] fn t() {}", "`a-b` cannot be the name", 16),
        ("#[ifunc(payload(init = t))] fn t() {}", "a payload has two routines", 9),
        ("#[derive(Plain)] struct S(u8);", "write #[repr(C)]", 25),
        ("#[derive(Plain)] #[repr(C)] union U { a: u8 }", "for a struct", 29),
        ("#[derive(Plain)] #[repr(C)] struct S<T>(T);", "without parameters", 37),
        ("#[imports] fn f();", "a block of declarations", 12),
        ("#[imports] extern \"Rust\" { fn f(); }", "as C functions are", 19),
        ("#[imports] extern \"C\" { fn f() {} }", "an import has no body", 32),
        ("#[target_args] enum E { A }", "for a struct", 16),
        ("#[target_args(opaque)] struct S;", "takes no arguments", 15),
    ]);
}

#[test]
fn types_that_are_no_payload_reply_or_plain_data_are_refused() {
    // One at a time: some errors stop the compiler before it finds others.
    for case in [
        ("#[ifunc] fn t(_a: u64) {}", "`u64` is no type of a payload", 19),
        ("#[ifunc] fn t(_a: &[bool]) {}", "`&[bool]` is no type of a payload", 19),
        ("#[ifunc] fn t() -> bool { true }", "`bool` is no type of a reply", 20),
        ("struct S; #[ifunc] fn t(_: (), _s: &S) {}", "`&S` is no type of a target's arguments", 36),
        ("#[derive(Plain)] #[repr(C)] struct S(&'static u8);", "`&'static u8` is not plain data", 38),
        ("#[derive(Plain)] #[repr(C)] struct S(bool);", "`bool` is not plain data", 38),
        // The size of `usize` depends on the machine.
        ("#[ifunc] fn t(_a: &[usize]) {}", "`&[usize]` is no type of a payload", 19),
        ("#[derive(Plain)] #[repr(C)] struct S(usize);", "`usize` is not plain data", 38),
        ("#[derive(Plain)] #[repr(C)] struct S(u8, u16);", "has padding", 10),
        ("#[ifunc(payload_align = 24)] fn t() {}", "a power of two from 8 to 4096", 1),
        (
            "#[imports] extern \"C\" { fn f(at: *const u8); } fn t() { f(core::ptr::null()) }",
            "call to unsafe function `m0::f`",
            57,
        ),
    ] {
        refused(&[case]);
    }
}

#[test]
fn a_file_with_two_ifuncs_or_with_std_is_refused() {
    let fixture = Fixture::new();
    let refusal =
        |source: &str| fixture.refusal(build(&fixture.options("t", &[fixture.write("t.rs", source)])));
    let two = "#![no_std]\nuse farjump_ifunc::ifunc;\n#[ifunc] fn t() {}\n#[ifunc] fn u() {}";
    let text = refusal(two);
    assert!(text.contains("A file or crate has one #[ifunc]"), "{text}");
    let text = refusal("#[farjump_ifunc::ifunc] fn t() {}");
    assert!(text.contains("start the file with #![no_std]") && !text.contains("has one #[ifunc]"), "{text}");
}
