//! The source's side of a link: inject functions, wait for what they reply.

mod batch;
mod connect;
mod forwarding;
mod in_place;
mod inner;
mod pending_calls;
mod send;
mod sent_codes;
mod watch;

use std::cell::{OnceCell, RefCell};
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use farjump_control::{PassedOver, PeerIdentity, Rights};
use farjump_core::transport::{ArrivalRules, Route};
use farjump_loader::Library;

pub use batch::Batch;
pub use connect::LinkBuilder;
pub(crate) use connect::{joined_channel, ring_len};
pub(crate) use forwarding::Outgoing;
use inner::Inner;
pub(crate) use pending_calls::ReplyBytes;
pub(crate) use send::{CANARY_LEN, run_payload_init};
use watch::Watch;

use crate::{Error, Mode, Refusal};

/// A connection to a target.
///
/// One thread uses a link at a time; it may move between threads (it is [`Send`], and a [`Pending`], which borrows it, is not). Several calls may be in flight: each [`Link::inject`]
/// returns a [`Pending`] of its own, and answers are matched to calls whatever order they are taken in. Functions run at the
/// target in the order in which they were injected.
///
/// ```no_run
/// # fn main() -> Result<(), farjump::Error> {
/// use std::time::Duration;
/// use farjump::{Library, Link};
///
/// let histogram = Library::open("libhistogram.so")?;
/// let link = Link::connect("unix:store.sock")?;
/// let reply = link.inject(&histogram, b"column=3")?.wait(Duration::from_secs(1))?;
/// println!("{} bytes came back", reply.len());
/// # Ok(())
/// # }
/// ```
// In this order: what every call uses begins on the lines that it would begin on alone.
#[repr(C)]
#[derive(Debug)]
pub struct Link {
    inner: RefCell<Inner>,
    /// For programs that sleep in an event loop of their own.
    watch: OnceCell<Box<Watch>>,
}

/// What a function replied: the bytes of all its calls of `farjump_reply`, in order. Up to 40 bytes are held without an
/// allocation.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Reply(pending_calls::ReplyBytes);

impl Reply {
    /// The bytes.
    pub fn into_vec(self) -> Vec<u8> {
        self.0.into_vec()
    }
}

impl std::ops::Deref for Reply {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl AsRef<[u8]> for Reply {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

/// What a link has sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct LinkStats {
    /// Frames sent that run something.
    pub frames: u64,
    /// Of those, frames that carried code.
    pub frames_with_code: u64,
    /// Bytes of images sent, in frames and on request.
    pub code_bytes: u64,
    /// Bytes of payload sent.
    pub payload_bytes: u64,
}

impl Link {
    fn new(inner: Inner) -> Link {
        Link { inner: RefCell::new(inner), watch: OnceCell::new() }
    }

    /// Connects to a target at `address` (`unix:PATH`) with the defaults of [`Link::builder`].
    ///
    /// # Errors
    /// When nobody listens there, the target refuses, or no transport is common to both.
    pub fn connect(address: &str) -> Result<Link, Error> {
        Link::builder(address).connect()
    }

    /// A connection with choices: transport, time limits, sizes, handlers.
    pub fn builder(address: &str) -> LinkBuilder {
        LinkBuilder::new(address)
    }

    /// Injects the function of `library`: runs its payload routines on `args` here, sends the frame, and returns without
    /// waiting for it to run. The code itself travels the first time only.
    ///
    /// While the target has no room it waits, up to the builder's send limit; [`Link::try_inject`] does not. A frame that the
    /// mailbox is too small for has the target make a bigger one, for which it waits as well.
    ///
    /// # Errors
    /// When a payload routine fails, the frame is larger than the link or the target takes, the wait took too long or the target
    /// is gone. Nothing was sent then.
    #[inline(always)]
    pub fn inject(&self, library: &Library, args: &[u8]) -> Result<Pending<'_>, Error> {
        let token = boxed(self.inner.borrow_mut().inject(library, args, true, true))?;
        Ok(Pending { link: self, token })
    }

    /// As [`Link::inject`], but fails with [`Error::Full`] instead of waiting for room.
    ///
    /// # Errors
    /// As [`Link::inject`], and [`Error::Full`].
    #[inline(always)]
    pub fn try_inject(&self, library: &Library, args: &[u8]) -> Result<Pending<'_>, Error> {
        let token = boxed(self.inner.borrow_mut().inject(library, args, true, false))?;
        Ok(Pending { link: self, token })
    }

    /// Injects without asking for a reply: the cheapest way. Whether it ran shows at the next [`Link::flush`], and refusals
    /// in the builder's handler.
    ///
    /// # Errors
    /// As [`Link::inject`].
    #[inline(always)]
    pub fn send(&self, library: &Library, args: &[u8]) -> Result<(), Error> {
        boxed(self.inner.borrow_mut().inject(library, args, false, true)).map(drop)
    }

    /// As [`Link::send`], but fails with [`Error::Full`] instead of waiting for room.
    ///
    /// # Errors
    /// As [`Link::send`], and [`Error::Full`].
    #[inline(always)]
    pub fn try_send(&self, library: &Library, args: &[u8]) -> Result<(), Error> {
        boxed(self.inner.borrow_mut().inject(library, args, false, false)).map(drop)
    }

    /// Begins a batch: messages that wait for each other to share a frame, where they are small.
    pub fn batch(&self) -> Batch<'_> {
        Batch::new(self)
    }

    /// Injects, and appends the reply to `into` once it is there: the call that allocates nothing, whatever the reply's
    /// length, once `into` has grown to it.
    ///
    /// # Errors
    /// As [`Link::inject`] and [`Pending::wait`].
    #[inline]
    pub fn call_into(
        &self,
        library: &Library,
        args: &[u8],
        timeout: Duration,
        into: &mut Vec<u8>,
    ) -> Result<(), Error> {
        let mut inner = self.inner.borrow_mut();
        let token = boxed(inner.inject(library, args, true, true))?;
        inner.wait_into(token, timeout, into)
    }

    /// The call in flight that has this number ([`Pending::into_number`]): `None` if its answer was taken, or it was given up, or
    /// the number was never one of this link's. Numbers are used again after 65,535 calls that had the same place.
    #[inline]
    pub fn pending(&self, number: u32) -> Option<Pending<'_>> {
        self.inner.borrow_mut().is_owned(number).then_some(Pending { link: self, token: number })
    }

    /// Whether a call on this link is under way, so that another one, from a handler or a payload routine, would panic.
    #[inline]
    pub fn is_busy(&self) -> bool {
        self.inner.try_borrow_mut().is_err()
    }

    /// Chooses how the code of the calls from here on comes to run.
    pub fn set_mode(&self, mode: Mode) {
        self.inner.borrow_mut().set_mode(mode);
    }

    /// Waits until everything sent before has run.
    ///
    /// # Errors
    /// The first refusal of a frame sent with [`Link::send`] since the last flush; a deadline that passed; a target that is
    /// gone, which also means that frames may not have run.
    pub fn flush(&self, timeout: Duration) -> Result<(), Error> {
        self.inner.borrow_mut().flush(timeout)
    }

    /// Looks once for answers and for news of the target, without waiting. Programs that own their loop call this, and
    /// [`Pending::poll`].
    ///
    /// # Errors
    /// When the target is gone.
    pub fn progress(&self) -> Result<(), Error> {
        self.inner.borrow_mut().look()
    }

    /// What becomes readable when something comes while the link is armed ([`Link::arm`]): an answer, a refusal, the target's end. It
    /// is made with the first call, and stays the same descriptor for the life of the link, also when the link is
    /// [made anew](Link::reconnect). Watch it, and do not read it.
    ///
    /// # Errors
    /// When the system has none to give.
    pub fn as_fd(&self) -> Result<BorrowedFd<'_>, Error> {
        Ok(self.watch()?.as_fd())
    }

    /// Prepares to sleep on [`Link::as_fd`] in an event loop of the caller's: how long at most, or `None` if something has come
    /// since the last time: an answer then waits for its [`Pending::poll`], or there may be room for [`Link::try_inject`].
    /// It looks for everything itself, so that nothing else need be called. [`Link::disarm`] comes after it in any case.
    ///
    /// ```no_run
    /// # use farjump::{Error, Link, Pending, Reply};
    /// # fn sleep_on(_: std::os::fd::BorrowedFd<'_>, _: std::time::Duration) {}
    /// fn answer(link: &Link, mut call: Pending<'_>) -> Result<Reply, Error> {
    ///     loop {
    ///         if let Some(reply) = call.poll()? {
    ///             return Ok(reply);
    ///         }
    ///         if let Some(longest) = link.arm()? {
    ///             sleep_on(link.as_fd()?, longest); // with everything else that the program sleeps on
    ///         }
    ///         link.disarm();
    ///     }
    /// }
    /// ```
    ///
    /// It is at most a second, so that a ring that got lost delays and never hangs; less where the transport has nothing that
    /// rings, or there was no room ([`Error::Full`]), which shows in memory only: then a millisecond at first, and up to 64. What looks at the link while it is armed
    /// ([`Pending::poll`], [`Link::progress`], any call that waits) is welcome to it, but may take what would have woken who sleeps: in
    /// a program of several tasks, that one is to be told.
    ///
    /// # Errors
    /// [`Error::PeerGone`] when the target is gone. Answers that it gave before are still there to be taken.
    pub fn arm(&self) -> Result<Option<Duration>, Error> {
        let watch = self.watch()?;
        self.inner.borrow_mut().arm_watch(watch)
    }

    /// Awake again: the target need not ring any more. Does nothing on a link that is not armed.
    pub fn disarm(&self) {
        self.inner.borrow_mut().disarm_watch();
    }

    fn watch(&self) -> Result<&Watch, Error> {
        if let Some(watch) = self.watch.get() {
            return Ok(watch);
        }
        let inner = self.inner.borrow();
        let made = Watch::new(inner.traffic())?;
        inner.watch(&made)?;
        Ok(self.watch.get_or_init(|| Box::new(made)))
    }

    /// Connects to the same address again, after the target went away or restarted. Calls that were in flight fail. Code is
    /// offered by its id: a target that no longer has it asks for it.
    ///
    /// # Errors
    /// As [`Link::connect`]; the link is then as it was.
    pub fn reconnect(&mut self) -> Result<(), Error> {
        self.inner.get_mut().reconnect(self.watch.get().map(|watch| &**watch))
    }

    /// Time that the target took to place the code of `library`, as it reported; `None` if it was not placed on this link
    /// (the target had it already), or no report came within `timeout`.
    ///
    /// # Errors
    /// When the target is gone.
    pub fn link_time(&self, library: &Library, timeout: Duration) -> Result<Option<Duration>, Error> {
        self.inner.borrow_mut().link_time(library, timeout)
    }

    /// What this link has sent.
    pub fn stats(&self) -> LinkStats {
        self.inner.borrow().stats()
    }

    /// Name of the transport in use.
    pub fn transport(&self) -> String {
        self.inner.borrow().transport().to_owned()
    }

    /// The path that the link's frames take, and why not another. For people; may take long.
    pub fn path(&self) -> Path {
        self.inner.borrow().path()
    }

    /// The arrival rule in use.
    pub fn rule(&self) -> ArrivalRules {
        self.inner.borrow().rule()
    }

    /// Who the target is.
    pub fn peer(&self) -> PeerIdentity {
        self.inner.borrow().peer().clone()
    }

    /// The target's epoch: another one after it restarted.
    pub fn epoch(&self) -> u64 {
        self.inner.borrow().epoch()
    }

    /// What this process may do at the target, as that said. Calls for which a right is missing fail, some of them before anything is
    /// sent. Without [`Rights::INJECT`] calls in mode cached run code that the target holds already, brought by others.
    pub fn rights(&self) -> Rights {
        self.inner.borrow().rights()
    }

    /// Largest frame that the link's own mailbox takes, in bytes, with header and code. For larger ones the target makes a
    /// bigger mailbox when they come ([`TargetBuilder::max_payload`](crate::TargetBuilder::max_payload)), where the transport has
    /// mailboxes.
    pub fn max_frame(&self) -> usize {
        self.inner.borrow().max_frame()
    }
}

/// The path that a link's frames take.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Path {
    /// Name of the transport.
    pub transport: String,
    /// The arrival rule: how the receiver knows that all of a frame is there.
    pub rule: ArrivalRules,
    /// What it travels over, as the transport says.
    pub route: Route,
    /// Transports that would rather have been taken, with what stood in their way.
    pub passed_over: Vec<PassedOver>,
}

impl Path {
    /// The transport, and whether frames are sealed on it where they travel on a stream, in a few words: `tcp, sealed by AES-256-GCM`.
    pub fn summary(&self) -> String {
        summary(&self.transport, &self.route)
    }
}

/// As [`Path::summary`].
pub(crate) fn summary(transport: &str, route: &Route) -> String {
    let note = route.notes.first().and_then(|note| note.split(':').next());
    match note.filter(|note| note.starts_with("sealed") || *note == "clear") {
        Some(note) => format!("{transport}, {note}"),
        None => transport.to_owned(),
    }
}

/// A call in flight. Dropping it gives the call up: it still runs, and its answer is dropped.
#[derive(Debug)]
#[must_use = "dropping it gives the answer up: use Link::send where none is wanted"]
pub struct Pending<'l> {
    link: &'l Link,
    token: u32,
}

impl Pending<'_> {
    /// Waits for the answer.
    ///
    /// # Errors
    /// When the target refused the function, it panicked, `timeout` passed (the call is then given up) or the target is
    /// gone.
    #[inline(always)]
    pub fn wait(self, timeout: Duration) -> Result<Reply, Error> {
        // Once waited for the token is void: there is nothing to give up.
        let this = std::mem::ManuallyDrop::new(self);
        match this.link.inner.borrow_mut().wait(this.token, timeout) {
            Ok(bytes) => Ok(Reply(bytes)),
            Err(error) => Err(error),
        }
    }

    /// Looks once, without waiting: `None` if the answer is not there yet. After an answer it is `None` for ever.
    ///
    /// # Errors
    /// As [`Pending::wait`], but for the deadline.
    pub fn poll(&mut self) -> Result<Option<Reply>, Error> {
        let mut inner = self.link.inner.borrow_mut();
        Ok(inner.poll_call(self.token)?.map(Reply))
    }

    /// Waits for the answer, and appends it to `into`: allocates nothing once `into` has grown to it.
    ///
    /// # Errors
    /// As [`Pending::wait`]; `into` is then as it was.
    #[inline]
    pub fn wait_into(self, timeout: Duration, into: &mut Vec<u8>) -> Result<(), Error> {
        let this = std::mem::ManuallyDrop::new(self);
        this.link.inner.borrow_mut().wait_into(this.token, timeout, into)
    }

    /// Gives the call up.
    pub fn cancel(self) {}

    /// The call's number on its link, for programs that cannot keep a borrow: [`Link::pending`] gives the call back. A call that
    /// is neither taken up again nor answered keeps its place for as long as the link lives.
    #[inline]
    pub fn into_number(self) -> u32 {
        std::mem::ManuallyDrop::new(self).token
    }
}

impl Drop for Pending<'_> {
    fn drop(&mut self) {
        // A handler that runs inside the link may drop a Pending; the borrow is then taken and the slot is freed when the
        // answer comes.
        if let Ok(mut inner) = self.link.inner.try_borrow_mut() {
            inner.abandon(self.token);
        }
    }
}

/// Runs when the target refuses a frame sent without asking for a reply.
pub(crate) type RefusalHandler = Box<dyn FnMut(&Refusal) + Send>;
/// Runs once when the target is gone, with the reason.
pub(crate) type PeerGoneHandler = Box<dyn FnMut(&str) + Send>;
/// Runs when the target asks for code, with the ifunc's name.
pub(crate) type CodeMissingHandler = Box<dyn FnMut(&str) + Send>;

/// Takes an error out of the box in which it came along a quick path.
#[inline(always)]
fn boxed(result: Result<usize, Box<Error>>) -> Result<u32, Error> {
    match result {
        Ok(token) => Ok(token as u32),
        Err(error) => Err(*error),
    }
}

/// When to stop waiting.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Deadline(Option<Instant>);

impl Deadline {
    /// `timeout` from now; one that the clock cannot hold is none.
    pub(crate) fn after(timeout: Duration) -> Self {
        Deadline(Instant::now().checked_add(timeout))
    }

    pub(crate) fn left(self) -> Duration {
        self.0.map_or(Duration::MAX, |at| at.saturating_duration_since(Instant::now()))
    }

    pub(crate) fn passed(self) -> bool {
        self.left() == Duration::ZERO
    }
}
