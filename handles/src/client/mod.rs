//! Clients: processes that use the objects of an owner.

pub(crate) mod abandoned;
pub(crate) mod awaiting;
pub(crate) mod calls;
pub(crate) mod connection;
pub(crate) mod lifetimes;
pub(crate) mod placement;
pub(crate) mod reading;
pub(crate) mod releases;
pub(crate) mod resolver;
pub(crate) mod sleeping;
pub(crate) mod transfer;
pub(crate) mod typed;
pub(crate) mod view;

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use farjump::config::{ClientConfig, Config, LinkConfig, Origin};
use farjump::{Key as LinkKey, Library, Link, Mode, SharedLink, objects};
use farjump_os::Owner;

use crate::client::connection::{Hello, Inner};
use crate::error::Error;
use crate::wire::handle::Handle;
use crate::wire::requests::Op;

/// A connection of a [`Client`] to be made.
#[derive(Debug)]
#[must_use]
pub struct ClientBuilder {
    pub(crate) address: String,
    pub(crate) config: ClientConfig,
    key: Option<LinkKey>,
}

impl ClientBuilder {
    /// Takes these options, in place of all that were set before.
    pub fn config(mut self, config: ClientConfig) -> Self {
        self.config = config;
        self
    }

    /// Time limit of the connection ([`ClientConfig::connect_timeout`]).
    pub fn connect_timeout(self, timeout: Duration) -> Self {
        self.with(|config| config.connect_timeout(timeout))
    }

    /// Time limit of requests without one of their own ([`ClientConfig::timeout`]).
    pub fn timeout(self, timeout: Duration) -> Self {
        self.with(|config| config.timeout(timeout))
    }

    /// The transport, by its name ([`ClientConfig::transport`]).
    pub fn transport(self, name: &str) -> Self {
        self.with(|config| config.transport(name))
    }

    /// Sets whether to map the owner's memory if possible ([`ClientConfig::mapped`]).
    pub fn mapped(self, mapped: bool) -> Self {
        self.with(|config| config.mapped(mapped))
    }

    fn with(self, set: impl FnOnce(ClientConfig) -> ClientConfig) -> Self {
        ClientBuilder { config: set(self.config), ..self }
    }

    /// The key, at a `tcp:` address. [`ClientConfig::key_file`] goes before it.
    pub fn key(mut self, key: LinkKey) -> Self {
        self.key = Some(key);
        self
    }

    /// Connects a link to the owner.
    pub(crate) fn link(&self) -> Result<Link, Error> {
        self.config.check(|_| Origin::Program).map_err(farjump::Error::from)?;
        let link = LinkConfig {
            connect_timeout: self.config.connect_timeout,
            transport: self.config.transport.clone(),
            ..LinkConfig::default()
        };
        let mut builder = Link::builder(&self.address).config(link);
        if let Some(key) = &self.key {
            builder = builder.key(key.clone());
        }
        Ok(builder.connect()?)
    }

    /// Connects.
    ///
    /// # Errors
    /// [`Error::Link`] when no process listens there, or it has no store; [`Error::Protocol`].
    pub fn connect(mut self) -> Result<Client, Error> {
        let owner = Owner::this();
        // Once: a later link of this client is not to depend on the file as it is then.
        if let Some(file) = self.config.key_file.as_ref().filter(|_| self.address.starts_with("tcp:")) {
            self.key = Some(LinkKey::read(file).map_err(farjump::Error::from)?);
        }
        let link = self.link()?;
        link.set_mode(Mode::Local);
        let library = Library::by_name(objects::NAME).map_err(farjump::Error::from)?;
        let mut inner = Inner {
            hello: Hello::default(),
            transport: link.transport(),
            reads_memory: link.reads_memory(),
            reading: Mutex::default(),
            link: SharedLink::new(link),
            calls: OnceLock::new(),
            library,
            releases: Arc::default(),
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
        ClientBuilder { address: address.to_owned(), config: ClientConfig::default(), key: None }
    }

    /// Name of the transport that carries the requests, and reads the owner's memory if it can
    /// ([`View::access`](crate::View::access)).
    pub fn transport(&self) -> String {
        self.0.transport.clone()
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
        self.0.link.try_hold(|held| held.link().is_none_or(Link::is_gone)).unwrap_or(false)
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

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
