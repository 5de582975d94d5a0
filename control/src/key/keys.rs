//! The keys of a target: several in one file, each with a name and rights.

use std::fmt::Write as _;
use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;

use zeroize::Zeroizing;

use crate::error::system;
use crate::key::Key;
use crate::rights::{Grant, Rights};
use crate::{ControlOperation, KeyError, KeyFault, KeyLineFault};

/// Mode bits that give other users access to a file.
const OTHERS: u32 = 0o077;
/// Longest file that is read, in bytes: [`MAX_KEYS`] lines, and as much again for comments.
const MAX_FILE: usize = 64 << 10;
/// Limit of a target's keys.
pub const MAX_KEYS: usize = 64;
/// Longest name of a key, in characters.
pub(crate) const MAX_NAME: usize = 64;
/// Prefix of the rights of a key.
const ALLOW: &str = "allow=";

/// A key that a target accepts.
#[derive(Clone, Debug)]
pub struct NamedKey {
    /// The key.
    pub key: Key,
    /// The operator's name, never sent; defaults to its line in the file. `None` for a key from no file.
    pub name: Option<String>,
    /// Rights of processes that hold it; `None` means the target's default.
    pub rights: Option<Grant>,
}

impl NamedKey {
    /// Returns the rights of processes that hold it, at a target whose default is `otherwise`.
    pub fn rights_instead_of(&self, otherwise: Rights) -> Rights {
        self.rights.map_or(otherwise, |grant| grant.instead_of(otherwise))
    }
}

/// The keys that a target accepts, at most [`MAX_KEYS`]. Copies share them: each key is in memory once.
#[derive(Clone, Debug, Default)]
pub struct Keys(Arc<[Arc<NamedKey>]>);

/// File metadata that changes when the file does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Stamp([i64; 9]);

impl Stamp {
    pub(crate) fn of(metadata: &fs::Metadata) -> Stamp {
        Stamp([
            metadata.dev() as i64,
            metadata.ino() as i64,
            metadata.size() as i64,
            metadata.mtime(),
            metadata.mtime_nsec(),
            metadata.ctime(),
            metadata.ctime_nsec(),
            metadata.mode().into(),
            metadata.uid().into(),
        ])
    }
}

impl From<Key> for Keys {
    fn from(key: Key) -> Keys {
        Keys([Arc::new(NamedKey { key, name: None, rights: None })].into())
    }
}

impl Keys {
    /// Reads the keys in the file at `path`: one a line, as 64 hexadecimal digits, then optionally a name and
    /// `allow=` with its rights ([`Grant`]). Lines that are empty or begin with `#` are ignored. The file may instead be one key,
    /// as 32 bytes that are not text. A file without a key yields no keys.
    ///
    /// # Errors
    /// [`KeyError::FileMode`] when users other than the file's owner may read or write it, or its owner is
    /// not this process's user. [`KeyError::File`] when it holds something else, or is a pipe, a terminal or
    /// another file whose bytes need not come. [`KeyError::System`] when it cannot be read.
    /// [`KeyError::FeatureMissing`].
    pub fn read(path: &Path) -> Result<Keys, KeyError> {
        Keys::read_stamped(path).map(|(keys, _)| keys)
    }

    /// Like [`Keys::read`]; also returns the state of the file that was read.
    pub(crate) fn read_stamped(path: &Path) -> Result<(Keys, Stamp), KeyError> {
        let (bytes, stamp) = read(path)?;
        let keys = Keys::parse(&bytes).map_err(|fault| KeyError::File { path: path.to_owned(), fault })?;
        Ok((keys, stamp))
    }

    /// Draws a key and adds it to the file at `path`, under `name` and with `rights`. A missing file is made
    /// for its owner alone. The contents stay; the file is replaced as a whole.
    ///
    /// # Errors
    /// As [`Keys::read`]; [`KeyError::File`] also for a taken or invalid name, or [`MAX_KEYS`] keys already.
    pub fn add(path: &Path, name: &str, rights: Option<Grant>) -> Result<Key, KeyError> {
        // Keeps a symbolic link in place.
        let path = &fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        let wrong = |fault| KeyError::File { path: path.clone(), fault };
        if !is_name(name) {
            return Err(wrong(KeyFault::Name { name: name.to_owned() }));
        }
        let (before, there) = match read(path) {
            Ok((bytes, _)) => (bytes, true),
            Err(KeyError::System(error)) if error.source.kind() == io::ErrorKind::NotFound => {
                (Zeroizing::default(), false)
            }
            Err(error) => return Err(error),
        };
        let keys = Keys::parse(&before).map_err(&wrong)?;
        if is_raw(&before) {
            return Err(wrong(KeyFault::Raw));
        }
        if keys.iter().any(|one| one.name.as_deref() == Some(name)) {
            return Err(wrong(KeyFault::NameTaken { name: name.to_owned() }));
        }
        if keys.len() == MAX_KEYS {
            return Err(wrong(KeyFault::Full { max: MAX_KEYS }));
        }
        let key = Key::draw()?;
        let digits = key.digits();
        // A single allocation: growing would leave copies behind.
        let mut text = Zeroizing::new(String::with_capacity(before.len() + digits.len() + MAX_NAME + 64));
        let no_text = |error: std::str::Utf8Error| {
            let number = 1 + before[..error.valid_up_to()].iter().filter(|byte| **byte == b'\n').count();
            wrong(KeyFault::Line { number, fault: KeyLineFault::NoText })
        };
        text.push_str(std::str::from_utf8(&before).map_err(no_text)?);
        if !text.is_empty() && !text.ends_with('\n') {
            text.push('\n');
        }
        text.push_str(digits.trim_ascii_end());
        let allowed = rights.map_or(String::new(), |rights| format!(" {ALLOW}{rights}"));
        // Writing to a string cannot fail.
        let _ = writeln!(text, " {name}{allowed}");
        replace(path, text.as_bytes(), there)
            .map_err(|error| system(ControlOperation::WriteKey, path.display(), error))?;
        Ok(key)
    }

    /// Returns the number of keys.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns whether there are none: then every peer is rejected.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the keys in the order of their lines.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<NamedKey>> {
        self.0.iter()
    }

    /// Returns the only key; `None` if there are several or none.
    pub fn only(&self) -> Option<&Key> {
        match &self.0[..] {
            [one] => Some(&one.key),
            _ => None,
        }
    }

    /// Returns the reason why a peer's earlier key no longer holds; `None` if it is still accepted with the
    /// same rights. A key without rights of its own has the rights `otherwise`.
    pub fn revokes(&self, before: &NamedKey, otherwise: Rights) -> Option<String> {
        let name =
            before.name.as_deref().map_or_else(|| "its key".to_owned(), |name| format!("its key `{name}`"));
        let Some(now) = self.iter().find(|one| one.key.bytes() == before.key.bytes()) else {
            return Some(format!("{name} was taken out of the target's key file"));
        };
        let [then, now] = [before, &**now].map(|key| key.rights_instead_of(otherwise));
        (then != now)
            .then(|| format!("the rights of {name} were changed from `{then}` to `{now}`: connect again"))
    }

    /// # Errors
    /// The fault. It contains no byte of the file, which may be part of a key.
    fn parse(bytes: &[u8]) -> Result<Keys, KeyFault> {
        if bytes.len() > MAX_FILE {
            return Err(KeyFault::TooLong { max: MAX_FILE });
        }
        if is_raw(bytes) {
            let mut key = Key::blank();
            key.fill(|own| own.copy_from_slice(bytes));
            return Ok(Keys([Arc::new(NamedKey { key, name: None, rights: None })].into()));
        }
        let mut keys: Vec<Arc<NamedKey>> = Vec::new();
        for (line, number) in bytes.split(|byte| *byte == b'\n').zip(1_usize..) {
            let mut words = line.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
            let Some(digits) = words.next().filter(|first| !first.starts_with(b"#")) else { continue };
            let wrong = |fault| KeyFault::Line { number, fault };
            let key = Key::from_digits(digits).ok_or_else(|| wrong(KeyLineFault::NoKey))?;
            let (mut name, mut rights) = (None, None);
            for word in words {
                let word = std::str::from_utf8(word).map_err(|_| wrong(KeyLineFault::NoText))?;
                match word.strip_prefix(ALLOW) {
                    Some(list) if rights.is_none() => {
                        rights = Some(list.parse().map_err(|_| wrong(KeyLineFault::UnknownRights))?);
                    }
                    None if name.is_none() && rights.is_none() && is_name(word) => {
                        name = Some(word.to_owned())
                    }
                    _ => return Err(wrong(KeyLineFault::Excess)),
                }
            }
            let name = name.unwrap_or_else(|| format!("line {number}"));
            if keys.iter().any(|one| one.key.bytes() == key.bytes()) {
                return Err(wrong(KeyLineFault::KeyAgain));
            }
            if keys.iter().any(|one| one.name.as_ref() == Some(&name)) {
                return Err(wrong(KeyLineFault::NameAgain));
            }
            if keys.len() == MAX_KEYS {
                return Err(wrong(KeyLineFault::TooMany));
            }
            keys.push(Arc::new(NamedKey { key, name: Some(name), rights }));
        }
        Ok(Keys(keys.into()))
    }
}

/// Returns whether these are the bytes of a key, not text of the same length.
fn is_raw(bytes: &[u8]) -> bool {
    bytes.len() == Key::LEN && !bytes.iter().all(|byte| byte.is_ascii_graphic() || byte.is_ascii_whitespace())
}

fn is_name(name: &str) -> bool {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.@".contains(&byte);
    (1..=MAX_NAME).contains(&name.len()) && name.bytes().all(fits)
}

/// Refuses a use of a key, of the file `path` or a new one, in builds without the feature `key`.
pub(crate) fn require_key_feature(path: Option<&Path>) -> Result<(), KeyError> {
    match cfg!(feature = "key") {
        true => Ok(()),
        false => Err(KeyError::FeatureMissing { path: path.map(Path::to_owned) }),
    }
}

/// Returns the bytes of a key file, one more than the limit if it is too long, and its state.
fn read(path: &Path) -> Result<(Zeroizing<Vec<u8>>, Stamp), KeyError> {
    require_key_feature(Some(path))?;
    let failed = |error: io::Error| KeyError::from(system(ControlOperation::ReadKey, path.display(), error));
    let file = farjump_os::open_without_waiting(path).map_err(failed)?;
    let metadata = file.metadata().map_err(failed)?;
    if !metadata.is_file() {
        return Err(KeyError::File { path: path.to_owned(), fault: KeyFault::NotRegular });
    }
    let own = rustix::process::geteuid().as_raw();
    if metadata.mode() & OTHERS != 0 || metadata.uid() != own {
        let (path, mode, uid) = (path.to_owned(), metadata.mode() & 0o7777, metadata.uid());
        return Err(KeyError::FileMode { path, mode, uid, own });
    }
    // Read into one allocation that is wiped: reading in pieces leaves copies behind.
    let mut bytes = Zeroizing::new(vec![0; MAX_FILE + 1]);
    let mut len = 0;
    loop {
        match rustix::io::read(&file, &mut bytes[len..]) {
            Ok(0) => break,
            Ok(read) => len += read,
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(failed(error.into())),
        }
    }
    bytes.truncate(len);
    let after = file.metadata().map_err(failed)?;
    Ok((bytes, Stamp::of(&after)))
}

/// Writes a whole file for its owner alone: replaces the file if `there`, else requires that none exists.
fn replace(path: &Path, bytes: &[u8], there: bool) -> io::Result<()> {
    let mut name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?.to_owned();
    name.push(format!(".{}", std::process::id()));
    let aside = path.with_file_name(name);
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&aside)?;
    let written = file.write_all(bytes).and_then(|()| file.sync_all()).and_then(|()| {
        // A file that appeared meanwhile may hold a key of another process.
        if there { fs::rename(&aside, path) } else { fs::hard_link(&aside, path) }
    });
    if written.is_err() || !there {
        // A leftover after a failure is harmless.
        drop(fs::remove_file(&aside));
    }
    written
}

#[cfg(all(test, feature = "key"))]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn digits(byte: u8) -> String {
        Key::from_bytes([byte; Key::LEN]).digits().trim().to_owned()
    }

    fn shown(keys: &Keys) -> Vec<(u8, Option<&str>, Option<Grant>)> {
        keys.iter().map(|one| (one.key.bytes()[0], one.name.as_deref(), one.rights)).collect()
    }

    #[test]
    fn key_lines_parse_with_names_and_rights_and_comments_are_skipped() {
        let [one, two, three] = [1, 2, 3].map(digits);
        let text = format!(
            "# ours\n\n{one}\n  {two}\tnode7   allow=observe,call\r\n{three} allow=none\n# {one}\n{} a@b.c",
            digits(4)
        );
        let keys = Keys::parse(text.as_bytes()).unwrap();
        let call = Rights::OBSERVE | Rights::CALL;
        assert_eq!(
            shown(&keys),
            [
                (1, Some("line 3"), None),
                (2, Some("node7"), Some(call.into())),
                (3, Some("line 5"), Some(Rights::empty().into())),
                (4, Some("a@b.c"), None)
            ]
        );
        assert!(keys.only().is_none());
        assert!(Keys::parse(b"# none\n").unwrap().is_empty() && Keys::parse(b"").unwrap().is_empty());
        // The format that `farjump key FILE` has always written, and the raw bytes.
        assert_eq!(Keys::parse(format!("{one}\n").as_bytes()).unwrap().only().unwrap().bytes(), &[1; 32]);
        assert_eq!(shown(&Keys::parse(&[200; 32]).unwrap()), [(200, None, None)]);
        assert!(Keys::parse(b"# 32 bytes of text are no key...").unwrap().is_empty());
    }

    #[test]
    fn a_key_file_error_names_the_line_and_shows_no_key() {
        let [one, two] = [0xab, 0xcd].map(digits);
        let many: String = (0..=MAX_KEYS as u8).map(|byte| digits(byte) + "\n").collect();
        for (text, words) in [
            (one[..63].to_owned(), "line 1 does not begin with"),
            (format!("{one}0"), "line 1 does not begin with"),
            (format!("{one}\n{two}\n{} name", &two[1..]), "line 3 does not begin with"),
            (format!("name {one}"), "line 1 does not begin with"),
            (format!("{one} allow=observe,ca"), "line 1 has `allow=`"),
            (format!("{one} allow="), "line 1 has `allow=`"),
            (format!("{one} allow=call,+drop"), "line 1 has `allow=`"),
            (format!("{one} a b"), "line 1 has more behind"),
            (format!("{one} allow=call name"), "line 1 has more behind"),
            (format!("{one} allow=call allow=call"), "line 1 has more behind"),
            (format!("{one} {}", "n".repeat(65)), "line 1 has more behind"),
            (format!("{one} a\n{one} b"), "line 2 has a key that is there"),
            (format!("{one} a\n{two} a"), "line 2 has a name that is there"),
            (many, "line 65 is one key more"),
            ("x".repeat(MAX_FILE + 1), "more than 65536 bytes"),
        ] {
            let error = Keys::parse(text.as_bytes()).unwrap_err().to_string();
            assert!(error.contains(words), "{words}: {error}");
            assert!(!error.contains("abab") && !error.contains("cdcd"), "{error}");
        }
    }

    #[test]
    fn adding_a_key_keeps_the_file_private_and_its_earlier_lines() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("k");
        let first = Keys::add(&path, "a", None).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o7777, 0o600);
        fs::write(&path, format!("# mine\n{}", fs::read_to_string(&path).unwrap().trim())).unwrap();
        let second = Keys::add(&path, "b", Some(Rights::CALL.into())).unwrap();
        assert_eq!(
            fs::read_to_string(&path).unwrap(),
            format!("# mine\n{} a\n{} b allow=call\n", first.digits().trim(), second.digits().trim())
        );
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o7777, 0o600);
        for wrong in ["a", "", "a b", "x=y", "ä"] {
            assert!(matches!(Keys::add(&path, wrong, None), Err(KeyError::File { .. })), "{wrong}");
        }
        for number in 2..MAX_KEYS {
            Keys::add(&path, &format!("n{number}"), None).unwrap();
        }
        let error = Keys::add(&path, "more", None).unwrap_err().to_string();
        assert!(error.contains("64 keys"), "{error}");
        assert_eq!(Keys::read(&path).unwrap().len(), MAX_KEYS);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "something is left behind");
    }

    #[test]
    fn a_key_is_revoked_when_removed_or_given_other_rights() {
        let keys = |text: &str| Keys::parse(text.as_bytes()).unwrap();
        let before = keys(&format!("{} a allow=call\n{} b", digits(1), digits(2)));
        let of = |now: &Keys| -> Vec<_> {
            before.iter().map(|one| now.revokes(one, Rights::CALL).unwrap_or_default()).collect()
        };
        assert_eq!(of(&before), ["", ""]);
        assert_eq!(of(&keys(&format!("{} x allow=call\n{} y allow=call", digits(2), digits(1)))), ["", ""]);
        let now = of(&keys(&format!("{} a allow=observe\n", digits(1))));
        assert!(now[0].contains("`a` were changed from `call` to `observe`"), "{now:?}");
        assert_eq!(now[1], "its key `b` was taken out of the target's key file");
        // Changes are those of the target's default.
        let now = of(&keys(&format!("{} a allow=+drop\n{} b allow=+call", digits(1), digits(2))));
        assert!(now[0].contains("from `call` to `call,drop`") && now[1].is_empty(), "{now:?}");
    }
}
