//! Lifetimes of objects.
//!
//! An object stays until it is evicted, or its owner ends: such an object is *static*. The types here evict it earlier.
//! An [`Owned`] object ends with its one owner in this process. Other code *borrows* it (`&Handle`, which the compiler
//! keeps from outliving the owner). A [`Counted`] object ends with the last of its references in any process. A
//! *leased* object ends when its time is over ([`Client::lease`]).

use std::fmt;
use std::ops::Deref;

use crate::client::Client;
use crate::error::Error;
use crate::owner::store::Store;
use crate::wire::handle::Handle;

/// A place at which an object can be evicted.
#[derive(Clone, Debug)]
pub enum Keeper {
    /// In this process.
    Store(Store),
    /// At its owner.
    Client(Client),
}

impl From<&Store> for Keeper {
    fn from(store: &Store) -> Keeper {
        Keeper::Store(store.clone())
    }
}

impl From<&Client> for Keeper {
    fn from(client: &Client) -> Keeper {
        Keeper::Client(client.clone())
    }
}

impl Keeper {
    fn evict(&self, handle: &Handle) -> Result<bool, Error> {
        match self {
            Keeper::Store(store) => store.evict(handle),
            Keeper::Client(client) => client.evict(handle),
        }
    }

    fn count(&self, handle: &Handle, difference: i64) -> Result<u64, Error> {
        match self {
            Keeper::Store(store) => store.count(handle, difference),
            Keeper::Client(client) => client.count(handle, difference),
        }
    }
}

/// An object that is evicted when this is dropped. Everything that takes a `&Handle` borrows it.
///
/// Use it where one place decides how long the object is needed. A copy of its bytes ([`Handle::to_bytes`]) does not keep
/// it: a later use of the copy returns [`Error::Gone`].
pub struct Owned {
    handle: Option<Handle>,
    keeper: Keeper,
}

impl Owned {
    /// Takes the object of `handle`, which should have no other owner.
    pub fn new(keeper: impl Into<Keeper>, handle: Handle) -> Owned {
        Owned { handle: Some(handle), keeper: keeper.into() }
    }

    /// Makes the object static: it stays until it is evicted.
    pub fn into_static(mut self) -> Handle {
        self.handle.take().expect("it is taken only here and in drop")
    }

    /// Evicts the object now, and reports errors, which dropping does not.
    ///
    /// # Errors
    /// As [`Client::evict`].
    pub fn evict(mut self) -> Result<bool, Error> {
        let handle = self.handle.take().expect("it is taken only here and in drop");
        self.keeper.evict(&handle)
    }
}

impl Deref for Owned {
    type Target = Handle;

    fn deref(&self) -> &Handle {
        self.handle.as_ref().expect("it is taken only where it ends")
    }
}

impl fmt::Debug for Owned {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_tuple("Owned").field(&self.handle).finish()
    }
}

impl Drop for Owned {
    fn drop(&mut self) {
        if let Some(handle) = self.handle.take()
            && let Err(error) = self.keeper.evict(&handle)
        {
            log::warn!("object {} was not evicted: {error}", handle.number());
        }
    }
}

/// One reference to an object. The owner evicts the object with the last reference, in whichever process that is.
///
/// The owner counts references. A reference that travels stays counted for its sender ([`Counted::send`]) until its
/// receiver takes it over ([`Counted::receive`]). A process that ends without dropping its references leaves them
/// counted: give such objects a lease too ([`Client::lease`]).
pub struct Counted {
    handle: Option<Handle>,
    keeper: Keeper,
}

impl Counted {
    /// Makes the first reference to an object that was not counted before.
    ///
    /// # Errors
    /// As [`Client::count`].
    pub fn new(keeper: impl Into<Keeper>, handle: Handle) -> Result<Counted, Error> {
        let keeper = keeper.into();
        keeper.count(&handle, 1)?;
        Ok(Counted { handle: Some(handle), keeper })
    }

    /// Makes a further reference.
    ///
    /// # Errors
    /// As [`Client::count`].
    pub fn another(&self) -> Result<Counted, Error> {
        self.keeper.count(self, 1)?;
        Ok(Counted { handle: Some((**self).clone()), keeper: self.keeper.clone() })
    }

    /// Gives this reference away: it stays counted until the receiver of the handle has dropped it.
    pub fn send(mut self) -> Handle {
        self.handle.take().expect("it is taken only where it ends")
    }

    /// Releases this reference, and reports errors, which dropping does not. Returns the number of references left. The
    /// owner evicts the object with the last one.
    ///
    /// # Errors
    /// As [`Client::count`].
    pub fn release(mut self) -> Result<u64, Error> {
        let handle = self.handle.take().expect("it is taken only where it ends");
        self.keeper.count(&handle, -1)
    }

    /// Takes over a reference that another process has given away.
    pub fn receive(keeper: impl Into<Keeper>, handle: Handle) -> Counted {
        Counted { handle: Some(handle), keeper: keeper.into() }
    }
}

impl Deref for Counted {
    type Target = Handle;

    fn deref(&self) -> &Handle {
        self.handle.as_ref().expect("it is taken only where it ends")
    }
}

impl fmt::Debug for Counted {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_tuple("Counted").field(&self.handle).finish()
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        if let Some(handle) = self.handle.take()
            && let Err(error) = self.keeper.count(&handle, -1)
        {
            log::warn!("object {} keeps a reference: {error}", handle.number());
        }
    }
}
