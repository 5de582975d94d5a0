//! Loading by sealed copies: of libraries whose files are truncated, have false headers, change while they are loaded,
//! or lie beside others.

use std::ffi::CStr;
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{FileExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};

use farjump_core::image::{Import, Place};
use farjump_loader::{Library, Resolver};
use tempfile::TempDir;

/// Compiles C to the shared library `NAME` in this folder.
fn compile(folder: &Path, name: &str, source: &str, options: &[&str]) -> PathBuf {
    let path = folder.join(name);
    let c_file = path.with_extension("c");
    fs::write(&c_file, source).unwrap();
    let compiler = std::env::var_os("CC").unwrap_or_else(|| "cc".into());
    let output = Command::new(&compiler)
        .args(["-shared", "-fPIC", "-O1", "-w", "-g", "-o"])
        .args([&path, &c_file])
        .args(options)
        .current_dir(folder)
        .output()
        .unwrap_or_else(|error| panic!("these tests need a C compiler: {compiler:?}: {error}"));
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    path
}

fn allow(path: &Path) -> Result<Resolver, String> {
    let mut resolver = Resolver::default();
    // SAFETY: the libraries of these tests have constructors that only count.
    unsafe { resolver.allow_library(path) }.map_err(|error| error.to_string())?;
    Ok(resolver)
}

fn export(bytes: &[u8]) -> Result<Resolver, String> {
    let mut resolver = Resolver::default();
    // SAFETY: as in `allow`.
    unsafe { resolver.interpose_bytes("libkv.so", bytes) }.map_err(|error| error.to_string())?;
    Ok(resolver)
}

fn load(path: &Path) -> Result<Library, String> {
    // SAFETY: as in `allow`.
    unsafe { Library::load(path) }.map_err(|error| error.to_string())
}

/// Calls the function `name`, which takes nothing and returns a number.
fn call(resolver: &Resolver, name: &str) -> i32 {
    let import = Import { site: Place::Span1(0), name, addend: 0, weak: false };
    let address = resolver.resolve(&import).unwrap_or_else(|| panic!("no {name}"));
    // SAFETY: the functions of these tests have this type.
    let function: extern "C" fn() -> i32 = unsafe { std::mem::transmute(address as usize) };
    function()
}

/// The name that dladdr(3) gives for the object of the symbol `name`.
fn object_of(resolver: &Resolver, name: &str) -> PathBuf {
    let import = Import { site: Place::Span1(0), name, addend: 0, weak: false };
    let address = resolver.resolve(&import).unwrap();
    let mut found = std::mem::MaybeUninit::<libc::Dl_info>::uninit();
    // SAFETY: `found` is written when the call does not return 0, and its name lasts as long as the library.
    unsafe {
        assert_ne!(libc::dladdr(std::ptr::with_exposed_provenance(address as usize), found.as_mut_ptr()), 0);
        PathBuf::from(CStr::from_ptr(found.assume_init().dli_fname).to_str().unwrap())
    }
}

/// A library that reads a page of constants, writes a page of statics, and uses libc.
const PAGES: &str = "
    #include <stdio.h>
    static const volatile char constants[20000] = {7};
    static volatile char statics[20000] = {1};
    const char *unused = \"a relocation\";
    int pages(void)
    {
        int sum = 0;
        char line[9];
        for (int at = 0; at < 20000; at += 100) sum += constants[at] + ++statics[at];
        return sum + snprintf(line, sizeof line, \"%d\", 8);
    }";
/// Result of the first call of `pages`.
const SUM: i32 = 7 + 1 + 200 + 1;

#[test]
fn a_truncated_library_is_refused_with_its_length_however_loaded() {
    let folder = TempDir::new().unwrap();
    let whole = fs::read(compile(folder.path(), "libwhole.so", PAGES, &[])).unwrap();
    let path = folder.path().join("libkv.so");
    let mut cuts: Vec<usize> = (1..64).map(|part| whole.len() * part / 64).collect();
    cuts.extend([20, 63, 64, 65, 4096, whole.len() - 1]);
    for cut in cuts {
        fs::write(&path, &whole[..cut]).unwrap();
        let length = format!("it has {cut} bytes");
        let opened = Library::open(&path).unwrap_err().to_string();
        for error in
            [allow(&path).unwrap_err(), export(&whole[..cut]).unwrap_err(), load(&path).unwrap_err(), opened]
        {
            assert!(error.contains("it is cut short") && error.contains(&length), "{cut}: {error}");
            assert!(error.contains("libkv.so") && error.contains("build or copy it again"), "{error}");
        }
    }
    fs::write(&path, &whole).unwrap();
    assert_eq!(call(&allow(&path).unwrap(), "pages"), SUM);
    assert_eq!(call(&export(&whole).unwrap(), "pages"), SUM);
}

#[test]
fn files_of_other_kinds_are_refused_by_kind_and_block_nothing() {
    let folder = TempDir::new().unwrap();
    let at = |name: &str| folder.path().join(name);
    for (name, bytes, expected) in [
        ("empty.so", &b""[..], "it is an empty file"),
        ("text.so", b"INPUT(libkv.so.1)", "it is not an ELF file"),
        ("short.so", b"\x7fELF", "it is not an ELF file"),
    ] {
        fs::write(at(name), bytes).unwrap();
        let error = allow(&at(name)).err().unwrap();
        assert_eq!(error, format!("cannot load `{}`: {expected}", at(name).display()));
    }
    let fifo = at("fifo.so");
    rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
    symlink("fifo.so", at("link.so")).unwrap();
    for path in [&fifo, &at("link.so"), folder.path()] {
        assert!(allow(path).unwrap_err().contains("it is a directory, a device or a pipe"));
        assert!(load(path).unwrap_err().contains("it is a directory, a device or a pipe"));
    }
    let missing = allow(&at("missing.so")).unwrap_err();
    assert!(missing.contains("missing.so") && missing.contains("No such file"), "{missing}");
}

#[test]
fn false_segment_headers_are_refused_and_never_end_the_process() {
    let folder = TempDir::new().unwrap();
    let whole = fs::read(compile(folder.path(), "libwhole.so", PAGES, &[])).unwrap();
    let word = |at: usize| u64::from_le_bytes(*whole[at..].first_chunk().unwrap()) as usize;
    let (start, count) = (word(32), usize::from(u16::from_le_bytes([whole[56], whole[57]])));
    let mut refused = 0;
    for header in 0..count {
        // Offset, address, length in the file, length in memory.
        for field in [8, 16, 32, 40] {
            for value in [1_u64 << 20, 1 << 40, u64::MAX, 0x7fff_ffff_f000] {
                let mut bytes = whole.clone();
                let at = start + header * 56 + field;
                bytes[at..at + 8].copy_from_slice(&value.to_le_bytes());
                // A change without consequences may load; a library that loads must work.
                match export(&bytes) {
                    Ok(resolver) => assert_eq!(call(&resolver, "pages"), SUM),
                    Err(_) => refused += 1,
                }
            }
        }
    }
    assert!(refused >= 4 * 4 * 4, "the segments that are loaded have four fields each: {refused}");
}

#[test]
fn truncating_files_leaves_loaded_libraries_working_under_their_names() {
    let folder = TempDir::new().unwrap();
    let (beside, below) = (folder.path().join("lib"), folder.path().join("lib/more"));
    fs::create_dir_all(&below).unwrap();
    // One library with a soname, and one without; one of them with versions.
    fs::write(folder.path().join("map"), "DEEP_1 { global: *; };").unwrap();
    let deep = compile(
        &below,
        "libsealeddeep.so.1",
        "int deep_calls; int deep(void) { return ++deep_calls; }",
        &["-Wl,-soname,libsealeddeep.so.1", "-Wl,--version-script=../../map"],
    );
    let near = compile(
        &beside,
        "libsealednear.so",
        &format!("{PAGES}\nint deep(void); int near(void) {{ return pages() + deep(); }}"),
        &["more/libsealeddeep.so.1", "-Wl,--enable-new-dtags,-rpath,${ORIGIN}/more"],
    );
    let path = compile(
        folder.path(),
        "libkv.so",
        "int near(void); int deep(void);
         int kv(void) { return near() * 1000 + deep(); }",
        &[
            "-Llib",
            "-lsealednear",
            "lib/more/libsealeddeep.so.1",
            "-Wl,--enable-new-dtags,-rpath,$ORIGIN/lib:$ORIGIN/lib/more",
        ],
    );
    let resolver = allow(&path).unwrap();
    for file in [&deep, &near, &path] {
        File::options().write(true).truncate(true).open(file).unwrap();
    }
    assert_eq!(call(&resolver, "kv"), (SUM + 1) * 1000 + 2);
    assert_eq!(object_of(&resolver, "kv"), path);
    // Opening the path again reads its new contents.
    let error = allow(&path).unwrap_err().to_string();
    assert!(error.contains("it is an empty file"), "{error}");
    assert_eq!(call(&resolver, "kv"), (SUM + 200 + 3) * 1000 + 4);
    let maps = fs::read_to_string("/proc/self/maps").unwrap();
    for name in ["libkv.so", "libsealednear.so", "libsealeddeep.so.1"] {
        let mut lines = maps.lines().filter(|line| line.contains(name)).peekable();
        assert!(lines.peek().is_some() && lines.all(|line| line.contains("/memfd:")), "{maps}");
    }
}

#[test]
fn a_truncated_needed_library_is_named_with_its_dependent() {
    let folder = TempDir::new().unwrap();
    let near = compile(folder.path(), "libsealedcut.so", PAGES, &[]);
    let path = compile(
        folder.path(),
        "libkv.so",
        "int pages(void); int kv(void) { return pages(); }",
        &["-L.", "-lsealedcut", "-Wl,-rpath,$ORIGIN"],
    );
    let len = fs::metadata(&near).unwrap().len();
    OpenOptions::new().write(true).open(&near).unwrap().set_len(len / 2).unwrap();
    let error = allow(&path).unwrap_err();
    let start = format!("cannot load `{}`: it needs `{}`: it is cut short", path.display(), near.display());
    assert!(error.starts_with(&start), "{error}");
    fs::remove_file(&near).unwrap();
    let error = allow(&path).unwrap_err();
    assert!(error.contains("libsealedcut.so") && !error.contains("/proc"), "{error}");
}

#[test]
fn libraries_and_the_program_share_one_copy_of_a_needed_file() {
    let folder = TempDir::new().unwrap();
    let common =
        compile(folder.path(), "libsealedcommon.so", "static int n; int common(void) { return ++n; }", &[]);
    let user = |name: &str| {
        let source = format!("int common(void); int {name}(void) {{ return common(); }}");
        let options = ["-L.", "-lsealedcommon", "-Wl,-rpath,$ORIGIN"];
        compile(folder.path(), &format!("lib{name}.so"), &source, &options)
    };
    let (one, two, three) = (user("one"), user("two"), user("three"));
    let (first, second) = (allow(&one).unwrap(), allow(&two).unwrap());
    assert_eq!((call(&first, "one"), call(&second, "two")), (1, 2));
    let itself = allow(&common).unwrap();
    assert_eq!(call(&itself, "common"), 3);
    assert_eq!(call(&allow(&one).unwrap(), "one"), 4, "the same path again is the same library");

    // A process that has loaded the file itself, here by another of its names.
    let other = TempDir::new().unwrap();
    let path = other.path().join("libsealedown.so");
    fs::copy(&three, folder.path().join("own.so")).unwrap();
    fs::hard_link(folder.path().join("own.so"), &path)
        .or_else(|_| fs::copy(&three, &path).map(drop))
        .unwrap();
    let source = "static int n; int own(void) { return ++n; }";
    let own = compile(folder.path(), "libown.so", source, &[]);
    let name = std::ffi::CString::new(own.to_str().unwrap()).unwrap();
    // SAFETY: its constructors do nothing.
    let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW) };
    assert!(!handle.is_null());
    let link = folder.path().join("libalias.so");
    symlink("libown.so", &link).unwrap();
    assert_eq!((call(&allow(&link).unwrap(), "own"), call(&allow(&own).unwrap(), "own")), (1, 2));
}

#[test]
fn libraries_that_need_each_other_load() {
    let folder = TempDir::new().unwrap();
    compile(folder.path(), "libsealedegg.so", "int hen(void) { return 0; }", &[]);
    fs::rename(folder.path().join("libsealedegg.so"), folder.path().join("libsealedhen.so")).unwrap();
    let options = ["-L.", "-Wl,--no-as-needed", "-Wl,-rpath,$ORIGIN"];
    let egg = compile(
        folder.path(),
        "libsealedegg.so",
        "int hen(void); int egg(void) { return 1; } int both(void) { return egg() + hen(); }",
        &[&options[..], &["-lsealedhen"]].concat(),
    );
    compile(
        folder.path(),
        "libsealedhen.so",
        "int egg(void); int hen(void) { return 10 + egg(); }",
        &[&options[..], &["-lsealedegg"]].concat(),
    );
    assert_eq!(call(&allow(&egg).unwrap(), "both"), 12);
}

#[test]
fn a_file_that_changes_all_the_time_is_loaded_whole_or_refused() {
    let folder = TempDir::new().unwrap();
    let path = compile(folder.path(), "libkv.so", PAGES, &[]);
    let whole = fs::read(&path).unwrap();
    let file = OpenOptions::new().write(true).open(&path).unwrap();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut cut = 0;
            while !done.load(Ordering::Relaxed) {
                cut = (cut + 4099) % whole.len();
                file.set_len(cut as u64).unwrap();
                file.write_all_at(&whole, 0).unwrap();
            }
        });
        let (mut loaded, mut refused) = (0, 0);
        let mut tries = 0;
        while tries < 20_000 && (loaded < 20 || refused < 20) {
            tries += 1;
            // A copy made while the file grew again may have zeroes in the truncated part, and is refused or loads.
            // SAFETY: its constructors do nothing.
            let library = unsafe { Library::load_named(&path, "kv") };
            match library.unwrap_err().to_string() {
                error if error.contains("no routine `kv_main`") => loaded += 1,
                _ => refused += 1,
            }
        }
        done.store(true, Ordering::Relaxed);
        assert!(refused > 0, "the file was never seen cut in {tries} tries");
    });
}

/// Libraries with either hash table, and with both, name the same symbols.
#[test]
fn the_names_that_a_library_replaces_are_found_by_each_hash_table() {
    let folder = tempfile::tempdir().unwrap();
    let source = "int shared_one(void) { return 1; } int shared_two = 2; int only(void);
        int uses(void) { return only(); } __thread int of_a_thread; int only(void) { return 3; }";
    for style in ["gnu", "sysv", "both"] {
        let mut resolver = Resolver::default();
        let mut replaced = Vec::new();
        for version in ["first", "second"] {
            let name = format!("lib{style}-{version}.so");
            let path = compile(folder.path(), &name, source, &[&format!("-Wl,--hash-style={style}")]);
            // SAFETY: the library has no constructors, and no code is linked with it.
            replaced.push(unsafe { resolver.interpose_library(&path) }.unwrap());
        }
        assert_eq!(replaced, [vec![], vec!["only", "shared_one", "shared_two", "uses"]], "{style}");
    }
    let path = compile(folder.path(), "libnone.so", "static int own(void) { return 1; }", &[]);
    // SAFETY: this library has no constructors either.
    assert_eq!(unsafe { Resolver::default().interpose_library(&path) }.unwrap(), [""; 0]);
}
