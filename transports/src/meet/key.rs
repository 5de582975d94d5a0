//! The key that two processes on different machines share, and the file that it is kept in.

use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use rustix::rand::{GetRandomFlags, getrandom};
use zeroize::{Zeroize, ZeroizeOnDrop, Zeroizing};

use crate::Error;

/// Bits of a file's mode that let others than its owner at it.
const OTHERS: u32 = 0o077;
/// Longest file that is looked at, in bytes: 64 digits and some white space.
const MAX_FILE: usize = 4096;

/// A key of 256 bits. Who has it may do anything that the targets that have it may do.
///
/// It wipes itself from memory when it is dropped, and nothing shows it.
#[derive(Clone)]
pub struct Key([u8; Key::LEN]);

impl Key {
    /// Length in bytes.
    pub const LEN: usize = 32;

    /// The key that these bytes are. They must be as hard to guess as random ones: no password.
    pub fn from_bytes(bytes: [u8; Key::LEN]) -> Key {
        Key(bytes)
    }

    /// Draws a key from the system's generator.
    ///
    /// # Errors
    /// [`Error::System`] where it gives none.
    pub fn draw() -> Result<Key, Error> {
        let mut key = Key([0; Key::LEN]);
        match getrandom(&mut key.0[..], GetRandomFlags::empty()) {
            Ok(Key::LEN) => Ok(key),
            Ok(_) => Err(Error::system("drawing a key", rustix::io::Errno::IO)),
            Err(error) => Err(Error::system("drawing a key", error)),
        }
    }

    /// Reads a key from the file at `path`: 64 hexadecimal digits with white space around them, or 32 bytes as they are.
    ///
    /// # Errors
    /// [`Error::KeyFileMode`] when others than the file's owner may read or write it, or another user than this process's
    /// owns it; [`Error::KeyFile`] when it holds something else; [`Error::System`] when it cannot be read.
    pub fn read(path: &Path) -> Result<Key, Error> {
        let failed = |error: io::Error| Error::system(format!("reading the key {}", path.display()), error);
        let file = File::open(path).map_err(failed)?;
        let metadata = file.metadata().map_err(failed)?;
        let own = rustix::process::geteuid().as_raw();
        if metadata.mode() & OTHERS != 0 || metadata.uid() != own {
            let (path, mode, uid) = (path.to_owned(), metadata.mode() & 0o7777, metadata.uid());
            return Err(Error::KeyFileMode { path, mode, uid, own });
        }
        // One allocation, which no growth leaves a copy of behind.
        let mut bytes = Zeroizing::new(Vec::with_capacity(MAX_FILE + 1));
        file.take(MAX_FILE as u64 + 1).read_to_end(&mut bytes).map_err(failed)?;
        Key::parse(&bytes).ok_or_else(|| Error::KeyFile { path: path.to_owned(), len: bytes.len() })
    }

    /// Draws a key and writes it to a new file at `path`, as 64 hexadecimal digits and a line's end, for its owner alone.
    ///
    /// # Errors
    /// [`Error::KeyFileExists`] when there is something at `path`, which is left alone; [`Error::System`].
    pub fn create(path: &Path) -> Result<Key, Error> {
        let key = Key::draw()?;
        let mut options = OpenOptions::new();
        options.write(true).create_new(true).mode(0o600);
        let failed = |error: io::Error| Error::system(format!("writing the key {}", path.display()), error);
        let mut file = match options.open(path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                return Err(Error::KeyFileExists { path: path.to_owned() });
            }
            opened => opened.map_err(failed)?,
        };
        if let Err(error) = file.write_all(key.digits().as_bytes()).and_then(|()| file.sync_all()) {
            // What is half a key would be in the way of the next one. That this fails too changes nothing.
            drop(fs::remove_file(path));
            return Err(failed(error));
        }
        Ok(key)
    }

    /// The key as it is written to a file: 64 hexadecimal digits and a line's end.
    pub fn digits(&self) -> Zeroizing<String> {
        let mut text = Zeroizing::new(String::with_capacity(2 * Key::LEN + 1));
        for byte in self.0 {
            for nibble in [byte >> 4, byte & 15] {
                text.push(char::from_digit(nibble.into(), 16).unwrap_or('0'));
            }
        }
        text.push('\n');
        text
    }

    /// Its bytes.
    pub(super) fn bytes(&self) -> &[u8; Key::LEN] {
        &self.0
    }

    fn parse(bytes: &[u8]) -> Option<Key> {
        let digits = bytes.trim_ascii();
        if digits.len() == 2 * Key::LEN {
            let mut key = Key([0; Key::LEN]);
            let digit = |byte: u8| char::from(byte).to_digit(16);
            for (byte, pair) in key.0.iter_mut().zip(digits.chunks_exact(2)) {
                *byte = (digit(pair[0])? << 4 | digit(pair[1])?) as u8;
            }
            return Some(key);
        }
        // Bytes as they are: white space among them means something.
        bytes.try_into().ok().map(Key)
    }
}

impl Drop for Key {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}

impl ZeroizeOnDrop for Key {}

impl fmt::Debug for Key {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("Key(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt;

    fn write(path: &Path, bytes: &[u8], mode: u32) {
        let _ = fs::remove_file(path);
        fs::write(path, bytes).unwrap();
        fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn a_key_is_read_as_it_was_made_and_its_file_is_for_its_owner_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("k");
        let made = Key::create(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, 0o600);
        assert_eq!(fs::read_to_string(&path).unwrap().len(), 65);
        assert_eq!(Key::read(&path).unwrap().0, made.0);
        assert_ne!(Key::draw().unwrap().0, made.0);
        assert!(matches!(Key::create(&path), Err(Error::KeyFileExists { .. })));
        assert_eq!(Key::read(&path).unwrap().0, made.0, "it was overwritten");
    }

    #[test]
    fn digits_and_raw_bytes_are_keys_and_nothing_else_is() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("k");
        let raw: [u8; 32] = std::array::from_fn(|at| at as u8 * 7 + 9);
        let digits = Key::from_bytes(raw).digits();
        for good in [&raw[..], digits.as_bytes(), digits.trim().as_bytes(), digits.to_uppercase().as_bytes()]
        {
            write(&path, good, 0o400);
            assert_eq!(Key::read(&path).unwrap().0, raw);
        }
        let long = "0".repeat(5000);
        for wrong in ["", "password", &"g".repeat(64), &digits[..63], &"0".repeat(65), &long] {
            write(&path, wrong.as_bytes(), 0o600);
            let error = Key::read(&path).unwrap_err();
            assert!(matches!(error, Error::KeyFile { .. }), "{wrong}: {error}");
        }
    }

    #[test]
    fn a_file_that_others_may_read_is_refused_with_what_to_type() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("k");
        for mode in [0o640, 0o604, 0o620, 0o602, 0o777] {
            write(&path, &[7; 32], mode);
            let text = Key::read(&path).unwrap_err().to_string();
            assert!(text.contains("chmod 600") && text.contains(&format!("{mode:o}")), "{text}");
        }
    }

    #[test]
    fn a_key_is_not_shown() {
        assert_eq!(format!("{:?}", Key::from_bytes([0xab; 32])), "Key(..)");
    }
}
