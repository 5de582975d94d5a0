//! One object of a store's table.

use std::sync::Arc;
use std::time::Instant;

use crate::accounts::{ENTRY, allocated};
use crate::allocator::Block;
use crate::spill::Way;
use crate::table::Source;

/// The state of an object.
#[derive(Debug)]
pub(crate) enum State {
    /// A number without contents.
    Reserved,
    /// Its source is writing the contents.
    Unfinished(Source),
    Present,
    /// Gone, but for the claims.
    Evicted,
}

#[derive(Debug)]
pub(crate) struct Object {
    pub(crate) state: State,
    /// The source that made it, and that its record is charged to.
    pub(crate) maker: Source,
    /// Where the contents lie in the region.
    pub(crate) block: Option<Block>,
    /// Where the contents lie in the file.
    pub(crate) place: Option<Block>,
    /// Of a reserved number: the word that its waiters sleep on.
    pub(crate) word: Option<Block>,
    pub(crate) len: u64,
    pub(crate) type_name: Arc<str>,
    pub(crate) claims: u64,
    /// The thread of the file copies it: neither its block nor its place is free before that has ended.
    pub(crate) moves: Option<Way>,
    /// Sources that wait for it to come from the file. It stays in memory until they have claimed it.
    pub(crate) awaited: u32,
    /// It could not be read from its place in the file.
    pub(crate) is_lost: bool,
    /// Of a reserved number that was set: the object that has its contents.
    pub(crate) contents: Option<u64>,
    /// Counted references; `None` if they are not counted.
    pub(crate) references: Option<u64>,
    pub(crate) lease: Option<Instant>,
    /// The number of its last use, which no other has.
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

    /// Whether its memory and its record stay, also if it is evicted.
    pub(crate) fn is_kept(&self) -> bool {
        self.claims != 0 || self.moves.is_some()
    }

    /// Bytes of the heap that an object takes whose type has a name of so many bytes: its record, the name, and its places in
    /// the table's maps.
    pub(crate) const fn heap(name: usize) -> u64 {
        // By its number, by its last use, by its lease or its unfinished state, and among those that may go to the file.
        const MAPS: u64 = 4 * ENTRY;
        // A shared text has two counters.
        allocated(size_of::<Object>()) + allocated(name + 16) + MAPS
    }
}
