//! The file that takes the objects for which a store has no memory.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use rustix::fs::{Mode, OFlags, open};

use crate::allocator::{Allocator, Block};
use crate::error::Error;

/// A file without a name: it goes with its process.
#[derive(Debug)]
pub(crate) struct Spill {
    file: File,
    space: Allocator,
}

impl Spill {
    /// A file of at most `capacity` bytes in the folder `folder`.
    pub(crate) fn create(folder: &Path, capacity: u64) -> Result<Spill, Error> {
        let failed = |source| Error::File { path: folder.to_path_buf(), source };
        let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
        let file = match open(folder, flags, Mode::RUSR | Mode::WUSR) {
            Ok(file) => File::from(file),
            Err(errno) => return Err(failed(errno.into())),
        };
        Ok(Spill { file, space: Allocator::new(capacity) })
    }

    /// Writes an object.
    pub(crate) fn write(&mut self, bytes: &[u8]) -> io::Result<Block> {
        let place = self.space.take(bytes.len() as u64);
        let place = place.ok_or_else(|| io::Error::other("it has its limit of bytes"))?;
        if let Err(error) = self.file.write_all_at(bytes, place.offset()) {
            self.space.give_back(place);
            return Err(error);
        }
        Ok(place)
    }

    /// Reads an object back, which is then no longer there.
    pub(crate) fn read(&mut self, place: Block, into: &mut [u8]) -> io::Result<()> {
        self.file.read_exact_at(into, place.offset())?;
        self.space.give_back(place);
        Ok(())
    }

    /// Forgets an object.
    pub(crate) fn forget(&mut self, place: Block) {
        self.space.give_back(place);
    }
}
