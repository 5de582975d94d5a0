//! Bitcode: libraries that carry it, targets that compile it, and the failures of either.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use farjump::RefusalCause;
use farjump_compiler::protocol::Tier;
use farjump_compiler::{Compiler, Done, Options};
use farjump_core::bitcode::{BitcodeParts, BitcodeView};
use farjump_core::frame::{Kind, Plan};
use farjump_core::image::CodeId;
use farjump_fixtures::raw_source::{RawSource, call_code};
use farjump_loader::{Library, code_id};
use farjump_os::cpu::detected;
use farjump_tools::{Tool, all_work};
use rustix::process::Signal;
use serde_json::Value;

use crate::workbench::{Workbench, children_of, finish, runs, start_target, wait_for};

pub(crate) const COMPILER: &str = env!("CARGO_BIN_EXE_farjump_compiler");

const SQUARES: &str = "#include <farjump_ifunc.h>\nFARJUMP_COPY_ARGS(squares)\n\
    FARJUMP_IFUNC void squares_main(void *p, size_t n, void *a) { (void)a; uint64_t sum = 0; const unsigned char *x = p;\n\
    for (size_t i = 0; i < n; i++) sum += x[i] * x[i]; farjump_reply(&sum, sizeof sum); }\n";

const COUNT: &str = "#include <farjump_ifunc.h>\nFARJUMP_COPY_ARGS(count)\nstatic uint32_t calls;\n\
    FARJUMP_IFUNC void count_main(void *p, size_t n, void *a) { (void)p; (void)n; (void)a; calls++;\n\
    farjump_reply(&calls, sizeof calls); }\n";

/// Returns a folder with a library of bitcode; `None` where no compiler writes bitcode.
fn with_library(name: &str, source: &str, more: &[&str]) -> Option<(Workbench, PathBuf)> {
    let bench = Workbench::new();
    let library = library(&bench, name, source, more)?;
    Some((bench, library))
}

/// Returns whether a compiler for C writes bitcode. If not, prints that the test is skipped.
fn writes_bitcode() -> bool {
    Tool::tried("zig cc").is_ok() || all_work(&["clang"])
}

fn library(bench: &Workbench, name: &str, source: &str, more: &[&str]) -> Option<PathBuf> {
    if !writes_bitcode() {
        return None;
    }
    bench.write(&format!("{name}.c"), source);
    let (input, output) = (format!("{name}.c"), format!("lib{name}.so"));
    let base = ["build", &input, "-o", &output, "--bitcode", "--cflag", "-O2"];
    bench.run([&base[..], more].concat()).worked();
    Some(bench.path(&output))
}

/// Returns the libraries of LLVM on this machine, of those that farjump is tested with.
pub(crate) fn llvms() -> Vec<String> {
    let rust = finish(std::process::Command::new("rustc").args(["--print", "sysroot"])).worked();
    let folder = Path::new(rust.text().trim()).join("lib");
    let own = fs::read_dir(folder).expect("rustc has libraries").filter_map(|file| {
        let path = file.expect("it can be read").path();
        path.file_name()?.to_str()?.starts_with("libLLVM.so.").then(|| path.display().to_string())
    });
    let debian = ["libLLVM.so.19.1", "libLLVM.so.22.1"].map(str::to_owned);
    let found = own.chain(debian).filter(|llvm| {
        let checked = finish(std::process::Command::new(COMPILER).args(["--check", "--llvm", llvm]));
        println!("{llvm}: {}{}", checked.text().trim(), checked.err.trim());
        checked.code == 0
    });
    found.collect()
}

/// Returns the stored code of this name, once its image is optimised.
fn stored(bench: &Workbench, name: &str, address: &str) -> Value {
    let find = || {
        let store = bench.json(["store", "--to", address, "--json"]);
        let images = store["images"].as_array().expect("a list").clone();
        images.into_iter().find(|image| image["name"] == name)
    };
    wait_for("the optimised image", || {
        find().filter(|image| image["platform"].as_str().is_some_and(|at| at.ends_with("O2")))
    })
}

#[test]
fn a_target_that_prefers_bitcode_compiles_it_and_keeps_its_statics() {
    let Some((bench, squares)) = with_library("squares", SQUARES, &[]) else { return };
    let count = library(&bench, "count", COUNT, &[]).expect("there is a compiler");
    let shown = bench.json(["inspect", "libsquares.so", "--json"]);
    let images = shown["images"].as_array().expect("a list");
    assert_eq!((images.len(), &images[1]["level"]), (2, &"bitcode".into()), "{shown}");
    assert!(images[1]["llvm"].as_u64() > Some(10), "{shown}");
    let llvms = llvms();
    assert!(!llvms.is_empty(), "the Rust toolchain has an LLVM");
    for llvm in llvms {
        let modes = "cached,always,local,in-place";
        let serving =
            bench.serve(&["--bitcode=prefer", "--llvm", &llvm, "--local", "libsquares.so", "--modes", modes]);
        let first = bench.inject(&squares, &["--args", "ab", "--format", "u64", "--json"]).worked();
        assert_eq!(first.text().trim(), (97 * 97 + 98 * 98).to_string(), "{llvm}");
        let squared = stored(&bench, "squares", &bench.address());
        assert_eq!(squared["id"], images[1]["id"], "it is known by what travelled");
        assert_eq!((&squared["calls"], &squared["family"]), (&1.into(), &shown["family"]));
        let more = bench.inject(&squares, &["--args", "ab", "--format", "u64", "--repeat", "9"]).worked();
        assert_eq!(more.text().trim(), (97 * 97 + 98 * 98).to_string(), "{llvm}");
        assert_eq!(stored(&bench, "squares", &bench.address())["calls"], 10);
        // It is compiled before it runs, and lies in no mailbox.
        let in_place = bench.inject(&squares, &["--args", "ab", "--mode", "in-place"]);
        in_place.fails(1, &["in place", "as bitcode"]);
        // In mode local, the target runs the image of its own library.
        let own = bench.inject(&squares, &["--args", "ab", "--format", "u64", "--mode", "local"]).worked();
        assert_eq!(own.text().trim(), (97 * 97 + 98 * 98).to_string());
        // With statics it is optimised at once: they would be lost.
        let counted = bench.inject(&count, &["--format", "u32", "--repeat", "5"]).worked();
        assert_eq!(counted.text().trim(), "5");
        let counted = bench.inject(&count, &["--format", "u32", "--mode", "always"]).worked();
        assert_eq!(counted.text().trim(), "6");
        assert_eq!(stored(&bench, "count", &bench.address())["calls"], 6);
        let program = children_of(serving.pid());
        assert_eq!(program.len(), 1, "the compiler: {program:?}");
        serving.stop().worked();
        wait_for("the compiler's end", || (!runs(program[0])).then_some(()));
    }
    bench.is_clean();
}

#[test]
fn bitcode_takes_the_place_of_an_image_that_is_missing() {
    // The target claims a CPU below those of all images of the library.
    let v3 = "x86_64-unknown-linux-gnu:v3";
    if cfg!(not(target_arch = "x86_64")) {
        return println!("skipped: only x86-64 has levels");
    }
    let Some((bench, squares)) = with_library("squares", SQUARES, &["--cc", "clang", "--target", v3]) else {
        return;
    };
    let without = bench.serve(&["--cpu-level", "baseline"]);
    let refused = bench.inject(&squares, &["--args", "ab"]);
    refused.fails(1, &["no image for x86_64-unknown-linux-gnu", "takes no bitcode", "--bitcode"]);
    without.stop().worked();
    let serving = bench.serve(&["--cpu-level", "baseline", "--bitcode"]);
    let done = bench.inject(&squares, &["--args", "ab", "--format", "u64"]).worked();
    assert_eq!(done.text().trim(), (97 * 97 + 98 * 98).to_string());
    stored(&bench, "squares", &bench.address());
    serving.stop().worked();
}

#[test]
fn an_allow_list_names_what_travelled() {
    let Some((bench, squares)) = with_library("squares", SQUARES, &[]) else { return };
    let shown = bench.json(["inspect", "libsquares.so", "--json"]);
    let (image, bitcode) = (&shown["images"][0]["id"], &shown["images"][1]["id"]);
    let serving = bench.serve(&["--bitcode=prefer"]);
    let said = bench.json(["transports", "--to", &bench.address(), "--json"]);
    assert_eq!(said["cpu"]["takes"], serde_json::json!(["bitcode", "images"]));
    serving.stop().worked();
    for (allowed, is_let_in) in [(bitcode, true), (&shown["family"], true), (image, false)] {
        let serving = bench.serve(&["--bitcode=prefer", "--allow-code", allowed.as_str().expect("an id")]);
        let done = bench.inject(&squares, &["--args", "ab"]);
        match is_let_in {
            true => drop(done.worked()),
            false => done.fails(3, &["not among the 1 that may come in"]),
        }
        serving.stop().worked();
    }
}

#[test]
fn imports_that_the_target_does_not_offer_are_named() {
    let source = "#include <farjump_ifunc.h>\nFARJUMP_COPY_ARGS(far)\nextern int nobody_offers_this(void);\n\
        FARJUMP_IFUNC void far_main(void *p, size_t n, void *a) { (void)p; (void)n; (void)a; nobody_offers_this(); }\n";
    let Some((bench, far)) = with_library("far", source, &[]) else { return };
    let _serving = bench.serve(&["--bitcode=prefer", "--allow-export"]);
    bench.inject(&far, &[]).fails(3, &["`far`", "nobody_offers_this"]);
    // It is refused again, and from another source.
    bench.inject(&far, &[]).fails(3, &["`far`", "nobody_offers_this"]);
    // Symbols that the target offers later are linked.
    bench.plain_library("offers", "int nobody_offers_this(void) { return 0; }\n");
    let offers = bench.path("liboffers.so").display().to_string();
    bench.run(["export", &offers, "--to", &bench.address()]).worked();
    bench.inject(&far, &[]).worked();
}

#[test]
fn a_target_that_could_not_compile_does_not_start() {
    let bench = Workbench::new();
    let stub = bench.plain_library("stub", "int LLVMGetVersion;\n");
    let text = bench.write("libtext.so", "no library\n");
    let stub = stub.to_str().expect("it is text");
    let text = text.to_str().expect("it is text");
    let serve = |more: &[&str]| finish(&mut bench.serving(&[&["--bitcode"][..], more].concat()));
    serve(&["--llvm", "/nowhere/libLLVM.so"])
        .fails(1, &["can take no bitcode", "`/nowhere/libLLVM.so` cannot be opened", "No such file"]);
    serve(&["--llvm", stub]).fails(1, &[stub, "is no LLVM of version 17 or newer"]);
    serve(&["--llvm", text]).fails(1, &[text, "cannot be opened"]);
    let old = "libLLVM-14.so.1";
    let checked = serve(&["--llvm", old]);
    assert!(checked.err.contains(old), "{}", checked.err);
    let folder = bench.path("cache");
    fs::create_dir(&folder).expect("a folder can be made");
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o777)).expect("it is ours");
    serve(&["--bitcode-cache", "cache"]).fails(1, &["cannot keep images", "others than its owner"]);
}

#[test]
fn compiled_bitcode_is_cached_across_runs_and_recompiled_if_damaged() {
    let Some((bench, squares)) = with_library("squares", SQUARES, &[]) else { return };
    let run = || {
        let mut command = bench.serving(&["--bitcode=prefer", "--bitcode-cache", "cache"]);
        let (serving, _) = start_target(command.env("FARJUMP_LOG", "farjump=debug"));
        let done = bench.inject(&squares, &["--args", "ab", "--format", "u64"]).worked();
        assert_eq!(done.text().trim(), (97 * 97 + 98 * 98).to_string());
        stored(&bench, "squares", &bench.address());
        serving.stop().worked().err
    };
    let files = || -> Vec<PathBuf> {
        let entries = fs::read_dir(bench.path("cache")).expect("it is a folder");
        entries.map(|entry| entry.expect("it can be read").path()).collect()
    };
    assert!(!run().contains("kept from before"));
    wait_for("both images", || (files().len() == 2).then_some(()));
    assert!(run().contains("O2, kept from before"));
    // A file whose contents do not match its hash is made again.
    for file in files() {
        let mut bytes = fs::read(&file).expect("it can be read");
        let last = bytes.len() - 1;
        bytes[last] ^= 1;
        fs::write(&file, bytes).expect("it is ours");
    }
    assert!(!run().contains("kept from before"));
    assert!(run().contains("O2, kept from before"));
}

#[test]
fn a_compiler_that_dies_is_started_again() {
    let Some((bench, squares)) = with_library("squares", SQUARES, &[]) else { return };
    let serving = bench.serve(&["--bitcode=prefer"]);
    let program = children_of(serving.pid())[0];
    crate::workbench::kill(program, Signal::KILL);
    wait_for("its end", || (!runs(program)).then_some(()));
    // The job that finds the compiler dead is lost, and a later one is not.
    let answered = wait_for("a compiler", || {
        let done = bench.inject(&squares, &["--args", "ab", "--format", "u64"]);
        (done.code == 0).then_some(done)
    });
    assert_eq!(answered.text().trim(), (97 * 97 + 98 * 98).to_string());
    // A target that is killed takes the compiler along.
    let program = children_of(serving.pid())[0];
    drop(serving.kill());
    wait_for("its end", || (!runs(program)).then_some(()));
}

/// Returns the bitcode of a library.
fn bitcode_of(library: &Path) -> Vec<u8> {
    let library = Library::open(library).expect("it was built");
    let image = library.images().iter().find(|image| BitcodeView::is_bitcode(image.bytes()));
    image.expect("it carries bitcode").bytes().to_vec()
}

fn compiler(choose: impl FnOnce(&mut Options)) -> Compiler {
    static NEWEST: LazyLock<Vec<String>> = LazyLock::new(llvms);
    let mut options = Options::default();
    options.program = Some(COMPILER.into());
    options.llvm = NEWEST.first().map(PathBuf::from);
    choose(&mut options);
    Compiler::new(options)
}

/// Waits for the results of so many jobs.
fn results(compiler: &mut Compiler, count: usize) -> Vec<Done> {
    let (begun, mut done) = (Instant::now(), Vec::new());
    while done.len() < count {
        done.extend(compiler.poll());
        assert!(begun.elapsed() < Duration::from_secs(120), "{} of {count} jobs have ended", done.len());
        std::thread::sleep(Duration::from_micros(200));
    }
    done
}

fn compile(compiler: &mut Compiler, tier: Tier, bitcode: &[u8]) -> Result<usize, String> {
    compiler.submit(tier, code_id(bitcode), &detected(), bitcode)?;
    results(compiler, 1).remove(0).result.map(|compiled| compiled.image.len()).map_err(|failed| failed.text)
}

/// Returns the same bitcode with another header or other modules.
fn altered<'a>(bitcode: &'a [u8], alter: impl FnOnce(&mut BitcodeParts<'a>)) -> Vec<u8> {
    let view = BitcodeView::new_checked(bitcode).expect("it was built");
    let mut parts = BitcodeParts {
        machine: view.machine(),
        payload_align_log2: view.payload_align_log2(),
        llvm: view.llvm(),
        name: view.name(),
        wanted: view.wanted().collect(),
        modules: view.modules().collect(),
    };
    alter(&mut parts);
    parts.encode().expect("the parts are bitcode")
}

#[test]
fn sixteen_mebibytes_of_bitcode_are_compiled_or_refused_in_time() {
    const LEN: usize = 16 << 20;
    let Some((bench, squares)) = with_library("squares", SQUARES, &[]) else { return };
    let bitcode = bitcode_of(&squares);
    let body = "define void @squares_main(ptr %p, i64 %n, ptr %a) {\n  %1 = call i32 @farjump_reply(ptr @data, i64 8)\n  ret void\n}\n\
        declare i32 @farjump_reply(ptr, i64)\n";
    let text = |data: String| format!("@data = global [{LEN} x i8] {data}\n{body}");
    // Little text for much data, much text for much data, and much text for nothing.
    let bytes = text(format!("c\"{}\"", "x".repeat(LEN)));
    let comment = format!("; {}\n{}", "-".repeat(LEN), text("zeroinitializer".to_owned()));
    let mut own = compiler(|_| {});
    let of = |module: &str| altered(&bitcode, |parts| parts.modules = vec![module.as_bytes()]).len();
    assert!(of(&bytes) > LEN && of(&comment) > LEN);
    for (module, least) in [(text("zeroinitializer".to_owned()), 0), (bytes, LEN), (comment, 0)] {
        let module = altered(&bitcode, |parts| parts.modules = vec![module.as_bytes()]);
        let len = compile(&mut own, Tier::First, &module).expect("it is compiled");
        assert!(len >= least, "{len} of {least}");
    }
    // A function that takes LLVM longer than is allowed: each value depends on all before it.
    let mut endless =
        "define void @squares_main(ptr %p, i64 %n, ptr %a) {\n  %v0 = load volatile i64, ptr %p\n".to_owned();
    let mut number = 0;
    while endless.len() < LEN {
        number += 1;
        let before = number - 1;
        endless += &format!("  %v{number} = mul i64 %v{before}, %v{}\n", before / 2);
    }
    endless += &format!("  store volatile i64 %v{number}, ptr %p\n  ret void\n}}\n");
    let mut own = compiler(|options| options.deadline = Duration::from_secs(2));
    let module = altered(&bitcode, |parts| parts.modules = vec![endless.as_bytes()]);
    let begun = Instant::now();
    let why = compile(&mut own, Tier::Optimised, &module).expect_err("it takes too long");
    assert!(why.contains("took longer than 2s"), "{why}");
    assert!(begun.elapsed() < Duration::from_secs(60), "{:?}", begun.elapsed());
    compile(&mut own, Tier::First, &bitcode).expect("other bitcode is compiled then");
    bench.is_clean();
}

#[test]
fn bitcode_that_cannot_be_compiled_is_refused_with_the_reason() {
    let Some((bench, squares)) = with_library("squares", SQUARES, &[]) else { return };
    let bitcode = bitcode_of(&squares);
    let mut own = compiler(|_| {});
    compile(&mut own, Tier::First, &bitcode).expect("it is compiled");
    compile(&mut own, Tier::Optimised, &bitcode).expect("it is compiled");
    let mut refused = |bitcode: &[u8], part: &str| {
        let why = compile(&mut own, Tier::First, bitcode).expect_err(part);
        assert!(why.contains(part), "{part:?} is not in {why:?}");
    };
    refused(&altered(&bitcode, |parts| parts.llvm = 99), "written by LLVM 99");
    refused(&altered(&bitcode, |parts| parts.modules = vec![b"BC\xc0\xde"]), "LLVM cannot read it");
    let twice = altered(&bitcode, |parts| parts.modules = vec![parts.modules[0]; 2]);
    refused(&twice, "its modules do not go together");
    refused(&bitcode[..bitcode.len() - 1], "truncated");
    if cfg!(target_arch = "x86_64") {
        // The same instructions, and pointers of half the length.
        bench.write(
            "narrow.c",
            "void squares_main(void *p, unsigned n, void *a) { (void)p; (void)n; (void)a; }\n",
        );
        let arguments = [
            "--target=x86_64-linux-gnux32",
            "-ffreestanding",
            "-c",
            "-emit-llvm",
            "narrow.c",
            "-o",
            "narrow.bc",
        ];
        finish(bench.program("clang").args(arguments)).worked();
        let narrow = fs::read(bench.path("narrow.bc")).expect("it was compiled");
        refused(&altered(&bitcode, |parts| parts.modules = vec![&narrow[..]]), "laid out otherwise");
    }
}

/// Returns a library whose function takes long to compile.
fn large_library(bench: &Workbench) -> PathBuf {
    let body: String =
        (0..800).map(|n| format!("x = (x ^ {n}u) * 0x9e37u + n; if (x & {n}u) x += y[x % n];\n")).collect();
    let source = format!(
        "#include <farjump_ifunc.h>\nFARJUMP_COPY_ARGS(large)\nFARJUMP_IFUNC void large_main(void *p, size_t n, void *a) {{ \
         (void)a; unsigned x = n; const unsigned *y = p;\n{body} farjump_reply(&x, 4); }}\n"
    );
    library(bench, "large", &source, &[]).expect("there is a compiler")
}

#[test]
fn a_job_over_its_memory_limit_fails_and_its_compiler_goes_on() {
    let Some((bench, _)) = with_library("squares", SQUARES, &[]) else { return };
    let large = bitcode_of(&large_library(&bench));
    let mut poor = compiler(|options| options.memory = 4 << 20);
    let why = compile(&mut poor, Tier::Optimised, &large).expect_err("it needs more");
    assert!(why.contains("crashed") || why.contains("gives up"), "{why}");
    // The same process does the next job.
    let program = poor.process_id();
    let small = bitcode_of(&bench.path("libsquares.so"));
    compile(&mut poor, Tier::First, &small).expect("it is compiled");
    assert_eq!(poor.process_id(), program);
}

/// Damaged bitcode, whose id was computed anew. `FARJUMP_TEST_MUTANTS=10000` for a longer run.
#[test]
fn damaged_bitcode_ends_as_an_image_or_a_refusal() {
    let Some((_bench, squares)) = with_library("squares", SQUARES, &[]) else { return };
    let bitcode = bitcode_of(&squares);
    let count =
        std::env::var("FARJUMP_TEST_MUTANTS").ok().and_then(|count| count.parse().ok()).unwrap_or(500);
    let mut random = fastrand::Rng::with_seed(29);
    let mut own = compiler(|options| options.deadline = Duration::from_secs(5));
    let whole = BitcodeView::new_checked(&bitcode).expect("it was built");
    let module = whole.modules().next().expect("there is one").to_vec();
    let (mut images, mut refusals, mut crashes) = (0, 0, 0);
    let mut done = 0;
    while done < count {
        let batch = 64.min(count - done);
        for _ in 0..batch {
            let mut module = module.clone();
            for _ in 0..random.usize(1..4) {
                let bit = random.usize(0..module.len() * 8);
                module[bit / 8] ^= 1 << (bit % 8);
            }
            if random.u8(..) < 16 {
                module.truncate(random.usize(..module.len()));
            }
            let mutant = altered(&bitcode, |parts| parts.modules = vec![&module]);
            let tier = if random.bool() { Tier::First } else { Tier::Optimised };
            own.submit(tier, code_id(&mutant), &detected(), &mutant).expect("it is begun");
        }
        for one in results(&mut own, batch) {
            match one.result {
                Ok(_) => images += 1,
                Err(why) if why.text.contains("crashed") => crashes += 1,
                Err(why) => {
                    let why = why.text;
                    assert!(!why.contains("compiler ended") && !why.contains("panicked"), "{why}");
                    refusals += 1;
                }
            }
        }
        done += batch;
    }
    println!("{images} images, {refusals} refusals, {crashes} crashes of a job");
    assert!(images > 0 && refusals > 0);
    compile(&mut own, Tier::First, &bitcode).expect("the compiler is as it was");
    assert_eq!(own.jobs(), 0);
}

#[test]
fn bitcode_that_differs_from_its_description_is_refused_before_it_is_parsed() {
    let Some((bench, squares)) = with_library("squares", SQUARES, &[]) else { return };
    let serving = bench.serve(&["--bitcode=prefer"]);
    let bitcode = bitcode_of(&squares);
    let mut hostile = RawSource::connect(&bench.address());
    let mut token = 0;
    let mut refused = |code: &[u8], id: CodeId, cause: RefusalCause, part: &str| {
        token += 1;
        let plan = Plan { index: token as u16, token, ..call_code("squares", code, id, hostile.epoch) };
        hostile.send_plan(&plan, b"ab");
        let (found, text) = hostile.refusal(token);
        assert!(found == cause && text.contains(part), "{part}: {found:?}: {text}");
    };
    let id = code_id(&bitcode);
    let flipped: Vec<u8> = bitcode.iter().enumerate().map(|(at, byte)| byte ^ u8::from(at == 900)).collect();
    refused(&flipped, id, RefusalCause::IdMismatch, "damaged on the way");
    let cut = &bitcode[..bitcode.len() - 4];
    refused(cut, id, RefusalCause::IdMismatch, "damaged on the way");
    refused(cut, code_id(cut), RefusalCause::BadImage, "truncated");
    let [low, high] = farjump_core::image::Machine(22).0.to_le_bytes();
    let foreign = [&bitcode[..4], &[low, high], &bitcode[6..]].concat();
    refused(&foreign, code_id(&foreign), RefusalCause::WrongMachine, "bitcode for machine 22");
    // None of these became a job.
    assert_eq!(children_of(children_of(serving.pid())[0]), [0; 0]);
    // The same frame with the bitcode that it announces.
    let plan =
        Plan { index: 9, token: 9, wants_reply: true, ..call_code("squares", &bitcode, id, hostile.epoch) };
    hostile.send_plan(&plan, b"ab");
    assert_eq!(hostile.reply(), (97_u64 * 97 + 98 * 98).to_le_bytes());
    // A frame that only binds waits for its code too, and is refused once.
    let empty = altered(&bitcode, |parts| parts.name = "other");
    for token in [10, 11] {
        let code = call_code("other", &empty, code_id(&empty), hostile.epoch);
        let plan = Plan { kind: Kind::Bind, index: token as u16, token, wants_reply: true, ..code };
        hostile.send_plan(&plan, b"");
        let (cause, text) = hostile.refusal(token);
        assert!(cause == RefusalCause::BadImage && text.contains("no function `other_main`"), "{text}");
    }
}

/// Checks the confinement of a job's process; `None` if that is not complete yet, or the process has ended.
fn confined(job: u32) -> Option<()> {
    let read = |file: &str| fs::read_to_string(format!("/proc/{job}/{file}")).ok();
    let status = |text: &str, key: &str| {
        text.lines().find_map(|line| line.strip_prefix(key)).map(|value| value.trim().to_owned())
    };
    // The filter of system calls is the last part.
    let text = read("status").filter(|text| status(text, "Seccomp:").as_deref() == Some("2"))?;
    assert_eq!(status(&text, "NoNewPrivs:").as_deref(), Some("1"));
    let limits = read("limits").filter(|limits| !limits.is_empty())?;
    let open = limits.lines().find(|line| line.starts_with("Max open files")).expect("a limit");
    assert_eq!(open.split_whitespace().nth(3), Some("0"), "{open}");
    match fs::read_dir(format!("/proc/{job}/fd")).map(Iterator::count) {
        // It has ended meanwhile.
        Ok(0) => return None,
        Ok(open) => assert_eq!(open, 1, "its pipe"),
        Err(error) if runs(job) => println!("skipped: only root sees its descriptors: {error}"),
        Err(_) => return None,
    }
    Some(())
}

#[test]
fn a_job_has_one_descriptor_and_no_privileges() {
    let Some((bench, _)) = with_library("squares", SQUARES, &[]) else { return };
    let large = bitcode_of(&large_library(&bench));
    let mut own = compiler(|_| {});
    own.start(Duration::from_secs(60)).expect("it starts");
    let program = own.process_id().expect("it runs");
    // Several jobs, of which one is found at work. Each has its own id, so that no result replaces another's job.
    for job in 0..32 {
        own.submit(Tier::Optimised, CodeId([job; 16]), &detected(), &large).expect("it is begun");
    }
    wait_for("a job at work, confined", || children_of(program).into_iter().find_map(confined));
    assert!(results(&mut own, 32).iter().all(|done| done.result.is_ok()));
    drop(own);
    assert!(!runs(program), "it ends with its client");
}

#[test]
fn bitcode_goes_on_from_target_to_target() {
    let source = "#include <farjump_ifunc.h>\nFARJUMP_COPY_ARGS(hop)\n\
        FARJUMP_IFUNC void hop_main(void *p, size_t n, void *a) { (void)a; unsigned char *left = p;\n\
        if (*left != 0) { *left -= 1; if (farjump_forward(\"next\", 4, p, n) != 0) farjump_panic(\"no next\", 7); return; }\n\
        farjump_reply(p, n); }\n";
    let Some((bench, hop)) = with_library("hop", source, &[]) else { return };
    let serve = |name: &str, args: &[&str]| {
        let address = format!("unix:{}", bench.path(name).display());
        start_target(bench.farjump().args(["serve", "--listen", &address]).args(args))
    };
    let two_hops = |address: &str| {
        let done = finish(&mut bench.injecting(&hop, address, &["--args", "\u{1}x", "--format", "u8"]));
        assert_eq!(done.worked().text().trim(), "0\n120");
    };
    let next = |address: &str| format!("next={address}");
    let (_second, second) = serve("second", &["--bitcode=prefer"]);
    let (_first, first) = serve("first", &["--bitcode=prefer", "--destination", &next(&second)]);
    two_hops(&first);
    assert_eq!(stored(&bench, "hop", &second)["id"], stored(&bench, "hop", &first)["id"]);
    // A source sends the image of the same library to a target that takes no bitcode.
    let (_fourth, fourth) = serve("fourth", &[]);
    let (_third, third) = serve("third", &["--bitcode=prefer", "--destination", &next(&fourth)]);
    two_hops(&third);
    let store = bench.json(["store", "--to", &fourth, "--json"]);
    let machine = farjump_core::image::Machine::native().expect("it is known");
    assert_eq!(store["images"][0]["platform"], machine.triple());
}

#[test]
fn more_jobs_than_a_compiler_takes_are_refused_at_once() {
    let Some((_bench, squares)) = with_library("squares", SQUARES, &[]) else { return };
    let bitcode = bitcode_of(&squares);
    let mut own = compiler(|_| {});
    let submit = |own: &mut Compiler| own.submit(Tier::First, CodeId([1; 16]), &detected(), &bitcode);
    let begun = (0..300).map_while(|_| submit(&mut own).ok()).count();
    assert_eq!(begun, 256);
    assert!(submit(&mut own).expect_err("it is full").contains("enough to do"));
    assert!(results(&mut own, begun).iter().all(|done| done.result.is_ok()));
    submit(&mut own).expect("it has time");
    assert_eq!(results(&mut own, 1).len(), 1);
}

/// Builds these sources with bitcode; `None` where no compiler writes any. rustc does.
fn built(bench: &Workbench, name: &str, inputs: &[&str]) -> Option<PathBuf> {
    if !inputs.iter().all(|input| input.ends_with(".rs")) && !writes_bitcode() {
        return None;
    }
    let output = format!("lib{name}.so");
    let rest = ["-o", &output, "--name", name, "--bitcode", "--cflag", "-O2"];
    bench.run([&["build"][..], inputs, &rest].concat()).worked();
    Some(bench.path(&output))
}

/// Runs a function as an image and as bitcode. Checks that both reply the same, and returns the reply.
#[track_caller]
fn both_forms(bench: &Workbench, library: &Path, args: &[&str]) -> Vec<u8> {
    let [image, bitcode] = ["--cpu-level=baseline", "--bitcode=prefer"].map(|form| {
        let data = bench.write("data", b"a stone in the grass, a grain of sand".repeat(500));
        let serving = bench.serve(&[form, "--data", data.to_str().expect("it is text")]);
        let done = bench.inject(library, args).worked();
        let store = bench.json(["store", "--to", &bench.address(), "--json"]);
        let platform = store["images"][0]["platform"].as_str().expect("a text").to_owned();
        assert_eq!(platform.contains("bitcode"), form.contains("bitcode"), "{platform}");
        serving.stop().worked();
        done.out
    });
    assert_eq!(image, bitcode, "{}", library.display());
    image
}

#[test]
fn the_samples_reply_the_same_in_both_forms() {
    let bench = Workbench::new();
    let keys: Vec<u8> = (0..64_u64).flat_map(u64::to_le_bytes).collect();
    bench.write("keys", keys);
    let samples: [(&str, &[&str]); 4] = [
        ("crc32", &[]),
        ("histogram", &[]),
        ("grep", &["--args", "grain"]),
        ("sum", &["--args-file", "keys"]),
    ];
    for (sample, args) in samples {
        let source = format!("{}/../ifuncs/samples/c/{sample}.c", env!("CARGO_MANIFEST_DIR"));
        let Some(library) = built(&bench, sample, &[&source]) else { return };
        assert!(!both_forms(&bench, &library, args).is_empty(), "{sample}");
    }
}

#[test]
fn rust_replies_the_same_in_both_forms() {
    let bench = Workbench::new();
    let keys: Vec<u8> = (0..64_u64).flat_map(u64::to_le_bytes).collect();
    bench.write("keys", keys);
    // A slice with a bound that is checked: a panic of core's.
    bench.write(
        "at.rs",
        "#![no_std]\n#![forbid(unsafe_code)]\nuse farjump_ifunc::ifunc;\n\
         #[ifunc]\nfn at(numbers: &[u64]) -> u64 { numbers[numbers[0] as usize] }\n",
    );
    let samples: [(&str, &[&str]); 2] = [("crc32", &[]), ("histogram", &[])];
    for (sample, args) in samples {
        let source = format!("{}/../ifuncs/samples/rust/{sample}.rs", env!("CARGO_MANIFEST_DIR"));
        let Some(library) = built(&bench, sample, &[&source]) else { return };
        let len = bitcode_of(&library).len();
        assert!(len < 16 << 10, "{sample}: {len} bytes, with all of core");
        assert!(!both_forms(&bench, &library, args).is_empty(), "{sample}");
    }
    let library = built(&bench, "at", &["at.rs"]).expect("there is a compiler");
    assert_eq!(both_forms(&bench, &library, &["--args-file", "keys"]), [0; 8]);
    let _serving = bench.serve(&["--bitcode=prefer"]);
    bench.write("keys", 99_u64.to_le_bytes());
    bench.inject(&library, &["--args-file", "keys"]).fails(3, &["panicked"]);
}

#[test]
fn several_sources_and_languages_are_compiled_as_one() {
    // One of `cc` and `c++` may be clang's and the other gcc's.
    if !all_work(&["clang", "clang++"]) {
        return;
    }
    let bench = Workbench::new();
    // An inline function and a template, which are defined in both files, and a table of functions.
    bench.write(
        "shared.h",
        "template<class T> T three_times(T x) { return 3 * x; }\ninline int seven() { static const int n = 7; return n; }\n\
         extern \"C\" long of_the_other(long);\n",
    );
    bench.write(
        "mix.cc",
        "#include <farjump_ifunc.h>\n#include \"shared.h\"\nFARJUMP_COPY_ARGS(mix)\n\
         static long one(long x) { return three_times(x) + seven(); }\n\
         using step = long (*)(long);\nstatic const step steps[] = { one, of_the_other };\n\
         extern \"C\" void mix_main(void *p, size_t n, void *a) { (void)a; long x = 0;\n\
         for (size_t i = 0; i < n; i++) x += steps[i & 1](((unsigned char *)p)[i]);\nfarjump_reply(&x, sizeof x); }\n",
    );
    bench.write(
        "other.cc",
        "#include \"shared.h\"\nextern \"C\" long of_the_other(long x) { return three_times(x) - seven(); }\n",
    );
    let Some(library) = built(&bench, "mix", &["mix.cc", "other.cc", "--cc", "clang"]) else { return };
    let view = bitcode_of(&library);
    assert_eq!(BitcodeView::new_checked(&view).expect("it is bitcode").modules().count(), 2);
    let sum: i64 = [(97, 7), (98, -7), (99, 7)].iter().map(|(x, y)| 3 * x + y).sum();
    assert_eq!(both_forms(&bench, &library, &["--args", "abc"]), sum.to_le_bytes());
}

/// Julia's compilers hand over a bitcode file, whose functions take addresses as numbers. There is no Julia here: clang
/// writes a file of that shape. The payload routines are a line of C.
#[test]
fn bitcode_files_of_other_compilers_are_taken() {
    if !all_work(&["clang"]) {
        return;
    }
    let bench = Workbench::new();
    bench.write(
        "julia.c",
        "typedef unsigned long u64;\nextern int farjump_reply(const void *, u64);\n\
         static u64 julia_load(u64 at, u64 i) { return ((unsigned char *)at)[i - 1]; }\n\
         void shape_main(u64 payload, u64 size, u64 args) { (void)args; u64 sum = 0;\n\
         for (u64 i = 1; i <= size; i++) sum += julia_load(payload, i); farjump_reply(&sum, 8); }\n",
    );
    bench.write("routines.c", "#include <farjump_ifunc.h>\nFARJUMP_COPY_ARGS(shape)\n");
    let clang =
        ["-O2", "-fPIC", "-Xclang", "-disable-llvm-passes", "-c", "-emit-llvm", "julia.c", "-o", "julia.bc"];
    finish(bench.program("clang").args(clang)).worked();
    let library = built(&bench, "shape", &["julia.bc", "routines.c"]).expect("there is a compiler");
    assert_eq!(both_forms(&bench, &library, &["--args", "abc"]), 294_u64.to_le_bytes());
    // The error names an input without bitcode.
    finish(bench.program("cc").args(["-c", "-fPIC", "julia.c"])).worked();
    let build = |input: &str| bench.run(["build", input, "routines.c", "-o", "libshape.so", "--bitcode"]);
    build("julia.o").fails(1, &["no bitcode of `julia.o`, which is machine code"]);
}
