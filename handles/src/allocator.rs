//! The memory of a store, in units of 64 bytes: which parts are in use.
//!
//! A fresh page costs thirty times the copy into it, so freed memory comes first, the last freed before all: its lines may
//! still be cached. Sizes are rounded up to four steps for each power of two, so that freed blocks fit others. A larger free
//! block is split before unused memory is touched, and free neighbours are merged only where nothing else fits.

/// Length of a unit in bytes: objects start on a line.
pub(crate) const UNIT: u64 = 64;
/// Steps from one power of two to the next.
const STEPS: u32 = 4;

/// A part of the memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Block {
    /// Its first unit.
    start: u64,
    /// The class of its size.
    class: u32,
}

impl Block {
    /// Its offset in the memory, in bytes.
    pub(crate) fn offset(self) -> u64 {
        self.start * UNIT
    }

    /// Its length in bytes.
    #[cfg(test)]
    pub(crate) fn len(self) -> u64 {
        units_of(self.class) * UNIT
    }
}

/// Which parts of a memory are in use.
#[derive(Debug)]
pub(crate) struct Allocator {
    /// All units.
    capacity: u64,
    /// The first unit that was never used.
    fresh: u64,
    /// Free blocks by the class of their size, those freed last at the end.
    free: Vec<Vec<u64>>,
    /// Units in use.
    used: u64,
}

/// Units of the blocks of a class.
fn units_of(class: u32) -> u64 {
    if class < STEPS {
        return u64::from(class) + 1;
    }
    let (power, step) = (class / STEPS, class % STEPS);
    // 4, 5, 6, 7, 8, 10, 12, 14, 16, 20...
    (u64::from(STEPS + step)) << (power - 1)
}

/// The smallest class whose blocks have `units` units or more.
fn class_for(units: u64) -> u32 {
    let below = class_below(units);
    if units_of(below) >= units { below } else { below + 1 }
}

/// The largest class whose blocks have at most `units` units, of which there is at least one.
fn class_below(units: u64) -> u32 {
    if units <= u64::from(STEPS) {
        return units as u32 - 1;
    }
    let power = units.ilog2();
    let step = (units >> (power - 2)) & 3;
    (power - 1) * STEPS + step as u32
}

impl Allocator {
    /// One of `capacity` bytes.
    pub(crate) fn new(capacity: u64) -> Allocator {
        let capacity = capacity / UNIT;
        let classes = class_below(capacity.max(1)) as usize + 2;
        Allocator { capacity, fresh: 0, free: vec![Vec::new(); classes], used: 0 }
    }

    /// Bytes in use.
    pub(crate) fn used(&self) -> u64 {
        self.used * UNIT
    }

    /// All bytes.
    pub(crate) fn capacity(&self) -> u64 {
        self.capacity * UNIT
    }

    /// The largest object that would find memory now, in bytes.
    pub(crate) fn largest(&mut self) -> u64 {
        self.merge();
        let freed = (0..self.free.len()).rev().find(|&class| !self.free[class].is_empty());
        let freed = freed.map_or(0, |class| units_of(class as u32));
        let unused = self.capacity - self.fresh;
        let unused = if unused == 0 { 0 } else { units_of(class_below(unused)) };
        freed.max(unused) * UNIT
    }

    /// Takes memory for `len` bytes; `None` if nowhere is so much in one piece.
    pub(crate) fn take(&mut self, len: u64) -> Option<Block> {
        let units = len.div_ceil(UNIT).max(1);
        if units > self.capacity {
            return None;
        }
        let class = class_for(units);
        let taken = self.take_free(class).or_else(|| self.take_fresh(class)).or_else(|| {
            self.merge();
            self.take_free(class).or_else(|| self.take_fresh(class))
        });
        if taken.is_some() {
            self.used += units_of(class);
        }
        taken
    }

    fn take_free(&mut self, class: u32) -> Option<Block> {
        if let Some(start) = self.free.get_mut(class as usize)?.pop() {
            return Some(Block { start, class });
        }
        let larger = (class as usize + 1..self.free.len()).find(|&larger| !self.free[larger].is_empty())?;
        let start = self.free[larger].pop()?;
        let units = units_of(class);
        self.put_free(start + units, units_of(larger as u32) - units);
        Some(Block { start, class })
    }

    fn take_fresh(&mut self, class: u32) -> Option<Block> {
        let (start, units) = (self.fresh, units_of(class));
        if units > self.capacity - start {
            return None;
        }
        self.fresh += units;
        Some(Block { start, class })
    }

    /// Adds free units, as blocks.
    fn put_free(&mut self, mut start: u64, mut units: u64) {
        while units != 0 {
            let class = class_below(units);
            self.free[class as usize].push(start);
            start += units_of(class);
            units -= units_of(class);
        }
    }

    /// Gives memory back.
    pub(crate) fn give_back(&mut self, block: Block) {
        self.used -= units_of(block.class);
        self.free[block.class as usize].push(block.start);
    }

    /// Merges free neighbours. Those at the end count as unused again.
    fn merge(&mut self) {
        let mut all: Vec<(u64, u64)> = Vec::new();
        for (class, blocks) in self.free.iter_mut().enumerate() {
            let units = units_of(class as u32);
            all.extend(blocks.drain(..).map(|start| (start, units)));
        }
        // From the last to the first: what is put back last is taken first, and leaves the end free.
        all.sort_unstable_by(|one, other| other.cmp(one));
        let mut merged: Vec<(u64, u64)> = Vec::new();
        for (start, units) in all {
            match merged.last_mut() {
                Some((above, count)) if start + units == *above => (*above, *count) = (start, *count + units),
                _ => merged.push((start, units)),
            }
        }
        for (start, units) in merged {
            if start + units == self.fresh {
                self.fresh = start;
            } else {
                self.put_free(start, units);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_ascend_in_four_steps_and_round_up() {
        let units: Vec<_> = (0..14).map(units_of).collect();
        assert_eq!(units, [1, 2, 3, 4, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20]);
        for units in (1..5000).chain([1 << 30, (1 << 30) + 1]) {
            let (below, enough) = (units_of(class_below(units)), units_of(class_for(units)));
            assert!(below <= units && units <= enough, "{below} {units} {enough}");
            assert!(enough <= units + units / 4 + 1, "{units}: {enough}");
        }
    }

    #[test]
    fn memory_is_used_again_the_last_freed_first() {
        let mut memory = Allocator::new(1 << 20);
        let blocks: Vec<_> = (0..10).map(|_| memory.take(1000).unwrap()).collect();
        memory.give_back(blocks[3]);
        memory.give_back(blocks[7]);
        assert_eq!(memory.take(1000), Some(blocks[7]));
        assert_eq!(memory.take(990), Some(blocks[3]));
        assert_ne!(memory.take(1000), Some(blocks[3]));
    }

    #[test]
    fn a_larger_freed_block_is_split_before_fresh_memory_is_touched() {
        let mut memory = Allocator::new(1 << 20);
        let large = memory.take(64 * 16).unwrap();
        let behind = memory.take(64).unwrap();
        memory.give_back(large);
        let parts: Vec<_> = (0..16).map(|_| memory.take(64).unwrap().offset()).collect();
        assert!(parts.iter().all(|offset| *offset < behind.offset()), "{parts:?}");
        assert!(memory.take(64).unwrap().offset() > behind.offset());
    }

    #[test]
    fn free_neighbours_are_merged_where_nothing_else_fits() {
        let mut memory = Allocator::new(64 * 64);
        let small: Vec<_> = (0..64).map(|_| memory.take(64).unwrap()).collect();
        assert_eq!((memory.take(1), memory.used(), memory.largest()), (None, 4096, 0));
        small.iter().for_each(|block| memory.give_back(*block));
        let whole = memory.take(4096).unwrap();
        assert_eq!((whole.offset(), whole.len()), (0, 4096));
        memory.give_back(whole);
        assert_eq!((memory.used(), memory.largest()), (0, 4096));
        assert_eq!(memory.take(4097), None);
        assert_eq!(memory.take(u64::MAX), None);
    }

    #[test]
    fn blocks_in_use_never_overlap_and_all_come_back() {
        let mut random = fastrand::Rng::with_seed(7);
        let mut memory = Allocator::new(1 << 18);
        let mut taken: Vec<Block> = Vec::new();
        for _ in 0..20_000 {
            if random.bool() && !taken.is_empty() {
                memory.give_back(taken.swap_remove(random.usize(..taken.len())));
            } else if let Some(block) = memory.take(random.u64(0..9000)) {
                taken.push(block);
            }
            assert_eq!(memory.used(), taken.iter().map(|block| block.len()).sum::<u64>());
        }
        taken.sort_by_key(|block| block.offset());
        assert!(taken.windows(2).all(|pair| pair[0].offset() + pair[0].len() <= pair[1].offset()));
        assert!(taken.last().is_none_or(|last| last.offset() + last.len() <= 1 << 18));
        taken.drain(..).for_each(|block| memory.give_back(block));
        assert_eq!((memory.used(), memory.largest()), (0, 1 << 18));
    }
}
