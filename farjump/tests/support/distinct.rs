//! Libraries that differ in their code alone.

use std::fs;
use std::path::PathBuf;

use farjump::Library;

use super::{Place, library_path};

/// Makes libraries from `distinct.c`, each with other code.
pub(crate) struct Distinct {
    bytes: Vec<u8>,
    /// Offsets of the mark's digits in the file: in the library's own code and in its image.
    marks: Vec<usize>,
    path: PathBuf,
}

const MARK: &[u8] = b"<mark 0000000000>";

impl Distinct {
    pub(crate) fn new(place: &Place) -> Distinct {
        let bytes = fs::read(library_path("distinct")).unwrap();
        let marks: Vec<_> = (0..bytes.len()).filter(|&at| bytes[at..].starts_with(MARK)).collect();
        assert!(marks.len() >= 2, "{marks:?}");
        Distinct { bytes, marks, path: place.path("libdistinct.so") }
    }

    /// Writes the library with this number to the path that all of them share, in place of the last one, and
    /// returns that path.
    pub(crate) fn write(&mut self, number: u64) -> &PathBuf {
        let mark = Distinct::mark(number);
        for &at in &self.marks {
            self.bytes[at..at + mark.len()].copy_from_slice(&mark);
        }
        // A new file, as linkers make it: the old one may be mapped.
        let _ = fs::remove_file(&self.path);
        fs::write(&self.path, &self.bytes).unwrap();
        &self.path
    }

    /// Opens the library with this number.
    pub(crate) fn open(&mut self, number: u64) -> Library {
        Library::open(self.write(number)).unwrap()
    }

    /// Loads the library with this number.
    pub(crate) fn load(&mut self, number: u64) -> Library {
        // SAFETY: it is built from a source of these tests.
        unsafe { Library::load(self.write(number)) }.unwrap()
    }

    /// The reply of the function with this number.
    pub(crate) fn mark(number: u64) -> Vec<u8> {
        format!("<mark {number:010}>").into_bytes()
    }
}
