//! `build` and `inspect`.

use serde_json::Value;

use crate::workbench::{Workbench, finish};

const SUM: &str = "
FARJUMP_COPY_ARGS(sum)
extern int bias;
FARJUMP_IFUNC void sum_main(void *payload, size_t size, void *args)
{
    int sum = bias;
    for (size_t i = 0; i < size; i++) sum += ((unsigned char *)payload)[i];
    farjump_reply(&sum, sizeof sum);
}";

#[test]
fn what_was_built_is_shown_as_inspect_shows_it() {
    let bench = Workbench::new();
    bench.write("sum.c", format!("#include <farjump_ifunc.h>\n{SUM}"));
    let built = bench.run(["build", "sum.c", "-o", "libsum.so"]).worked();
    assert_eq!(built.err, "");
    let shown = bench.run(["inspect", "libsum.so"]).worked();
    assert_eq!(built.text(), shown.text());
    for part in ["sum_main", "x86_64-unknown-linux-gnu", "text", "bias", "farjump_reply", "id "] {
        assert!(shown.text().contains(part), "{part} is not in {}", shown.text());
    }
    assert_eq!(bench.leftovers(), [""; 0].map(std::path::PathBuf::from));
}

#[test]
fn inspect_says_what_the_payload_is() {
    let own = SUM.replace(
        "FARJUMP_COPY_ARGS(sum)",
        "FARJUMP_IFUNC size_t sum_payload_get_max_size(void *args, size_t size)
         { (void)args; return size; }
         FARJUMP_IFUNC int sum_payload_init(void *payload, size_t size, void *args, size_t args_size)
         { (void)args_size; __builtin_memcpy(payload, args, size); return 0; }",
    );
    let line = |source: &str| {
        let bench = Workbench::new();
        bench.library("sum", source);
        let shown = bench.run(["inspect", "libsum.so"]).worked().text().to_owned();
        let report = bench.run(["inspect", "libsum.so", "--json"]).worked();
        let report: Value = serde_json::from_slice(&report.out).expect("it is JSON");
        let line = shown.lines().find_map(|line| line.strip_prefix("  payload   ")).map(str::to_owned);
        (line, report["payload_is_args"].as_bool())
    };
    assert_eq!(line(SUM), (Some("the arguments".to_owned()), Some(true)));
    let own_routines = "made by routines of its own, for which a source has to load it";
    assert_eq!(line(&own), (Some(own_routines.to_owned()), Some(false)));
}

#[test]
fn inspect_tells_programs_the_same() {
    let bench = Workbench::new();
    bench.library("sum", SUM);
    let report: Value = serde_json::from_slice(&bench.run(["inspect", "libsum.so", "--json"]).worked().out)
        .expect("it is JSON");
    assert_eq!(report["name"], "sum");
    let image = &report["images"][0];
    assert_eq!(image["machine"], "x86_64-unknown-linux-gnu");
    assert_eq!(image["id"].as_str().map(str::len), Some(32));
    assert!(image["sizes"]["text"].as_u64() > Some(0), "{image}");
    let mut imports: Vec<_> =
        image["imports"].as_array().expect("a list").iter().filter_map(|it| it["name"].as_str()).collect();
    imports.sort_unstable();
    assert_eq!(imports, ["bias", "farjump_reply"]);
}

#[test]
fn a_source_without_main_is_refused_with_the_names_it_has() {
    let bench = Workbench::new();
    bench.write("sum.c", format!("#include <farjump_ifunc.h>\n{SUM}"));
    let done = bench.run(["build", "sum.c", "-o", "libtotal.so"]);
    let error = done.error(1);
    assert!(error.contains("`total_main`") && error.contains("`sum_main` in sum.c"), "{error}");
    assert!(!bench.path("libtotal.so").exists());
    bench.run(["build", "sum.c", "-o", "libtotal.so", "--name", "sum"]).worked();
}

#[test]
fn a_name_that_is_a_path_is_refused() {
    let bench = Workbench::new();
    bench.write("sum.c", format!("#include <farjump_ifunc.h>\n{SUM}"));
    for name in ["../sum", "a/b", "..", "", "9sum"] {
        let done = bench.run(["build", "sum.c", "-o", "libsum.so", "--name", name]);
        assert!(done.error(1).contains(&format!("`{name}` cannot name an ifunc")), "{}", done.err);
        assert!(!bench.path("libsum.so").exists());
    }
}

#[test]
fn what_the_compiler_says_is_shown() {
    let bench = Workbench::new();
    bench.write("sum.c", "#include <farjump_ifunc.h>\nint sum_main(void) { return oops; }\n");
    let done = bench.run(["build", "sum.c", "-o", "libsum.so"]);
    assert!(done.error(1).contains("does not compile sum.c"), "{}", done.err);
    assert!(done.err.contains("oops"), "{}", done.err);
}

#[test]
fn a_compiler_that_is_not_there_is_named_whoever_named_it() {
    let bench = Workbench::new();
    bench.write("sum.c", format!("#include <farjump_ifunc.h>\n{SUM}"));
    let by_option = bench.run(["build", "sum.c", "-o", "libsum.so", "--cc", "no-such-cc"]);
    let mut command = bench.farjump();
    let by_variable =
        finish(command.args(["build", "sum.c", "-o", "libsum.so"]).env("FARJUMP_CC", "no-such-cc"));
    for done in [by_option, by_variable] {
        assert!(done.error(1).contains("cannot run `no-such-cc`"), "{}", done.err);
        assert!(done.err.contains("name one (`farjump build --cc`)"), "{}", done.err);
    }
}

#[test]
fn flags_reach_the_compiler() {
    let bench = Workbench::new();
    bench.write("sum.c", format!("#include <farjump_ifunc.h>\n#ifdef WANTED\n{SUM}\n#endif"));
    assert_eq!(bench.run(["build", "sum.c", "-o", "libsum.so"]).code, 1);
    bench.run(["build", "sum.c", "-o", "libsum.so", "--cflag", "-O2", "--cflag", "-DWANTED"]).worked();
}

#[test]
fn files_that_are_no_ifunc_libraries_are_told_apart() {
    let bench = Workbench::new();
    bench.write("text.so", "no library");
    bench.plain_library("plain", "int x;");
    for (file, part) in [
        ("missing.so", "cannot read `missing.so`"),
        ("text.so", "`text.so` is no shared library"),
        ("libplain.so", "`libplain.so` carries no images"),
    ] {
        let done = bench.run(["inspect", file]);
        assert!(done.error(1).contains(part), "{}", done.err);
    }
}
