//! One object of a store's table.

use std::sync::Arc;
use std::time::Instant;

use crate::owner::allocator::Block;
use crate::owner::spill::Direction;
use crate::owner::table::Source;
use crate::owner::table::accounts::{ENTRY, allocated};

/// The state of an object.
#[derive(Debug)]
pub(crate) enum State {
    /// A number without contents.
    Reserved,
    /// Its source is writing the contents.
    Unfinished(Source),
    Present,
    /// Evicted, and only claims keep it.
    Evicted,
}

#[derive(Debug)]
pub(crate) struct Object {
    pub(crate) state: State,
    /// The source that made the object, and that its record is charged to.
    pub(crate) maker: Source,
    /// The place of the contents in the region.
    pub(crate) block: Option<Block>,
    /// The place of the contents in the file.
    pub(crate) place: Option<Block>,
    /// The word that waiters for a reserved number sleep on.
    pub(crate) word: Option<Block>,
    pub(crate) len: u64,
    pub(crate) type_name: Arc<str>,
    pub(crate) claims: u64,
    /// The direction of a copy by the file's thread. Neither block nor place is free before that copy has ended.
    pub(crate) moves: Option<Direction>,
    /// Sources that wait for the object to come from the file. It stays in memory until they have claimed it.
    pub(crate) awaited: u32,
    /// True if the file's copy could not be read.
    pub(crate) is_lost: bool,
    /// The object that has the contents of a reserved number, once that was set.
    pub(crate) contents: Option<u64>,
    /// Counted references; `None` if they are not counted.
    pub(crate) references: Option<u64>,
    pub(crate) lease: Option<Instant>,
    /// The number of the last use, unique to it.
    pub(crate) last_use: u64,
}

impl Object {
    pub(crate) fn new(state: State, maker: Source, type_name: &str) -> Object {
        Object {
            state,
            maker,
            block: None,
            place: None,
            word: None,
            len: 0,
            type_name: type_name.into(),
            claims: 0,
            moves: None,
            awaited: 0,
            is_lost: false,
            contents: None,
            references: None,
            lease: None,
            last_use: 0,
        }
    }

    /// Returns whether the object's memory and record stay even if it is evicted.
    pub(crate) fn is_kept(&self) -> bool {
        self.claims != 0 || self.moves.is_some()
    }

    /// Returns the bytes of the heap that an object takes, if its type's name has `name` bytes: its record, the name,
    /// and its places in the table's maps.
    pub(crate) const fn heap(name: usize) -> u64 {
        // By its number, by its last use, by its lease or its unfinished state, and among those that may go to the file.
        const MAPS: u64 = 4 * ENTRY;
        // A shared text has two counters.
        allocated(size_of::<Object>()) + allocated(name + 16) + MAPS
    }
}
