//! The functions that work on resident data, the data, and the results by independent computation.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::program::failure::Failure;

/// A function that works on resident data.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Query {
    /// Adds up a column.
    Column,
    /// Counts the numbers of a column between two bounds.
    Filter,
    /// Finds the nearest vector.
    Nearest,
    /// Finds the 16 largest numbers of a column.
    TopK,
    /// Walks 64 nodes of a linked list.
    List,
}

/// Nodes of a list that a walk visits.
pub(super) const STEPS: usize = 64;
/// Bytes of a node, a line.
pub(super) const NODE: usize = 64;
/// Bytes of a node that a walk needs: the next node's number and the value.
pub(super) const NODE_HEAD: usize = 16;
/// Numbers of a vector, and its bytes.
const VECTOR: usize = 16;
const VECTOR_BYTES: usize = 4 * VECTOR;
/// Numbers that `top-k` finds.
const TOP: usize = 16;
/// The least and the greatest length of data.
pub(crate) const SHORTEST: usize = 4 << 10;
pub(crate) const LONGEST: usize = 256 << 20;

/// The arguments and the result of one call.
#[derive(Clone, Copy)]
pub(super) struct Job {
    pub(super) args: &'static [u8],
    pub(super) result: &'static [u8],
}

/// The calls of a function on data of one length, which differ where a call reads a part of the data.
#[derive(Clone, Copy)]
pub(super) struct Jobs {
    /// Arguments and results of all calls, which have the same lengths.
    args: &'static [u8],
    results: &'static [u8],
    /// Number of different calls, a power of two.
    count: usize,
}

thread_local! {
    /// The jobs made so far.
    static JOBS: RefCell<BTreeMap<(Query, usize), Jobs>> = const { RefCell::new(BTreeMap::new()) };
}

impl Jobs {
    /// No call yet.
    pub(super) const NONE: Jobs = Jobs { args: &[], results: &[], count: 1 };

    /// Returns call number `turn`. After the last different one comes the first again.
    #[inline]
    pub(super) fn nth(self, turn: usize) -> Job {
        let (at, shift) = (turn & (self.count - 1), self.count.trailing_zeros());
        let one = |all: &'static [u8]| {
            let len = all.len() >> shift;
            &all[at * len..][..len]
        };
        Job { args: one(self.args), result: one(self.results) }
    }
}

impl Query {
    pub(crate) const ALL: [Query; 5] =
        [Query::Column, Query::Filter, Query::Nearest, Query::TopK, Query::List];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Query::Column => "column",
            Query::Filter => "filter",
            Query::Nearest => "nearest",
            Query::TopK => "top-k",
            Query::List => "list",
        }
    }

    /// Returns NAME of its routines, and its source.
    pub(crate) fn source(self) -> (&'static str, &'static str) {
        match self {
            Query::Column => ("column", include_str!("column.c")),
            Query::Filter => ("filter", include_str!("filter.c")),
            Query::Nearest => ("nearest", include_str!("nearest.c")),
            Query::TopK => ("top_k", include_str!("top_k.c")),
            Query::List => ("list", include_str!("list.c")),
        }
    }

    /// Returns arguments and results for data of `size` bytes, made once. They are leaked, as UCX may read
    /// the data of an operation that timed out at any later time.
    pub(super) fn jobs(self, size: usize) -> Jobs {
        let make = || {
            let (args, results) = match self {
                Query::List => walks(size),
                _ => (self.args(), self.result(size)),
            };
            let count = if self == Query::List { size / NODE / STEPS } else { 1 };
            Jobs { args: args.leak(), results: results.leak(), count }
        };
        JOBS.with_borrow_mut(|made| *made.entry((self, size)).or_insert_with(make))
    }

    fn args(self) -> Vec<u8> {
        match self {
            // The arguments of a list are those of its walks.
            Query::Column | Query::TopK | Query::List => Vec::new(),
            // A quarter of all numbers.
            Query::Filter => [1_u64 << 62, 1 << 63].map(u64::to_le_bytes).concat(),
            Query::Nearest => wanted().map(i32::to_le_bytes).concat(),
        }
    }

    /// Returns one word of data of `size` bytes.
    fn word(self, size: usize, at: usize) -> u64 {
        let at = at as u64;
        match self {
            Query::Column | Query::Filter | Query::TopK => noise(at),
            Query::Nearest => noise(at) & 0xff_0000_00ff,
            Query::List => match at % 8 {
                0 => next(size, at / 8),
                1 => noise(at / 8),
                _ => 0,
            },
        }
    }

    /// Writes data of `size` bytes, a multiple of 8, to `start`.
    ///
    /// # Safety
    /// `start` is aligned to 8 bytes and has `size` writable bytes, to which there are no references.
    pub(in crate::perf::experiments::work) unsafe fn fill(self, start: *mut u8, size: usize) {
        let words = start.cast::<u64>();
        for at in 0..size / 8 {
            // SAFETY: the caller vouches for `size` bytes, and `at` is below their number of words.
            unsafe { words.add(at).write(self.word(size, at)) };
        }
    }

    /// Computes the result from the arguments, without the data.
    fn result(self, size: usize) -> Vec<u8> {
        let numbers = || (0..size as u64 / 8).map(noise);
        match self {
            Query::Column => numbers().fold(0, u64::wrapping_add).to_le_bytes().to_vec(),
            Query::Filter => {
                let found = numbers().filter(|number| number >> 62 == 1).count() as u64;
                found.to_le_bytes().to_vec()
            }
            Query::TopK => {
                let mut top: Vec<u64> = numbers().filter(|number| *number >= likely_top(size)).collect();
                top.sort_unstable_by(|one, other| other.cmp(one));
                top.into_iter().take(TOP).flat_map(u64::to_le_bytes).collect()
            }
            Query::Nearest => {
                let wanted = wanted();
                let distance = |vector: usize| {
                    let numbers = (0..VECTOR / 2).flat_map(|pair| {
                        let word = self.word(size, vector * VECTOR / 2 + pair);
                        [word as u32, (word >> 32) as u32]
                    });
                    let squares = numbers.zip(wanted).map(|(number, wanted)| {
                        let apart = i64::from(number) - i64::from(wanted);
                        (apart * apart) as u64
                    });
                    squares.sum::<u64>()
                };
                let nearest = (0..size / VECTOR_BYTES).map(|vector| (distance(vector), vector as u64)).min();
                let (distance, vector) = nearest.unwrap_or_default();
                [vector, distance].map(u64::to_le_bytes).concat()
            }
            Query::List => Vec::new(),
        }
    }
}

/// Checks that data can have this length.
///
/// # Errors
/// A sentence for the user.
pub(crate) fn check_size(size: usize) -> Result<(), Failure> {
    match (SHORTEST..=LONGEST).contains(&size) && size.is_power_of_two() {
        true => Ok(()),
        false => Err(Failure::new(format!(
            "{size} B: resident data are powers of two from 4K to 256M, so that a list goes through all of them"
        ))),
    }
}

/// Returns whether this is the name of a function on resident data.
pub(crate) fn is_resident(function: &str) -> bool {
    Query::ALL.iter().any(|query| query.name() == function)
}

impl fmt::Display for Query {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.name())
    }
}

/// Returns pseudo-random number `at`, by SplitMix64.
fn noise(at: u64) -> u64 {
    let mut word = (at + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

/// Returns the vector whose nearest one is wanted.
fn wanted() -> [i32; VECTOR] {
    std::array::from_fn(|at| (noise(u64::MAX / 2 + at as u64) & 0xff) as i32)
}

/// Returns the first nodes of all walks, and their sums. A walk begins where the previous one ended, so that
/// together they visit each node once.
fn walks(size: usize) -> (Vec<u8>, Vec<u8>) {
    let mut at = 0;
    let walks = (0..size / NODE / STEPS).map(|_| {
        let (first, mut total) = (at, 0_u64);
        for _ in 0..STEPS {
            total = total.wrapping_add(noise(at));
            at = next(size, at);
        }
        (first.to_le_bytes(), total.to_le_bytes())
    });
    let (firsts, totals): (Vec<_>, Vec<_>) = walks.unzip();
    (firsts.concat(), totals.concat())
}

/// Returns the node behind node `at`. One cycle goes through all nodes, a power of two of them, in an order
/// that no prefetcher foresees.
fn next(size: usize, at: u64) -> u64 {
    at.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f) % (size / NODE) as u64
}

/// Returns a number that at least 16 of the data's, and about 64, are not below.
fn likely_top(size: usize) -> u64 {
    let numbers = size as u64 / 8;
    u64::MAX - (u64::MAX / numbers).saturating_mul(64.min(numbers))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_walks_of_a_list_visit_each_node_once_and_begin_anew() {
        for size in [SHORTEST, 1 << 20] {
            let jobs = Query::List.jobs(size);
            let mut seen = vec![false; size / NODE];
            for walk in 0..size / NODE / STEPS {
                let mut at = first(jobs.nth(walk));
                for _ in 0..STEPS {
                    assert!(!std::mem::replace(&mut seen[at as usize], true), "{at}");
                    at = next(size, at);
                }
                assert_eq!(at, first(jobs.nth(walk + 1)));
            }
            assert!(seen.into_iter().all(|seen| seen));
        }
    }

    fn first(job: Job) -> u64 {
        u64::from_le_bytes(job.args.try_into().expect("a walk has the number of its first node"))
    }

    #[test]
    fn results_are_those_of_the_data() {
        for query in Query::ALL {
            for size in [SHORTEST, 1 << 16] {
                let mut words = vec![0_u64; size / 8];
                // SAFETY: the vector has this many bytes, aligned to 8.
                unsafe { query.fill(words.as_mut_ptr().cast(), size) };
                let job = query.jobs(size).nth(3);
                let result: Vec<u64> =
                    job.result.as_chunks().0.iter().copied().map(u64::from_le_bytes).collect();
                let mut sorted = words.clone();
                sorted.sort_unstable();
                match query {
                    Query::Column => assert_eq!(result, [words.iter().copied().fold(0, u64::wrapping_add)]),
                    Query::Filter => {
                        let found = sorted.partition_point(|number| *number < 1 << 63)
                            - sorted.partition_point(|number| *number < 1 << 62);
                        assert_eq!(result, [found as u64]);
                    }
                    Query::TopK => {
                        let top: Vec<_> = sorted.iter().rev().take(TOP).copied().collect();
                        assert_eq!(result, top);
                    }
                    Query::Nearest => {
                        let wanted = wanted().map(|number| number as u64);
                        let distance = |vector: &[u64]| {
                            let numbers = vector.iter().flat_map(|word| [word & 0xffff_ffff, word >> 32]);
                            let apart = numbers.zip(wanted).map(|(one, other)| one.abs_diff(other));
                            apart.map(|apart| apart * apart).sum::<u64>()
                        };
                        let distances: Vec<_> = words.chunks(VECTOR / 2).map(distance).collect();
                        let least = distances.iter().copied().min().expect("there are vectors");
                        let first = distances.iter().position(|distance| *distance == least);
                        assert_eq!(result, [first.expect("it is one of them") as u64, least]);
                    }
                    Query::List => {
                        let (mut at, mut total) = (first(job) as usize, 0_u64);
                        for _ in 0..STEPS {
                            total = total.wrapping_add(words[at * 8 + 1]);
                            at = words[at * 8] as usize;
                        }
                        assert_eq!(result, [total]);
                    }
                }
            }
        }
    }
}
