//! Clients: processes that use the objects of an owner.

use std::fmt;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use farjump::admin::Admin;
use farjump::{Key as LinkKey, Library, Link, Mode, objects};
use farjump_os::fork_count;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::thread::futex;

use crate::error::{Error, GoneWhy};
use crate::handle::{Handle, Key};
use crate::patience::Patience;
use crate::region::Region;
use crate::store::check_type_name;
use crate::table::Claimed;
use crate::view::View;
use crate::wire::{MAX_READ, MAX_RELEASES, Op, Reader, Status, VERSION, Writer};

/// Longest object that travels in the request to put it, in bytes. A longer one is written where it stays.
const INLINE: usize = 1024;
/// Bytes of one request to write where the owner's memory is not mapped.
const PART: usize = 256 << 10;
/// Requests to read or write that are under way at a time.
const WINDOW: usize = 8;
/// Looks for a reply before the thread sleeps.
const LOOKS: u32 = 4000;
/// Claims that are released without waiting for the next request.
const RELEASES: usize = 64;
/// The length of an object, in bytes, whose claim is released without waiting.
const LARGE: usize = 256 << 10;
/// Longest sleep between two looks, in milliseconds.
const NAP: Duration = Duration::from_millis(10);
/// Time limit where the caller gave none.
pub const DEFAULT_TIMEOUT: Duration = Duration::from_secs(30);

/// Choices for a [`Client`].
#[derive(Debug)]
#[must_use]
pub struct ClientBuilder {
    address: String,
    connect_timeout: Duration,
    timeout: Duration,
    transport: Option<String>,
    key: Option<LinkKey>,
    is_mapped: bool,
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
    fn link(&self) -> Result<Link, Error> {
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
        fork_count::watch();
        let link = self.link()?;
        link.set_mode(Mode::Local);
        let library = Library::by_name(objects::NAME).map_err(farjump::Error::from)?;
        let mut inner = Inner {
            hello: Hello::default(),
            link: Mutex::new(link),
            calls: OnceLock::new(),
            library,
            releases: Mutex::default(),
            region: OnceLock::new(),
            forks: fork_count::count(),
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

/// What clones and views share.
pub(crate) struct Inner {
    hello: Hello,
    /// For requests, in mode local.
    link: Mutex<Link>,
    /// For functions, once the first is called.
    calls: OnceLock<Mutex<Link>>,
    /// The owner's store as a function.
    library: Library,
    /// Claims to be released with the next request.
    releases: Mutex<Vec<u64>>,
    /// The owner's memory, or why it is not mapped.
    region: OnceLock<Result<Region, String>>,
    /// Number of forks before it was made.
    forks: u64,
    choices: ClientBuilder,
}

/// What the owner says of its store.
#[derive(Default, Debug)]
struct Hello {
    epoch: u64,
    capacity: u64,
    addresses: Arc<[String]>,
}

impl fmt::Debug for Inner {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Client")
            .field("address", &self.choices.address)
            .field("hello", &self.hello)
            .finish_non_exhaustive()
    }
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Inner {
    fn address(&self) -> &str {
        &self.choices.address
    }

    pub(crate) fn protocol(&self, what: impl Into<String>) -> Error {
        Error::Protocol { address: self.address().to_owned(), what: what.into() }
    }

    pub(crate) fn malformed(&self) -> Error {
        self.protocol("its reply is malformed")
    }

    pub(crate) fn check_process(&self) -> Result<(), Error> {
        if self.forks == fork_count::count() {
            return Ok(());
        }
        Err(Error::Forked { address: self.address().to_owned() })
    }

    pub(crate) fn patience(&self) -> Patience<'static> {
        Patience::of(self.choices.timeout)
    }

    /// Sends a request, and waits for the reply.
    pub(crate) fn ask(&self, request: &[u8], patience: &mut Patience<'_>) -> Result<farjump::Reply, Error> {
        self.check_process()?;
        let link = lock(&self.link);
        if !lock(&self.releases).is_empty() {
            self.send_releases(&link)?;
        }
        let number = link.inject(&self.library, request)?.into_raw();
        self.await_reply(link, &self.link, number, patience)
    }

    /// Sends a request that is not replied to, or whose reply concerns no caller.
    pub(crate) fn tell(&self, request: &[u8]) -> Result<(), Error> {
        self.check_process()?;
        Ok(lock(&self.link).send(&self.library, request)?)
    }

    fn send_releases(&self, link: &Link) -> Result<(), farjump::Error> {
        let mut request = Writer::request(Op::Release);
        self.add_releases(&mut request);
        link.send(&self.library, &request.0)
    }

    /// Waits for a reply to a call on `link`, which is locked as it was sent; without the lock while it sleeps.
    pub(crate) fn await_reply<'l>(
        &self,
        mut link: MutexGuard<'l, Link>,
        mutex: &'l Mutex<Link>,
        number: u32,
        patience: &mut Patience<'_>,
    ) -> Result<farjump::Reply, Error> {
        for _ in 0..LOOKS {
            if let Some(reply) = poll_once(&link, number)? {
                return Ok(reply);
            }
            std::hint::spin_loop();
        }
        loop {
            let slept = link.arm()?;
            let descriptor = link.as_fd()?.as_raw_fd();
            drop(link);
            if let Some(longest) = slept {
                let time = patience.slice(longest.min(NAP));
                patience.sleep(|| sleep_on(descriptor, time));
            }
            let goes_on = patience.may_go_on();
            link = lock(mutex);
            link.disarm();
            match poll_once(&link, number)? {
                Some(reply) => return Ok(reply),
                None if goes_on && !patience.is_over() => {}
                None => {
                    drop(link.pending_from_raw(number));
                    if !goes_on {
                        return Err(Error::Interrupted);
                    }
                    let (address, timeout) = (self.address().to_owned(), patience.timeout);
                    return Err(Error::TimedOut { address, timeout });
                }
            }
        }
    }

    /// The link for functions.
    pub(crate) fn calls(&self) -> Result<&Mutex<Link>, Error> {
        if let Some(calls) = self.calls.get() {
            return Ok(calls);
        }
        let link = self.choices.link()?;
        Ok(self.calls.get_or_init(|| Mutex::new(link)))
    }

    fn greet(&self) -> Result<Hello, Error> {
        let mut request = Writer::request(Op::Hello);
        request.u8(VERSION);
        let reply = self.ask(&request.0, &mut self.patience())?;
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
            Some((version, Hello { epoch, capacity, addresses: addresses.into() }))
        })();
        match hello {
            Some((VERSION, hello)) => Ok(hello),
            Some((theirs, _)) => Err(self.protocol(format!(
                "its store speaks version {theirs}, and this library version {VERSION}: update the older of the two"
            ))),
            None => Err(self.malformed()),
        }
    }

    /// The owner's memory, if it can be mapped here.
    pub(crate) fn region(&self) -> Result<&Region, &str> {
        let region = self.region.get_or_init(|| self.map());
        region.as_ref().map_err(|why| why.as_str())
    }

    fn map(&self) -> Result<Region, String> {
        if !self.choices.is_mapped {
            return Err("the client was told not to map it".to_owned());
        }
        if !self.address().starts_with("unix:") {
            return Err("the owner is reached over TCP, which passes no memory".to_owned());
        }
        let admin = Admin::new(self.address()).map_err(|error| error.to_string())?;
        let admin = admin.timeout(self.choices.connect_timeout);
        let memory = admin.object_memory().map_err(|error| error.to_string())?;
        if memory.len != self.hello.capacity {
            return Err(format!(
                "the owner's memory has {} bytes, and its store {}",
                memory.len, self.hello.capacity
            ));
        }
        Region::of_owner(std::os::fd::AsFd::as_fd(&memory), memory.len, memory.may_write)
    }

    /// Notes a claim that is no longer needed.
    pub(crate) fn release(&self, claim: u64, len: usize) {
        if self.check_process().is_err() {
            // The claim is the parent's.
            return;
        }
        let is_due = {
            let mut releases = lock(&self.releases);
            releases.push(claim);
            len >= LARGE || releases.len() >= RELEASES
        };
        // If another thread has the link, its next request takes them along.
        if is_due && let Ok(link) = self.link.try_lock() {
            // A link that fails has no claims any more.
            let _ = self.send_releases(&link);
        }
    }

    fn add_releases(&self, request: &mut Writer) {
        let mut releases = lock(&self.releases);
        let from = releases.len().saturating_sub(MAX_RELEASES);
        request.u16((releases.len() - from) as u16);
        for claim in releases.drain(from..) {
            request.u64(claim);
        }
    }

    /// Checks a reply's status. Returns the fields behind it.
    fn fields<'r>(&self, reply: &'r [u8], number: u64) -> Result<Reader<'r>, Error> {
        let mut fields = Reader(reply);
        let status = fields.u8().and_then(Status::from_number).ok_or_else(|| self.malformed())?;
        Err(match status {
            Status::Done => return Ok(fields),
            Status::Gone => Error::Gone { number, why: GoneWhy::Evicted },
            Status::WrongKey => Error::WrongKey { number },
            Status::Unset => Error::Unset { number },
            Status::NotReserved => Error::NotReserved { number },
            Status::Full => {
                let full = (|| {
                    let (asked, used) = (fields.u64()?, fields.u64()?);
                    Some(Error::Full { asked, used, capacity: fields.u64()?, largest: fields.u64()? })
                })();
                full.unwrap_or_else(|| self.malformed())
            }
        })
    }

    /// Checks that a handle is of the owner as it runs now.
    pub(crate) fn check(&self, handle: &Handle) -> Result<(), Error> {
        if handle.epoch == self.hello.epoch {
            return Ok(());
        }
        let why = GoneWhy::Restarted { address: self.address().to_owned() };
        Err(Error::Gone { number: handle.number, why })
    }

    /// A request about one object.
    fn about(op: Op, handle: &Handle) -> Writer {
        let mut request = Writer::request(op);
        request.u64(handle.number).bytes(&handle.key.0);
        request
    }

    fn handle(&self, number: u64, key: Key, len: u64, type_name: &str) -> Handle {
        let addresses = match self.hello.addresses.is_empty() {
            true => [self.address().to_owned()].into(),
            false => Arc::clone(&self.hello.addresses),
        };
        Handle { epoch: self.hello.epoch, number, len, key, type_name: type_name.into(), addresses }
    }

    /// Claims an object. With [`Status::Unset`] the offset of the word to wait for.
    fn claim(&self, handle: &Handle, patience: &mut Patience<'_>) -> Result<Result<Claimed, u64>, Error> {
        self.check(handle)?;
        let mut request = Writer(Vec::with_capacity(64));
        request.u8(Op::Claim as u8);
        self.add_releases(&mut request);
        request.u64(handle.number).bytes(&handle.key.0);
        let reply = self.ask(&request.0, patience)?;
        if reply.first() == Some(&(Status::Unset as u8)) {
            let word = Reader(&reply[1..]).u64().ok_or_else(|| self.malformed())?;
            return Ok(Err(word));
        }
        let mut fields = self.fields(&reply, handle.number)?;
        let claimed =
            (|| Some(Claimed { claim: fields.u64()?, offset: fields.u64()?, len: fields.u64()? }))();
        claimed.map(Ok).ok_or_else(|| self.malformed())
    }
}

fn poll_once(link: &Link, number: u32) -> Result<Option<farjump::Reply>, Error> {
    let Some(mut pending) = link.pending_from_raw(number) else { return Ok(None) };
    let polled = pending.poll()?;
    let _ = pending.into_raw();
    Ok(polled)
}

/// Sleeps until the descriptor of a link, which stays open as long as that, is readable, or the time is over.
fn sleep_on(descriptor: i32, time: Duration) {
    // SAFETY: the link is the client's, which the caller borrows.
    let descriptor = unsafe { std::os::fd::BorrowedFd::borrow_raw(descriptor) };
    let time = Timespec::try_from(time).ok();
    // A failure shortens the sleep, and the caller looks again.
    let _ = poll(&mut [PollFd::new(&descriptor, PollFlags::IN)], time.as_ref());
}

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

    /// The address that it is connected to.
    pub fn address(&self) -> &str {
        self.0.address()
    }

    /// Whether it can be used for this handle in this process.
    pub(crate) fn serves(&self, handle: &Handle) -> bool {
        self.epoch() == handle.epoch && self.0.check_process().is_ok()
    }

    /// The epoch of the owner's store.
    pub fn epoch(&self) -> u64 {
        self.0.hello.epoch
    }

    /// How bytes come here: `Ok` if the owner's memory is mapped, or why it is not.
    ///
    /// # Errors
    /// The reason, in a sentence.
    pub fn mapping(&self) -> Result<(), &str> {
        self.0.region().map(drop)
    }

    /// The bytes of an object: where they lie if the owner's memory is mapped, otherwise a copy.
    ///
    /// # Errors
    /// [`Error::Gone`], [`Error::WrongKey`], [`Error::Unset`]; [`Error::TimedOut`]; [`Error::Link`] if the owner is gone.
    pub fn get(&self, handle: &Handle) -> Result<View, Error> {
        self.get_with(handle, &mut self.0.patience())
    }

    /// As [`Client::get`], with a time limit or a check of the caller's.
    ///
    /// # Errors
    /// As [`Client::get`], and [`Error::Interrupted`].
    pub fn get_with(&self, handle: &Handle, patience: &mut Patience<'_>) -> Result<View, Error> {
        match self.0.claim(handle, patience)? {
            Ok(claimed) => self.view(claimed, patience),
            Err(_) => Err(Error::Unset { number: handle.number }),
        }
    }

    /// As [`Client::get_with`]; waits for the contents of a reserved object.
    ///
    /// # Errors
    /// As [`Client::get_with`].
    pub fn wait(&self, handle: &Handle, patience: &mut Patience<'_>) -> Result<View, Error> {
        let mut nap = Duration::from_micros(50);
        loop {
            let word = match self.0.claim(handle, patience)? {
                Ok(claimed) => return self.view(claimed, patience),
                Err(word) => word,
            };
            if !patience.may_go_on() {
                return Err(Error::Interrupted);
            }
            if patience.is_over() {
                let (address, timeout) = (self.address().to_owned(), patience.timeout);
                return Err(Error::TimedOut { address, timeout });
            }
            let word = self.0.region().ok().and_then(|region| region.at(word, 4));
            let time = patience.slice(if word.is_some() { NAP } else { nap });
            match word {
                Some(word) => {
                    // SAFETY: the word lies in the mapped region, at a multiple of 64; the owner changes it by atomic
                    // operations, and here it is only read.
                    let word = unsafe { AtomicU32::from_ptr(word.as_ptr().cast()) };
                    if word.load(Ordering::Acquire) == 0 {
                        let time = Timespec::try_from(time).ok();
                        // Woken, timed out or failed: the claim above decides.
                        patience.sleep(|| _ = futex::wait(word, futex::Flags::empty(), 0, time.as_ref()));
                    }
                }
                None => patience.sleep(|| std::thread::sleep(time)),
            }
            nap = (nap * 2).min(NAP);
        }
    }

    /// The view of a claimed object.
    fn view(&self, claimed: Claimed, patience: &mut Patience<'_>) -> Result<View, Error> {
        if let Ok(region) = self.0.region() {
            let Some(data) = region.at(claimed.offset, claimed.len) else {
                return Err(self.0.protocol("an object that it gave lies outside its memory"));
            };
            return Ok(View::of_client(Arc::clone(&self.0), data, claimed));
        }
        let pulled = self.pull(claimed, patience);
        self.0.release(claimed.claim, claimed.len as usize);
        pulled.map(View::of_copy)
    }

    /// Copies a claimed object through frames, several at a time.
    fn pull(&self, claimed: Claimed, patience: &mut Patience<'_>) -> Result<Vec<u8>, Error> {
        let too_long = |_| self.0.protocol("an object that it gave is longer than memory");
        let len = usize::try_from(claimed.len).map_err(too_long)?;
        let mut bytes = Vec::new();
        bytes.try_reserve_exact(len).map_err(|_| Error::Memory {
            doing: "copying an object of",
            len: claimed.len,
            source: std::io::ErrorKind::OutOfMemory.into(),
            advice: String::new(),
        })?;
        // A reply brings as much as the link takes: the first one shows how much that is.
        let mut step = MAX_READ;
        while bytes.len() < len {
            let mut numbers = Vec::new();
            {
                self.0.check_process()?;
                let link = lock(&self.0.link);
                let window = if bytes.is_empty() { 1 } else { WINDOW };
                for place in 0..window as u64 {
                    let at = bytes.len() as u64 + place * step;
                    if at >= claimed.len {
                        break;
                    }
                    let mut request = Writer::request(Op::Read);
                    request.u64(claimed.claim).u64(at).u64(step);
                    numbers.push(link.inject(&self.0.library, &request.0)?.into_raw());
                }
            }
            for (place, number) in numbers.into_iter().enumerate() {
                let link = lock(&self.0.link);
                let reply = self.0.await_reply(link, &self.0.link, number, patience)?;
                let part = self.0.fields(&reply, claimed.claim)?.0;
                let wanted = (len - bytes.len()).min(step as usize);
                if part.is_empty() || part.len() > wanted || (place > 0 && part.len() < wanted) {
                    return Err(self.0.protocol("it sent another part of an object than was asked for"));
                }
                step = step.min(part.len() as u64);
                bytes.extend_from_slice(part);
                if (part.len() as u64) < MAX_READ && place == 0 && part.len() < wanted {
                    break;
                }
            }
        }
        Ok(bytes)
    }

    /// Puts an object.
    ///
    /// # Errors
    /// [`Error::Full`]; [`Error::TimedOut`], [`Error::Link`].
    pub fn put(&self, bytes: &[u8]) -> Result<Handle, Error> {
        self.put_parts("", &[bytes], &mut self.0.patience())
    }

    /// Puts an object that consists of `parts` in their order, with a name for its type.
    ///
    /// # Errors
    /// As [`Client::put`], and [`Error::TypeName`], [`Error::Interrupted`].
    pub fn put_parts(
        &self,
        type_name: &str,
        parts: &[&[u8]],
        patience: &mut Patience<'_>,
    ) -> Result<Handle, Error> {
        check_type_name(type_name)?;
        let len: usize = parts.iter().map(|part| part.len()).sum();
        let (number, key) = self.write(None, type_name, parts, patience)?;
        Ok(self.0.handle(number, key, len as u64, type_name))
    }

    /// Makes a handle whose object gets its contents later ([`Client::set`]).
    ///
    /// # Errors
    /// As [`Client::put`], and [`Error::TypeName`].
    pub fn reserve(&self, type_name: &str) -> Result<Handle, Error> {
        check_type_name(type_name)?;
        let mut request = Writer::request(Op::Reserve);
        request.text(type_name);
        let reply = self.0.ask(&request.0, &mut self.0.patience())?;
        let mut fields = self.0.fields(&reply, 0)?;
        let made = (|| Some((fields.u64()?, fields.key()?)))();
        let (number, key) = made.ok_or_else(|| self.0.malformed())?;
        Ok(self.0.handle(number, key, 0, type_name))
    }

    /// Gives a reserved object contents, in place of those that it has.
    ///
    /// # Errors
    /// As [`Client::put`], and [`Error::NotReserved`], [`Error::Gone`], [`Error::WrongKey`], [`Error::Interrupted`].
    pub fn set(&self, handle: &Handle, parts: &[&[u8]], patience: &mut Patience<'_>) -> Result<(), Error> {
        self.0.check(handle)?;
        self.write(Some(handle), &handle.type_name, parts, patience).map(drop)
    }

    /// Writes a new object, for a reserved one if that is given.
    fn write(
        &self,
        reserved: Option<&Handle>,
        type_name: &str,
        parts: &[&[u8]],
        patience: &mut Patience<'_>,
    ) -> Result<(u64, Key), Error> {
        let len: usize = parts.iter().map(|part| part.len()).sum();
        let about = reserved.map_or(0, |handle| handle.number);
        let (number, key) = reserved.map_or((0, Key([0; 16])), |handle| (handle.number, handle.key));
        let made = |fields: &mut Reader<'_>| Some((fields.u64()?, fields.key()?));
        if len <= INLINE {
            let mut request = Writer(Vec::with_capacity(len + 64));
            request.u8(Op::Put as u8).u64(number).bytes(&key.0).text(type_name);
            parts.iter().for_each(|part| _ = request.bytes(part));
            let reply = self.0.ask(&request.0, patience)?;
            return made(&mut self.0.fields(&reply, about)?).ok_or_else(|| self.0.malformed());
        }
        let mut request = Writer::request(Op::Allocate);
        request.u64(len as u64).text(type_name);
        let reply = self.0.ask(&request.0, patience)?;
        let mut fields = self.0.fields(&reply, about)?;
        let place = made(&mut fields).and_then(|(number, key)| Some((number, key, fields.u64()?)));
        let (written, its_key, offset) = place.ok_or_else(|| self.0.malformed())?;
        match self.0.region() {
            Ok(region) if region.is_writable() => {
                let Some(data) = region.at(offset, len as u64) else {
                    return Err(self.0.protocol("memory that it gave lies outside its memory"));
                };
                let mut at = 0;
                for part in parts {
                    // SAFETY: the owner has given these `len` bytes of mapped memory to this client alone, until they are
                    // committed. An owner that lies harms its own objects.
                    unsafe { data.as_ptr().add(at).copy_from_nonoverlapping(part.as_ptr(), part.len()) };
                    at += part.len();
                }
            }
            _ => self.push(written, parts)?,
        }
        let mut request = Writer::request(Op::Commit);
        request.u64(written).u64(number).bytes(&key.0);
        let reply = self.0.ask(&request.0, patience)?;
        self.0.fields(&reply, about)?;
        Ok((written, its_key))
    }

    /// Sends the contents of an object through frames. The commit behind them shows whether they came.
    fn push(&self, number: u64, parts: &[&[u8]]) -> Result<(), Error> {
        self.0.check_process()?;
        let link = lock(&self.0.link);
        let mut at = 0;
        let mut request = Writer(Vec::with_capacity(PART + 32));
        for part in parts.iter().flat_map(|part| part.chunks(PART)) {
            request.0.clear();
            request.u8(Op::Write as u8).u64(number).u64(at).bytes(part);
            link.send(&self.0.library, &request.0)?;
            at += part.len() as u64;
        }
        Ok(())
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
