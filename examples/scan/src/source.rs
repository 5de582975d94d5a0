//! A scan: a stream of the rows that a predicate keeps, with a block in each call.
//!
//! A source has at most its credit of calls under way. If it stops reading, it sends no further call, and the target
//! has nothing to do for it. The target keeps at most the replies of the calls under way. Only the source knows the
//! position of a scan.

use std::collections::VecDeque;
use std::path::Path;
use std::time::Duration;

use farjump::{Error, InjectError, Library, Link, Pending, Reply};
use thiserror::Error as ThisError;

use crate::Failed;
use crate::mapped::Fault;
use crate::table::{BLOCK, Geometry};

/// Calls under way, unless said otherwise.
pub const CREDIT: usize = 8;
/// Most calls under way.
pub const MOST_CREDIT: usize = 64;

// Statuses of `scan.h`.
const READ: u32 = 0;
const NO_BLOCK: u32 = 1;
const FAULT: u32 = 2;
const BAD_RECORD: u32 = 3;
const LONG_ROW: u32 = 4;
/// Bytes of `struct scan_end`.
const END: usize = 40;

/// The reason why a scan cannot continue.
#[derive(Debug, ThisError)]
pub enum ScanError {
    /// The link or the target failed.
    #[error(transparent)]
    Link(#[from] Error),
    /// The target has no such block.
    #[error("the target has no block {0}: is it another table than before?")]
    NoBlock(u64),
    /// The file has a fault.
    #[error("{fault} before block {block} was read: write it anew, and start its target again")]
    Fault {
        /// The block that was read.
        block: u64,
        /// The fault.
        fault: Fault,
    },
    /// A record says a length that its block does not have.
    #[error("block {block} is damaged: at byte {at} of it a length of {says} bytes goes beyond what is used")]
    BadRecord {
        /// Its block.
        block: u64,
        /// Its offset in the block, in bytes.
        at: u64,
        /// The length that it states.
        says: u64,
    },
    /// The predicate puts more than a row may have.
    #[error("at byte {at} of block {block} the predicate puts a row of more than 16384 bytes")]
    LongRow {
        /// The block.
        block: u64,
        /// Offset of the record in it, in bytes.
        at: u64,
    },
    /// The reply is none of a scan.
    #[error("the reply to block {0} is none of `scan.h`: is the target another program?")]
    Foreign(u64),
}

/// Connects to a target, with space for the replies of `credit` calls. Neither connecting nor a call takes longer than
/// `patience`.
///
/// # Errors
/// There is no target, or the key is not its own.
pub fn connect(address: &str, key: Option<&Path>, credit: usize, patience: Duration) -> Result<Link, Failed> {
    let mut link = Link::builder(address).connect_timeout(patience).send_timeout(patience);
    if let Some(key) = key {
        link = link.key(farjump::Key::read(key)?);
    }
    // Twice: a frame may have to begin anew at the mailbox's start.
    let replies = 2 * (credit.clamp(1, MOST_CREDIT) + 1) * BLOCK as usize;
    Ok(link.reply_mailbox_size(replies).connect()?)
}

/// Requests the geometry of a target's table.
///
/// # Errors
/// The target fails, does not reply in time, or is none of this program.
pub fn geometry(link: &Link, table: &Library, patience: Duration) -> Result<Geometry, ScanError> {
    let reply = link.inject(table, &[])?.wait(patience)?;
    let word = |at: usize| Some(u32::from_le_bytes(reply.get(at..at + 4)?.try_into().ok()?));
    let blocks = reply.get(..8).and_then(|bytes| bytes.try_into().ok()).map(u64::from_le_bytes);
    match (reply.len(), blocks, word(16), word(20)) {
        (24, Some(blocks), Some(block_len), Some(width)) => Ok(Geometry { block_len, width, blocks }),
        _ => Err(ScanError::Foreign(0)),
    }
}

/// The rows of a block.
#[derive(Debug)]
pub struct Piece {
    /// Number of the block.
    pub block: u64,
    /// Records that were read in it.
    pub records: u32,
    reply: Reply,
}

impl Piece {
    /// Returns the rows, as the predicate put them.
    pub fn rows(&self) -> impl Iterator<Item = &[u8]> {
        let mut rest = self.bytes();
        std::iter::from_fn(move || {
            let (len, behind) = rest.split_at_checked(4)?;
            let len = u32::from_le_bytes(len.try_into().ok()?) as usize;
            let (row, behind) = behind.split_at_checked(len)?;
            rest = behind;
            Some(row)
        })
    }

    /// Returns the reply without its end: for `block.c`, the block.
    pub fn bytes(&self) -> &[u8] {
        &self.reply[..self.reply.len() - END]
    }
}

/// A scan under way.
#[derive(Debug)]
pub struct Scan<'l> {
    link: &'l Link,
    function: &'l Library,
    /// The number of the block, and behind it the predicate's arguments.
    payload: Vec<u8>,
    next: u64,
    end: u64,
    credit: usize,
    pending: VecDeque<(u64, Pending<'l>)>,
}

impl<'l> Scan<'l> {
    /// Scans a table of so many blocks by `function`, with these arguments, and `credit` calls under way.
    pub fn new(link: &'l Link, function: &'l Library, blocks: u64, args: &[u8], credit: usize) -> Scan<'l> {
        let payload = [&[0; 8], args].concat();
        let credit = credit.clamp(1, MOST_CREDIT);
        Scan { link, function, payload, next: 0, end: blocks, credit, pending: VecDeque::new() }
    }

    /// Returns the rows of the next block, in their order; `None` behind the last one. After an error the scan is over.
    ///
    /// # Errors
    /// The block cannot be read, or no reply came in time.
    pub fn next(&mut self, patience: Duration) -> Result<Option<Piece>, ScanError> {
        let read = self.read(patience);
        if read.is_err() {
            self.next = self.end;
            self.pending.clear();
        }
        read
    }

    fn read(&mut self, patience: Duration) -> Result<Option<Piece>, ScanError> {
        self.send()?;
        let Some((block, pending)) = self.pending.pop_front() else { return Ok(None) };
        let piece = piece(block, pending.wait(patience)?)?;
        // While the reader works on this one, the target works on others.
        self.send()?;
        Ok(Some(piece))
    }

    /// Sends calls as far as there is credit.
    fn send(&mut self) -> Result<(), ScanError> {
        while self.next < self.end && self.pending.len() < self.credit {
            self.payload[..8].copy_from_slice(&self.next.to_le_bytes());
            let sent = match self.link.try_inject(self.function, &self.payload) {
                Err(Error::Inject(InjectError::Full)) if !self.pending.is_empty() => return Ok(()),
                Err(Error::Inject(InjectError::Full)) => self.link.inject(self.function, &self.payload)?,
                sent => sent?,
            };
            self.pending.push_back((self.next, sent));
            self.next += 1;
        }
        Ok(())
    }
}

/// Reads a reply.
fn piece(block: u64, reply: Reply) -> Result<Piece, ScanError> {
    let foreign = || ScanError::Foreign(block);
    let end = reply.len().checked_sub(END).and_then(|at| reply.get(at..)).ok_or_else(foreign)?;
    let long = |at: usize| u64::from_le_bytes(end[at..at + 8].try_into().unwrap_or_default());
    let word = |at: usize| u32::from_le_bytes(end[at..at + 4].try_into().unwrap_or_default());
    let (number, at, says, records, rows) = (long(0), long(8), long(16), word(24), word(28));
    match word(32) {
        _ if number != block => Err(foreign()),
        READ => {
            let piece = Piece { block, records, reply };
            let in_rows: usize = piece.rows().map(|row| 4 + row.len()).sum();
            let is_whole = in_rows == piece.bytes().len() && piece.rows().count() == rows as usize;
            // `block.c` reads no records.
            if is_whole || records == 0 { Ok(piece) } else { Err(foreign()) }
        }
        NO_BLOCK => Err(ScanError::NoBlock(block)),
        FAULT => Err(ScanError::Fault { block, fault: Fault::of(says) }),
        BAD_RECORD => Err(ScanError::BadRecord { block, at, says }),
        LONG_ROW => Err(ScanError::LongRow { block, at }),
        _ => Err(foreign()),
    }
}
