//! State that a store, its services and its views share: the table, the topics, the file's thread, and turns of them.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use farjump::objects::{ObjectError, RequestState};

use crate::owner::spill::FileThread;
use crate::owner::table::Table;
use crate::owner::topics::Topics;
use crate::region::OwnRegion;
use crate::wire::handle::{Handle, MAX_ADDRESS, MAX_ADDRESSES};
use crate::wire::refusal::NoMemory;

/// The state of a store.
#[derive(Debug)]
pub(crate) struct Shared {
    /// The table's region, for use without the lock.
    region: Arc<OwnRegion>,
    /// The thread of the file, if there is one.
    file: Option<Arc<FileThread>>,
    table: Mutex<Table>,
    /// Locked before the table, where both are locked.
    topics: Mutex<Topics>,
    addresses: Mutex<Arc<[String]>>,
    targets: AtomicU32,
}

impl Shared {
    /// Makes the state of a store with this region and table.
    pub(crate) fn new(region: Arc<OwnRegion>, table: Table) -> Shared {
        Shared {
            region,
            file: table.file_thread().cloned(),
            table: Mutex::new(table),
            topics: Mutex::default(),
            addresses: Mutex::new(Vec::new().into()),
            targets: AtomicU32::new(0),
        }
    }

    /// Returns a number for one more target of the store.
    pub(crate) fn next_target(&self) -> u32 {
        self.targets.fetch_add(1, Ordering::Relaxed)
    }

    /// Does a part of the work that requests and ended sources have left. Returns whether there is more.
    pub(crate) fn continue_work(&self) -> bool {
        let (mut topics, mut table) = (self.topics(), self.table());
        topics.continue_work(&mut table) | table.continue_work()
    }

    /// Locks the table for one turn. Also works after a panic under the lock: each change leaves the table whole.
    pub(crate) fn table(&self) -> MutexGuard<'_, Table> {
        self.table_after(self.failures())
    }

    /// As [`Shared::table`], for a request that was first made after `failures` failures of the file.
    pub(crate) fn table_after(&self, failures: u64) -> MutexGuard<'_, Table> {
        let mut table = self.table.lock().unwrap_or_else(PoisonError::into_inner);
        table.turn.begin(failures);
        table
    }

    /// The thread of the file, if there is one.
    pub(crate) fn file(&self) -> Option<&Arc<FileThread>> {
        self.file.as_ref()
    }

    /// Number of failed writes to the file so far.
    pub(crate) fn failures(&self) -> u64 {
        self.file.as_ref().map_or(0, |file| file.failures())
    }

    /// Locks the topics. Also works after a panic under the lock, as for the table.
    pub(crate) fn topics(&self) -> MutexGuard<'_, Topics> {
        self.topics.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs `act`, which takes memory, in as many turns of the table as it takes to make space. Other threads have
    /// their turns in between.
    pub(crate) fn in_turns<T>(
        &self,
        mut act: impl FnMut(&mut Table) -> Result<T, NoMemory>,
    ) -> Result<T, NoMemory> {
        let failures = self.failures();
        self.until_done(|| {
            let done = act(&mut self.table_after(failures));
            done.as_ref().err().and_then(NoMemory::retry).map_or(Ok(done), Err)
        })
    }

    /// Runs `act` again and again until it is done, and lets other threads have their turns in between.
    pub(crate) fn until_done<T>(&self, mut act: impl FnMut() -> Result<T, RequestState>) -> T {
        loop {
            // Read before `act` uses the table: any job that ends from here on is news.
            let ended = self.file().map_or(0, |file| file.ended());
            match (act(), self.file()) {
                (Ok(done), _) => return done,
                (Err(RequestState::Wait), Some(file)) => file.wait_for_news(ended),
                // Any waiting thread may take the lock.
                (Err(_), _) => std::thread::yield_now(),
            }
        }
    }

    /// Runs `act`, which takes memory, for the running function, which cannot wait for the file.
    pub(crate) fn without_waiting<T>(
        &self,
        mut act: impl FnMut(&mut Table) -> Result<T, NoMemory>,
    ) -> Result<T, ObjectError> {
        loop {
            match act(&mut self.table()) {
                Ok(done) => return Ok(done),
                Err(none) => match none.retry() {
                    Some(RequestState::Wait) => return Err(ObjectError::Spilled),
                    Some(_) => std::thread::yield_now(),
                    None => return Err(ObjectError::Full),
                },
            }
        }
    }

    pub(crate) fn region(&self) -> &OwnRegion {
        &self.region
    }

    /// The addresses for handles.
    pub(crate) fn addresses(&self) -> Arc<[String]> {
        Arc::clone(&self.addresses.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Adds an address, in the form for handles: with the whole path of a socket.
    pub(crate) fn add_address(&self, address: &str) {
        let address = whole(address);
        let mut addresses = self.addresses.lock().unwrap_or_else(PoisonError::into_inner);
        if addresses.contains(&address) {
            return;
        }
        if address.len() > MAX_ADDRESS || addresses.len() == MAX_ADDRESSES {
            log::warn!(
                "{address} is in no handle: they hold {MAX_ADDRESSES} addresses of {MAX_ADDRESS} bytes"
            );
            return;
        }
        *addresses = addresses.iter().cloned().chain([address]).collect();
    }

    /// The handle of an object.
    pub(crate) fn handle(&self, table: &Table, number: u64) -> Option<Handle> {
        let (type_name, len) = table.describe(number)?;
        let (epoch, key) = (table.epoch, table.key(number));
        Some(Handle { epoch, number, len, key, type_name, addresses: self.addresses() })
    }
}

/// Returns the address with the whole path of its socket: a reader has another current directory.
fn whole(address: &str) -> String {
    match address.strip_prefix("unix:") {
        Some(path) if !path.starts_with('@') => match std::path::absolute(path) {
            Ok(path) => format!("unix:{}", path.display()),
            Err(_) => address.to_owned(),
        },
        _ => address.to_owned(),
    }
}
