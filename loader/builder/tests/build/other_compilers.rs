//! Objects and archives from compilers of other languages and from a distribution, with the flags of their own build
//! systems. The tests build each into an image, run it, and compare the result with one computed here.

use std::ffi::c_void;
use std::path::{Path, PathBuf};
use std::process::Command;

use farjump_builder::inspect::inspect;
use farjump_builder::{BuildError, BuildReport, Options, build};
use farjump_loader::Library;
use farjump_tools::all_work;
use object::LittleEndian;
use object::read::elf::ElfFile64;
use object::{Object, ObjectSection};

use crate::fixture::{Fixture, Target, imports, linkers, works};

/// The payload routines of an ifunc `t`, for any C or C++ compiler.
const PAYLOAD: &str = "#include <stddef.h>
#include <string.h>
size_t t_payload_get_max_size(void *args, size_t size) { (void)args; return size; }
int t_payload_init(void *payload, size_t space, void *args, size_t size)
{ (void)space; memcpy(payload, args, size); return 0; }
";

/// FNV-1a over the payload, with a table and a switch, to have constants and jumps to place.
const FNV: &str = "#include <stdint.h>
static const uint64_t start[] = { 0, 14695981039346656037u, 0 };
static uint64_t step(uint64_t hash, unsigned char byte) { return (hash ^ byte) * 1099511628211u; }
uint64_t (*volatile stepper)(uint64_t, unsigned char) = step;
void t_main(void *payload, size_t size, void *args)
{
    uint64_t hash = start[1];
    for (size_t i = 0; i < size; i++)
        hash = stepper(hash, ((unsigned char *)payload)[i]);
    *(uint64_t *)args = hash;
}
";

fn fnv_by_definition(bytes: &[u8]) -> u64 {
    let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3);
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, step)
}

const INPUTS: [&[u8]; 3] = [b"", b"a", b"some bytes of a payload, \x00\xff"];

/// The flags of distributions: stack protection, calls through the PLT, unwind tables, one section for
/// everything.
const FLAGS: [&str; 6] =
    ["-O2", "-g", "-fPIC", "-fstack-protector-strong", "-fcf-protection", "-D_FORTIFY_SOURCE=2"];

fn build_all(fixture: &Fixture, inputs: &[PathBuf]) -> BuildReport {
    let report = build(&fixture.options("t", inputs)).unwrap_or_else(|error| panic!("{error}"));
    // The library is an ordinary library, whichever compiler made the objects.
    Library::open(&report.library).unwrap_or_else(|error| panic!("{error}"));
    report
}

/// Compiles a source of that name with [`FLAGS`] and `more`.
fn object(fixture: &Fixture, compiler: &str, file: &str, text: &str, more: &[&str]) -> PathBuf {
    fixture.write(file, text);
    let output = format!("{file}.o");
    fixture.run(compiler, &[&FLAGS, more, &["-c", file, "-o", &output]].concat());
    fixture.path(&output)
}

/// Checks the image that `compiler` makes of `FNV` as C or C++.
fn hashes(compiler: &str, file: &str, text: &str) {
    let fixture = Fixture::new();
    let report = build_all(&fixture, &[object(&fixture, compiler, file, text, &[])]);
    // From an object with one section, the payload routines travel too, with their imports.
    assert_eq!(imports(&report.images[0].bytes), ["memcpy"], "{compiler}");
    for input in INPUTS {
        let mut hash = 0_u64;
        Target::offering("memcpy", libc::memcpy as *const c_void).run(&report, input, &mut hash);
        assert_eq!(hash, fnv_by_definition(input), "{compiler}, {input:?}");
    }
}

#[test]
fn objects_of_gcc_are_taken() {
    if !all_work(&["gcc"]) {
        return;
    }
    assert_eq!(fnv_by_definition(b"a"), 0xaf63_dc4c_8601_ec8c, "the value that its authors give");
    hashes("gcc", "t.c", &format!("{PAYLOAD}{FNV}"));
}

#[test]
fn objects_of_clang_are_taken() {
    if !all_work(&["clang"]) {
        return;
    }
    hashes("clang", "t.c", &format!("{PAYLOAD}{FNV}"));
}

#[test]
fn objects_of_gxx_are_taken_with_templates_and_library_headers() {
    if !all_work(&["g++"]) {
        return;
    }
    hashes("g++", "t.cpp", &format!("extern \"C\" {{\n{PAYLOAD}{FNV}}}\n"));

    let fixture = Fixture::new();
    let text = format!(
        "#include <algorithm>\n#include <array>\n#include <cstdint>\nextern \"C\" {{\n{PAYLOAD}}}\n\
         template <class T> struct Down {{ bool operator()(T a, T b) const {{ return a > b; }} }};\n\
         extern \"C\" void t_main(void *payload, size_t size, void *args)\n\
         {{\n\
             auto *values = static_cast<uint32_t *>(payload);\n\
             std::sort(values, values + size / sizeof *values, Down<uint32_t>());\n\
             std::copy_n(values, 3, static_cast<uint32_t *>(args));\n\
         }}\n"
    );
    let object = object(&fixture, "g++", "t.cpp", &text, &["-fno-exceptions"]);
    let report = build_all(&fixture, &[object]);
    let values: Vec<u32> = (0..1000_u32).map(|n| n.wrapping_mul(2_654_435_761)).collect();
    let payload: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
    let mut top = [0_u32; 3];
    let mut target = Target::offering("memmove", libc::memmove as *const c_void);
    let exports = target.resolver.exports_mut();
    // SAFETY: the code declares it with this type.
    unsafe { exports.insert("memcpy", libc::memcpy as *const c_void) };
    // SAFETY: the code declares it with this type.
    unsafe { exports.insert("__stack_chk_fail", stack_was_overwritten as *const c_void) };
    target.run(&report, &payload, &mut top);
    let mut sorted = values;
    sorted.sort_unstable();
    sorted.reverse();
    assert_eq!(top, sorted[..3]);
}

#[test]
fn objects_of_gfortran_are_taken() {
    if !all_work(&["gfortran", "gcc"]) {
        return;
    }
    let fixture = Fixture::new();
    let fortran = "\
subroutine t_main(values, bytes, answer) bind(c)
  use iso_c_binding
  integer(c_size_t), value :: bytes
  real(c_double), intent(in) :: values(bytes / 8)
  real(c_double), intent(out) :: answer(2)
  real(c_double), parameter :: weight(3) = [1.5d0, -2d0, 0.25d0]
  integer(c_size_t) :: i
  answer(1) = dot_product(values, values)
  answer(2) = 0
  do i = 1, size(values, kind=c_size_t)
    answer(2) = answer(2) + values(i) * weight(mod(i - 1, 3_c_size_t) + 1)
  end do
end subroutine
";
    fixture.write("t.f90", fortran);
    fixture.run("gfortran", &["-O2", "-g", "-fPIC", "-c", "t.f90", "-o", "t.f90.o"]);
    let payload = object(&fixture, "gcc", "payload.c", PAYLOAD, &[]);
    let report = build_all(&fixture, &[fixture.path("t.f90.o"), payload]);
    // Integers and halves have exact sums in any order.
    let values: Vec<f64> = (0..101).map(|n| f64::from(n) * 0.5 - 20.0).collect();
    let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
    let mut reply = [0_f64; 2];
    Target::new().run(&report, &bytes, &mut reply);
    let squares: f64 = values.iter().map(|value| value * value).sum();
    let weighted: f64 = values.iter().zip([1.5, -2.0, 0.25].iter().cycle()).map(|(a, b)| a * b).sum();
    assert_eq!(reply, [squares, weighted]);
}

#[test]
fn objects_and_static_libraries_of_rustc_are_taken() {
    let rustc = std::env::var("RUSTC").unwrap_or_else(|_| "rustc".to_owned());
    if !all_work(&[&rustc]) {
        return;
    }
    let source = "#![no_std]
#[panic_handler]
fn panic(_: &core::panic::PanicInfo) -> ! { loop {} }
static ORDER: [fn(u32) -> u32; 2] = [u32::reverse_bits, u32::swap_bytes];
#[unsafe(no_mangle)]
pub unsafe extern \"C\" fn t_main(payload: *const u8, size: usize, args: *mut u32) {
    let payload = unsafe { core::slice::from_raw_parts(payload, size) };
    let (words, _) = payload.as_chunks();
    let each = words.iter().zip(ORDER.iter().cycle()).map(|(word, turn)| turn(u32::from_le_bytes(*word)));
    unsafe { *args = each.fold(0, |sum, word| sum ^ word) };
}
#[unsafe(no_mangle)]
pub extern \"C\" fn t_payload_get_max_size(_: *const u8, size: usize) -> usize { size }
#[unsafe(no_mangle)]
pub unsafe extern \"C\" fn t_payload_init(payload: *mut u8, _: usize, args: *const u8, size: usize) -> i32 {
    unsafe { core::ptr::copy_nonoverlapping(args, payload, size) };
    0
}
";
    for (kind, emit, output) in [("lib", "--emit=obj", "t.o"), ("staticlib", "--emit=link", "libt-objects.a")]
    {
        let fixture = Fixture::new();
        fixture.write("t.rs", source);
        let common = ["--edition", "2024", "-C", "panic=abort", "-C", "opt-level=2", "--crate-name", "t"];
        fixture.run(&rustc, &[&common[..], &["--crate-type", kind, emit, "t.rs", "-o", output]].concat());
        let report = build_all(&fixture, &[fixture.path(output)]);
        assert!(report.images[0].bytes.len() < 1024, "{output}: {} bytes", report.images[0].bytes.len());
        let words = [0x0000_0001_u32, 0x1234_5678, 0x8000_0001];
        let payload: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        let mut reply = 0_u32;
        Target::new().run(&report, &payload, &mut reply);
        assert_eq!(reply, 0x8000_0000 ^ 0x7856_3412 ^ 0x8000_0001, "{output}");
    }
}

/// Path of a static library of the compiler, or `None`.
fn static_library(file: &str) -> Option<PathBuf> {
    let output = Command::new("cc").arg(format!("-print-file-name={file}")).output().ok()?;
    let path = PathBuf::from(String::from_utf8_lossy(&output.stdout).trim());
    // For a file that it does not find, the compiler prints the name itself.
    (path != Path::new(file) && path.is_file()).then_some(path)
}

/// Stands for the function that code calls when a protected stack was overwritten.
extern "C" fn stack_was_overwritten() -> ! {
    std::process::abort()
}

#[test]
fn the_archive_of_a_distribution_is_taken() {
    if !all_work(&["gcc"]) {
        return;
    }
    let Some(archive) = static_library("liblz4.a") else {
        println!("skipped: liblz4.a is not installed (liblz4-dev)");
        return;
    };
    let fixture = Fixture::new();
    let text = format!(
        "{PAYLOAD}\
         extern int LZ4_decompress_safe(const char *from, char *to, int size, int space);\n\
         struct unpacked {{ int size; char bytes[4096]; }};\n\
         void t_main(void *payload, size_t size, void *args)\n\
         {{\n\
             struct unpacked *unpacked = args;\n\
             unpacked->size = LZ4_decompress_safe(payload, unpacked->bytes, (int)size, sizeof unpacked->bytes);\n\
         }}\n"
    );
    let object = object(&fixture, "gcc", "t.c", &text, &[]);
    for linker in linkers() {
        let options = Options {
            linker: Some(linker.into()),
            ..fixture.options("t", &[object.clone(), archive.clone()])
        };
        let report = build(&options).unwrap_or_else(|error| panic!("{linker}: {error}"));
        Library::open(&report.library).unwrap_or_else(|error| panic!("{linker}: {error}"));
        let mut target = Target::offering("memcpy", libc::memcpy as *const c_void);
        let exports = target.resolver.exports_mut();
        // SAFETY: the code declares it with this type.
        unsafe { exports.insert("memmove", libc::memmove as *const c_void) };
        // SAFETY: the code declares it with this type.
        unsafe { exports.insert("memset", libc::memset as *const c_void) };
        // SAFETY: the code declares it with this type.
        unsafe { exports.insert("calloc", libc::calloc as *const c_void) };
        // SAFETY: the code declares it with this type.
        unsafe { exports.insert("free", libc::free as *const c_void) };
        // SAFETY: the code declares it with this type.
        unsafe { exports.insert("__stack_chk_fail", stack_was_overwritten as *const c_void) };
        #[repr(C)]
        struct Reply {
            size: i32,
            bytes: [u8; 4096],
        }
        let mut run = |block: &[u8]| {
            let mut reply = Reply { size: 0, bytes: [0; 4096] };
            target.run(&report, block, &mut reply);
            usize::try_from(reply.size).ok().map(|size| reply.bytes[..size].to_vec())
        };
        // Blocks written by hand from the description of the format. The first has only literals. The second has one
        // literal `a`, a match of 15 + 4 + 255 + 7 bytes at distance 1, which overlaps itself, and five last literals.
        assert_eq!(run(b"\x50hello").as_deref(), Some(&b"hello"[..]), "{linker}");
        let long: Vec<u8> = [&[b'a'; 1 + 15 + 4 + 255 + 7][..], b"bcdef"].concat();
        assert_eq!(run(b"\x1fa\x01\x00\xff\x07\x50bcdef"), Some(long), "{linker}");
        // A match that begins before the first byte.
        assert_eq!(run(b"\x1fa\x09\x00\x00\x50bcdef"), None, "{linker}");
    }
}

/// A function that sanitizers check in each byte, and its author's payload routines, which run in processes that load
/// the library.
const CHECKED: &str = "#include <stddef.h>
size_t t_payload_get_max_size(int *args, size_t size) { return size + (size_t)(args[0] / args[1]) * 0; }
int t_payload_init(int *payload, size_t space, int *args, size_t size)
{ (void)space; for (size_t i = 0; i < size / 4; i++) payload[i] = args[i] / 1; return 0; }
void t_main(int *at, size_t size, void *args)
{ (void)args; for (size_t i = 0; i < size; i++) at[i % 4] += at[(i + 1) % 4] / ((int)i - 7); }
";

/// Flags that change a driver's link, but no part of a library.
const OF_DRIVERS: [&[&str]; 8] = [
    &["-ffast-math"],
    &["-Ofast"],
    &["-funsafe-math-optimizations"],
    &["-mdaz-ftz"],
    &["-mpc32"],
    &["-mpc64"],
    &["-mpc80"],
    &[
        "-static-pie",
        "-static",
        "-pie",
        "-shared-libgcc",
        "-pthread",
        "-fopenmp",
        "-rdynamic",
        "-nostartfiles",
        "-r",
    ],
];

/// Flags whose code needs a runtime, with the cause and the cure that messages name.
const WITH_RUNTIME: [(&str, &str, &str); 14] = [
    ("-fsanitize=address", "AddressSanitizer", "-fsanitize=address"),
    ("-fsanitize=undefined", "UndefinedBehaviorSanitizer", "-fsanitize-trap=undefined"),
    ("-fsanitize=thread", "ThreadSanitizer", "-fsanitize=thread"),
    ("-fsanitize=memory", "MemorySanitizer", "-fsanitize=memory"),
    ("-fsanitize=fuzzer-no-link", "coverage of a sanitizer", "-fsanitize-coverage"),
    ("-fsanitize-coverage=trace-pc", "coverage of a sanitizer", "-fsanitize-coverage"),
    ("-finstrument-functions", "start and end of each function", "-finstrument-functions"),
    ("-pg", "start and end of each function", "-pg"),
    ("--coverage", "coverage", "--coverage"),
    ("-fprofile-arcs", "coverage", "--coverage"),
    ("-fprofile-generate", "profile", "-fprofile-generate"),
    ("-fprofile-instr-generate", "profile", "-fprofile-instr-generate"),
    ("-fstack-protector-all", "stack protector", "-fno-stack-protector"),
    ("-flto", "intermediate code (LTO)", "without -flto"),
];

/// The number of functions that run during loading of the library.
fn constructors(library: &Path) -> u64 {
    let bytes = std::fs::read(library).unwrap();
    let elf = ElfFile64::<LittleEndian>::parse(&*bytes).unwrap();
    let arrays = elf.sections().filter(|section| section.name() == Ok(".init_array"));
    arrays.map(|section| section.size() / 8).sum()
}

#[test]
fn a_drivers_link_flag_adds_nothing_or_is_refused_by_name() {
    for compiler in ["gcc", "clang"].into_iter().filter(|compiler| works(compiler)) {
        let built = |flags: &[&str]| {
            let fixture = Fixture::new();
            let cflags = flags.iter().map(|&flag| flag.to_owned()).collect();
            let input = fixture.write("t.c", CHECKED);
            let options = Options { cc: Some(compiler.into()), cflags, ..fixture.options("t", &[input]) };
            (build(&options), fixture)
        };
        let (plain, _folder) = built(&[]);
        let usual = constructors(&plain.unwrap().library);
        for flags in OF_DRIVERS {
            let (report, _folder) = built(flags);
            let report = match report {
                Err(BuildError::Compile { .. }) => {
                    println!("skipped: {compiler} does not know {flags:?}");
                    continue;
                }
                report => report.unwrap_or_else(|error| panic!("{compiler} {flags:?}: {error}")),
            };
            assert_eq!(constructors(&report.library), usual, "{compiler} {flags:?}");
            let halved = || std::hint::black_box(1e-40_f32) / std::hint::black_box(2.0);
            let before = halved();
            // SAFETY: the routines are those above.
            drop(unsafe { Library::load(&report.library) }.unwrap());
            assert_eq!((before > 0.0, halved()), (true, before), "{compiler} {flags:?}");
        }
        for (flag, cause, cure) in WITH_RUNTIME {
            let (report, _folder) = built(&[flag]);
            let text = match report {
                Err(BuildError::Compile { .. }) => {
                    println!("skipped: {compiler} does not know {flag}");
                    continue;
                }
                // Functions that are to run before everything else, and payload routines that need the runtime.
                Err(error) => error.to_string(),
                // The runtime is the C library's, or none: the target refuses the image, and the listing names the
                // reason.
                Ok(report) => {
                    assert_eq!(constructors(&report.library), usual, "{compiler} {flag}");
                    let shown = inspect(&report.library).unwrap().to_string();
                    let note = shown.lines().find_map(|line| line.strip_prefix("  note      "));
                    // clang's profiles count only in variables of the image.
                    if imports(&report.images[0].bytes).is_empty() {
                        println!("{compiler} {flag}: nothing is wanted of a target");
                        continue;
                    }
                    let refused = Target::new().refuse(&report);
                    assert!(refused.contains(note.unwrap()), "{compiler} {flag}: {refused}\n{shown}");
                    refused
                }
            };
            assert!(text.contains(cause) && text.contains(cure), "{compiler} {flag}: {text}");
        }
    }
}
