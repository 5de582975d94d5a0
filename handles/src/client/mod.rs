//! Clients: processes that use the objects of an owner.

pub(crate) mod abandoned;
pub(crate) mod awaiting;
pub(crate) mod call_link;
pub(crate) mod calls;
pub(crate) mod connection;
pub(crate) mod lifetimes;
pub(crate) mod patience;
pub(crate) mod placement;
pub(crate) mod reading;
pub(crate) mod releases;
pub(crate) mod resolver;
pub(crate) mod transfer;
pub(crate) mod typed;
pub(crate) mod view;

use std::sync::{Arc, Mutex, OnceLock, TryLockError};
use std::time::Duration;

use farjump::{Key as LinkKey, Library, Link, Mode, objects};
use farjump_os::Owner;

use crate::client::connection::{Hello, Inner, lock};
use crate::error::Error;
use crate::wire::handle::Handle;
use crate::wire::requests::Op;

/// Time limit if the caller sets none.
pub const DEFAULT_TIMEOUT: Duration = Duration::from_secs(30);

/// Options of a [`Client`].
#[derive(Debug)]
#[must_use]
pub struct ClientBuilder {
    pub(crate) address: String,
    pub(crate) connect_timeout: Duration,
    pub(crate) timeout: Duration,
    transport: Option<String>,
    key: Option<LinkKey>,
    pub(crate) is_mapped: bool,
}

impl ClientBuilder {
    /// Time limit of the connection.
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.connect_timeout = timeout;
        self
    }

    /// Time limit of requests without one of their own. [`DEFAULT_TIMEOUT`] unless set.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// The transport, by its name. Unless set, the best one that both processes have.
    pub fn transport(mut self, name: &str) -> Self {
        self.transport = Some(name.to_owned());
        self
    }

    /// The key, at a `tcp:` address.
    pub fn key(mut self, key: LinkKey) -> Self {
        self.key = Some(key);
        self
    }

    /// Sets whether to map the owner's memory if possible. Without that all bytes travel in frames. On unless turned
    /// off.
    pub fn mapped(mut self, mapped: bool) -> Self {
        self.is_mapped = mapped;
        self
    }

    /// Connects a link to the owner.
    pub(crate) fn link(&self) -> Result<Link, Error> {
        let mut builder = Link::builder(&self.address).connect_timeout(self.connect_timeout);
        if let Some(transport) = &self.transport {
            builder = builder.transport(transport);
        }
        if let Some(key) = &self.key {
            builder = builder.key(key.clone());
        }
        Ok(builder.connect()?)
    }

    /// Connects.
    ///
    /// # Errors
    /// [`Error::Link`] when no process listens there, or it has no store; [`Error::Protocol`].
    pub fn connect(self) -> Result<Client, Error> {
        let owner = Owner::this();
        let link = self.link()?;
        link.set_mode(Mode::Local);
        let library = Library::by_name(objects::NAME).map_err(farjump::Error::from)?;
        let mut inner = Inner {
            hello: Hello::default(),
            reads_memory: link.reads_memory(),
            reading: Mutex::default(),
            link: Mutex::new(link),
            calls: OnceLock::new(),
            library,
            releases: Mutex::default(),
            abandoned: Mutex::default(),
            region: OnceLock::new(),
            owner,
            choices: self,
        };
        inner.hello = inner.greet()?;
        Ok(Client(Arc::new(inner)))
    }
}

/// A connection to the owner of objects. Clones share the connection, and any number of threads may use it.
///
/// If the link fails, errors are [`Error::Link`]. A client of an owner that restarted is of no use: connect again.
#[derive(Clone, Debug)]
pub struct Client(pub(crate) Arc<Inner>);

impl Client {
    /// Connects to the owner at `address` (`unix:PATH`, `unix:@NAME`, `tcp:HOST:PORT`).
    ///
    /// # Errors
    /// As [`ClientBuilder::connect`].
    pub fn connect(address: &str) -> Result<Client, Error> {
        Client::builder(address).connect()
    }

    /// Returns a builder with options.
    pub fn builder(address: &str) -> ClientBuilder {
        ClientBuilder {
            address: address.to_owned(),
            connect_timeout: Duration::from_secs(5),
            timeout: DEFAULT_TIMEOUT,
            transport: None,
            key: None,
            is_mapped: true,
        }
    }

    /// Name of the transport that carries the requests, and reads the owner's memory if it can
    /// ([`View::access`](crate::View::access)).
    pub fn transport(&self) -> String {
        lock(&self.0.link).transport()
    }

    /// The address that the client is connected to.
    pub fn address(&self) -> &str {
        self.0.address()
    }

    /// Returns whether this client can be used for this handle in this process.
    pub(crate) fn serves(&self, handle: &Handle) -> bool {
        self.epoch() == handle.epoch && self.0.check_process().is_ok()
    }

    /// Returns whether the owner is known to have ended, without waiting. A client of such an owner is of no more use.
    /// Also returns `true` in a forked child of the process that connected, and `false` while another thread uses the
    /// connection.
    pub fn is_gone(&self) -> bool {
        if self.0.check_process().is_err() {
            return true;
        }
        match self.0.link.try_lock() {
            Ok(link) => link.is_gone(),
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner().is_gone(),
            Err(TryLockError::WouldBlock) => false,
        }
    }

    /// The epoch of the owner's store.
    pub fn epoch(&self) -> u64 {
        self.0.hello.epoch
    }

    /// Returns whether the owner's store has a file, in which objects may lie ([`Handle::hold`]).
    pub fn spills(&self) -> bool {
        self.0.hello.spills
    }

    /// Evicts an object: later readers find it gone, and present readers keep it. Returns whether the object existed.
    ///
    /// # Errors
    /// [`Error::WrongKey`]; [`Error::TimedOut`], [`Error::Link`].
    pub fn evict(&self, handle: &Handle) -> Result<bool, Error> {
        self.query_flag(Op::Evict, handle)
    }

    /// Returns whether an object exists or is reserved.
    ///
    /// # Errors
    /// As [`Client::evict`].
    pub fn exists(&self, handle: &Handle) -> Result<bool, Error> {
        self.query_flag(Op::Exists, handle)
    }

    fn query_flag(&self, op: Op, handle: &Handle) -> Result<bool, Error> {
        if self.0.check(handle).is_err() {
            return Ok(false);
        }
        let reply = self.0.exchange(&Inner::about(op, handle).0, &mut self.0.patience())?;
        let mut fields = self.0.fields(&reply, handle.number)?;
        Ok(fields.u8().ok_or_else(|| self.0.malformed())? != 0)
    }

    /// Evicts the object when `time` is over. `None` removes the limit. `time` counts in whole milliseconds, and at
    /// least one.
    ///
    /// # Errors
    /// [`Error::Gone`], [`Error::WrongKey`]; [`Error::TimedOut`], [`Error::Link`].
    pub fn lease(&self, handle: &Handle, time: Option<Duration>) -> Result<(), Error> {
        self.0.check(handle)?;
        let millis = time.map_or(0, |time| u64::try_from(time.as_millis()).unwrap_or(u64::MAX).max(1));
        let mut request = Inner::about(Op::Lease, handle);
        request.u64(millis);
        let reply = self.0.exchange(&request.0, &mut self.0.patience())?;
        self.0.fields(&reply, handle.number).map(drop)
    }

    /// Adds `difference` to the object's count of references, which begins at 0, and returns the new count. The owner
    /// evicts the object when the count comes to 0. See [`Counted`](crate::Counted).
    ///
    /// # Errors
    /// As [`Client::lease`].
    pub fn count(&self, handle: &Handle, difference: i64) -> Result<u64, Error> {
        self.0.check(handle)?;
        let mut request = Inner::about(Op::Count, handle);
        request.u64(difference.cast_unsigned());
        let reply = self.0.exchange(&request.0, &mut self.0.patience())?;
        self.0.fields(&reply, handle.number)?.u64().ok_or_else(|| self.0.malformed())
    }
}
