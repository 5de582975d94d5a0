//! Functions that make code, and what they may not: the sample `filter`, and text that is no code.

use std::fs;
use std::path::PathBuf;

use crate::bitcode::llvms;
use crate::workbench::Workbench;

/// Columns of a row.
const COLUMNS: usize = 4;

/// Returns rows of numbers that differ between rows and columns, some of them negative.
fn rows() -> Vec<[i32; COLUMNS]> {
    let mut state = 7_u32;
    let mut number = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 16) as i32 % 2001 - 1000
    };
    (0..5000).map(|_| [(); COLUMNS].map(|()| number())).collect()
}

/// An expression, and what it means here.
type Meaning = (&'static str, fn([i32; COLUMNS]) -> bool);

const EXPRESSIONS: [Meaning; 9] = [
    ("1", |_| true),
    ("a - a", |_| false),
    ("a > 100 && (b + c) * 2 <= d", |[a, b, c, d]| a > 100 && (b + c) * 2 <= d),
    ("a == b || !c", |[a, b, c, _]| a == b || c == 0),
    ("-a*3-b >= c", |[a, b, c, _]| -a * 3 - b >= c),
    ("(a < b) + (b < c) + (c < d) == 2", |[a, b, c, d]| {
        i32::from(a < b) + i32::from(b < c) + i32::from(c < d) == 2
    }),
    ("a*a*a*a*a != b*b*b*b*b", |[a, b, ..]| {
        let fifth = |n: i32| n.wrapping_mul(n).wrapping_mul(n).wrapping_mul(n).wrapping_mul(n);
        fifth(a) != fifth(b)
    }),
    ("a || b && c || d", |[a, b, c, d]| a != 0 || (b != 0 && c != 0) || d != 0),
    ("!(a >= 0) == (b != 2147483647)", |[a, b, ..]| (a < 0) == (b != i32::MAX)),
];

/// Returns the library of the sample, and its data.
fn filter(bench: &Workbench) -> PathBuf {
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/../ifuncs/samples/c/filter.c");
    bench.run(["build", source, "-o", "libfilter.so"]).worked();
    let bytes: Vec<u8> = rows().iter().flatten().flat_map(|number| number.to_le_bytes()).collect();
    fs::write(bench.path("rows"), bytes).expect("the rows are written");
    bench.path("libfilter.so")
}

#[test]
fn an_expression_becomes_code_that_counts_what_the_interpreter_counts() {
    let bench = Workbench::new();
    let library = filter(&bench);
    let llvms = llvms();
    assert!(!llvms.is_empty(), "the Rust toolchain has an LLVM");
    for llvm in llvms {
        let serving = bench.serve(&["--data", "rows", "--bitcode", "--llvm", &llvm, "--allow-making"]);
        for (text, meaning) in EXPRESSIONS {
            let expected = rows().into_iter().filter(|row| meaning(*row)).count().to_string();
            for (how, repeat) in [("i", "1"), ("c", "1"), ("c", "20")] {
                let args = format!("{how}{COLUMNS} {text}");
                let counted = bench
                    .inject(&library, &["--args", &args, "--format", "u64", "--repeat", repeat])
                    .worked();
                assert_eq!(counted.text().trim(), expected, "{llvm}: {args}");
            }
        }
        let store = bench.json(["store", "--to", &bench.address(), "--json"]);
        let images = store["images"].as_array().expect("a list");
        assert_eq!(images.len(), 1 + EXPRESSIONS.len(), "each expression was made once: {store}");
        let made = images
            .iter()
            .filter(|image| image["source"].as_str().is_some_and(|by| by.starts_with("`filter` (")));
        assert_eq!(made.count(), EXPRESSIONS.len(), "{store}");
        serving.stop().worked();
    }
    bench.is_clean();
}

#[test]
fn a_target_makes_no_code_unless_allowed_and_names_the_reason() {
    let bench = Workbench::new();
    let library = filter(&bench);
    let call = |args: &str| bench.inject(&library, &["--args", args, "--format", "u64"]);
    for (options, words) in [
        (&["--bitcode"][..], "lets no function make code: start it with --allow-making"),
        (&["--allow-making"], "it is bitcode, which this target does not take"),
        (&["--allow-making", "--bitcode", "--max-image", "6000"], ""),
    ] {
        let serving = bench.serve(&[&["--data", "rows"], options].concat());
        call("i4 1").worked();
        match words {
            "" => drop(call("c4 1").worked()),
            words => call("c4 1").fails(3, &[words]),
        }
        // Mistakes in the expression are the function's own.
        call("c4 a >").fails(3, &["where a number, a column or a `(` belongs"]);
        call("c2 d").fails(3, &["where a number"]);
        call("i4 1").worked();
        serving.stop().worked();
    }
    bench.is_clean();
}

/// A function that makes code of its payload: text in LLVM's language.
const MAKER: &str = "#include <farjump_code.h>\nFARJUMP_COPY_ARGS(maker)\n\
    FARJUMP_IFUNC void maker_main(void *p, size_t n, void *a) { (void)a; static uint8_t code[70000]; uint8_t id[16];\n\
    if (n > 65000) n = 65000; int made = farjump_make(code, farjump_text_code(code, \"made\", 4, p, n), id);\n\
    if (made != 0 || farjump_inject(id, 0, 0, \"payload\", 7) != 0) farjump_panic(\"no\", 2); }\n";

#[test]
fn making_code_refuses_invalid_text_and_runs_valid_text() {
    let bench = Workbench::new();
    bench.write("maker.c", MAKER);
    bench.run(["build", "maker.c", "-o", "libmaker.so"]).worked();
    let library = bench.path("libmaker.so");
    for llvm in llvms() {
        let serving = bench.serve(&["--bitcode", "--llvm", &llvm, "--allow-making"]);
        let call = |text: &str| bench.inject(&library, &["--args", text, "--format", "raw"]);
        let echo = "declare i32 @farjump_reply(ptr, i64)\n\
            define void @made_main(ptr %p, i64 %n, ptr %a) {\n  %1 = call i32 @farjump_reply(ptr %p, i64 %n)\n  ret void\n}\n";
        assert_eq!(call(echo).worked().text(), "payload");
        for (text, words) in [
            ("no code at all", &["LLVM cannot read its text", "expected top-level entity"][..]),
            ("; nothing", &["it has no function `made_main`"]),
            ("", &["LLVM cannot read it"]),
            (&echo.replace("i64 %n)\n  ret", "i64 %x)\n  ret"), &["use of undefined value '%x'"]),
            (&echo.replace("farjump_reply", "system"), &["it exports no `system`"]),
            (
                &format!("target triple = \"avr-unknown-none\"\n{echo}"),
                &["its code is for `avr-unknown-none`"],
            ),
            (
                &echo.replace("ret void", "unreachable\n}\n@x = global i32 0, align 999999999999\n{"),
                &["LLVM"],
            ),
        ] {
            call(text).fails(3, words);
        }
        assert_eq!(call(echo).worked().text(), "payload");
        serving.stop().worked();
    }
    bench.is_clean();
}
