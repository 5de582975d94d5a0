//! Reading a library's file, and the bundle in it or in the memory of a loaded one.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::ptr::NonNull;

use farjump_core::image::Machine;
use rustix::fs::OFlags;

use crate::bundle::{self, Bundle, BundleError};
use crate::error::{Error, FileKind};
use crate::shared_library::Loaded;

/// Longest file that is opened, in bytes: code and debugging symbols are far shorter.
pub(super) const MAX_FILE: u64 = 256 << 20;
/// The bytes that are read of a file to be loaded: an ELF header up to the machine.
pub(super) const HEAD_LEN: u64 = 20;

/// Takes a bare file name as one of the current directory.
pub(super) fn in_folder(path: &Path) -> PathBuf {
    if path.as_os_str().as_encoded_bytes().contains(&b'/') {
        path.to_path_buf()
    } else {
        Path::new(".").join(path)
    }
}

/// Reads the first `most` bytes of the file at `path`, and checks its start: the messages of parsers and of
/// the dynamic linker about other files would help no user. With [`HEAD_LEN`], reads only the start.
pub(super) fn read_elf(path: &Path, most: u64) -> Result<Vec<u8>, Error> {
    let failed = |source: io::Error| match source.kind() {
        io::ErrorKind::NotFound => Error::NoSuchFile { path: path.to_path_buf() },
        _ => Error::Unreadable { path: path.to_path_buf(), source },
    };
    // Otherwise opening a pipe would wait for a writer.
    let flags = OFlags::NONBLOCK.bits() as i32;
    let file = File::options().read(true).custom_flags(flags).open(path).map_err(failed)?;
    let metadata = file.metadata().map_err(failed)?;
    if !metadata.is_file() {
        return Err(Error::NotALibrary { path: path.to_path_buf(), found: FileKind::NoFile });
    }
    let too_long = || Error::TooLong { path: path.to_path_buf(), max: MAX_FILE };
    if metadata.len() > MAX_FILE {
        return Err(too_long());
    }
    let mut bytes = Vec::new();
    // The file may grow or shrink meanwhile: only the bytes read count.
    file.take(most).read_to_end(&mut bytes).map_err(failed)?;
    if bytes.len() as u64 > MAX_FILE {
        return Err(too_long());
    }
    check_head(path, &bytes)?;
    Ok(bytes)
}

fn check_head(path: &Path, bytes: &[u8]) -> Result<(), Error> {
    let other = |found| Err(Error::NotALibrary { path: path.to_path_buf(), found });
    let head = &bytes[..bytes.len().min(HEAD_LEN as usize)];
    match *head {
        [0x7f, b'E', b'L', b'F', class, order, .., type_low, type_high, machine_low, machine_high]
            if head.len() as u64 == HEAD_LEN =>
        {
            if (class, order) != (2, 1) {
                return other(FileKind::OtherElf);
            }
            // ET_DYN (elf.h). A position-independent program has the same type, and the dynamic linker
            // refuses it.
            if u16::from_le_bytes([type_low, type_high]) != 3 {
                return other(FileKind::NoSharedLibrary);
            }
            let machine = Machine(u16::from_le_bytes([machine_low, machine_high]));
            if Some(machine) != Machine::native() {
                return Err(Error::ForeignLibrary { path: path.to_path_buf(), machine });
            }
            Ok(())
        }
        [] => other(FileKind::Empty),
        [b'!', b'<', b'a', b'r', b'c', b'h', b'>', ..] => other(FileKind::Archive),
        _ => other(FileKind::NoElf),
    }
}

/// The bytes of the bundle at the start of `found`.
pub(super) fn whole_bundle(found: &[u8]) -> Result<&[u8], BundleError> {
    let len = found.len() as u64;
    let prefix = found.first_chunk().ok_or(BundleError::Truncated { needed: 8, found: len })?;
    let needed = Bundle::total_len(prefix)?;
    found.get(..needed).ok_or(BundleError::Truncated { needed: needed as u64, found: len })
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
