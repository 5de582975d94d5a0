//! The body for files of keys. Its input is a file.

use std::collections::BTreeSet;
use std::os::fd::AsRawFd;
use std::path::PathBuf;

use farjump_control::{KeyFile, Keys, MAX_KEYS};
use rustix::fs::{Mode, fchmod};

use crate::{assert_words, file_of};

/// Most digits in a row in a message about a file: those of a line's number, or of a descriptor's.
const MOST_DIGITS: usize = 8;

/// Reads the keys, as a starting target does.
pub fn keys(data: &[u8]) {
    let file = file_of(data);
    fchmod(&file, Mode::RUSR | Mode::WUSR).expect("the file is this process's");
    let path = PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()));
    let keys = match Keys::read(&path) {
        Ok(keys) => keys,
        Err(error) => {
            assert_words(&error);
            let words = error.to_string();
            let runs = words.split(|c: char| !c.is_ascii_hexdigit());
            assert!(runs.map(str::len).all(|len| len <= MOST_DIGITS), "{words:?} holds digits of a key");
            return assert!(KeyFile::open(&path).is_err(), "a target takes what cannot be read");
        }
    };
    assert!(keys.len() <= MAX_KEYS);
    assert_eq!(keys.iter().count(), keys.len());
    let names: BTreeSet<_> = keys.iter().map(|one| one.name.as_deref()).collect();
    assert_eq!(names.len(), keys.len(), "two keys have one name");
    for one in keys.iter() {
        let name = one.name.as_deref().unwrap_or_default();
        assert!(name.bytes().all(|byte| byte.is_ascii_graphic() || byte == b' '), "{name:?}");
        assert_eq!(keys.revokes(one, Default::default()), None, "a key that is there is taken back");
    }
    assert_eq!(keys.only().is_some(), keys.len() == 1);
    assert_eq!(KeyFile::open(&path).is_ok(), !keys.is_empty());
}
