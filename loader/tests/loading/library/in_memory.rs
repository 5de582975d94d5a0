//! Libraries in memory, without a file.

use std::fs;
use std::path::Path;

use farjump_core::bitcode::BitcodeParts;
use farjump_core::code::CodeKind;
use farjump_loader::{Error, Library, code_id};

use super::{INIT, MAIN, SHRINK, good, init, make};
use crate::code::{INCREMENT, image, native};

fn load_bytes(name: Option<&str>, bytes: &[u8]) -> Result<Library, Error> {
    // SAFETY: the libraries of these tests meet the conditions; other bytes do not load.
    unsafe { Library::load_bytes(name, bytes) }
}

#[test]
fn the_contents_of_a_library_are_opened_as_its_file_is() {
    let made = good(INIT);
    let contents = fs::read(&made.path).unwrap();
    let (read, taken) = (Library::open(&made.path).unwrap(), Library::from_bytes(None, &contents).unwrap());
    let images = |library: &Library| -> Vec<_> {
        library.images().iter().map(|image| (image.kind(), image.id(), image.bytes().to_vec())).collect()
    };
    assert_eq!((taken.name(), taken.path()), ("sum", Path::new("<memory>")));
    assert_eq!(images(&taken), images(&read));
    // It was not loaded, so none of its code runs.
    assert!(matches!(taken.check_payload(), Err(Error::NotLoaded { .. })));
    assert!(Library::from_bytes(Some("sum"), &contents).is_ok());
}

#[test]
fn a_library_loaded_from_memory_makes_payloads_and_is_each_time_another() {
    let counts = "static int made;\nint sum_payload_init_shrink(char *payload, unsigned long *size, const char *args, unsigned \
                  long len) { payload[0] = ++made; *size = 1; return 0; }\n";
    let made = make(&[MAIN, super::MAX_SIZE, counts], &super::bundle_of(&[&image(&INCREMENT)]));
    let contents = fs::read(&made.path).unwrap();
    drop(made);
    let libraries = [None, Some("sum")].map(|name| load_bytes(name, &contents).unwrap());
    let mut space = [0; 16];
    for (library, expected) in [(0, 1), (0, 2), (1, 1)] {
        assert_eq!(init(&libraries[library], &mut space, b"abc").unwrap(), 1);
        assert_eq!(space[0], expected);
    }
    let mapped = || fs::read_to_string("/proc/self/maps").unwrap().contains("memfd:sum");
    assert!(mapped());
    drop(libraries);
    assert!(!mapped(), "it is unloaded with the last handle");
}

#[test]
fn a_library_made_from_code_alone_sends_arguments_as_payload() {
    let code = image(&INCREMENT);
    let module = b"BC\xc0\xde1234".as_slice();
    let parts = BitcodeParts {
        machine: native(),
        payload_align_log2: 0,
        llvm: 19,
        name: "sum",
        wanted: Vec::new(),
        modules: vec![module],
    };
    let bitcode = parts.encode().unwrap();
    for (name, bytes, is_bitcode) in
        [(Some("sum"), &code, false), (Some("sum"), &bitcode, true), (None, &bitcode, true)]
    {
        for library in [Library::from_bytes(name, bytes).unwrap(), load_bytes(name, bytes).unwrap()] {
            assert_eq!((library.name(), library.payload_is_args()), ("sum", true));
            let only = &library.images()[0];
            assert_eq!((only.id(), only.bytes()), (code_id(bytes), &bytes[..]));
            assert_eq!(matches!(only.kind(), CodeKind::Bitcode(_)), is_bitcode);
            assert_eq!(init(&library, &mut [0; 8], b"args").unwrap(), 4);
        }
    }
}

#[test]
fn each_fault_of_bytes_is_named_whether_they_are_opened_or_loaded() {
    let made = good(SHRINK);
    let contents = fs::read(&made.path).unwrap();
    let code = image(&INCREMENT);
    let mut damaged = code.clone();
    damaged[8] ^= 0xff;
    for (name, bytes, expected) in [
        (None, &b""[..], "`<memory>` is no ifunc library: it is an empty file"),
        (None, b"#!/bin/sh\n0123456789", "`<memory>` is no ifunc library: it is "),
        (None, &contents[..contents.len() / 2], "`<memory>` "),
        (
            None,
            &code,
            "an image does not say the name of its function: give the name with it, or the library",
        ),
        (Some("a b"), &code, "`<memory>`: bundle of images has no usable name"),
        (Some("sum"), &damaged, "`<memory>`, image 0: "),
        (Some("sum"), &code[..20], "`<memory>`, image 0: "),
        (
            Some("mus"),
            &contents,
            "these bytes are the function `sum` and not `mus`: give its own name, or none",
        ),
    ] {
        for refused in [Library::from_bytes(name, bytes), load_bytes(name, bytes)] {
            let said = refused.unwrap_err().to_string();
            assert!(said.starts_with(expected), "{said}");
        }
    }
}

#[test]
fn bytes_that_are_cut_anywhere_are_refused() {
    let made = good(INIT);
    let contents = fs::read(&made.path).unwrap();
    for len in (0..contents.len()).step_by(97) {
        assert!(Library::from_bytes(None, &contents[..len]).is_err(), "{len}");
        assert!(load_bytes(None, &contents[..len]).is_err(), "{len}");
    }
}
