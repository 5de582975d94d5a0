//! What is fuzzed of farjump: everything that reads bytes which somebody else made.
//!
//! | body | takes | what is asserted, besides that nothing panics |
//! |---|---|---|
//! | [`frame`] | a frame, as a two-sided transport delivers it | parts that are accepted lie inside, apart and aligned; put together again they read the same |
//! | [`image`] | an image, as it travels | an image that is accepted has one encoding and so one code id; placing it writes its spans and nothing else |
//! | [`meeting`] | what a process that connects sends | memory stays bounded; a message that is accepted reads the same when it is sent on |
//! | [`records`] | what is done to the records of an honest end of `tcp`, on their way | messages come whole and in order, or the link ends; memory stays bounded |
//! | [`inspect`] | an ifunc library, as a file | whatever is wrong is said in words; a report is fit for a terminal |
//! | [`library`] | an ifunc library, as a source opens it | its images are whole, and named by their code ids |
//! | [`keys`] | a file of keys | there are no more than may be, no two alike; no digit of a key is in what is said of the file |
//!
//! Each is a function of bytes that panics if a promise is broken. The binaries of cargo-fuzz in the folder above call them,
//! and so do this package's tests, over the kept corpus and over what [`Mutator`] makes of it.
//! `fuzz/README.md` says how to run both.

#![deny(missing_docs)]

use std::os::fd::OwnedFd;

use rustix::fs::{MemfdFlags, memfd_create};

pub mod allocation;
mod frame;
mod image;
mod inspect;
mod keys;
mod library;
mod meeting;
mod mutate;
mod records;
pub mod seeds;

pub use frame::frame;
pub use image::image;
pub use inspect::inspect;
pub use keys::keys;
pub use library::library;
pub use meeting::meeting;
pub use mutate::Mutator;
pub use records::records;

/// A body: it panics if `data` breaks a promise.
pub type Body = fn(&[u8]);

/// Every body by the name of its target, which is that of its folder in the corpus too.
pub const BODIES: [(&str, Body); 7] = [
    ("frame", frame),
    ("image", image),
    ("meeting", meeting),
    ("records", records),
    ("inspect", inspect),
    ("library", library),
    ("keys", keys),
];

/// An error's words are there, and cannot write to a terminal what they like.
fn assert_words(error: &dyn std::error::Error) {
    let words = error.to_string();
    assert!(!words.trim().is_empty(), "{error:?} says nothing");
    assert!(!words.chars().any(char::is_control), "{words:?} has control characters");
}

/// A file with these bytes, which never touches a disk.
fn file_of(data: &[u8]) -> OwnedFd {
    let file = memfd_create("farjump-fuzz", MemfdFlags::CLOEXEC).expect("a file in memory");
    let mut rest = data;
    while !rest.is_empty() {
        let written = rustix::io::write(&file, rest).expect("room for a file in memory");
        rest = &rest[written..];
    }
    file
}
