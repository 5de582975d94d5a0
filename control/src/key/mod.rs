//! The key that two processes on different machines share, and its file.

pub(crate) mod keys;

use std::fmt;
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::Arc;

use rustix::rand::{GetRandomFlags, getrandom};
use zeroize::{Zeroize, ZeroizeOnDrop, Zeroizing};

use crate::error::system;
use crate::key::keys::Keys;
use crate::key::keys::require_key_feature;
use crate::{ControlOperation, KeyError, KeyFault};

/// A key of 256 bits. A process that holds it may do anything that targets with this key permit.
///
/// It is in memory once, however often it is copied. The last copy wipes it when dropped. Nothing prints it.
#[derive(Clone)]
pub struct Key(Arc<Secret>);

/// The bytes of a key. They never move: a move would leave a copy behind.
struct Secret([u8; Key::LEN]);

impl Key {
    /// Length in bytes.
    pub const LEN: usize = 32;

    /// Makes a key of bytes as hard to guess as random ones: no password. Callers wipe their own copies.
    pub fn from_bytes(mut bytes: [u8; Key::LEN]) -> Key {
        let mut key = Key::blank();
        key.fill(|own| own.copy_from_slice(&bytes));
        bytes.zeroize();
        key
    }

    /// Makes a key that is filled in where it lies.
    pub(crate) fn blank() -> Key {
        Key(Arc::new(Secret([0; Key::LEN])))
    }

    /// Lets `write` fill in a key that is not shared yet.
    pub(crate) fn fill<T>(&mut self, write: impl FnOnce(&mut [u8; Key::LEN]) -> T) -> Option<T> {
        Arc::get_mut(&mut self.0).map(|own| write(&mut own.0))
    }

    /// Draws a key from the system's generator.
    ///
    /// # Errors
    /// [`KeyError::System`] when the generator fails; [`KeyError::FeatureMissing`].
    pub fn draw() -> Result<Key, KeyError> {
        require_key_feature(None)?;
        let mut key = Key::blank();
        match key.fill(|own| getrandom(&mut own[..], GetRandomFlags::empty())) {
            Some(Ok(Key::LEN)) => Ok(key),
            Some(Err(error)) => Err(system(ControlOperation::Random, "", error).into()),
            _ => Err(system(ControlOperation::Random, "", rustix::io::Errno::IO).into()),
        }
    }

    /// Reads the file at `path`, which holds exactly one key in the format of [`Keys::read`].
    ///
    /// # Errors
    /// As [`Keys::read`]; [`KeyError::File`] also for a file that holds several keys, or none.
    pub fn read(path: &Path) -> Result<Key, KeyError> {
        let keys = Keys::read(path)?;
        keys.only().cloned().ok_or_else(|| {
            let fault = match keys.len() {
                0 => KeyFault::Empty,
                count => KeyFault::Several { count },
            };
            KeyError::File { path: path.to_owned(), fault }
        })
    }

    /// Draws a key and writes it to a new file at `path` for its owner alone: 64 hexadecimal digits, newline.
    ///
    /// # Errors
    /// [`KeyError::FileExists`] when `path` exists, which is left alone; [`KeyError::System`].
    pub fn create(path: &Path) -> Result<Key, KeyError> {
        let key = Key::draw()?;
        let mut options = OpenOptions::new();
        options.write(true).create_new(true).mode(0o600);
        let failed =
            |error: io::Error| KeyError::from(system(ControlOperation::WriteKey, path.display(), error));
        let mut file = match options.open(path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                return Err(KeyError::FileExists { path: path.to_owned() });
            }
            opened => opened.map_err(failed)?,
        };
        if let Err(error) = file.write_all(key.digits().as_bytes()).and_then(|()| file.sync_all()) {
            // Half a key would block the next attempt. A failure to remove it changes nothing.
            drop(fs::remove_file(path));
            return Err(failed(error));
        }
        Ok(key)
    }

    /// Returns the key in the format of a key file: 64 hexadecimal digits and a newline.
    pub fn digits(&self) -> Zeroizing<String> {
        let mut text = Zeroizing::new(String::with_capacity(2 * Key::LEN + 1));
        for byte in self.0.0 {
            for nibble in [byte >> 4, byte & 15] {
                text.push(char::from_digit(nibble.into(), 16).unwrap_or('0'));
            }
        }
        text.push('\n');
        text
    }

    /// Returns the bytes.
    pub(crate) fn bytes(&self) -> &[u8; Key::LEN] {
        &self.0.0
    }

    /// Parses 64 hexadecimal digits.
    pub(crate) fn from_digits(digits: &[u8]) -> Option<Key> {
        if digits.len() != 2 * Key::LEN {
            return None;
        }
        let mut key = Key::blank();
        let digit = |byte: u8| char::from(byte).to_digit(16);
        key.fill(|own| {
            for (byte, pair) in own.iter_mut().zip(digits.chunks_exact(2)) {
                *byte = (digit(pair[0])? << 4 | digit(pair[1])?) as u8;
            }
            Some(())
        })??;
        Some(key)
    }
}

impl Drop for Secret {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}

impl ZeroizeOnDrop for Secret {}
impl ZeroizeOnDrop for Key {}

impl fmt::Debug for Key {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("Key(..)")
    }
}

#[cfg(all(test, feature = "key"))]
mod tests {
    use super::*;
    use std::fs::Permissions;
    use std::os::unix::fs::{MetadataExt, PermissionsExt};

    fn write(path: &Path, bytes: &[u8], mode: u32) {
        let _ = fs::remove_file(path);
        fs::write(path, bytes).unwrap();
        fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn a_created_key_file_is_private_and_reads_back_alike() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("k");
        let made = Key::create(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, 0o600);
        assert_eq!(fs::read_to_string(&path).unwrap().len(), 65);
        assert_eq!(Key::read(&path).unwrap().bytes(), made.bytes());
        assert_ne!(Key::draw().unwrap().bytes(), made.bytes());
        assert!(matches!(Key::create(&path), Err(KeyError::FileExists { .. })));
        assert_eq!(Key::read(&path).unwrap().bytes(), made.bytes(), "it was overwritten");
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
            assert_eq!(Key::read(&path).unwrap().bytes(), &raw);
        }
        let long = "0".repeat(70_000);
        for wrong in ["", "password", &"g".repeat(64), &digits[..63], &"0".repeat(65), &long] {
            write(&path, wrong.as_bytes(), 0o600);
            let error = Key::read(&path).unwrap_err();
            assert!(matches!(error, KeyError::File { .. }), "{wrong}: {error}");
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
