//! Clients: processes that use the objects of an owner.

use std::sync::{Arc, Mutex, OnceLock, TryLockError};
use std::time::Duration;

use farjump::{Key as LinkKey, Library, Link, Mode, objects};
use farjump_os::Owner;

use crate::connection::{Hello, Inner, lock};
use crate::error::Error;
use crate::handle::Handle;
use crate::wire::Op;

/// Time limit where the caller gave none.
pub const DEFAULT_TIMEOUT: Duration = Duration::from_secs(30);

/// Choices for a [`Client`].
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

    /// Time limit of requests that are given none of their own. [`DEFAULT_TIMEOUT`] unless set.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// The transport, by its name; the best that both have unless set.
    pub fn transport(mut self, name: &str) -> Self {
        self.transport = Some(name.to_owned());
        self
    }

    /// The key, at a `tcp:` address.
    pub fn key(mut self, key: LinkKey) -> Self {
        self.key = Some(key);
        self
    }

    /// Whether the owner's memory is mapped if it can be. Without that all bytes travel in frames. On unless turned off.
    pub fn mapped(mut self, mapped: bool) -> Self {
        self.is_mapped = mapped;
        self
    }

    /// A link to the owner.
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

/// A connection to the owner of objects. A clone is another handle on it; any number of threads may use it.
///
/// Errors of a link that failed are [`Error::Link`]. A client of an owner that restarted is of no use: connect again.
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

    /// Begins a connection with choices.
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

    /// The address that it is connected to.
    pub fn address(&self) -> &str {
        self.0.address()
    }

    /// Whether it can be used for this handle in this process.
    pub(crate) fn serves(&self, handle: &Handle) -> bool {
        self.epoch() == handle.epoch && self.0.check_process().is_ok()
    }

    /// Whether the owner has ended, as this process can see at once, without waiting: a client of it is of no more use. Also
    /// `true` in a forked child of the process that connected. `false` while another thread uses the connection.
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

    /// Whether the owner's store has a file, in which objects may lie ([`Handle::hold`]).
    pub fn spills(&self) -> bool {
        self.0.hello.spills
    }

    /// Evicts an object: it is gone for all who come later, and stays for those who read it. Whether it was there.
    ///
    /// # Errors
    /// [`Error::WrongKey`]; [`Error::TimedOut`], [`Error::Link`].
    pub fn evict(&self, handle: &Handle) -> Result<bool, Error> {
        self.ask_whether(Op::Evict, handle)
    }

    /// Whether an object is there, or reserved.
    ///
    /// # Errors
    /// As [`Client::evict`].
    pub fn exists(&self, handle: &Handle) -> Result<bool, Error> {
        self.ask_whether(Op::Exists, handle)
    }

    fn ask_whether(&self, op: Op, handle: &Handle) -> Result<bool, Error> {
        if self.0.check(handle).is_err() {
            return Ok(false);
        }
        let reply = self.0.ask(&Inner::about(op, handle).0, &mut self.0.patience())?;
        let mut fields = self.0.fields(&reply, handle.number)?;
        Ok(fields.u8().ok_or_else(|| self.0.malformed())? != 0)
    }

    /// Evicts the object when `time` is over; `None` takes the limit away. Whole milliseconds count, and at least one.
    ///
    /// # Errors
    /// [`Error::Gone`], [`Error::WrongKey`]; [`Error::TimedOut`], [`Error::Link`].
    pub fn lease(&self, handle: &Handle, time: Option<Duration>) -> Result<(), Error> {
        self.0.check(handle)?;
        let millis = time.map_or(0, |time| u64::try_from(time.as_millis()).unwrap_or(u64::MAX).max(1));
        let mut request = Inner::about(Op::Lease, handle);
        request.u64(millis);
        let reply = self.0.ask(&request.0, &mut self.0.patience())?;
        self.0.fields(&reply, handle.number).map(drop)
    }

    /// Adds `difference` to the object's count of references, which begins at 0, and returns it. The object is evicted when
    /// that comes to 0. See [`Counted`](crate::Counted).
    ///
    /// # Errors
    /// As [`Client::lease`].
    pub fn count(&self, handle: &Handle, difference: i64) -> Result<u64, Error> {
        self.0.check(handle)?;
        let mut request = Inner::about(Op::Count, handle);
        request.u64(difference.cast_unsigned());
        let reply = self.0.ask(&request.0, &mut self.0.patience())?;
        self.0.fields(&reply, handle.number)?.u64().ok_or_else(|| self.0.malformed())
    }
}
