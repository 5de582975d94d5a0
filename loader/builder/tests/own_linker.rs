//! farjump's own linker: images of all kinds of objects run on their machine, and a refusal names the object and the
//! symbol.

#[path = "fixture/mod.rs"]
mod fixture;

use std::ffi::c_void;
use std::path::PathBuf;

use crate::fixture::{CLANG, Fixture, Target, imports};
use farjump_builder::{BuildReport, OWN, Options, build};
use farjump_core::image::ImageView;
use farjump_tools::all_work;

/// Tables of addresses, a switch, numbers of floating point, functions of both languages, and variables of all kinds.
const MAIN: &str = r#"
#include <farjump_ifunc.h>
FARJUMP_COPY_ARGS(t)
int both;                                /* common, with -fcommon: the larger one counts */
int *at_both = &both;
extern int table_of_target[8];
extern int offered(int);
extern void not_offered(void) __attribute__((weak));
int shared = 40;                         /* reached by its GOT slot where the model says so */
extern int from_archive(int);
extern int of_cxx(int);
extern int inlined_elsewhere(int);
__attribute__((weak)) int overridden(void) { return 1; }
static int (*const functions[])(int) = { from_archive, of_cxx, offered };
static const char *const words[] = { "zero", "one", "two", "three", "four" };
static const double factors[] = { 0.5, 2.25, 1e3 };
static int *const last = &table_of_target[7];
__attribute__((noinline, aligned(64))) static int chosen(int n)
{
    switch (n) {
    case 0: return 11; case 1: return -3; case 2: return 500; case 3: return 7; case 4: return 123456;
    case 5: return 99; case 6: return 1 << 20; case 7: return 31; default: return both;
    }
}
FARJUMP_IFUNC void t_main(void *payload, size_t size, void *target_args)
{
    long *out = target_args;
    const unsigned char *bytes = payload;
    for (size_t i = 0; i < size; i++) {
        *at_both += bytes[i];
        out[0] = out[0] * 3 + chosen(bytes[i]);
        out[1] += functions[i % 3](bytes[i]);
        out[2] += words[bytes[i] % 5][0];
        out[3] += (long)(factors[i % 3] * bytes[i]);
    }
    shared += 2;
    out[4] = shared;
    out[5] = *last + (not_offered != 0);
    out[6] = overridden() + inlined_elsewhere((int)size);
    out[7] = both;
}
"#;
const HELP: &str = "int both; int overridden(void) { return 2; }\n";
const ARCHIVED: &str = "int weight(int); int from_archive(int n) { return n + weight(n); }\n";
const WEIGHT: &str = "static int calls; int weight(int n) { return n * ++calls; }\n";
const UNUSED: &str =
    "int heavy[100000] = { 1 }; extern int nobody_has(void); int heavy_one(void) { return nobody_has(); }\n";
/// Two objects have the inline function and its variable: the linker keeps one of each.
const CXX: &str = "inline int counted(int n) { static int calls = 5; return n + calls++; }\n\
    template <typename T> struct Twice { static T of(T n) { return n * 2; } };\n";

static TABLE: [i32; 8] = [10, 11, 12, 13, 14, 15, 16, 17];

extern "C" fn offered(number: i32) -> i32 {
    number + 1
}

/// The result of two calls with all bytes from 0 to 8.
fn result(report: &BuildReport) -> [i64; 8] {
    let mut target = Target::offering("table_of_target", (&raw const TABLE).cast());
    // SAFETY: the code declares it with this type.
    unsafe { target.resolver.exports_mut().insert("offered", offered as *const c_void) };
    // SAFETY: the code declares it with this type.
    unsafe { target.resolver.exports_mut().insert("memcpy", libc::memcpy as *const c_void) };
    let _held = target.hold(report);
    let mut out = [0_i64; 8];
    for _ in 0..2 {
        target.run(report, &[0, 1, 2, 3, 4, 5, 6, 7, 8], &mut out);
    }
    out
}

/// The expected result, computed in Rust.
fn expected() -> [i64; 8] {
    let (mut out, mut both, mut shared, mut weighed, mut counted) = ([0_i64; 8], 0, 40, 0, 5);
    for _ in 0..2 {
        for (i, byte) in (0..=8_i32).enumerate() {
            both += i64::from(byte);
            let chosen = [11, -3, 500, 7, 123_456, 99, 1 << 20, 31, both][byte as usize];
            out[0] = out[0].wrapping_mul(3) + chosen;
            out[1] += i64::from(match i % 3 {
                0 => {
                    weighed += 1;
                    byte + byte * weighed
                }
                1 => {
                    counted += 1;
                    2 * byte + counted - 1
                }
                _ => byte + 1,
            });
            out[2] += i64::from(["z", "o", "t", "t", "f"][byte as usize % 5].as_bytes()[0]);
            out[3] += ([0.5, 2.25, 1e3][i % 3] * f64::from(byte)) as i64;
        }
        shared += 2;
        counted += 1;
        (out[4], out[5], out[6], out[7]) = (shared, 17, 2 + 9 + i64::from(counted) - 1, both);
    }
    out
}

/// The objects of the sources, and an archive, compiled with `flags`.
fn objects(fixture: &Fixture, flags: &[&str]) -> Vec<PathBuf> {
    let cxx = format!("{CXX}extern \"C\" int of_cxx(int n) {{ return counted(Twice<int>::of(n)); }}\n");
    let other = format!("{CXX}extern \"C\" int inlined_elsewhere(int n) {{ return counted(n); }}\n");
    let include = concat!("-I", env!("CARGO_MANIFEST_DIR"), "/../../ifuncs/include");
    let sources = [
        ("main.c", MAIN),
        ("help.c", HELP),
        ("cxx.cpp", &cxx),
        ("other.cpp", &other),
        ("archived.c", ARCHIVED),
        ("weight.c", WEIGHT),
        ("unused.c", UNUSED),
    ];
    let mut made = Vec::new();
    for (file, text) in sources {
        fixture.write(file, text);
        let output = format!("{file}.o");
        let compiler = if file.ends_with(".c") { "cc" } else { "c++" };
        let own = [
            "-c",
            "-fPIC",
            "-fno-exceptions",
            "-fno-asynchronous-unwind-tables",
            include,
            file,
            "-o",
            &output,
        ];
        let common: &[&str] = if file.ends_with(".c") { &["-fcommon"] } else { &[] };
        fixture.run(compiler, &[&own[..], common, flags].concat());
        made.push(output);
    }
    let archived = made.split_off(4);
    let members: Vec<&str> = archived.iter().map(String::as_str).collect();
    fixture.run("ar", &[&["rcs", "libhelp.a"][..], &members].concat());
    made.iter().map(|file| fixture.path(file)).chain([fixture.path("libhelp.a")]).collect()
}

#[test]
fn tables_switches_inline_functions_common_variables_and_archives_work() {
    if !all_work(&["c++"]) {
        return;
    }
    let machine: &[&[&str]] = match std::env::consts::ARCH {
        "x86_64" => &[&["-O2", "-fplt"], &["-O2", "-mcmodel=medium"]],
        "aarch64" => {
            &[&["-O2", "-mcmodel=small"], &["-Os", "-mcmodel=small", "-mbranch-protection=standard"]]
        }
        _ => &[&["-O2", "-mno-relax"], &["-O2", "-march=rv64g", "-mabi=lp64d"]],
    };
    let all: [&[&str]; 4] = [&["-O0"], &["-O2", "-g"], &["-Os"], &["-O2", "-fno-plt", "-ffunction-sections"]];
    for flags in all.iter().chain(machine) {
        let fixture = Fixture::new();
        let inputs = objects(&fixture, flags);
        for linker in [Some(OWN.into()), None] {
            let options = Options { linker, ..fixture.options("t", &inputs) };
            let report = build(&options).unwrap_or_else(|error| panic!("{flags:?}: {error}"));
            let image = &report.images[0];
            let mut imports = imports(&image.bytes);
            // Whether a compiler calls `memcpy` is its choice.
            imports.retain(|import| import != "memcpy");
            assert_eq!(imports, ["not_offered", "offered", "table_of_target"], "{flags:?}");
            let view = ImageView::new_checked(&image.bytes).unwrap();
            for import in view.imports() {
                assert_eq!(import.weak, import.name == "not_offered", "{flags:?}: {}", import.name);
            }
            assert_eq!(result(&report), expected(), "{flags:?}, {}", image.linker);
            // The image does not contain the unused member of the archive.
            assert!(image.bytes.len() < 20_000, "{flags:?}: {} bytes", image.bytes.len());
        }
    }
}

#[test]
fn unlinkable_objects_are_refused_with_file_and_symbol() {
    let fixture = Fixture::new();
    let start = "#include <farjump_ifunc.h>\nFARJUMP_COPY_ARGS(t)\n";
    let main = |head: &str, body: &str| {
        format!(
            "{start}{head}\nvoid t_main(void *p, size_t n, void *a) {{ (void)p; (void)n; (void)a; {body} }}\n"
        )
    };
    let refusal = |files: &[(&str, &str)], flags: &[&str]| {
        let inputs: Vec<_> = files.iter().map(|(name, text)| fixture.write(name, text)).collect();
        let cflags = flags.iter().map(|&flag| flag.to_owned()).collect();
        let options = Options { linker: Some(OWN.into()), cflags, ..fixture.options("t", &inputs) };
        fixture.refusal(build(&options))
    };
    let twice = refusal(
        &[
            ("t.c", &main("int one(void);", "one();")),
            ("a.c", "int one(void) { return 1; }"),
            ("b.c", "int one(void) { return 2; }"),
        ],
        &[],
    );
    assert!(twice.contains("a.c and ") && twice.contains("b.c both define one"), "{twice}");
    let local = refusal(&[("t.c", &main("static __thread int kept;", "*(int *)a = kept++;"))], &[]);
    assert!(local.contains("t.c") && local.contains("kept") && local.contains("thread-local"), "{local}");
    let started = refusal(
        &[(
            "t.c",
            &main(
                "extern int begun; __attribute__((constructor)) static void first(void) { begun = 1; }",
                "",
            ),
        )],
        &[],
    );
    assert!(started.contains("first"), "{started}");
}

/// farjump's linker links objects for other machines too, with the same images as other linkers.
#[test]
fn images_for_other_machines_have_the_imports_and_sizes_of_lld() {
    if !all_work(&[CLANG[0], CLANG[1], "ld.lld"]) {
        return;
    }
    let fixture = Fixture::new();
    let sources = ["hello", "sum", "chain", "codec"];
    for triple in ["x86_64-unknown-linux-gnu", "aarch64-unknown-linux-gnu", "riscv64gc-unknown-linux-gnu"] {
        for name in sources {
            let [own, lld] = [OWN, "ld.lld"].map(|linker| {
                let options = Options {
                    linker: Some(linker.into()),
                    cc: Some("clang".into()),
                    targets: vec![triple.parse().unwrap()],
                    ..fixture.options(name, &[fixture::sample(&format!("c/{name}.c"))])
                };
                build(&options).unwrap_or_else(|error| panic!("{triple} {name} {linker}: {error}"))
            });
            let [own, lld] = [&own.images[0], &lld.images[0]];
            println!("{triple} {name}: {:?} by farjump's own, {:?} by lld", own.sizes, lld.sizes);
            assert_eq!(imports(&own.bytes), imports(&lld.bytes), "{triple} {name}");
            assert_eq!((own.sizes.data, own.sizes.bss), (lld.sizes.data, lld.sizes.bss), "{triple} {name}");
            assert!(
                own.sizes.text <= lld.sizes.text + 16,
                "{triple} {name}: {:?} {:?}",
                own.sizes,
                lld.sizes
            );
        }
    }
}
