//! `build` and `inspect`.

use farjump::{Cpu, Level};

use crate::workbench::{Workbench, finish};

const COUNT: &str = "#include <farjump_ifunc.h>
FARJUMP_COPY_ARGS(count)
FARJUMP_IFUNC void count_main(void *payload, size_t size, void *args)
{ (void)payload; (void)args; farjump_reply(&size, sizeof size); }
";

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
fn build_prints_the_same_description_as_inspect() {
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
fn for_peer_adds_an_image_for_the_cpu_that_the_target_claims() {
    let bench = Workbench::new();
    bench.write("count.c", COUNT);
    let build = ["build", "count.c", "-o", "libcount.so", "--json", "--for-peer"];
    let address = bench.address();
    let detected = farjump_os::cpu::detected();
    let triple = detected.machine().triple();
    for (options, claimed) in [
        (&[][..], (*detected).clone()),
        (&["--cpu-level", "baseline"], Cpu::of_level(detected.machine(), Level::BASELINE)),
    ] {
        let serving = bench.serve(options);
        let report = bench.run([&build[..], &[&address]].concat()).worked().json();
        let images = report["images"].as_array().expect("a list");
        let shown: Vec<_> = images.iter().map(|image| (&image["machine"], &image["level"])).collect();
        assert_eq!(shown, [(&triple.into(), &"baseline".into()), (&triple.into(), &"exact".into())]);
        let needed = images[1]["features"].as_array().expect("a list");
        assert!(needed.iter().all(|feature| claimed.has(feature.as_str().expect("a name"))), "{needed:?}");
        assert!(!needed.is_empty() && images[0]["features"] == serde_json::json!([]));
        // A source sends that image.
        bench.inject(&bench.path("libcount.so"), &["--args", "abc"]).worked();
        let held = bench.json(["store", "--to", &address, "--json"]);
        let ids: Vec<_> = held["images"].as_array().expect("a list").iter().map(|one| &one["id"]).collect();
        assert_eq!(ids, [&images[1]["id"]]);
        serving.stop().worked();
    }
}

#[test]
fn where_no_linker_is_in_the_path_farjump_links_the_image_itself() {
    let bench = Workbench::new();
    bench.write("count.c", COUNT);
    let path = std::env::var_os("PATH").unwrap();
    let found = std::env::split_paths(&path).find(|folder| folder.join("cc").exists()).unwrap();
    // The compiler links the library, by the programs beside it.
    let cc = format!("{0}/cc -B{0}/", found.display());
    for (linker, output) in [(&[][..], "libcount.so"), (&["--linker", "own"], "libown.so")] {
        let mut build = bench.farjump();
        build.args(["build", "count.c", "--name", "count", "-o", output, "--cc", &cc]).args(linker);
        finish(build.env("PATH", "/nowhere")).worked();
    }
    let [id, own] = ["libcount.so", "libown.so"]
        .map(|library| bench.json(["inspect", library, "--json"])["images"][0]["id"].clone());
    assert!(id.is_string() && id == own, "{id} {own}");
    let serving = bench.serve(&[]);
    let replied = bench.inject(&bench.path("libcount.so"), &["--args", "seven--"]).worked();
    assert_eq!(replied.out, 7_u64.to_le_bytes());
    serving.stop().worked();
}

#[test]
fn for_peer_without_a_target_there_says_so_and_builds_nothing() {
    let bench = Workbench::new();
    bench.write("count.c", COUNT);
    let refused = bench.run(["build", "count.c", "-o", "libcount.so", "--for-peer", &bench.address()]);
    assert!(refused.code != 0 && refused.err.contains(&bench.address()), "{}", refused.err);
    assert!(!bench.path("libcount.so").exists());
}

#[test]
fn a_library_that_carries_its_source_is_built_again_from_it() {
    let bench = Workbench::new();
    let source = bench.write("count.c", COUNT);
    let plain = bench.run(["build", "count.c", "-o", "plain.so", "--name", "count"]).worked();
    let built = bench.run(["build", "count.c", "-o", "libcount.so", "--carry-source"]).worked();
    assert!(built.text().contains("\n  source    count.c\n"), "{}", built.text());
    assert!(!plain.text().contains("  source "), "{}", plain.text());
    std::fs::remove_file(source).expect("it was written");
    let again = bench.run(["build", "libcount.so", "-o", "again.so"]).worked();
    assert_eq!(again.text(), plain.text());
    bench
        .run(["build", "plain.so", "-o", "again.so"])
        .fails(1, &["plain.so", "carries no source", "--carry-source"]);
}

#[test]
fn a_crate_builds_to_the_same_image_under_any_cargo_settings() {
    let bench = Workbench::new();
    let author = concat!(env!("CARGO_MANIFEST_DIR"), "/../ifuncs/rust");
    let manifest = format!(
        "[package]\nname = \"count\"\nedition = \"2024\"\n\
         [dependencies]\nfarjump-ifunc = {{ path = \"{author}\" }}\n[workspace]\n"
    );
    for folder in ["count/src", ".cargo"] {
        std::fs::create_dir_all(bench.path(folder)).expect("a folder can be made");
    }
    bench.write("count/Cargo.toml", manifest);
    bench.write(
        "count/src/lib.rs",
        "#![no_std]\n#[farjump_ifunc::ifunc]\nfn count(bytes: &[u8]) -> u64 { bytes.len() as u64 }\n",
    );
    let id = |name: &str, variables: &[(&str, &str)]| {
        let library = format!("lib{name}.so");
        let mut build = bench.farjump();
        build.args(["build", "count", "--name", "count", "-o", &library, "--json"]);
        let built = finish(build.envs(variables.iter().copied())).worked().json();
        assert_eq!(built["images"][0]["machine"], farjump::Machine::native().expect("one").triple());
        built["images"][0]["id"].clone()
    };
    let plain = id("plain", &[]);
    assert!(plain.is_string());
    // The compiler runs in the folder of the crate.
    let variables = [("CARGO_BUILD_TARGET", "no-such-target"), ("TMPDIR", "tmp"), ("CARGO", "")];
    assert_eq!(id("variables", &variables), plain);
    bench.write(".cargo/config.toml", "[build]\ntarget = \"wasm32-unknown-unknown\"\n");
    assert_eq!(id("configured", &[]), plain);
    bench.is_clean();
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
        let report = bench.json(["inspect", "libsum.so", "--json"]);
        let line = shown.lines().find_map(|line| line.strip_prefix("  payload   ")).map(str::to_owned);
        (line, report["payload_is_args"].as_bool())
    };
    assert_eq!(line(SUM), (Some("the arguments".to_owned()), Some(true)));
    let own_routines = "made by routines of its own, for which a source has to load it";
    assert_eq!(line(&own), (Some(own_routines.to_owned()), Some(false)));
}

#[test]
fn inspect_json_has_the_images_machine_id_sizes_and_imports() {
    let bench = Workbench::new();
    bench.library("sum", SUM);
    let report = bench.json(["inspect", "libsum.so", "--json"]);
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

/// The builder's tests have all refusals (`loader/builder/tests/build/refusals.rs`).
#[test]
fn a_failed_build_names_cause_and_option_and_writes_nothing() {
    let bench = Workbench::new();
    bench.write("sum.c", format!("#include <farjump_ifunc.h>\n{SUM}"));
    bench.write("bad.c", "#include <farjump_ifunc.h>\nint sum_main(void) { return oops; }\n");
    let no_cc = ["cannot run `no-such-cc`", "name one (`farjump build --cc`)"];
    for (args, variables, parts) in [
        (&["sum.c", "-o", "libtotal.so"][..], &[][..], &["`total_main`", "`sum_main` in sum.c"][..]),
        (
            &["sum.c", "-o", "libsum.so", "--name", "../sum"],
            &[],
            &["`../sum` cannot name an ifunc", "--name"],
        ),
        (&["bad.c", "-o", "libsum.so"], &[], &["does not compile bad.c", "oops"]),
        (&["sum.c", "-o", "libsum.so", "--cc", "no-such-cc"], &[], &no_cc),
        (&["sum.c", "-o", "libsum.so"], &[("FARJUMP_CC", "no-such-cc")], &no_cc),
    ] {
        // A name that no ifunc can have makes no sense on any machine.
        let code = if args.contains(&"--name") { 2 } else { 1 };
        finish(bench.farjump().arg("build").args(args).envs(variables.iter().copied())).fails(code, parts);
        assert!(!bench.path(args[2]).exists(), "{args:?}");
    }
    bench.run(["build", "sum.c", "-o", "libtotal.so", "--name", "sum"]).worked();
}

#[test]
fn flags_reach_the_compiler() {
    let bench = Workbench::new();
    bench.write("sum.c", format!("#include <farjump_ifunc.h>\n#ifdef WANTED\n{SUM}\n#endif"));
    assert_eq!(bench.run(["build", "sum.c", "-o", "libsum.so"]).code, 1);
    bench.run(["build", "sum.c", "-o", "libsum.so", "--cflag", "-O2", "--cflag", "-DWANTED"]).worked();
}

#[test]
fn inspect_names_why_a_file_is_no_ifunc_library() {
    let bench = Workbench::new();
    bench.write("text.so", "no library");
    bench.plain_library("plain", "int x;");
    for (file, part) in [
        ("missing.so", "cannot read `missing.so`"),
        ("text.so", "`text.so` is no shared library"),
        ("libplain.so", "`libplain.so` carries no images"),
    ] {
        bench.run(["inspect", file]).fails(1, &[part]);
    }
}
