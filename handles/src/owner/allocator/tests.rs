//! Taking and giving back memory, and the number of steps that this takes.

use super::*;

fn allocator(capacity: u64) -> Allocator {
    Allocator::new(capacity, UNIT)
}

#[test]
fn classes_ascend_and_each_covers_lengths_up_to_the_next() {
    let mut last = (0, 0);
    for units in (1..5000).chain([1 << 30, (1 << 30) + 1, (1 << 30) + (1 << 26), 1 << 40]) {
        let class = class_of(units);
        assert!(class >= last && class.0 < POWERS && class.1 < STEPS as usize, "{units}: {class:?}");
        last = class;
    }
    assert_eq!([15, 16, 31, 32, 33, 34].map(class_of), [(0, 15), (1, 0), (1, 15), (2, 0), (2, 0), (2, 1)]);
}

#[test]
fn memory_is_used_again_the_last_freed_first() {
    let mut memory = allocator(1 << 20);
    let blocks: Vec<_> = (0..10).map(|_| memory.take(1000).unwrap()).collect();
    memory.give_back(blocks[3]);
    memory.give_back(blocks[7]);
    assert_eq!(memory.take(1000), Some(blocks[7]));
    assert_eq!(memory.take(990), Some(blocks[3]));
    assert_ne!(memory.take(1000), Some(blocks[3]));
}

#[test]
fn a_larger_freed_block_is_split_before_fresh_memory_is_touched() {
    let mut memory = allocator(1 << 20);
    let large = memory.take(64 * 16).unwrap();
    let behind = memory.take(64).unwrap();
    memory.give_back(large);
    let parts: Vec<_> = (0..16).map(|_| memory.take(64).unwrap().offset()).collect();
    assert!(parts.iter().all(|offset| *offset < behind.offset()), "{parts:?}");
    assert!(memory.take(64).unwrap().offset() > behind.offset());
}

#[test]
fn a_freed_last_block_is_used_before_fresh_memory_behind_it() {
    let mut memory = allocator(1 << 20);
    let (first, last) = (memory.take(64).unwrap(), memory.take(640).unwrap());
    memory.give_back(last);
    assert_eq!(memory.take(64).unwrap().offset(), last.offset());
    // This object is longer than the free block there: it takes that block, and fresh memory behind it.
    assert_eq!(memory.take(6400).unwrap().offset(), last.offset() + 64);
    assert_eq!(first.offset(), 0);
}

#[test]
fn free_neighbours_are_merged_when_they_are_freed() {
    let mut random = fastrand::Rng::with_seed(3);
    let mut memory = allocator(64 * 64);
    let mut small: Vec<_> = (0..64).map(|_| memory.take(64).unwrap()).collect();
    assert_eq!((memory.take(1), memory.used(), memory.largest()), (None, 4096, 0));
    random.shuffle(&mut small);
    small.iter().for_each(|block| memory.give_back(*block));
    assert_eq!(memory.largest(), 4096);
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
    let mut memory = allocator(1 << 18);
    let mut taken: Vec<Block> = Vec::new();
    for _ in 0..20_000 {
        if random.bool() && !taken.is_empty() {
            memory.give_back(taken.swap_remove(random.usize(..taken.len())));
        } else if let Some(block) = memory.take(random.u64(0..9000)) {
            taken.push(block);
        }
        assert_eq!(memory.used(), taken.iter().map(|block| block.len()).sum::<u64>());
        assert!(memory.largest() <= memory.capacity() - memory.used());
    }
    taken.sort_by_key(|block| block.offset());
    assert!(taken.windows(2).all(|pair| pair[0].offset() + pair[0].len() <= pair[1].offset()));
    assert!(taken.last().is_none_or(|last| last.offset() + last.len() <= 1 << 18));
    taken.drain(..).for_each(|block| memory.give_back(block));
    assert_eq!((memory.used(), memory.largest()), (0, 1 << 18));
    assert_eq!(memory.powers.count_ones(), 1, "one free block");
}

#[test]
fn the_largest_object_that_it_states_finds_memory() {
    let mut random = fastrand::Rng::with_seed(9);
    let mut memory = allocator(1 << 18);
    let mut taken: Vec<Block> = Vec::new();
    for _ in 0..3000 {
        if random.u8(..) < 120 && !taken.is_empty() {
            memory.give_back(taken.swap_remove(random.usize(..taken.len())));
        } else if let Some(block) = memory.take(random.u64(0..5000)) {
            taken.push(block);
        }
        let largest = memory.largest();
        if largest != 0 {
            let block = memory.take(largest).unwrap();
            memory.give_back(block);
        }
    }
}

/// A flood of free parts: as many as there can be, none of them long enough.
#[test]
fn allocator_steps_do_not_grow_with_the_number_of_free_blocks() {
    const MOST: u64 = LOOKS as u64 + 3;
    let mut most = Vec::new();
    for count in [10, 100_000] {
        let mut memory = allocator(count * 5 * UNIT);
        let blocks: Vec<_> = std::iter::from_fn(|| memory.take(1)).collect();
        assert_eq!(blocks.len() as u64, count * 5);
        let mut longest = 0;
        let mut steps = |memory: &mut Allocator, act: &mut dyn FnMut(&mut Allocator)| {
            let before = memory.visits();
            act(memory);
            longest = longest.max(memory.visits() - before);
        };
        for (number, block) in blocks.iter().enumerate() {
            if [1, 3, 4].contains(&(number % 5)) {
                steps(&mut memory, &mut |memory| memory.give_back(*block));
            }
        }
        // Free parts of one and of two units lie between the others, but none of three.
        for _ in 0..64 {
            steps(&mut memory, &mut |memory| {
                assert_eq!((memory.take(129), memory.largest()), (None, 2 * UNIT));
            });
        }
        for _ in 0..count {
            steps(&mut memory, &mut |memory| assert!(memory.take(65).is_some()));
        }
        most.push(longest);
    }
    assert!(most[0] == most[1] && most[1] <= MOST, "{most:?}");
}
