//! The objects of a target's store, as it lists them.

use serde::{Deserialize, Serialize};

/// The objects of a target's store.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct ObjectListing {
    /// The objects of the latest use, at most [`MAX_LISTED`](crate::MAX_LISTED).
    pub objects: Vec<StoredObject>,
    /// Number of objects not listed.
    pub left_out: u64,
    /// Bytes of the store's memory in use.
    pub used: u64,
    /// Bytes of the store's memory.
    pub capacity: u64,
    /// Bytes in quarantine: used memory of ended links, which is free when their processes have let go of it.
    /// Memory that two links claim counts twice. The number covers all of it, even if not all keepers are
    /// listed.
    pub quarantined: u64,
    /// The processes that keep memory of ended links, at most [`MAX_LISTED`](crate::MAX_LISTED); those that ended first come
    /// first.
    pub keepers: Vec<MemoryKeeper>,
}

/// A process whose link has ended, and that may still use memory of the store: it, or a process that it forked, has the
/// descriptor of the link's control connection.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct MemoryKeeper {
    /// Name of the program; text for people.
    pub program: String,
    /// Its process id when it connected; 0 if it has none in the target's PID namespace.
    pub pid: u32,
    /// Bytes of the objects that the link had claimed or not finished.
    pub bytes: u64,
}

/// One object of a store.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct StoredObject {
    /// Its number.
    pub number: u64,
    /// Length in bytes.
    pub len: u64,
    /// The name of its type, as its maker gave it; text for people.
    pub type_name: String,
    /// Readers and calls that use it now.
    pub claims: u64,
    /// Counted references to it; 0 if they are not counted.
    pub references: u64,
    /// Time left of its lease, in nanoseconds; `None` if it has none.
    pub lease_ns: Option<u64>,
    /// Its state.
    pub state: ObjectState,
}

/// The state of an object.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum ObjectState {
    /// It is reserved, and has no contents yet.
    Reserved,
    /// Its contents are written.
    Unfinished,
    /// It can be read.
    Present,
    /// It lies in a file, because memory is short.
    Spilled,
    /// It is evicted, and readers still use it.
    Evicted,
}
