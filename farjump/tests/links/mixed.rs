//! Pairs of processes on machines of two architectures, with one library for both. This program is for one of them,
//! and is emulated. The program `farjump` that `FARJUMP_TEST_OTHER` names is for the other (`cargo xtask test
//! emulated`).

use std::env;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;

use farjump::zerocopy::{FromBytes, Immutable, IntoBytes};
use farjump::{CompiledImage, Library, Machine, PeerCompiler};
use farjump_fixtures::helper_process::{HelperProcess, as_test};
use farjump_fixtures::process::Process;

use crate::helper::ENTRY;
use crate::support::{FOREIGN, PATIENCE, Place, library_path, meanwhile};

/// The transports between processes of one machine. Debian 12 has no UCX for riscv64.
const TRANSPORTS: &[&str] =
    if cfg!(target_arch = "riscv64") { &["shm", "tcp"] } else { &["shm", "tcp", "ucx-am"] };

/// The other architecture's `farjump`. Returns `None`, and prints that, if there is none.
fn other() -> Option<PathBuf> {
    let program = env::var_os("FARJUMP_TEST_OTHER").map(PathBuf::from);
    if program.is_none() {
        eprintln!("skipped: there is no program of another architecture (FARJUMP_TEST_OTHER)");
    }
    program
}

/// A library built by the other machine, with images for all. Its function replies the name of the machine it was
/// compiled for, a number that it keeps between calls, and the payload. If the payload begins with `>`, the function
/// appends name and number to the payload instead, and forwards itself.
fn library(place: &Place, other: &PathBuf) -> PathBuf {
    let text = r#"
        #include "farjump_ifunc.h"
        FARJUMP_COPY_ARGS(where)
        #if defined __aarch64__
        static const char machine[8] = "aarch64 ";
        #elif defined __riscv
        static const char machine[8] = "riscv64 ";
        #else
        static const char machine[8] = "x86_64  ";
        #endif
        static char calls = '0';
        void where_main(void *payload, size_t len, void *target_args)
        {
            char *bytes = payload, next[64];
            (void)target_args;
            calls++;
            if (len && *bytes == '>' && len + 8 <= sizeof next) {
                for (size_t at = 1; at < len; at++)
                    next[at - 1] = bytes[at];
                for (size_t at = 0; at < 8; at++)
                    next[len - 1 + at] = machine[at];
                next[len + 7] = calls;
                farjump_forward("next", 4, next, len + 8);
                return;
            }
            farjump_reply(machine, 8);
            farjump_reply(&calls, 1);
            farjump_reply(payload, len);
        }"#;
    built(place, other, "where", text)
}

/// Builds the library of the function `name` from this text, which the library carries.
fn built(place: &Place, other: &PathBuf, name: &str, text: &str) -> PathBuf {
    let source = place.path(&format!("{name}.c"));
    std::fs::write(&source, text).unwrap();
    let library = place.path(&format!("lib{name}.so"));
    let output = Command::new(other)
        .arg("build")
        .arg(&source)
        .arg("-o")
        .arg(&library)
        .arg("--carry-source")
        // By its path: a compiler that is found by its name compiles for this machine.
        .args(["--cc", "/usr/bin/clang"])
        .args(MACHINES.map(|machine| format!("--target={}", machine.triple())))
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    library
}

/// A target of `program`, with time for the handshakes of emulated processes on a busy machine.
fn serving(program: impl AsRef<OsStr>, address: &str, transport: &str) -> Command {
    let mut command = Command::new(program);
    command.args(["serve", "--listen", address, "--transport", transport]);
    command.args(["--handshake-timeout", &patience()]);
    command
}

/// Starts this command.
fn start(command: &mut Command) -> Process {
    let target = Process::start(command);
    assert!(target.line().starts_with("ready: "));
    target
}

/// [`PATIENCE`], as a command-line argument.
fn patience() -> String {
    format!("{}s", PATIENCE.as_secs())
}

/// The machines that the library has images for.
const MACHINES: [Machine; 3] = [Machine::X86_64, Machine::AARCH64, Machine::RISCV];

/// A function that replies the name of the machine that it was compiled for.
const MACHINE: &str = "#include \"farjump_ifunc.h\"\nFARJUMP_COPY_ARGS(machine)\n\
    #if defined __aarch64__\nstatic const char machine[8] = \"aarch64 \";\n\
    #elif defined __riscv\nstatic const char machine[8] = \"riscv64 \";\n#else\n\
    static const char machine[8] = \"x86_64  \";\n#endif\n\
    FARJUMP_IFUNC void machine_main(void *p, size_t n, void *t) { (void)p; (void)n; (void)t;\n\
    farjump_reply(machine, 8); }\n";

#[test]
fn this_machine_compiles_for_the_other_one_behind_the_calls() {
    let Some(other) = other() else { return };
    let place = Place::new();
    let library = Library::open(built(&place, &other, "machine", MACHINE)).unwrap();
    let target = start(&mut serving(&other, &place.address(), "shm"));
    let compiler = PeerCompiler::new().cc("/usr/bin/clang");
    let link = place.link().compile_for_peer(compiler).connect_timeout(PATIENCE).connect().unwrap();
    let image = loop {
        let reply = link.inject(&library, b"").unwrap().wait(PATIENCE).unwrap();
        assert_eq!(*reply, *name(FOREIGN).as_bytes());
        match link.compiled_image(&library) {
            CompiledImage::Compiling | CompiledImage::Compiled(_) => {}
            settled => break settled,
        }
    };
    let CompiledImage::InUse(id) = image else { panic!("{image:?}") };
    let images = place.admin().store().unwrap().images;
    let exact = images.iter().find(|image| image.id == id).unwrap();
    assert_eq!(exact.platform, format!("{}:exact", FOREIGN.triple()));
    drop(link);
    target.stop().worked();
}

/// The start of the reply to the function's first call on a machine.
fn name(machine: Machine) -> &'static str {
    match machine {
        Machine::AARCH64 => "aarch64 ",
        Machine::RISCV => "riscv64 ",
        _ => "x86_64  ",
    }
}

#[test]
fn the_other_machine_injects_into_this_one() {
    let Some(other) = other() else { return };
    let place = Place::new();
    let library = library(&place, &other);
    let own = name(Machine::native().unwrap());
    for &transport in TRANSPORTS {
        let mut target = place.target().transport(transport).handshake_timeout(PATIENCE).build().unwrap();
        for call in ["1", "2"] {
            let mut command = Command::new(&other);
            command.arg("inject").arg(&library).args(["--to", &place.address(), "--transport", transport]);
            command.args(["--args", "hello", "--format", "text", "--timeout", &patience()]);
            let output = meanwhile(&mut target, || command.output().unwrap());
            let said = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{transport}: {said}");
            let reply = String::from_utf8_lossy(&output.stdout);
            assert!(reply.starts_with(&format!("{own}{call}hello")), "{transport}: {reply:?} {said}");
        }
        let images = target.images();
        assert_eq!(images.len(), 1);
        assert_eq!(images[0].platform, Machine::native().unwrap().triple(), "{transport}");
    }
}

#[test]
fn this_machine_injects_into_the_other_one() {
    let Some(other) = other() else { return };
    let place = Place::new();
    // The other machine built the library, and its payloads are the arguments, so this one can open it, too.
    let library = Library::open(library(&place, &other)).unwrap();
    for &transport in TRANSPORTS {
        let target = start(&mut serving(&other, &place.address(), transport));
        let link = place.link().transport(transport).connect_timeout(PATIENCE).connect().unwrap();
        assert_eq!(link.peer_cpu().machine(), FOREIGN, "{transport}");
        for call in ["1", "2"] {
            let reply = link.inject(&library, b"hello").unwrap().wait(PATIENCE).unwrap();
            let reply = String::from_utf8_lossy(&reply).into_owned();
            assert_eq!(reply, format!("{}{call}hello", name(FOREIGN)), "{transport}");
        }
        drop(link);
        target.stop().worked();
    }
}

/// Injects, from the other machine, a function that passes through three targets: one of a third machine, one of
/// this, and one of the other.
#[test]
fn a_function_goes_from_machine_to_machine_and_back_to_the_first() {
    let (Some(other), Some(third)) = (other(), env::var_os("FARJUMP_TEST_THIRD")) else {
        return eprintln!("skipped: there is no program of a third architecture (FARJUMP_TEST_THIRD)");
    };
    let place = Place::new();
    let library = library(&place, &other);
    let address = |number| place.address_of(&format!("{number}.sock"));
    for transport in ["shm", "tcp"] {
        let last = start(&mut serving(&other, &address(3), transport));
        let target =
            farjump::Target::listen(&address(2)).transport(transport).destination("next", &address(3));
        let mut target = target.handshake_timeout(PATIENCE).build().unwrap();
        // This test's own program, of the third machine.
        let role = ["forwarding-target", &address(1), transport, &address(2)];
        let first = HelperProcess::start(as_test(Command::new(&third), ENTRY, &role));
        assert_eq!(first.hear(), "ready");
        for call in ["1", "2"] {
            let mut command = Command::new(&other);
            command.arg("inject").arg(&library).args(["--to", &address(1), "--transport", transport]);
            command.args(["--args", ">>!", "--format", "text", "--timeout", &patience()]);
            let output = meanwhile(&mut target, || command.output().unwrap());
            let said = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{transport}: {said}");
            let reply = String::from_utf8_lossy(&output.stdout);
            let way = [Machine::X86_64, Machine::AARCH64, Machine::RISCV]
                .map(|machine| name(machine).to_owned() + call);
            assert_eq!(reply.trim_end(), format!("{}!{}{}", way[0], way[1], way[2]), "{transport}: {said}");
        }
        assert_eq!(target.images().len(), 1, "{transport}: it holds an image that it passed on");
        assert_eq!(target.stats().refusals(), 0);
        first.end();
        last.stop().worked();
    }
}

/// The structure that `measures.rs` takes and replies.
#[derive(IntoBytes, Immutable, FromBytes, PartialEq, Debug)]
#[zerocopy(crate = "farjump::zerocopy")]
#[repr(C)]
struct Measures {
    wide: i128,
    long: u64,
    double: f64,
    float: f32,
    int: i32,
    short: u16,
    bytes: [i8; 2],
    rest: [u32; 5],
}

/// Numbers whose bytes all differ, and those that the function makes of them.
const GIVEN: Measures = Measures {
    wide: 0x0102_0304_0506_0708_090a_0b0c_0d0e_0f10,
    long: 0x1112_1314_1516_1718,
    double: 0.1,
    float: 0.3,
    int: -0x2122_2324,
    short: 0x3132,
    bytes: [0x41, -0x42],
    rest: [0x5152_5354, 0x6162_6364, 0x7172_7374, 0x8182_8384, u32::MAX],
};
const MADE: Measures = Measures {
    wide: -0x0102_0304_0506_0708_090a_0b0c_0d0e_0f10,
    long: 0x1213_1415_1617_1811,
    double: 0.05,
    float: 0.3 * 3.0,
    int: -0x2122_2325,
    short: 0x3231,
    bytes: [-0x41, 0x42],
    rest: [0x5152_5355, 0x6162_6365, 0x7172_7375, 0x8182_8385, 0],
};

/// The bytes of such a structure on each machine, as `docs/guide/writing-ifuncs.md` says: little-endian, in this order.
fn bytes_of(measures: &Measures) -> Vec<u8> {
    let Measures { wide, long, double, float, int, short, bytes, rest } = measures;
    let numbers = [&wide.to_le_bytes()[..], &long.to_le_bytes(), &double.to_le_bytes(), &float.to_le_bytes()];
    let rest: Vec<u8> = rest.iter().flat_map(|number| number.to_le_bytes()).collect();
    let last = [&int.to_le_bytes()[..], &short.to_le_bytes(), &bytes.map(i8::cast_unsigned), &rest];
    [numbers, last].concat().concat()
}

/// Removes from `PATH` the programs that stand in for this machine's compilers. They compile for the emulated
/// machine.
fn natively(command: &mut Command) -> &mut Command {
    let compiler = env::var_os("RUSTC").map(PathBuf::from);
    let wrappers = compiler.as_deref().and_then(Path::parent);
    let path = env::var_os("PATH").unwrap_or_default();
    let folders = env::split_paths(&path).filter(|folder| Some(&**folder) != wrappers);
    command.env("PATH", env::join_paths(folders).unwrap()).env_remove("RUSTC")
}

#[test]
fn a_typed_call_means_the_same_on_both_machines() {
    let Some(other) = other() else { return };
    assert_eq!(GIVEN.as_bytes(), bytes_of(&GIVEN));
    let place = Place::new();

    // From the other machine to this one: the function is compiled here, and its library is opened there.
    let library = library_path("measures.rs");
    std::fs::write(place.path("given"), bytes_of(&GIVEN)).unwrap();
    let mut target = place.target().handshake_timeout(PATIENCE).build().unwrap();
    let mut command = Command::new(&other);
    command.arg("inject").arg(&library).args([
        "--to",
        &place.address(),
        "--timeout",
        &patience(),
        "--args-file",
    ]);
    let output = meanwhile(&mut target, || command.arg(place.path("given")).output().unwrap());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(output.stdout, bytes_of(&MADE));
    drop(target);

    // From this machine to the other: the function is compiled there, and its library is opened here.
    if natively(Command::new("rustc").arg("--version")).output().is_err() {
        eprintln!("skipped: there is no rustc for the other architecture");
        return;
    }
    let library = place.path("libmeasures.so");
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/ifuncs/measures.rs");
    let mut command = Command::new(&other);
    let output = natively(command.args(["build", source, "-o"]).arg(&library)).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let measures = Library::open(&library).unwrap().typed::<Measures, Measures>().unwrap();
    let target = start(&mut serving(&other, &place.address(), "shm"));
    let link = place.link().connect_timeout(PATIENCE).connect().unwrap();
    assert_eq!(link.peer_cpu().machine(), FOREIGN);
    assert_eq!(link.call(&measures, &GIVEN).unwrap().wait(PATIENCE).unwrap(), MADE);
    drop(link);
    target.stop().worked();
}
