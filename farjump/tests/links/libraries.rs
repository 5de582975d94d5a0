//! Libraries that are opened, loaded, and closed.

use std::fs::read_to_string;

use farjump::buffer::{AlignedBuffer, FrameWriter};
use farjump::core::signal::LinkKey;
use farjump::{Error, Library};

use crate::support::{Pair, id_of, library, library_path, outcome_of, words};

/// A command for `shrinking`: request 8 bytes, write 8, and report 8 as used.
fn wish() -> Vec<u8> {
    words(&[8, 8, 8, 0])
}

#[test]
fn a_library_with_own_payload_routines_is_refused_until_loaded() {
    let (_place, mut pair) = Pair::start();
    let opened = Library::open(library_path("shrinking")).unwrap();
    let (echo, wish) = (library("echo"), wish());
    // The second time another library has been called along the fast path before.
    for _ in 0..2 {
        let mut writer = FrameWriter::new(LinkKey::from_bytes([7; 16]), 1);
        let errors = [
            pair.link.inject(&opened, &wish).map(drop).unwrap_err(),
            pair.link.try_inject(&opened, &wish).map(drop).unwrap_err(),
            pair.link.send(&opened, &wish).unwrap_err(),
            pair.link.try_send(&opened, &wish).unwrap_err(),
            pair.link.batch().send(&opened, &wish).unwrap_err(),
            writer.write(&mut AlignedBuffer::new(4096), &opened, &wish).unwrap_err(),
        ];
        for error in errors {
            assert!(matches!(error, Error::Library(_)), "{error}");
            let text = error.to_string();
            assert!(text.contains("`shrinking` (`"), "{text}");
            assert!(text.contains("payload routines of its own"), "{text}");
            assert!(text.contains("unsafe { Library::load(..) }"), "{text}");
        }
        assert_eq!(*pair.call(&echo, b"bytes").unwrap(), *b"bytes");
        assert_eq!(*pair.call(&echo, b"more bytes").unwrap(), *b"more bytes");
    }
    let loaded = library("shrinking");
    assert_eq!(*pair.call(&loaded, &wish).unwrap(), words(&[8])[..]);
    // The same code, through a `Library` whose routines are not loaded.
    assert!(pair.link.send(&opened, &wish).is_err());
    assert_eq!(*pair.call(&loaded, &wish).unwrap(), words(&[8])[..]);
}

#[test]
fn a_link_still_sends_the_code_of_an_unloaded_library() {
    let (_place, mut pair) = Pair::start();
    let path = library_path("shrinking");
    let copy = format!("/memfd:{} ", path.file_name().unwrap().to_str().unwrap());
    let mapped = || read_to_string("/proc/self/maps").unwrap().contains(&copy);
    // SAFETY: it is built from a source of these tests.
    let loaded = unsafe { Library::load(&path) }.unwrap();
    for _ in 0..3 {
        assert_eq!(*pair.call(&loaded, &wish()).unwrap(), words(&[8])[..]);
    }
    let id = id_of(&loaded);
    // The call is pending when the last `Library` is dropped, and the target requests its code again.
    assert!(pair.target.drop_code(&id));
    let mut pending = pair.link.inject(&loaded, &wish()).unwrap();
    assert!(mapped());
    drop(loaded);
    assert!(!mapped(), "the link keeps the library loaded");
    let reply = outcome_of(&mut pair.target, &mut pending).unwrap();
    assert_eq!(*reply, words(&[8])[..]);
}
