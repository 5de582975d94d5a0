//! The table: a permutation that is one cycle, in equal parts on all shards, and walks through it.

/// Seed of all tables and of the first words of chases.
pub(super) const SEED: u64 = 0x5eed;

/// The permutation, the shards' parts one behind the other.
pub(super) struct Table {
    words: Vec<u64>,
    shards: usize,
    /// Logarithm of the words of a shard.
    log2: u32,
}

/// A chase, and its result by a walk through the whole table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Chase {
    /// The first word.
    pub(super) start: u32,
    /// Words to be read.
    pub(super) depth: u32,
    /// The last value.
    pub(super) end: u32,
    /// Steps from one shard to another.
    pub(super) crossings: u32,
}

impl Chase {
    /// Returns the messages of a chase that hops: to the first shard, at each crossing, and back to the client.
    pub(super) fn messages(&self) -> u32 {
        1 + self.crossings + 1
    }

    /// Returns the messages of a chase by gets: a request and a reply for each word.
    pub(super) fn messages_of_gets(&self) -> u32 {
        2 * self.depth
    }
}

impl Table {
    /// Fills `shards` parts of `1 << log2` words each. The permutation is one cycle (Sattolo's algorithm), so
    /// that no chase comes back early.
    pub(super) fn new(shards: usize, log2: u32) -> Table {
        let len = shards << log2;
        let mut words: Vec<u64> = (0..len as u64).collect();
        let mut random = Random(SEED);
        for last in (1..len).rev() {
            words.swap(last, random.below(last as u64) as usize);
        }
        Table { words, shards, log2 }
    }

    pub(super) fn shards(&self) -> usize {
        self.shards
    }

    pub(super) fn log2(&self) -> u32 {
        self.log2
    }

    /// Returns the part of a shard.
    pub(super) fn part(&self, shard: usize) -> &[u64] {
        &self.words[shard << self.log2..(shard + 1) << self.log2]
    }

    /// Returns the part of a shard, without the memory of the others.
    pub(super) fn into_part(self, shard: usize) -> Box<[u64]> {
        self.part(shard).into()
    }

    /// Returns the shard of a word.
    #[inline]
    pub(super) fn owner(&self, index: u32) -> usize {
        (index >> self.log2) as usize
    }

    /// Walks from `start` over `depth` words.
    fn walk(&self, start: u32, depth: u32) -> Chase {
        let (mut index, mut crossings) = (start, 0);
        for step in 0..depth {
            let next = self.words[index as usize] as u32;
            // After the last word the chase goes to the client, wherever the next one is.
            crossings += u32::from(step + 1 < depth && self.owner(next) != self.owner(index));
            index = next;
        }
        Chase { start, depth, end: index, crossings }
    }

    /// Returns `count` chases over `depth` words, which differ from round to round.
    pub(super) fn chases(&self, depth: u32, count: usize, round: u32) -> Vec<Chase> {
        let mut random = Random(SEED ^ u64::from(round) << 32 ^ u64::from(depth));
        let len = self.words.len() as u64;
        (0..count).map(|_| self.walk(random.below(len) as u32, depth)).collect()
    }
}

/// SplitMix64 (Steele, Lea, Flood: "Fast splittable pseudorandom number generators", 2014).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    /// Returns a number below `limit`.
    fn below(&mut self, limit: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(limit)) >> 64) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_permutation_is_one_cycle_and_the_same_each_time() {
        let table = Table::new(3, 6);
        let mut seen = [false; 3 << 6];
        let mut index = 0;
        for _ in 0..3 << 6 {
            assert!(!std::mem::replace(&mut seen[index], true), "it comes back early");
            index = table.words[index] as usize;
        }
        assert_eq!(index, 0);
        assert_eq!(table.words, Table::new(3, 6).words);
        assert_eq!(table.part(2), &table.words[128..]);
    }

    #[test]
    fn crossings_count_steps_to_another_shard_but_not_the_last_step() {
        // The cycle 0, 1, 2, 3 in two shards of two words.
        let table = Table { words: vec![1, 2, 3, 0], shards: 2, log2: 1 };
        for (start, depth, end, crossings) in
            [(0, 1, 1, 0), (1, 1, 2, 0), (1, 2, 3, 1), (0, 4, 0, 1), (0, 5, 1, 2)]
        {
            let chase = table.walk(start, depth);
            assert_eq!(chase, Chase { start, depth, end, crossings });
            assert_eq!((chase.messages(), chase.messages_of_gets()), (crossings + 2, 2 * depth));
        }
    }

    #[test]
    fn about_every_step_of_all_but_one_in_n_crosses() {
        let table = Table::new(4, 12);
        let chases = table.chases(256, 100, 1);
        let crossings: u32 = chases.iter().map(|chase| chase.crossings).sum();
        let mean = f64::from(crossings) / 100.0;
        assert!((mean - 255.0 * 0.75).abs() < 5.0, "{mean}");
        assert_ne!(chases, table.chases(256, 100, 2));
    }
}
