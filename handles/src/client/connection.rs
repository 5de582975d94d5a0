//! The connection of a client: requests and their replies, released claims, and the owner's memory.

use std::fmt;
use std::sync::{Arc, Mutex, OnceLock};

use farjump::admin::Admin;
use farjump::{Ended, Library, Link, Mode, Patience, Pending, SharedLink};
use farjump_os::{Owner, forked_children};

use crate::client::reading::Reads;
use crate::client::releases::Releases;
use crate::client::{ClientBuilder, lock};
use crate::error::{Error, GoneWhy};
use crate::owner::table::Claimed;
use crate::region::Region;
use crate::wire::handle::{Handle, Key};
use crate::wire::refusal::NoMemory;
use crate::wire::requests::{MAX_CLAIMS, MIN_LENT, Op, Reader, Status, VERSION, Writer};

/// Number of claims that the client releases without waiting for the next request.
const RELEASES: usize = MAX_CLAIMS;
/// Least length of an object, in bytes, whose claim the client releases without waiting.
const LARGE: usize = 256 << 10;

/// State that clones and views share.
pub(crate) struct Inner {
    pub(crate) hello: Hello,
    /// For requests, in mode local.
    pub(crate) link: SharedLink,
    /// For functions, once the first is called.
    pub(crate) calls: OnceLock<SharedLink>,
    /// The owner's store as a function.
    pub(crate) library: Library,
    /// Claims to be released with the next request. Locked after `link`. Requests that were abandoned add theirs.
    pub(crate) releases: Arc<Mutex<Releases>>,
    /// The owner's memory, or the reason why it is not mapped.
    pub(crate) region: OnceLock<Result<Region, String>>,
    /// Name of the transport of `link`.
    pub(crate) transport: String,
    /// True if the transport of `link` reads memory that the owner lends.
    pub(crate) reads_memory: bool,
    /// The reads of `link`. Locked before `link`.
    pub(crate) reading: Mutex<Reads>,
    /// The process that made it.
    pub(crate) owner: Owner,
    pub(crate) choices: ClientBuilder,
}

/// The owner's description of its store.
#[derive(Default, Debug)]
pub(crate) struct Hello {
    pub(crate) epoch: u64,
    pub(crate) capacity: u64,
    pub(crate) addresses: Arc<[String]>,
    /// True if the store has a file. The object of a call then comes from the file before the call.
    pub(crate) spills: bool,
}

impl fmt::Debug for Inner {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Client")
            .field("address", &self.choices.address)
            .field("hello", &self.hello)
            .finish_non_exhaustive()
    }
}

impl Inner {
    pub(crate) fn address(&self) -> &str {
        &self.choices.address
    }

    pub(crate) fn protocol(&self, what: impl Into<String>) -> Error {
        Error::Protocol { address: self.address().to_owned(), what: what.into() }
    }

    pub(crate) fn malformed(&self) -> Error {
        self.protocol("its reply is malformed")
    }

    pub(crate) fn check_process(&self) -> Result<(), Error> {
        if self.owner.is_this() {
            return Ok(());
        }
        Err(Error::Forked { address: self.address().to_owned() })
    }

    pub(crate) fn patience(&self) -> Patience<'static> {
        Patience::of(self.choices.config.timeout)
    }

    /// Sends a request, and waits for the reply.
    pub(crate) fn exchange(
        &self,
        request: &[u8],
        patience: &mut Patience<'_>,
    ) -> Result<farjump::Reply, Error> {
        let number = self.start(request)?;
        self.link.wait(number, patience).map_err(|ended| {
            if !matches!(ended, Ended::Failed(_)) {
                self.abandon(number, request);
            }
            self.ended(ended, patience)
        })
    }

    /// Sends a request. Returns the number of the call.
    fn start(&self, request: &[u8]) -> Result<u32, Error> {
        self.check_process()?;
        Ok(self.link.hold(|held| {
            held.settle();
            held.look(None, |link| {
                self.send_releases(link)?;
                link.inject(&self.library, request).map(Pending::into_raw)
            })
        })???)
    }

    /// Sends a request, and calls `turn` until the reply is there. Stops waiting when `turn` returns `false`.
    fn exchange_driving(
        &self,
        request: &[u8],
        mut turn: impl FnMut() -> bool,
    ) -> Result<farjump::Reply, Error> {
        let number = self.start(request)?;
        loop {
            if let Some(reply) = self.link.with(|link| link.poll_raw(number))?? {
                return Ok(reply);
            }
            if !turn() {
                self.abandon(number, request);
                return Err(Error::Interrupted);
            }
        }
    }

    /// Sends a request without a reply, or whose reply concerns no caller.
    pub(crate) fn notify(&self, request: &[u8]) -> Result<(), Error> {
        self.check_process()?;
        Ok(self.link.with(|link| link.send(&self.library, request))??)
    }

    /// Sends all releases.
    fn send_releases(&self, link: &Link) -> Result<(), farjump::Error> {
        while lock(&self.releases).due() != 0 {
            let mut request = Writer::request(Op::Release);
            self.add_releases(&mut request);
            link.send(&self.library, &request.0)?;
        }
        Ok(())
    }

    /// The error of a wait that ended without an outcome.
    pub(crate) fn ended(&self, ended: Ended, patience: &Patience<'_>) -> Error {
        match ended {
            Ended::Interrupted => Error::Interrupted,
            Ended::TimedOut => {
                Error::TimedOut { address: self.address().to_owned(), timeout: patience.timeout() }
            }
            Ended::Failed(error) => error.into(),
        }
    }

    /// Returns the request that precedes a call at the object, if the owner has a file in which the object may lie.
    pub(crate) fn hold(&self, handle: &Handle) -> Option<Vec<u8>> {
        self.hello.spills.then(|| hold_request(handle))
    }

    /// The link for functions.
    pub(crate) fn calls(&self) -> Result<&SharedLink, Error> {
        if let Some(calls) = self.calls.get() {
            return Ok(calls);
        }
        let link = self.choices.link()?;
        Ok(self.calls.get_or_init(|| SharedLink::new(link)))
    }

    pub(crate) fn greet(&self) -> Result<Hello, Error> {
        let mut request = Writer::request(Op::Hello);
        request.u8(VERSION);
        let reply = self.exchange(&request.0, &mut self.patience())?;
        let mut fields = Reader(&reply);
        let hello = (|| {
            fields.u8().filter(|status| *status == Status::Done as u8)?;
            let version = fields.u8()?;
            let (epoch, capacity, count) = (fields.u64()?, fields.u64()?, fields.u8()?);
            let mut addresses = Vec::new();
            for _ in 0..count {
                let len = fields.u16()?;
                addresses.push(std::str::from_utf8(fields.bytes(len.into())?).ok()?.to_owned());
            }
            // Earlier versions do not send this field.
            let spills = fields.u8() == Some(1);
            Some((version, Hello { epoch, capacity, addresses: addresses.into(), spills }))
        })();
        match hello {
            Some((VERSION, hello)) => Ok(hello),
            Some((theirs, _)) => Err(self.protocol(format!(
                "its store speaks version {theirs}, and this library version {VERSION}: update the older of the two"
            ))),
            None => Err(self.malformed()),
        }
    }

    /// Returns the owner's memory, if it can be mapped here.
    pub(crate) fn region(&self) -> Result<&Region, &str> {
        let region = self.region.get_or_init(|| self.map());
        region.as_ref().map_err(|why| why.as_str())
    }

    fn map(&self) -> Result<Region, String> {
        if !self.choices.config.mapped {
            return Err("the client was told not to map it".to_owned());
        }
        if !self.address().starts_with("unix:") {
            return Err("the owner is reached over TCP, which passes no memory".to_owned());
        }
        let admin = Admin::new(self.address()).map_err(|error| error.to_string())?;
        let admin = admin.timeout(self.choices.config.connect_timeout);
        let memory = admin.object_memory().map_err(|error| error.to_string())?;
        // Another owner may have taken the place of the one that the link leads to, and does not know that one's
        // claims.
        if (memory.epoch, memory.len) != (self.hello.epoch, self.hello.capacity) {
            return Err("the memory is that of another store: the owner has restarted since".to_owned());
        }
        forked_children::watch();
        Region::of_owner(std::os::fd::AsFd::as_fd(&memory), memory.len, memory.may_write)
    }

    /// Notes a claim to release, of an object that is not mapped.
    pub(crate) fn release(&self, claim: u64, len: usize) {
        self.release_by(len, |releases| releases.add(claim));
    }

    /// Notes the claim of a mapped view to release. The view was made after `forks` forks.
    pub(crate) fn release_view(&self, claim: u64, len: usize, forks: u64) {
        self.release_by(len, |releases| releases.add_of_view(claim, forks));
    }

    fn release_by(&self, len: usize, add: impl FnOnce(&mut Releases)) {
        if self.check_process().is_err() {
            // The claim is the parent's.
            return;
        }
        let is_due = {
            let mut releases = lock(&self.releases);
            add(&mut releases);
            let due = releases.due();
            (len >= LARGE && due != 0) || due >= RELEASES
        };
        // If another thread has the link, its next request takes the releases along.
        if is_due || self.link.has_late() {
            let _ = self.link.try_hold(|held| {
                held.settle();
                // A failed link has no claims left.
                held.look(None, |link| self.send_releases(link))
            });
        }
    }

    fn add_releases(&self, request: &mut Writer) {
        let mut releases = lock(&self.releases);
        let claims = releases.take(MAX_CLAIMS);
        request.u16(claims.len() as u16);
        for claim in claims {
            request.u64(claim);
        }
    }

    /// Checks a reply's status. Returns the fields behind it.
    pub(crate) fn fields<'r>(&self, reply: &'r [u8], number: u64) -> Result<Reader<'r>, Error> {
        let mut fields = Reader(reply);
        let status = fields.u8().and_then(Status::from_number).ok_or_else(|| self.malformed())?;
        Err(match status {
            Status::Done => return Ok(fields),
            Status::Gone => Error::Gone { number, why: GoneWhy::Evicted },
            Status::WrongKey => Error::WrongKey { number },
            Status::Unset => Error::Unset { number },
            Status::NotReserved => Error::NotReserved { number },
            Status::Lost => Error::Gone { number, why: GoneWhy::Lost },
            Status::SourceFull => match fields.u64() {
                Some(requested) => Error::SourceFull { requested },
                None => self.malformed(),
            },
            Status::Full => NoMemory::read(&mut fields).map_or_else(|| self.malformed(), Error::from),
        })
    }

    /// Checks that a handle belongs to the owner's present epoch.
    pub(crate) fn check(&self, handle: &Handle) -> Result<(), Error> {
        if handle.epoch == self.hello.epoch {
            return Ok(());
        }
        let why = GoneWhy::Restarted { address: self.address().to_owned() };
        Err(Error::Gone { number: handle.number, why })
    }

    /// Returns a request about one object.
    pub(crate) fn about(op: Op, handle: &Handle) -> Writer {
        let mut request = Writer::request(op);
        request.u64(handle.number).bytes(&handle.key.0);
        request
    }

    pub(crate) fn handle(&self, number: u64, key: Key, len: u64, type_name: &str) -> Handle {
        let addresses = match self.hello.addresses.is_empty() {
            true => [self.address().to_owned()].into(),
            false => Arc::clone(&self.hello.addresses),
        };
        Handle { epoch: self.hello.epoch, number, len, key, type_name: type_name.into(), addresses }
    }

    /// Claims an object. Returns the claim and the key of its loan, which is empty if the object is not lent. With
    /// [`Status::Unset`], returns the offset of the word to wait for.
    pub(crate) fn claim(
        &self,
        handle: &Handle,
        patience: &mut Patience<'_>,
    ) -> Result<Result<(Claimed, Vec<u8>), u64>, Error> {
        self.claimed(handle, &self.exchange(&self.claim_request(handle)?.0, patience)?)
    }

    /// As [`Inner::claim`], but calls `turn` until the owner's reply has come.
    pub(crate) fn claim_driving(
        &self,
        handle: &Handle,
        turn: impl FnMut() -> bool,
    ) -> Result<Result<(Claimed, Vec<u8>), u64>, Error> {
        self.claimed(handle, &self.exchange_driving(&self.claim_request(handle)?.0, turn)?)
    }

    /// Returns whether to request a loan of this handle's object: it is not mapped here, and the transport reads
    /// memory.
    fn reads(&self, handle: &Handle) -> bool {
        // The handle of a reserved object has no length: the object comes in frames.
        self.reads_memory && handle.len >= MIN_LENT && self.region().is_err()
    }

    fn claim_request(&self, handle: &Handle) -> Result<Writer, Error> {
        self.check(handle)?;
        let mut request = Writer(Vec::with_capacity(64));
        request.u8(if self.reads(handle) { Op::ClaimLent } else { Op::Claim } as u8);
        self.add_releases(&mut request);
        request.u64(handle.number).bytes(&handle.key.0);
        Ok(request)
    }

    fn claimed(&self, handle: &Handle, reply: &[u8]) -> Result<Result<(Claimed, Vec<u8>), u64>, Error> {
        if reply.first() == Some(&(Status::Unset as u8)) {
            let word = Reader(&reply[1..]).u64().ok_or_else(|| self.malformed())?;
            return Ok(Err(word));
        }
        let mut fields = self.fields(reply, handle.number)?;
        let claimed =
            (|| Some(Claimed { claim: fields.u64()?, offset: fields.u64()?, len: fields.u64()? }))();
        let claimed = claimed.ok_or_else(|| self.malformed())?;
        Ok(Ok((claimed, fields.0.to_vec())))
    }
}

fn hold_request(handle: &Handle) -> Vec<u8> {
    Inner::about(Op::Hold, handle).0
}

impl Handle {
    /// Claims the object for a following call by `link`, a link to its owner, that names the object. The object then
    /// comes from the owner's file before the function starts. Otherwise the function gets `FARJUMP_SPILLED`.
    /// [`Client::call`](crate::Client::call) does so itself. Use this for calls that a program injects, with handles
    /// among their arguments. `store` is the function [`farjump::objects::NAME`].
    ///
    /// # Errors
    /// [`Error::Link`], as [`Link::send`].
    pub fn hold(&self, link: &Link, store: &Library) -> Result<(), Error> {
        Ok(link.send_in(Mode::Local, store, &hold_request(self))?)
    }

    /// As [`Handle::hold`], but does not wait for credit.
    ///
    /// # Errors
    /// [`Error::Link`], as [`Link::try_send`].
    pub fn try_hold(&self, link: &Link, store: &Library) -> Result<(), Error> {
        Ok(link.try_send_in(Mode::Local, store, &hold_request(self))?)
    }
}
