//! What a store, its services and its views share: the table, the topics, the file's thread, and turns of them.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use farjump::objects::{Answer, ObjectError};

use crate::handle::{Handle, MAX_ADDRESS, MAX_ADDRESSES};
use crate::refusal::NoMemory;
use crate::region::OwnRegion;
use crate::spill::FileThread;
use crate::table::Table;
use crate::topics::Topics;

/// A store, whoever uses it.
#[derive(Debug)]
pub(crate) struct Shared {
    /// The same as the table's, where no lock is needed to see it.
    region: Arc<OwnRegion>,
    /// The thread of the file, if there is one.
    file: Option<Arc<FileThread>>,
    table: Mutex<Table>,
    /// Locked before the table where both are.
    topics: Mutex<Topics>,
    addresses: Mutex<Arc<[String]>>,
    targets: AtomicU32,
}

impl Shared {
    /// A store of these objects.
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

    /// A number for one more target of the store.
    pub(crate) fn next_target(&self) -> u32 {
        self.targets.fetch_add(1, Ordering::Relaxed)
    }

    /// Does a part of what requests and ended sources have left. Returns whether there is more.
    pub(crate) fn go_on(&self) -> bool {
        let (mut topics, mut table) = (self.topics(), self.table());
        topics.go_on(&mut table) | table.go_on()
    }

    /// Locks the table for one turn of it. Also after a panic under the lock: the table is whole between its own changes.
    pub(crate) fn table(&self) -> MutexGuard<'_, Table> {
        self.table_after(self.failures())
    }

    /// As [`Shared::table`], for something that was asked for first after so many failures of the file.
    pub(crate) fn table_after(&self, failures: u64) -> MutexGuard<'_, Table> {
        let mut table = self.table.lock().unwrap_or_else(PoisonError::into_inner);
        table.turn.begin(failures);
        table
    }

    /// The thread of the file, if there is one.
    pub(crate) fn file(&self) -> Option<&Arc<FileThread>> {
        self.file.as_ref()
    }

    /// Objects that could not be written to the file so far.
    pub(crate) fn failures(&self) -> u64 {
        self.file.as_ref().map_or(0, |file| file.failures())
    }

    /// Also after a panic under the lock, as the table.
    pub(crate) fn topics(&self) -> MutexGuard<'_, Topics> {
        self.topics.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does what takes memory, in as many turns of the table as it takes to make space. Others have theirs in between.
    pub(crate) fn in_turns<T>(
        &self,
        mut act: impl FnMut(&mut Table) -> Result<T, NoMemory>,
    ) -> Result<T, NoMemory> {
        let failures = self.failures();
        self.until_done(|| {
            let done = act(&mut self.table_after(failures));
            done.as_ref().err().and_then(NoMemory::goes_on).map_or(Ok(done), Err)
        })
    }

    /// Does something again and again until it is done, and lets others have their turns in between.
    pub(crate) fn until_done<T>(&self, mut act: impl FnMut() -> Result<T, Answer>) -> T {
        loop {
            // Read before the table is asked: what ends from here on is news.
            let ended = self.file().map_or(0, |file| file.ended());
            match (act(), self.file()) {
                (Ok(done), _) => return done,
                (Err(Answer::Wait), Some(file)) => file.wait_for_news(ended),
                // The lock is given to whoever is there.
                (Err(_), _) => std::thread::yield_now(),
            }
        }
    }

    /// Does what takes memory for the function that runs, which cannot wait for the file.
    pub(crate) fn without_waiting<T>(
        &self,
        mut act: impl FnMut(&mut Table) -> Result<T, NoMemory>,
    ) -> Result<T, ObjectError> {
        loop {
            match act(&mut self.table()) {
                Ok(done) => return Ok(done),
                Err(none) => match none.goes_on() {
                    Some(Answer::Wait) => return Err(ObjectError::Spilled),
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

    /// Adds an address, as handles can hold it: with the whole path of a socket.
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

/// The address with the whole path of its socket: a reader has another current directory.
fn whole(address: &str) -> String {
    match address.strip_prefix("unix:") {
        Some(path) if !path.starts_with('@') => match std::path::absolute(path) {
            Ok(path) => format!("unix:{}", path.display()),
            Err(_) => address.to_owned(),
        },
        _ => address.to_owned(),
    }
}
