//! Libraries that carry their source, and new builds from it.

use std::fs;
use std::path::PathBuf;

use farjump_builder::inspect::inspect;
use farjump_builder::{BuildError, BuildReport, Options, build};
use farjump_loader::Library;
use farjump_os::cpu::detected;
use farjump_tools::all_work;

use crate::fixture::{Fixture, sample};

/// A C source, a C++ source and their headers, in separate folders.
fn project(fixture: &Fixture) -> Options {
    let header = "#ifdef __cplusplus\nextern \"C\"\n#endif\nlong scaled(long value);\n";
    fixture.write("include/deep/scaled.h", header);
    fixture.write("src/factor.h", "#define FACTOR 3\n");
    let main = fixture.write(
        "src/main.c",
        "#include <farjump_ifunc.h>\n#include <stdint.h>\n#include <deep/scaled.h>\nFARJUMP_COPY_ARGS(t)\n\
         FARJUMP_IFUNC void t_main(void *payload, size_t size, void *args)\n\
         { (void)payload; int64_t value = scaled((long)size + ADDED); *(int64_t *)args = value; }\n",
    );
    let helper = fixture.write(
        "src/scaled.cpp",
        "#include \"factor.h\"\n#include <deep/scaled.h>\nlong scaled(long value) { return FACTOR * value; }\n",
    );
    let include = format!("-I{}", fixture.path("include").display());
    Options {
        cflags: vec![include, "-DADDED=2".into(), "-O2".into()],
        carry_source: true,
        ..fixture.options("t", &[main, helper])
    }
}

fn again(fixture: &Fixture, report: &BuildReport) -> Options {
    fixture.options("again", std::slice::from_ref(&report.library))
}

fn ids(report: &BuildReport) -> Vec<String> {
    report.images.iter().map(|image| image.id.to_string()).collect()
}

#[test]
fn a_library_is_built_again_from_the_source_in_it() {
    if !all_work(&["c++"]) {
        return;
    }
    let fixture = Fixture::new();
    let report = build(&project(&fixture)).unwrap();
    let shown = inspect(&report.library).unwrap();
    assert_eq!(shown.source, ["include/deep/scaled.h", "src/factor.h", "src/main.c", "src/scaled.cpp"]);
    assert!(shown.to_string().contains("\n  source    include/deep/scaled.h  src/factor.h"), "{shown}");
    fs::remove_dir_all(fixture.path("src")).unwrap();
    fs::remove_dir_all(fixture.path("include")).unwrap();

    // The image has the name of the ifunc, not of the file.
    let cpu = detected();
    let options = Options { cpu: Some((*cpu).clone()), carry_source: true, ..again(&fixture, &report) };
    let rebuilt = build(&options).unwrap();
    assert_eq!((&*rebuilt.name, &ids(&rebuilt)[0]), ("t", &ids(&report)[0]));
    assert!(!rebuilt.images[1].features.is_empty());
    let mut value = 0_i64;
    crate::fixture::Target::new().run(&rebuilt, b"abc", &mut value);
    assert_eq!(value, 15);
    // The new library carries the source again.
    assert_eq!(inspect(&rebuilt.library).unwrap().source, shown.source);
    // The options' flags come behind the carried ones.
    let options = Options { cflags: vec!["-UADDED".into(), "-DADDED=9".into()], ..again(&fixture, &report) };
    crate::fixture::Target::new().run(&build(&options).unwrap(), b"abc", &mut value);
    assert_eq!(value, 36);
    Library::open(&report.library).unwrap();
}

#[test]
fn a_rust_file_is_carried() {
    let fixture = Fixture::new();
    let options = Options {
        name: Some("sum".into()),
        carry_source: true,
        ..fixture.options("sum", &[sample("rust/sum.rs")])
    };
    let report = build(&options).unwrap();
    assert_eq!(inspect(&report.library).unwrap().source, ["sum.rs"]);
    assert_eq!(ids(&build(&again(&fixture, &report)).unwrap()), ids(&report));
}

#[test]
fn a_library_without_source_is_no_input() {
    if !all_work(&["c++", "strip", "objcopy"]) {
        return;
    }
    let fixture = Fixture::new();
    let plain = build(&Options { carry_source: false, ..project(&fixture) }).unwrap();
    assert_eq!(inspect(&plain.library).unwrap().source, [""; 0]);
    let error = build(&again(&fixture, &plain)).unwrap_err();
    let text = format!(
        "`{}` is a shared library, and carries no source to build from: build it with its source (Options::carry_source)",
        plain.library.display()
    );
    assert!(matches!(error, BuildError::LibraryAsInput { .. }) && error.to_string() == text, "{error}");

    let carrying = build(&project(&fixture)).unwrap();
    fixture.run("strip", &["-R", ".farjump.source", "libt.so"]);
    assert_eq!(build(&again(&fixture, &carrying)).unwrap_err().to_string(), text);
    // The images are still there.
    assert_eq!(Library::open(&carrying.library).unwrap().images().len(), 1);

    let carrying = build(&project(&fixture)).unwrap();
    fixture.write("damaged", "{\"version\":1");
    fixture.run("objcopy", &["--update-section", ".farjump.source=damaged", "libt.so"]);
    let error = build(&again(&fixture, &carrying)).unwrap_err().to_string();
    assert!(error.contains("its source cannot be read"), "{error}");
}

#[test]
fn source_that_cannot_be_carried_is_refused_by_name() {
    let fixture = Fixture::new();
    let refusal = |inputs: &[PathBuf]| {
        let name = Some("t".into());
        fixture.refusal(build(&Options { carry_source: true, name, ..fixture.options("t", inputs) }))
    };
    let main = fixture.write(
        "t.c",
        "#include <farjump_ifunc.h>\nFARJUMP_COPY_ARGS(t)\nlong help(void);\n\
         FARJUMP_IFUNC void t_main(void *p, size_t n, void *t) { (void)p; (void)n; *(long *)t = help(); }\n",
    );
    fixture.write("help.c", "long help(void) { return 7; }\n");
    fixture.run("cc", &["-c", "-fPIC", "help.c"]);
    let text = refusal(&[main, fixture.path("help.o")]);
    assert!(text.contains("help.o` is an object or archive: give its source"), "{text}");

    // The library does not carry a module in a separate file.
    fixture.write("other.rs", "pub const SEVEN: u64 = 7;\n");
    let rust = fixture.write(
        "t.rs",
        "#![no_std]\nmod other;\n#[farjump_ifunc::ifunc]\nfn t(_: &[u64]) -> u64 { other::SEVEN }\n",
    );
    let text = refusal(&[rust]);
    assert!(text.contains("which does not build by itself") && text.contains("other"), "{text}");
}
