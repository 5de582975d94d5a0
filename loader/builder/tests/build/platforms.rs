//! Libraries that carry images for several machines and CPU levels.

use std::path::{Path, PathBuf};

use farjump_builder::inspect::{inspect, symbols};
use farjump_builder::{BuildReport, OWN, Options, build};
use farjump_core::image::{ImageView, Machine, Platform};
use farjump_loader::{Error, Library};
use farjump_tools::all_work;

use crate::fixture::{CLANG, Fixture, sample, works};

const ARM: &str = "aarch64-unknown-linux-gnu";
const RISCV: &str = "riscv64gc-unknown-linux-gnu";
const X86: &str = "x86_64-unknown-linux-gnu";
const V2: &str = "x86_64-unknown-linux-gnu:v2";
const V3: &str = "x86_64-unknown-linux-gnu:v3";
const ALL: [&str; 4] = [X86, V3, ARM, RISCV];

fn platforms(targets: &[&str]) -> Vec<Platform> {
    targets.iter().map(|target| target.parse().unwrap()).collect()
}

fn own() -> Platform {
    Platform::baseline(Machine::native().unwrap())
}

/// Options for each compiler for all machines. Prints and omits compilers that do not work.
fn compilers() -> Vec<Options> {
    let mut found = Vec::new();
    if CLANG.into_iter().all(works) {
        found.push(Options { cc: Some("clang".into()), ..Options::default() });
    }
    if works("aarch64-linux-gnu-gcc") && works("riscv64-linux-gnu-gcc") {
        let gcc = |machine, cc: &str| (machine, cc.to_owned());
        let target_ccs = vec![
            gcc(Machine::AARCH64, "aarch64-linux-gnu-gcc"),
            gcc(Machine::RISCV, "riscv64-linux-gnu-gcc"),
        ];
        found.push(Options { target_ccs, ..Options::default() });
    }
    let zig = ["zig cc", "python3 -m ziglang cc"].into_iter().find(|zig| works(zig));
    found.extend(zig.map(|zig| Options { cc: Some(zig.to_owned()), ..Options::default() }));
    if found.is_empty() {
        println!("skipped: no compiler for other machines works");
    }
    found
}

/// Builds for `targets` with the compilers of `base`.
fn build_for(
    fixture: &Fixture,
    base: &Options,
    targets: &[&str],
    name: &str,
    inputs: &[PathBuf],
) -> BuildReport {
    let Options { inputs, output, .. } = fixture.options(name, inputs);
    let options = Options { inputs, output, targets: platforms(targets), ..base.clone() };
    build(&options).unwrap_or_else(|error| panic!("{base:?}: {error}"))
}

/// Checks that the library at `path` opens here and carries exactly the images of `report`, for `targets`.
fn check(report: &BuildReport, path: &Path, targets: &[&str]) {
    let library = Library::open(path).unwrap();
    let targets = platforms(targets);
    assert_eq!(library.images().iter().filter_map(|image| image.platform()).collect::<Vec<_>>(), targets);
    for (image, (built, &target)) in library.images().iter().zip(report.images.iter().zip(&targets)) {
        assert_eq!((image.id(), image.bytes(), built.target), (built.id, &*built.bytes, target));
        assert_eq!(library.image_for(target).unwrap().id(), image.id());
        assert_eq!(ImageView::new_checked(image.bytes()).unwrap().platform(), Some(target));
    }
    let inspected = inspect(path).unwrap();
    assert_eq!(inspected.family, library.manifest().unwrap().id().to_string());
    let ids: Vec<_> = library.images().iter().map(|image| image.id().to_string()).collect();
    assert_eq!(inspected.images.iter().map(|image| image.id.clone()).collect::<Vec<_>>(), ids);
    assert_eq!(symbols(path).unwrap().into_iter().map(|symbols| symbols.id).collect::<Vec<_>>(), ids);
    let text = inspected.to_string();
    for target in targets {
        assert!(text.contains(&format!("\n{target}   ")), "{text}");
    }
}

#[test]
fn each_compilers_library_has_an_image_for_each_machine_and_level() {
    let fixture = Fixture::new();
    for (number, compilers) in compilers().iter().enumerate() {
        for (sample_name, file) in
            [("sum", "c/sum.c"), ("hello", "c/hello.c"), ("histogram", "c/histogram.c")]
        {
            let output = format!("{sample_name}{number}");
            let base = Options { name: Some(sample_name.into()), ..compilers.clone() };
            let report = build_for(&fixture, &base, &ALL, &output, &[sample(file)]);
            check(&report, &report.library, &ALL);
            let ids: Vec<_> = report.images.iter().map(|image| image.id).collect();
            assert!((1..ids.len()).all(|at| !ids[..at].contains(&ids[at])), "two images are one: {ids:?}");
        }
    }
}

#[test]
fn the_library_is_for_this_machine_even_if_no_image_is() {
    if !all_work(&["clang"]) {
        return;
    }
    let fixture = Fixture::new();
    let base = Options { cc: Some("clang".into()), ..Options::default() };
    let report = build_for(&fixture, &base, &[ARM], "sum", &[sample("c/sum.c")]);
    check(&report, &report.library, &[ARM]);
    // SAFETY: the sample's routines have the types of farjump_ifunc.h.
    let library = unsafe { Library::load(&report.library) }.unwrap();
    assert_eq!(library.payload_max_size(b"abcd"), 4);
    let error = library.image_for(own()).unwrap_err();
    assert!(matches!(error, Error::NoImage { .. }));
    assert!(error.to_string().contains(&format!("has no image for {} (it has {ARM})", own())), "{error}");
}

#[test]
fn cxx_and_rust_have_images_for_each_level() {
    if !all_work(&["clang", "clang++"]) {
        return;
    }
    let fixture = Fixture::new();
    let cxx = fixture.write(
        "t.cpp",
        "#include \"farjump_ifunc.h\"\n\
         struct Sum { float of = 0; void add(float value) { of += value; } };\n\
         FARJUMP_COPY_ARGS(t)\n\
         extern \"C\" void t_main(void *payload, size_t size, void *) {\n\
             Sum sum; const float *values = (const float *)payload;\n\
             for (size_t i = 0; i < size / 4; i++) sum.add(values[i]);\n\
             farjump_reply(&sum.of, sizeof sum.of); }\n",
    );
    let clang = Options { cc: Some("clang".into()), ..Options::default() };
    let report = build_for(&fixture, &clang, &ALL, "t", &[cxx]);
    check(&report, &report.library, &ALL);
    if own().machine == Machine::X86_64 {
        let rust = Options { name: Some("sum".into()), ..Options::default() };
        let report = build_for(&fixture, &rust, &[X86, V3], "sum_rust", &[sample("rust/sum.rs")]);
        check(&report, &report.library, &[X86, V3]);
    }
}

/// Every compiler knows the names of the targets; the core library is installed for some.
#[test]
fn a_rust_target_without_its_core_library_says_what_to_install() {
    let fixture = Fixture::new();
    let target = if own().machine == Machine::RISCV { ARM } else { RISCV };
    let options = Options {
        name: Some("sum".into()),
        targets: platforms(&[target]),
        ..fixture.options("sum", &[sample("rust/sum.rs")])
    };
    match build(&options) {
        Ok(report) => check(&report, &report.library, &[target]),
        Err(error) => {
            let expected = format!(
                "for {target}: Rust has no core library for {target}: run `rustup target add {target}`"
            );
            assert!(error.to_string().starts_with(&expected), "{error}");
        }
    }
}

#[test]
fn objects_and_archives_go_to_the_images_of_their_machine() {
    if !all_work(&["clang"]) {
        return;
    }
    let fixture = Fixture::new();
    let helper = "float help(const float *values, unsigned long count) {\n\
                  float sum = 0; for (unsigned long i = 0; i < count; i++) sum += values[i]; return sum; }\n";
    fixture.write("helper.c", helper);
    let mut inputs = vec![fixture.write(
        "t.c",
        "#include \"farjump_ifunc.h\"\nFARJUMP_COPY_ARGS(t)\nfloat help(const float *, unsigned long);\n\
         void t_main(void *payload, size_t size, void *args) { (void)args; float sum = help(payload, size / 4);\n\
         farjump_reply(&sum, sizeof sum); }\n",
    )];
    for (target, triple) in
        [(X86, "x86_64-linux-gnu"), (ARM, "aarch64-linux-gnu"), (RISCV, "riscv64-linux-gnu")]
    {
        let object = format!("{target}.o");
        let flags =
            ["-Os", "-fPIC", "-c", "helper.c", "-mno-outline-atomics", "-Wno-unused-command-line-argument"];
        fixture.run("clang", &[&[&*format!("--target={triple}"), "-o", &*object], &flags[..]].concat());
        if target == RISCV {
            fixture.run("ar", &["rc", "libhelp.a", &object]);
            inputs.push(fixture.path("libhelp.a"));
        } else {
            inputs.push(fixture.path(&object));
        }
    }
    let clang = Options { cc: Some("clang".into()), ..Options::default() };
    let report = build_for(&fixture, &clang, &ALL, "t", &inputs);
    check(&report, &report.library, &ALL);
    for image in &report.images {
        let imports = crate::fixture::imports(&image.bytes);
        assert_eq!(imports, ["farjump_reply"], "{}: the helper is in the image", image.target);
    }
    // Without a target for it, an object for another machine is a mistake.
    let options = Options { targets: platforms(&[X86, ARM]), output: fixture.path("other.so"), ..clang };
    let options = Options { name: Some("t".into()), inputs, ..options };
    let error = build(&options).unwrap_err().to_string();
    assert!(error.contains("libhelp.a(") && error.contains("is for 64-bit RISCV"), "{error}");
}

#[test]
fn images_for_aarch64_are_aligned_as_their_instructions_need() {
    if !all_work(&["clang"]) {
        return;
    }
    let fixture = Fixture::new();
    // For a near address, lld replaces the two instructions that compute it by pages by one.
    let alignment = |name: &str, text: &str, cflags: &[&str]| {
        let source = fixture.write(&format!("{name}.c"), text);
        let base = Options {
            cc: Some("clang".into()),
            cflags: cflags.iter().map(|flag| (*flag).to_owned()).collect(),
            linker: Some(OWN.into()),
            ..Options::default()
        };
        let report = build_for(&fixture, &base, &[ARM], name, &[source]);
        let view = ImageView::new_checked(&report.images[0].bytes).unwrap();
        (view.align_log2(), view.span2_len())
    };
    let text =
        |name: &str, body: &str| format!("#include \"farjump_ifunc.h\"\nFARJUMP_COPY_ARGS({name})\n{body}\n");
    let plain = text("a", "void a_main(void *p, size_t n, void *t) { *(long *)t += ((char *)p)[n - 1]; }");
    assert_eq!(alignment("a", &plain, &[]), (4, 0));
    // A table of constants is within reach of the tiny code model.
    let table = text(
        "b",
        "static const short table[] = {1, 5, 9, 700, 3, 8, 11, 12};\n\
         void b_main(void *p, size_t n, void *t) { (void)p; *(long *)t = table[n & 7]; }",
    );
    assert_eq!(alignment("b", &table, &[]), (4, 0));
    // A static is a gigabyte away: the small model computes pages.
    let statics = text(
        "c",
        "static long n; void c_main(void *p, size_t s, void *t) { (void)p; n += s; *(long *)t = n; }",
    );
    assert_eq!(alignment("c", &statics, &[]), (12, 8));
    // The author's flags win.
    assert_eq!(alignment("b", &table, &["-mcmodel=small"]).0, 12);
    // Landing pads are instructions that do nothing elsewhere.
    assert_eq!(alignment("b", &table, &["-mbranch-protection=standard"]), (4, 0));
}

#[test]
fn an_image_has_landing_pads_if_each_of_its_objects_says_so() {
    let fixture = Fixture::new();
    let (standard, none) = ("-mbranch-protection=standard", "-mbranch-protection=none");
    let function = "#include \"farjump_ifunc.h\"\nFARJUMP_COPY_ARGS(t)\nlong help(long);\n\
        void t_main(void *p, size_t n, void *t) { (void)p; *(long *)t = help((long)n); }\n";
    fixture.write("t.c", function);
    fixture.write("help.c", "long help(long n) { return n + 1; }\n");
    // Assemblers make objects without the note.
    fixture.write("silent.s", ".text\n.globl t_silent\nt_silent: .balign 4\n");
    let include = format!("-I{}", concat!(env!("CARGO_MANIFEST_DIR"), "/../../ifuncs/include"));
    let mut compilers = ["aarch64-linux-gnu-gcc", CLANG[0]].to_vec();
    compilers.retain(|compiler| works(compiler));
    if compilers.is_empty() {
        println!("skipped: no compiler for aarch64 works");
    }
    for compiler in compilers {
        let (program, options) = compiler.split_once(' ').unzip();
        let (program, options) = (program.unwrap_or(compiler), options.as_slice());
        let object = |file: &str, protection: &str| {
            let (output, flags) = (format!("{file}{protection}.o"), ["-Os", "-fPIC", "-mcmodel=tiny", "-c"]);
            let own = [&*include, protection, "-Wno-unused-command-line-argument", file, "-o", &*output];
            fixture.run(program, &[options, &flags[..], &own[..]].concat());
            fixture.path(&output)
        };
        for (linker, version) in [(Some("ld.lld"), "LLD"), (None, "GNU ld"), (Some(OWN), "own")] {
            // Without a named linker, the cross compiler's own linker links.
            if linker != Some(OWN) && !works(linker.unwrap_or("aarch64-linux-gnu-gcc")) {
                continue;
            }
            for (main, help, silent, expected) in [
                (standard, standard, false, true),
                ("-mbranch-protection=bti", standard, false, true),
                ("-mbranch-protection=pac-ret", standard, false, false),
                (standard, none, false, false),
                (none, none, false, false),
                (standard, standard, true, false),
            ] {
                let mut inputs = vec![object("t.c", main), object("help.c", help)];
                inputs.extend(silent.then(|| object("silent.s", standard)));
                // The library itself has code of this machine.
                let own = ["t.c", "help.c"].map(|file| {
                    let output = format!("{file}.own.o");
                    fixture.run("cc", &["-Os", "-fPIC", "-c", &*include, file, "-o", &*output]);
                    fixture.path(&output)
                });
                inputs.extend(own);
                let base =
                    Options { linker: linker.map(Into::into), name: Some("t".into()), ..Options::default() };
                let report = build_for(&fixture, &base, &[ARM], "t", &inputs);
                let view = ImageView::new_checked(&report.images[0].bytes).unwrap();
                let case = format!("{compiler} {version} {main} {help} {silent}");
                assert_eq!(view.has_landing_pads(), expected, "{case}");
                let shown = inspect(&report.library).unwrap();
                assert_eq!(shown.images[0].landing_pads, expected, "{case}");
                assert_eq!(shown.to_string().contains("\n  guarded   by landing pads\n"), expected, "{case}");
                assert!(report.images[0].linker.contains(version), "{case}");
            }
        }
    }
}

#[test]
fn refusals_name_the_target_that_they_are_for() {
    if !all_work(&["clang"]) {
        return;
    }
    let fixture = Fixture::new();
    let source = |name: &str, body: &str| {
        fixture.write(name, &format!("#include \"farjump_ifunc.h\"\nFARJUMP_COPY_ARGS(t)\n{body}\n"))
    };
    let plain = source("t.c", "void t_main(void *p, size_t n, void *t) { (void)p; (void)n; (void)t; }");
    let refusal = |input: &PathBuf, targets: &[&str], base: Options| {
        let options = Options { targets: platforms(targets), ..base };
        let Options { inputs, output, .. } = fixture.options("t", std::slice::from_ref(input));
        fixture.refusal(build(&Options { inputs, output, ..options }))
    };
    let clang = || Options { cc: Some("clang".into()), ..Options::default() };
    assert_eq!(
        refusal(&plain, &[X86, ARM, X86], clang()),
        format!("target {X86} is named twice: a library has one image for each")
    );

    let missing =
        Options { target_ccs: vec![(Machine::AARCH64, "no-such-gcc".into())], ..Options::default() };
    let text = refusal(&plain, &[ARM], missing);
    assert!(text.starts_with(&format!("for {ARM}: cannot run `no-such-gcc`: ")), "{text}");
    assert!(text.contains("Install gcc-aarch64-linux-gnu") && text.contains("Options::target_ccs"), "{text}");

    let thread_local = source(
        "tls.c",
        "#ifdef __riscv\n__thread long kept;\n#else\nlong kept;\n#endif\n\
         void t_main(void *p, size_t n, void *t) { (void)p; (void)t; kept += n; }",
    );
    let text = refusal(&thread_local, &ALL, clang());
    assert!(
        text.starts_with(&format!("for {RISCV}: ")) && text.contains("thread-local variable `kept`"),
        "{text}"
    );

    let lies = source(
        "align.c",
        "#ifdef __aarch64__\nFARJUMP_PAYLOAD_ALIGN(t, 128);\n#endif\n\
         void t_main(void *p, size_t n, void *t) { (void)p; (void)n; (void)t; }",
    );
    assert_eq!(
        refusal(&lies, &[own().to_string().as_str(), ARM], clang()),
        format!(
            "the images of `t` do not agree: its alignment is as usual for {} and 128 for {ARM}. A source makes one \
             payload, whatever the target is",
            own()
        )
    );

    let header = source("header.c", "#include <no_such.h>\nvoid t_main(void *p, size_t n, void *t) {}");
    let text = refusal(&header, &[ARM], clang());
    assert!(text.contains("does not compile") && text.contains("no_such.h"), "{text}");
}

/// Users copy the file, so images for three machines, and for one more level, must cost little.
#[test]
fn four_more_images_make_a_library_less_than_8_kib_longer() {
    let fixture = Fixture::new();
    for (number, compilers) in compilers().iter().enumerate() {
        let base = Options { name: Some("sum".into()), ..compilers.clone() };
        let len = |targets: &[&str]| {
            let report = build_for(&fixture, &base, targets, &format!("sum{number}"), &[sample("c/sum.c")]);
            std::fs::metadata(&report.library).unwrap().len()
        };
        let (plain, fat) = (len(&[X86]), len(&[X86, V2, V3, ARM, RISCV]));
        println!("{base:?}: {plain} and {fat} bytes");
        assert!(fat < plain + 8192, "{plain} and {fat} bytes");
    }
}
