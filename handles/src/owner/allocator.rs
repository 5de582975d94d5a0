//! The allocator of a store's memory.
//!
//! A fresh page costs thirty times the copy into it. So the allocator takes freed memory first, beginning with the
//! block freed last, whose lines may still be cached. It splits a larger free block before it touches memory that was
//! never used.
//! It is a two-level segregated fit (TLSF). Free blocks are listed by the class of their length, and a bit for each
//! class states whether its list has any. Free neighbours are merged as soon as they are freed. So each call takes a
//! constant number of steps, however many blocks there are. The reasons are in `docs/design/objects.md`.

mod marks;

use marks::Marks;

/// Length of a unit of a store's memory in bytes: objects start on a line.
pub(crate) const UNIT: u64 = 64;
/// Classes of lengths from one power of two to the next.
const STEPS: u64 = 16;
const STEPS_LOG2: u32 = STEPS.ilog2();
/// Powers of two of lengths, in units.
const POWERS: usize = 64 - STEPS_LOG2 as usize + 1;
/// Maximum number of free blocks to check in a request's own class, where not all are long enough.
const LOOKS: usize = 4;
/// No free block.
const NONE: u32 = u32::MAX;

/// A part of the memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Block {
    offset: u64,
    len: u64,
}

impl Block {
    /// The block's offset in the memory, in bytes.
    pub(crate) fn offset(self) -> u64 {
        self.offset
    }

    /// The block's length in bytes.
    pub(crate) fn len(self) -> u64 {
        self.len
    }
}

/// A free block, in units. All other blocks that were ever used are in use.
#[derive(Clone, Copy, Debug)]
struct Free {
    start: u64,
    units: u64,
    /// The blocks before and behind it in the list of its class. In an unused entry, `next` is the next unused one.
    before: u32,
    next: u32,
}

/// The used and the free parts of a memory.
#[derive(Debug)]
pub(crate) struct Allocator {
    /// Bytes of a unit.
    unit: u64,
    /// All units.
    capacity: u64,
    /// The first unit that was never used.
    fresh: u64,
    /// Units in use.
    used: u64,
    free: Vec<Free>,
    /// The first unused entry of `free`.
    unused: u32,
    /// The first block of each class: the one freed last.
    first: Box<[[u32; STEPS as usize]; POWERS]>,
    /// A bit for each class that has blocks, and one for each power that has such classes.
    classes: [u16; POWERS],
    powers: u64,
    /// The free blocks by their first units, and by their last ones.
    marks: Marks,
    /// Blocks visited since the allocator was made.
    visits: u64,
}

/// Returns the class of blocks of `units` units: a power, and a step from there to the next one.
fn class_of(units: u64) -> (usize, usize) {
    if units < STEPS {
        return (0, units as usize);
    }
    let power = units.ilog2() - STEPS_LOG2;
    (power as usize + 1, ((units >> power) & (STEPS - 1)) as usize)
}

impl Allocator {
    /// Makes an allocator of `capacity` bytes, in units of `unit` bytes.
    pub(crate) fn new(capacity: u64, unit: u64) -> Allocator {
        Allocator {
            unit,
            capacity: capacity / unit,
            fresh: 0,
            used: 0,
            free: Vec::new(),
            unused: NONE,
            first: Box::new([[NONE; STEPS as usize]; POWERS]),
            classes: [0; POWERS],
            powers: 0,
            marks: Marks::default(),
            visits: 0,
        }
    }

    /// Returns the bytes in use.
    pub(crate) fn used(&self) -> u64 {
        self.used * self.unit
    }

    /// Returns the bytes in all.
    pub(crate) fn capacity(&self) -> u64 {
        self.capacity * self.unit
    }

    /// Returns the bytes of the heap that the allocator takes for free blocks.
    pub(crate) fn heap(&self) -> u64 {
        (self.free.capacity() * size_of::<Free>()) as u64 + self.marks.heap()
    }

    /// Returns the number of blocks visited since the allocator was made.
    pub(crate) fn visits(&self) -> u64 {
        self.visits
    }

    /// Returns the length of the largest object that would find memory, in bytes.
    pub(crate) fn largest(&self) -> u64 {
        let freed = self.powers.checked_ilog2().map_or(0, |power| {
            let step = self.classes[power as usize].ilog2();
            let first = self.first[power as usize][step as usize];
            self.free[first as usize].units
        });
        freed.max(self.capacity - self.fresh + self.tail().map_or(0, |(_, block)| block.units)) * self.unit
    }

    /// Takes memory for `len` bytes. Returns `None` if no free part is long enough.
    pub(crate) fn take(&mut self, len: u64) -> Option<Block> {
        let units = len.div_ceil(self.unit).max(1);
        if units > self.capacity {
            return None;
        }
        let start = match self.find(units) {
            Some(id) => self.cut(id, units),
            None => self.take_fresh(units)?,
        };
        self.used += units;
        Some(Block { offset: start * self.unit, len: units * self.unit })
    }

    /// Frees a block, and merges it with its free neighbours.
    pub(crate) fn give_back(&mut self, block: Block) {
        let (mut start, mut units) = (block.offset / self.unit, block.len / self.unit);
        self.used -= units;
        // Only the first and the last unit of a free block have a mark. A neighbour begins, or ends, beside a block in use.
        if let Some(below) = start.checked_sub(1).and_then(|last| self.marks.get(last)) {
            let before = self.remove(below);
            (start, units) = (before.start, units + before.units);
        }
        if let Some(above) = self.marks.get(start + units) {
            units += self.remove(above).units;
        }
        self.insert(start, units);
    }

    /// Returns a free block of `units` units or more.
    fn find(&mut self, units: u64) -> Option<u32> {
        let (power, step) = class_of(units);
        let mut id = self.first[power][step];
        for _ in 0..LOOKS {
            let Some(block) = self.free.get(id as usize) else { break };
            self.visits += 1;
            if block.units >= units {
                return Some(id);
            }
            id = block.next;
        }
        // From the next class on, all blocks are long enough.
        let longer = self.classes[power] & u16::MAX.checked_shl(step as u32 + 1).unwrap_or(0);
        if longer != 0 {
            return Some(self.first[power][longer.trailing_zeros() as usize]);
        }
        let longer = self.powers & u64::MAX.checked_shl(power as u32 + 1).unwrap_or(0);
        let power = (longer != 0).then(|| longer.trailing_zeros() as usize)?;
        Some(self.first[power][self.classes[power].trailing_zeros() as usize])
    }

    /// Takes the first `units` units of a free block. The rest stays free.
    fn cut(&mut self, id: u32, units: u64) -> u64 {
        let block = self.remove(id);
        if block.units > units {
            self.insert(block.start + units, block.units - units);
        }
        block.start
    }

    /// Returns the last free block, if only memory that was never used is behind it.
    fn tail(&self) -> Option<(u32, Free)> {
        let id = self.marks.get(self.fresh.checked_sub(1)?)?;
        Some((id, self.free[id as usize]))
    }

    /// Takes memory that was never used, and the free block right before it.
    fn take_fresh(&mut self, units: u64) -> Option<u64> {
        let tail = self.tail();
        let freed = tail.map_or(0, |(_, block)| block.units);
        if units > self.capacity - self.fresh + freed {
            return None;
        }
        match tail {
            Some((id, _)) if freed >= units => Some(self.cut(id, units)),
            tail => {
                let start = self.fresh - freed;
                tail.map(|(id, _)| self.remove(id));
                self.fresh = start + units;
                Some(start)
            }
        }
    }

    fn insert(&mut self, start: u64, units: u64) {
        self.visits += 1;
        let (power, step) = class_of(units);
        let next = self.first[power][step];
        let block = Free { start, units, before: NONE, next };
        let id = match self.free.get(self.unused as usize).copied() {
            Some(entry) => {
                let id = std::mem::replace(&mut self.unused, entry.next);
                self.free[id as usize] = block;
                id
            }
            None => {
                let Some(id) = u32::try_from(self.free.len()).ok().filter(|id| *id != NONE) else {
                    return log::error!(
                        "{units} units of a store's memory are lost: it has {NONE} free parts"
                    );
                };
                self.free.push(block);
                id
            }
        };
        if let Some(next) = self.free.get_mut(next as usize) {
            next.before = id;
        }
        self.first[power][step] = id;
        self.classes[power] |= 1 << step;
        self.powers |= 1 << power;
        self.marks.set(start, id);
        self.marks.set(start + units - 1, id);
    }

    fn remove(&mut self, id: u32) -> Free {
        self.visits += 1;
        let block = self.free[id as usize];
        let (power, step) = class_of(block.units);
        if let Some(next) = self.free.get_mut(block.next as usize) {
            next.before = block.before;
        }
        match self.free.get_mut(block.before as usize) {
            Some(before) => before.next = block.next,
            None => self.first[power][step] = block.next,
        }
        if self.first[power][step] == NONE {
            self.classes[power] &= !(1 << step);
            if self.classes[power] == 0 {
                self.powers &= !(1 << power);
            }
        }
        self.marks.clear(block.start);
        self.marks.clear(block.start + block.units - 1);
        self.free[id as usize].next = std::mem::replace(&mut self.unused, id);
        block
    }
}

#[cfg(test)]
mod tests;
