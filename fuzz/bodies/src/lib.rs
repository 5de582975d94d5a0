//! The fuzzed parts of farjump: everything that reads bytes from other processes.
//!
//! A body is a function of bytes that panics if a guarantee is broken. The binaries of cargo-fuzz in the folder above
//! call the bodies. This package's tests call them, too, over the kept corpus and over mutations of it by
//! [`Mutator`]. `fuzz/README.md` says how to run both.

#![deny(missing_docs)]

use std::os::fd::OwnedFd;

use rustix::fs::{MemfdFlags, memfd_create};

mod frame;
mod handles;
mod handshake;
mod image;
mod inspect;
mod keys;
mod library;
mod mutate;
mod objects;
mod records;
mod replies;
pub mod seeds;
mod store_seeds;

pub use frame::frame;
pub use handles::handles;
pub use handshake::handshake;
pub use image::image;
pub use inspect::inspect;
pub use keys::keys;
pub use library::library;
pub use mutate::Mutator;
pub use objects::objects;
pub use records::records;
pub use replies::replies;

/// The bytes of these fields of a request, one behind the other.
#[macro_export]
macro_rules! fields {
    ($($field:expr),* $(,)?) => {{
        let mut bytes: Vec<u8> = Vec::new();
        $(bytes.extend_from_slice(AsRef::<[u8]>::as_ref(&$field));)*
        bytes
    }};
}

/// A field of 64 bits.
pub fn word(number: u64) -> [u8; 8] {
    number.to_le_bytes()
}

/// A body: panics if `data` breaks a guarantee.
pub type Body = fn(&[u8]);

/// Every body by the name of its target, which is also the name of its folder in the corpus. Besides the absence of
/// panics they assert:
///
/// | body | input | assertions |
/// |---|---|---|
/// | [`frame`] | a frame of a two-sided transport | parts are inside, apart, aligned; they read alike again |
/// | [`image`] | an image or bitcode, as it travels | it has one encoding and code id; placing writes only its spans |
/// | [`handshake`] | bytes of a connecting process | memory is bounded; a message reads alike when sent on |
/// | [`records`] | changed records of honest `tcp` | whole messages in order, or an end; memory is bounded |
/// | [`inspect`] | an ifunc library, as a file | errors have words; a report is fit for a terminal |
/// | [`library`] | an ifunc library, as a source opens it | its images are whole, and have their code ids |
/// | [`keys`] | a file of keys | not too many, no two alike; messages contain no digit of a key |
/// | [`objects`] | requests to a store and its functions | limits hold; no access without a handle; no claim is left |
/// | [`handles`] | an encoded handle | it has one encoding, and is within its limits |
/// | [`replies`] | replies of an owner to its client | each request ends; a view lies in the owner's memory; errors have words |
pub const BODIES: [(&str, Body); 10] = [
    ("frame", frame),
    ("image", image),
    ("handshake", handshake),
    ("records", records),
    ("inspect", inspect),
    ("library", library),
    ("keys", keys),
    ("objects", objects),
    ("handles", handles),
    ("replies", replies),
];

/// Checks that an error has words, and no control characters for a terminal.
fn assert_words(error: &dyn std::error::Error) {
    let words = error.to_string();
    assert!(!words.trim().is_empty(), "{error:?} says nothing");
    assert!(!words.chars().any(char::is_control), "{words:?} has control characters");
}

/// A file with these bytes, in memory only.
fn file_of(data: &[u8]) -> OwnedFd {
    let file = memfd_create("farjump-fuzz", MemfdFlags::CLOEXEC).expect("a file in memory");
    let mut rest = data;
    while !rest.is_empty() {
        let written = rustix::io::write(&file, rest).expect("space for a file in memory");
        rest = &rest[written..];
    }
    file
}
