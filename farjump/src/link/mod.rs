//! Links: inject functions, wait for their replies.

mod batch;
mod builder;
mod connecting;
#[cfg(feature = "build")]
mod exact;
mod forwarded;
mod forwarding;
mod group;
mod in_place;
mod inner;
mod pending_calls;
mod reading;
mod send;
mod sent_codes;
mod typed;
mod wait;

use std::cell::{OnceCell, RefCell};
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use farjump_control::{PassedOver, PeerIdentity, Rights};
use farjump_core::transport::{ArrivalRules, PathInfo};
use farjump_loader::Library;

use crate::config::LinkConfig;
pub use crate::link::wait::driver::DrivenByThread;
use crate::link::wait::epoll::Watch;
pub use crate::link::wait::patience::Patience;
pub use crate::link::wait::shared::{HeldLink, SharedLink, Sleeper};
pub use crate::link::wait::shared_calls::SharedPending;
pub use crate::link::wait::threads::Ended;
pub use batch::Batch;
pub use builder::LinkBuilder;
#[cfg(feature = "build")]
pub use exact::{CompiledImage, KeptCause, PeerCompiler};
pub(crate) use forwarded::{Forwarded, Image, PassedImage, Wanted};
pub(crate) use forwarding::Outgoing;
pub use group::Group;
use inner::{Inner, TURNS_TO_IDLE};
pub(crate) use pending_calls::ReplyBytes;
pub use reading::MemoryRead;
pub(crate) use send::{CANARY_LEN, run_payload_init};
pub use typed::{SharedTypedPending, TypedPending};

use crate::{Cpu, Error, Mode, Refusal};

/// A connection to a target.
///
/// One thread uses a link at a time. A link may move between threads (it is [`Send`]; a [`Pending`], which
/// borrows it, is not). Several calls may be in flight: each [`Link::inject`] returns a [`Pending`] of its
/// own, and outcomes are matched to calls in whatever order they are taken. Functions run at the target in
/// injection order.
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
// In this order the fields that every call uses begin on the lines that they would begin on alone.
#[repr(C)]
#[derive(Debug)]
pub struct Link {
    inner: RefCell<Inner>,
    /// For programs that sleep in their own event loop.
    watch: OnceCell<Box<Watch>>,
    /// Calls that were dropped while the link was in use.
    dropped: RefCell<Vec<u32>>,
    /// The sleep of the tasks that await calls.
    #[cfg(feature = "tokio")]
    reactor: RefCell<Option<Box<crate::link::wait::tokio::Reactor>>>,
}

/// A function's reply: the bytes of all its calls of `farjump_reply`, in order. Up to 40 bytes are held
/// without an allocation.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Reply(pub(crate) pending_calls::ReplyBytes);

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

/// Statistics of a link.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct LinkStats {
    /// Frames sent that run a function.
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
        Link {
            inner: RefCell::new(inner),
            watch: OnceCell::new(),
            dropped: RefCell::default(),
            #[cfg(feature = "tokio")]
            reactor: RefCell::default(),
        }
    }

    /// Connects to a target at `address` (`unix:PATH`, `unix:@NAME`) with the defaults of [`Link::builder`].
    ///
    /// # Errors
    /// When no process listens there, the target rejects the link, or the two have no transport in common.
    pub fn connect(address: &str) -> Result<Link, Error> {
        Link::builder(address).connect()
    }

    /// Returns a builder of a connection: transport, time limits, sizes, handlers.
    pub fn builder(address: &str) -> LinkBuilder {
        LinkBuilder::new(address)
    }

    /// Injects the function of `library`: runs its payload routines on `args` here, sends the frame, and
    /// returns without waiting for it to run. The code itself travels the first time only.
    ///
    /// Without credit it waits, up to the builder's send limit; [`Link::try_inject`] does not. For a frame
    /// larger than the mailbox the target makes a large mailbox, for which it waits as well.
    ///
    /// # Errors
    /// When a payload routine fails, the frame is larger than the link or the target takes, the wait took too
    /// long or the target is gone. Nothing was sent then.
    #[inline(always)]
    pub fn inject(&self, library: &Library, args: &[u8]) -> Result<Pending<'_>, Error> {
        let token = boxed(self.inner.borrow_mut().inject::<true>(library, args, true))?;
        Ok(Pending { link: self, token })
    }

    /// As [`Link::inject`], but fails with [`crate::InjectError::Full`] instead of waiting for credit.
    ///
    /// # Errors
    /// As [`Link::inject`], and [`crate::InjectError::Full`].
    #[inline(always)]
    pub fn try_inject(&self, library: &Library, args: &[u8]) -> Result<Pending<'_>, Error> {
        let token = boxed(self.inner.borrow_mut().inject::<true>(library, args, false))?;
        Ok(Pending { link: self, token })
    }

    /// Injects without requesting a reply: the cheapest kind of call. The next [`Link::flush`] shows whether it ran;
    /// refusals go to the builder's handler.
    ///
    /// # Errors
    /// As [`Link::inject`].
    #[inline(always)]
    pub fn send(&self, library: &Library, args: &[u8]) -> Result<(), Error> {
        boxed(self.inner.borrow_mut().inject::<false>(library, args, true)).map(drop)
    }

    /// As [`Link::send`], but fails with [`crate::InjectError::Full`] instead of waiting for credit.
    ///
    /// # Errors
    /// As [`Link::send`], and [`crate::InjectError::Full`].
    #[inline(always)]
    pub fn try_send(&self, library: &Library, args: &[u8]) -> Result<(), Error> {
        boxed(self.inner.borrow_mut().inject::<false>(library, args, false)).map(drop)
    }

    /// As [`Link::send`], in another mode than the link's.
    ///
    /// # Errors
    /// As [`Link::send`].
    pub fn send_in(&self, mode: Mode, library: &Library, args: &[u8]) -> Result<(), Error> {
        self.in_mode(mode, || self.send(library, args))
    }

    /// As [`Link::try_send`], in another mode than the link's.
    ///
    /// # Errors
    /// As [`Link::try_send`].
    pub fn try_send_in(&self, mode: Mode, library: &Library, args: &[u8]) -> Result<(), Error> {
        self.in_mode(mode, || self.try_send(library, args))
    }

    /// Runs `act` while this is the mode of calls.
    fn in_mode<T>(&self, mode: Mode, act: impl FnOnce() -> T) -> T {
        let before = self.inner.borrow_mut().set_mode(mode);
        let done = act();
        self.set_mode(before);
        done
    }

    /// Begins a batch: small calls that wait for each other to share a frame.
    pub fn batch(&self) -> Batch<'_> {
        Batch::new(self)
    }

    /// Begins a group: calls that wake a sleeping target once, at the group's end.
    pub fn group(&self) -> Group<'_> {
        Group::new(self)
    }

    /// Injects, and appends the reply to `into` once it has come. Allocates nothing, whatever the reply's
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
        let token = boxed(inner.inject::<true>(library, args, true))?;
        inner.wait_into(token, timeout, into)
    }

    /// The pending call with this number ([`Pending::into_raw`]). `None` if its outcome was taken, or it
    /// was cancelled or timed out, or the link never gave the number. Numbers are used again after 65,535
    /// calls in the same slot.
    #[inline]
    pub fn pending_from_raw(&self, number: u32) -> Option<Pending<'_>> {
        self.inner.borrow_mut().is_owned(number).then_some(Pending { link: self, token: number })
    }

    /// Polls once for the outcome of the call with this number ([`Pending::into_raw`]), without waiting: `None` if the
    /// outcome has not come.
    ///
    /// # Errors
    /// As [`Pending::poll`], and [`crate::WaitError::Taken`] if the outcome was taken or the call cancelled.
    pub fn poll_raw(&self, number: u32) -> Result<Option<Reply>, Error> {
        let mut inner = self.inner.borrow_mut();
        if !inner.is_owned(number) {
            let peer = inner.address().to_owned();
            return Err(crate::WaitError::Taken { peer }.into());
        }
        Ok(inner.poll_call(number)?.map(Reply))
    }

    /// A number that changes when an outcome may have come.
    fn news(&self) -> u64 {
        self.inner.borrow().news()
    }

    /// Returns whether a call on this link is under way, so that another one, from a handler or a payload routine,
    /// would panic.
    #[inline]
    pub fn is_busy(&self) -> bool {
        self.inner.try_borrow_mut().is_err()
    }

    /// Sets the mode of later calls.
    pub fn set_mode(&self, mode: Mode) {
        self.inner.borrow_mut().set_mode(mode);
    }

    /// Waits until everything sent before has run.
    ///
    /// # Errors
    /// The first refusal of a frame sent with [`Link::send`] since the last flush; a deadline that passed; a
    /// target that is gone, in which case some frames may not have run.
    pub fn flush(&self, timeout: Duration) -> Result<(), Error> {
        self.inner.borrow_mut().flush(timeout)
    }

    /// Polls once for outcomes and control messages, without waiting. Programs with a loop of their own call
    /// this, and [`Pending::poll`].
    ///
    /// # Errors
    /// When the target is gone.
    pub fn progress(&self) -> Result<(), Error> {
        self.inner.borrow_mut().look()
    }

    /// Returns whether the target is gone. Reads the control connection now, without waiting. Programs that keep links
    /// to many targets use it to close those of targets that ended.
    pub fn is_gone(&self) -> bool {
        // A handler that calls this runs inside another call, which sees the end by itself.
        self.inner.try_borrow_mut().is_ok_and(|mut inner| inner.is_gone())
    }

    /// A descriptor that becomes readable on an event while the link is armed ([`Link::arm`]): a reply, a
    /// refusal, the target's end. The first call creates it. It stays the same descriptor for the life of the
    /// link, also across [`Link::reconnect`]. Watch it, and do not read it.
    ///
    /// # Errors
    /// When the system has no descriptor left.
    pub fn as_fd(&self) -> Result<BorrowedFd<'_>, Error> {
        Ok(self.watch()?.as_fd())
    }

    /// Prepares to sleep on [`Link::as_fd`] in the caller's event loop. Returns the longest time to sleep, or `None` if
    /// an event has come since the last time: an outcome then waits for its [`Pending::poll`], or there may be credit
    /// for [`Link::try_inject`]. It polls everything itself, so no other call is needed. [`Link::disarm`] follows in
    /// any case.
    ///
    /// ```no_run
    /// # use farjump::{Error, Link, Pending, Reply};
    /// # fn sleep_on(_: std::os::fd::BorrowedFd<'_>, _: std::time::Duration) {}
    /// fn wait_for_reply(link: &Link, mut call: Pending<'_>) -> Result<Reply, Error> {
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
    /// The time is at most a second, so that a lost wake delays and never hangs. It is less where the
    /// transport has no doorbell, or credit was missing ([`crate::InjectError::Full`]), because credit shows
    /// in memory only: then a millisecond at first, and up to 64. Polling an armed link ([`Pending::poll`],
    /// [`Link::progress`], any call that waits) is allowed. It may consume the event that would have woken
    /// the sleeper, so wake the sleeping task yourself.
    ///
    /// # Errors
    /// [`crate::WaitError::PeerGone`] when the target is gone. Outcomes that came before can still be taken.
    pub fn arm(&self) -> Result<Option<Duration>, Error> {
        let watch = self.watch()?;
        self.inner.borrow_mut().arm_watch(watch)
    }

    /// Ends the sleep: the target need not wake this process any more. Does nothing on a link that is not
    /// armed.
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

    /// Connects to the same address again, after the target went away or restarted. Pending calls fail. Code is offered
    /// by its id: a target without the code requests it.
    ///
    /// # Errors
    /// As [`Link::connect`]; the link is then as it was.
    pub fn reconnect(&mut self) -> Result<(), Error> {
        self.inner.get_mut().reconnect(self.watch.get().map(|watch| &**watch))
    }

    /// Time that the target took to place the code of `library`, as it reported. `None` if it was not placed
    /// on this link (the target had it already), or no report came within `timeout`.
    ///
    /// # Errors
    /// When the target is gone.
    pub fn link_time(&self, library: &Library, timeout: Duration) -> Result<Option<Duration>, Error> {
        self.inner.borrow_mut().link_time(library, timeout)
    }

    /// Returns the image that is compiled for the target's CPU in place of the one that `library` carries
    /// ([`LinkBuilder::compile_for_peer`]). Takes results that have come, without waiting. Calls of the library send
    /// the image.
    #[cfg(feature = "build")]
    pub fn compiled_image(&self, library: &Library) -> CompiledImage {
        self.inner.borrow_mut().compiled_image(library)
    }

    /// Statistics of this link.
    pub fn stats(&self) -> LinkStats {
        self.inner.borrow().stats()
    }

    /// Returns whether the target may be waiting for the processor that this thread runs on. Polling would keep it from
    /// replying: yield (`std::thread::yield_now`). Call this in your own loop that polls for outcomes, every 64 polls
    /// without result or so. The waits of this library do it themselves.
    ///
    /// Where the target's memory is mapped (`shm`, and `ucx-put` on one machine) the two exchange the numbers
    /// of their processors: a target in [`Target::run`](crate::Target::run) does, and one that calls
    /// [`Target::may_share_processor`](crate::Target::may_share_processor). Over other transports the result
    /// is `true` for every target on this machine.
    pub fn may_share_processor(&self) -> bool {
        self.inner.borrow_mut().may_share_processor()
    }

    /// The options that it was made with. The mode is that of later calls ([`Link::set_mode`]).
    pub fn config(&self) -> LinkConfig {
        let inner = self.inner.borrow();
        LinkConfig { mode: inner.settings.mode, ..(*inner.config).clone() }
    }

    /// Name of the transport in use.
    pub fn transport(&self) -> String {
        self.inner.borrow().transport().to_owned()
    }

    /// Returns the path of the link's frames, and the reasons against the others. For users; may take long.
    pub fn path(&self) -> LinkPath {
        self.inner.borrow().path()
    }

    /// The arrival rule in use.
    pub fn arrival_rule(&self) -> ArrivalRules {
        self.inner.borrow().rule()
    }

    /// The target's process.
    pub fn peer(&self) -> PeerIdentity {
        self.inner.borrow().peer().clone()
    }

    /// The CPU that the target claims to have: its machine, level and features, and its name for compilers. The
    /// library's image for this machine travels.
    pub fn peer_cpu(&self) -> Cpu {
        self.inner.borrow().peer_cpu().clone()
    }

    /// The target's epoch: another one after it restarted.
    pub fn epoch(&self) -> u64 {
        self.inner.borrow().epoch()
    }

    /// The rights of this process at the target, as the target announced them. Calls for which a right is
    /// missing fail, some of them before anything is sent. Without [`Rights::INJECT`] calls in mode cached
    /// run code that is in the target's store already, brought by other sources.
    pub fn rights(&self) -> Rights {
        self.inner.borrow().rights()
    }

    /// Largest frame that the link's own mailbox takes, in bytes, with header and code. For larger ones the
    /// target makes a large mailbox on demand
    /// ([`TargetBuilder::max_payload`](crate::TargetBuilder::max_payload)), where the transport has
    /// mailboxes.
    pub fn max_frame(&self) -> usize {
        self.inner.borrow().max_frame()
    }
}

/// The path of a link's frames.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct LinkPath {
    /// Name of the transport.
    pub transport: String,
    /// The arrival rule: the receiver's proof that all of a frame has arrived.
    pub rule: ArrivalRules,
    /// The medium, as the transport describes it.
    pub route: PathInfo,
    /// Preferred transports that were not taken, with the reasons.
    pub passed_over: Vec<PassedOver>,
}

impl LinkPath {
    /// The transport, and for a stream whether its frames are encrypted, in a few words:
    /// `tcp, sealed by AES-256-GCM`.
    pub fn summary(&self) -> String {
        summary(&self.transport, &self.route)
    }
}

/// As [`LinkPath::summary`].
pub(crate) fn summary(transport: &str, route: &PathInfo) -> String {
    let note = route.notes.first().and_then(|note| note.split(':').next());
    match note.filter(|note| note.starts_with("sealed") || *note == "clear") {
        Some(note) => format!("{transport}, {note}"),
        None => transport.to_owned(),
    }
}

/// A pending call. Dropping it cancels it: the function still runs, and its outcome is dropped.
#[derive(Debug)]
#[must_use = "dropping it abandons the call: use Link::send where none is wanted"]
pub struct Pending<'l> {
    link: &'l Link,
    token: u32,
}

impl Pending<'_> {
    /// Waits for the outcome.
    ///
    /// # Errors
    /// When the target refused the call, the function panicked, `timeout` passed (the call is then cancelled)
    /// or the target is gone.
    #[inline(always)]
    pub fn wait(self, timeout: Duration) -> Result<Reply, Error> {
        // A token that was waited for is void: there is nothing to cancel.
        let this = std::mem::ManuallyDrop::new(self);
        match this.link.inner.borrow_mut().wait(this.token, timeout) {
            Ok(bytes) => Ok(Reply(bytes)),
            Err(error) => Err(error),
        }
    }

    /// Polls once, without waiting: `None` if the outcome has not come. After an outcome it is `None` for
    /// ever.
    ///
    /// # Errors
    /// As [`Pending::wait`], but for the deadline.
    pub fn poll(&mut self) -> Result<Option<Reply>, Error> {
        let mut inner = self.link.inner.borrow_mut();
        Ok(inner.poll_call(self.token)?.map(Reply))
    }

    /// Waits for the reply, and appends it to `into`: allocates nothing once `into` has grown to it.
    ///
    /// # Errors
    /// As [`Pending::wait`]; `into` is then as it was.
    #[inline]
    pub fn wait_into(self, timeout: Duration, into: &mut Vec<u8>) -> Result<(), Error> {
        let this = std::mem::ManuallyDrop::new(self);
        this.link.inner.borrow_mut().wait_into(this.token, timeout, into)
    }

    /// Cancels the call.
    pub fn cancel(self) {}

    /// The call's number on its link, for programs that cannot keep a borrow: [`Link::pending_from_raw`]
    /// returns the call for it. A call that is neither resumed nor has an outcome keeps its slot for as long
    /// as the link lives.
    #[inline]
    pub fn into_raw(self) -> u32 {
        std::mem::ManuallyDrop::new(self).token
    }
}

impl Drop for Pending<'_> {
    fn drop(&mut self) {
        self.link.abandon(self.token);
    }
}

/// Runs when the target refuses a one-way call.
pub(crate) type RefusalHandler = Box<dyn FnMut(&Refusal) + Send>;
/// Runs once when the target is gone, with the reason.
pub(crate) type PeerGoneHandler = Box<dyn FnMut(&str) + Send>;
/// Runs when the target requests code, with the ifunc's name.
pub(crate) type CodeMissingHandler = Box<dyn FnMut(&str) + Send>;

/// Unboxes an error of the fast path.
#[inline(always)]
fn boxed(result: Result<usize, Box<Error>>) -> Result<u32, Error> {
    match result {
        Ok(token) => Ok(token as u32),
        Err(error) => Err(*error),
    }
}

/// Time at which to stop waiting.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Deadline {
    at: Option<Instant>,
    pub(crate) timeout: Duration,
}

impl Deadline {
    /// `timeout` from now; none if the clock cannot hold it.
    pub(crate) fn after(timeout: Duration) -> Self {
        Deadline { at: Instant::now().checked_add(timeout), timeout }
    }

    pub(crate) fn left(self) -> Duration {
        self.at.map_or(Duration::MAX, |at| at.saturating_duration_since(Instant::now()))
    }

    pub(crate) fn passed(self) -> bool {
        self.left() == Duration::ZERO
    }
}
