//! The contents of images, the inputs of builds, and the libraries around the images.

use std::ffi::c_void;
use std::fs;
use std::path::PathBuf;

use farjump_builder::{BuildReport, Options, build};
use farjump_core::image::{ImageView, Place};
use farjump_loader::Library;
use farjump_tools::all_work;

use crate::fixture::{Fixture, Target, imports, linkers, sample, works};

const HEADER: &str = "#include <farjump_ifunc.h>\n";
/// Every feature that needs patching, in both spans, and every kind of import.
const RICH: &str = "#include <farjump_ifunc.h>
FARJUMP_COPY_ARGS(rich)
extern int table_of_target[8];
extern int offered(int) ;
extern void not_offered(void) __attribute__((weak));
extern size_t only_the_source_has(size_t);
static int own[4] = { 1, 2, 3, 4 };
static int zeroes[100];
static int *const into_target[] = { &table_of_target[3], &table_of_target[5] };
int *movable = &own[2];
static int *past_the_end = own + 4;
static int (*const functions[])(int) = { offered, 0 };
static const char *const words[] = { \"zero\", \"one\" };
__attribute__((noinline)) static int helper(const int *at) { return *at + zeroes[7]++; }
FARJUMP_IFUNC void rich_main(void *payload, size_t size, void *target_args)
{
    int *out = target_args;
    (void)payload;
    out[0] = *into_target[size >> 8];
    out[1] = helper(movable);
    out[2] = past_the_end[-1];
    out[3] = functions[0](20);
    out[4] = words[size & 1][0];
    out[5] = not_offered != 0;
    out[6] = zeroes[7];
    movable++;
}
size_t unused(void) { return only_the_source_has(1); }
";

static TABLE: [i32; 8] = [10, 11, 12, 13, 14, 15, 16, 17];

extern "C" fn offered(number: i32) -> i32 {
    number + 1
}

fn rich_target() -> Target {
    let mut target = Target::offering("table_of_target", (&raw const TABLE).cast());
    // SAFETY: the code declares it with this type.
    unsafe { target.resolver.exports_mut().insert("offered", offered as *const c_void) };
    // SAFETY: the code declares it with this type.
    unsafe { target.resolver.exports_mut().insert("__stack_chk_fail", offered as *const c_void) };
    target
}

fn run_rich(report: &BuildReport) {
    let mut target = rich_target();
    let mut out = [0_i32; 7];
    target.run(report, &[0], &mut out);
    assert_eq!(out, [13, 3, 4, 21, i32::from(b'o'), 0, 1]);
    // The statics keep the values of the first call.
    target.run(report, &[], &mut out);
    assert_eq!(out, [13, 5, 4, 21, i32::from(b'z'), 0, 2]);
}

#[test]
fn imports_with_addends_weak_imports_and_pointers_between_the_spans_all_work() {
    if !all_work(&["gcc"]) {
        return;
    }
    let fixture = Fixture::new();
    for flags in [&["-O0"][..], &["-O2"], &["-Os", "-g"], &["-fplt", "-Os"]] {
        let options = Options {
            cflags: flags.iter().map(|&flag| flag.to_owned()).collect(),
            // clang would remove the unused data.
            cc: Some("gcc".into()),
            ..fixture.options("rich", &[fixture.write("rich.c", RICH)])
        };
        let report = build(&options).unwrap_or_else(|error| panic!("{flags:?}: {error}"));
        let view = ImageView::new_checked(&report.images[0].bytes).unwrap();
        let into: Vec<_> = view.imports().filter(|import| import.name == "table_of_target").collect();
        assert_eq!(
            into.iter().map(|import| (import.addend, import.weak)).collect::<Vec<_>>(),
            [(12, false), (20, false)]
        );
        assert!(view.imports().any(|import| import.name == "not_offered" && import.weak), "{flags:?}");
        let span2 = |place| matches!(place, Place::Span2(_));
        assert!(view.relatives().any(|relative| span2(relative.site) && span2(relative.to)), "{flags:?}");
        assert!(
            report.images[0].sizes.bss >= 400 && report.images[0].sizes.data >= 32,
            "{:?}",
            report.images[0].sizes
        );
        run_rich(&report);
    }
}

#[cfg(target_arch = "x86_64")]
#[test]
fn vectors_are_used_where_the_author_lets_the_compiler() {
    if !all_work(&["gcc"]) {
        return;
    }
    let fixture = Fixture::new();
    let packed = |mark: &str, flags: &[&str]| {
        let text = format!(
            "{HEADER}FARJUMP_COPY_ARGS(near)\n\
            {mark} FARJUMP_IFUNC void near_main(void *payload, size_t size, void *args)\n\
            {{\n\
                const float *query = payload, *all = args;\n\
                float parts[16] = {{ 0 }};\n\
                (void)size;\n\
                for (int at = 0; at < 4096; at += 16)\n\
                    for (int lane = 0; lane < 16; lane++) {{\n\
                        float apart = all[at + lane] - query[at + lane];\n\
                        parts[lane] += apart * apart;\n\
                    }}\n\
                farjump_reply(parts, sizeof parts);\n\
            }}\n"
        );
        let options = Options {
            cflags: flags.iter().map(|&flag| flag.to_owned()).collect(),
            // clang also uses vectors in small code.
            cc: Some("gcc".into()),
            ..fixture.options("near", &[fixture.write("near.c", &text)])
        };
        let report = build(&options).unwrap();
        // Without a prefix mulps, with F3 mulss.
        let bytes = &report.images[0].bytes;
        bytes.windows(3).any(|code| code[1..] == [0x0f, 0x59] && !matches!(code[0], 0xf3 | 0x40..=0x4f))
    };
    assert!(!packed("", &[]), "code is made small as a rule");
    assert!(packed("FARJUMP_VECTORS", &[]));
    assert!(packed("", &["-O3"]));
}

#[test]
fn symbols_used_only_by_payload_routines_stay_out_of_the_image() {
    let fixture = Fixture::new();
    let report = fixture.c("rich", RICH).unwrap();
    assert_eq!(imports(&report.images[0].bytes), ["not_offered", "offered", "table_of_target"]);
    assert!(!report.images[0].bytes.windows(4).any(|bytes| bytes == b"only"), "a name of the source travels");

    let big = format!(
        "{HEADER}FARJUMP_COPY_ARGS(t)\nint big[4096] = {{ 1 }};\nint *use(void) {{ return big; }}\n\
        void t_main(void *p, size_t n, void *a) {{ (void)p; (void)n; (void)a; }}"
    );
    assert!(fixture.c("t", &big).unwrap().images[0].bytes.len() < 64);
}

#[test]
fn the_same_input_gives_the_same_code_wherever_it_lies() {
    for (file, name) in [("c/hello.c", "hello"), ("rust/histogram.rs", "histogram")] {
        let text = fs::read_to_string(sample(file)).unwrap();
        let file_name = file.split('/').next_back().unwrap();
        let build_in = |folder: &str| {
            let fixture = Fixture::new();
            let source = fixture.write(&format!("{folder}/{file_name}"), &text);
            build(&fixture.options(name, &[source])).unwrap()
        };
        let (first, second) = (build_in("a"), build_in("another/folder"));
        assert_eq!(first.images[0].id, second.images[0].id, "{file}");
        assert_eq!(first.images[0].bytes, second.images[0].bytes);
    }
}

#[test]
fn all_linkers_make_images_that_import_the_same_and_do_the_same() {
    let fixture = Fixture::new();
    let rich = fixture.write("rich.c", RICH);
    let mut sources: Vec<(&str, PathBuf, &[&str])> =
        vec![("rich", rich.clone(), &[]), ("rich", rich, &["-fplt", "-fstack-protector-all"])];
    for name in ["counter", "hello", "histogram", "grep", "crc32"] {
        sources.push((name, sample(&format!("c/{name}.c")), &[]));
    }
    for name in ["counter", "histogram", "crc32"] {
        sources.push((name, sample(&format!("rust/{name}.rs")), &[]));
    }
    for (name, source, flags) in sources {
        let mut first: Option<Vec<String>> = None;
        for linker in linkers() {
            let cflags = flags.iter().map(|&flag| flag.to_owned()).collect();
            let inputs = std::slice::from_ref(&source);
            let options = Options { linker: Some(linker.into()), cflags, ..fixture.options(name, inputs) };
            let report = build(&options).unwrap_or_else(|error| panic!("{linker}: {error}"));
            let version = match linker {
                "ld.bfd" => "GNU ld",
                "ld.lld" => "LLD",
                _ => "farjump's own",
            };
            let said = &report.images[0].linker;
            assert!(said.contains(version), "{said}");
            let imports = imports(&report.images[0].bytes);
            assert_eq!(first.get_or_insert_with(|| imports.clone()), &imports, "{}", source.display());
            if name == "rich" {
                run_rich(&report);
            }
        }
    }
}

#[test]
fn objects_and_archives_of_other_build_systems_are_linked() {
    if !all_work(&["gcc"]) {
        return;
    }
    let fixture = Fixture::new();
    fixture.write(
        "main.c",
        "extern int helped(int); void t_main(void *p, unsigned long n, void *a)\n\
        { (void)p; *(int *)a = helped((int)n); }",
    );
    fixture.write("help.c", "int helped(int n) { return n * 2; }");
    fixture.write("heavy.c", "int heavy[100000] = { 1 }; int weight(void) { return heavy[5]; }");
    fixture.write(
        "payload.c",
        "#include <string.h>\n\
        size_t t_payload_get_max_size(void *a, size_t n) { (void)a; return n; }\n\
        int t_payload_init(void *p, size_t n, void *a, size_t m) { (void)n; memcpy(p, a, m); return 0; }",
    );
    // The flags of a distribution: one section, calls through the PLT, unwind tables, stack protection.
    for file in ["main", "help", "heavy", "payload"] {
        let (source, object) = (format!("{file}.c"), format!("{file}.o"));
        fixture.run("gcc", &["-O2", "-fPIC", "-fstack-protector", "-c", &source, "-o", &object]);
    }
    fixture.run("ar", &["rc", "libhelp.a", "heavy.o", "help.o", "payload.o"]);
    fixture.run("ar", &["rcT", "libthin.a", "heavy.o", "help.o", "payload.o"]);
    fixture.run("ar", &["rc", "liball.a", "main.o", "heavy.o", "help.o", "payload.o"]);
    let inputs: [&[&str]; 4] = [
        &["main.o", "help.o", "payload.o"],
        &["libhelp.a", "main.o"],
        &["main.o", "libthin.a"],
        &["liball.a"],
    ];
    for inputs in inputs {
        let paths: Vec<_> = inputs.iter().map(|input| fixture.path(input)).collect();
        let report =
            build(&fixture.options("t", &paths)).unwrap_or_else(|error| panic!("{inputs:?}: {error}"));
        assert!(report.images[0].bytes.len() < 200, "{inputs:?}: {} bytes", report.images[0].bytes.len());
        let mut reply = 0_i32;
        Target::new().run(&report, b"12345", &mut reply);
        assert_eq!(reply, 10, "{inputs:?}");
        Library::open(&report.library).unwrap_or_else(|error| panic!("{inputs:?}: {error}"));
    }
}

#[test]
fn cxx_with_templates_virtual_functions_and_local_statics_works() {
    if !all_work(&["c++"]) {
        return;
    }
    let text = format!(
        "{HEADER}{}",
        "FARJUMP_COPY_ARGS(t)
FARJUMP_PAYLOAD_ALIGN(t, 128);
struct Shape { virtual int area() const = 0; };
template <int N> struct Square : Shape { int area() const override { return N * N; } };
static Square<3> three; static Square<4> four;
static const Shape *const shapes[] = { &three, &four };
static int next() { static int calls = 10; return ++calls; }
FARJUMP_IFUNC void t_main(void *, size_t size, void *args)
{ static_cast<int *>(args)[0] = shapes[size & 1]->area(); static_cast<int *>(args)[1] = next(); }"
    );
    for extension in ["cpp", "cc", "cxx"] {
        let fixture = Fixture::new();
        let source = fixture.write(&format!("t.{extension}"), &text);
        // Unused vtables contain an import; the build would refuse a constructor.
        let report = build(&fixture.options("t", &[source])).unwrap_or_else(|error| panic!("{error}"));
        let mut replies = [0_i32; 2];
        let mut target = Target::offering("__cxa_pure_virtual", offered as *const c_void);
        target.run(&report, &[0], &mut replies);
        assert_eq!(replies, [16, 11]);
        assert_eq!(ImageView::new_checked(&report.images[0].bytes).unwrap().payload_align_log2(), 7);
    }
}

#[test]
fn sources_of_several_languages_make_one_ifunc() {
    let fixture = Fixture::new();
    let rust = fixture.write(
        "t.rs",
        "#![no_std]
unsafe extern \"C\" { fn from_c(number: u32) -> u32; }
#[farjump_ifunc::ifunc]
fn t(payload: &farjump_ifunc::Payload, out: *mut u32) {
    // SAFETY: the test passes a word, and the function is in the C source beside this.
    unsafe { *out = from_c(payload.len() as u32) };
}",
    );
    let c = fixture
        .write("t.c", "unsigned from_asm(unsigned); unsigned from_c(unsigned n) { return from_asm(n) + 1; }");
    let asm = fixture.write(
        "t.S",
        "#define RESULT %eax
        .section .text.from_asm, \"ax\", @progbits
        .globl from_asm
from_asm: leal (%rdi,%rdi), RESULT
        ret
        .section .note.GNU-stack, \"\", @progbits
",
    );
    let report = build(&fixture.options("t", &[rust, c, asm])).unwrap_or_else(|error| panic!("{error}"));
    let mut reply = 0_u32;
    Target::new().run(&report, b"abcde", &mut reply);
    assert_eq!(reply, 11);
}

#[test]
fn the_compilers_own_support_routines_travel_along() {
    let fixture = Fixture::new();
    let report = fixture
        .c(
            "t",
            &format!(
                "{HEADER}FARJUMP_COPY_ARGS(t)\n\
        void t_main(void *p, size_t n, void *a)\n\
        {{ unsigned __int128 *wide = a; (void)p; *wide = *wide / (n | 1); }}"
            ),
        )
        .unwrap();
    assert_eq!(imports(&report.images[0].bytes), Vec::<String>::new());
    let mut wide = u128::MAX;
    Target::new().run(&report, &[0; 6], &mut wide);
    assert_eq!(wide, u128::MAX / 7);
}

#[test]
fn code_in_sections_of_any_name_travels_with_the_rest() {
    let fixture = Fixture::new();
    for linker in linkers() {
        let source = fixture.write(
            "t.c",
            &format!(
                "{HEADER}FARJUMP_COPY_ARGS(t)\n\
                 __attribute__((section(\"kitchen\"), noinline)) static int cook(int n) {{ return n * 7; }}\n\
                 void t_main(void *p, size_t n, void *a) {{ (void)p; *(int *)a = cook((int)n); }}"
            ),
        );
        let options = Options { linker: Some(linker.into()), ..fixture.options("t", &[source]) };
        let report = build(&options).unwrap_or_else(|error| panic!("{linker}: {error}"));
        let mut bill = 0_i32;
        Target::new().run(&report, b"xyz", &mut bill);
        assert_eq!(bill, 21, "{linker}");
    }
}

#[test]
fn payload_alignment_is_the_declared_one_or_the_default() {
    let fixture = Fixture::new();
    let align = |wish: &str| {
        let text = format!(
            "{HEADER}{wish}FARJUMP_COPY_ARGS(t)\n\
            void t_main(void *p, size_t n, void *a) {{ (void)p; (void)n; (void)a; }}"
        );
        let report = fixture.c("t", &text).unwrap();
        (
            ImageView::new_checked(&report.images[0].bytes).unwrap().payload_align_log2(),
            report.images[0].bytes.len(),
        )
    };
    let (none, len) = align("");
    assert_eq!(none, 0);
    assert_eq!(align("FARJUMP_PAYLOAD_ALIGN(t, 8);\n"), (3, len));
    assert_eq!(align("FARJUMP_PAYLOAD_ALIGN(t, 4096);\n"), (12, len));
}

#[test]
fn data_that_wants_a_large_alignment_gets_it() {
    let fixture = Fixture::new();
    let report = fixture
        .c(
            "t",
            &format!(
                "{HEADER}FARJUMP_COPY_ARGS(t)\n\
        static const volatile int wide[4] __attribute__((aligned(256))) = {{ 1, 2, 3, 4 }};\n\
        static volatile char page[64] __attribute__((aligned(1024)));\n\
        void t_main(void *p, size_t n, void *a)\n\
        {{ (void)p; page[0]++; *(uint64_t *)a = (uint64_t)&wide[n] % 256 + (uint64_t)page % 1024; }}"
            ),
        )
        .unwrap();
    assert_eq!(ImageView::new_checked(&report.images[0].bytes).unwrap().align_log2(), 10);
    let mut rest = 99_u64;
    Target::new().run(&report, b"", &mut rest);
    assert_eq!(rest, 0);
}

#[test]
fn strip_leaves_a_library_that_opens_with_its_image() {
    let fixture = Fixture::new();
    let report = build(&fixture.options("hello", &[sample("c/hello.c")])).unwrap();
    fixture.run("strip", &["--strip-all", "libhello.so"]);
    let library = Library::open(&report.library).unwrap();
    assert_eq!(library.images()[0].bytes(), report.images[0].bytes);
}

#[test]
fn the_name_comes_from_the_output_or_is_given() {
    let fixture = Fixture::new();
    let inputs = [sample("c/counter.c")];
    for (output, name) in
        [("libcounter.so", None), ("counter.so", None), ("other.so", Some("counter".to_owned()))]
    {
        let output = fixture.path(output);
        let report =
            build(&Options { output: output.clone(), name, inputs: inputs.to_vec(), ..Options::default() });
        let report = report.unwrap_or_else(|error| panic!("{error}"));
        assert_eq!((report.name.as_str(), &report.library), ("counter", &output));
        assert_eq!(Library::open(output).unwrap().name(), "counter");
    }
}

#[test]
fn a_failed_build_leaves_the_library_that_was_there() {
    let fixture = Fixture::new();
    let report = build(&fixture.options("counter", &[sample("c/counter.c")])).unwrap();
    let before = fs::read(&report.library).unwrap();
    fixture.c("counter", "int counter_main(").unwrap_err();
    assert_eq!(fs::read(&report.library).unwrap(), before);
    let opened = Library::open(&report.library).unwrap();
    // An open library does not change either.
    let source = fs::read_to_string(sample("c/counter.c")).unwrap().replace("++*", "--*");
    let changed = fixture.c("counter", &source).unwrap();
    assert_ne!(changed.images[0].id, report.images[0].id);
    assert_eq!(opened.images()[0].bytes(), report.images[0].bytes);
    drop(opened);
    assert_eq!(Library::open(&report.library).unwrap().images()[0].id(), changed.images[0].id);
}

#[test]
fn warnings_of_the_compiler_are_passed_on() {
    let fixture = Fixture::new();
    let text = format!(
        "{HEADER}FARJUMP_COPY_ARGS(t)\n#warning mind the gap\n\
        void t_main(void *p, size_t n, void *a) {{ (void)p; (void)n; (void)a; }}"
    );
    assert!(fixture.c("t", &text).unwrap().messages.contains("mind the gap"));
    assert_eq!(build(&fixture.options("counter", &[sample("c/counter.c")])).unwrap().messages, "");
}

#[test]
fn samples_compile_without_warnings_in_c_and_in_cxx() {
    let fixture = Fixture::new();
    for name in ["counter", "hello", "histogram", "grep", "crc32"] {
        let cflags = ["-Wall", "-Wextra", "-Wpedantic", "-std=c11"].map(str::to_owned).to_vec();
        let options = Options { cflags, ..fixture.options(name, &[sample(&format!("c/{name}.c"))]) };
        assert_eq!(build(&options).unwrap().messages, "", "{name}");
    }
    if !works("c++") {
        return;
    }
    let source = fixture.write(
        "t.cpp",
        &format!(
            "{HEADER}FARJUMP_PAYLOAD_ALIGN(t, 64);\nFARJUMP_COPY_ARGS(t)\n\
        FARJUMP_IFUNC void t_main(void *, size_t, void *) {{}}"
        ),
    );
    let cflags = ["-Wall", "-Wextra", "-std=c++11"].map(str::to_owned).to_vec();
    assert_eq!(build(&Options { cflags, ..fixture.options("t", &[source]) }).unwrap().messages, "");
}

#[test]
fn clang_builds_the_samples_too() {
    if !all_work(&["clang"]) {
        return;
    }
    let fixture = Fixture::new();
    for name in ["counter", "hello", "histogram", "grep", "crc32"] {
        let inputs = [sample(&format!("c/{name}.c"))];
        let options = Options { cc: Some("clang".into()), ..fixture.options(name, &inputs) };
        let report = build(&options).unwrap_or_else(|error| panic!("{error}"));
        println!("{name} by clang: {} bytes", report.images[0].bytes.len());
        Library::open(&report.library).unwrap();
    }
}

#[test]
fn a_source_written_for_three_chains_is_built_as_it_is() {
    let fixture = Fixture::new();
    let source = "#include <stddef.h>
        size_t later_payload_bound(void *args, size_t size) { return size + 5; }
        int later_payload_init(void *args, size_t len, void *payload, size_t *size) { *size = len; return 0; }
        void later_main(void *payload, size_t size, void *target_args) { ++*(int *)target_args; }";
    let report = fixture.c("later", source).unwrap();
    // SAFETY: built above.
    let library = unsafe { Library::load(&report.library) }.unwrap();
    assert_eq!((library.images().len(), library.payload_max_size(b"abc")), (1, 8));
    let mut space = [0; 8];
    // SAFETY: the array has the stated length.
    assert_eq!(unsafe { library.payload_init(space.as_mut_ptr(), 8, b"abc") }.unwrap(), 3);
}
