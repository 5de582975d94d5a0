//! A resolver of the handles of any owner: it makes one client for each owner, at the first use of a handle of that
//! owner.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use farjump::{Key, Library, Patience, WaitError};
use farjump_os::PerProcess;

use crate::client::Client;
use crate::client::awaiting::all_async;
use crate::client::calls::all;
use crate::client::view::View;
use crate::clock::now;
use crate::error::{Error, GoneWhy};
use crate::wire::handle::Handle;

/// Least time between two checks for ended owners, where a known client serves.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Clients for the owners of handles, by the owners' addresses. Clones share them.
///
/// At the next use of any handle, the resolver drops the client of an ended owner, with its descriptors and the mapped
/// memory that no [`View`] shows. A forked child has the keys, and makes clients of its own.
#[derive(Clone, Default)]
pub struct Resolver(Arc<Shared>);

#[derive(Default)]
struct Shared {
    keys: Mutex<HashMap<String, Key>>,
    state: PerProcess<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    clients: HashMap<String, Client>,
    /// Time of the last check for ended owners.
    looked: Option<Instant>,
}

impl State {
    /// Returns the client of the owner of `handle`. An address alone does not name an owner: another process may have
    /// taken its place.
    fn of(&self, handle: &Handle) -> Option<Client> {
        let of = |address: &String| self.clients.get(address).filter(|client| client.serves(handle));
        handle.addresses().iter().find_map(of).cloned()
    }

    /// Removes the clients of ended owners, except for the client in use, whose own outcome shows that. The caller
    /// drops them without the lock.
    fn take_gone(&mut self, used: Option<&Client>) -> Vec<Client> {
        self.looked = Some(now());
        let is_used = |client: &Client| used.is_some_and(|used| Arc::ptr_eq(&used.0, &client.0));
        let gone = self.clients.extract_if(|_, client| !is_used(client) && client.is_gone());
        gone.map(|(_, client)| client).collect()
    }
}

impl fmt::Debug for Resolver {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Resolver").field("clients", &self.state().clients).finish_non_exhaustive()
    }
}

impl Resolver {
    /// Makes a resolver without clients.
    pub fn new() -> Resolver {
        Resolver::default()
    }

    /// The resolver that [`Handle::get`] and [`Handle::call`] use.
    pub fn of_process() -> &'static Resolver {
        static RESOLVER: LazyLock<Resolver> = LazyLock::new(Resolver::new);
        &RESOLVER
    }

    /// Sets the key for an owner at this `tcp:` address.
    pub fn set_key(&self, address: &str, key: Key) {
        self.keys().insert(address.to_owned(), key);
    }

    fn keys(&self) -> MutexGuard<'_, HashMap<String, Key>> {
        self.0.keys.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.get().lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the client of the owner of `handle`: one that is connected, or a new one at the first of the owner's
    /// addresses at which a process listens.
    ///
    /// # Errors
    /// [`Error::Unreachable`] with the reasons; [`Error::Gone`] if the owner has restarted since.
    pub fn client(&self, handle: &Handle) -> Result<Client, Error> {
        if let Some(client) = self.known(handle) {
            return Ok(client);
        }
        let mut reasons = Vec::new();
        let mut restarted = None;
        for address in handle.addresses() {
            let mut builder = Client::builder(address);
            if let Some(key) = self.keys().get(address) {
                builder = builder.key(key.clone());
            }
            // Without the lock, so that handles of other owners can be resolved meanwhile.
            match builder.connect() {
                Ok(client) if client.epoch() == handle.epoch() => {
                    let before = self.state().clients.insert(address.clone(), client.clone());
                    drop(before);
                    return Ok(client);
                }
                Ok(_) => restarted = Some(address.clone()),
                Err(error) => reasons.push(error.to_string()),
            }
        }
        match restarted {
            Some(address) => {
                Err(Error::Gone { number: handle.number(), why: GoneWhy::Restarted { address } })
            }
            None if reasons.is_empty() => Err(Error::Unreachable("the handle has none".to_owned())),
            None => Err(Error::Unreachable(reasons.join("; "))),
        }
    }

    /// Returns the client of the owner of `handle`, if one is connected. Checks for ended owners at each handle of an
    /// unknown owner, and otherwise if the last check is at least [`LOOK_EVERY`] ago.
    fn known(&self, handle: &Handle) -> Option<Client> {
        let mut state = self.state();
        let known = state.of(handle);
        if known.is_some() && state.looked.is_some_and(|last| now().duration_since(last) < LOOK_EVERY) {
            return known;
        }
        let gone = state.take_gone(known.as_ref());
        drop(state);
        drop(gone);
        known
    }

    /// Uses the client of a handle's owner. Drops a client whose owner is gone.
    fn with<T>(&self, handle: &Handle, act: impl FnOnce(&Client) -> Result<T, Error>) -> Result<T, Error> {
        let client = self.client(handle)?;
        let done = act(&client);
        self.drop_if_gone(&client, &done);
        done
    }

    /// Drops a client whose owner is gone, as the outcome of a call shows.
    fn drop_if_gone<T>(&self, client: &Client, outcome: &Result<T, Error>) {
        if let Err(Error::Link(farjump::Error::Wait(WaitError::PeerGone { .. })) | Error::Forked { .. }) =
            outcome
        {
            let mut state = self.state();
            if state.clients.get(client.address()).is_some_and(|known| known.epoch() == client.epoch()) {
                state.clients.remove(client.address());
            }
        }
    }

    /// As [`Client::get`].
    ///
    /// # Errors
    /// As [`Resolver::client`] and [`Client::get`].
    pub fn get(&self, handle: &Handle) -> Result<View, Error> {
        self.with(handle, |client| client.get(handle))
    }

    /// As [`Client::wait`].
    ///
    /// # Errors
    /// As [`Resolver::client`] and [`Client::wait`].
    pub fn wait(&self, handle: &Handle, patience: &mut Patience<'_>) -> Result<View, Error> {
        self.with(handle, |client| client.wait(handle, patience))
    }

    /// As [`Client::evict`]. If the owner is gone, its object is gone too, and this returns `false`.
    ///
    /// # Errors
    /// As [`Resolver::client`] and [`Client::evict`].
    pub fn evict(&self, handle: &Handle) -> Result<bool, Error> {
        match self.with(handle, |client| client.evict(handle)) {
            Err(Error::Gone { .. }) => Ok(false),
            evicted => evicted,
        }
    }

    /// As [`Client::call`].
    ///
    /// # Errors
    /// As [`Resolver::client`] and [`Client::call`].
    pub fn call(&self, library: &Library, handle: &Handle, args: &[u8]) -> Result<Vec<u8>, Error> {
        self.with(handle, |client| client.call(library, handle, args))
    }

    /// As [`Client::derive`].
    ///
    /// # Errors
    /// As [`Resolver::client`] and [`Client::derive`].
    pub fn derive(&self, library: &Library, handle: &Handle, args: &[u8]) -> Result<Handle, Error> {
        self.with(handle, |client| client.derive(library, handle, args))
    }

    /// Calls the function on many objects, each at its owner. Many calls are under way at once; the outcomes are in the order
    /// of the handles.
    ///
    /// # Errors
    /// Those of [`Resolver::call`], for each call.
    pub fn map<'h>(
        &self,
        library: &Library,
        handles: impl IntoIterator<Item = &'h Handle>,
        args: &[u8],
    ) -> Vec<Result<Vec<u8>, Error>> {
        all(handles
            .into_iter()
            .map(|handle| self.with(handle, |client| client.start_call(library, handle, args))))
    }
}

impl Resolver {
    /// As [`Client::call_async`]. The first handle of an owner makes it connect, which blocks the thread.
    ///
    /// # Errors
    /// As [`Resolver::client`] and [`Client::call_async`].
    pub async fn call_async(
        &self,
        library: &Library,
        handle: &Handle,
        args: &[u8],
    ) -> Result<Vec<u8>, Error> {
        let client = self.client(handle)?;
        let outcome = client.call_async(library, handle, args).await;
        self.drop_if_gone(&client, &outcome);
        outcome
    }

    /// As [`Resolver::map`], for tasks: awaits all outcomes, as [`Resolver::call_async`] does one.
    ///
    /// # Errors
    /// Those of [`Resolver::call_async`], for each call.
    pub async fn map_async<'h>(
        &self,
        library: &Library,
        handles: impl IntoIterator<Item = &'h Handle>,
        args: &[u8],
    ) -> Vec<Result<Vec<u8>, Error>> {
        all_async(library, handles.into_iter().map(|handle| (self.client(handle), handle)), args).await
    }
}

impl Handle {
    /// The object's bytes, by the [`Resolver`] of this process.
    ///
    /// # Errors
    /// As [`Resolver::get`].
    pub fn get(&self) -> Result<View, Error> {
        Resolver::of_process().get(self)
    }

    /// Runs the function of `library` at the object's owner, by the [`Resolver`] of this process.
    ///
    /// # Errors
    /// As [`Resolver::call`].
    pub fn call(&self, library: &Library, args: &[u8]) -> Result<Vec<u8>, Error> {
        Resolver::of_process().call(library, self, args)
    }

    /// Makes a new object from this one at its owner, by the [`Resolver`] of this process.
    ///
    /// # Errors
    /// As [`Resolver::derive`].
    pub fn derive(&self, library: &Library, args: &[u8]) -> Result<Handle, Error> {
        Resolver::of_process().derive(library, self, args)
    }
}
