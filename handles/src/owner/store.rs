//! Stores: objects that this process owns.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use farjump::config::{Config, Origin, StoreConfig};
use farjump::objects::{FIRST_PAGE, ObjectListing};
use farjump_os::resources;

use crate::client::view::View;
use crate::error::{Error, GoneWhy};
use crate::owner::service::Service;
use crate::owner::shared::Shared;
use crate::owner::spill::Spill;
use crate::owner::table::{Source, Table};
use crate::region::OwnRegion;
use crate::wire::handle::{Handle, MAX_TYPE_NAME};
use crate::wire::refusal::{ClaimFailed, Refusal};

/// Default capacity of a store in bytes, if the process may use twice as many.
pub const DEFAULT_CAPACITY: u64 = 1 << 30;

/// A [`Store`] to be made.
#[derive(Clone, Debug, Default)]
#[must_use]
pub struct StoreOptions {
    config: StoreConfig,
}

/// Returns the default capacity of a store in bytes, if the process may use `memory` bytes.
fn capacity_within(memory: u64) -> u64 {
    DEFAULT_CAPACITY.min(memory / 2)
}

impl StoreOptions {
    /// Takes these options, in place of all that were set before.
    pub fn config(mut self, config: StoreConfig) -> Self {
        self.config = config;
        self
    }

    /// Most bytes of the objects ([`StoreConfig::capacity`]).
    pub fn capacity(mut self, bytes: u64) -> Self {
        self.config.capacity = Some(bytes);
        self
    }

    /// The folder of a file for objects that memory has no space for, and its most bytes
    /// ([`StoreConfig::spill_folder`]).
    pub fn spill(mut self, folder: impl Into<PathBuf>, bytes: u64) -> Self {
        (self.config.spill_folder, self.config.spill_bytes) = (Some(folder.into()), Some(bytes));
        self
    }

    /// A further address for the handles ([`StoreConfig::address`]).
    pub fn address(mut self, address: impl Into<String>) -> Self {
        self.config.address.push(address.into());
        self
    }

    /// Makes the store.
    ///
    /// # Errors
    /// [`Error::Link`] for an option out of range; [`Error::Memory`], [`Error::File`] for a folder in which no file can be
    /// made.
    pub fn build(self) -> Result<Store, Error> {
        let config = self.config;
        config.check(|_| Origin::Program).map_err(farjump::Error::from)?;
        let capacity = config.capacity.unwrap_or_else(|| capacity_within(resources::memory()));
        let region = Arc::new(OwnRegion::create(capacity)?);
        let spill = config.spill_folder.zip(config.spill_bytes);
        let spill = spill.map(|(folder, bytes)| Spill::create(&folder, bytes, Arc::clone(&region)));
        let spill = spill.transpose()?;
        let mut random = [0; 40];
        fill_random(&mut random)?;
        let mut secret = [0; 32];
        secret.copy_from_slice(&random[..32]);
        let mut epoch = [0; 8];
        epoch.copy_from_slice(&random[32..]);
        let table = Table::new(Arc::clone(&region), spill, u64::from_le_bytes(epoch), secret);
        let shared = Shared::new(region, table);
        for address in &config.address {
            shared.add_address(address);
        }
        Ok(Store(Arc::new(shared)))
    }
}

fn fill_random(bytes: &mut [u8]) -> Result<(), Error> {
    let mut filled = 0;
    while filled < bytes.len() {
        let flags = rustix::rand::GetRandomFlags::empty();
        filled += rustix::rand::getrandom(&mut bytes[filled..], flags).map_err(|errno| Error::Memory {
            doing: "drawing the secret of",
            len: 0,
            source: errno.into(),
            advice: String::new(),
        })?;
    }
    Ok(())
}

/// Objects that this process owns. Clones share the same store.
///
/// Attach it to a target ([`Store::service`]), and other processes reach the objects by the handles that
/// [`Store::put`] returns.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let socket = std::env::temp_dir().join(format!("farjump-doc-store-{}", std::process::id()));
/// # let address = format!("unix:{}", socket.display());
/// use farjump_handles::{Client, Store};
///
/// let store = Store::new()?;
/// let target = farjump::Target::listen(&address).objects(store.service()).build()?.spawn()?;
/// let handle = store.put(b"some bytes")?;
///
/// // In another process, which was given handle.to_bytes():
/// let client = Client::connect(&address)?;
/// assert_eq!(&*client.get(&handle)?, b"some bytes");
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Store(pub(crate) Arc<Shared>);

/// Memory of an object that is being written. If it is dropped before it is finished, the object is abandoned.
struct Writing<'s> {
    shared: &'s Shared,
    number: u64,
    is_finished: bool,
}

impl Drop for Writing<'_> {
    fn drop(&mut self) {
        if !self.is_finished {
            self.shared.table().abandon(self.number);
        }
    }
}

impl Store {
    /// Makes a store of up to [`DEFAULT_CAPACITY`] bytes, or half of the memory that the process may use.
    ///
    /// # Errors
    /// As [`StoreOptions::build`].
    pub fn new() -> Result<Store, Error> {
        Store::options().build()
    }

    /// Returns the options of a new store.
    pub fn options() -> StoreOptions {
        StoreOptions::default()
    }

    /// The store for a target: [`TargetBuilder::objects`](farjump::TargetBuilder::objects). Several targets may have the same
    /// store.
    pub fn service(&self) -> Service {
        Service::new(Arc::clone(&self.0), self.0.next_target())
    }

    /// Copies `bytes` into the store.
    ///
    /// # Errors
    /// [`Error::Full`].
    pub fn put(&self, bytes: &[u8]) -> Result<Handle, Error> {
        self.put_as("", bytes)
    }

    /// As [`Store::put`], with a name for the type, of at most 255 bytes.
    ///
    /// # Errors
    /// [`Error::Full`], [`Error::TypeName`].
    pub fn put_as(&self, type_name: &str, bytes: &[u8]) -> Result<Handle, Error> {
        self.put_with(type_name, bytes.len(), |into| into.copy_from_slice(bytes))
    }

    /// Makes an object of `len` bytes, which `write` fills in place. The bytes are not zeroed before: they may be those
    /// of an evicted object.
    ///
    /// # Errors
    /// As [`Store::put_as`].
    pub fn put_with(
        &self,
        type_name: &str,
        len: usize,
        write: impl FnOnce(&mut [u8]),
    ) -> Result<Handle, Error> {
        let put = self.try_put_with(type_name, len, |into| {
            write(into);
            Ok(())
        });
        put.map_err(|error: Error| error)
    }

    /// As [`Store::put_with`]. If `write` fails, no object is made.
    fn try_put_with(
        &self,
        type_name: &str,
        len: usize,
        write: impl FnOnce(&mut [u8]) -> Result<(), Error>,
    ) -> Result<Handle, Error> {
        check_type_name(type_name)?;
        let (number, data) = self.0.in_turns(|table| {
            let (number, offset) = table.allocate(Source::Owner, len as u64, type_name)?;
            Ok((number, table.region().region.at(offset, len as u64).expect("blocks lie in the region")))
        })?;
        let mut writing = Writing { shared: &self.0, number, is_finished: false };
        // SAFETY: the block is this call's until it is committed, and its `len` bytes are mapped as long as the store.
        write(unsafe { std::slice::from_raw_parts_mut(data.as_ptr(), len) })?;
        writing.is_finished = true;
        let mut table = self.0.table();
        let number = writing.number;
        table.commit(Source::Owner, number).map_err(|refusal| self.refused(number, refusal))?;
        self.0.handle(&table, number).ok_or(Error::Gone { number, why: GoneWhy::Evicted })
    }

    /// Copies a file into the store: later changes of the file concern no reader.
    ///
    /// # Errors
    /// [`Error::File`], also if the file became shorter meanwhile; [`Error::Full`].
    pub fn put_file(&self, path: impl AsRef<Path>) -> Result<Handle, Error> {
        let path = path.as_ref();
        let failed = |source| Error::File { path: path.to_path_buf(), source };
        let mut file = File::open(path).map_err(failed)?;
        let metadata = file.metadata().map_err(failed)?;
        if !metadata.is_file() {
            return Err(failed(std::io::Error::other("is no regular file: read it, and put its bytes")));
        }
        let len = usize::try_from(metadata.len()).map_err(|error| failed(std::io::Error::other(error)))?;
        self.try_put_with("", len, |into| file.read_exact(into).map_err(failed))
    }

    /// The bytes of an object of this store. They stay as long as the view, even if the object is evicted.
    ///
    /// # Errors
    /// [`Error::Gone`], [`Error::WrongKey`], [`Error::Unset`], [`Error::Full`] if it cannot be read back from its file.
    pub fn get(&self, handle: &Handle) -> Result<View, Error> {
        self.check(handle)?;
        let (claimed, data) =
            self.0.in_turns(|table| match table.claim(Source::Owner, handle.number, handle.key) {
                Ok(claimed) => {
                    let data = table.region().region.at(claimed.offset, claimed.len);
                    Ok(Ok((claimed, data.expect("blocks lie in the region"))))
                }
                Err(ClaimFailed::Refused(refusal)) => Ok(Err(self.refused(handle.number, refusal))),
                Err(ClaimFailed::NoMemory(none)) => Err(none),
            })??;
        Ok(View::of_store(Arc::clone(&self.0), data, claimed))
    }

    /// Evicts an object: later readers find it gone, and present readers keep it. Returns whether the object existed.
    ///
    /// # Errors
    /// [`Error::WrongKey`].
    pub fn evict(&self, handle: &Handle) -> Result<bool, Error> {
        if self.check(handle).is_err() {
            return Ok(false);
        }
        let evicted = self.0.table().evict(handle.number, handle.key);
        evicted.map_err(|refusal| self.refused(handle.number, refusal))
    }

    /// Returns whether the object exists or is reserved.
    ///
    /// # Errors
    /// [`Error::WrongKey`].
    pub fn exists(&self, handle: &Handle) -> Result<bool, Error> {
        if self.check(handle).is_err() {
            return Ok(false);
        }
        let exists = self.0.table().exists(handle.number, handle.key);
        exists.map_err(|refusal| self.refused(handle.number, refusal))
    }

    /// Makes a handle whose object gets its contents later ([`Store::set`]).
    ///
    /// # Errors
    /// [`Error::Full`], [`Error::TypeName`].
    pub fn reserve(&self, type_name: &str) -> Result<Handle, Error> {
        check_type_name(type_name)?;
        self.0.in_turns(|table| {
            let number = table.reserve(Source::Owner, type_name)?;
            Ok(self.0.handle(table, number).ok_or(Error::Gone { number, why: GoneWhy::Evicted }))
        })?
    }

    /// Gives a reserved object contents, in place of its present ones.
    ///
    /// # Errors
    /// [`Error::NotReserved`], [`Error::Full`], [`Error::Gone`], [`Error::WrongKey`].
    pub fn set(&self, handle: &Handle, bytes: &[u8]) -> Result<(), Error> {
        self.check(handle)?;
        self.0.in_turns(|table| {
            let (contents, offset) = table.allocate(Source::Owner, bytes.len() as u64, &handle.type_name)?;
            let data =
                table.region().region.at(offset, bytes.len() as u64).expect("blocks lie in the region");
            // SAFETY: the block was just allocated, and the table is locked.
            unsafe { data.as_ptr().copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
            Ok(table.set(Source::Owner, handle.number, handle.key, contents).map_err(|refusal| {
                table.abandon(contents);
                self.refused(handle.number, refusal)
            }))
        })?
    }

    /// Evicts the object when `time` is over. `None` removes the limit.
    ///
    /// # Errors
    /// [`Error::Gone`], [`Error::WrongKey`].
    pub fn lease(&self, handle: &Handle, time: Option<Duration>) -> Result<(), Error> {
        self.check(handle)?;
        // A lease of no time at all gets the least time.
        let time = time.map_or(Duration::ZERO, |time| time.max(Duration::from_nanos(1)));
        let leased = self.0.table().lease(handle.number, handle.key, time);
        leased.map_err(|refusal| self.refused(handle.number, refusal))
    }

    /// Adds `difference` to the object's count of references, which begins at 0, and returns the new count. The store
    /// evicts the object when the count comes to 0. See [`Counted`](crate::Counted).
    ///
    /// # Errors
    /// [`Error::Gone`], [`Error::WrongKey`].
    pub fn count(&self, handle: &Handle, difference: i64) -> Result<u64, Error> {
        self.check(handle)?;
        let counted = self.0.table().count(handle.number, handle.key, difference);
        counted.map_err(|refusal| self.refused(handle.number, refusal))
    }

    /// Lists at most `most` objects, those of the latest use first. Concurrent changes may or may not show.
    pub fn list(&self, most: usize) -> ObjectListing {
        let (mut listed, mut next) = (ObjectListing::default(), Some(FIRST_PAGE));
        while let Some(from) = next {
            let page = self.0.table().list(from, most - listed.objects.len());
            next = page.add_to(&mut listed).filter(|_| listed.objects.len() < most);
        }
        listed
    }

    /// Returns the most visits of any turn since the last call, for tests of the bound.
    #[doc(hidden)]
    pub fn take_most_visits(&self) -> u32 {
        self.0.table().turn.take_most()
    }

    /// Checks that a handle belongs to this store.
    fn check(&self, handle: &Handle) -> Result<(), Error> {
        if handle.epoch == self.0.table().epoch {
            return Ok(());
        }
        let address = handle.addresses.first().cloned().unwrap_or_else(|| "no address".to_owned());
        Err(Error::Gone { number: handle.number, why: GoneWhy::Restarted { address } })
    }

    fn refused(&self, number: u64, refusal: Refusal) -> Error {
        match refusal {
            Refusal::Gone => Error::Gone { number, why: GoneWhy::Evicted },
            Refusal::WrongKey => Error::WrongKey { number },
            Refusal::Unset(_) => Error::Unset { number },
            Refusal::NotReserved => Error::NotReserved { number },
            Refusal::Lost => Error::Gone { number, why: GoneWhy::Lost },
        }
    }
}

pub(crate) fn check_type_name(type_name: &str) -> Result<(), Error> {
    match type_name.len() {
        len if len > MAX_TYPE_NAME => Err(Error::TypeName { len }),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_takes_half_of_the_process_memory_up_to_a_limit() {
        assert_eq!(capacity_within(300 << 20), 150 << 20);
        assert_eq!(capacity_within(64 << 30), DEFAULT_CAPACITY);
    }
}
