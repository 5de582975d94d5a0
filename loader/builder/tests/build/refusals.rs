//! The build refuses code that cannot be injected, with its symbol, section and object.

use std::fs;

use farjump_builder::{BuildError, Options, build};
use farjump_loader::Library;
use farjump_tools::all_work;

use crate::fixture::{Fixture, Target, installed_linkers, works};

const HEADER: &str = "#include <farjump_ifunc.h>\n";

/// A C source of an ifunc `t` with these declarations and this body.
fn source(declarations: &str, body: &str) -> String {
    format!(
        "{HEADER}FARJUMP_COPY_ARGS(t)\n{declarations}\n\
         FARJUMP_IFUNC void t_main(void *payload, size_t size, void *args)\n\
         {{ (void)payload; (void)size; (void)args; {body} }}\n"
    )
}

/// Each installed linker: their outputs for bad input differ.
fn linkers() -> Vec<&'static str> {
    let there: Vec<_> = installed_linkers().collect();
    assert!(!there.is_empty(), "neither GNU ld nor lld works");
    there
}

/// Checks that the refusal of `source` with each linker contains all of `needed`.
fn refused(source: &str, needed: &[&str]) {
    for linker in linkers() {
        let fixture = Fixture::new();
        let input = fixture.write("t.c", source);
        let options = Options { linker: Some(linker.into()), ..fixture.options("t", &[input]) };
        let text = fixture.refusal(build(&options));
        for part in needed {
            assert!(text.contains(part), "{linker}: {part:?} is not in {text:?}");
        }
    }
}

#[test]
fn a_missing_main_is_refused_with_those_that_are_there() {
    let fixture = Fixture::new();
    let text = fixture.refusal(fixture.c("other", &source("", "")));
    assert!(text.contains("no `other_main` in "), "{text}");
    assert!(text.contains("`t_main` in ") && text.contains("other.c"), "{text}");

    let text = fixture.refusal(fixture.c("none", "int unrelated(void) { return 0; }"));
    assert!(text.contains("nor any other function named *_main"), "{text}");
}

#[test]
fn a_missing_payload_routine_is_refused_by_name() {
    let fixture = Fixture::new();
    let main = "void t_main(void *p, size_t n, void *a) { (void)p; (void)n; (void)a; }\n";
    let text = fixture.refusal(fixture.c("t", &format!("{HEADER}{main}")));
    assert!(text.contains("no `t_payload_get_max_size` in ") && text.contains("FARJUMP_COPY_ARGS"), "{text}");

    let max_size = "size_t t_payload_get_max_size(void *a, size_t n) { (void)a; return n; }\n";
    let text = fixture.refusal(fixture.c("t", &format!("{HEADER}{main}{max_size}")));
    assert!(text.contains("no `t_payload_init` in ") && text.contains("t.c"), "{text}");
}

#[test]
fn both_payload_inits_are_refused() {
    let fixture = Fixture::new();
    let shrink = "int t_payload_init_shrink(void *p, size_t *n, void *a, size_t m)\n\
                  { (void)p; (void)n; (void)a; (void)m; return 0; }";
    let text = fixture.refusal(fixture.c("t", &source(shrink, "")));
    assert!(text.contains("both `t_payload_init` and `t_payload_init_shrink`"), "{text}");
}

#[test]
fn thread_local_storage_is_refused_own_and_foreign() {
    let what = ["t.c(.text.t_main) uses thread-local variable `cache`", "Make it an argument"];
    // Without the attribute, clang removes the unused variable.
    let own = "__attribute__((used)) static __thread int cache;";
    refused(&source(own, "*(int *)args = cache++;"), &what);
    refused(&source("extern __thread int cache;", "*(int *)args = cache++;"), &what);
    let inner =
        format!("{own} __attribute__((noinline)) static int *deep(size_t at) {{ return &cache + at; }}");
    refused(
        &source(&inner, "*(int *)args = *deep(size);"),
        &["t.c(.text.deep) uses thread-local variable `cache`"],
    );
}

#[test]
fn indirect_functions_are_refused() {
    let declarations = "static int one(void) { return 1; }\n\
                        static int (*choose(void))(void) { return one; }\n\
                        __attribute__((visibility(\"hidden\"))) int chosen(void) __attribute__((ifunc(\"choose\")));";
    refused(
        &source(declarations, "*(int *)args = chosen();"),
        &["t.c(.text.t_main) uses `chosen`", "IRELATIVE"],
    );
}

/// As [`refused`], also with farjump's own linker.
fn refused_by_all(source: &str, needed: &[&str]) {
    for linker in crate::fixture::linkers() {
        let fixture = Fixture::new();
        let input = fixture.write("t.c", source);
        let options = Options { linker: Some(linker.into()), ..fixture.options("t", &[input]) };
        let text = fixture.refusal(build(&options));
        assert!(needed.iter().all(|part| text.contains(part)), "{linker}: {text}");
    }
}

#[test]
fn bounds_of_sections_are_refused_by_each_linker_in_one_sentence() {
    let entry = "static const int one __attribute__((used, section(\"plugins\"))) = 1;\n\
                 extern const int __start_plugins[], __stop_plugins[];";
    let message = ["t.c(.text.t_main) uses `__st", "_plugins`", "Put the entries into one array"];
    refused_by_all(&source(entry, "*(long *)args = __stop_plugins - __start_plugins;"), &message);
    let weak = "extern const int __start_none[] __attribute__((weak));";
    refused_by_all(&source(weak, "*(const int **)args = __start_none;"), &["uses `__start_none`"]);
    // Names that the code defines itself, and bounds that only a payload routine uses.
    let own = "__attribute__((noinline)) int __start_up(void) { return 1; }\n\
               static const int one __attribute__((used, section(\"plugins\"))) = 1;\n\
               extern const int __start_plugins[], __stop_plugins[];\n\
               FARJUMP_IFUNC size_t u_payload_get_max_size(void *a, size_t n)\n\
               { (void)a; return n + (size_t)(__stop_plugins - __start_plugins); }\n\
               FARJUMP_IFUNC int u_payload_init(void *p, size_t n, void *a, size_t m)\n\
               { (void)p; (void)n; (void)a; (void)m; return 0; }";
    let text = source(own, "*(int *)args = __start_up();").replace("FARJUMP_COPY_ARGS(t)\n", "");
    for linker in crate::fixture::linkers() {
        let fixture = Fixture::new();
        let input = fixture.write("u.c", &text.replace("t_main", "u_main"));
        build(&Options { linker: Some(linker.into()), ..fixture.options("u", &[input]) })
            .unwrap_or_else(|error| panic!("{linker}: {error}"));
    }
}

#[test]
fn objects_and_libraries_with_executable_stacks_are_refused_by_name() {
    // As gcc does for a nested function whose address is taken.
    let asks = "__asm__(\".section .note.GNU-stack,\\\"x\\\",@progbits\\n.previous\");";
    refused_by_all(&source(asks, ""), &["t.c asks for an executable stack", "nested function"]);
    let fixture = Fixture::new();
    let (t, other) = (fixture.write("t.c", &source("int other(void);", "other();")), fixture.path("libo.a"));
    let make = |text: &str| {
        fixture.write("o.c", text);
        fixture.run("cc", &["-c", "-fPIC", "o.c", "-o", "o.o"]);
        fixture.run("ar", &["rc", "libo.a", "o.o"]);
        build(&fixture.options("t", &[t.clone(), other.clone()]))
    };
    let text = fixture.refusal(make(&format!("{asks}\nint other(void) {{ return 1; }}")));
    assert!(text.contains("libo.a(o.o) asks for an executable stack"), "{text}");
    // An unneeded member does no harm.
    fixture.write("t.c", &source("", ""));
    let built = make(&format!("{asks}\nint other(void) {{ return 1; }}")).unwrap();
    let mut library = fs::read(&built.library).unwrap();
    Library::open(&built.library).unwrap();
    // The dynamic linker follows the header of the stack: flag 1 is for execution.
    let header = 0x6474_e551_u32.to_le_bytes();
    let at = library[..4096].windows(4).position(|bytes| bytes == header).unwrap();
    library[at + 4] |= 1;
    fs::write(&built.library, library).unwrap();
    // SAFETY: the library was built here, of a function that does nothing.
    let loaded = unsafe { Library::load(&built.library) };
    for refused in [Library::open(&built.library), loaded] {
        let text = refused.unwrap_err().to_string();
        assert!(text.contains("libt.so") && text.contains("it asks for an executable stack"), "{text}");
    }
}

#[test]
fn relocations_that_no_image_can_have_are_refused() {
    // The distance to a symbol outside the image, and half an address.
    for (word, name) in [(".quad", "R_X86_64_PC64"), (".long", "R_X86_64_32")] {
        let difference = if word == ".quad" { " - ." } else { "" };
        let table = format!(
            "__asm__(\".section .data.table,\\\"aw\\\"\\ntable: {word} elsewhere{difference}\\n.previous\");\n\
             extern __attribute__((visibility(\"hidden\"))) int table;"
        );
        refused(&source(&table, "*(int *)args = table;"), &[name, "elsewhere", "-fPIC"]);
    }
    if works("ld.bfd") {
        let fixture = Fixture::new();
        let table = "__asm__(\".section .data.table,\\\"aw\\\"\\ntable: .quad elsewhere - .\\n.previous\");\n\
                     extern __attribute__((visibility(\"hidden\"))) int table;";
        let input = fixture.write("t.c", &source(table, "*(int *)args = table;"));
        let options = Options { linker: Some("ld.bfd".into()), ..fixture.options("t", &[input]) };
        let text = fixture.refusal(build(&options));
        assert!(
            text.contains("t.c(.data.table) needs relocation R_X86_64_PC64 (24) for `elsewhere`"),
            "{text}"
        );
    }
}

#[test]
fn addresses_in_packed_structures_are_refused() {
    refused(
        &source(
            "extern int elsewhere; struct __attribute__((packed)) odd { char c; int *to; };\n\
             __attribute__((used)) static struct odd odd = { 1, &elsewhere };",
            "odd.c++; *(int **)args = odd.to;",
        ),
        &["(.data", "not at a multiple of 8", "do not pack"],
    );
}

#[test]
fn constructors_and_destructors_are_refused() {
    for (attribute, section) in [("constructor", ".init_array"), ("destructor", ".fini_array")] {
        let function = format!(
            "static volatile int ready; __attribute__(({attribute})) static void prepare(void) {{ ready = 1; }}"
        );
        refused(
            &source(&function, "*(int *)args = ready;"),
            &[&format!("t.c({section}) registers `prepare`"), "nothing calls it at the target"],
        );
    }
}

#[test]
fn imports_of_unwinding_and_of_destructors_at_exit_are_refused() {
    let throwing =
        ["_Unwind_Resume", "__cxa_throw", "__cxa_allocate_exception", "__cxa_atexit", "__gxx_personality_v0"];
    for import in throwing {
        refused(
            &source(&format!("extern void {import}(void);"), &format!("{import}();")),
            &[&format!("t.c(.text.t_main) needs `{import}`"), "no exception can pass"],
        );
    }
}

#[test]
fn exceptions_and_static_objects_of_cxx_are_refused() {
    if !all_work(&["c++"]) {
        return;
    }
    let thrown = source("", "if (size == 3) throw 7;");
    let object =
        source("struct S { int v; S(); ~S(); }; S make(); static S global;", "*(int *)args = global.v;");
    let local = source("struct S { int v; S(); ~S(); };", "static S local; *(int *)args = local.v;");
    for (text, flags, needed) in [
        (&local, &[][..], "t.cpp(.text.t_main) needs `__cxa_atexit`"),
        (&thrown, &["-fexceptions"][..], "needs `__cxa_"),
        (&object, &[][..], "t.cpp(.init_array) registers `_GLOBAL__sub_I_"),
    ] {
        for linker in linkers() {
            let fixture = Fixture::new();
            let input = fixture.write("t.cpp", text);
            let options = Options {
                linker: Some(linker.into()),
                cflags: flags.iter().map(|&flag| flag.to_owned()).collect(),
                ..fixture.options("t", &[input])
            };
            let text = fixture.refusal(build(&options));
            assert!(text.contains(needed), "{linker}: {text}");
        }
    }
}

#[test]
fn intermediate_code_of_compilers_is_refused_as_an_empty_image() {
    if !all_work(&["gcc"]) {
        return;
    }
    let fixture = Fixture::new();
    let input = fixture.write("t.c", &source("", ""));
    let options = Options { cflags: vec!["-flto".into()], ..fixture.options("t", &[input]) };
    let text = fixture.refusal(build(&options));
    assert!(
        text.contains("t.c holds a compiler's intermediate code (LTO)") && text.contains("empty"),
        "{text}"
    );

    fixture.write("u.c", "void u_main(void *p, unsigned long n, void *a) { (void)p; (void)n; (void)a; }");
    fixture.run("gcc", &["-c", "-fPIC", "-flto", "u.c", "-o", "u.o"]);
    fixture.run("ar", &["rc", "libu.a", "u.o"]);
    let text = fixture.refusal(build(&fixture.options("u", &[fixture.path("libu.a")])));
    assert!(text.contains("libu.a(u.o) holds a compiler's intermediate code"), "{text}");
}

#[test]
fn a_main_that_is_no_function_is_refused() {
    let fixture = Fixture::new();
    let text = fixture.refusal(fixture.c("t", &format!("{HEADER}FARJUMP_COPY_ARGS(t)\nint t_main = 7;")));
    // Objects of clang state more about their symbols.
    let says = ["image of `t` is empty", "defines `t_main`, which is not a function"];
    assert!(says.iter().any(|says| text.contains(says)), "{text}");
    let beside =
        format!("{HEADER}FARJUMP_COPY_ARGS(t)\nint f(void) {{ return 7; }}\nint (*t_main)(void) = f;");
    let text = fixture.refusal(fixture.c("t", &beside));
    assert!(
        text.contains("t.c(.data.") && text.contains("defines `t_main`, which is not a function"),
        "{text}"
    );
}

#[test]
fn objects_for_another_machine_are_refused() {
    if !all_work(&["gcc"]) {
        return;
    }
    let fixture = Fixture::new();
    fixture.write("t.c", "void t_main(void *p, unsigned n, void *a) { (void)p; (void)n; (void)a; }");
    fixture.run("gcc", &["-m32", "-c", "-fPIC", "t.c", "-o", "t.o"]);
    let text = fixture.refusal(build(&fixture.options("t", &[fixture.path("t.o")])));
    assert!(text.contains("t.o is for 32-bit 386, and the image is for x86_64-unknown-linux-gnu"), "{text}");
}

#[test]
fn code_for_a_fixed_address_is_refused_with_the_linkers_words() {
    for linker in linkers() {
        let fixture = Fixture::new();
        let body = "static int table[4]; *(int **)args = table + size;";
        let input = fixture.write("t.c", &source("extern int table[];", body));
        let flags = ["-fno-pic", "-mcmodel=small", "-fvisibility=default"];
        let options = Options {
            linker: Some(linker.into()),
            cflags: flags.map(str::to_owned).to_vec(),
            ..fixture.options("t", &[input])
        };
        let text = fixture.refusal(build(&options));
        assert!(text.contains("not position-independent. Compile it with -fPIC"), "{linker}: {text}");
        assert!(text.contains("R_X86_64_32") && text.contains("t.c"), "{linker}: {text}");
    }
}

#[test]
fn hidden_routines_of_foreign_objects_are_refused() {
    if !all_work(&["gcc"]) {
        return;
    }
    let fixture = Fixture::new();
    fixture.write(
        "t.c",
        "#include <stddef.h>\n\
         void t_main(void *p, size_t n, void *a) { (void)p; (void)n; (void)a; }\n\
         size_t t_payload_get_max_size(void *a, size_t n) { (void)a; return n; }\n\
         int t_payload_init(void *p, size_t n, void *a, size_t m) { (void)p; (void)n; (void)a; (void)m; return 0; }",
    );
    fixture.run("gcc", &["-c", "-fPIC", "-fvisibility=hidden", "t.c", "-o", "t.o"]);
    let text = fixture.refusal(build(&fixture.options("t", &[fixture.path("t.o")])));
    assert!(text.contains("`t_main` in ") && text.contains("t.o is hidden"), "{text}");
}

#[test]
fn data_in_sections_of_other_names_works_or_is_refused_by_name() {
    let declarations = "__attribute__((section(\"plans\"))) static volatile int plan = 3;";
    for linker in linkers() {
        let fixture = Fixture::new();
        let input = fixture.write("t.c", &source(declarations, "*(int *)args = plan++;"));
        let options = Options { linker: Some(linker.into()), ..fixture.options("t", &[input]) };
        // Each linker has its own rules for sections that its script does not name.
        match build(&options) {
            Ok(report) => {
                let mut reply = 0_i32;
                Target::new().run(&report, b"", &mut reply);
                assert_eq!((reply, report.images[0].sizes.data), (3, 4), "{linker}");
            }
            Err(error) => {
                let text = error.to_string();
                assert!(
                    text.contains("t.c(plans) is a section that an image cannot contain"),
                    "{linker}: {text}"
                );
            }
        }
    }
}

#[test]
fn pointers_to_what_does_not_travel_are_refused() {
    refused(
        &source(
            "extern char _DYNAMIC[] __attribute__((visibility(\"hidden\"))); char *pointer = _DYNAMIC;",
            "*(char **)args = pointer++;",
        ),
        &["t.c(.data", "has a pointer in `pointer` to something that does not travel ("],
    );
}

#[test]
fn alignments_that_cannot_be_had_are_refused() {
    let fixture = Fixture::new();
    for wish in ["4", "8192", "48"] {
        let text =
            fixture.refusal(fixture.c("t", &source(&format!("FARJUMP_PAYLOAD_ALIGN(t, {wish});"), "")));
        assert!(text.contains("power of two from 8 to 4096"), "{text}");
    }
    // Not by the macro, whose argument the compiler checks.
    let raw = "static const unsigned align __asm__(\"t_payload_align\")\n\
               __attribute__((used, section(\".farjump.payload_align\"))) = 24;";
    let text = fixture.refusal(fixture.c("t", &source(raw, "")));
    assert!(text.contains("`t` requests a payload alignment of 24 bytes"), "{text}");
}

#[test]
fn compiler_errors_are_shown_with_line_or_remedy() {
    let fixture = Fixture::new();
    let text = fixture.refusal(fixture.c("t", "int main( {"));
    assert!(text.contains("`cc` does not compile ") && text.contains("t.c:1:"), "{text}");
    let rust = fixture.write("t.rs", "#![no_std]\nfn main() { let x: u8 = \"\"; }");
    let text = fixture.refusal(build(&fixture.options("t", &[rust])));
    assert!(text.contains("t.rs:2:"), "{text}");
    let with_std = "#[farjump_ifunc::ifunc]\nfn t() {}";
    let text = fixture.refusal(build(&fixture.options("t", &[fixture.write("t.rs", with_std)])));
    assert!(text.contains("start the file with #![no_std]"), "{text}");
}

#[test]
fn names_and_inputs_that_are_none_are_refused() {
    if !all_work(&["gcc"]) {
        return;
    }
    let fixture = Fixture::new();
    let c = fixture.write("t.c", &source("", ""));
    for name in ["a-b", "../t", "", "9"] {
        let options = Options { name: Some(name.into()), ..fixture.options("t", std::slice::from_ref(&c)) };
        assert!(matches!(build(&options), Err(BuildError::Name { .. })), "{name:?}");
    }
    assert!(matches!(build(&fixture.options("t", &[])), Err(BuildError::NoInput)));
    let text = fixture.refusal(build(&fixture.options("t", &[fixture.path("nowhere.c")])));
    assert!(text.contains("cannot read ") && text.contains("nowhere.c"), "{text}");
    let notes = fixture.write("notes.txt", "buy milk");
    let text = fixture.refusal(build(&fixture.options("t", &[notes])));
    assert!(text.contains("notes.txt: it is no C or C++ source"), "{text}");
    let broken = fixture.path("broken.o");
    fs::write(&broken, b"\x7fELF\x02\x01\x01").unwrap();
    let text = fixture.refusal(build(&fixture.options("t", &[broken])));
    assert!(text.contains("broken.o is no usable object"), "{text}");
    let library = fixture.path("library.o");
    fixture.run("gcc", &["-shared", "-fPIC", "-I", ".", "-x", "c", "/dev/null", "-o", "library.o"]);
    let text = fixture.refusal(build(&fixture.options("t", &[library])));
    assert!(
        text.contains("library.o is no usable object: it is a linked program or shared library"),
        "{text}"
    );
    let options = Options { cc: Some("no-such-compiler".into()), ..fixture.options("t", &[c]) };
    let text = fixture.refusal(build(&options));
    assert!(text.contains("cannot run `no-such-compiler`") && text.contains("Options::cc"), "{text}");
}

#[test]
fn linkers_that_do_not_follow_scripts_are_refused_by_name() {
    use std::os::unix::fs::PermissionsExt;
    let fixture = Fixture::new();
    let c = fixture.write("t.c", &source("", ""));
    for says in ["mold 1.10.1 (compatible with GNU ld)", "GNU gold (GNU Binutils 2.40) 1.16"] {
        let linker = fixture.write("linker", &format!("#!/bin/sh\necho '{says}'\n"));
        fs::set_permissions(&linker, fs::Permissions::from_mode(0o755)).unwrap();
        let options = Options { linker: Some(linker), ..fixture.options("t", std::slice::from_ref(&c)) };
        let text = fixture.refusal(build(&options));
        assert!(text.contains(says) && text.contains("FARJUMP_LD"), "{text}");
    }
}

#[test]
fn a_crate_without_a_library_is_refused() {
    let fixture = Fixture::new();
    fixture.write("p/Cargo.toml", "[package]\nname = \"p\"\nedition = \"2024\"\n[workspace]\n");
    fixture.write("p/src/main.rs", "fn main() {}");
    let text = fixture.refusal(build(&fixture.options("t", &[fixture.path("p")])));
    assert!(text.contains("no library targets found"), "{text}");
}

#[test]
fn imports_of_rusts_std_are_explained() {
    if !all_work(&["rustc"]) {
        return;
    }
    let fixture = Fixture::new();
    let routines = fixture.write("routines.c", &format!("{HEADER}FARJUMP_COPY_ARGS(t)\n"));
    fixture.write(
        "t.rs",
        "#[unsafe(no_mangle)] pub extern \"C\" fn t_main(_: *mut u8, size: usize, args: *mut usize) {\n\
         let all: Vec<usize> = (0..size).collect(); println!(\"{all:?}\"); unsafe { *args = all.len() } }\n",
    );
    fixture.run(
        "rustc",
        &["--edition=2024", "--crate-type=lib", "--emit=obj=t.o", "-Cpanic=abort", "-O", "t.rs"],
    );
    let report = match build(&fixture.options("t", &[routines, fixture.path("t.o")])) {
        Ok(report) => report,
        Err(error) => panic!("{error}"),
    };
    let refused = Target::new().refuse(&report);
    for part in ["exports none of ", "Rust's memory allocation", "Rust's std", "#![no_std]"] {
        assert!(refused.contains(part), "{refused}");
    }
    assert!(!refused.contains("Have the target export"), "{refused}");
}
