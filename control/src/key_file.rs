//! A target's key file, watched for changes while the target runs.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::key::keys::{Keys, Stamp};
use crate::{KeyError, KeyFault};

/// Interval between two checks of the file.
const INTERVAL: Duration = Duration::from_millis(500);
/// Time for which a changed file must stay unchanged. A writer in place leaves partial files meanwhile.
const SETTLED: Duration = Duration::from_millis(150);

/// A key file that is checked periodically.
#[derive(Debug)]
pub struct KeyFile {
    path: PathBuf,
    /// The state last acted on.
    known: Option<State>,
    /// A newer state that may yet change.
    seen: Option<State>,
    due: Instant,
}

/// A state of the file.
#[derive(Clone, PartialEq, Eq, Debug)]
enum State {
    There(Stamp),
    Gone,
    /// The system does not report it.
    Unknown(io::ErrorKind),
}

impl KeyFile {
    /// Reads the keys at `path`, and keeps the path.
    ///
    /// # Errors
    /// As [`Keys::read`]; [`KeyError::File`] also for a file that holds none.
    pub fn open(path: &Path) -> Result<(KeyFile, Keys), KeyError> {
        let keys = Keys::read(path)?;
        if keys.is_empty() {
            return Err(KeyError::File { path: path.to_owned(), fault: KeyFault::Empty });
        }
        // Checked once more soon: a second change may be too close to show in the modification time.
        let due = Instant::now() + SETTLED;
        Ok((KeyFile { path: path.to_owned(), known: None, seen: None, due }, keys))
    }

    /// Returns the time of the next check.
    pub fn due(&self) -> Instant {
        self.due
    }

    /// If a check is due and finds a change, returns the keys that count from now on: none if the file is
    /// gone or has none. `None` if the keys in force stay, also for a file that is unreadable or malformed
    /// (logged).
    pub fn look(&mut self, now: Instant) -> Option<Keys> {
        if now < self.due {
            return None;
        }
        let state = match fs::metadata(&self.path) {
            Ok(metadata) => State::There(Stamp::of(&metadata)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => State::Gone,
            Err(error) => State::Unknown(error.kind()),
        };
        if self.known.as_ref() == Some(&state) {
            (self.seen, self.due) = (None, now + INTERVAL);
            return None;
        }
        self.due = now + SETTLED;
        if self.seen.as_ref() != Some(&state) {
            self.seen = Some(state);
            return None;
        }
        let path = self.path.display();
        let keys = match Keys::read_stamped(&self.path) {
            // It changed meanwhile.
            Ok((_, stamp)) if state != State::There(stamp) => {
                self.seen = None;
                return None;
            }
            Ok((keys, _)) if keys.is_empty() => {
                log::warn!("{path} has no keys any more: all links by its keys end");
                Some(keys)
            }
            Ok((keys, _)) => Some(keys),
            Err(_) if state == State::Gone => {
                log::warn!(
                    "{path} is gone: its keys are void, all links by them end; restore it to admit sources again"
                );
                Some(Keys::default())
            }
            Err(error) => {
                log::error!(
                    "the keys that were in force STAY IN FORCE, none was added or taken out: {error}"
                );
                None
            }
        };
        (self.known, self.seen, self.due) = (Some(state), None, now + INTERVAL);
        keys
    }
}

#[cfg(all(test, feature = "key"))]
mod tests {
    use super::*;
    use crate::Key;
    use std::fs::{File, Permissions};
    use std::os::unix::fs::PermissionsExt;

    fn write(path: &Path, text: &str) {
        fs::write(path, text).unwrap();
        fs::set_permissions(path, Permissions::from_mode(0o600)).unwrap();
    }

    fn line(byte: u8) -> String {
        format!("{} n{byte}\n", Key::from_bytes([byte; 32]).digits().trim())
    }

    /// Returns the names of the keys that count after `count` checks, if any check changed them.
    fn looks(file: &mut KeyFile, count: usize) -> Option<Vec<String>> {
        let names = |keys: &Keys| keys.iter().filter_map(|one| one.name.clone()).collect();
        (0..count).filter_map(|_| file.look(file.due())).last().as_ref().map(names)
    }

    #[test]
    fn a_changed_key_file_takes_effect_once_settled_unless_unusable() {
        let folder = tempfile::tempdir().unwrap();
        let (path, aside) = (folder.path().join("k"), folder.path().join("aside"));
        write(&path, &line(1));
        let (mut file, keys) = KeyFile::open(&path).unwrap();
        assert_eq!(keys.len(), 1);
        looks(&mut file, 2);
        assert_eq!(looks(&mut file, 5), None, "nothing has changed");
        assert!(file.look(file.due() - Duration::from_millis(1)).is_none(), "it is not time");

        write(&path, &(line(1) + &line(2)));
        assert_eq!(looks(&mut file, 1), None, "it may be half written");
        write(&path, &(line(1) + &line(3)));
        assert_eq!(looks(&mut file, 1), None, "as was");
        assert_eq!(looks(&mut file, 1).unwrap(), ["n1", "n3"]);
        // Under a name that another file then gets.
        write(&aside, &line(4));
        fs::rename(&aside, &path).unwrap();
        assert_eq!(looks(&mut file, 2).unwrap(), ["n4"]);

        for spoil in [
            &(|path: &Path| write(path, &line(5)[..40])) as &dyn Fn(&Path),
            &|path| write(path, "no key"),
            &|path| write(path, &(line(5) + &line(5))),
            &|path| fs::set_permissions(path, Permissions::from_mode(0o644)).unwrap(),
            &|path| {
                fs::remove_file(path).unwrap();
                fs::create_dir(path).unwrap();
            },
        ] {
            write(&path, &line(4));
            looks(&mut file, 3);
            spoil(&path);
            assert_eq!(looks(&mut file, 5), None, "it is no good");
        }
        fs::remove_dir(&path).unwrap();
        assert_eq!(looks(&mut file, 3).unwrap(), [""; 0], "it is gone");
        assert_eq!(looks(&mut file, 3), None);
        write(&path, &line(6));
        assert_eq!(looks(&mut file, 2).unwrap(), ["n6"]);
        write(&path, "# none\n");
        assert_eq!(looks(&mut file, 2).unwrap(), [""; 0]);
        File::create(&path).unwrap();
        assert_eq!(looks(&mut file, 2).unwrap(), [""; 0], "it is empty");
    }

    #[test]
    fn a_target_does_not_begin_without_a_key() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("k");
        assert!(matches!(KeyFile::open(&path), Err(KeyError::System { .. })));
        write(&path, "# none\n");
        let error = KeyFile::open(&path).unwrap_err().to_string();
        assert!(error.contains("holds none"), "{error}");
    }
}
