//! Libraries of objects that a program compiled itself, linked in memory.

use std::fs;
use std::path::{Path, PathBuf};

use farjump_builder::{LinkError, link_library};
use farjump_core::cpu::Cpu;
use farjump_core::image::{Level, Machine, Platform};

use crate::fixture::{Fixture, imports};

const MACHINE: Machine = Machine::native().unwrap();
const BASELINE: Platform = Platform::baseline(MACHINE);

/// An object of this C source.
fn object(body: &str) -> Vec<u8> {
    let fixture = Fixture::new();
    fixture.write("t.c", &format!("extern int farjump_reply(const void *, unsigned long);\n{body}"));
    fixture.run("cc", &["-c", "-O2", "-fPIC", "-ffunction-sections", "t.c", "-o", "t.o"]);
    fs::read(fixture.path("t.o")).unwrap()
}

const ECHO: &str =
    "void t_main(void *payload, unsigned long len, void *args) { (void)args; farjump_reply(payload, len); }";

fn refusal(name: &str, objects: Vec<(Platform, Vec<u8>)>) -> String {
    match link_library(name, PathBuf::from("nearest.py"), objects) {
        Ok(library) => panic!("was linked: {library:?}"),
        Err(error) => error.to_string(),
    }
}

#[test]
fn a_library_linked_from_an_object_sends_arguments_as_payload() {
    let library = link_library("t", PathBuf::from("a/nearest.py"), vec![(BASELINE, object(ECHO))]).unwrap();
    assert_eq!((library.name(), library.path()), ("t", Path::new("a/nearest.py")));
    assert!(library.payload_is_args() && library.main().is_none() && library.signature().is_none());
    assert_eq!(library.payload_max_size(b"four"), 4);
    let [image] = library.images() else { panic!("{library:?}") };
    assert_eq!(image.platform(), Some(BASELINE));
    assert_eq!(imports(image.bytes()), ["farjump_reply"]);
    let mut space = [0_u8; 8];
    // SAFETY: `space` is writable for 8 bytes, and nothing else uses it.
    let len = unsafe { library.payload_init(space.as_mut_ptr(), 8, b"four") }.unwrap();
    assert_eq!(&space[..len], b"four");
}

#[test]
fn each_target_gets_the_image_of_the_highest_level_that_it_runs() {
    let Some(v3) = Level::new(MACHINE, 3) else { return println!("skipped: {MACHINE} has no levels") };
    let other = "static int n; void t_main(void) { farjump_reply(&n, sizeof n); }";
    let objects = vec![(BASELINE, object(ECHO)), (Platform { machine: MACHINE, level: v3 }, object(other))];
    let library = link_library("t", PathBuf::new(), objects).unwrap();
    assert_eq!(library.manifest().unwrap().images().len(), 2);
    let level = |level| {
        let image = library.image_for_cpu(&Cpu::of_level(MACHINE, level)).unwrap();
        image.platform().unwrap().level
    };
    assert_eq!((level(v3), level(Level::BASELINE)), (v3, Level::BASELINE));
}

#[test]
fn objects_that_make_no_library_are_refused() {
    assert!(refusal("a b", vec![(BASELINE, object(ECHO))]).contains("`a b` cannot name an ifunc"));
    assert!(refusal("other", vec![(BASELINE, object(ECHO))]).contains("other_main"));
    assert!(refusal("t", Vec::new()).contains("nothing to build"));
    let damaged = refusal("t", vec![(BASELINE, object(ECHO)[..100].to_vec())]);
    assert!(damaged.contains("nearest.py is no usable object"), "{damaged}");
    let twice = link_library("t", PathBuf::new(), vec![(BASELINE, object(ECHO)), (BASELINE, object(ECHO))]);
    assert!(matches!(twice, Err(LinkError::Library(farjump_loader::Error::Manifest { .. }))), "{twice:?}");
    let foreign =
        Platform::baseline(if MACHINE == Machine::AARCH64 { Machine::X86_64 } else { Machine::AARCH64 });
    assert!(refusal("t", vec![(foreign, object(ECHO))]).contains("compile it for that"));
    let unknown = Platform::baseline(Machine(0xbeef));
    assert!(matches!(
        link_library("t", PathBuf::new(), vec![(unknown, object(ECHO))]),
        Err(LinkError::Build(_))
    ));
}
