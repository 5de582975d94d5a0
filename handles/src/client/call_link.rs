//! The link of a client for functions: threads wait for its calls, and tasks await them.
//!
//! A thread that waits polls the link and sleeps on it itself. Tasks are woken by a *driver*: a thread that polls the link
//! and sleeps on it for them. The driver starts when the first call is awaited, and sleeps without a time limit while
//! no call is awaited. Only the driver arms the link, so it also wakes waiting threads from then on.

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;
use std::time::Duration;

use farjump::{
    Library, Link, Mode, Reply, SharedLink, SharedPending, SystemError, SystemOperation, WaitError,
};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};

use crate::client::connection::{LOOKS, NAP, lock, poll_once, sleep_on};
use crate::client::patience::Patience;
use crate::error::Error;

/// Number of looks for an outcome under one lock of the link.
const LOOKS_AT_ONCE: u32 = 50;

/// The link, and its driver once there is one.
#[derive(Debug)]
pub(crate) struct CallLink {
    link: SharedLink,
    driver: Mutex<Option<Arc<Driver>>>,
}

/// A request that claims the object of the call behind it, so that the object comes from the owner's file before that
/// call.
pub(crate) struct Hold<'c> {
    /// The owner's store as a function.
    pub(crate) store: &'c Library,
    pub(crate) request: Vec<u8>,
}

/// The reason why a wait ended without an outcome.
pub(crate) enum Ended {
    Interrupted,
    TimedOut,
    Failed(Error),
}

impl<E: Into<Error>> From<E> for Ended {
    fn from(error: E) -> Ended {
        Ended::Failed(error.into())
    }
}

impl CallLink {
    pub(crate) fn new(link: Link) -> CallLink {
        CallLink { link: SharedLink::new(link), driver: Mutex::default() }
    }

    /// Injects a call, behind a request that holds its object. Waits for credit, and returns the call's number.
    pub(crate) fn start(
        &self,
        hold: Option<Hold<'_>>,
        library: &Library,
        payload: &[u8],
    ) -> Result<u32, Error> {
        let started = self.link.with(|link| {
            if let Some(Hold { store, request }) = hold {
                link.send_in(Mode::Local, store, &request)?;
            }
            link.inject(library, payload).map(farjump::Pending::into_raw)
        })?;
        Ok(started?)
    }

    /// Returns the outcome of a call, if it has come.
    pub(crate) fn poll(&self, number: u32) -> Result<Option<Reply>, Error> {
        self.link.with(|link| poll_once(link, number))?
    }

    /// As [`CallLink::poll`], but looks several times.
    fn look(&self, number: u32) -> Result<Option<Reply>, Error> {
        self.link.with(|link| {
            for _ in 0..LOOKS_AT_ONCE {
                if let Some(reply) = poll_once(link, number)? {
                    return Ok(Some(reply));
                }
                std::hint::spin_loop();
            }
            Ok(None)
        })?
    }

    /// Drops the outcome of a call, whether it has come or not.
    pub(crate) fn cancel(&self, number: u32) {
        // This thread can only be using the link itself inside a handler, and this client has no handlers.
        let _ = self.link.with(|link| drop(link.pending_from_raw(number)));
    }

    /// Returns the descriptor on which an event loop sleeps. It stays open as long as this link.
    pub(crate) fn descriptor(&self) -> Result<RawFd, Error> {
        let descriptor = self.link.with(|link| link.as_fd().map(|descriptor| descriptor.as_raw_fd()))?;
        Ok(descriptor?)
    }

    /// Prepares an event loop's sleep.
    pub(crate) fn arm(&self) -> Result<Option<Duration>, Error> {
        Ok(self.link.with(Link::arm)??)
    }

    /// Ends an event loop's sleep.
    pub(crate) fn disarm(&self) -> Result<(), Error> {
        Ok(self.link.with(Link::disarm)?)
    }

    /// Waits for the outcome of a call. Drops the outcome if it does not come in time.
    pub(crate) fn wait(&self, number: u32, patience: &mut Patience<'_>) -> Result<Reply, Ended> {
        for _ in 0..LOOKS / LOOKS_AT_ONCE {
            if let Some(reply) = self.look(number)? {
                return Ok(reply);
            }
        }
        let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
        let mut awaited = None;
        loop {
            if awaited.is_none()
                && let Some(driver) = self.driver()
            {
                // This thread may have disarmed the link that the driver sleeps on.
                driver.ring();
                awaited = Some(AwaitedCall::new(driver));
            }
            match awaited {
                Some(_) => {
                    if let Poll::Ready(outcome) = self.poll_task(number, &mut Context::from_waker(&waker)) {
                        return Ok(outcome?);
                    }
                    let time = patience.slice(NAP);
                    patience.sleep(|| std::thread::park_timeout(time));
                }
                None => {
                    let armed = self
                        .link
                        .with(|link| Ok::<_, farjump::Error>((link.arm()?, link.as_fd()?.as_raw_fd())))?;
                    let (longest, descriptor) = armed?;
                    if let Some(longest) = longest {
                        let time = patience.slice(longest.min(NAP));
                        patience.sleep(|| sleep_on(descriptor, time));
                    }
                    self.link.with(Link::disarm)?;
                }
            }
            let goes_on = patience.may_continue();
            // An interruption goes before an outcome that came with it, as for requests.
            let outcome = if goes_on { self.poll(number)? } else { None };
            match outcome {
                Some(reply) => return Ok(reply),
                None if goes_on && !patience.is_over() => {}
                None => {
                    self.cancel(number);
                    return Err(if goes_on { Ended::TimedOut } else { Ended::Interrupted });
                }
            }
        }
    }

    /// Returns the outcome of a call, or wakes the task when the outcome comes. The caller keeps an [`AwaitedCall`]
    /// meanwhile.
    pub(crate) fn poll_task(&self, number: u32, cx: &mut Context<'_>) -> Poll<Result<Reply, Error>> {
        let polled = self.link.with(|link| {
            let mut pending = link.pending_from_raw(number)?;
            let polled = Pin::new(&mut pending).poll(cx);
            // After an outcome, nothing is left to cancel.
            let _ = pending.into_raw();
            Some(polled)
        });
        match polled {
            Ok(Some(polled)) => polled.map_err(Error::from),
            Ok(None) => {
                let peer = "the owner".to_owned();
                Poll::Ready(Err(farjump::Error::from(WaitError::Taken { peer }).into()))
            }
            Err(error) => Poll::Ready(Err(error.into())),
        }
    }

    /// As [`CallLink::start`], and awaits credit.
    pub(crate) async fn begin(
        &self,
        hold: Option<Hold<'_>>,
        library: &Library,
        payload: &[u8],
    ) -> Result<Begun, Error> {
        let awaited = self.awaited()?;
        if let Some(Hold { store, request }) = hold {
            self.link.send_in(Mode::Local, store, &request).await?;
        }
        Ok(Begun { pending: self.link.inject(library, payload).await?, _awaited: awaited })
    }

    /// Makes the driver drive the link for as long as the value is kept.
    pub(crate) fn awaited(&self) -> Result<AwaitedCall, Error> {
        let mut driver = lock(&self.driver);
        let driver = match &*driver {
            Some(driver) if !driver.has_ended() => Arc::clone(driver),
            _ => {
                let started = Driver::start(&self.link)?;
                *driver = Some(Arc::clone(&started));
                started
            }
        };
        Ok(AwaitedCall::new(driver))
    }

    fn driver(&self) -> Option<Arc<Driver>> {
        lock(&self.driver).as_ref().filter(|driver| !driver.has_ended()).cloned()
    }
}

impl Drop for CallLink {
    fn drop(&mut self) {
        // Without the lock: in a forked child, a thread of the parent may hold it for ever.
        let driver = self.driver.get_mut().unwrap_or_else(PoisonError::into_inner);
        if let Some(driver) = driver {
            driver.is_closed.store(true, Ordering::Release);
            driver.ring();
        }
    }
}

/// A call injected by a task.
#[derive(Debug)]
pub(crate) struct Begun {
    pending: SharedPending,
    _awaited: AwaitedCall,
}

impl Begun {
    pub(crate) async fn outcome(self) -> Result<Vec<u8>, Error> {
        Ok(self.pending.await?.into_vec())
    }
}

/// Wakes a thread that is parked.
struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Keeps the link driven until the value is dropped.
#[derive(Debug)]
pub(crate) struct AwaitedCall(Arc<Driver>);

impl AwaitedCall {
    fn new(driver: Arc<Driver>) -> AwaitedCall {
        if driver.awaited.fetch_add(1, Ordering::AcqRel) == 0 {
            driver.ring();
        }
        AwaitedCall(driver)
    }
}

impl Drop for AwaitedCall {
    fn drop(&mut self) {
        // The driver notices this when it wakes, within a second.
        self.0.awaited.fetch_sub(1, Ordering::AcqRel);
    }
}

/// State that the driver thread shares with the callers for which it drives a link.
#[derive(Debug)]
struct Driver {
    /// Calls that are awaited.
    awaited: AtomicUsize,
    /// True if the client is gone.
    is_closed: AtomicBool,
    /// True if the thread has ended because the link failed.
    has_ended: AtomicBool,
    /// Becomes readable when another field has changed.
    event: OwnedFd,
}

impl Driver {
    /// Starts the thread. Calls may be awaited as soon as this returns.
    fn start(link: &SharedLink) -> Result<Arc<Driver>, Error> {
        let failed = |operation| move |source| farjump::Error::from(SystemError { operation, source });
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(|errno| failed(SystemOperation::MakeDescriptor)(errno.into()))?;
        let own = link.with(|link| {
            link.as_fd()?.try_clone_to_owned().map_err(failed(SystemOperation::MakeDescriptor))
        })?;
        let descriptor = own?;
        let driver = Arc::new(Driver {
            awaited: AtomicUsize::new(0),
            is_closed: AtomicBool::new(false),
            has_ended: AtomicBool::new(false),
            event,
        });
        let (sleeper, its_link) = (Arc::clone(&driver), link.clone());
        let driven = link.drive(async move |longest| sleeper.sleep(&its_link, &descriptor, longest));
        let ends = Ends(Arc::clone(&driver));
        let run = move || {
            let _ends = ends;
            let mut driven = pin!(driven);
            // The future is pending only to let other threads have their turn: its sleep blocks.
            while driven.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending() {
                std::thread::yield_now();
            }
        };
        std::thread::Builder::new()
            .name("farjump-calls".to_owned())
            .spawn(run)
            .map_err(failed(SystemOperation::StartThread))?;
        Ok(driver)
    }

    fn has_ended(&self) -> bool {
        self.has_ended.load(Ordering::Acquire)
    }

    fn ring(&self) {
        // The write fails only after 2^64 earlier ones.
        let _ = rustix::io::write(&self.event, &1_u64.to_ne_bytes());
    }

    /// Sleeps until the link has an event, for `longest` at most, or without a limit while no call is awaited. Fails
    /// when the client is gone.
    fn sleep(&self, link: &SharedLink, descriptor: &OwnedFd, longest: Duration) -> io::Result<()> {
        if self.is_closed.load(Ordering::Acquire) {
            return Err(io::Error::other("the client was dropped"));
        }
        let event = PollFd::new(&self.event, PollFlags::IN);
        let slept = if self.awaited.load(Ordering::Acquire) == 0 {
            // The target need not wake this thread: threads that wait poll, or arm the link themselves.
            link.with(Link::disarm).map_err(io::Error::other)?;
            poll(&mut [event], None)
        } else {
            let longest = Timespec::try_from(longest).ok();
            poll(&mut [event, PollFd::new(&descriptor.as_fd(), PollFlags::IN)], longest.as_ref())
        };
        let _ = rustix::io::read(&self.event, &mut [0_u8; 8][..]);
        match slept {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(errno) => Err(errno.into()),
        }
    }
}

/// Notes the end of the thread, however it ends.
struct Ends(Arc<Driver>);

impl Drop for Ends {
    fn drop(&mut self) {
        self.0.has_ended.store(true, Ordering::Release);
    }
}
