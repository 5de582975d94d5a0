//! The body for libraries, as a source opens them: none of the file's code runs. Its input is a file.

use std::os::fd::AsRawFd;
use std::path::PathBuf;

use farjump_core::code::CodeView;
use farjump_loader::library::bundle::is_name;
use farjump_loader::{Library, code_id};

use crate::{assert_words, file_of};

/// Opens a library, and reads the parts that a source would send.
pub fn library(data: &[u8]) {
    let file = file_of(data);
    let path = PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()));
    let library = match Library::open(&path) {
        Ok(library) => library,
        Err(error) => {
            assert!(error.to_string().contains("/proc/self/fd/"), "{error} does not say of which file");
            return assert_words(&error);
        }
    };
    assert!(is_name(library.name()), "{:?} names no ifunc", library.name());
    assert!(!library.images().is_empty());
    for image in library.images() {
        assert!(CodeView::new_checked(image.bytes()).is_ok(), "a source would send what is no image");
        assert_eq!(image.id(), code_id(image.bytes()));
    }
}
