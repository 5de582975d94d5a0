//! One object of a store's table.

use std::sync::Arc;
use std::time::Instant;

use crate::allocator::Block;
use crate::table::Source;

/// The state of an object.
#[derive(Debug)]
pub(crate) enum State {
    /// A number without contents.
    Reserved,
    /// Its source is writing the contents.
    Unfinished(Source),
    Present,
    /// Its contents lie in the file, here.
    Spilled(Block),
    /// Gone, but for the claims.
    Evicted,
}

#[derive(Debug)]
pub(crate) struct Object {
    pub(crate) state: State,
    /// Where the contents lie in the region.
    pub(crate) block: Option<Block>,
    /// Of a reserved number: the word that its waiters sleep on.
    pub(crate) word: Option<Block>,
    pub(crate) len: u64,
    pub(crate) type_name: Arc<str>,
    pub(crate) claims: u64,
    /// Of a reserved number that was set: the object that has its contents.
    pub(crate) contents: Option<u64>,
    /// Counted references; `None` if they are not counted.
    pub(crate) references: Option<u64>,
    pub(crate) lease: Option<Instant>,
    pub(crate) last_use: u64,
}

impl Object {
    pub(crate) fn new(state: State, type_name: &str) -> Object {
        Object {
            state,
            block: None,
            word: None,
            len: 0,
            type_name: type_name.into(),
            claims: 0,
            contents: None,
            references: None,
            lease: None,
            last_use: 0,
        }
    }
}
