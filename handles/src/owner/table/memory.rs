//! Memory for objects: taking it, charging for it, and making space by writing other objects to the file.

use super::{Source, Table};
use crate::owner::allocator::{Block, UNIT};
use crate::wire::refusal::{Lack, NoMemory};

/// Visits of the longest step that makes space: an object ends, and its blocks in memory and file merge with their
/// neighbours.
pub(super) const STEP: u32 = 16;

/// The outcome of a step that should make space.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Made {
    /// Perhaps some space.
    Space,
    /// No object can go.
    Nothing,
    /// The turn is over.
    NoTurn,
    /// No space before the thread of the file has ended a job.
    Later,
    /// No space, because the file cannot be written.
    Failed,
}

impl Table {
    /// Used bytes of the store's capacity: memory of objects and topics, and their records on the heap.
    pub(crate) fn used(&self) -> u64 {
        self.memory.used() + self.accounts.bytes()
    }

    /// [`Table::used`], and the part of the allocators' heap that exceeds the share which a store always has beside its
    /// capacity.
    pub(super) fn held(&self) -> u64 {
        let heap = self.memory.heap() + self.spill.as_ref().map_or(0, |spill| spill.heap());
        self.used() + heap.saturating_sub(self.beside())
    }

    /// Bytes beside the capacity, for needs that are not known in advance.
    pub(super) fn beside(&self) -> u64 {
        self.capacity() / 16 + (64 << 10)
    }

    pub(super) fn no_memory(&self, requested: u64, lack: Lack) -> NoMemory {
        let left = self.capacity().saturating_sub(self.held() + crate::owner::table::object::Object::heap(0));
        NoMemory {
            requested,
            used: self.used(),
            capacity: self.capacity(),
            largest: self.memory.largest().min(left / UNIT * UNIT),
            quarantined: self.quarantine.bytes(),
            keepers: self.quarantine.named().into(),
            file_failed: false,
            lack,
        }
    }

    /// Takes memory that no source is charged for. Makes space for it by the file, if there is one.
    pub(crate) fn take(&mut self, len: u64) -> Result<Block, NoMemory> {
        self.take_beside(len, 0)
    }

    /// Takes memory for `source`, and charges `heap` bytes to it.
    pub(super) fn take_for(&mut self, source: Source, len: u64, heap: u64) -> Result<Block, NoMemory> {
        let block = self.take_beside(len, heap)?;
        if self.accounts.charge(source, heap) {
            return Ok(block);
        }
        self.give_back(block);
        Err(self.no_memory(heap, Lack::OfSource))
    }

    /// Takes memory, with `heap` bytes of the heap in addition.
    fn take_beside(&mut self, len: u64, heap: u64) -> Result<Block, NoMemory> {
        self.end_leases();
        let mut may_be_free = true;
        loop {
            // No more than needed, so that it cannot overflow.
            let needed = len.min(self.capacity()).max(1).next_multiple_of(UNIT) + heap;
            let before = self.memory.visits();
            let block = (self.held() + needed <= self.capacity()).then(|| self.memory.take(len)).flatten();
            self.turn.visit((self.memory.visits() - before) as u32);
            if let Some(block) = block {
                return Ok(block);
            }
            if std::mem::take(&mut may_be_free) && self.end_quarantine() {
                continue;
            }
            let made = match len.saturating_add(heap) > self.capacity() {
                true => Made::Nothing,
                // If the memory is in parts, more has to become free than is lacking.
                false => self.make_space((self.held() + needed).saturating_sub(self.capacity()).max(1)),
            };
            match made {
                Made::Space => {}
                Made::Nothing => return Err(self.no_memory(len, Lack::Memory)),
                Made::Failed => {
                    return Err(NoMemory { file_failed: true, ..self.no_memory(len, Lack::Memory) });
                }
                Made::NoTurn => return Err(NoMemory::of_time(Lack::OfTurn)),
                Made::Later => return Err(self.later()),
            }
        }
    }

    /// Gives memory back.
    pub(crate) fn give_back(&mut self, block: Block) {
        let before = self.memory.visits();
        self.memory.give_back(block);
        self.turn.visit((self.memory.visits() - before) as u32);
    }

    /// Charges `source` for bytes of the heap, which count in the capacity.
    pub(crate) fn charge(&mut self, source: Source, bytes: u64) -> Result<(), NoMemory> {
        if self.held() + bytes > self.capacity() {
            return Err(self.no_memory(bytes, Lack::Memory));
        }
        match self.accounts.charge(source, bytes) {
            true => Ok(()),
            false => Err(self.no_memory(bytes, Lack::OfSource)),
        }
    }

    /// Gives back what [`Table::charge`] has charged.
    pub(crate) fn refund(&mut self, source: Source, bytes: u64) {
        self.accounts.refund(source, bytes);
    }

    /// Does work that is left, or starts to write an object to the file, to free `lacking` bytes.
    fn make_space(&mut self, lacking: u64) -> Made {
        if self.turn.left() < STEP {
            return Made::NoTurn;
        }
        match self.end_next() {
            true => Made::Space,
            false => self.spill_oldest(lacking),
        }
    }
}
