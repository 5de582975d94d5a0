//! Heap memory that a store uses outside its region for objects, claims and topics. It counts in the store's capacity,
//! and in the memory of the source that caused it.

use std::collections::BTreeMap;

use farjump::objects::SourceMemory;

use crate::owner::table::Source;

/// Bytes that an entry of an ordered map takes, for a key and a value of two words.
pub(crate) const ENTRY: u64 = 32;
/// Bytes of a claim: an entry with a longer key.
pub(crate) const CLAIM: u64 = 64;
/// Bytes of a hold: its places in three maps.
pub(crate) const HOLD: u64 = 3 * ENTRY;
/// Bytes of a loan, with its key.
pub(crate) const LOAN: u64 = 256;

/// Returns the bytes that the heap takes for `len` bytes.
pub(crate) const fn allocated(len: usize) -> u64 {
    // The allocator's own word, and its least block.
    let len = (len as u64 + 8).next_multiple_of(16);
    if len < 32 { 32 } else { len }
}

/// The memory of one source.
#[derive(Debug)]
struct Account {
    memory: SourceMemory,
    /// Bytes of the objects that the source has claimed or not finished.
    held: u64,
}

/// Bytes on the heap, all together and for each source.
#[derive(Debug, Default)]
pub(crate) struct Accounts {
    bytes: u64,
    /// Links that have not ended.
    sources: BTreeMap<Source, Account>,
}

impl Accounts {
    pub(crate) fn add(&mut self, source: Source, memory: SourceMemory) {
        self.sources.insert(source, Account { memory, held: 0 });
    }

    pub(crate) fn remove(&mut self, source: Source) {
        self.sources.remove(&source);
    }

    /// Returns the bytes of all sources together.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Charges `source` for bytes. Returns `false` if the source may take no more.
    pub(crate) fn charge(&mut self, source: Source, bytes: u64) -> bool {
        let may = self.sources.get(&source).is_none_or(|account| account.memory.try_take(bytes as usize));
        self.bytes += if may { bytes } else { 0 };
        may
    }

    /// Gives back bytes that were charged to `source`, which may have ended.
    pub(crate) fn refund(&mut self, source: Source, bytes: u64) {
        self.bytes -= bytes;
        if let Some(account) = self.sources.get(&source) {
            account.memory.give_back(bytes as usize);
        }
    }

    /// Counts an object of `bytes` bytes that `source` has claimed or is about to write.
    pub(crate) fn hold(&mut self, source: Source, bytes: u64) {
        if let Some(account) = self.sources.get_mut(&source) {
            account.held += bytes;
        }
    }

    /// Stops counting an object of `bytes` bytes, with which `source` has finished.
    pub(crate) fn uncount(&mut self, source: Source, bytes: u64) {
        if let Some(account) = self.sources.get_mut(&source) {
            account.held -= bytes;
        }
    }

    /// Returns the bytes that `source` has claimed or not finished.
    pub(crate) fn held(&self, source: Source) -> u64 {
        self.sources.get(&source).map_or(0, |account| account.held)
    }
}
