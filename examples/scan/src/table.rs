//! Tables: files of records in blocks.
//!
//! | offset | bytes | what |
//! |---|---|---|
//! | 0 | 8 | `FJTABLE1` |
//! | 8 | 4 | length of a block in bytes, a multiple of 64 KiB |
//! | 12 | 4 | length of each record in bytes; 0: each has its own in front of it, in 4 bytes |
//! | 16 | 8 | number of blocks |
//! | 65536 | | the blocks |
//!
//! A block begins with the number of its bytes that are used, these 8 included, and the number of its records, in 4 bytes each.
//! No record is in two blocks. All numbers are little-endian.

use std::fs::File;
use std::io::{self, BufWriter, Read, Write};
use std::path::Path;

use thiserror::Error;

const MAGIC: &[u8; 8] = b"FJTABLE1";
/// Offset of the first block, and unit of their length: the longest page of any system.
pub const UNIT: u64 = 64 << 10;
/// Length of a block that [`make`] writes, in bytes.
pub const BLOCK: u32 = 1 << 20;
/// Bytes in front of a block's records.
pub const HEAD: usize = 8;
/// Most bytes of a block: one call reads it, and a reply has space for all of it.
const LONGEST_BLOCK: u32 = 1 << 20;
/// Length of a record that [`make`] writes where all have the same, in bytes.
pub const WIDTH: u32 = 64;
/// Keys are below this.
pub const KEYS: u64 = 1_000_000;
/// Lengths of the other records, in bytes.
const LENGTHS: std::ops::RangeInclusive<usize> = 32..=320;

/// The contents of a table's head.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Geometry {
    /// Length of a block in bytes.
    pub block_len: u32,
    /// Length of each record in bytes; 0 where each has its own.
    pub width: u32,
    /// Number of blocks.
    pub blocks: u64,
}

/// The reason why a file is no table.
#[derive(Debug, Error)]
pub enum TableError {
    /// The system's error.
    #[error(transparent)]
    System(#[from] io::Error),
    /// It begins with other bytes.
    #[error("it is no table: it does not begin with FJTABLE1 (`scan make` writes one)")]
    Magic,
    /// A head that no table has.
    #[error("its head is damaged: {0}")]
    Head(String),
    /// Fewer bytes than its head says.
    #[error("it was cut: its head is of {says} bytes, and it has {len}")]
    Short {
        /// Bytes by its head.
        says: u64,
        /// Bytes that it has.
        len: u64,
    },
}

impl Geometry {
    /// Reads the head of a file of `len` bytes.
    ///
    /// # Errors
    /// It is no table, or not all of one.
    pub fn read(mut file: impl Read, len: u64) -> Result<Geometry, TableError> {
        let mut head = [0; 24];
        match file.read_exact(&mut head) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Err(TableError::Magic),
            read => read?,
        }
        if !head.starts_with(MAGIC) {
            return Err(TableError::Magic);
        }
        let word = |at: usize| u32::from_le_bytes(head[at..at + 4].try_into().unwrap_or_default());
        let blocks = u64::from_le_bytes(head[16..].try_into().unwrap_or_default());
        let geometry = Geometry { block_len: word(8), width: word(12), blocks };
        let (block_len, width) = (geometry.block_len, geometry.width);
        if block_len == 0 || !u64::from(block_len).is_multiple_of(UNIT) || block_len > LONGEST_BLOCK {
            return Err(TableError::Head(format!("blocks of {block_len} bytes")));
        }
        if width as usize > block_len as usize - HEAD {
            return Err(TableError::Head(format!("records of {width} bytes in blocks of {block_len}")));
        }
        match geometry.len() {
            Some(says) if says <= len => Ok(geometry),
            Some(says) => Err(TableError::Short { says, len }),
            None => Err(TableError::Head(format!("{blocks} blocks of {block_len} bytes"))),
        }
    }

    /// Returns the length of the file in bytes; `None` if no file has so many.
    pub fn len(&self) -> Option<u64> {
        self.blocks
            .checked_mul(u64::from(self.block_len))?
            .checked_add(UNIT)
            .filter(|len| *len <= i64::MAX as u64)
    }

    /// Returns whether it has no block.
    pub fn is_empty(&self) -> bool {
        self.blocks == 0
    }

    /// Returns the offset of a block in the file, in bytes.
    pub fn offset(&self, block: u64) -> u64 {
        UNIT + block * u64::from(self.block_len)
    }

    fn head(&self) -> Vec<u8> {
        let mut head = MAGIC.to_vec();
        head.extend(self.block_len.to_le_bytes());
        head.extend(self.width.to_le_bytes());
        head.extend(self.blocks.to_le_bytes());
        head.resize(UNIT as usize, 0);
        head
    }
}

/// Writes a table of so many blocks, with records of [`WIDTH`] bytes or of many lengths. A record begins with a random key below
/// [`KEYS`] and a random value, 8 bytes each.
///
/// # Errors
/// The file exists, or cannot be written.
pub fn make(path: &Path, blocks: u64, is_variable: bool, seed: u64) -> io::Result<Geometry> {
    let width = if is_variable { 0 } else { WIDTH };
    let geometry = Geometry { block_len: BLOCK, width, blocks };
    let mut file = BufWriter::with_capacity(BLOCK as usize, File::create_new(path)?);
    file.write_all(&geometry.head())?;
    let mut random = fastrand::Rng::with_seed(seed);
    for _ in 0..blocks {
        file.write_all(&block(&mut random, width))?;
    }
    file.into_inner().map_err(io::IntoInnerError::into_error)?.sync_all()?;
    Ok(geometry)
}

/// Returns a block of random records.
fn block(random: &mut fastrand::Rng, width: u32) -> Vec<u8> {
    let mut bytes = vec![0; HEAD];
    bytes.reserve(BLOCK as usize);
    let mut records: u32 = 0;
    loop {
        let len = if width == 0 { random.usize(LENGTHS) } else { width as usize };
        let before = if width == 0 { 4 } else { 0 };
        if bytes.len() + before + len > BLOCK as usize {
            break;
        }
        if width == 0 {
            bytes.extend((len as u32).to_le_bytes());
        }
        bytes.extend(random.u64(..KEYS).to_le_bytes());
        bytes.extend(random.u64(..).to_le_bytes());
        bytes.extend((16..len).map(|at| b'a' + (at % 26) as u8));
        records += 1;
    }
    let used = bytes.len() as u32;
    bytes[..4].copy_from_slice(&used.to_le_bytes());
    bytes[4..HEAD].copy_from_slice(&records.to_le_bytes());
    bytes.resize(BLOCK as usize, 0);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_valid_head_is_read_as_written_and_others_are_refused() {
        let geometry = Geometry { block_len: BLOCK, width: WIDTH, blocks: 3 };
        let head = geometry.head();
        let len = geometry.len().unwrap();
        assert_eq!(len, UNIT + 3 * u64::from(BLOCK));
        assert_eq!(Geometry::read(&head[..], len).unwrap(), geometry);
        let refused = |at: usize, bytes: &[u8], len: u64| {
            let mut head = head.clone();
            head[at..at + bytes.len()].copy_from_slice(bytes);
            Geometry::read(&head[..], len).unwrap_err().to_string()
        };
        assert!(refused(0, b"X", len).contains("no table"));
        assert!(Geometry::read(&head[..20], 20).unwrap_err().to_string().contains("no table"));
        for length in [0, 1, BLOCK - 1, u32::MAX] {
            assert!(refused(8, &length.to_le_bytes(), len).contains("blocks of"), "{length}");
        }
        assert!(refused(12, &BLOCK.to_le_bytes(), len).contains("records of"));
        for blocks in [u64::MAX, u64::MAX / u64::from(BLOCK)] {
            assert!(refused(16, &blocks.to_le_bytes(), len).contains("blocks of"), "{blocks}");
        }
        let cut = refused(0, b"", len - 1);
        assert!(cut.contains(&len.to_string()) && cut.contains(&(len - 1).to_string()), "{cut}");
    }
}
