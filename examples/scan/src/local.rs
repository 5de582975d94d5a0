//! Reading blocks without a target: as a program beside the file does, and with a copy of it.

use crate::table::{Geometry, HEAD, KEYS};

/// The rows that a scan has kept, in numbers that are the same for each way of scanning.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Sum {
    /// Records that were kept.
    pub rows: u64,
    /// Sum of their values, modulo 2^64.
    pub values: u64,
}

impl Sum {
    /// Adds a row: a key and a value.
    ///
    /// # Errors
    /// It has another length.
    pub fn add(&mut self, row: &[u8]) -> Result<(), String> {
        let value = row.get(8..16).filter(|_| row.len() == 16).and_then(|value| value.try_into().ok());
        let value = value.ok_or_else(|| format!("a row has {} bytes, not a key and a value", row.len()))?;
        self.rows += 1;
        self.values = self.values.wrapping_add(u64::from_le_bytes(value));
        Ok(())
    }
}

/// Returns the key below which this part of all records lies.
pub fn limit_for(part: f64) -> u64 {
    (KEYS as f64 * part).round() as u64
}

/// Reads a block, and calls `kept` with the key and the value of each record whose key is below `limit`, as `below.c`
/// does.
///
/// # Errors
/// A record that says a length that its block does not have.
pub fn below(
    block: &[u8],
    geometry: &Geometry,
    limit: u64,
    mut kept: impl FnMut(&[u8]),
) -> Result<(), String> {
    let word = |at: usize| Some(u32::from_le_bytes(block.get(at..at + 4)?.try_into().ok()?) as usize);
    let records = word(0).and_then(|used| block.get(HEAD..used));
    let mut rest = records.ok_or_else(|| "a block says that it is longer than it is".to_owned())?;
    while !rest.is_empty() {
        let len = match geometry.width {
            0 => {
                let (len, behind) = rest.split_at_checked(4).ok_or("a length is missing")?;
                rest = behind;
                u32::from_le_bytes(len.try_into().unwrap_or_default())
            }
            width => width,
        };
        let (record, behind) = rest.split_at_checked(len as usize).ok_or_else(|| {
            format!("a record says that it has {len} bytes, and its block has {}", rest.len())
        })?;
        rest = behind;
        let key = record.get(..16).and_then(|both| both[..8].try_into().ok()).map(u64::from_le_bytes);
        if key.is_some_and(|key| key < limit) {
            kept(&record[..16]);
        }
    }
    Ok(())
}
