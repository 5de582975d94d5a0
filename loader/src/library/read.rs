//! Reading a library's file, and the bundle in it or in the memory of a loaded one.

use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::ptr::NonNull;

use crate::library::bundle::{self, Bundle, BundleError};
use farjump_core::image::Machine;

use crate::error::{Error, FileKind};
use crate::library::signature::{self, Signature};
use crate::shared_library::Loaded;
use crate::shared_library::elf_file::{self, HEAD_LEN, NoLibrary};

/// Longest file that is opened, in bytes: code and debugging symbols are far shorter.
pub(super) const MAX_FILE: u64 = 256 << 20;

/// Takes a bare file name as one of the current directory.
pub(super) fn in_folder(path: &Path) -> PathBuf {
    if path.as_os_str().as_encoded_bytes().contains(&b'/') {
        path.to_path_buf()
    } else {
        Path::new(".").join(path)
    }
}

/// Reads the whole file at `path`, a library of any known machine.
pub(crate) fn read_whole(path: &Path) -> Result<Vec<u8>, Error> {
    let path = in_folder(path);
    read_any_elf(&path, MAX_FILE + 1).map(|(bytes, _)| bytes)
}

/// Reads the start of the library of this machine at `path`, and checks it.
pub(super) fn check_elf(path: &Path) -> Result<(), Error> {
    match read_any_elf(path, HEAD_LEN)? {
        (_, None) => Ok(()),
        (_, Some(machine)) => Err(Error::ForeignLibrary { path: path.to_path_buf(), machine }),
    }
}

/// Reads the first `most` bytes of the file at `path`, and checks its start. With [`HEAD_LEN`], reads only the start.
/// Also returns the file's machine, if that is not this one.
pub(super) fn read_any_elf(path: &Path, most: u64) -> Result<(Vec<u8>, Option<Machine>), Error> {
    let failed = |source: io::Error| match source.kind() {
        io::ErrorKind::NotFound => Error::NoSuchFile { path: path.to_path_buf() },
        _ => Error::Unreadable { path: path.to_path_buf(), source },
    };
    let other = |found| Error::NotALibrary { path: path.to_path_buf(), found };
    let file = elf_file::open(path).map_err(failed)?.ok_or_else(|| other(FileKind::NoFile))?;
    if file.metadata().map_err(failed)?.len() > MAX_FILE {
        return Err(Error::TooLong { path: path.to_path_buf(), max: MAX_FILE });
    }
    let mut bytes = Vec::new();
    // The file may grow or shrink during the read: only the bytes read count.
    file.take(most).read_to_end(&mut bytes).map_err(failed)?;
    let foreign = check_contents(path, &bytes)?;
    Ok((bytes, foreign))
}

/// Checks the start of a file's contents, and their length. Returns the file's machine, if that is not this one. Errors
/// name `path`.
pub(super) fn check_contents(path: &Path, bytes: &[u8]) -> Result<Option<Machine>, Error> {
    if bytes.len() as u64 > MAX_FILE {
        return Err(Error::TooLong { path: path.to_path_buf(), max: MAX_FILE });
    }
    match elf_file::check_head(bytes) {
        Ok(()) => Ok(None),
        Err(NoLibrary::Foreign(machine)) if machine.is_known() => Ok(Some(machine)),
        Err(NoLibrary::Kind(found)) => Err(Error::NotALibrary { path: path.to_path_buf(), found }),
        Err(NoLibrary::Foreign(machine)) => Err(Error::ForeignLibrary { path: path.to_path_buf(), machine }),
    }
}

/// The bytes of the bundle at the start of `found`.
pub(super) fn whole_bundle(found: &[u8]) -> Result<&[u8], BundleError> {
    let len = found.len() as u64;
    let prefix = found.first_chunk().ok_or(BundleError::Truncated { needed: 8, found: len })?;
    let needed = Bundle::total_len(prefix)?;
    found.get(..needed).ok_or(BundleError::Truncated { needed: needed as u64, found: len })
}

/// Copies the signature of the ifunc `name`; `None` if the library states none that can be read.
pub(super) fn copy_signature(loaded: &Loaded, name: &str) -> Option<Signature> {
    let start = loaded.symbol(&format!("{name}{}", signature::SUFFIX))?;
    let found = loaded.bytes_from(start);
    let start = start.cast::<u8>();
    let mut bytes = vec![0; signature::HEAD_LEN.min(found)];
    // SAFETY: at least so many bytes of the library's loaded segments are at this address.
    unsafe { start.copy_to_nonoverlapping(NonNull::from(&mut bytes[..]).cast(), bytes.len()) };
    bytes.resize(Signature::total_len(&bytes).filter(|len| *len <= found)?, 0);
    // SAFETY: as above.
    unsafe { start.copy_to_nonoverlapping(NonNull::from(&mut bytes[..]).cast(), bytes.len()) };
    Signature::parse(&bytes)
}

/// Copies the bundle of a library.
pub(super) fn copy_bundle(loaded: &Loaded) -> Result<Option<Vec<u8>>, BundleError> {
    let Some(start) = loaded.symbol(bundle::SYMBOL) else { return Ok(None) };
    let found = loaded.bytes_from(start);
    let start = start.cast::<u8>();
    let prefix = (found >= 8).then(|| {
        // SAFETY: at least eight bytes of the library's loaded segments are at this address.
        unsafe { start.cast::<[u8; 8]>().read_unaligned() }
    });
    let prefix = prefix.ok_or(BundleError::Truncated { needed: 8, found: found as u64 })?;
    let needed = Bundle::total_len(&prefix)?;
    if needed > found {
        return Err(BundleError::Truncated { needed: needed as u64, found: found as u64 });
    }
    let mut copy = vec![0; needed];
    // SAFETY: `needed` bytes from `start` on lie inside the loaded library, and the copy has as many.
    unsafe { start.copy_to_nonoverlapping(NonNull::from(&mut copy[..]).cast(), needed) };
    Ok(Some(copy))
}
