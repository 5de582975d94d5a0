//! Pairs of processes on machines of two architectures, with one library for both. This program is of one of them, and
//! is emulated; the program `farjump` that `FARJUMP_TEST_OTHER` names is of the other (`cargo xtask test emulated`).

use std::path::PathBuf;
use std::process::Command;

use farjump::{CompiledImage, Library, Machine, PeerCompiler};
use farjump_fixtures::process::Process;

use crate::support::{FOREIGN, PATIENCE, Place, meanwhile};

/// The transports between processes of one machine.
const TRANSPORTS: [&str; 3] = ["shm", "tcp", "ucx-am"];

/// The other architecture's `farjump`. `None` where there is none, which is said.
fn other() -> Option<PathBuf> {
    let program = std::env::var_os("FARJUMP_TEST_OTHER").map(PathBuf::from);
    if program.is_none() {
        eprintln!("skipped: there is no program of another architecture (FARJUMP_TEST_OTHER)");
    }
    program
}

/// A library of the other machine, with images for both. Its function replies the name of the machine it was compiled
/// for, a number that it keeps between calls, and the payload.
fn library(place: &Place, other: &PathBuf) -> PathBuf {
    let text = "#include \"farjump_ifunc.h\"\nFARJUMP_COPY_ARGS(where)\n\
        #ifdef __aarch64__\nstatic const char machine[8] = \"aarch64 \";\n#else\n\
        static const char machine[8] = \"x86_64  \";\n#endif\n\
        static char calls = '0';\n\
        void where_main(void *p, size_t n, void *t) { (void)t; calls++;\n\
        farjump_reply(machine, 8); farjump_reply(&calls, 1); farjump_reply(p, n); }\n";
    built(place, other, "where", text)
}

/// The library of the function `name` with this text, which carries it.
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
        // By its path: what is found by its name compiles for this machine.
        .args(["--cc", "/usr/bin/clang"])
        .args([Machine::X86_64, Machine::AARCH64].map(|machine| format!("--target={}", machine.triple())))
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    library
}

/// A function that replies the name of the machine that it was compiled for.
const MACHINE: &str = "#include \"farjump_ifunc.h\"\nFARJUMP_COPY_ARGS(machine)\n\
    #ifdef __aarch64__\nstatic const char machine[8] = \"aarch64 \";\n#else\n\
    static const char machine[8] = \"x86_64  \";\n#endif\n\
    FARJUMP_IFUNC void machine_main(void *p, size_t n, void *t) { (void)p; (void)n; (void)t;\n\
    farjump_reply(machine, 8); }\n";

#[test]
fn this_machine_compiles_for_the_other_one_behind_the_calls() {
    let Some(other) = other() else { return };
    let place = Place::new();
    let library = Library::open(built(&place, &other, "machine", MACHINE)).unwrap();
    let mut command = Command::new(&other);
    command.args(["serve", "--listen", &place.address()]);
    let target = Process::start(&mut command);
    assert!(target.line().starts_with("ready: "));
    let compiler = PeerCompiler::new().cc("/usr/bin/clang");
    let link = place.link().compile_for_peer(compiler).connect().unwrap();
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

/// The start of a reply of the function's first call on a machine.
fn name(machine: Machine) -> &'static str {
    if machine == Machine::AARCH64 { "aarch64 " } else { "x86_64  " }
}

#[test]
fn the_other_machine_injects_into_this_one() {
    let Some(other) = other() else { return };
    let place = Place::new();
    let library = library(&place, &other);
    let own = name(Machine::native().unwrap());
    for transport in TRANSPORTS {
        let mut target = place.target().transport(transport).build().unwrap();
        for call in ["1", "2"] {
            let mut command = Command::new(&other);
            command.arg("inject").arg(&library).args(["--to", &place.address(), "--transport", transport]);
            command.args(["--args", "hello", "--format", "text"]);
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
    // The library was built there, and its payloads are the arguments: it is opened here as well.
    let library = Library::open(library(&place, &other)).unwrap();
    for transport in TRANSPORTS {
        let mut command = Command::new(&other);
        command.args(["serve", "--listen", &place.address(), "--transport", transport]);
        let target = Process::start(&mut command);
        assert!(target.line().starts_with("ready: "));
        let link = place.link().transport(transport).connect().unwrap();
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
