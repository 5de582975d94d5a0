//! Bitcode: from the directory, as the papers' programs have it, and from memory.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use farjump::{Library, Machine, Platform};
use farjump_fixtures::process::finish;
use farjump_tools::all_work;

use crate::common::ifunc_library;
use crate::fixture::{Fixture, Lane, Language, Variant, fixture};

/// In the form of the later prototype: counts its calls, and adds up their numbers. No header is needed, so that it compiles for
/// any machine. `WORK`, `INIT` and `OTHER` are for variants.
const TALLY: &str = "typedef unsigned long size_t; typedef unsigned long u64;
    OTHER
    size_t NAME_payload_bound(void *args, size_t size) { (void)args; return size + 8; }
    INIT
    void NAME_main(void *payload, size_t size, void *target) { u64 *seen = target; WORK
        seen[0] += 1; for (size_t i = 0; i < size / 8; i++) seen[1] += ((u64 *)payload)[i]; }";
const INIT: &str = "int NAME_payload_init(void *args, size_t size, void *payload, size_t *used)
    { (void)size; MAKES *(u64 *)payload = *(u64 *)args; *used = 8; return 0; }";

fn text(name: &str, work: &str, init: &str, makes: &str, other: &str) -> String {
    TALLY
        .replace("INIT", init)
        .replace("MAKES", makes)
        .replace("WORK", work)
        .replace("OTHER", other)
        .replace("NAME", name)
}

/// Returns the triples of this machine and of another one.
fn triples() -> [&'static str; 2] {
    match Machine::native() {
        Some(Machine::AARCH64) => ["aarch64-linux-gnu", "x86_64-linux-gnu"],
        _ => ["x86_64-linux-gnu", "aarch64-linux-gnu"],
    }
}

/// Returns the program that compiles bitcode, of the package `farjump-cli`; `None`, with a message, if it is not built.
pub(crate) fn compiler() -> Option<PathBuf> {
    let test = std::env::current_exe().unwrap();
    let program = test.parent().unwrap().with_file_name("farjump_compiler");
    let is_built = program.exists();
    if !is_built {
        println!(
            "skipped: no program farjump_compiler: cargo build --package farjump-cli --bin farjump_compiler"
        );
    }
    is_built.then_some(program)
}

/// Returns a fixture, and the compile process; `None`, with a message, where one is missing, or no compiler writes
/// bitcode.
fn with_compiler() -> Option<(Fixture, PathBuf)> {
    let fixture = fixture()?;
    let compiler = compiler()?;
    all_work(&["clang"]).then_some((fixture, compiler))
}

/// Compiles a source to bitcode.
fn bitcode(source: &Path, triple: &str, flags: &[String], output: PathBuf) {
    let mut clang = Command::new("clang");
    clang.arg(format!("--target={triple}")).args(["-O2", "-flto=thin", "-fPIC", "-c", "-w"]).args(flags);
    finish(clang.arg(source).arg("-o").arg(output)).worked();
}

/// Sets the paths of the compile process and of LLVM for a program.
pub(crate) fn compiling(command: &mut Command, compiler: &Path) {
    command.env("FARJUMP_COMPILER", compiler);
    command.env("RUSTC", env::var_os("RUSTC").unwrap_or_else(|| "rustc".into()));
}

/// Returns a folder with the code that `programs/bitcode.c` registers.
fn files(fixture: &Fixture) -> PathBuf {
    let folder = fixture.path("codes");
    fs::create_dir(&folder).unwrap();
    let [own, other] = triples();
    let uses = "extern u64 crc32(u64, const void *, unsigned);";
    for (file, triple, source) in [
        ("tally", own, text("tally", "", INIT, "", "")),
        ("other", other, text("tally", "", INIT, "", "")),
        ("unfilled", own, text("tally", "", "", "", "")),
        ("lacking", own, text("tally", "", INIT, "nobody_has_this();", "void nobody_has_this(void);")),
        (
            "needs",
            own,
            text(
                "needs",
                "if (!crc32(0, payload, 8)) return;",
                INIT,
                "if (!crc32(0, args, 8)) return 1;",
                uses,
            ),
        ),
    ] {
        let c_file = folder.join(format!("{file}.c"));
        fs::write(&c_file, source).unwrap();
        bitcode(&c_file, triple, &[], folder.join(format!("{file}.bc")));
    }
    let built = |triple: &str, library: &str, image: &str| {
        let (source, output) = (folder.join("copied.c"), folder.join(library));
        fs::write(
            &source,
            "#include <farjump_ifunc.h>\nFARJUMP_COPY_ARGS(tally)\nFARJUMP_IFUNC void tally_main(void *payload, size_t size, \
             void *target) { uint64_t *seen = target; seen[0]++; if (size == 8) seen[1] += *(uint64_t *)payload; }\n",
        )
        .unwrap();
        ifunc_library(source, &output, &[]).unwrap_or_else(|error| panic!("{triple}: {error}"));
        let library = Library::open(&output).unwrap();
        let code = library.image_for(Platform::baseline(Machine::native().unwrap())).unwrap();
        fs::write(folder.join(image), code.bytes()).unwrap();
    };
    built(own, "tally.so", "tally.image");
    // An image of the other machine, as farjump's linker makes it of an object.
    let object = folder.join("other.o");
    let mut clang = Command::new("clang");
    clang.arg(format!("--target={other}")).args(["-O2", "-fPIC", "-c", "-w"]).arg(folder.join("other.c"));
    finish(clang.arg("-o").arg(&object)).worked();
    let machine = if other.starts_with("aarch64") { Machine::AARCH64 } else { Machine::X86_64 };
    let objects = vec![(Platform::baseline(machine), fs::read(&object).unwrap())];
    let linked = farjump::build::link_library("tally", object, objects).unwrap();
    fs::write(folder.join("other.image"), linked.images()[0].bytes()).unwrap();
    folder
}

#[test]
fn the_papers_programs_run_from_bitcode_that_only_the_source_has() {
    let Some((fixture, compiler)) = with_compiler() else { return };
    let variant = Variant::ThreeChains;
    let flags = [variant.flags(), vec!["-DTEST_LLVM_BC=1".to_owned()]].concat();
    for name in ["tally", "rally", "nomad"] {
        let [own, _] = triples();
        let output = fixture.libraries().join(format!("{name}.{own}.bc"));
        bitcode(&Fixture::source(name), own, &flags, output);
        fs::write(fixture.libraries().join(format!("{name}.deps")), "libucp.so\n\n").unwrap();
    }
    for (program, language, ifunc, more, expected) in [
        ("throughput", Language::Cxx, "tally", "4", ["number 0\nran 256, sum 32640\n", ""]),
        ("pingpong", Language::C, "rally", "200", ["saw 200\n", "saw 200\n"]),
        ("roaming", Language::C, "nomad", "100", ["50 visits\n", "50 visits\n"]),
    ] {
        let program = fixture.program(program, variant, language);
        for lane in Lane::BOTH {
            let target = if ifunc == "rally" { fixture.libraries() } else { fixture.no_libraries() };
            let set = |_: &str, mut command: Command| {
                command.env("TEST_LLVM_BC", "1");
                compiling(&mut command, &compiler);
                command
            };
            let folders = [&*target, &*fixture.libraries()];
            let out = fixture.run_pair_with(&program, lane, folders, &[ifunc, more], set);
            assert_eq!(out, expected, "{program:?} {lane:?}");
        }
    }
}

fn register(kind: &str, set: impl FnOnce(&mut Command), more: &[&str]) -> Option<String> {
    let (fixture, compiler) = with_compiler()?;
    let folder = files(&fixture);
    let program = fixture.program("bitcode", Variant::ThreeChains, Language::C);
    let mut command = fixture.command(&program, Lane::Own, &fixture.no_libraries());
    compiling(&mut command, &compiler);
    set(&mut command);
    Some(finish(command.arg(kind).arg(folder).args(more)).worked().text().to_owned())
}

#[test]
fn code_from_memory_runs_and_the_last_ends_the_compile_process() {
    let Some(said) = register("works", |_| {}, &[]) else { return };
    assert_eq!(said, "done\n");
}

#[test]
fn each_fault_of_what_is_registered_has_a_status_and_words() {
    let Some(said) = register("refuses", |_| {}, &[]) else { return };
    assert_eq!(said, "done\n");
}

#[test]
fn damaged_bitcode_is_a_status_each_and_leaves_nothing() {
    let Some(said) = register("mutants", |_| {}, &["1000"]) else { return };
    assert!(said.ends_with("refusals\ndone\n"), "{said}");
}

#[test]
fn without_a_compiler_bitcode_is_refused_and_images_still_run() {
    let nowhere = |command: &mut Command| {
        command.env("FARJUMP_COMPILER", "/nowhere/compiler");
    };
    let Some(said) = register("unable", nowhere, &[]) else { return };
    assert!(said.contains("no program farjump_compiler at `/nowhere/compiler`: install it there"), "{said}");
    let no_llvm = |command: &mut Command| {
        command.env("FARJUMP_LIBLLVM", "/nowhere/libLLVM.so");
    };
    let Some(said) = register("unable", no_llvm, &[]) else { return };
    assert!(
        said.contains("bitcode cannot be compiled here") && said.contains("/nowhere/libLLVM.so"),
        "{said}"
    );
}
