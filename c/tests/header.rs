//! Checks that `include/farjump.h` is cbindgen's output for the module `api`.
//!
//! After a change there, `FARJUMP_WRITE_HEADER=1 cargo test -p farjump-c --test header` writes it anew.

use std::fs;
use std::path::Path;

use cbindgen::{Builder, Config, DocumentationStyle, ExportConfig, FunctionConfig, Language, Style};

/// The files of the module, in the order of the header. cbindgen also reads those that `link/mod.rs` and `target/mod.rs`
/// name: named twice, they would be declared twice.
const SECTIONS: [&str; 18] = [
    "status.rs",
    "thread_error.rs",
    "bytes.rs",
    "shared.rs",
    "library.rs",
    "link/mod.rs",
    "target/mod.rs",
    "introspection.rs",
    "objects/handle.rs",
    "objects/view.rs",
    "objects/store.rs",
    "objects/client.rs",
    "objects/calls.rs",
    "objects/resolver.rs",
    "objects/placement.rs",
    "objects/lifetimes.rs",
    "streams/publisher.rs",
    "streams/subscriber.rs",
];

fn package() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn made() -> String {
    let part = |number: &str, times: u32| number.parse::<u32>().expect("cargo gives numbers") * times;
    let version = part(env!("CARGO_PKG_VERSION_MAJOR"), 10_000)
        + part(env!("CARGO_PKG_VERSION_MINOR"), 100)
        + part(env!("CARGO_PKG_VERSION_PATCH"), 1);
    let macros = fs::read_to_string(package().join("src/api/macros.h")).expect("the package has it");
    let macros = macros.replace("@VERSION@", &version.to_string());
    let macros = macros.replace("@MAX_HANDLE@", &farjump_handles::MAX_HANDLE.to_string());
    let config = Config {
        language: Language::C,
        cpp_compat: true,
        include_guard: Some("FARJUMP_H".to_owned()),
        header: Some(
            fs::read_to_string(package().join("src/api/head.h"))
                .expect("the package has it")
                .trim_end()
                .to_owned(),
        ),
        no_includes: true,
        sys_includes: ["stdbool.h", "stddef.h", "stdint.h"].map(str::to_owned).to_vec(),
        after_includes: Some(format!("\n{}", macros.trim_end())),
        style: Style::Type,
        usize_is_size_t: true,
        documentation: true,
        documentation_style: DocumentationStyle::Doxy,
        line_length: 110,
        tab_width: 4,
        // No function names these types: they are passed as numbers, so that any number may come.
        export: ExportConfig {
            include: [
                "farjump_mode_t",
                "farjump_right_t",
                "farjump_refusal_cause_t",
                "farjump_object_state_t",
                "farjump_place_t",
            ]
            .map(str::to_owned)
            .to_vec(),
            ..ExportConfig::default()
        },
        function: FunctionConfig {
            no_return: Some("FARJUMP_NORETURN".to_owned()),
            ..FunctionConfig::default()
        },
        ..Config::default()
    };
    let builder = SECTIONS.iter().fold(Builder::new().with_config(config), |builder, section| {
        builder.with_src(package().join(format!("src/api/{section}")))
    });
    let mut header = Vec::new();
    builder.generate().expect("cbindgen reads the module").write(&mut header);
    String::from_utf8(header).expect("the module is text")
}

#[test]
fn the_header_is_what_cbindgen_makes() {
    let path = package().join("include/farjump.h");
    let made = made();
    if std::env::var_os("FARJUMP_WRITE_HEADER").is_some() {
        fs::write(&path, &made).unwrap();
    }
    let kept = fs::read_to_string(&path).unwrap_or_default();
    let line = kept.lines().zip(made.lines()).position(|(kept, made)| kept != made);
    assert!(
        kept == made,
        "{} is not what cbindgen makes, from line {} on: FARJUMP_WRITE_HEADER=1 cargo test -p farjump-c --test header writes it",
        path.display(),
        line.unwrap_or(0) + 1
    );
}
