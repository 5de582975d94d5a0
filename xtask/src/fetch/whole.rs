//! Checks whether downloads that are kept are still as they were when they were complete. A full disk, an interrupted
//! write or a lost permission leaves files of the right names, which would pass for the download for ever.
//!
//! A hash over names, permissions and contents is written beside a file, or into a folder, once it is complete.
//! Before that, pip and apt check their downloads by the hashes of the publishers.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// The end of a hash's file name; in a folder it is the whole name.
const MARK: &str = ".whole";
/// The folder that interpreters make when they import a folder's modules.
const CACHES: &str = "__pycache__";

/// Records that the file or folder is complete.
///
/// # Errors
/// When it cannot be read, or the hash cannot be written.
pub(crate) fn note(path: &Path) -> io::Result<()> {
    fs::write(mark_of(path), hash(path)?)
}

/// Returns whether the file or folder is as [`note`] recorded it.
pub(crate) fn is_whole(path: &Path) -> bool {
    fs::read_to_string(mark_of(path)).is_ok_and(|noted| hash(path).is_ok_and(|hash| hash == noted))
}

/// Removes the file or folder, and its hash, if it is there.
///
/// # Errors
/// When it cannot be removed.
pub(crate) fn remove(path: &Path) -> io::Result<()> {
    let mark = mark_of(path);
    let folder = fs::symlink_metadata(path).is_ok_and(|metadata| metadata.is_dir());
    let removed = if folder {
        fs::remove_dir_all(path)
    } else {
        fs::remove_file(path).and_then(|()| fs::remove_file(mark))
    };
    match removed {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

fn mark_of(path: &Path) -> PathBuf {
    if path.is_dir() {
        return path.join(MARK);
    }
    let mut name = OsString::from(path);
    name.push(MARK);
    name.into()
}

fn hash(path: &Path) -> io::Result<String> {
    let mut hasher = blake3::Hasher::new();
    add(&mut hasher, path, path)?;
    Ok(hasher.finalize().to_string())
}

/// Adds a file, or all below a folder in the order of their names, to the hash. `top` is the path of the download.
fn add(hasher: &mut blake3::Hasher, top: &Path, path: &Path) -> io::Result<()> {
    let metadata = fs::symlink_metadata(path)?;
    let name = path.strip_prefix(top).unwrap_or(path).as_os_str().as_bytes();
    // Lengths separate the parts.
    let mut part = |bytes: &[u8]| {
        hasher.update(&(bytes.len() as u64).to_le_bytes()).update(bytes);
    };
    part(name);
    if metadata.is_symlink() {
        part(fs::read_link(path)?.as_os_str().as_bytes());
    } else if metadata.is_dir() {
        let entries = fs::read_dir(path)?.map(|entry| entry.map(|entry| entry.path()));
        let mut paths = entries.collect::<io::Result<Vec<_>>>()?;
        paths.retain(|path| path.file_name().is_some_and(|name| name != MARK && name != CACHES));
        paths.sort();
        paths.iter().try_for_each(|path| add(hasher, top, path))?;
    } else if metadata.is_file() {
        part(&metadata.permissions().mode().to_le_bytes());
        part(&metadata.len().to_le_bytes());
        let (mut file, mut buffer) = (File::open(path)?, vec![0; 1 << 16]);
        loop {
            match file.read(&mut buffer)? {
                0 => break,
                read => hasher.update(&buffer[..read]),
            };
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_damaged_download_or_one_without_its_hash_is_not_whole() {
        type Damage = fn(&Path) -> io::Result<()>;
        let damages: [(&str, Damage); 5] = [
            ("cut", |folder| File::options().write(true).open(folder.join("bin/server"))?.set_len(3)),
            ("overwritten", |folder| fs::write(folder.join("bin/server"), "\0\0\0\0\0\0")),
            ("closed", |folder| {
                fs::set_permissions(folder.join("bin/server"), fs::Permissions::from_mode(0o644))
            }),
            ("emptied", |folder| fs::remove_dir_all(folder.join("bin"))),
            ("without its hash", |folder| fs::remove_file(folder.join(MARK))),
        ];
        for (name, damage) in damages {
            let top = tempfile::tempdir().unwrap();
            let folder = top.path().join("download");
            fs::create_dir_all(folder.join("bin")).unwrap();
            fs::write(folder.join("bin/server"), "server").unwrap();
            fs::set_permissions(folder.join("bin/server"), fs::Permissions::from_mode(0o755)).unwrap();
            assert!(!is_whole(&folder), "it was not noted yet");
            note(&folder).unwrap();
            fs::create_dir(folder.join(CACHES)).unwrap();
            // A download may be moved.
            let moved = top.path().join("moved");
            fs::rename(&folder, &moved).unwrap();
            assert!(is_whole(&moved));
            damage(&moved).unwrap();
            assert!(!is_whole(&moved), "{name}");
            remove(&moved).unwrap();
            assert!(!moved.exists());
            remove(&moved).unwrap();
        }
    }

    #[test]
    fn a_file_has_its_hash_beside_it() {
        let top = tempfile::tempdir().unwrap();
        let file = top.path().join("x_1.0_amd64.deb");
        fs::write(&file, "package").unwrap();
        note(&file).unwrap();
        assert!(is_whole(&file));
        fs::write(&file, "pac\0age").unwrap();
        assert!(!is_whole(&file));
        remove(&file).unwrap();
        assert_eq!(fs::read_dir(top.path()).unwrap().count(), 0);
    }
}
