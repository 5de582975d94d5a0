//! Many small objects: a store's records of them beside their bytes count, too, and their ends take many turns.

use std::time::Duration;

use farjump_fixtures::allocation::live;
use farjump_handles::{Error, Handle};

use super::Conversation;

/// Bytes of a name.
const NAME: usize = 255;
/// More objects than any store of these conversations holds.
const MOST: usize = 20_000;
/// Length of the leases that end at once.
const LEASE: Duration = Duration::from_millis(10);

impl Conversation {
    /// Fills the store, evicts three of five, lets the leases of the others end at once, and evicts all. Memory and
    /// heap stay within the bound of `docs/security.md`.
    pub(super) fn flood(&mut self) {
        let capacity = self.store.list(0).capacity;
        let (name, before) = ("n".repeat(NAME), live());
        let mut handles: Vec<Handle> = Vec::with_capacity(MOST);
        let own = live();
        for _ in 0..MOST {
            match self.store.put_as(&name, b"1") {
                Ok(handle) => handles.push(handle),
                Err(error) => {
                    assert!(matches!(error, Error::Full { .. }), "{error}");
                    break;
                }
            }
        }
        assert!(handles.len() < MOST, "the store of {capacity} bytes is never full");
        let used = self.store.list(0).used;
        // Claims may take a little more than the capacity.
        assert!(used <= capacity + capacity / 16 + (64 << 10), "{used} bytes of {capacity} are used");
        // Each object also has a line of the store's memory.
        let taken = live() - own + 64 * handles.len() as i64;
        let most = (capacity + capacity / 4 + (1 << 20)) as i64;
        assert!(
            taken <= most,
            "{} objects in a store of {capacity} bytes take {taken} bytes of memory and heap",
            handles.len()
        );
        for handle in handles.iter().enumerate().filter(|(at, _)| at % 5 < 3).map(|(_, handle)| handle) {
            self.store.evict(handle).expect("its own object");
        }
        for handle in handles.iter().enumerate().filter(|(at, _)| at % 5 >= 3).map(|(_, handle)| handle) {
            self.store.lease(handle, Some(LEASE)).expect("it is there");
        }
        std::thread::sleep(LEASE);
        self.owner_puts(64);
        for handle in &handles {
            self.store.evict(handle).expect("its own object");
        }
        drop(handles);
        let left = live() - before;
        assert!(left <= most, "{left} bytes of heap are left of objects that are gone");
    }
}
