//! Opening ifunc libraries, and files that only look like one.

mod in_memory;

use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::code::{INCREMENT, foreign, image, native};
use farjump_core::code::CodeError;
use farjump_core::image::{ImageError, ImageParts, Machine, Platform};
use farjump_fixtures::helper_process::{is_alone, passed, role, test_in_role};
use farjump_fixtures::this_test;
use farjump_loader::library::bundle::{Bundle, BundleError, BundleImage, SYMBOL, Sizes};
use farjump_loader::{Error, FileKind, Library, Resolver, Store, code_id};
use tempfile::TempDir;

const SIZES: Sizes = Sizes { text: 4, rodata: 0, got: 0, data: 0, bss: 0 };

/// The routines of an ifunc called `sum`: the payload is the arguments backwards.
const MAIN: &str =
    "void sum_main(void *payload, unsigned long size, void *args) { ++*(unsigned long *)args; }\n";
const MAX_SIZE: &str =
    "unsigned long sum_payload_get_max_size(void *args, unsigned long size) { return size + 7; }\n";
const INIT: &str = "int sum_payload_init(char *payload, unsigned long size, const char *args, unsigned long len) {\n\
    if (len && args[0] == '!') return args[1];\n\
    for (unsigned long i = 0; i < len; i++) payload[i] = args[len - 1 - i];\n\
    return 0; }\n";
const SHRINK: &str = "int sum_payload_init_shrink(char *payload, unsigned long *size, const char *args, unsigned long len) {\n\
    if (len && args[0] == '!') return args[1];\n\
    if (len && args[0] == '+') { ++*size; return 0; }\n\
    for (unsigned long i = 0; i < len; i++) payload[i] = args[len - 1 - i];\n\
    *size = len;\n\
    return 0; }\n";

/// Compiles C to a shared library at `path`.
fn compile(path: &Path, source: &str, options: &[&str]) {
    let c_file = path.with_extension("c");
    std::fs::write(&c_file, source).unwrap();
    let compiler = std::env::var_os("CC").unwrap_or_else(|| "cc".into());
    let output = Command::new(&compiler)
        .args(["-shared", "-fPIC", "-O1", "-w", "-o"])
        .args([path, &c_file])
        .args(options)
        .output()
        .unwrap_or_else(|error| panic!("these tests need a C compiler: {compiler:?}: {error}"));
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// C that carries these bytes like the output of `farjump build`.
fn carrying(bundle: &[u8]) -> String {
    let bytes: Vec<String> = bundle.iter().map(u8::to_string).collect();
    format!("const unsigned char {SYMBOL}[] __attribute__((aligned(64))) = {{{}}};\n", bytes.join(","))
}

fn bundle_of(images: &[&[u8]]) -> Vec<u8> {
    let images = images.iter().map(|bytes| BundleImage { sizes: SIZES, bytes }).collect();
    Bundle { name: "sum", images }.encode().unwrap()
}

fn foreign_image() -> Vec<u8> {
    ImageParts::text(foreign(), &INCREMENT).encode().unwrap()
}

/// A library in its own directory.
struct Made {
    path: PathBuf,
    _directory: TempDir,
}

fn make(source: &[&str], bundle: &[u8]) -> Made {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("libsum.so");
    compile(&path, &(source.concat() + &carrying(bundle)), &[]);
    Made { path, _directory: directory }
}

fn write(name: &str, bytes: &[u8]) -> Made {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join(name);
    std::fs::write(&path, bytes).unwrap();
    Made { path, _directory: directory }
}

fn good(init: &str) -> Made {
    make(&[MAIN, MAX_SIZE, init], &bundle_of(&[&image(&INCREMENT)]))
}

fn refused(made: &Made) -> Error {
    Library::open(&made.path).unwrap_err()
}

fn load(path: &Path) -> Result<Library, Error> {
    // SAFETY: the libraries of these tests meet the conditions; other files do not load.
    unsafe { Library::load(path) }
}

fn named(path: &Path, name: &str) -> Result<Library, Error> {
    // SAFETY: the libraries of these tests meet the conditions; other files do not load.
    unsafe { Library::load_named(path, name) }
}

fn init(library: &Library, space: &mut [u8], args: &[u8]) -> Result<usize, Error> {
    // SAFETY: `space` is a slice.
    unsafe { library.payload_init(space.as_mut_ptr(), space.len(), args) }.map_err(|error| *error)
}

#[test]
fn a_library_says_what_it_is_and_carries() {
    let (own, other) = (image(&INCREMENT), foreign_image());
    let made = make(&[MAIN, MAX_SIZE, INIT], &bundle_of(&[&own, &other]));
    let library = Library::open(&made.path).unwrap();
    assert_eq!((library.name(), library.path()), ("sum", made.path.as_path()));
    let images: Vec<_> =
        library.images().iter().map(|image| (image.kind().machine(), image.id(), image.bytes())).collect();
    assert_eq!(images, [(native(), code_id(&own), &own[..]), (foreign(), code_id(&other), &other[..])]);
    let image = library.image_for(Platform::baseline(native())).unwrap();
    assert_eq!((image.id(), image.sizes(), image.payload_align_log2()), (code_id(&own), SIZES, 0));
    assert_eq!(image.bytes().as_ptr().addr() % 64, 0);
}

#[test]
fn a_library_without_an_image_for_the_target_says_which_it_has() {
    let made = make(&[MAIN, MAX_SIZE, INIT], &bundle_of(&[&image(&INCREMENT), &foreign_image()]));
    let third = if native() == Machine::RISCV { Machine::AARCH64 } else { Machine::RISCV };
    let third = if third == foreign() { Machine::X86_64 } else { third };
    let error = Library::open(&made.path).unwrap().image_for(Platform::baseline(third)).unwrap_err();
    assert_eq!(
        error.to_string(),
        format!(
            "`sum` has no image for {third} (it has {}, {}): build it for that target too (`farjump build --target {third}`)",
            native(),
            foreign()
        )
    );
}

#[test]
fn payload_init_fills_the_whole_buffer() {
    let made = good(INIT);
    let library = load(&made.path).unwrap();
    assert_eq!(library.payload_max_size(b"abc"), 10);
    let mut space = [0; 10];
    assert_eq!(init(&library, &mut space, b"abc").unwrap(), 10);
    assert_eq!(&space, b"cba\0\0\0\0\0\0\0");
    assert_eq!(init(&library, &mut [], b"").unwrap(), 0);
}

#[test]
fn the_init_of_a_three_chains_library_gets_the_arguments_first() {
    let bound = MAX_SIZE.replace("payload_get_max_size", "payload_bound");
    let init_of = "int sum_payload_init(const char *args, unsigned long len, char *payload, unsigned long *size) {\n\
        for (unsigned long i = 0; i < len; i++) payload[i] = args[len - 1 - i];\n\
        *size = len;\n\
        return 0; }\n";
    let made = make(&[MAIN, &bound, init_of], &bundle_of(&[&image(&INCREMENT)]));
    let library = load(&made.path).unwrap();
    assert_eq!(library.payload_max_size(b"abc"), 10);
    let mut space = [9; 10];
    assert_eq!(init(&library, &mut space, b"abc").unwrap(), 3);
    assert_eq!(&space, b"cba\x09\x09\x09\x09\x09\x09\x09");
}

#[test]
fn a_plain_library_opens_by_ifunc_name_and_has_no_images() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("sum.so");
    compile(&path, &[MAIN, MAX_SIZE, INIT].concat(), &[]);
    let library = named(&path, "sum").unwrap();
    assert_eq!((library.name(), library.images().len()), ("sum", 0));
    assert_eq!(library.payload_max_size(b"abc"), 10);
    assert!(matches!(library.image_for(Platform::baseline(native())), Err(Error::NoImage { .. })));
    assert!(matches!(Library::open(&path), Err(Error::NoBundle { .. })));
    assert!(matches!(named(&path, "other"), Err(Error::MissingRoutine { .. })));
    assert!(matches!(named(&path, "../sum"), Err(Error::Bundle { .. })));
    // The library has the images of the file if they are of this ifunc.
    let made = good(INIT);
    assert_eq!(named(&made.path, "sum").unwrap().images().len(), 1);
}

#[test]
fn payload_init_shrink_returns_the_length_it_used() {
    let made = good(SHRINK);
    let library = load(&made.path).unwrap();
    let mut space = [9; 10];
    assert_eq!(init(&library, &mut space, b"abc").unwrap(), 3);
    assert_eq!(&space, b"cba\x09\x09\x09\x09\x09\x09\x09");
    assert_eq!(init(&library, &mut space, b"").unwrap(), 0);
}

#[test]
fn a_payload_routine_that_fails_is_named_with_what_it_returned() {
    for routine in [INIT, SHRINK] {
        let made = good(routine);
        let error = init(&load(&made.path).unwrap(), &mut [0; 10], b"!\x05").unwrap_err();
        assert!(matches!(&error, Error::PayloadInit { name, value: 5 } if name == "sum"));
        assert_eq!(error.to_string(), "the payload routine of `sum` failed with 5: nothing was sent");
    }
}

#[test]
fn a_payload_routine_that_overstates_its_length_is_an_error() {
    let made = good(SHRINK);
    let error = init(&load(&made.path).unwrap(), &mut [0; 10], b"+").unwrap_err();
    assert!(matches!(error, Error::PayloadOverrun { used: 11, space: 10, .. }));
}

#[test]
fn a_placed_image_behaves_like_the_librarys_own_function() {
    let made = good(INIT);
    let library = load(&made.path).unwrap();
    let image = library.image_for(Platform::baseline(native())).unwrap();
    let mut store = Store::new(farjump_loader::Arena::new(4096).unwrap());
    let linked = store.insert(image.bytes(), image.id(), library.name(), &Resolver::default()).unwrap();
    let mut number = 0_u64;
    for main in [library.main().unwrap(), linked.main()] {
        // SAFETY: both add one to the word at their arguments.
        unsafe { main(std::ptr::null_mut(), 0, (&raw mut number).cast()) };
    }
    assert_eq!(number, 2);
}

#[test]
fn a_clone_keeps_the_library_open_and_works_on_another_thread() {
    let made = good(INIT);
    let library = load(&made.path).unwrap();
    let clone = library.clone();
    drop(library);
    let reply = std::thread::spawn(move || {
        assert_eq!(clone.images()[0].bytes(), image(&INCREMENT));
        clone.payload_max_size(b"four")
    });
    assert_eq!(reply.join().unwrap(), 11);
}

#[test]
fn opening_a_library_runs_nothing_of_it_and_maps_nothing() {
    let witness = tempfile::NamedTempFile::new().unwrap();
    let constructor = format!(
        "#include <stdio.h>\n\
         __attribute__((constructor)) static void made(void) {{\n\
         FILE *file = fopen(\"{}\", \"w\"); fputs(\"ran\", file); fclose(file); }}\n",
        witness.path().display()
    );
    let made = make(&[&constructor, MAIN, MAX_SIZE, INIT], &bundle_of(&[&image(&INCREMENT)]));
    // A unique name, because other tests load libraries at the same time.
    let path = made.path.with_file_name("libwitness.so");
    std::fs::rename(&made.path, &path).unwrap();
    let ran = || std::fs::read_to_string(witness.path()).unwrap();
    let mapped = || std::fs::read_to_string("/proc/self/maps").unwrap().contains("/memfd:libwitness.so ");
    let library = Library::open(&path).unwrap();
    assert_eq!(library.images()[0].bytes(), image(&INCREMENT));
    assert!(ran().is_empty() && !mapped(), "opening it runs its constructor");
    let loaded = load(&path).unwrap();
    assert_eq!((&*ran(), mapped()), ("ran", true), "the constructor or its mapping shows nothing");
    drop(loaded);
}

#[test]
fn a_library_with_own_payload_routines_makes_payloads_only_once_loaded() {
    let made = good(INIT);
    let library = Library::open(&made.path).unwrap();
    assert!(library.main().is_none());
    assert_eq!(library.payload_max_size(b"abc"), usize::MAX, "no space is enough");
    for error in [library.check_payload().unwrap_err(), init(&library, &mut [0; 10], b"abc").unwrap_err()] {
        assert!(matches!(&error, Error::NotLoaded { name, .. } if name == "sum"), "{error}");
        let text = error.to_string();
        assert!(text.contains("`sum` (`/") && text.contains("unsafe { Library::load(..) }"), "{text}");
        assert!(text.contains("farjump_library_load()"), "{text}");
    }
    load(&made.path).unwrap().check_payload().unwrap();
}

#[test]
fn an_opened_library_survives_truncation_of_its_file() {
    let made = good(INIT);
    let opened = Library::open(&made.path).unwrap();
    // Truncated in place, so that a mapping would change or fault.
    std::fs::File::options().write(true).open(&made.path).unwrap().set_len(0).unwrap();
    assert_eq!(opened.images()[0].bytes(), image(&INCREMENT));
    assert!(matches!(refused(&made), Error::NotALibrary { found: FileKind::Empty, .. }));
}

#[test]
fn a_truncated_library_is_refused_and_a_damaged_one_never_panics() {
    let elf = std::fs::read(good(INIT).path).unwrap();
    let made = write("libsum.so", &elf);
    for len in (0..elf.len()).step_by(61) {
        std::fs::write(&made.path, &elf[..len]).unwrap();
        let said = Library::open(&made.path).map(drop).map_err(|error| error.to_string());
        assert!(said.is_err_and(|text| text.contains("libsum.so")), "{len} of {} bytes are one", elf.len());
    }
    let mut seed = 7_u64;
    let mut dice = |below: usize| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) as usize % below
    };
    for _ in 0..2000 {
        let mut spoilt = elf.clone();
        for _ in 0..1 + dice(4) {
            spoilt[dice(elf.len())] = dice(256) as u8;
        }
        std::fs::write(&made.path, &spoilt).unwrap();
        // Damage in unread bytes does no harm.
        let _ = Library::open(&made.path);
    }
}

#[test]
fn a_file_that_is_too_long_is_not_read() {
    let made = good(INIT);
    std::fs::File::options().write(true).open(&made.path).unwrap().set_len((256 << 20) + 1).unwrap();
    let error = refused(&made);
    assert!(matches!(error, Error::TooLong { max: 268_435_456, .. }), "{error}");
}

#[test]
fn a_library_that_is_dropped_is_unloaded() {
    let made = good(INIT);
    let mapped = || std::fs::read_to_string("/proc/self/maps").unwrap().contains("/memfd:libsum.so ");
    let library = load(&made.path).unwrap();
    assert!(mapped());
    drop(library);
    assert!(!mapped());
}

#[test]
fn a_bare_file_name_is_a_file_of_the_current_directory() {
    if !role().is_empty() {
        let library = Library::open("libsum.so").unwrap();
        assert_eq!(library.path(), Path::new("./libsum.so"));
        // The dynamic linker would find this library.
        assert!(matches!(Library::open("libm.so.6"), Err(Error::NoSuchFile { .. })));
        return;
    }
    let made = good(INIT);
    let mut alone = test_in_role(this_test!(), &["alone"]);
    passed(alone.current_dir(made.path.parent().unwrap()));
}

#[test]
fn each_routine_that_is_missing_is_named() {
    let bundle = bundle_of(&[&image(&INCREMENT)]);
    for (routines, missing) in [
        ([MAX_SIZE, INIT], "sum_main"),
        ([MAIN, INIT], "sum_payload_get_max_size"),
        ([MAIN, MAX_SIZE], "sum_payload_init` or `sum_payload_init_shrink"),
    ] {
        let made = make(&routines, &bundle);
        let text = refused(&made).to_string();
        assert!(text.contains(&format!("libsum.so` has no routine `{missing}`")), "{text}");
    }
}

#[test]
fn a_library_with_two_payload_inits_is_refused() {
    let made = make(&[MAIN, MAX_SIZE, INIT, SHRINK], &bundle_of(&[&image(&INCREMENT)]));
    assert!(matches!(refused(&made), Error::TwoInits { name, .. } if name == "sum"));
}

#[test]
fn an_ordinary_library_is_refused_despite_depending_on_an_ifunc_library() {
    let made = good(INIT);
    let directory = made.path.parent().unwrap();
    let plain = directory.join("libplain.so");
    let depends = ["-Wl,--no-as-needed", "-L", directory.to_str().unwrap(), "-lsum", "-Wl,-rpath,$ORIGIN"];
    compile(&plain, "int plain;", &depends);
    let error = Library::open(&plain).unwrap_err();
    assert!(matches!(error, Error::NoBundle { .. }), "{error}");
    assert!(error.to_string().ends_with("carries no images: was it built with `farjump build`?"), "{error}");
}

#[test]
fn a_damaged_bundle_is_refused() {
    let bundle = bundle_of(&[&image(&INCREMENT)]);
    let damaged = |at: usize, bytes: &[u8]| {
        let mut bundle = bundle.clone();
        bundle[at..at + bytes.len()].copy_from_slice(bytes);
        match refused(&make(&[MAIN, MAX_SIZE, INIT], &bundle)) {
            Error::Bundle { source, .. } => source,
            other => panic!("{other}"),
        }
    };
    assert_eq!(damaged(0, b"XYZ"), BundleError::Magic);
    assert_eq!(damaged(3, &[9]), BundleError::Version(9));
    for name in [b"../", b"a/b", b"a b", b"\x1b[m"] {
        assert_eq!(damaged(12, name), BundleError::Name);
    }
    assert!(matches!(damaged(4, &u32::MAX.to_le_bytes()), BundleError::Truncated { .. }), "past the library");
    let mut longer = bundle.len() as u32;
    longer += 1;
    assert!(matches!(damaged(4, &longer.to_le_bytes()), BundleError::Overlong { .. }));
}

#[test]
fn a_damaged_image_is_refused() {
    let mut bytes = image(&INCREMENT);
    bytes[12] = INCREMENT.len() as u8;
    let made = make(&[MAIN, MAX_SIZE, INIT], &bundle_of(&[&image(&INCREMENT), &bytes]));
    let error = refused(&made);
    assert!(
        matches!(error, Error::Image { index: 1, source: CodeError::Image(ImageError::Entry { entry, len }), .. } if entry == len),
        "{error}"
    );
}

#[test]
fn a_missing_library_file_is_reported_as_missing() {
    let directory = tempfile::tempdir().unwrap();
    let error = Library::open(directory.path().join("libsum.so")).unwrap_err();
    assert!(matches!(error, Error::NoSuchFile { .. }));
    let text = error.to_string();
    assert!(text.starts_with("there is no file `/") && text.contains("libsum.so`: build one"), "{text}");
    let made = write("file", b"");
    assert!(matches!(Library::open(made.path.join("libsum.so")), Err(Error::Unreadable { .. })));
}

#[test]
fn a_file_that_is_no_shared_library_is_refused_by_kind() {
    let elf = std::fs::read(good(INIT).path).unwrap();
    let patched = |at: usize, byte: u8| {
        let mut elf = elf.clone();
        elf[at] = byte;
        elf
    };
    for (bytes, what) in [
        (vec![], FileKind::Empty),
        (b"#!/bin/sh\nexit 0 # long enough\n".to_vec(), FileKind::NoElf),
        (b"!<arch>\nlong enough to be one".to_vec(), FileKind::Archive),
        (elf[..19].to_vec(), FileKind::NoElf),
        (patched(4, 1), FileKind::OtherElf),
        (patched(16, 1), FileKind::NoSharedLibrary),
    ] {
        let made = write("libsum.so", &bytes);
        match refused(&made) {
            Error::NotALibrary { found, .. } => assert_eq!(found, what),
            other => panic!("{other}"),
        }
    }
    let directory = tempfile::tempdir().unwrap();
    assert!(matches!(
        Library::open(directory.path()),
        Err(Error::NotALibrary { found: FileKind::NoFile, .. })
    ));
}

#[test]
fn a_pipe_is_refused_and_not_waited_for() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("libsum.so");
    let name = CString::new(path.as_os_str().as_bytes()).unwrap();
    // SAFETY: `name` is a string that ends with a zero byte.
    assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o600) }, 0);
    assert!(matches!(Library::open(&path), Err(Error::NotALibrary { found: FileKind::NoFile, .. })));
}

#[test]
fn a_library_of_another_machine_is_refused_by_its_name() {
    let mut elf = std::fs::read(good(INIT).path).unwrap();
    elf[18] = foreign().0 as u8;
    let error = refused(&write("libsum.so", &elf));
    assert!(matches!(error, Error::ForeignLibrary { machine, .. } if machine == foreign()));
    assert!(error.to_string().contains(&format!("was built for {}", foreign())), "{error}");
}

#[test]
fn a_foreign_library_with_arguments_as_payload_opens_but_never_loads() {
    let is_args = "const char sum_payload_is_args[1] = {1};\n";
    let made = make(&[MAIN, MAX_SIZE, INIT, is_args], &bundle_of(&[&image(&INCREMENT), &foreign_image()]));
    let mut elf = std::fs::read(&made.path).unwrap();
    for (machine, is_opened) in [(foreign(), true), (Machine(40), false)] {
        elf[18..20].copy_from_slice(&machine.0.to_le_bytes());
        let other = write("libsum.so", &elf);
        match Library::open(&other.path) {
            Ok(library) if is_opened => {
                library.check_payload().unwrap();
                assert_eq!((library.images().len(), library.payload_max_size(b"abc")), (2, 3));
            }
            Err(Error::ForeignLibrary { machine: of, .. }) if !is_opened => assert_eq!(of, machine),
            result => panic!("{machine}: {result:?}"),
        }
        let error = load(&other.path).unwrap_err();
        assert!(matches!(error, Error::ForeignLibrary { machine: of, .. } if of == machine), "{error}");
    }
}

#[test]
fn a_library_the_dynamic_linker_refuses_fails_with_its_message() {
    let needs =
        "void absent_function(void); void sum_main(void *p, long n, void *a) { absent_function(); }\n";
    let made = make(&[needs, MAX_SIZE, INIT], &bundle_of(&[&image(&INCREMENT)]));
    let error = load(&made.path).unwrap_err();
    assert!(matches!(error, Error::Load { .. }));
    let text = error.to_string();
    assert!(text.starts_with("cannot load `/") && text.contains("absent_function"), "{text}");
}

#[test]
fn a_rebuilt_library_loads_anew_while_the_old_is_open() {
    // Other tests load libraries of this name.
    if !is_alone(this_test!()) {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("libsum.so");
    let build = |extra: &str| {
        let max_size = MAX_SIZE.replace("size + 7", &format!("size + {extra}"));
        let bundle = carrying(&bundle_of(&[&image(&INCREMENT)]));
        let counted = format!(
            "{max_size}int loads; __attribute__((constructor)) static void on(void) {{ loads++; }}\n"
        );
        compile(&directory.path().join("new.so"), &[MAIN, &counted, INIT, &bundle].concat(), &[]);
    };
    let space = |library: &Library| library.payload_max_size(b"abc");
    let mapped = || std::fs::read_to_string("/proc/self/maps").unwrap().matches("libsum.so").count();
    let mut open = Vec::new();
    for (extra, in_place) in [(1, false), (2, false), (3, true), (4, true), (5, false)] {
        build(&extra.to_string());
        if in_place {
            let bytes = std::fs::read(directory.path().join("new.so")).unwrap();
            std::fs::write(&path, bytes).unwrap();
        } else {
            std::fs::rename(directory.path().join("new.so"), &path).unwrap();
        }
        let library = load(&path).unwrap();
        let once = mapped();
        // The same file again is the same library.
        let again = load(&path).unwrap();
        assert_eq!((space(&library), space(&again), mapped()), (3 + extra, 3 + extra, once));
        let mains = [&library, &again].map(|library| library.main().unwrap() as *const () as usize);
        assert!(mains[0] == mains[1] && !library.is(&again));
        open.push(library);
    }
    assert_eq!(open.iter().map(space).collect::<Vec<_>>(), [4, 5, 6, 7, 8], "the old ones stay");
    drop(open);
    assert_eq!(mapped(), 0);
}
