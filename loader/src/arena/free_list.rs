//! Allocation in an arena: first fit over a list of gaps, in offsets alone.

use std::ops::Range;

/// Unit of allocation, and least distance between two images: one cache line, in bytes. A processor that runs
/// one image fetches ahead into the next line as *code*. Writing that line would then cost it a pipeline
/// clear, so a line between is kept free.
pub(crate) const LINE: usize = 64;

/// The gaps of an arena, ascending; no two touch.
#[derive(Debug)]
pub(crate) struct FreeList {
    len: usize,
    gaps: Vec<Range<usize>>,
    /// Start of the part that was never allocated.
    high_water: usize,
}

/// An allocated part of an arena.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Taken {
    /// Whole lines, the free line at the end included.
    pub(crate) range: Range<usize>,
    /// Whether some of it was allocated before.
    pub(crate) reused: bool,
}

impl FreeList {
    /// Makes a list with one gap of `len` bytes.
    pub(crate) fn new(len: usize) -> FreeList {
        let gap = 0..len;
        FreeList { len, gaps: if gap.is_empty() { Vec::new() } else { vec![gap] }, high_water: 0 }
    }

    /// Whole lines for `len` bytes and the line behind them; `None` if no arena can be that long.
    fn needed(len: usize) -> Option<usize> {
        len.max(1).checked_next_multiple_of(LINE)?.checked_add(LINE)
    }

    /// Allocates `len` bytes at a multiple of `align` (a power of two), with the line behind them, in the
    /// first gap that fits.
    pub(crate) fn take(&mut self, len: usize, align: usize) -> Option<Taken> {
        let (index, taken) = self.find(len, align)?;
        let gap = self.gaps[index].clone();
        match (gap.start == taken.start, gap.end == taken.end) {
            (true, true) => {
                self.gaps.remove(index);
            }
            (true, false) => self.gaps[index].start = taken.end,
            (false, true) => self.gaps[index].end = taken.start,
            (false, false) => {
                self.gaps[index].end = taken.start;
                self.gaps.insert(index + 1, taken.end..gap.end);
            }
        }
        let reused = taken.start < self.high_water;
        self.high_water = self.high_water.max(taken.end);
        Some(Taken { range: taken, reused })
    }

    /// Returns whether [`FreeList::take`] would find a gap.
    pub(crate) fn fits(&self, len: usize, align: usize) -> bool {
        self.find(len, align).is_some()
    }

    /// The index of the first gap that fits, and the part of it to allocate.
    fn find(&self, len: usize, align: usize) -> Option<(usize, Range<usize>)> {
        let needed = Self::needed(len)?;
        let align = align.max(LINE);
        self.gaps.iter().enumerate().find_map(|(index, gap)| {
            let start = gap.start.checked_next_multiple_of(align)?;
            let end = start.checked_add(needed)?;
            (end <= gap.end).then_some((index, start..end))
        })
    }

    /// Frees a range that [`FreeList::take`] allocated and that was not freed before. Never needs more memory
    /// than the list had when the range was allocated, unless it lies between two allocated ranges.
    pub(crate) fn give_back(&mut self, range: Range<usize>) {
        let next = self.gaps.partition_point(|gap| gap.start < range.start);
        debug_assert!(next == 0 || self.gaps[next - 1].end <= range.start, "{range:?} was free");
        debug_assert!(next == self.gaps.len() || range.end <= self.gaps[next].start, "{range:?} was free");
        let joins_last = next > 0 && self.gaps[next - 1].end == range.start;
        let joins_next = next < self.gaps.len() && self.gaps[next].start == range.end;
        match (joins_last, joins_next) {
            (true, true) => self.gaps[next - 1].end = self.gaps.remove(next).end,
            (true, false) => self.gaps[next - 1].end = range.end,
            (false, true) => self.gaps[next].start = range.start,
            (false, false) => self.gaps.insert(next, range),
        }
    }

    /// Start of the part that was never allocated.
    pub(crate) fn high_water(&self) -> usize {
        self.high_water
    }

    /// Free bytes.
    pub(crate) fn free(&self) -> usize {
        self.gaps.iter().map(ExactSizeIterator::len).sum()
    }

    /// Allocated bytes.
    pub(crate) fn used(&self) -> usize {
        self.len - self.free()
    }

    /// Length in bytes of the longest image that would fit now, without an alignment.
    pub(crate) fn largest(&self) -> usize {
        self.gaps.iter().map(|gap| (gap.len() & !(LINE - 1)).saturating_sub(LINE)).max().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_first_gap_that_fits_is_taken() {
        let mut free = FreeList::new(4096);
        let taken: Vec<_> = (0..4).map(|_| free.take(100, 1).unwrap().range).collect();
        assert_eq!(taken, [0..192, 192..384, 384..576, 576..768]);
        free.give_back(192..384);
        assert_eq!(free.take(129, 1).unwrap().range, 768..1024, "a gap of 192 has no line to spare for 129");
        assert_eq!(free.take(128, 1).unwrap().range, 192..384);
    }

    #[test]
    fn a_free_line_follows_every_taken_range() {
        let mut free = FreeList::new(4096);
        for len in [1, 63, 64, 65, 128] {
            let range = free.take(len, 1).unwrap().range;
            assert!(range.end - (range.start + len) >= LINE, "{len}");
        }
    }

    #[test]
    fn alignment_leaves_the_gap_before_it_to_others() {
        let mut free = FreeList::new(3 * 4096);
        assert_eq!(free.take(1, 1).unwrap().range.start, 0);
        assert_eq!(free.take(1, 4096).unwrap().range.start, 4096);
        assert_eq!(free.take(1, 1).unwrap().range.start, 128);
    }

    #[test]
    fn a_range_given_back_is_marked_reused_when_taken_again() {
        let mut free = FreeList::new(4096);
        let first = free.take(64, 1).unwrap();
        assert!(!first.reused);
        assert!(!free.take(64, 1).unwrap().reused);
        free.give_back(first.range.clone());
        assert_eq!(free.take(64, 1).unwrap(), Taken { range: first.range, reused: true });
        assert!(!free.take(64, 1).unwrap().reused);
    }

    #[test]
    fn the_largest_length_that_fits_is_exact() {
        let mut free = FreeList::new(1024);
        assert_eq!(free.largest(), 960);
        assert_eq!(free.take(961, 1), None);
        let all = free.take(960, 1).unwrap();
        assert_eq!((free.largest(), free.free(), free.used()), (0, 0, 1024));
        assert_eq!(free.take(1, 1), None);
        free.give_back(all.range);
        assert_eq!((free.largest(), free.used()), (960, 0));
    }

    #[test]
    fn lengths_that_overflow_are_refused() {
        let mut free = FreeList::new(4096);
        for len in [usize::MAX, usize::MAX - 64, usize::MAX / 2 + 1, 4096] {
            assert_eq!(free.take(len, 4096), None, "{len}");
        }
        assert_eq!(free.free(), 4096);
        assert_eq!(FreeList::new(0).take(1, 1), None);
    }

    #[derive(Clone, Debug)]
    enum Step {
        Take { len: usize, align_log2: u32 },
        GiveBack { which: prop::sample::Index },
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let step = prop_oneof![
            3 => (0_usize..3000, 0_u32..=12).prop_map(|(len, align_log2)| Step::Take { len, align_log2 }),
            2 => any::<prop::sample::Index>().prop_map(|which| Step::GiveBack { which }),
        ];
        prop::collection::vec(step, 1..120)
    }

    proptest! {
        #[test]
        fn taken_ranges_never_overlap_and_all_space_comes_back(steps in steps()) {
            const LEN: usize = 64 * 1024;
            let mut free = FreeList::new(LEN);
            let mut out: Vec<Range<usize>> = Vec::new();
            for step in steps {
                match step {
                    Step::Take { len, align_log2 } => {
                        let largest = free.largest();
                        match free.take(len, 1 << align_log2) {
                            Some(Taken { range, .. }) => {
                                prop_assert_eq!(range.start % (1 << align_log2), 0);
                                prop_assert!(range.len() >= len + LINE && range.end <= LEN);
                                prop_assert!(out.iter().all(|o| o.end <= range.start || range.end <= o.start));
                                out.push(range);
                            }
                            None => prop_assert!(len > largest || align_log2 > 6),
                        }
                    }
                    Step::GiveBack { which } if !out.is_empty() => {
                        free.give_back(out.swap_remove(which.index(out.len())));
                    }
                    Step::GiveBack { .. } => {}
                }
                prop_assert_eq!(free.used(), out.iter().map(ExactSizeIterator::len).sum::<usize>());
                prop_assert!(free.gaps.windows(2).all(|pair| pair[0].end < pair[1].start));
            }
            for range in out {
                free.give_back(range);
            }
            prop_assert_eq!(free.gaps, vec![0..LEN]);
        }
    }
}
