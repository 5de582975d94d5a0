//! Memory for objects: taken, charged, and made by writing others to the file.

use super::{Source, Table};
use crate::allocator::{Block, UNIT};
use crate::object::State;
use crate::refusal::{ClaimFailed, Lack, NoMemory, Refusal};

/// Visits that the longest step takes which makes space: an object ends, and its blocks in memory and file merge with their
/// neighbours.
pub(super) const STEP: u32 = 16;

/// What came of a step that was to make space.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Made {
    /// Perhaps some.
    Space,
    /// There is nothing that could go.
    Nothing,
    /// The turn is over.
    NoTurn,
}

impl Table {
    /// Bytes that are used of the store's capacity: memory of objects and topics, and what is kept of them on the heap.
    pub(crate) fn used(&self) -> u64 {
        self.memory.used() + self.accounts.bytes()
    }

    /// [`Table::used`], and what the allocators keep on the heap beyond a share that a store always has beside its capacity.
    pub(super) fn held(&self) -> u64 {
        let heap = self.memory.heap() + self.spill.as_ref().map_or(0, |spill| spill.heap());
        self.used() + heap.saturating_sub(self.beside())
    }

    /// Bytes beside the capacity, for what is not known before it is needed.
    pub(super) fn beside(&self) -> u64 {
        self.capacity() / 16 + (64 << 10)
    }

    pub(super) fn no_memory(&self, asked: u64, lack: Lack) -> NoMemory {
        let left = self.capacity().saturating_sub(self.held() + crate::object::Object::heap(0));
        NoMemory {
            asked,
            used: self.used(),
            capacity: self.capacity(),
            largest: self.memory.largest().min(left / UNIT * UNIT),
            quarantined: self.quarantine.bytes(),
            keepers: self.quarantine.named().into(),
            lack,
        }
    }

    /// Takes memory that is nobody's own, and makes space for it by the file if there is one.
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

    /// Takes memory beside so many bytes of the heap.
    fn take_beside(&mut self, len: u64, heap: u64) -> Result<Block, NoMemory> {
        self.end_leases();
        let mut may_be_free = true;
        loop {
            // Not more than it needs, so that it cannot overflow.
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
            let made =
                if len.saturating_add(heap) > self.capacity() { Made::Nothing } else { self.make_space() };
            match made {
                Made::Space => {}
                Made::Nothing => return Err(self.no_memory(len, Lack::Memory)),
                Made::NoTurn => return Err(self.no_memory(len, Lack::OfTurn)),
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

    /// Frees something that is to be freed anyway, or writes an object to the file.
    fn make_space(&mut self) -> Made {
        if self.turn.left() < STEP {
            return Made::NoTurn;
        }
        match self.end_next() || self.spill_oldest() {
            true => Made::Space,
            false => Made::Nothing,
        }
    }

    /// Writes the object that nobody uses and that was used longest ago to the file. `false` if there is none, or no file.
    fn spill_oldest(&mut self) -> bool {
        let (Some(spill), Some((_, number))) = (&mut self.spill, self.unused.first_key_value()) else {
            return false;
        };
        let Some(object) = self.objects.get_mut(number) else { return false };
        self.turn.visit(1);
        let Some(block) = object.block else { return false };
        let Some(data) = self.region.region.at(block.offset(), object.len) else { return false };
        // SAFETY: the block is this object's, of `len` bytes; nobody writes a finished object.
        let bytes = unsafe { std::slice::from_raw_parts(data.as_ptr(), object.len as usize) };
        let before = spill.visits();
        let written = spill.write(bytes);
        self.turn.visit((spill.visits() - before) as u32);
        match written {
            Ok(place) => {
                (object.block, object.place) = (None, Some(place));
                self.unused.pop_first();
                self.give_back(block);
                true
            }
            Err(error) => {
                log::warn!("objects are not written to a file: {error}");
                false
            }
        }
    }

    /// Reads an object back from the file.
    pub(super) fn recall(&mut self, number: u64) -> Result<(), ClaimFailed> {
        let Some(object) = self.objects.get_mut(&number) else { return Ok(()) };
        // Its place belongs to this function from here on, and the claim keeps the object: what ends it meanwhile frees
        // neither.
        let Some(place) = object.place.take() else { return Ok(()) };
        object.claims += 1;
        let len = object.len;
        let block = self.read_back(number, place, len);
        let Some(object) = self.objects.get_mut(&number) else { return Err(Refusal::Gone.into()) };
        match &block {
            Ok(block) => object.block = Some(*block),
            // It stays there.
            Err(ClaimFailed::NoMemory(_)) => object.place = Some(place),
            Err(ClaimFailed::Refused(_)) => object.state = State::Evicted,
        }
        let is_gone = matches!(object.state, State::Evicted);
        if object.place.is_none() {
            self.forget_place(place);
        }
        self.unclaim(number, 1);
        match is_gone {
            true => Err(Refusal::Gone.into()),
            false => block.map(drop),
        }
    }

    /// Copies the contents of an object from the file to new memory.
    fn read_back(&mut self, number: u64, place: Block, len: u64) -> Result<Block, ClaimFailed> {
        let block = self.take(len)?;
        let into = self.region.region.at(block.offset(), len).expect("blocks lie in the region");
        let Some(spill) = &self.spill else { return Err(Refusal::Gone.into()) };
        // SAFETY: the block was taken just now: nobody else uses it.
        let into = unsafe { std::slice::from_raw_parts_mut(into.as_ptr(), len as usize) };
        spill.read(place, into).map(|()| block).map_err(|error| {
            log::warn!("object {number} is lost: its file cannot be read: {error}");
            self.give_back(block);
            Refusal::Gone.into()
        })
    }

    /// Frees a place in the file.
    pub(super) fn forget_place(&mut self, place: Block) {
        let Some(spill) = &mut self.spill else { return };
        let before = spill.visits();
        spill.forget(place);
        self.turn.visit((spill.visits() - before) as u32);
    }
}
