//! Builds, places and runs every sample, and compares its result with one computed here in another way.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::fs;
use std::sync::Mutex;
use std::sync::mpsc::{Sender, channel};
use std::thread;
use std::time::Duration;

use farjump_builder::{BuildReport, build};
use farjump_loader::Library;

use crate::fixture::{FarjumpData, Fixture, Target, imports, sample};

fn built(file: &str, name: &str) -> BuildReport {
    let fixture = Fixture::new();
    build(&fixture.options(name, &[sample(file)])).unwrap_or_else(|error| panic!("{error}"))
}

/// Inputs of many kinds: empty, shorter than any step, all equal, all values, and a real file of odd length.
fn inputs() -> Vec<Vec<u8>> {
    let program = fs::read(std::env::current_exe().unwrap()).unwrap();
    let mut inputs: Vec<Vec<u8>> = vec![Vec::new(), vec![0], b"panic".to_vec(), vec![b'a'; 1000]];
    inputs.push((0..=255).cycle().take(4099).collect());
    inputs.push(program[..program.len().min(3_000_001)].to_vec());
    inputs
}

#[test]
fn the_image_of_counter_is_at_most_64_bytes() {
    let report = built("c/counter.c", "counter");
    println!("counter: {} bytes, {:?}", report.images[0].bytes.len(), report.images[0].sizes);
    assert!(report.images[0].bytes.len() <= 64, "{} bytes", report.images[0].bytes.len());
}

#[test]
fn the_image_of_hello_is_at_most_512_bytes() {
    let report = built("c/hello.c", "hello");
    println!("hello: {} bytes, {:?}", report.images[0].bytes.len(), report.images[0].sizes);
    assert!(report.images[0].bytes.len() <= 512, "{} bytes", report.images[0].bytes.len());
}

#[test]
fn the_images_of_the_samples_that_work_on_their_payload_are_small() {
    for (name, limit) in [("sum", 512), ("indirect_put", 512), ("codec", 1280), ("chain", 768)] {
        let report = built(&format!("c/{name}.c"), name);
        println!("{name}: {} bytes, {:?}", report.images[0].bytes.len(), report.images[0].sizes);
        assert!(report.images[0].bytes.len() <= limit, "{name}: {} bytes", report.images[0].bytes.len());
        // Runs in any mode, and keeps no memory in the target.
        assert_eq!((report.images[0].sizes.data, report.images[0].sizes.bss), (0, 0), "{name}");
    }
}

#[test]
fn the_images_of_the_rust_samples_carry_no_formatting() {
    for name in ["counter", "histogram", "crc32", "sum", "chain"] {
        let report = built(&format!("rust/{name}.rs"), name);
        println!("{name}.rs: {} bytes, {:?}", report.images[0].bytes.len(), report.images[0].sizes);
        assert!(report.images[0].bytes.len() <= 1024, "{name}: {} bytes", report.images[0].bytes.len());
    }
}

#[test]
fn counter_adds_one_to_the_word_of_the_target() {
    for file in ["c/counter.c", "rust/counter.rs"] {
        let report = built(file, "counter");
        let mut target = Target::new();
        if file.starts_with("rust") {
            // SAFETY: the code declares it with this type.
            unsafe { target.resolver.exports_mut().insert("farjump_panic", farjump_panic as *const c_void) };
        }
        let mut word = 41_u64;
        for payload in [&b""[..], b"anything"] {
            assert_eq!(target.run(&report, payload, &mut word), Vec::<u8>::new());
        }
        assert_eq!(word, 43, "{file}");
    }
}

static PRINTED: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// Stands for printf with hello's four arguments: they travel in registers whether or not a function is
/// variadic.
unsafe extern "C" fn printf(
    format: *const c_char,
    len: c_int,
    name: *const u8,
    time: *const c_char,
    answer: c_int,
) -> c_int {
    // SAFETY: hello passes zero-terminated strings, and a name of that length.
    let (format, name, time) = unsafe {
        (CStr::from_ptr(format), std::slice::from_raw_parts(name, len as usize), CStr::from_ptr(time))
    };
    let text = format.to_str().unwrap().replacen("%.*s", str::from_utf8(name).unwrap(), 1);
    let text = text.replacen("%s", time.to_str().unwrap(), 1).replacen("%d", &answer.to_string(), 1);
    PRINTED.lock().unwrap().push(text);
    0
}

#[test]
fn hello_prints_at_the_target_and_counts_its_calls_there() {
    let report = built("c/hello.c", "hello");
    assert_eq!(imports(&report.images[0].bytes), ["farjump_reply", "printf"]);
    let mut target = Target::offering("printf", printf as *const c_void);
    let held = target.hold(&report);
    for call in 1..=2_u64 {
        assert_eq!(target.run(&report, b"world", &mut 0_u64), call.to_le_bytes());
    }
    drop(held);
    let printed = PRINTED.lock().unwrap();
    let expected =
        ["hello world, for the first time; the answer is 42\n", "hello world, again; the answer is 42\n"];
    assert_eq!(*printed, expected);
}

#[test]
fn histogram_counts_every_byte_value() {
    for file in ["c/histogram.c", "rust/histogram.rs"] {
        let report = built(file, "histogram");
        let mut target = Target::offering("farjump_panic", farjump_panic as *const c_void);
        for input in inputs() {
            let reply = target.run(&report, b"", &mut FarjumpData::new(&input));
            let words: Vec<u64> = reply.as_chunks().0.iter().map(|&word| u64::from_le_bytes(word)).collect();
            let mut expected = vec![input.len() as u64];
            let mut sorted = input.clone();
            sorted.sort_unstable();
            let below = |limit: u16| sorted.partition_point(|&byte| u16::from(byte) < limit) as u64;
            expected.extend((0..256).map(|value| below(value + 1) - below(value)));
            assert_eq!(words, expected, "{file}, {} bytes", input.len());
        }
    }
}

#[test]
fn grep_counts_every_occurrence_overlapping_ones_too() {
    let report = built("c/grep.c", "grep");
    let mut target = Target::new();
    let literals: [&[u8]; 8] =
        [b"", b"a", b"aa", b"aaa", b"panic", b"\0", b"\xff\0", b"\x00\x01\x02\x03\x04\x05\x06\x07\x08\x09"];
    for input in inputs() {
        let whole = input.clone();
        for literal in literals.into_iter().chain([&whole[..]]) {
            let reply = target.run(&report, literal, &mut FarjumpData::new(&input));
            let expected = match literal.len() {
                0 => 0,
                len => input.windows(len).filter(|window| *window == literal).count() as u64,
            };
            assert_eq!(reply, expected.to_le_bytes(), "{} bytes, {literal:?}", input.len());
        }
    }
}

/// Computes CRC-32 bit by bit, most significant power first, as in the polynomial's definition.
fn crc32_by_definition(bytes: &[u8]) -> u32 {
    let mut rest = !0_u32;
    for byte in bytes {
        rest ^= u32::from(byte.reverse_bits()) << 24;
        for _ in 0..8 {
            rest = if rest >> 31 == 1 { rest << 1 ^ 0x04c1_1db7 } else { rest << 1 };
        }
    }
    !rest.reverse_bits()
}

#[test]
fn crc32_is_that_of_ieee_802_3() {
    // The check value in catalogues of CRCs.
    assert_eq!(crc32_by_definition(b"123456789"), 0xcbf4_3926);
    for file in ["c/crc32.c", "rust/crc32.rs"] {
        let report = built(file, "crc32");
        let mut target = Target::offering("farjump_panic", farjump_panic as *const c_void);
        for input in inputs().into_iter().chain([b"123456789".to_vec()]) {
            let reply = target.run(&report, b"", &mut FarjumpData::new(&input));
            assert_eq!(reply, crc32_by_definition(&input).to_le_bytes(), "{file}, {} bytes", input.len());
        }
    }
}

#[test]
fn each_sample_that_sends_its_arguments_copies_them_into_the_payload() {
    let files = ["counter", "hello", "histogram", "grep", "crc32", "sum", "indirect_put"];
    let files = files.map(|name| format!("c/{name}.c"));
    let rust = ["counter", "histogram", "crc32", "sum"].map(|name| format!("rust/{name}.rs"));
    for file in files.into_iter().chain(rust) {
        let fixture = Fixture::new();
        let name = file.split(['/', '.']).nth(1).unwrap();
        let report = build(&fixture.options(name, &[sample(&file)])).unwrap();
        // The dynamic linker finds neither farjump_reply nor farjump_panic in this process.
        let opened = Library::open(&report.library).unwrap_or_else(|error| panic!("{error}"));
        // SAFETY: built above.
        let loaded = unsafe { Library::load(&report.library) }.unwrap_or_else(|error| panic!("{error}"));
        assert!(report.payload_is_args && opened.main().is_none() && loaded.main().is_some());
        for library in [opened, loaded] {
            library.check_payload().unwrap_or_else(|error| panic!("{error}"));
            assert_eq!(library.name(), name);
            assert_eq!(library.images()[0].id(), report.images[0].id);
            assert_eq!(library.images()[0].bytes(), report.images[0].bytes);
            for args in [&b""[..], b"some arguments"] {
                assert_eq!(library.payload_max_size(args), args.len());
                let mut space = vec![0xaa; args.len() + 8];
                // SAFETY: the vector is longer than the stated length.
                let used = unsafe { library.payload_init(space.as_mut_ptr(), args.len(), args) }.unwrap();
                assert_eq!(&space[..used], args);
                assert_eq!(space[used..], [0xaa; 8]);
            }
        }
    }
}

static PANICS: Mutex<Option<Sender<String>>> = Mutex::new(None);

/// Ends the call like a target, because no code after it runs: the thread never continues.
unsafe extern "C" fn farjump_panic(message: *const c_char, len: usize) -> ! {
    // SAFETY: injected code passes its own text and its length.
    let text = unsafe { std::slice::from_raw_parts(message.cast::<u8>(), len) };
    if let Some(panics) = &*PANICS.lock().unwrap() {
        let _ = panics.send(String::from_utf8_lossy(text).into_owned());
    }
    loop {
        thread::park();
    }
}

#[test]
fn a_panic_in_rust_code_sends_its_place_and_message() {
    let fixture = Fixture::new();
    let source = "#![no_std]
#[farjump_ifunc::ifunc]
fn picky(payload: &farjump_ifunc::Payload) {
    let mut bytes = [0; 2];
    let len = payload.copy_to(0, &mut bytes);
    match bytes.get(..len).unwrap_or_default() {
        [] => panic!(\"nothing in it\"),
        [0, ..] => { let _ = 1 / bytes[0]; }
        _ => { let _ = bytes[bytes[0] as usize]; }
    }
}";
    let source = fixture.write("picky.rs", source);
    let report = build(&fixture.options("picky", &[source])).unwrap();
    let mut target = Target::offering("farjump_panic", farjump_panic as *const c_void);
    let linked = target.hold(&report);
    let (sender, panics) = channel();
    *PANICS.lock().unwrap() = Some(sender);
    let cases: [(&'static [u8], &str); 3] = [
        (&[], "panicked at picky.rs:7: nothing in it"),
        (&[0], "panicked at picky.rs:8: attempt to divide by zero"),
        (&[9, 9], "panicked at picky.rs:9"),
    ];
    for (payload, expected) in cases {
        let linked = linked.clone();
        thread::spawn(move || {
            let mut payload = payload.to_vec();
            // SAFETY: code of this test, which reads only the payload.
            unsafe { (linked.main())(payload.as_mut_ptr().cast(), payload.len(), std::ptr::null_mut()) };
        });
        assert_eq!(panics.recv_timeout(Duration::from_secs(60)).as_deref(), Ok(expected));
    }
    // The threads that never return still hold the code.
    std::mem::forget((linked, target));
}

#[test]
fn cargo_builds_a_crate_with_its_own_payload_routines_and_alignment() {
    let fixture = Fixture::new();
    let author = concat!(env!("CARGO_MANIFEST_DIR"), "/../../ifuncs/rust");
    let manifest = format!(
        "[package]\nname = \"sum-words\"\nedition = \"2024\"\n\
         [dependencies]\nfarjump-ifunc = {{ path = \"{author}\" }}\n[workspace]\n"
    );
    let manifest = fixture.write("sum/Cargo.toml", &manifest);
    fixture.write(
        "sum/src/lib.rs",
        "#![no_std]
mod parse;
#[farjump_ifunc::ifunc(payload(max_size = parse::space, init = parse::words), payload_align = 512)]
fn sum(words: &[u64]) -> u64 {
    words.iter().fold(0, |sum, word| sum.wrapping_add(*word))
}",
    );
    fixture.write(
        "sum/src/parse.rs",
        "use farjump_ifunc::Payload;
/// Words in decimal, separated by blanks.
pub fn space(args: &[u8]) -> usize { args.len().div_ceil(2) * 8 }
pub fn words(space: &mut Payload, args: &[u8]) -> Result<usize, i32> {
    let mut used = 0;
    for word in str::from_utf8(args).map_err(|_| 7)?.split_whitespace() {
        let word: u64 = word.parse().map_err(|_| 8)?;
        used += space.write_at(used, &word.to_le_bytes());
    }
    Ok(used)
}",
    );
    for input in [fixture.path("sum"), manifest] {
        let report = build(&fixture.options("sum", &[input])).unwrap_or_else(|error| panic!("{error}"));
        // SAFETY: built above.
        let library = unsafe { Library::load(&report.library) }.unwrap();
        assert!(!report.payload_is_args);
        assert_eq!(library.images()[0].payload_align_log2(), 9);
        assert!(
            report.images[0].bytes.len() < 640,
            "parsing travels too: {} bytes",
            report.images[0].bytes.len()
        );
        let mut space = vec![0; library.payload_max_size(b"1 2 39")];
        // SAFETY: the vector has the stated length.
        let mut init = |args: &[u8]| unsafe { library.payload_init(space.as_mut_ptr(), space.len(), args) };
        assert_eq!(init(b"1 2 39").unwrap(), 24);
        assert!(init(b"1 2 x").unwrap_err().to_string().contains("failed with 8"));
        init(b"1 2 39").unwrap();
        let mut target = Target::offering("farjump_panic", farjump_panic as *const c_void);
        assert_eq!(target.run(&report, &space[..24], &mut 0_u8), 42_u64.to_le_bytes());
    }
}
